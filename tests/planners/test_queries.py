"""Queries check themselves, in Python as from the command line."""

import numpy as np
import pytest

from cefito import Queries
from cefito.errors import DataError
from cefito.files import aligned
from cefito.planners.queries import LARGEST
from refusals import refusal

GOOD = aligned(np.arange(12, dtype=np.float32).reshape(3, 4))


def spoilt(value, row=1):
    array = GOOD.astype(np.float64)
    array[row, 2] = value
    return array


@pytest.mark.parametrize("name", ["initial", "goal"])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, "holds nan"),
        (-np.inf, "holds -inf"),
        (-3e12, r"holds -3e\+12, which is too large to compute with"),
        (1e300, r"holds 1e\+300, which is too large"),  # infinite once converted
    ],
)
def test_numbers_that_are_none_are_refused(name, value, message):
    parts = {"initial": GOOD, "goal": GOOD, name: spoilt(value)}
    refusal(DataError, Queries, match=f"^queries, '{name}', row 1 .*: {message}", **parts)


@pytest.mark.parametrize(
    ("initial", "goal", "message"),
    [
        (GOOD[0], GOOD[0], r"'initial': has shape \[4\]; expected \[N, E\].* x\[None\]"),
        (GOOD[:, :0], GOOD[:, :0], r"has shape \[3, 0\]"),
        (GOOD, GOOD[:2], r"'initial' has shape \[3, 4\] and 'goal' \[2, 4\]; both"),
        (GOOD.astype(int), GOOD, r"'initial': holds values of type int64.* astype\('float32'\)"),
        (GOOD, GOOD.astype(str), "'goal': holds values of type <U32"),
        (GOOD, None, "'goal': holds values of type object"),
        ([[0.5, 1.0], [0.5]], GOOD, "'initial': is not an array"),
    ],
)
def test_arrays_of_another_kind_are_refused(initial, goal, message):
    refusal(DataError, Queries, initial=initial, goal=goal, match=message)


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([0, 1], r"has shape \[2\] and type int64; expected whole numbers \[3\]"),
        (1, r"has shape \[\]"),
        ([0.0, 1.0, 2.0], "type float64"),
        ([True, False, True], "type bool"),
        ([0, -1, 2], r"row 1 \(counted from 0\): -1"),
    ],
)
def test_tasks_are_ids(tasks, message):
    with pytest.raises(DataError, match=f"^queries, 'tasks'.*{message}"):
        Queries(initial=GOOD, goal=GOOD, tasks=np.array(tasks))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, ">f4", list])
def test_floating_point_numbers_are_kept_as_float32(kind):
    given = GOOD.tolist() if kind is list else GOOD.astype(kind)
    queries = Queries(initial=given, goal=given, tasks=np.array([0, 1, 2], dtype=np.int8))
    for array in (queries.initial, queries.goal):
        assert array.dtype == np.float32
        assert array.dtype.isnative
        np.testing.assert_array_equal(array, GOOD)
    assert queries.tasks is not None
    assert queries.tasks.dtype == np.int64


def test_the_largest_numbers_can_be_computed_with():
    """Squares and their sum over very many features stay finite."""
    row = np.full((1, 4096), LARGEST, dtype=np.float32)
    assert np.isfinite(np.square(Queries(initial=row, goal=-row).initial).sum())


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_blocks_are_the_queries_in_order(size):
    queries = Queries(initial=GOOD, goal=GOOD + 1, tasks=np.arange(3))
    blocks = queries.blocks(size)
    assert [len(block) for block in blocks] == {1: [1, 1, 1], 2: [2, 1]}.get(size, [3])
    for name in ("initial", "goal", "tasks"):
        parts = [getattr(block, name) for block in blocks]
        np.testing.assert_array_equal(np.concatenate(parts), getattr(queries, name))
    assert queries.subset([]).blocks(size) == []


@pytest.mark.parametrize(
    ("elapsed", "seen", "message"),
    [
        ([1.0, 2.0], None, r"has shape \[2\] and type float64; expected seconds \[3\]"),
        ([1, 2, 3], None, "type int64"),
        ([1.0, 0.0, 2.0], None, r"row 1 \(counted from 0\): 0; .* above 0"),
        ([np.inf, np.nan, -2.0], None, r"row 0 \(counted from 0\): inf"),
        ([np.nan, 2.0, np.nan], [False, True], "two observations of which one is unknown"),
    ],
)
def test_times_between_observations(elapsed, seen, message):
    seen = None if seen is None else np.tile(seen, (3, 1))
    with pytest.raises(DataError, match=f"^queries, 'elapsed'.*{message}"):
        Queries(initial=GOOD, goal=GOOD, seen=seen, elapsed=np.array(elapsed))


def test_times_go_with_their_queries():
    times = np.array([1.5, np.nan, 60.0])
    queries = Queries(initial=GOOD, goal=GOOD, elapsed=times)
    assert queries.elapsed.dtype == np.float32
    parts = Queries.concatenate([queries.subset([2]), queries.subset([0, 1])])
    np.testing.assert_array_equal(parts.elapsed, np.float32(times[[2, 0, 1]]))
    assert queries.extras == ("elapsed",)
    assert queries.whole
    assert queries.with_elapsed(9).elapsed.tolist() == [9, 9, 9]


def test_tasks_that_are_unknown_are_refused():
    queries = Queries(initial=GOOD, goal=GOOD, tasks=np.array([1, 4, 5]))
    queries.check_ids("tasks", 6)
    with pytest.raises(DataError, match=r"'tasks', row 1 .*: 4; .* 0 to 3"):
        queries.check_ids("tasks", 4)
    Queries(initial=GOOD, goal=GOOD).check_ids("tasks", 1)
