import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cefito.data.vocabulary import Task
from cefito.data.windows import ActionSpace, action_space, cut_windows, extended_space
from cefito.errors import DataError
from made_windows import taxonomy_of, windows_of

TASKS = (Task(0, "tea", (0, 1, 2, 3)), Task(1, "toast", (2, 4)), Task(2, "tyre", (5,)))
TAXONOMY = replace(taxonomy_of(3, 6), tasks=TASKS)


def windows(rows, taxonomy=TAXONOMY):
    """Windows of (task, actions), without meaningful observations."""
    tasks, actions = zip(*rows, strict=True)
    return windows_of(actions, np.zeros((2, len(rows), 2)), taxonomy, tasks=tasks)


@pytest.mark.parametrize("source", ["training", "taxonomy"])
def test_a_task_without_any_action(source):
    bare = replace(TAXONOMY, tasks=(*TASKS[:2], Task(2, "tyre", ())))
    with pytest.raises(DataError, match=r"task 2 \('tyre'\)"):
        action_space(windows([(0, [0, 1])], bare), source)
    assert action_space(windows([(2, [1, 0])], bare), "training").actions[2] == (0, 1)


SEQUENCE = st.lists(st.integers(0, 5), min_size=2, max_size=2)


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
