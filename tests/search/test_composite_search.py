"""Searches of fields of both directions."""

import zlib

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
    BeamSearch,
    Constraints,
    ExhaustiveSearch,
    GuidedSearch,
    NaiveSearch,
    Objective,
    StepCosts,
)
from cefito.search import exhaustive as module
from random_fields import SMALL, encoded, randomise

from .conftest import (
    DummyComposite,
    DummyField,
    Impatient,
    assert_same,
    everything,
    listed,
    problem,
    problems_of,
    random_problems,
    salted,
)

COMPOSITIONS = ("b", "bf")
SEARCHES = {
    "naive": NaiveSearch(batch=7),
    "exhaustive": ExhaustiveSearch(),
    "exhaustive in little memory": ExhaustiveSearch(memory_mib=300 / 2**20),
    "exhaustive in no memory": ExhaustiveSearch(memory_mib=1e-9),
    "screened": ExhaustiveSearch(screening="on"),
    "screened in little memory": ExhaustiveSearch(screening="on", memory_mib=300 / 2**20),
    "beam": BeamSearch(width=10**6),
    "guided": GuidedSearch(proposals=10**6),
    "auto": AutoSearch(proposals=10**6, budget_gflop=1e-4),
}


@pytest.mark.parametrize("name", SEARCHES)
@given(
    data=st.data(),
    horizon=st.integers(1, 4),
    top_k=st.sampled_from([1, 5, 100]),
    count=st.integers(1, 3),
    composition=st.sampled_from(COMPOSITIONS),
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
    if name != "naive":
        tokens = sum(plans.evaluated.token_forwards for plans in found)
        roots = tokens - 2 * dummy.nodes
        assert 0 < roots <= dummy.roots * count


@pytest.mark.parametrize(("horizon", "size"), [(1, 5), (3, 4), (4, 3), (5, 1)])
def test_effort_of_both_directions_is_that_of_two_walks(horizon, size):
    dummy = DummyComposite(horizon, "b", "f")
    problems = [problem(goal, range(size)) for goal in range(3)]
    walk = 1 + 2 * sum(size**level for level in range(1, horizon + 1))
    for plans in ExhaustiveSearch().search(dummy, problems, 1):
        assert plans.evaluated.leaves == size**horizon
        assert plans.evaluated.token_forwards == 2 * walk
    for part in dummy.components():
        assert len(set(part.energies.nodes)) == len(part.energies.nodes)


def test_only_what_leads_to_an_allowed_sequence_is_computed():
    """Forward the prefixes of allowed sequences, backward their suffixes, each once."""
    dummy = DummyComposite(4, "b", "f")
    one = problem(0, range(5), constraints=Constraints(pinned=((1, 2), (2, 0), (4, 3))))
    (plans,) = ExhaustiveSearch().search(dummy, [one], 10)
    assert plans.evaluated.leaves == 5
    assert plans.evaluated.token_forwards == (1 + 2 * (1 + 1 + 5 + 5)) + (1 + 2 * (1 + 5 + 5 + 5))


def test_memory_splits_the_enumeration_at_both_ends():
    """A number of four bytes a leaf in half of the bound; every block keeps to it."""
    bound = 2 * 4 * 64
    dummy = DummyComposite(4, "b", "f")
    one = problem(1, range(4))
    (plans,) = ExhaustiveSearch(memory_mib=bound / 2**20).search(dummy, [one], 5)
    assert listed(plans) == everything(one, 4, dummy.function)[:5]
    assert plans.exact
    for part in dummy.components():
        leaves = part.energies.leaves
        assert len(leaves) == len(set(leaves)) == 256
    walk = 1 + 2 * (4 + 16 + 64 + 256)
    assert 2 * walk < plans.evaluated.token_forwards < 2.6 * walk


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("screening", ["off", "on"])
@pytest.mark.parametrize("patience", [0, 1, 2, 5, 9, 14])
def test_stopping(patience, screening, sparse):
    dummy, impatient = DummyComposite(3, "b", "f", child_bytes=10), Impatient(patience)
    constraints = Constraints(forbidden=(0,)) if sparse else Constraints()
    problems = [problem(goal, range(6), constraints=constraints) for goal in range(2)]
    found = ExhaustiveSearch(memory_mib=2000 / 2**20, screening=screening).search(
        dummy, problems, 4, impatient.watch
    )
    assert impatient.advanced <= 2
    assert [plans.exact for plans in found] == [False, False]
    assert len(found[0]) == 4 * (patience > 0)
    for plans, one in zip(found, problems, strict=True):
        assert set(listed(plans)) <= set(everything(one, 3, dummy.function))
        assert listed(plans) == sorted(listed(plans))


def test_screening_rescores_by_all_components(monkeypatch):
    monkeypatch.setattr(module, "KEPT", 200)
    monkeypatch.setattr(module, "sample_size", lambda _: 40)

    def error(initial, goal, sequence):
        return (zlib.crc32(repr((goal, sequence, initial)).encode()) % 2001 - 1000) / 4000

    dummy = DummyComposite(3, "b", "f", error=error)
    one = problem(0, range(10))
    (plans,) = ExhaustiveSearch(screening="on").search(dummy, [one], 5)
    assert [row[2] for row in listed(plans)] == [
        row[2] for row in everything(one, 3, dummy.function)[:5]
    ]
    for part in dummy.components():
        assert part.energies.coarse_nodes == 10 + 100 + 1000
        again = len(part.energies.leaves) - 1000
        assert 5 <= again <= 200 + 41


def test_budgets_count_all_components():
    """An exact search of two parts costs twice as much; guided search refines half as long."""
    tokens = 1 + 2 * (4 + 16 + 64)
    auto = AutoSearch(budget_gflop=tokens * 1000 / 1e9)
    assert auto.affordable(DummyField(3, salted(0)), 4)
    assert not auto.affordable(DummyComposite(3, "b", "f"), 4)
    one = problem(0, range(9))
    spent = []
    for parts in ("f", "bf"):
        search = GuidedSearch(budget_gflop=2e-3)
        (plans,) = search.search(DummyComposite(5, *parts), [one], 1)
        spent.append(plans.evaluated.token_forwards)
    assert spent[1] <= 1.3 * spent[0]


def random_field(seed, *, horizon, skip=False):
    """A field whose every parameter is random and matters, over 7 actions."""
    generator = torch.Generator().manual_seed(seed)
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
    return made


KINDS = ("free", "constraints", "costs")


def problems_of_kind(kind, seed, horizon):
    generator = np.random.default_rng(seed)
    costs = [generator.random((4,) * min(step + 1, 3)) for step in range(horizon)]
    chain = StepCosts(costs=tuple(costs)) if kind == "costs" else None
    constraints = Constraints(forbidden=(0,)) if kind == "constraints" else Constraints()
    return random_problems(
        seed,
        [range(4), range(3, 7), range(4)],
        objective=Objective(temperature=0.5, costs=chain),
        constraints=constraints,
    )


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=4)
@given(
    seed=st.integers(0, 10_000),
    horizon=st.integers(1, 4),
    screening=st.sampled_from(["off", "on"]),
    memory=st.sampled_from([1e-3, 0.05, 1024]),
    skip=st.booleans(),
)
def test_exhaustive_equals_naive(kind, seed, horizon, screening, memory, skip):
    made = random_field(seed, horizon=horizon, skip=skip)
    field, problems = incremental_field(made), problems_of_kind(kind, seed, horizon)
    slow = NaiveSearch(batch=100).search(field, problems, 8)
    fast = ExhaustiveSearch(memory_mib=memory, screening=screening).search(field, problems, 8)
    for ours, theirs in zip(fast, slow, strict=True):
        assert_same(ours, theirs)
        assert ours.evaluated.leaves == theirs.evaluated.leaves


@pytest.mark.parametrize("kind", KINDS)
def test_guided_and_beam_search_find_the_best(kind):
    horizon = 4
    field = incremental_field(random_field(3, horizon=horizon, skip=True))
    problems = problems_of_kind(kind, 5, horizon)
    best = ExhaustiveSearch().search(field, problems, 1)
    for search in (GuidedSearch(proposals=30, starts=8, refinements=64), BeamSearch(width=10**4)):
        for ours, theirs in zip(search.search(field, problems, 1), best, strict=True):
            assert ours.actions.tolist() == theirs.actions.tolist()
            np.testing.assert_allclose(ours.energies, theirs.energies, rtol=1e-5)
