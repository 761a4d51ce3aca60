import math
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from cefito.data.vocabulary import Task
from cefito.data.windows import ActionSpace
from cefito.errors import RunError
from cefito.planners.cefito.hypotheses import (
    ENERGY,
    Hypotheses,
    Hypothesis,
    TaskSpaces,
    Weights,
    merged,
)
from cefito.planners.chain.model import ChainModel
from cefito.planners.queries import Queries
from cefito.search import Constraints, NGramPrior, Plans, SearchCost
from cefito.search.problem import Space
from made_windows import taxonomy_of
from planners.random_chains import every_score, random_chain

ACTIONS = ((0, 2, 5), (1, 2, 3, 4), (0, 4))
SEQUENCES = np.array([[0, 2, 5], [0, 2, 2], [2, 5, 0], [1, 2, 3], [3, 4, 1], [1, 2, 4], [0, 4, 0]])
TASKS = np.array([0, 0, 0, 1, 1, 1, 2])


@dataclass
class Known:
    """In the place of a classifier: what it says, row by row of the queries."""

    logs: np.ndarray

    def log_probabilities(self, queries):
        return self.logs[: len(queries)].astype(np.float32)


@cache
def chain_model():
    """A chain with random weights, whose scores are far from even."""
    return ChainModel((random_chain(ACTIONS, width=1, seed=0, scale=20),), 1.25)


def make(probabilities=((0.6, 0.3, 0.1), (0.1, 0.2, 0.7)), **more):
    prior = NGramPrior.fit(SEQUENCES, TASKS, action_count=6, actions=ACTIONS)
    space = ActionSpace(actions=ACTIONS, source="training", fallback=())
    known = Known(np.log(np.array(probabilities)))
    parts = {"task_model": known, "by_chain": False, "chain": chain_model()} | more
    return Hypotheses(space=space, prior=prior, **parts)


def problems_of(hypotheses, asked, found, **more):
    evidence = hypotheses.chain.evidence(asked)
    return hypotheses.problems(asked, found, evidence, horizon=3, **more)


def queries(count=2, tasks=None):
    rows = np.arange(2.0 * count, dtype=np.float32).reshape(2, count, 1)
    return Queries(initial=rows[0], goal=rows[1], tasks=None if tasks is None else np.array(tasks))


def listed(found):
    return [
        (one.query, one.task, pytest.approx(math.exp(one.log_probability), abs=1e-6))
        for one in found
    ]


def test_the_likeliest_tasks():
    assert listed(make().of(queries(), 1)) == [(0, 0, 0.6), (1, 2, 0.7)]
    assert listed(make().of(queries(), 2)) == [(0, 0, 0.6), (0, 1, 0.3), (1, 2, 0.7), (1, 1, 0.2)]
    everything = [(0, 0, 0.6), (0, 1, 0.3), (0, 2, 0.1), (1, 2, 0.7), (1, 1, 0.2), (1, 0, 0.1)]
    assert listed(make().of(queries(), 3)) == listed(make().of(queries(), 7)) == everything


def test_implausible_tasks_are_left_out_but_never_all():
    # the second says nothing, oddly
    found = make([[0.9985, 0.0011, 0.0004], [1e-4, 1e-5, 1e-6]]).of(queries(), 3)
    assert [(one.query, one.task) for one in found] == [(0, 0), (0, 1), (1, 0)]


def test_the_chain_says_the_tasks_where_no_classifier_does():
    hypotheses = make(by_chain=True)
    found = hypotheses.of(queries(), 3)
    shares = []
    for query in range(2):
        sums = np.zeros(3)
        for (task, _), score in every_score(chain_model(), queries(), query, ACTIONS).items():
            sums[task] += math.exp(score)
        shares.append(sums / sums.sum())
    assert len(found) > 3
    for one in found:
        expected = math.log(shares[one.query][one.task])
        assert one.log_probability == pytest.approx(expected, abs=1e-4)
    for query in range(2):
        mine = [one.log_probability for one in found if one.query == query]
        assert mine == sorted(mine, reverse=True)
        assert found[[one.query for one in found].index(query)].task == np.argmax(shares[query])
    evidence = hypotheses.chain.evidence(queries())
    assert hypotheses.of(queries(), 3, evidence) == found
    assert [one.log_probability for one in hypotheses.of(queries(tasks=[0, 0]), 3)] == [0, 0]


