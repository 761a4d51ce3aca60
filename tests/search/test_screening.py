"""Exhaustive search that looks in lower precision first."""

import itertools
import zlib
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cefito.field.fields import IncrementalField
from cefito.search import Constraints, ExhaustiveSearch, GuidedSearch, Objective, StepCosts
from cefito.search import exhaustive as module
from random_fields import random_field

from .conftest import (
    DummyField,
    Impatient,
    assert_same,
    direct_energies,
    everything,
    listed,
    problem,
    problems_of,
    random_problems,
)


def spread(initial, goal, sequence):
    """An energy without structure and almost without ties, 0 to 64, exact in single precision."""
    return zlib.crc32(repr((initial, goal, sequence)).encode()) % 2**16 / 1024


def off_by(most):
    """An error without structure, at most so much either way."""

    def error(initial, goal, sequence):
        return most * (zlib.crc32(repr((goal, sequence, initial)).encode()) % 2001 - 1000) / 1000

    return error


make_field = partial(random_field, observation_dim=20, width=32, action_dim=8, centred=False)


def coarse_energies(field, one):
    """Energies of all sequences in lower precision, in the order of ids."""
    field = field.coarse()
    root = field.root(*(torch.from_numpy(part[None]) for part in (one.initial, one.goal)))
    actions = torch.tensor(one.actions)
    for _ in range(field.horizon - 1):
        root = field.extend(root, actions)
    return field.leaf_energy(root, actions).flatten().numpy()


