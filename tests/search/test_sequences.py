import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cefito.search.problem import compiled
from cefito.search.sequences import SequenceEnergies

from .conftest import DummyField, problem, scrambled

SETS = ((0, 1), (2, 5, 7), (4,), (1, 2, 3, 6))


@st.composite
def wanted(draw):
    """A horizon, the actions that queries allow, and a multiset of their sequences in any order."""
    horizon = draw(st.integers(1, 4))
    sets = draw(st.lists(st.sampled_from(SETS), min_size=1, max_size=3))
    rows = draw(
        st.lists(
            st.integers(0, len(sets) - 1).flatmap(
                lambda query: st.tuples(
                    st.just(query), st.tuples(*[st.integers(0, len(sets[query]) - 1)] * horizon)
                )
            ),
            max_size=30,
        )
    )
    return horizon, sets, rows


def arrays(rows, horizon: int):
    return (
        np.array([query for query, _ in rows], dtype=np.int64),
        np.array([places for _, places in rows], dtype=np.int64).reshape(len(rows), horizon),
    )


@given(case=wanted(), memory=st.sampled_from([1e-9, 40 / 2**20, 100 / 2**20, 300 / 2**20, 1024]))
def test_energies_of_any_multiset_in_any_order(case, memory):
    horizon, sets, rows = case
    dummy = DummyField(horizon, scrambled)
    problems = [problem(goal, actions) for goal, actions in enumerate(sets)]
    energies = SequenceEnergies(dummy, compiled(problems, horizon, 1), memory)
    for _ in range(2):
        found = energies(*arrays(rows, horizon))
        assert found.dtype == np.float64
        assert found.tolist() == [
            scrambled(0.0, float(query), tuple(sets[query][place] for place in places))
            for query, places in rows
        ]
    assert dummy.roots == bool(rows)  # made where it is first needed
    assert energies.leaves.tolist() == [
        2 * sum(query == one for query, _ in rows) for one in range(len(sets))
    ]
    assert len(dummy.leaves) == 2 * len(rows)
    assert energies.tokens.tolist() == [
        bool(rows) + 2 * sum(goal == one for _, goal, _ in dummy.nodes) for one in range(len(sets))
    ]


@pytest.mark.parametrize(("memory", "batches"), [(1024, 2), (64, 2), (32, 4), (8, 16), (1e-9, 16)])
def test_memory_bound(memory, batches):
    """A sequence takes at most a node on every level; the cache caps the bound on a CPU."""
    dummy = DummyField(2, scrambled, child_bytes=8 * 2**20 // 9)  # 3 · (2 + 1) of them a sequence
    energies = SequenceEnergies(dummy, compiled([problem(0, range(4))], 2, 1), memory)
    energies(*arrays([(0, (first, second)) for first in range(4) for second in range(4)], 2))
    assert sum(depth == 1 for depth, _ in dummy.children) == batches


def test_energies_that_are_no_numbers_count_as_infinite():
    dummy = DummyField(1, lambda *row: (float("nan"), 1.0, float("inf"))[row[2][0]])
    energies = SequenceEnergies(dummy, compiled([problem(0, range(3))], 1, 1), 1)
    assert energies(*arrays([(0, (0,)), (0, (1,)), (0, (2,))], 1)).tolist() == [np.inf, 1.0, np.inf]


@given(case=wanted(), memory=st.sampled_from([1e-9, 300 / 2**20, 1024]))
def test_kept_prefixes_are_computed_once_while_they_fit(case, memory):
    horizon, sets, rows = case
    dummy = DummyField(horizon, scrambled)
    problems = [problem(goal, actions) for goal, actions in enumerate(sets)]
    energies = SequenceEnergies(dummy, compiled(problems, horizon, 1), memory, keep=True)
    for part in (rows, rows[::2], rows):
        assert energies(*arrays(part, horizon)).tolist() == [
            scrambled(0.0, float(query), tuple(sets[query][place] for place in places))
            for query, places in part
        ]
    spent = sum(
        bool(rows) + 2 * sum(goal == one for _, goal, _ in dummy.nodes) for one in range(len(sets))
    )
    assert energies.tokens.sum() == spent
    assert (energies.tokens <= energies.listed).all()
    inner = [node for node in dummy.nodes if len(node[2]) < horizon]
    if memory == 1024:
        assert len(inner) == len(set(inner))
