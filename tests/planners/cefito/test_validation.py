"""Validation windows whose true actions alone make more sequences than the bound."""

import logging
from typing import Any

import numpy as np
import pytest
import torch

from cefito.data.windows import ActionSpace
from cefito.field.energy import EnergyField
from cefito.field.fields import IncrementalField
from cefito.field.settings import FieldConfig
from cefito.planners.cefito.fit import (
    plan_scores,
    validation_problems,
    validation_searches,
    warn_guided,
)
from cefito.search import ExhaustiveSearch
from made_windows import taxonomy_of, windows_of

SIZE, DIM = 12, 6
SPACE = ActionSpace(actions=(tuple(range(SIZE)),), fallback=(), source="training")


def windows(horizon, *, distinct=None, count=4):
    """Windows of one task, the first `distinct` actions in turn."""
    steps = np.arange(horizon) % (distinct or horizon)
    observations = np.random.default_rng(3).standard_normal((2, count, DIM))
    return windows_of(np.tile(steps, (count, 1)), observations, taxonomy_of(1, SIZE), split="val")


def field_of(horizon):
    field = EnergyField(
        config=FieldConfig(width=8, depth=1, heads=1, action_dim=4, action_encoding="learned"),
        observation_dim=DIM,
        action_count=SIZE,
        horizon=horizon,
    )
    field.reset(torch.Generator().manual_seed(0))
    return field.eval()


def scored(field, problems, actual, candidates):
    given = {"problems": problems, "actual": actual, "candidates": candidates}
    return plan_scores(field, memory_mib=64, **given)


@pytest.mark.parametrize(("horizon", "distinct"), [(8, 8), (10, 10), (8, 3)])
def test_long_horizons_stay_within_the_bound(horizon, distinct, monkeypatch, caplog):
    val, field, candidates = windows(horizon, distinct=distinct), field_of(horizon), 10_000
    searched, search = [], ExhaustiveSearch.search

    def noted(self, field, problems, *more):
        searched.extend(problems)
        return search(self, field, problems, *more)

    monkeypatch.setattr(ExhaustiveSearch, "search", noted)
    problems, actual = validation_problems(val, SPACE, windows=0, candidates=candidates)
    guided = distinct > 3
    assert all((problem.actions == SPACE.actions[0]) == guided for problem in problems)
    with caplog.at_level(logging.WARNING, logger="cefito"):
        warn_guided(problems, horizon=horizon, candidates=candidates)
    assert len(caplog.messages) == guided
    if guided:
        assert caplog.messages[0].startswith("validation: 4 of 4 windows have more than 10,000")
    scores = scored(field, problems, actual, candidates)
    assert len(searched) == (0 if guided else 4)
    assert all(len(problem.actions) ** horizon <= candidates for problem in searched)
    assert set(scores) == {"success_rate", "mean_accuracy"}
    assert all(0 <= score <= 100 for score in scores.values())


def test_windows_of_both_kinds_are_scored_in_their_order():
    few, many = windows(8, distinct=2, count=3), windows(8, count=2)
    field, candidates = field_of(8), 300
    problems, actual = [], []
    for val in (few, many):
        part, true = validation_problems(val, SPACE, windows=0, candidates=candidates)
        problems, actual = [*problems, *part], [*actual, *true]
    order = [3, 0, 4, 1, 2]
    searches: Any = validation_searches(field, candidates=candidates, memory_mib=64)
    exact, guided = (
        [plans.actions[0] for plans in search.search(IncrementalField(field), some, 1)]
        for search, some in zip(searches, (problems[:3], problems[3:]), strict=True)
    )
    best = np.array([*exact, *guided])[order]
    scores = scored(field, [problems[row] for row in order], best, candidates)
    assert scores == {"success_rate": 100, "mean_accuracy": 100}