@pytest.mark.nightly
@settings(max_examples=12)
@given(
    seed=st.integers(0, 10_000),
    horizon=st.integers(3, 4),
    size=st.integers(4, 8),
    top_k=st.sampled_from([1, 5, 30]),
    skip=st.booleans(),
    kept=st.sampled_from([64, 300, 4096]),
)
def test_screening_changes_nothing_of_a_real_field(seed, horizon, size, top_k, skip, kept):
    field = IncrementalField(make_field(seed, horizon=horizon, actions=9, skip=skip))
    problems = random_problems(seed, [range(size), range(9 - size, 9), range(size), range(3)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "KEPT", kept)
        screened = ExhaustiveSearch(screening="on").search(field, problems, top_k)
    for one, ours, theirs in zip(
        problems, screened, ExhaustiveSearch().search(field, problems, top_k), strict=True
    ):
        assert_same(ours, theirs, rtol=2e-5)
        np.testing.assert_allclose(ours.energies, direct_energies(field, one, ours), rtol=2e-5)


def test_the_lower_precision_of_a_real_field_is_lower():
    field = IncrementalField(make_field(0, horizon=3, actions=8))
    (one,) = random_problems(0, [range(8)])
    (fine,) = ExhaustiveSearch().search(field, [one], 512)
    coarse = coarse_energies(field, one)[np.ravel_multi_index(tuple(fine.actions.T), (8, 8, 8))]
    error = np.abs(coarse - fine.energies) / fine.energies
    assert 2e-4 < error.max() < 0.1
    assert (np.argsort(coarse)[:30] != np.arange(30)).any()


@pytest.mark.parametrize("kind", ["costs", "constraints"])
def test_screening_of_other_objectives(kind):
    field = IncrementalField(make_field(5, horizon=4, actions=6))
    generator = np.random.default_rng(0)
    costs = [generator.random((6,) * min(step + 1, 3)) for step in range(4)]
    chain = None if kind == "constraints" else StepCosts(costs=tuple(costs))
    constraints = (
        Constraints(required=(3,), forbidden=(0,)) if kind == "constraints" else Constraints()
    )
    problems = random_problems(
        1,
        [range(6)] * 3,
        objective=Objective(temperature=0.5, costs=chain, offset=1.5),
        constraints=constraints,
    )
    screened = ExhaustiveSearch(screening="on").search(field, problems, 20)
    for ours, theirs in zip(screened, ExhaustiveSearch().search(field, problems, 20), strict=True):
        assert_same(ours, theirs, rtol=2e-5)
        assert ours.evaluated.leaves == theirs.evaluated.leaves


def test_the_exact_order_comes_back_from_a_wrong_one(monkeypatch):
    monkeypatch.setattr(module, "KEPT", 200)
    monkeypatch.setattr(module, "sample_size", lambda _: 40)
    error = off_by(0.5)
    for goal in range(5):
        one = problem(goal, range(10))
        every = everything(one, 3, spread)
        dummy = DummyField(3, spread, error=error)
        (plans,) = ExhaustiveSearch(screening="on").search(dummy, [one], 10)
        assert listed(plans) == every[:10]
        assert plans.exact
        again = len(dummy.leaves) - 1000
        assert 10 <= again <= 200 + 41
        coarse = sorted((energy + error(0.0, float(goal), row), row) for _, row, energy in every)
        assert [row for _, row in coarse[:10]] != [row for _, row, _ in every[:10]]


def test_an_error_twice_as_large_as_any_that_was_sampled_is_within_the_margin(monkeypatch):
    monkeypatch.setattr(module, "KEPT", 300)
    one = problem(0, range(10))
    every = everything(one, 3, spread)
    hidden = every[0][1]

    def error(initial, goal, sequence):
        return 0.9 if sequence == hidden else off_by(0.45)(initial, goal, sequence)

    assert error(0, 0, hidden) + every[0][0] > every[3][0]
    (plans,) = ExhaustiveSearch(screening="on").search(DummyField(3, spread, error=error), [one], 3)
    assert listed(plans) == every[:3]


@given(
    data=st.data(),
    horizon=st.integers(1, 3),
    top_k=st.sampled_from([1, 7, 60]),
    count=st.integers(1, 3),
    most=st.sampled_from([0.0, 0.5, 40.0]),
    kept=st.sampled_from([1, 8, 40, 4096]),
    memory=st.sampled_from([60, 10**6]),
)
def test_screening_is_exact_for_whatever_problems(data, horizon, top_k, count, most, kept, memory):
    sets = st.sampled_from([(4,), (0, 3, 7), (0, 1, 2, 5, 6)])
    problems = [
        data.draw(problems_of(horizon, data.draw(sets), goal=goal)) for goal in range(count)
    ]
    expected = [everything(one, horizon, spread) for one in problems]
    if not all(expected):
        return
    dummy = DummyField(horizon, spread, error=off_by(most))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "KEPT", kept)
        # all leaves tell of their errors, so that there is no luck in it
        patch.setattr(module, "sample_size", lambda leaves: leaves)
        found = ExhaustiveSearch(memory_mib=memory / 2**20, screening="on").search(
            dummy, problems, top_k
        )
    for plans, every in zip(found, expected, strict=True):
        assert listed(plans) == every[:top_k]
        assert plans.exact
        assert plans.evaluated.leaves == len(every)


def test_too_many_within_the_margin(monkeypatch):
    monkeypatch.setattr(module, "KEPT", 8)
    one = problem(0, range(5))
    dummy = DummyField(3, spread, error=off_by(30.0))
    (plans,) = ExhaustiveSearch(screening="on").search(dummy, [one], 3)
    assert listed(plans) == everything(one, 3, spread)[:3]
    assert plans.exact
    assert dummy.coarse_nodes == 5 + 25 + 125
    fine = [row for _, _, row in dummy.nodes[dummy.coarse_nodes :]]
    assert {row for row in fine if len(row) == 3} == set(itertools.product(range(5), repeat=3))
    assert len(fine) > 5 + 25 + 125  # those of the first attempt besides
    assert plans.evaluated.leaves == 125
    assert plans.evaluated.token_forwards == 3 + 2 * len(dummy.nodes)


def test_many_kept_leaves_need_no_second_search(monkeypatch):
    monkeypatch.setattr(module, "KEPT", 125)
    dummy = DummyField(3, spread, error=off_by(30.0))
    (plans,) = ExhaustiveSearch(screening="on").search(dummy, [problem(0, range(4))], 3)
    assert listed(plans) == everything(problem(0, range(4)), 3, spread)[:3]
    assert dummy.roots == 2


