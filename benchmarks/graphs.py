"""Graphs of tasks learned from recordings, beside official ones.

Edges of the transitive reduction, "start" and "end" too: precision, recall and F1, means over
tasks, per cent; of the recordings that published graphs are learned from, and held out: of the
right recordings of the split train. Some official graphs hold circles, since they name two steps
alike; they count as they are. The prior of an edge is judged by the log-likelihood a step of
recordings left out one at a time, which no official graph enters; "prior words" is the prior that
`cefito graph` has, "left_out" its F1 if both costs are chosen by the F1 of the other tasks.

    python benchmarks/graphs.py --data FOLDER --graphs task_graphs.json
        --recordings graph_recordings.json --out FILE
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np

import common
from cefito.data.annotations import Video
from cefito.data.source import read_common
from cefito.data.vocabulary import Taxonomy
from cefito.files import write_json
from cefito.study.verifiers import agreement, with_ends
from cefito.verification.order import TaskOrder, likeliest_order, log_likelihood

_PRIORS = 0.0, 0.5, 1.0, 2.0, 3.0  # minus the log prior of an edge
_COSTS = 0.25, 0.5, 1.0, 1.5, 2.0  # the same, with a shared word at most what it is without


def official_graphs(path: Path) -> dict[int, set[Any]]:
    """Read the edges of each task, also those of "start" and "end"."""
    value = json.loads(path.read_text(encoding="utf-8"))
    return {int(task): {*map(tuple, graph["edges"])} for task, graph in value.items()}


def graphs(videos: Sequence[Video], taxonomy: Taxonomy, official: dict[int, Any]) -> Any:
    """Scores of graphs by counts (9 of 10 videos keep an order) and by likelihood."""
    tasks, names = taxonomy.tasks, [action.name for action in taxonomy.actions]
    orders = {
        t: TaskOrder.of([v for v in videos if v.task == t], tasks[t].actions, names)
        for t in official
    }
    theirs = {task: with_ends(edges, tasks[task].actions) for task, edges in official.items()}

    def compared(order: TaskOrder, task: int) -> tuple[set[Any], set[Any]]:
        return with_ends(order.edges, tasks[task].actions), theirs[task]

    found: dict[str, Any] = {"recordings": len(videos)}
    counted = {task: replace(order, places=order.places[:0]) for task, order in orders.items()}
    for name, own in (("counts", counted), ("likelihood", orders)):
        found[name] = agreement([compared(order, task) for task, order in own.items()])
    for prior in ("words", *_PRIORS):
        ours, held, steps = [], 0.0, 0
        for task, order in orders.items():
            costs = order.edge_costs if prior == "words" else np.full_like(order.edge_costs, prior)
            ours.append(compared(replace(order, edge_costs=costs), task))
            own = [video for video in videos if video.task == task]
            for place, row in enumerate(order.places):
                others = [*own[:place], *own[place + 1 :]]
                rest = TaskOrder.of(others, order.actions.tolist())
                left = likeliest_order(rest.kept, rest.places, costs)
                held += log_likelihood(left, row[None])
                steps += int((row >= 0).sum())
        found[f"prior {prior}"] = {**agreement(ours), "held_out": round(held / max(steps, 1), 4)}
    tried = []
    for related, unrelated in combinations_with_replacement(_COSTS, 2):
        ours = []
        for task, order in orders.items():
            shared = order.edge_costs < order.edge_costs.max()
            costs = np.where(shared, related, unrelated)
            ours.append(compared(replace(order, edge_costs=costs), task))
        tried.append([agreement([pair])["f1"] for pair in ours])
    scores = np.array(tried)  # [choices, tasks]
    chosen = (scores.sum(axis=1, keepdims=True) - scores).argmax(axis=0)
    left_out = scores[chosen, np.arange(scores.shape[1])].mean()
    return {**found, "left_out": round(float(left_out), 1)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = common.parser(__doc__)
    for name in ("--data", "--graphs", "--recordings"):
        parser.add_argument(name, type=Path, required=True)
    given: argparse.Namespace = parser.parse_args(arguments)
    annotations = read_common(given.data).annotations
    official = official_graphs(given.graphs)
    listed = {*json.loads(given.recordings.read_text(encoding="utf-8"))}
    published = [  # the published figures count all steps, errors of other kinds among them
        replace(video, missing=(), steps=tuple(replace(step, errors=()) for step in video.steps))
        for video in annotations.videos
        if video.video_id in listed
    ]
    held_out = [video for video in annotations.videos if video.split == "train" and video.steps]
    files = "--graphs task_graphs.json --recordings graph_recordings.json"
    report = {
        "command": f"python benchmarks/graphs.py --data FOLDER {files}",
        "machine": common.machine(),
        "recordings": graphs(published, annotations.taxonomy, official),
        "held_out": graphs(held_out, annotations.taxonomy, official),
    }
    if given.out is not None:
        write_json(given.out, report)
    print(report)


if __name__ == "__main__":
    main()