def test_tasks_must_be_given_where_nothing_says_them():
    for parts, message in (
        ({"task_model": None}, r"no task classifier, so tasks must be given\. Or import it again"),
        ({"chain": None, "by_chain": True}, "imported without a chain to predict tasks by"),
    ):
        with pytest.raises(RunError, match=message):
            make(**parts).of(queries(), 1)
        assert len(make(**parts).of(queries(tasks=[0, 1]), 1)) == 2


SMALL = SearchCost(3, 2)


def plans(*rows, effort=SMALL, exact=True):
    """Rows of a score and actions; energies are the scores and a half."""
    scores = np.array([float(score) for score, _ in rows])
    return Plans(
        actions=np.array([list(actions) for _, actions in rows]).reshape(len(rows), 2),
        energies=scores + 0.5,
        scores=scores,
        evaluated=effort,
        exact=exact,
    )


def hypothesis(task):
    return Hypothesis(query=0, task=task, log_probability=-1.0)


def test_merging():
    found = [
        (hypothesis(7), plans((1, (0, 3)), (2, (0, 1)), (5, (2, 2)))),
        (hypothesis(3), plans((0.5, (2, 2)), (2, (0, 0)), (3, (0, 3)), effort=SearchCost(10, 20))),
    ]
    best = merged(found, 10)
    # by score, then ids; each once
    assert best.actions.tolist() == [[2, 2], [0, 3], [0, 0], [0, 1]]
    assert best.scores.tolist() == [0.5, 1, 2, 2]
    assert best.energies.tolist() == [1, 1.5, 2.5, 2.5]
    assert best.tasks.tolist() == [3, 7, 3, 7]
    assert best.evaluated == SearchCost(13, 22)
    assert best.exact
    assert best.searched == 2
    assert merged(found, 3).actions.tolist() == [[2, 2], [0, 3], [0, 0]]
    assert merged(found[::-1], 10).actions.tolist() == best.actions.tolist()


@pytest.mark.parametrize(("one", "other"), [(True, False), (False, True), (False, False)])
def test_merged_plans_are_exact_only_if_all_are(one, other):
    found = plans((1, (0, 0)), exact=one), plans(exact=other)
    assert not merged([(hypothesis(task), part) for task, part in enumerate(found)], 2).exact


TAXONOMY = replace(
    taxonomy_of(3, 6),
    tasks=tuple(
        Task(task, name, ACTIONS[task]) for task, name in enumerate(("tea", "toast", "tyre"))
    ),
)


def compiled_under(constraints, tasks=3):
    hypotheses = make()
    found = hypotheses.of(queries(), tasks)
    given = {"taxonomy": TAXONOMY, "horizon": 3, "constraints": constraints}
    spaces = TaskSpaces(space=hypotheses.space, **given)
    found = spaces.possible(found)
    problems = problems_of(hypotheses, queries(), found, weights=ENERGY, constraints=constraints)
    return found, spaces.compiled(found, problems)


def test_problems_are_compiled_where_constraints_can_be_satisfied():
    found, spaces = compiled_under(Constraints())
    assert [one.task for one in found] == [0, 1, 2, 2, 1, 0]
    assert [space.problem.actions for space in spaces] == [ACTIONS[one.task] for one in found]
    found, spaces = compiled_under(Constraints(required=(2,)))
    assert [(one.query, one.task) for one in found] == [(0, 0), (0, 1), (1, 1), (1, 0)]
    assert all(isinstance(space, Space) and space.horizon == 3 for space in spaces)


def test_the_energy_alone_is_guided_by_the_windows_and_with_the_chain_by_it():
    hypotheses, asked = make(), queries()
    found = [Hypothesis(query=0, task=1, log_probability=0.0)]
    alone, both = (
        problems_of(hypotheses, asked, found, weights=Weights(energy=1.0, chain=chain))[0]
        for chain in (0.0, 1.0)
    )
    sequences = np.array(list(product(range(len(ACTIONS[1])), repeat=3)))
    expected = hypotheses.prior.costs(1, 3).cost(sequences)
    np.testing.assert_allclose(alone.guide.cost(sequences), expected, rtol=1e-6)
    assert not np.allclose(both.guide.cost(sequences), expected)