def test_effort_counts_both_passes():
    dummy = DummyField(3, spread, error=off_by(0.1))
    problems = [problem(goal, range(8)) for goal in range(3)]
    found = ExhaustiveSearch(screening="on").search(dummy, problems, 5)
    assert dummy.roots == 2
    assert dummy.coarse_nodes == 3 * (8 + 64 + 512)
    assert sum(plans.evaluated.token_forwards for plans in found) == 3 * 2 + 2 * len(dummy.nodes)
    for plans in found:
        assert plans.evaluated.leaves == 512
        assert plans.evaluated.token_forwards > 2 + 2 * (8 + 64 + 512) + 2 * 5


@pytest.mark.parametrize("patience", [0, 1, 3, 6])
def test_stopping(patience):
    dummy, impatient = DummyField(3, spread, child_bytes=10, error=off_by(0.5)), Impatient(patience)
    problems = [problem(goal, range(6)) for goal in range(2)]
    found = ExhaustiveSearch(memory_mib=3 * 500 / 2**20, screening="on").search(
        dummy, problems, 4, impatient.watch
    )
    assert [plans.exact for plans in found] == [False, False]
    assert [len(plans) for plans in found] == [4 * (patience > 0), 0]
    assert impatient.advanced <= 1
    met = {row for _, _, row in dummy.leaves}
    assert len(met) <= 216
    for plans, one in zip(found, problems, strict=True):
        assert set(listed(plans)) <= set(everything(one, 3, spread))
        assert {row for _, row, _ in listed(plans)} <= met
    assert [row for row in everything(problems[0], 3, spread) if row[1] in met][
        : len(found[0])
    ] == listed(found[0])


@given(
    data=st.data(),
    horizon=st.integers(2, 4),
    most=st.sampled_from([0.0, 0.5, 5.0]),
    top_k=st.sampled_from([1, 6]),
    count=st.integers(1, 3),
)
def test_of_what_a_guided_search_met_full_precision_decides(data, horizon, most, top_k, count):
    actions = data.draw(st.sampled_from([(0, 3, 7), (0, 1, 2, 5, 6)]))
    problems = [data.draw(problems_of(horizon, actions, goal=goal)) for goal in range(count)]
    every = [everything(one, horizon, spread) for one in problems]
    if not all(every):
        return
    dummy = DummyField(horizon, spread, error=off_by(most))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cefito.search.guided._SAMPLED", 1000)  # so that there is no luck in it
        search = GuidedSearch(proposals=20, starts=2, refinements=8, screening="on")
        found = search.search(dummy, problems, top_k)
    assert dummy.roots == 2
    for goal, (plans, expected) in enumerate(zip(found, every, strict=True)):
        met = {row for _, one, row in dummy.leaves if one == goal}
        assert listed(plans) == [one for one in expected if one[1] in met][:top_k]
        assert plans.evaluated.leaves == len(met)
        assert plans.evaluated.token_forwards == 2 + 2 * sum(
            one == goal for _, one, _ in dummy.nodes
        )


def test_a_guided_search_looks_twice_at_few():
    one = problem(0, range(12))
    dummy = DummyField(4, spread, error=off_by(0.01))
    (plans,) = GuidedSearch(screening="on").search(dummy, [one], 5)
    (plain,) = GuidedSearch().search(DummyField(4, spread), [one], 5)
    assert listed(plans) == listed(plain)
    again = len(dummy.leaves) - plans.evaluated.leaves
    assert 12 <= again <= 12 + 12 + 5


@pytest.mark.parametrize("search", [ExhaustiveSearch, GuidedSearch])
@pytest.mark.parametrize(
    ("screening", "pays", "size", "screened"),
    [
        ("auto", True, 7, True),
        ("auto", True, 6, False),
        ("auto", False, 7, False),
        ("on", False, 2, True),
        ("off", True, 7, False),
    ],
)
def test_it_screens_where_that_pays(search, screening, pays, size, screened):
    """343 sequences are enough, 216 are not; guided search goes by its proposals."""
    dummy = DummyField(3, spread, coarse_pays=pays, error=off_by(0.1))
    more = {} if search is ExhaustiveSearch else {"proposals": size**3}
    search(screening=screening, **more).search(dummy, [problem(0, range(size))], 2)
    assert bool(dummy.coarse_nodes) is screened
