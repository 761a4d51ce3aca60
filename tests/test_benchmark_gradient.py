"""The gradient search of benchmarks/gradient.py, on small random fields that can be enumerated."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from cefito.errors import ConfigError
from cefito.field import EnergyField, FieldConfig
from cefito.search import Constraints, ExhaustiveSearch, Objective, Problem, StepCosts, Watch
from cefito.search.space import Space

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "gradient.py"
E, ACTIONS = 6, (0, 1, 2, 4)

_spec = importlib.util.spec_from_file_location("gradient", SCRIPT)
assert _spec is not None
assert _spec.loader is not None
gradient = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(gradient)
GradientSearch, RelaxedField = gradient.GradientSearch, gradient.RelaxedField


def field(
    horizon: int = 3, seed: int = 0, *, skip: bool = False, **settings: object
) -> RelaxedField:
    config = FieldConfig(
        width=16,
        depth=2,
        heads=2,
        mlp_ratio=2.0,
        init="fan_in",
        action_dim=6,
        goal_skip=skip,
        action_encoding="observed" if skip else "auto",
        **settings,
    )
    generator = torch.Generator().manual_seed(seed)
    plain = EnergyField(
        config=config,
        observation_dim=E,
        action_count=5,
        horizon=horizon,
        action_vectors=torch.randn(5, E, generator=generator) if skip else None,
    )
    plain.reset(generator)
    return RelaxedField(plain.eval())


def problems(count: int, **settings: object) -> list[Problem]:
    generator = np.random.default_rng(3)
    rows = generator.normal(size=(count, 2, E)).astype(np.float32)
    return [
        Problem(initial=one, goal=other, **{"actions": ACTIONS, **settings}) for one, other in rows
    ]


def chain(seed: int, horizon: int = 3, size: int = 4, *, forbid: float = 0.0) -> StepCosts:
    """Random costs that depend on up to two earlier actions; some transitions forbidden."""
    generator = np.random.default_rng(seed)
    costs = [generator.uniform(0, 2, (size,) * min(step + 1, 3)) for step in range(horizon)]
    return StepCosts(
        costs=tuple(
            np.where(generator.random(cost.shape) < forbid, np.inf, cost) if cost.ndim > 1 else cost
            for cost in costs
        )
    )


@pytest.mark.parametrize(
    "settings", [{}, {"skip": True}, {"distance": "mean_square", "goal_projection": 8}]
)
def test_one_hot_mixtures_have_the_energies_of_their_sequences(settings):
    inside = field(**settings)
    generator = torch.Generator().manual_seed(2)
    initial, goal = torch.randn(2, 20, E, generator=generator)
    ids, chosen = torch.tensor([1, 2, 4]), torch.randint(3, (20, 3), generator=generator)
    relaxed = inside.relaxed_energy(
        initial, goal, ids, torch.nn.functional.one_hot(chosen, 3).float()
    )
    torch.testing.assert_close(
        relaxed, inside.field.energy(initial, goal, ids[chosen]), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("settings", [{}, {"skip": True}])
def test_the_gradient_by_the_mixture_is_that_of_differences(settings):
    inside, generator = field(**settings), torch.Generator().manual_seed(2)
    initial, goal = torch.randn(2, 4, E, generator=generator)
    ids = torch.tensor([0, 2, 3, 4])
    mixture = torch.rand(4, 3, 4, generator=generator).softmax(dim=-1).requires_grad_()
    (slope,) = torch.autograd.grad(
        inside.relaxed_energy(initial, goal, ids, mixture).sum(), [mixture]
    )
    for step, place in itertools.product(range(3), range(4)):
        change = torch.zeros(4, 3, 4)
        change[:, step, place] = 1e-2
        up, down = (
            inside.relaxed_energy(initial, goal, ids, mixture.detach() + sign * change)
            for sign in (1, -1)
        )
        torch.testing.assert_close(
            slope[:, step, place], ((up - down) / 2e-2).detach(), rtol=2e-2, atol=2e-3
        )


def test_the_best_sequences_of_a_small_field_are_found():
    inside, asked = field(), problems(12)
    best = ExhaustiveSearch().search(inside, asked, 1)
    found = GradientSearch(restarts=6, steps=30).search(inside, asked, 1)
    assert (
        sum(
            one.actions.tolist() == other.actions.tolist()
            for one, other in zip(found, best, strict=True)
        )
        >= 11
    )
    for one, plans in zip(asked, found, strict=True):
        direct = inside.energy(
            torch.from_numpy(one.initial)[None],
            torch.from_numpy(one.goal)[None],
            torch.from_numpy(plans.actions),
        )
        np.testing.assert_allclose(plans.energies, direct.numpy(), atol=1e-5)
        assert np.array_equal(plans.scores, plans.energies)


def test_the_descent_helps():
    """Rounded sequences after many steps are better than the random starts are."""
    inside, asked = field(4), problems(12)
    means = [
        np.mean(
            [
                plans.energies[0]
                for plans in GradientSearch(
                    restarts=2, steps=steps, rounded=1, refinements=0
                ).search(inside, asked, 1)
            ]
        )
        for steps in (0, 40)
    ]
    assert means[1] < means[0] - 0.01


@pytest.mark.parametrize("forbid", [0.0, 0.3])
def test_an_objective_with_a_chain(forbid):
    inside = field()
    asked = problems(
        8, objective=Objective(temperature=0.3, costs=chain(1, forbid=forbid), offset=2.0)
    )
    best = ExhaustiveSearch().search(inside, asked, 3)
    found = GradientSearch().search(inside, asked, 3)
    assert (
        sum(
            np.allclose(one.scores[0], other.scores[0], atol=1e-4)
            for one, other in zip(found, best, strict=True)
        )
        >= 7
    )
    for plans in found:
        places = np.searchsorted(ACTIONS, plans.actions)
        assert np.isfinite(plans.scores).all()
        expected = plans.energies / 0.3 + asked[0].objective.costs.cost(places) + 2.0
        np.testing.assert_allclose(plans.scores, expected, rtol=1e-6)
        assert (np.diff(plans.scores) >= 0).all()


def test_expected_costs_are_those_of_all_sequences():
    costs = chain(2)
    spaces = [
        Space(one, 3)
        for one in (*problems(1, objective=Objective(costs=costs)), *problems(1, actions=(0, 3)))
    ]
    mixture = torch.rand(2, 5, 3, 4, generator=torch.Generator().manual_seed(0))
    mixture = mixture / mixture.sum(dim=-1, keepdim=True)
    everything = np.array(list(itertools.product(range(4), repeat=3)))
    shares = mixture[0].double().numpy()[:, [0, 1, 2], everything].prod(axis=-1)
    expected = gradient._expected(
        [torch.from_numpy(table) for table in gradient._tables(spaces, 4)], mixture
    )
    np.testing.assert_allclose(expected[0].numpy(), shares @ costs.cost(everything), rtol=1e-5)
    assert not expected[1].any()
    assert gradient._expected([], mixture) == 0


@pytest.mark.parametrize(
    "constraints",
    [
        Constraints(pinned=((2, 4),)),
        Constraints(forbidden=(1,), no_repeats=True),
        Constraints(required=(0, 4)),
        Constraints(before=((4, 0), (4, 1), (0, 1)), required=(1,)),
        Constraints(pinned=((1, 1), (2, 0), (3, 2))),
    ],
)
def test_constraints_hold(constraints):
    inside, asked = field(), problems(6, constraints=constraints)
    best = ExhaustiveSearch().search(inside, asked, 1)
    found = GradientSearch(restarts=4, steps=20).search(inside, asked, 5)
    for one, plans, exact in zip(asked, found, best, strict=True):
        assert len(plans)
        assert Space(one, 3).allows(np.searchsorted(ACTIONS, plans.actions)).all()
        assert plans.energies[0] >= exact.energies[0] - 1e-5
    assert (
        sum(
            np.isclose(one.energies[0], other.energies[0], atol=1e-5)
            for one, other in zip(found, best, strict=True)
        )
        >= 5
    )


@pytest.mark.parametrize("seed", range(5))
def test_no_action_of_an_allowed_sequence_is_masked(seed):
    constraints = Constraints(pinned=((2, 4),), forbidden=(1,)) if seed % 2 else Constraints()
    (one,) = problems(
        1, objective=Objective(costs=chain(seed, 4, forbid=0.4)), constraints=constraints
    )
    space = Space(one, 4)
    everything = np.array(list(itertools.product(range(4), repeat=4)))
    allowed = everything[space.allows(everything)]
    possible = gradient._possible(space)
    assert possible[np.arange(4), allowed].all()
    assert possible[:, 1].any() == (1 not in constraints.forbidden)
    assert possible[1].sum() == 1 or not constraints


def test_dead_ends_are_masked():
    costs = [np.zeros(4), np.zeros((4, 4)), np.zeros((4, 4))]
    costs[2][3] = np.inf  # nothing follows place 3 at the second step
    costs[1][2, :3] = np.inf  # so that nothing follows place 2 at the first
    (one,) = problems(1, objective=Objective(costs=StepCosts(costs=tuple(costs))))
    assert gradient._possible(Space(one, 3)).tolist() == [
        [True, True, False, True],
        [True, True, True, False],
        [True] * 4,
    ]


def test_the_same_again_and_with_other_neighbours():
    inside, asked = field(4), problems(5, guide=chain(5, 4))
    asked[2] = problems(3, actions=(1, 3))[2]
    search = GradientSearch(restarts=3, steps=15)
    together = search.search(inside, asked, 2)
    alone = [search.search(inside, [one], 2)[0] for one in asked]
    for again in (search.search(inside, asked, 2), alone):
        for one, other in zip(together, again, strict=True):
            assert np.array_equal(one.actions, other.actions)
            np.testing.assert_allclose(one.energies, other.energies, atol=1e-5)
            assert one.evaluated == other.evaluated
    tight = GradientSearch(restarts=3, steps=15, memory_mib=1e-6).search(inside, asked, 2)
    assert all(
        np.array_equal(one.actions, other.actions)
        for one, other in zip(together, tight, strict=True)
    )


def test_effort_counts_the_descent():
    inside, asked = field(), problems(3)
    few, many = (
        GradientSearch(restarts=4, steps=steps, refinements=0).search(inside, asked, 1)
        for steps in (0, 10)
    )
    for one, other in zip(few, many, strict=True):
        assert 0 < one.evaluated.leaves <= 4 * 5
        assert other.evaluated.token_forwards > 3 * 4 * 10 * 7
        assert other.evaluated.leaves <= 4 * (4 + 11)
        assert not other.exact


def test_watch():
    inside, asked, parts = field(), problems(4), []
    GradientSearch(restarts=2, steps=5).search(inside, asked, 1, Watch(advance=parts.append))
    assert sum(parts) == pytest.approx(4)
    assert len(parts) == 6
    calls = []

    def stop() -> bool:
        calls.append(1)
        return len(calls) > 3

    stopped = GradientSearch(restarts=2, steps=50).search(inside, asked, 1, Watch(stop=stop))
    assert len(stopped) == 4
    assert all(len(plans) == 1 and not plans.exact for plans in stopped)
    assert all(plans.evaluated.token_forwards < 3 * 2 * 7 * 4 + 200 for plans in stopped)


def test_weights_are_left_as_they_are():
    inside = field()
    before = {name: value.clone() for name, value in inside.field.state_dict().items()}
    with torch.inference_mode():
        GradientSearch(restarts=2, steps=3).search(inside, problems(2), 1)
    assert all(
        parameter.grad is None and parameter.requires_grad
        for parameter in inside.field.parameters()
    )
    assert all(
        torch.equal(value, before[name]) for name, value in inside.field.state_dict().items()
    )


def test_a_field_that_diverged():
    inside = field()
    with torch.no_grad():
        inside.field.predictor.state_head.weight.fill_(torch.nan)
    plans = GradientSearch(restarts=2, steps=3).search(inside, problems(2), 1)
    assert all(len(one) == 1 for one in plans)


def test_bad_settings():
    for wrong in ({"restarts": 0}, {"steps": -1}, {"learning_rate": 0.0}, {"spread": -1.0}):
        with pytest.raises(ConfigError, match="gradient search with"):
            GradientSearch(**wrong)
    with pytest.raises(ConfigError, match="top_k"):
        GradientSearch().search(field(), problems(1), 0)
