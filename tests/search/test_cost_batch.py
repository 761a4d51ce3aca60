"""The cheapest sequences of many queries together are those of each by itself."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cefito.search import StepCosts
from cefito.search import step_costs as module
from cefito.search.step_costs import CostBatch

from .conftest import chains
from .test_step_costs import shapes


def of_each(batch: CostBatch) -> list[StepCosts]:
    """The costs of each query as tables of its own."""
    return [
        StepCosts(
            costs=tuple(table + own for table, own in zip(batch.shared.tables(), row, strict=True))
        )
        for row in batch.own
    ]


def everything(size: int, prefixes: np.ndarray) -> np.ndarray:
    """Allow all actions."""
    return np.ones((len(prefixes), size), dtype=np.bool_)


@given(
    data=st.data(),
    shape=shapes,
    queries=st.integers(0, 4),
    infinite=st.booleans(),
    count=st.integers(1, 80),
)
def test_cheapest_of_each_query(data, shape, queries, infinite, count):
    shared = data.draw(chains(*shape, infinite=infinite))
    generator = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    own = generator.integers(0, 5, (queries, *shape)).astype(np.float64)
    if infinite:
        own[generator.random(own.shape) < 0.2] = np.inf
    batch = CostBatch(own, shared)
    for index, costs in enumerate(of_each(batch)):
        row, expected = batch.row(index), costs.cheapest(count)
        found = row.cheapest(count)
        np.testing.assert_array_equal(found.sequences, expected.sequences)
        np.testing.assert_array_equal(found.costs, expected.costs)
        assert (found.bound, found.complete) == (expected.bound, expected.complete)
        assert (row.horizon, row.size, row.finite) == (costs.horizon, costs.size, costs.finite)
        np.testing.assert_array_equal(row.cost(found.sequences), found.costs)
        for mine, table in zip(row.tables(), costs.tables(), strict=True):
            np.testing.assert_array_equal(mine, table)
        for step in range(row.horizon):
            some = found.sequences[:, :step]
            np.testing.assert_array_equal(row.children(some), costs.children(some))
        limited = row.cheapest(count, partial(everything, row.size))
        np.testing.assert_array_equal(limited.sequences, expected.sequences)


@pytest.mark.parametrize("count", [1, 5, 64])
def test_parts_of_a_batch_give_the_same(count, monkeypatch):
    generator = np.random.default_rng(0)
    tables = tuple(generator.random((9,) * axes) for axes in (1, 2, 3, 3))
    own = generator.random((7, 4, 9))
    whole = CostBatch(own, StepCosts(costs=tables)).cheapest(count)
    monkeypatch.setattr(module, "CHUNK", 1)
    parts = CostBatch(own, StepCosts(costs=tables)).cheapest(count)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one.sequences, other.sequences)
        np.testing.assert_allclose(one.costs, other.costs)
