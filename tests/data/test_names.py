"""Tasks and actions by name."""

import unicodedata

import numpy as np
import pytest

from cefito.data.vocabulary import (
    Action,
    Task,
    Taxonomy,
    find_action,
    find_actions,
    find_task,
    name_or_id,
    similar_names,
)
from cefito.errors import ConfigError
from odd_names import ODD


def made(tasks):
    """A taxonomy of {task: names of its actions}; actions are numbered as they come."""
    actions, found = [], []
    for name, members in tasks.items():
        first = len(actions)
        actions += [Action(id=first + place, name=each) for place, each in enumerate(members)]
        found.append(
            Task(id=len(found), name=name, actions=tuple(range(first, first + len(members))))
        )
    return Taxonomy(dataset="made", tasks=tuple(found), actions=tuple(actions))


TAXONOMY = made(
    {
        "Make Lemonade": ["cut lemon", "pour water", "Stir"],
        "Make Käse": ["pour water", "add salt", "stir", "add salt"],
        "Numbers": ["7", "0", "8"],
    }
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        *((np.int64(1), 1), (" +1 ", 1), ("id:1", 1)),
        (unicodedata.normalize("NFD", "Make Käse"), 1),
        ("make  käse!", 1),
        ("name:make lemonade", 0),
    ],
)
def test_tasks(given, expected):
    assert find_task(TAXONOMY, given) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("Make Lemonad", "unknown task 'Make Lemonad'; similar names: 'Make Lemonade'."),
        ("xyz", "unknown task 'xyz'; there are 'Make Lemonade', 'Make Käse', 'Numbers'."),
        ("name:", "unknown task ''"),
        ("!", "unknown task '!'"),
        (3, "unknown task 3; there are 0 to 2."),
        ("-1", "unknown task -1;"),
        ("9" * 5000, "unknown task 999"),
        ("id:x", "unknown task x; there are 0 to 2."),
        (True, "task True: expected its id or its name."),
    ],
)
def test_tasks_that_there_are_not(given, message):
    with pytest.raises(ConfigError) as caught:
        find_task(TAXONOMY, given)
    assert message in str(caught.value)
    assert caught.value.setting == "task"
    with pytest.raises(ConfigError, match=r"'TEA' is the name of several tasks"):
        find_task(made({"Tea": ["boil"], "tea!": ["pour"]}), "TEA")


@pytest.mark.parametrize(
    ("given", "task", "expected"),
    [
        ("Cut-Lemon", None, 0),
        *(("pour water", 0, 1), ("pour water", 1, 3)),
        ("stir", None, 5),  # as it is written
        ("Stir", None, 2),
        ("stir", 0, 2),  # the task's comes first, however it is written
        ("STIR", 1, 5),
        (0, 1, 0),  # an id may be of any task; searches decide
        *(("name:7", None, 7), ("id:7", None, 7), ("name:0", None, 8), ("id:0", None, 0)),
        *(("0", None, 8), ("8", None, 9), (8, None, 8), ("9", None, 9)),  # a name, or else an id
    ],
)
def test_actions(given, task, expected):
    assert find_action(TAXONOMY, given, task=task) == expected


@pytest.mark.parametrize(
    ("given", "task", "message"),
    [
        ("pour water", None, "'pour water' is the name of several actions: 1 'pour water' of"),
        ("STIR", None, "'STIR' is the name of several actions: 2 'Stir' of 'Make Lemonade', 5"),
        ("add salt", 1, "4 'add salt' of 'Make Käse', 6 'add salt' of 'Make Käse'. Give the id."),
        ("cut lemon", 1, "action 'cut lemon' is not one of the task 'Make Käse' but of 'Make"),
        ("add slat", None, "unknown action 'add slat'; similar names: 'add salt'"),
        ("pour wine", 1, "unknown action 'pour wine'; similar names: 'pour water'."),
        (10, None, "unknown action 10; there are 0 to 9."),
    ],
)
def test_actions_that_are_not_one(given, task, message):
    with pytest.raises(ConfigError) as caught:
        find_action(TAXONOMY, given, task=task, setting="forbidden")
    assert message in str(caught.value)
    assert caught.value.setting == "forbidden"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("Butter", ["butter pan", "Butter aufstreichen"]),
        ("buter", ["butter pan", "Butter aufstreichen"]),
        ("aufstr", ["Butter aufstreichen"]),
        ("spread butter", ["butter pan", "Butter aufstreichen"]),  # no better one
        ("pan, butter it", ["butter pan"]),
        ("world-99", ["world-0099", "world-0990"]),
        ("an", []),
        ("", []),
    ],
)
def test_similar_names(given, expected):
    known = ["Butter aufstreichen", "butter pan", "Brot anbraten", "world-0099", "world-0990"]
    assert similar_names(given, known) == expected


def test_a_name_for_all_that_have_it():
    assert find_actions(TAXONOMY, "pour water") == (1, 3)
    assert find_actions(TAXONOMY, "pour water", task=1) == (3,)
    assert find_actions(TAXONOMY, "cut lemon", task=1) == (0,)
    assert find_actions(TAXONOMY, "7") == (7,)  # its id and its name
    assert find_actions(TAXONOMY, 8) == (8,)


def test_names_are_written_as_they_are_read():
    names = [*ODD, "boil", " boil", "boil"]
    taxonomy = made({"tea": names, "3": ["pour"], "tea!": ["pour"]})
    for task in taxonomy.tasks:
        assert find_task(taxonomy, name_or_id(taxonomy.tasks, task.id)) == task.id
        actions = [taxonomy.actions[action] for action in task.actions]
        for action in task.actions:
            assert find_action(taxonomy, name_or_id(actions, action), task=task.id) == action
