"""Checks of trainings that leave their metrics in a folder."""

import json

import numpy as np
import pytest

from cefito.planners.base import Queries


def metrics(folder):
    """The epochs of a training."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def check_best_epoch(planner, result, epochs, train, val, *, margin):
    """The best epoch is kept, its scores are the plans' and beat the most frequent actions."""
    names = ("val_success_rate", "val_mean_accuracy")
    assert result.scores == max(
        tuple(line[name] for name in names) for line in epochs if names[0] in line
    )
    queries = Queries.from_windows(val)
    right = np.concatenate([plans.actions for plans in planner.plan(queries, 1)]) == val.actions
    assert result.scores == pytest.approx((100 * right.all(axis=1).mean(), 100 * right.mean()))
    frequent = [
        (np.bincount(train.actions[:, step]).argmax() == val.actions[:, step]).mean()
        for step in range(val.horizon)
    ]
    assert result.scores[1] > 100 * np.mean(frequent) + margin
    assert (planner.predict_tasks(queries) == val.tasks).mean() > 0.5
