"""Recognisers that learn from few videos of each task, beside each other.

Draws `--per-task` of the training and validation videos of each task to learn from, and 30 of the
others to judge, of a folder with taxonomy.json, videos.jsonl and timeline.npz.

    python benchmarks/few_videos.py --data FOLDER --out FILE [--per-task 2] [--draws 3]
        [--recognisers segmental,asformer,mstcn]
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import common
from cefito.data.prepared import PreparedDataset
from cefito.recognition.methods import RECOGNISERS
from cefito.recognition.recogniser import AnnotatedRows
from cefito.recognition.scores import VideoScores, summary

_JUDGED = 30  # videos


def drawn(dataset: PreparedDataset, per_task: int, seed: int) -> tuple[list[int], list[int]]:
    """Return the places of videos to learn from, and of those to judge."""
    generator = np.random.default_rng(seed)
    places = [place for place, video in enumerate(dataset.videos) if video.split != "test"]
    learned: list[int] = []
    for task in range(len(dataset.taxonomy.tasks)):
        of_task = [place for place in places if dataset.videos[place].task == task]
        learned += generator.permutation(of_task)[:per_task].tolist()
    others = [place for place in places if place not in learned]
    return learned, generator.permutation(others)[:_JUDGED].tolist()


def measured(
    dataset: PreparedDataset, names: Sequence[str], per_task: int, seed: int
) -> dict[str, Any]:
    """Train recognisers on the videos of a draw; return their scores of the others."""
    learned, judged = drawn(dataset, per_task, seed)
    known, background = AnnotatedRows.of(dataset, judged), len(dataset.taxonomy.actions)
    result: dict[str, Any] = {"draw": seed, "learned": len(learned), "judged": len(judged)}
    for name in names:
        recogniser = RECOGNISERS.named(name).kind.fit(dataset, learned, seed=seed)
        scores = []
        for rows, truth in zip(known.rows, known.labels, strict=True):
            labels = recogniser.recognise(rows).rows.argmax(axis=1)
            scores.append(VideoScores.of(labels, truth, background))
        result[name] = {key: round(value, 1) for key, value in summary(scores).items()}
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--per-task", type=int, default=2)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--recognisers", default="segmental,asformer,mstcn")
    given = parser.parse_args(arguments)
    with common.prepared(given.data) as dataset:
        names = given.recognisers.split(",")
        draws = [measured(dataset, names, given.per_task, draw) for draw in range(given.draws)]
    report = {
        "command": f"python benchmarks/few_videos.py --data {given.data.name}"
        f" --per-task {given.per_task} --draws {given.draws} --recognisers {given.recognisers}",
        "machine": common.machine(),
        "draws": draws,
    }
    common.write_report(report, given.out)


if __name__ == "__main__":
    main()
