"""Vocabularies beside each other by name."""

import numpy as np
import pytest

from cefito.data.vocabulary import Taxonomy
from cefito.errors import DataError
from cefito.parts.matching import extended_taxonomy, match_vocabulary
from made_windows import windows_of


def taxonomy(tasks, dataset="made", **more):
    """Of {task: [(id, name), …]}; equal ids are the same action."""
    names = {number: name for actions in tasks.values() for number, name in actions}
    return Taxonomy.from_dict(
        {
            "dataset": dataset,
            "tasks": [
                {"id": number, "name": name, "actions": [action for action, _ in actions]}
                for number, (name, actions) in enumerate(tasks.items())
            ],
            "actions": [{"id": number, "name": names[number]} for number in sorted(names)],
            **more,
        }
    )


KNOWN = taxonomy(
    {"tea": [(0, "boil"), (1, "pour"), (2, "wait")], "soup": [(3, "cut"), (4, "pour"), (0, "boil")]}
)


def windows(vocabulary, tasks, actions):
    observations = np.arange(4.0 * len(tasks)).reshape(2, -1, 2)
    return windows_of(actions, observations, vocabulary, tasks=tasks)


def test_equal_vocabularies():
    match = match_vocabulary(KNOWN, KNOWN)
    assert match.same
    assert match.tasks.tolist() == [0, 1]
    assert match.actions.tolist() == [[0, 1, 2, -1, -1], [0, -1, -1, 3, 4]]
    assert (match.new_tasks, match.new_actions) == ((), ())


def test_other_ids_and_names_that_stand_for_different_actions_in_different_tasks():
    other = taxonomy(
        {"soup": [(0, "pour"), (1, "cut"), (4, "boil")], "tea": [(2, "wait"), (3, "pour")]}
    )
    match = match_vocabulary(KNOWN, other)
    assert not match.same
    assert match.tasks.tolist() == [1, 0]
    assert match.actions.tolist() == [[4, 3, -1, -1, 0], [-1, -1, 2, 1, -1]]
    found, left_out = match.translated(windows(other, [0, 1], [[0, 1], [3, 2]]))
    assert not left_out
    assert (found.tasks.tolist(), found.actions.tolist()) == ([1, 0], [[4, 3], [1, 2]])
    assert found.taxonomy is KNOWN


def test_what_is_new_is_listed_and_its_windows_are_counted():
    other = taxonomy(
        {"tea": [(0, "pour"), (1, "cut"), (2, "stir")], "cake": [(3, "pour"), (4, "bake")]}
    )
    match = match_vocabulary(KNOWN, other)
    assert [task.name for task in match.new_tasks] == ["cake"]
    # "cut" is known, but of another task
    assert [(task.name, action.name) for task, action in match.new_actions] == [
        ("tea", "cut"),
        ("tea", "stir"),
    ]
    cut = windows(other, [0, 1, 0, 0], [[0, 0], [3, 4], [0, 1], [2, 1]])
    found, left_out = match.translated(cut)
    assert vars(left_out) == {"new_task": 1, "new_action": 2}
    assert found.actions.tolist() == [[1, 1]]
    np.testing.assert_array_equal(found.initial, cut.initial[:1])
    assert match.rows(np.arange(5.0, 10.0)[:, None]).ravel().tolist() == [0, 5, 0, 0, 0]


def test_several_actions_of_one_name_in_a_task():
    two = taxonomy({"tea": [(0, "pour"), (1, "pour"), (2, "wait")]})
    turned = taxonomy({"tea": [(0, "wait"), (1, "pour"), (2, "pour")]})
    assert match_vocabulary(two, turned).actions.tolist() == [[2, 0, 1]]
    one = taxonomy({"tea": [(0, "wait"), (1, "pour")]})
    assert match_vocabulary(one, two).actions.tolist() == [[1, 1, 0]]
    # which of the two it is cannot be told, unless the id is the same
    assert match_vocabulary(two, one).actions.tolist() == [[2, 1]]
    moved = taxonomy({"tea": [(0, "a"), (1, "wait"), (2, "pour")]})
    assert match_vocabulary(two, moved).actions.tolist() == [[-1, 2, -1]]
    with pytest.raises(DataError, match="task 'tea': has several actions 'pour'"):
        extended_taxonomy(two, moved)


def test_an_extended_vocabulary_keeps_its_ids_and_knows_all():
    other = taxonomy(
        {
            "cake": [(0, "bake"), (1, "pour"), (2, "cut")],
            "tea": [(3, "stir"), (4, "pour"), (5, "boil")],
        }
    )
    extended = extended_taxonomy(KNOWN, other)
    assert extended.actions[:5] == KNOWN.actions
    assert [task.name for task in extended.tasks] == ["tea", "soup", "cake"]
    # "pour" has several meanings, so that of the cake is one more; "cut" has one
    assert [action.name for action in extended.actions[5:]] == ["stir", "bake", "pour"]
    assert [task.actions for task in extended.tasks] == [(0, 1, 2, 5), (0, 3, 4), (3, 6, 7)]
    match = match_vocabulary(extended, other)
    assert match.tasks.tolist() == [2, 0]
    assert (match.new_tasks, match.new_actions) == ((), ())
    assert match.actions.tolist() == [[6, 7, 3, -1, -1, -1], [-1, -1, -1, 5, 1, 0]]
    assert extended_taxonomy(extended, other) == extended
    assert extended_taxonomy(KNOWN, KNOWN) == KNOWN


def test_the_shared_vocabulary_stays_without_new_actions():
    names = [{"id": place, "name": name} for place, name in enumerate(["boil", "pour", "wait"])]
    shared = {"map_5_to_3": [0, 1, 2, 2, 1], "actions_3": names}
    known = Taxonomy.from_dict(KNOWN.to_dict() | shared)
    assert extended_taxonomy(known, KNOWN) == known
    assert extended_taxonomy(known, taxonomy({"cake": [(0, "bake")]})).shared is None
