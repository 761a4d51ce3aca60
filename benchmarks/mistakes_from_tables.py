"""Mistakes found from a table of steps alone, each step judged from those before it.

Scores all rows of `cefito compare TABLE --verifiers` on a table with the columns video, task, step,
start, end, split and error.

    python benchmarks/mistakes_from_tables.py --table steps.csv --out FILE

Rules call a step a mistake or not; cefito verify --online does from the probability on that gives
one false alarm a right video of training, each judged by the others. Further rows are of other
numbers of false alarms a right video, and of 0.5, the default of the command line.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import common
from cefito.files import write_json
from cefito.study.verifiers import VERIFIERS, compare_verifiers

_ALARMS = 0.25, 0.5, 0.75, 1.25, 1.5, 2.0  # false alarms a right video


def main(arguments: Sequence[str] | None = None) -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--table", type=Path, required=True)
    given: argparse.Namespace = parser.parse_args(arguments)
    for alarms in _ALARMS:
        VERIFIERS[f"ours, {alarms} a video"] = replace(VERIFIERS["ours"], alarms=alarms)
    VERIFIERS["ours, from 0.5 on"] = replace(VERIFIERS["ours"], alarms=None)
    began = time.perf_counter()
    _, scores = compare_verifiers(given.table, None, [*VERIFIERS])
    for row in scores["rows"].values():
        del row["missed"]  # the points of a picture
    report = {
        "command": "python benchmarks/mistakes_from_tables.py --table steps.csv",
        "machine": common.machine(),
        "seconds": round(time.perf_counter() - began, 2),
        **scores,
    }
    if given.out is not None:
        write_json(given.out, report)
    print(report)


if __name__ == "__main__":
    main()
