"""Warnings of answers, by a planner whose probabilities are given."""

from dataclasses import replace

import numpy as np
import pytest

from cefito.data.vocabulary import Taxonomy
from cefito.inference.contradictions import contradictions
from cefito.planners.base import Marginals
from cefito.planners.base_planner import BasePlanner
from cefito.planners.queries import Queries
from cefito.search.constraints import Constraints

QUERY = Queries(initial=np.zeros((1, 2)), goal=np.ones((1, 2)))
NAMES = ("stir", "pour", "flip", "unfold", "stir")
TAXONOMY = Taxonomy.from_names("toy", [("pancakes", (0, 1, 2)), ("tent", (3, 4))], NAMES)
STEPS = np.array(
    [
        [0.980, 0.012, 0.004, 0.003, 0.001],
        [0.500, 0.300, 0.160, 0.030, 0.010],
        [0.990, 0.007, 0.002, 0.0005, 0.0005],
    ]
)


class Knows(BasePlanner):
    """A planner of given probabilities; counts how often it is asked for them."""

    name, horizon, observation_dim = "knows", 3, 2

    def __init__(self, tasks=None, steps=None):
        self.known, self.asked = Marginals(tasks, steps), 0

    def marginals(self, _):
        self.asked += 1
        return self.known


def warnings(constraints=Constraints(), *, tasks=(0.992, 0.008), given=None, task=0, steps=STEPS):
    planner = Knows(np.array([tasks]), None if steps is None else steps[None])
    query = QUERY if given is None else QUERY.with_task(given)
    return contradictions(planner, query, constraints, TAXONOMY, task=task)


def test_a_task_that_is_given():
    assert warnings(given=0, task=0) == []
    assert warnings(given=1, task=1) == [
        "the observations point to the task 'pancakes' (99.2 %); given is 'tent' (0.8 %)"
    ]
    assert warnings(given=1, task=1, tasks=(0.94, 0.06)) == []
    assert "'tent' (below 0.1 %)" in warnings(given=1, task=1, tasks=(0.9999, 0.0001))[0]


def test_a_task_that_constraints_lead_to():
    harmless = Constraints(forbidden=(2,))
    assert warnings(harmless, task=0) == []
    assert warnings(harmless, task=1) == [
        "the observations point to the task 'pancakes' (99.2 %); with these constraints the best "
        "plan is of 'tent' (0.8 %)"
    ]
    assert warnings(harmless, task=1, tasks=(0.9, 0.1)) == []


@pytest.mark.parametrize(
    ("constraints", "expected"),
    [
        ({"pinned": ((1, 0), (2, 2))}, []),
        ({"pinned": ((2, 3),)}, ["'stir' at step 2 (50.0 %); 'unfold' is pinned there (3.0 %)"]),
        (
            {"pinned": ((1, 1), (3, 3))},
            [
                "'stir' at step 1 (98.0 %); 'pour' is pinned there (1.2 %)",
                "'stir' at step 3 (99.0 %); 'unfold' is pinned there (below 0.1 %)",
            ],
        ),
        ({"required": (0, 2)}, []),
        ({"required": (3,)}, ["other actions than 'unfold' (at most 3.4 %), which is required"]),
        ({"forbidden": (1, 2, 3)}, []),
        ({"forbidden": (3, 0)}, ["'stir' at step 3 (99.0 %), which is forbidden"]),
        ({"before": ((0, 1), (1, 0))}, []),
        ({"no_repeats": True}, ["'stir' at step 1 (98.0 %) and 'stir' at step 3 (99.0 %); no"]),
    ],
)
def test_constraints_on_steps(constraints, expected):
    found = warnings(Constraints(**constraints))
    assert len(found) == len(expected)
    for sentence, part in zip(found, expected, strict=True):
        assert sentence.startswith(f"the observations point to {part}")


def test_several_forbidden_actions_together():
    steps = np.array([[0.5, 0.46, 0.02, 0.01, 0.01], [0.2] * 5, [0.2] * 5])
    found = warnings(Constraints(forbidden=(1, 0, 3)), steps=steps)
    assert found == [
        "the observations point to 'stir' or 'pour' at step 1 (96.0 %), which is forbidden"
    ]
    assert warnings(Constraints(forbidden=(0, 3)), steps=steps) == []


def test_an_order_that_is_seen_the_other_way_round():
    steps = np.array([[0, 0.99, 0.01, 0, 0], [0.2] * 5, [0.98, 0.02, 0, 0, 0]])
    found = warnings(Constraints(before=((0, 1), (2, 1))), steps=steps)
    assert found == [
        "the observations point to 'pour' at step 1 (99.0 %) and 'stir' at step 3 (98.0 %); "
        "'stir' must come first"
    ]
    assert warnings(Constraints(before=((1, 0),)), steps=steps) == []


def test_choices_no_likelier_than_many_others_are_no_contradiction():
    steps = np.full((3, 5), 0.02)
    steps[:, 0] = 0.92  # the other four have 8 % together
    assert warnings(Constraints(pinned=((1, 3),)), steps=steps) == []
    steps = np.full((3, 5), 0.01)
    steps[:, 0] = 0.96
    assert len(warnings(Constraints(pinned=((1, 3),)), steps=steps)) == 1


def test_nothing_is_said_without_need():
    planner = Knows(np.array([[0.1, 0.9]]), STEPS[None])
    assert contradictions(planner, QUERY, Constraints(), TAXONOMY, task=0) == []
    asked = Constraints(pinned=((1, 3),))
    assert contradictions(planner, QUERY.with_task(0), asked, TAXONOMY, task=0) != []
    unseen = replace(QUERY, seen=np.array([[False, False]]))
    assert contradictions(planner, unseen.with_task(0), asked, TAXONOMY, task=0) == []
    silent = BasePlanner()
    assert contradictions(silent, QUERY.with_task(0), asked, TAXONOMY, task=0) == []


def test_true_choices_are_warned_of_rarely():
    """If probabilities are right, at most one true choice in twenty contradicts them."""
    rng = np.random.default_rng(0)
    warned = 0
    for _ in range(400):
        steps = rng.dirichlet(np.full(5, 0.3), size=3)
        actions = [int(rng.choice(5, p=row)) for row in steps]
        pins = tuple(enumerate(actions, 1))
        warned += len(warnings(Constraints(pinned=pins), tasks=(0.5, 0.5), steps=steps))
    assert warned / (3 * 400) <= 0.06
