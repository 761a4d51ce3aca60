import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cefito.errors import ConfigError
from cefito.planners.cefito.weights import (
    _RIDGE,
    NOTHING_FITTED,
    OBJECTIVES,
    PAPER,
    TERMS,
    ObjectiveFit,
    Weights,
    fit_weights,
)


def random_queries(seed, *, terms, queries=0, correlated=True):
    """Features of a few candidates a query, of uneven scales, and a true one at random."""
    generator = np.random.default_rng(seed)
    mix = generator.standard_normal((terms, terms)) if correlated else np.eye(terms)
    features = [
        generator.standard_normal((int(generator.integers(2, 6)), terms)) @ mix
        for _ in range(queries or int(generator.integers(1, 12)))
    ]
    return features, [int(generator.integers(len(part))) for part in features]


def drawn(seed, weights, *, queries, candidates):
    """The true one of each query drawn from the model."""
    generator = np.random.default_rng(seed)
    features = [generator.standard_normal((candidates, len(weights))) for _ in range(queries)]
    return features, [
        int((-part @ weights + generator.gumbel(size=candidates)).argmax()) for part in features
    ]


def loss(weights, features, truth):
    """Negative log-likelihood of a tensor of weights; the ridge is in the features' deviations."""
    scale = torch.from_numpy(np.concatenate(features).std(axis=0))
    value = _RIDGE / 2 * (weights * scale).square().sum()
    for part, true in zip(features, truth, strict=True):
        value = value - torch.log_softmax(-torch.from_numpy(part) @ weights, dim=0)[true]
    return value


def by_gradient(features, truth):
    """The least loss over weights of at least 0, as squares of what is optimised freely."""
    scale = torch.from_numpy(np.concatenate(features).std(axis=0))
    roots = scale.rsqrt().clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [roots],
        max_iter=500,
        tolerance_grad=1e-12,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimiser.zero_grad()
        value = loss(roots.square(), features, truth)
        value.backward()
        return value

    optimiser.step(closure)
    return roots.detach().square()


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), terms=st.integers(1, 4))
def test_no_weights_are_better(seed, terms):
    features, truth = random_queries(seed, terms=terms)
    weights = fit_weights(features, truth)
    assert weights.shape == (terms,)
    assert (weights >= 0).all()
    reached, best = (
        float(loss(one, features, truth))
        for one in (torch.from_numpy(weights), by_gradient(features, truth))
    )
    assert reached <= best + 1e-6
    assert reached <= float(loss(torch.zeros(terms, dtype=torch.float64), features, truth))


def test_two_weights_on_a_grid():
    features, truth = drawn(1, np.array([1.3, 0.6]), queries=60, candidates=4)
    grid = np.arange(0, 3, 0.02)
    values = [
        (float(loss(torch.tensor([one, other]), features, truth)), one, other)
        for one in grid
        for other in grid[::5]
    ]
    _, one, other = min(values)
    np.testing.assert_allclose(fit_weights(features, truth), [one, other], atol=0.07)


def test_the_weights_that_data_were_drawn_with():
    wanted = np.array([2.0, 0.5, 0.0, 1.0])
    features, truth = drawn(0, wanted, queries=4000, candidates=8)
    np.testing.assert_allclose(fit_weights(features, truth), wanted, atol=0.12)


def test_a_term_that_speaks_against_the_truth_gets_no_weight():
    features, truth = drawn(2, np.array([1.5, -1.0]), queries=300, candidates=5)
    weights = fit_weights(features, truth)
    assert weights[1] == 0
    assert weights[0] == pytest.approx(
        fit_weights([part[:, :1] for part in features], truth)[0], rel=1e-5
    )
    assert fit_weights([part[:, 1:] for part in features], truth).tolist() == [0]


def test_no_term_has_anything_to_gain():
    """Dropping the most negative term until none is left goes wrong for some of these."""
    for seed in range(200):
        features, truth = random_queries(seed, terms=4)
        weights = torch.from_numpy(fit_weights(features, truth)).requires_grad_()
        (gradient,) = torch.autograd.grad(loss(weights, features, truth), weights)
        scale = np.concatenate(features).std(axis=0)
        assert (gradient.numpy() / scale >= -1e-3).all()
        assert (
            np.abs(gradient.numpy() / scale)[weights.detach().numpy() > 0].max(initial=0.0) < 1e-3
        )


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    terms=st.integers(1, 4),
    powers=st.lists(st.integers(-4, 4), min_size=4, max_size=4),
)
def test_units_do_not_matter(seed, terms, powers):
    features, truth = random_queries(seed, terms=terms)
    factors = 10.0 ** np.array(powers[:terms])
    scaled = fit_weights([part * factors for part in features], truth) * factors
    np.testing.assert_allclose(scaled, fit_weights(features, truth), rtol=1e-4, atol=1e-6)


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 10_000),
    constant=st.sampled_from([0.1, 3.0, 16.635532333438686, 1e6]),
    place=st.integers(0, 2),
)
def test_a_term_that_is_the_same_for_all_candidates_changes_nothing(seed, constant, place):
    features, truth = random_queries(seed, terms=2, queries=20)
    more = [np.insert(part, place, constant, axis=1) for part in features]
    weights = fit_weights(more, truth)
    assert weights[place] == 0
    np.testing.assert_allclose(
        np.delete(weights, place), fit_weights(features, truth), rtol=1e-5, atol=1e-9
    )


def test_what_the_candidates_of_a_query_share_changes_little():
    features, truth = drawn(3, np.array([2.0, 1.0]), queries=100, candidates=5)
    # it changes the unit of the ridge only
    shift = np.random.default_rng(0).standard_normal((100, 2))
    moved = [part + row for part, row in zip(features, shift, strict=True)]
    np.testing.assert_allclose(fit_weights(moved, truth), fit_weights(features, truth), rtol=0.02)


def test_truths_told_apart_perfectly_have_finite_weights():
    features = [np.array([[0.0], [1.0], [2.0]])] * 50
    weights = fit_weights(features, [0] * 50)
    assert 1 < weights[0] < 100


def test_nothing_to_learn():
    assert fit_weights([], []).size == 0
    assert fit_weights([np.ones((1, 3)), np.full((1, 3), 2.0)], [0, 0]).tolist() == [0, 0, 0]


def test_the_paper_is_the_energy_alone():
    assert vars(PAPER) == {"energy": 1.0, "prior": 0.0, "chain": 0.0, "task": 0.0}
    assert tuple(vars(PAPER)) == TERMS
    assert all(set(terms) <= set(TERMS) and "task" in terms for terms in OBJECTIVES.values())


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), "1", None, [1.0]])
@pytest.mark.parametrize("name", TERMS)
def test_weights_that_cannot_be(name, value):
    with pytest.raises(
        ConfigError, match=f"weight of the {name} is .*expected a number of at least 0"
    ):
        Weights(**{name: value})


def test_before_anything_is_fitted():
    assert NOTHING_FITTED.weights == dict.fromkeys(OBJECTIVES, PAPER)
    assert NOTHING_FITTED.guide == Weights(energy=0.0, prior=1.0, proposal=1.0)
    assert NOTHING_FITTED.tasks == 1


@pytest.mark.parametrize("tasks", [0, -1])
def test_a_number_of_tasks_that_cannot_be(tasks):
    with pytest.raises(ConfigError, match=f"{tasks} tasks to search; expected at least 1"):
        ObjectiveFit(tasks=tasks)
