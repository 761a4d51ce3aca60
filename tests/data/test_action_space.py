import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cefito.data.annotations import Action, Task, Taxonomy
from cefito.data.windows import ActionSpace, Windows, action_space, cut_windows, extended_space
from cefito.errors import DataError

TASKS = (Task(0, "tea", (0, 1, 2, 3)), Task(1, "toast", (2, 4)), Task(2, "tyre", (5,)))
TAXONOMY = Taxonomy(
    dataset="toy",
    tasks=TASKS,
    actions=tuple(Action(index, f"action {index}") for index in range(6)),
)


def windows(rows: list[tuple[int, list[int]]], taxonomy: Taxonomy = TAXONOMY) -> Windows:
    """Windows of (task, actions), without meaningful observations."""
    count = len(rows)
    observations = np.zeros((count, 2), np.float32)
    actions = np.array([row for _, row in rows], np.int64)
    tasks = np.array([task for task, _ in rows], np.int64)
    places = np.arange(count), np.zeros(count, np.int64)
    return Windows(
        observations, observations, actions, tasks, *places, taxonomy, None, "toy", "train"
    )


def test_actions_of_the_training_windows():
    space = action_space(windows([(0, [3, 0]), (1, [4, 4]), (0, [3, 3]), (1, [2, 4])]), "training")
    assert space.actions == ((0, 3), (2, 4), (5,))
    assert space.fallback == (2,)
    assert space.source == "training"


def test_training_actions_may_be_missing_from_the_taxonomy():
    assert action_space(windows([(2, [5, 0])]), "training").actions[2] == (0, 5)
    assert action_space(windows([(2, [5, 0])]), "taxonomy").actions[2] == (5,)


@pytest.mark.parametrize("source", ["training", "taxonomy"])
def test_a_task_without_any_action(source):
    bare = replace(TAXONOMY, tasks=(*TASKS[:2], Task(2, "tyre", ())))
    with pytest.raises(
        DataError, match=r"task 2 \('tyre'\) has neither training windows nor actions"
    ):
        action_space(windows([(0, [0, 1])], bare), source)
    assert action_space(windows([(2, [1, 0])], bare), "training").actions[2] == (0, 1)


SEQUENCE = st.lists(st.integers(0, 5), min_size=2, max_size=2)


@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2), SEQUENCE), min_size=1, max_size=8),
    source=st.sampled_from(["training", "taxonomy"]),
)
def test_against_an_obvious_loop(rows, source):
    space = action_space(windows(rows), source)
    for task in TAXONOMY.tasks:
        seen = {action for number, row in rows if number == task.id for action in row}
        assert (task.id in space.fallback) == (not seen)
        expected = sorted(seen) if seen and source == "training" else list(task.actions)
        assert list(space.actions[task.id]) == expected
    assert ActionSpace.from_dict(json.loads(json.dumps(space.to_dict()))) == space


def test_only_training_windows_count(tiny_dataset):
    train = cut_windows(tiny_dataset, horizon=3, split="train")
    space = action_space(train, "training")
    assert space.actions[1] == (2, 3, 4, 5)
    assert space.actions[2] == (6, 7)
    assert space.fallback == ()
    longer = action_space(cut_windows(tiny_dataset, horizon=5, split="train"), "training")
    assert longer.fallback == (0, 2)  # their training videos are too short for any window
    assert longer.actions[0] == (0, 1, 2)


def test_further_windows_add_actions_and_tasks():
    """Tasks 0 and 1 were known, 1 without windows of its own; 2 is new."""
    further = windows([(0, [3, 2]), (2, [5, 5])])
    space = extended_space([(0, 3), (2, 4)], further, "training", fallback=[1])
    assert space.actions == ((0, 2, 3), (2, 4), (5,))
    assert space.fallback == (1,)
    shown = windows([(1, [2, 2])])
    space = extended_space([(0, 3), (2, 4)], shown, "training", fallback=[1])
    assert space.actions == ((0, 3), (2, 4), (5,))
    assert space.fallback == (2,)
    space = extended_space([(0,), (2,)], further, "taxonomy")
    assert space.actions == ((0, 1, 2, 3), (2,), (5,))
    assert space.source == "taxonomy"
