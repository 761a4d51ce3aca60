"""The search that chooses between exhaustive and guided search."""

import pytest

from cefito.search import AutoSearch, Constraints, ExhaustiveSearch

from .conftest import DummyField, everything, listed, problem, scrambled


def gflop(size: int, horizon: int, flops_per_token: int = 1000) -> float:
    """One token for the query, two for each node of the tree."""
    return (1 + 2 * sum(size**level for level in range(1, horizon + 1))) * flops_per_token / 1e9


@pytest.mark.parametrize(("size", "horizon"), [(1, 1), (3, 1), (4, 3), (2, 5)])
def test_the_budget_counts_the_whole_tree(size, horizon):
    dummy, one = DummyField(horizon, scrambled), problem(0, range(size))
    exact = gflop(size, horizon)
    assert AutoSearch(budget_gflop=exact * (1 + 1e-9)).affordable(dummy, len(one.actions))
    assert not AutoSearch(budget_gflop=exact * (1 - 1e-9)).affordable(dummy, len(one.actions))
    dearer = DummyField(horizon, scrambled, flops_per_token=1001)
    assert not AutoSearch(budget_gflop=exact * (1 + 1e-9)).affordable(dearer, len(one.actions))
    (plans,) = ExhaustiveSearch().search(dummy, [one], 1)
    assert plans.evaluated.token_forwards * dummy.flops_per_token / 1e9 == pytest.approx(exact)


def test_exact_within_the_budget_guided_beyond_and_answers_keep_their_places():
    sizes = [2, 5, 3, 5, 1, 4]
    problems = [
        problem(
            goal,
            range(size),
            constraints=Constraints(forbidden=(0,)) if size > 3 else Constraints(),
        )
        for goal, size in enumerate(sizes)
    ]
    dummy = DummyField(3, scrambled)
    found = AutoSearch(budget_gflop=gflop(3, 3) * 1.001, proposals=6, refinements=0).search(
        dummy, problems, 6
    )
    for size, one, plans in zip(sizes, problems, found, strict=True):
        assert plans.exact == (size <= 3)
        assert plans.evaluated.leaves == (size**3 if size <= 3 else 6)
        expected = everything(one, 3, scrambled)
        assert set(listed(plans)) <= set(expected)
        assert not plans.exact or listed(plans) == expected[:6]
