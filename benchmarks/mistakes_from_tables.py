"""Mistakes found from a table of steps alone, each step judged from those before it.

Learns from the videos of the split train of a table with the columns video, task, step, start,
end, split and error, and judges those of the split test, as `cefito verify TABLE TABLE --online`.

    python benchmarks/mistakes_from_tables.py --table steps.csv --out FILE

Of mistakes, precision, recall, F1 and F1b, in per cent; in F1b, precision is that of as many steps
with a mistake as without one, TP / (TP + FP · mistakes / others). The average F1 is the mean of F1
of mistakes and of other steps. A step counts as a mistake from a probability of 0.5 on, the default
of the command line; a step of a task without right videos does not. Beside it are two rules: the
name of the step, or the pair of it and the one before it, was never seen in training, in any task.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import common
from cefito.files import write_json
from cefito.inference.verifiers import open_verifier
from cefito.inference.whole_videos import LEAST, verified_videos
from cefito.tracks import Track
from cefito.tracks.document import Choices
from cefito.tracks.reading import read

_BEFORE = ""  # the name before the first one


def scores(said: NDArray[np.bool_], wrong: NDArray[np.bool_]) -> dict[str, float]:
    """Precision, recall, F1, F1b and average F1, in per cent."""
    hits, alarms = int((said & wrong).sum()), int((said & ~wrong).sum())
    kept, missed = int((~said & ~wrong).sum()), int((~said & wrong).sum())
    balanced = hits / max(hits + alarms * wrong.sum() / (~wrong).sum(), 1e-9)
    recall = hits / max(hits + missed, 1)
    f1 = 2 * hits / max(2 * hits + alarms + missed, 1)
    f1_others = 2 * kept / max(2 * kept + alarms + missed, 1)
    values = {
        "precision": hits / max(hits + alarms, 1),
        "recall": recall,
        "f1": f1,
        "average_f1": (f1 + f1_others) / 2,
        "f1b": 2 * balanced * recall / max(balanced + recall, 1e-9),
    }
    return {name: round(float(100 * value), 1) for name, value in values.items()}


def pairs(video: Track) -> list[tuple[str, str]]:
    """Return each name with the one before it."""
    return [*pairwise([_BEFORE, *(step.name for step in video.steps)])]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--table", type=Path, required=True)
    given: argparse.Namespace = parser.parse_args(arguments)
    tracks = read([given.table], Choices()).tracks
    train = [video for video in tracks if video.split == "train"]
    test = [video for video in tracks if video.split == "test"]
    wrong = np.array([bool(step.errors) for video in test for step in video.steps])
    began = time.perf_counter()
    _, verifier = open_verifier(given.table, online=True)
    asked: dict[str, Any] = {"task": None, "least": LEAST, "online": True}
    videos = verified_videos(given.table, verifier, [given.table], **asked)
    seconds = time.perf_counter() - began
    if [video.video for video in videos] != [video.video for video in test]:
        raise SystemExit("the videos judged are not those of the split test")
    chances = np.array([step.mistake or 0.0 for video in videos for step in video.steps])
    names = {step.name for video in train for step in video.steps}
    seen = {pair for video in train for pair in pairs(video)}
    new = np.array([step.name not in names for video in test for step in video.steps])
    new_pair = np.array([pair not in seen for video in test for pair in pairs(video)])
    report: dict[str, Any] = {
        "command": "python benchmarks/mistakes_from_tables.py --table steps.csv",
        "machine": common.machine(),
        "seconds": round(seconds, 2),
        "train_videos": len(train),
        "test_videos": len(test),
        "steps": len(wrong),
        "mistakes": int(wrong.sum()),
        "tasks_without_right_videos": len(
            {video.task for video in test} - {video.task for video in train}
        ),
        "verify_online": scores(chances >= LEAST, wrong),
        "rule_name_never_seen": scores(new, wrong),
        "rule_pair_never_seen": scores(new_pair, wrong),
    }
    if given.out is not None:
        write_json(given.out, report)
    print(report)


if __name__ == "__main__":
    main()
