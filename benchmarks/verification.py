"""Errors of steps found by the verifier, and repairs.

Learns from the training and validation videos of a folder with taxonomy.json, videos.jsonl and
errors.jsonl, and scores the test videos, their steps known.

    python benchmarks/verification.py --data FOLDER [--graphs task_graphs.json] --out FILE

AUC is in per cent, of steps with an error of a kind against steps without this kind; its interval
resamples videos. A repair is right if each of its steps comes after all that the official graph
puts before it and that were done or are part of the repair; it is asked after each step that has an
error of order, and at the end of videos with missing steps, of tasks whose official graph has no
circle.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

import common
from cefito.data.annotations import Video
from cefito.data.source import read_common
from cefito.errors import ConfigError
from cefito.files import write_json
from cefito.verification.findings import repair
from cefito.verification.order import reached
from cefito.verification.verifier import Verifier
from graphs import official_graphs

_DRAWS = 1000
KINDS = ("any", "order", "technique", "measurement", "preparation", "timing", "temperature")


def auc(scores: NDArray[Any], wrong: NDArray[np.bool_]) -> float:
    """Probability that a wrong step has the higher score, in per cent."""
    count = int(wrong.sum())
    if not 0 < count < len(wrong):
        return float("nan")
    above = rankdata(scores)[wrong].sum() - count * (count + 1) / 2
    return float(100 * above / (count * (len(wrong) - count)))


def steps_known(verifiers: Sequence[Verifier], videos: Sequence[Video]) -> dict[str, Any]:
    """AUC of each kind: the mean over seeds, and its interval."""
    owner = np.repeat(np.arange(len(videos)), [len(video.steps) for video in videos])
    tags = [" ".join(step.errors).casefold() for video in videos for step in video.steps]
    rows = [
        np.concatenate([own.probabilities(v.steps, v.task) for v in videos]) for own in verifiers
    ]
    draws = np.random.default_rng(0).integers(len(videos), size=(_DRAWS, len(videos)))
    places = [np.flatnonzero(owner == video) for video in range(len(videos))]
    found = {}
    for kind in KINDS:
        wrong = np.array([bool(tag) if kind == "any" else kind in tag for tag in tags])
        scores = [own[:, 1] if kind == "order" else 1 - own[:, 0] for own in rows]
        resampled = []
        for draw in draws:
            chosen = np.concatenate([places[video] for video in draw])
            resampled.append(auc(scores[0][chosen], wrong[chosen]))
        low, high = np.nanpercentile(resampled, (2.5, 97.5)).round(1).tolist()
        every = [round(auc(own, wrong), 1) for own in scores]
        mean = round(float(np.mean(every)), 1)
        found[kind] = {"steps": int(wrong.sum()), "mean": mean, "low": low, "high": high}
        found[kind]["seeds"] = every
    return found


def repairs(
    verifier: Verifier, videos: Sequence[Video], official: dict[int, Any]
) -> dict[str, int]:
    """How often the repair, and its first step, is what the official graph allows."""
    counts = {"asked": 0, "first_allowed": 0, "all_allowed": 0}
    for video in videos:
        edges = {edge for edge in official[video.task] if not {*edge} & {"start", "end"}}
        try:
            orders = reached(edges)
        except ConfigError:  # two steps of one name
            continue
        steps = [step.action for step in video.steps]
        late = [n for n, step in enumerate(video.steps, 1) if "Order Error" in step.errors]
        for count in late + [len(steps)] * bool(video.missing):
            done = set(steps[:count])
            plan = repair(verifier.orders[video.task], steps[:count], verifier.taxonomy)
            if not plan:
                continue
            known, allowed = {*done, *plan}, []
            for one in plan:
                allowed.append(all(a in done for a, b in orders if b == one and a in known))
                done.add(one)
            counts["asked"] += 1
            counts["first_allowed"] += allowed[0]
            counts["all_allowed"] += all(allowed)
    return counts


def main(arguments: Sequence[str] | None = None) -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--graphs", type=Path, help="official orders")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given: argparse.Namespace = parser.parse_args(arguments)
    annotations = read_common(given.data).annotations
    known = [video for video in annotations.videos if video.split != "test"]
    test = [video for video in annotations.videos if video.split == "test" and video.steps]
    taxonomy = annotations.taxonomy
    verifiers = [Verifier.fit(known, taxonomy, seed=seed) for seed in given.seeds]
    first = verifiers[0]
    report: dict[str, Any] = {
        "command": "python benchmarks/verification.py --data FOLDER --graphs task_graphs.json",
        "data": taxonomy.dataset,
        "seeds": given.seeds,
        "machine": common.machine(),
        "test_videos": len(test),
        "auc": steps_known(verifiers, test),
        "temperature": round(first.temperature, 2),
        "threshold_of_one_false_alarm_an_hour": round(first.promise(1).least, 3),
    }
    if given.graphs is not None:
        report["repairs"] = repairs(first, test, official_graphs(given.graphs))
    if given.out is not None:
        write_json(given.out, report)
    print(report)


if __name__ == "__main__":
    main()
