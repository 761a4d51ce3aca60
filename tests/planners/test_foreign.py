"""Planners of other packages: every value that breaks the contract is refused with their name."""

# ruff: noqa: ARG002, ARG003, ARG005
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest

from cefito.errors import ConfigError, RunError
from cefito.planners.base import Abilities, Fitted, Vocabulary
from cefito.planners.base_planner import BasePlanner
from cefito.planners.methods import METHODS, Method
from cefito.planners.queries import Queries
from cefito.search.constraints import Constraints
from cefito.search.problem import Plans, SearchCost

WIDTH, TASKS, ACTIONS, STEPS, TOP_K = 5, 2, 6, 3, 4


@dataclass(frozen=True, eq=False, repr=False)
class Guess(BasePlanner):
    """Plans the same sequences for all queries, after a change of what it returns."""

    changes: dict
    abilities = Abilities(constraints=True, probabilities=True)
    name = "guess"
    horizon = STEPS
    observation_dim = WIDTH
    vocabulary = Vocabulary(TASKS, ACTIONS)

    @classmethod
    def fit(cls, train, val, *, settings, seed, context):
        return Fitted(Guess({}))  # by its name

    @classmethod
    def load(cls, folder, *, settings, context):
        return cls({})

    def save(self, folder):
        pass

    def with_search(self, settings):
        return replace(self)

    def decode(self, queries, top_k):
        chances = np.array([0.4, 0.3, 0.1])[:top_k]
        plans = Plans(
            actions=np.array([[0, 1, 2], [2, 1, 0], [5, 0, 1]])[:top_k],
            energies=-np.log(chances),
            scores=-np.log(chances),
            evaluated=SearchCost(0, 0),
            exact=True,
            tasks=np.zeros(len(chances), dtype=np.int64),
            probabilities=chances,
            task_probabilities=np.full(len(chances), 0.9),
            searched_mass=1.0,
        )
        every = [replace(plans) for _ in range(len(queries))]
        return self.changes.get("plan", lambda value: value)(every)


def method(planner=Guess):
    return Method(name="guess", planner=planner)


METHOD = method()


def made(**changes):
    return METHOD.planner(changes)


def queries(count=3):
    rows = np.random.default_rng(0).standard_normal((2, count, WIDTH)).astype(np.float32)
    return Queries(initial=rows[0], goal=rows[1])


def last(**values):
    """A change of the plans of the last query; a value may be a function of the present one."""

    def change(found):
        *others, plans = found
        new = {
            name: value(getattr(plans, name)) if callable(value) else value
            for name, value in values.items()
        }
        return [*others, replace(plans, **new)]

    return change


def at(place, value):
    def change(found):
        changed = found.copy()
        changed[place] = value
        return changed

    return change


PLANS = {
    "unsorted": (last(scores=lambda scores: scores[::-1]), "scores that do not ascend"),
    "all unsorted": (
        last(scores=lambda a: a[::-1], energies=lambda a: a[::-1], probabilities=lambda a: a[::-1]),
        "scores that do not ascend",
    ),
    "chances unsorted": (last(probabilities=np.array([0.1, 0.3, 0.4])), "do not descend"),
    "NaN score": (last(scores=at(1, np.nan)), "NaN or infinite"),
    "infinite energy": (last(energies=at(2, np.inf)), "NaN or infinite"),
    "too short": (last(actions=lambda a: a[:, :2]), "plans of 2 actions, not 3"),
    "too long": (last(actions=lambda a: np.pad(a, ((0, 0), (0, 1)))), "plans of 4 actions, not 3"),
    "padded": (last(actions=at((1, 2), -1)), "ids that are no actions"),
    "negative id": (last(actions=at((1, 1), -7)), "ids that are no actions"),
    "unknown id": (last(actions=at((1, 1), ACTIONS)), "ids that are no actions"),
    "huge id": (last(actions=at((1, 1), 2**62)), "ids that are no actions"),
    "twice": (last(actions=at(2, [0, 1, 2])), "a plan twice"),
    "one dimension": (last(actions=lambda a: a[0]), "actions of the shape [3], not [any, any]"),
    "floats": (last(actions=lambda a: a.astype(float)), "no array of integers"),
    "a list": (last(actions=lambda a: a.tolist()), "no array of integers"),
    "scores short": (last(scores=lambda a: a[:2]), "scores of the shape [2], not [3]"),
    "scores in a column": (last(scores=lambda a: a[:, None]), "scores of the shape [3, 1]"),
    "energies of text": (last(energies=np.array(["1", "2", "3"])), "no array of numbers"),
    "probability 3": (last(probabilities=at(0, 3.0)), "probabilities of [3.], not from 0 to 1"),
    "probability -0.5": (last(probabilities=at(2, -0.5)), "probabilities of [-0.5]"),
    "probability NaN": (last(probabilities=at(2, np.nan)), "probabilities of [nan]"),
    "sum above 1": (last(probabilities=np.array([0.6, 0.5, 0.1])), "with the sum 1.2"),
    "no probabilities": (last(probabilities=None), "without the probabilities"),
    "no task probabilities": (last(task_probabilities=None), "without the probabilities"),
    "probability of task": (last(task_probabilities=at(0, 2.0)), "probabilities of tasks of [2.]"),
    "unknown task": (last(tasks=at(0, TASKS)), "ids that are no tasks"),
    "negative task": (last(tasks=at(0, -1)), "ids that are no tasks"),
    "tasks of names": (last(tasks=np.array(["a", "b", "c"])), "tasks that are no array"),
    "mass": (last(searched_mass=1.5), "a searched mass"),
    "exact": (last(exact="yes"), "'exact' that is no bool"),
    "cost": (last(evaluated=None), "'evaluated' that is no SearchCost"),
    "lengths": (last(length_probabilities={3: -1.0}), "probabilities of lengths"),
    "too many": (
        lambda found: [replace(one, actions=np.arange(15).reshape(5, 3) % 6) for one in found],
        "5 plans, more than 4",
    ),
    "a query less": (lambda found: found[1:], "no list of 3 Plans"),
    "none": (lambda found: None, "no list of 3 Plans"),
    "arrays": (lambda found: [one.actions for one in found], "no list of 3 Plans"),
}


