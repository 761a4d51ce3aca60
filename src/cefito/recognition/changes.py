"""Evidence that does not know the usual order: how rows change, learned from rearranged videos.

Where all videos keep one order, a network may tell a step by what the steps before it have left
behind (the scene, the time), and then a step out of order looks like the usual one. So a further
network sees differences of rows alone, and is trained on videos whose steps are put in random
orders. Let Δ_a be the mean change that a step of the action a leaves behind in a row. Row x_t of a
step that is moved becomes

    x_t + Σ Δ of the steps that now come before it − Σ Δ of those that did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cefito.recognition.classifier import (
    RowClassifier,
    fit_classifier,
    main_directions,
    past_features,
    whole_features,
)
from cefito.recognition.scores import Segment, segments
from cefito.recognition.settings import RecogniserConfig
from cefito.recognition.temporal import Rows
from cefito.training.steps import NetworkTraining

Labels = NDArray[np.int64]
_STEPS = 4  # for each direction whose changes are seen
_AFTER = 4  # rows after the last step of a video that show what it left behind


def change_features(features: Rows, directions: Rows) -> Rows:
    """Return rows [n, (M + 1) P] less each of M averages along directions [P, C]: [n, M C]."""
    blocks = features.reshape(len(features), -1, len(directions)) @ directions
    return (blocks[:, :1] - blocks[:, 1:]).reshape(len(features), -1)


def left_behind(videos: Sequence[Rows], labels: Sequence[Labels], background: int) -> Rows:
    """Return Δ [K, D] of rows [n, D] of videos with labels [n]; 0 of actions without a step.

    A change is the mean of the rows from the step to the next one, less that of the rows from the
    step before to it; without a pause, of the two rows at the border.

    Args:
        videos: Rows of each video [n, D].
        labels: Labels of each video [n].
        background: K, the label of rows without a step.
    """
    totals, counts = np.zeros((background, videos[0].shape[1])), np.zeros(background)
    for rows, names in zip(videos, labels, strict=True):
        steps = segments(names, background)
        begun = Segment(background, 0, 0)
        over = Segment(background, min(len(rows), steps[-1].end + _AFTER), 0) if steps else begun
        for before, step, after in zip([begun, *steps], steps, [*steps[1:], over], strict=False):
            totals[step.action] += _between(rows, step.end, after.start)
            totals[step.action] -= _between(rows, before.end, step.start)
            counts[step.action] += 1
    return (totals / np.maximum(counts, 1)[:, None]).astype(np.float32)


def _between(rows: Rows, start: int, end: int) -> Rows:
    shown = rows[start:end] if end > start else rows[max(start - 1, 0) : start + 1]
    mean: Rows = shown.mean(axis=0)
    return mean


def rearranged(
    rows: Rows, labels: Labels, order: Sequence[int], changes: Rows
) -> tuple[Rows, Labels]:
    """Return rows and labels of a video whose steps come in another order.

    Each step moves with half of the pauses beside it.

    Args:
        rows: Its rows [n, D].
        labels: Its labels [n].
        order: Numbers of its steps, from 0; those that are left out are cut out.
        changes: Δ [K, D].
    """
    steps = segments(labels, len(changes))
    borders = [(a.end + b.start + 1) // 2 for a, b in pairwise(steps)]
    parts = [slice(*ends) for ends in pairwise([0, *borders, len(rows)])]
    left = np.array([changes[step.action] for step in steps])  # [k, D]
    before = np.cumsum(left, axis=0) - left
    moved = left[[*order]].cumsum(axis=0) - left[[*order]]
    shown = [rows[parts[step]] + now - before[step] for step, now in zip(order, moved, strict=True)]
    return np.concatenate(shown), np.concatenate([labels[parts[step]] for step in order])


def in_random_orders(
    videos: Sequence[Rows],
    labels: Sequence[Labels],
    background: int,
    *,
    copies: int,
    generator: np.random.Generator,
) -> tuple[list[Rows], list[Labels]]:
    """Return copies of each video whose steps are put in random orders.

    Arguments are those of `left_behind`, the number of copies of each, and what draws the orders.
    """
    changes = left_behind(videos, labels, background)
    both = [
        rearranged(rows, names, generator.permutation(count).tolist(), changes)
        if count
        else (rows, names)
        for rows, names in zip(videos, labels, strict=True)
        for count in [len(segments(names, background))]
        for _ in range(copies)
    ]
    return [rows for rows, _ in both], [names for _, names in both]


@dataclass(frozen=True, eq=False)
class Changes:
    """Networks that see how rows change, and do not know the usual order."""

    directions: Rows  # of what they see [P, C]
    whole: RowClassifier
    past: RowClassifier

    @classmethod
    def fit(
        cls,
        videos: Sequence[Rows],
        labels: Sequence[Labels],
        background: int,
        rate: float,
        config: RecogniserConfig,
        training: NetworkTraining,
    ) -> Changes:
        """Train on videos in random orders, of rows [n, P]; further arguments of `fit_classifier`.

        There is at most one direction for four steps.
        """
        seed, generator = training.seed, np.random.default_rng(training.seed)
        moved, names = in_random_orders(
            videos, labels, background, copies=config.rearranged, generator=generator
        )
        steps = sum(len(segments(row, background)) for row in labels)
        most = min(config.changes, max(1, steps // _STEPS))
        directions = main_directions(videos, most)
        networks = [
            fit_classifier(
                [change_features(features(rows, config, rate), directions) for rows in moved],
                names,
                background + 1,
                config,
                training.of(f"changes-{part}", 2 * seed + place),
            )
            for place, (part, features) in enumerate(
                (("whole", whole_features), ("past", past_features))
            )
        ]
        return cls(directions, *networks)
