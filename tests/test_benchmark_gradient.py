"""The gradient search of benchmarks/gradient.py, on a small random field that can be enumerated."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from cefito.field.energy import EnergyField
from cefito.field.settings import FieldConfig
from cefito.search import Constraints, ExhaustiveSearch, Objective, Problem, StepCosts
from cefito.search.problem import Space

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "gradient.py"
E, T, ACTIONS = 6, 3, (0, 1, 2, 4)

_spec = importlib.util.spec_from_file_location("gradient", SCRIPT)
assert _spec is not None
assert _spec.loader is not None
gradient = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(gradient)


@pytest.fixture(scope="module")
def field():
    config = FieldConfig(
        width=16, depth=2, heads=2, mlp_ratio=2.0, init="fan_in", action_dim=6, goal_skip=False
    )
    plain = EnergyField(config=config, observation_dim=E, action_count=5, horizon=T)
    plain.reset(torch.Generator().manual_seed(0))
    return gradient.RelaxedField(plain.eval())


def problems(count: int, **settings: object) -> list[Problem]:
    rows = np.random.default_rng(3).normal(size=(count, 2, E)).astype(np.float32)
    return [
        Problem(initial=one, goal=other, **{"actions": ACTIONS, **settings}) for one, other in rows
    ]


def chain(seed: int, forbid: float) -> StepCosts:
    """Random costs that depend on up to two earlier actions; some transitions are forbidden."""
    draws = np.random.default_rng(seed)
    costs = [draws.uniform(0, 2, (4,) * (step + 1)) for step in range(T)]
    forbidden = [np.where(draws.random(cost.shape) < forbid, np.inf, cost) for cost in costs[1:]]
    return StepCosts(costs=(costs[0], *forbidden))


def test_one_hot_mixtures_have_the_energies_of_their_sequences(field):
    generator = torch.Generator().manual_seed(2)
    initial, goal = torch.randn(2, 20, E, generator=generator)
    ids, chosen = torch.tensor([1, 2, 4]), torch.randint(3, (20, T), generator=generator)
    mixtures = torch.nn.functional.one_hot(chosen, 3).float()
    torch.testing.assert_close(
        field.relaxed_energy(initial, goal, ids, mixtures),
        field.field.energy(initial, goal, ids[chosen]),
        rtol=1e-6,
        atol=1e-6,
    )


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"objective": Objective(temperature=0.3, costs=chain(1, 0.3), offset=2.0)},
        {"constraints": Constraints(pinned=((2, 4),))},
        {"constraints": Constraints(before=((4, 0), (4, 1), (0, 1)), required=(1,))},
    ],
)
def test_the_best_sequences_are_found(settings, field):
    asked = problems(8, **settings)
    best = ExhaustiveSearch().search(field, asked, 1)
    found = gradient.GradientSearch(restarts=6, steps=30).search(field, asked, 3)
    hits = [
        np.isclose(one.scores[0], other.scores[0], atol=1e-4)
        for one, other in zip(found, best, strict=True)
    ]
    assert sum(hits) >= 7
    for one, plans in zip(asked, found, strict=True):
        assert Space(one, T).allows(np.searchsorted(ACTIONS, plans.actions)).all()
        assert (np.diff(plans.scores) >= 0).all()
