"""Kinds of mistakes, against examples and against what must hold of any two sequences."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cefito.report.breakdowns import KINDS, missing_steps, plan_kinds, step_kinds

R, S, O, A = "right", "substitution", "order", "repetition"  # noqa: E741


@pytest.mark.parametrize(
    ("planned", "actual", "kinds", "missing"),
    [
        ([1, 2, 3], [1, 2, 3], [R, R, R], [False] * 3),
        ([1, 3, 2], [1, 2, 3], [R, O, O], [False] * 3),
        ([1, 9, 3], [1, 2, 3], [R, S, R], [False, True, False]),
        ([1, 1, 3], [1, 2, 3], [R, A, R], [False, True, False]),
        ([9, 9, 3], [1, 2, 3], [S, A, R], [True, True, False]),
        ([2, 1, 1], [1, 2, 2], [O, O, A], [False, False, True]),
        # the step in its own place is the right one, whatever stands before it
        ([3, 9, 3], [1, 2, 3], [A, S, R], [True, True, False]),
        ([2, 3, 1], [1, 2, 3], [O, O, O], [False] * 3),
        ([5], [6], [S], [True]),
        ([1], [1, 2], [R], [False, True]),
        ([1, 2, 1], [1, 2], [R, R, A], [False, False]),
    ],
)
def test_examples(planned, actual, kinds, missing):
    assert step_kinds(planned, actual) == kinds
    assert missing_steps(planned, actual) == missing


SEQUENCES = st.tuples(*[st.lists(st.integers(0, 4), min_size=1, max_size=6)] * 2)


@given(SEQUENCES)
def test_steps_are_accounted_for_once(pair):
    planned, actual = pair
    kinds, missing = step_kinds(planned, actual), missing_steps(planned, actual)
    common = sum((Counter(planned) & Counter(actual)).values())
    right = [planned[place : place + 1] == actual[place : place + 1] for place in range(6)]
    assert [kind == R for kind in kinds] == right[: len(planned)]
    assert sum(kind in (R, O) for kind in kinds) == common
    assert sum(missing) == len(actual) - common
    for place, kind in enumerate(kinds):
        others = planned[:place] + planned[place + 1 :]
        assert kind != A or planned[place] in others
        assert kind != S or planned[place] not in actual or planned[place] in others
    found = plan_kinds(planned, actual)
    assert (found == []) == (planned == actual)
    assert found == [kind for kind in KINDS if kind in {*kinds, *(["missing"] * any(missing))}]
