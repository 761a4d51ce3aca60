"""Mistakes found from a table of steps alone, each step judged from those before it.

Scores all rows of `cefito compare TABLE --verifiers` on a table with the columns video, task, step,
start, end, split and error.

    python benchmarks/mistakes_from_tables.py --table steps.csv --out FILE
        [--recognised predicted.json]

Rules call a step a mistake or not; cefito verify --online does from the probability on that gives
one false alarm a right video of training, each judged by the others. Further rows are of other
numbers of false alarms a right video, and of 0.5, the default of the command line.

With a file of recognised steps, {recogniser: {video: {"pred": names}}}, the same verifiers judge
these, too, instead of the true steps. A true step has the probability of the recognised one that an
alignment of the fewest edits puts in its place, or the mean of its video if there is none. Scores
are of probabilities from 0.5 on; the highest F1b and average F1 are those of any threshold, chosen
on the test videos themselves.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

import common
from cefito.files import write_json
from cefito.inference.verification import open_verifier
from cefito.study.verifiers import VERIFIERS, Judge, RightVideos, compare_verifiers, scores, summed
from cefito.tracks.document import Choices
from cefito.tracks.reading import read
from cefito.tracks.track import TimedStep, Track

_ALARMS = 0.25, 0.5, 0.75, 1.25, 1.5, 2.0  # false alarms a right video


def matched(video: Track, names: Sequence[str], judge: Judge) -> list[float]:
    """Return p(mistake) of each step of a video, of steps that were recognised [steps]."""
    steps = [TimedStep(name=name, start=place, end=place + 1) for place, name in enumerate(names)]
    chances = [float(p) for p in judge(video.model_copy(update={"steps": tuple(steps)}))]
    places = [np.nan] * len(video.steps)
    for block in Levenshtein.opcodes(names, [step.name for step in video.steps]):
        if block.tag in ("equal", "replace"):
            places[block.dest_start : block.dest_end] = chances[block.src_start : block.src_end]
    mean = float(np.mean(chances)) if chances else 0.0
    return np.where(np.isnan(places), mean, places).tolist()


def of_recognised(table: Path, recognised: Path) -> dict[str, Any]:
    """Score the verifiers on recognised steps of the test videos."""
    tracks = read([table], Choices()).tracks
    right = [video for video in tracks if video.split == "train"]
    learned = RightVideos(right, open_verifier(table, online=True)[1])
    judges = {name: row.learn(learned) for name, row in VERIFIERS.items() if " " not in name}
    report: dict[str, Any] = {}
    for recogniser, videos in json.loads(recognised.read_text(encoding="utf-8")).items():
        test = [video for video in tracks if video.split == "test" and video.video in videos]
        wrong = np.array([bool(step.errors) for video in test for step in video.steps])
        rows = report[recogniser] = {"videos": len(test), "steps": len(wrong)}
        for name, judge in judges.items():
            rates = [matched(video, videos[video.video]["pred"], judge) for video in test]
            together = np.zeros(len(wrong), dtype=np.int64)  # intervals are not asked for
            sums, levels = summed(np.concatenate(rates), wrong, together, np.ones(1))
            places = [_rounded(sums, said) for said in range(1, len(levels) + 1)]
            rows[name] = _rounded(sums, int((levels >= 0.5).sum()))
            for score in ("f1b", "average_f1"):
                rows[name][f"highest_{score}"] = max(values[score] for values in places)
    return report


def _rounded(sums: NDArray[np.float64], said: int) -> dict[str, float]:
    of_mistakes = scores(sums, said).items()
    return {name: round(float(value[0]), 1) for name, value in of_mistakes if "missed" not in name}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--recognised", type=Path)
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
    if given.recognised is not None:
        report["command"] += " --recognised predicted.json"
        report["recognised"] = of_recognised(given.table, given.recognised)
    if given.out is not None:
        write_json(given.out, report)
    print(report)


if __name__ == "__main__":
    main()
