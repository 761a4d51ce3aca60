"""Searches of fields of both directions."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cefito.errors import ConfigError
from cefito.field.fields import incremental_field, make_field, named_components
from cefito.field.settings import FieldConfig
from cefito.search import (
    AutoSearch,
    Constraints,
    ExhaustiveSearch,
    GuidedSearch,
    Objective,
    StepCosts,
)
from cefito.search.base import Search
from random_fields import SMALL, encoded, randomise

from .conftest import (
    DummyComposite,
    Impatient,
    assert_same,
    everything,
    listed,
    problem,
    problems_of,
    random_problems,
)
from .naive import naive_search

SEARCHES: dict[str, Search] = {
    "exhaustive": ExhaustiveSearch(),
    "exhaustive in little memory": ExhaustiveSearch(memory_mib=300 / 2**20),
    "guided": GuidedSearch(proposals=10**6),
    "auto": AutoSearch(proposals=10**6, budget_gflop=1e-4),
}


@pytest.mark.parametrize("name", SEARCHES)
@given(
    data=st.data(),
    horizon=st.integers(1, 4),
    top_k=st.sampled_from([1, 5, 100]),
    count=st.integers(1, 3),
    composition=st.sampled_from(["b", "bf"]),
)
def test_all_searches_agree(name, data, horizon, top_k, count, composition):
    sets = st.sampled_from([(4,), (2, 9), (0, 3, 7), (0, 3, 7)])
    problems = [
        data.draw(problems_of(horizon, data.draw(sets), goal=goal)) for goal in range(count)
    ]
    dummy = DummyComposite(horizon, *composition)
    expected = [everything(one, horizon, dummy.function) for one in problems]
    if not all(expected):
        with pytest.raises(ConfigError):
            SEARCHES[name].search(dummy, problems, top_k)
        assert not dummy.nodes
        return
    impatient = Impatient()
    found = SEARCHES[name].search(dummy, problems, top_k, impatient.watch)
    for plans, every in zip(found, expected, strict=True):
        assert listed(plans) == every[:top_k]
        assert plans.exact
        assert plans.evaluated.leaves == len(every)
    assert impatient.advanced == pytest.approx(count)


def test_interrupted_between_the_directions():
    """The best plans so far are those of the direction that was walked."""
    dummy, one = DummyComposite(3, *"fb"), problem(1.0, range(4))
    best = [row for _, row, _ in everything(one, 3, DummyComposite(3, "f").function)[:5]]
    (found,) = ExhaustiveSearch().search(dummy, [one], 5, Impatient(1).watch)
    assert not found.exact
    assert sorted(map(tuple, found.actions.tolist())) == sorted(best)
    assert {*listed(found)} <= {*everything(one, 3, dummy.function)}


@pytest.mark.parametrize("kind", ["free", "constraints", "costs"])
@settings(max_examples=4)
@given(
    seed=st.integers(0, 10_000),
    horizon=st.integers(1, 4),
    memory=st.sampled_from([0.05, 1024]),
    skip=st.booleans(),
)
def test_exhaustive_equals_naive(kind, seed, horizon, memory, skip):
    generator, numbers = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    made = make_field(
        config=FieldConfig(**{**SMALL, **encoded(skip), "action_dim": 8}, directions="both"),
        observation_dim=20,
        action_count=7,
        horizon=horizon,
        action_vectors=torch.randn(7, 20, generator=generator) if skip else None,
    )
    for part in named_components(made).values():
        part.reset(generator)
        randomise(part, generator)
    costs = [numbers.random((4,) * min(step + 1, 3)) for step in range(horizon)]
    chain = StepCosts(costs=tuple(costs)) if kind == "costs" else None
    problems = random_problems(
        seed,
        [range(4), range(3, 7), range(4)],
        objective=Objective(temperature=0.5, costs=chain),
        constraints=Constraints(forbidden=(0,)) if kind == "constraints" else Constraints(),
    )
    field = incremental_field(made)
    slow = naive_search(field, problems, 8)
    fast = ExhaustiveSearch(memory_mib=memory).search(field, problems, 8)
    for ours, theirs in zip(fast, slow, strict=True):
        assert_same(ours, theirs)
        assert ours.evaluated.leaves == theirs.evaluated.leaves