@pytest.mark.parametrize("kind", PLANS)
def test_plans_that_break_the_contract(kind):
    change, message = PLANS[kind]
    with pytest.raises(RunError) as caught:
        made(plan=change).plan(queries(), TOP_K)
    said = str(caught.value)
    assert said.startswith("the method 'guess' breaks its contract: 'plan' gave ")
    assert message in said
    assert "\n" not in said


def test_what_keeps_the_contract_is_returned_as_it_is():
    planner, asked = made(), queries()
    assert isinstance(planner, Guess)
    assert type(planner).__name__ == "Guess"
    assert [len(plans) for plans in planner.plan(asked, 2)] == [2, 2, 2]
    assert planner.plan(asked.subset([]), 2) == []
    for change in (
        last(actions=lambda a: a[:0], energies=np.zeros(0), scores=np.zeros(0), tasks=None),
        last(actions=lambda a: a.astype(np.int32)),
        last(scores=np.zeros(3), energies=np.zeros(3, dtype=np.float32)),
        last(finite=False, energies=at(2, np.nan)),
    ):
        some = {"probabilities": np.zeros(0), "task_probabilities": np.zeros(0)}
        found = change([*planner.plan(asked, 3)])
        if not len(found[-1]):
            found[-1] = replace(found[-1], **some)
        assert made(plan=lambda _, found=found: found).plan(asked, 3) is found
    for again in (planner.with_search(None), planner.load("", settings=0, context=0)):
        assert type(again) is type(planner)
    fitted = METHOD.planner.fit(None, None, settings=None, seed=0, context=None)
    with pytest.raises(RunError, match="breaks its contract"):
        replace(fitted.planner, changes={"plan": PLANS["twice"][0]}).plan(asked, TOP_K)


def test_constraints_that_are_broken():
    planner, asked = made(), queries()
    kept = Constraints(forbidden=(3,), no_repeats=True)
    assert len(planner.plan(asked, TOP_K, constraints=kept)) == 3
    for broken in (
        Constraints(pinned=((1, 0),)),
        Constraints(required=(4,)),
        Constraints(forbidden=(5,)),
        Constraints(before=((0, 1), (1, 2))),
    ):
        with pytest.raises(RunError, match="for query 0 a plan that breaks the constraints"):
            planner.plan(asked, TOP_K, constraints=broken)


def test_errors_in_the_code_of_a_package_name_it():
    def fails(*_):
        raise KeyError("weights")

    def leaves(*_):
        sys.exit()

    for change, reason in ((fails, "KeyError: 'weights'"), (leaves, "SystemExit: ")):
        with pytest.raises(RunError) as caught:
            made(plan=change).plan(queries(), 1)
        assert str(caught.value).startswith(f"the method 'guess' failed ({reason}")

    def refuses(*_):
        raise ConfigError("not this")

    with pytest.raises(ConfigError, match="not this"):
        made(plan=refuses).plan(queries(), 1)


def test_attributes_that_break_the_contract():
    for name, value in (
        ("horizon", 0),
        ("observation_dim", "5"),
        ("name", ""),
        ("vocabulary", (2, 6)),
        ("reads_elapsed", None),
        ("mean_observation", np.zeros(WIDTH + 1)),
    ):
        kind = type("Guess", (Guess,), {name: value, "__module__": __name__})
        with pytest.raises(RunError, match="the method 'guess' breaks its contract: 'load' gave"):
            method(kind).planner.load("", settings=None, context=None)


def test_a_class_without_a_method_of_planners_is_refused():
    fault = METHODS.fault
    assert fault("guess", method()) == ""
    assert "not a class with Abilities" in fault("guess", method(object))
    lacking = type("Guess", (Guess,), {"plan": None, "__module__": __name__})
    assert fault("guess", method(lacking)).startswith("its planner has no plan; derive it from")
    assert "settings are not" in fault("guess", Method(name="guess", planner=Guess, settings=dict))
