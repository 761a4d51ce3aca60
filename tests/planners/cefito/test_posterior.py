"""Probabilities of plans against sums over all sequences of all tasks, one by one."""

import itertools

import numpy as np
import pytest
import torch

from cefito.planners.cefito.hypotheses import Hypothesis, Posterior, Weights, merged
from cefito.planners.chain.inference import SequenceScores
from cefito.planners.chain.model import ChainEvidence
from cefito.planners.chain.states import TaskStates
from cefito.search.problem import Plans, SearchCost

HORIZON, QUERIES = 3, 2
ACTIONS = ((0, 1, 2), (2, 3), (), (4,))  # of each task; the third has none
EFFORT = SearchCost(0, 0)


def evidence(seed=0):
    generator = torch.Generator().manual_seed(seed)
    states = TaskStates.make(ACTIONS, 5)
    width = states.grid.shape[1]
    scores = SequenceScores(
        states,
        torch.randn(QUERIES, HORIZON, len(states), generator=generator),
        torch.randn(len(ACTIONS), width, width, generator=generator),
    )
    return ChainEvidence(scores, scores.log_task_sums().double().numpy())


def every(task):
    return list(itertools.product(ACTIONS[task], repeat=HORIZON))


def joint(model, query):
    """Each (task, sequence) with its probability under the chain."""
    logs = {}
    for task in range(len(ACTIONS)):
        for sequence in every(task):
            states = model.scores.states.find(torch.tensor([task]), torch.tensor([sequence]))
            score = float(model.scores.rows(slice(query, query + 1)).scores(states[None])[0, 0])
            logs[task, sequence] = score
    total = np.logaddexp.reduce(list(logs.values()))
    return {pair: np.exp(value - total) for pair, value in logs.items()}


def searched(model, query, weights, energies, tasks, keep=None, log_tasks=None):
    """What a search would give for some tasks: their best sequences under both terms."""
    found = []
    for task in tasks:
        sequences = every(task)
        logs = model.log_sequences(query, np.full(len(sequences), task), np.array(sequences))
        own = np.array([energies[sequence] for sequence in sequences])
        log_task = (model.log_tasks() if log_tasks is None else log_tasks)[query, task]
        scores = weights.energy * own - weights.chain * (logs + log_task)
        order = np.argsort(scores)[:keep]
        plans = Plans(np.array(sequences)[order], own[order], scores[order], EFFORT, exact=True)
        found.append((Hypothesis(query, task, float(log_task)), plans))
    return found


def energies_by(seed):
    rng = np.random.default_rng(seed)
    return {s: float(rng.normal()) for task in range(len(ACTIONS)) for s in every(task)}


def check(best, expected):
    """The probability of each plan is that expected of its task and sequence."""
    pairs = zip(best.tasks.tolist(), map(tuple, best.actions.tolist()), strict=True)
    np.testing.assert_allclose(best.probabilities, [expected[pair] for pair in pairs], rtol=1e-4)


@pytest.mark.parametrize(("tasks", "keep"), [((0, 1, 3), None), ((0, 1), 5), ((0,), 6)])
def test_what_was_not_searched_keeps_its_share_of_the_chain(tasks, keep):
    model, energies = evidence(2), energies_by(2)
    weights = Weights(energy=0.8, chain=0.7)
    posterior = Posterior(model, model.log_tasks(), constrained=False)
    for query in range(QUERIES):
        truth = joint(model, query)
        found = searched(model, query, weights, energies, tasks, keep)
        pairs = {
            (hypothesis.task, tuple(sequence)): -score
            for hypothesis, plans in found
            for sequence, score in zip(plans.actions.tolist(), plans.scores, strict=True)
        }
        mass = sum(truth[pair] for pair in pairs)
        total = np.logaddexp.reduce(list(pairs.values()))
        best = posterior.weighed(query, merged(found, 4), found)
        assert best.searched_mass == pytest.approx(mass, rel=1e-4)
        assert (best.searched_mass > 1 - 1e-5) == (len(pairs) == len(truth))
        check(best, {pair: mass * np.exp(log - total) for pair, log in pairs.items()})
        assert best.probabilities.sum() <= best.searched_mass + 1e-9


def test_a_given_task_is_certain():
    model, energies = evidence(3), energies_by(3)
    given = np.where(np.arange(len(ACTIONS)) == 1, 0.0, -np.inf) * np.ones((QUERIES, 1))
    for weights in (Weights(0.0, 1.0), Weights(0.5, 0.6)):
        posterior = Posterior(model, given, constrained=False)
        found = searched(model, 1, weights, energies, (1,), log_tasks=given)
        best = posterior.weighed(1, merged(found, 100), found)
        assert best.probabilities.sum() == pytest.approx(1, rel=1e-4)
        assert best.searched_mass == pytest.approx(1, rel=1e-4)


def test_under_constraints_plans_are_shares_of_what_was_found():
    model, energies = evidence(4), energies_by(4)
    posterior = Posterior(model, model.log_tasks(), constrained=True)
    found = searched(model, 0, Weights(0.0, 1.0), energies, (0, 1), 3)
    best = posterior.weighed(0, merged(found, 100), found)
    shares = np.exp(-best.scores)
    assert best.searched_mass is None
    np.testing.assert_allclose(best.probabilities.sum(), 1)
    assert best.probabilities == pytest.approx(shares / shares.sum(), rel=1e-7)


def test_nothing_found_and_fields_that_diverged():
    model = evidence(5)
    posterior = Posterior(model, model.log_tasks(), constrained=False)
    nothing = Plans(np.zeros((0, 3), np.int64), np.zeros(0), np.zeros(0), EFFORT, exact=False)
    assert posterior.weighed(0, nothing, []).probabilities.tolist() == []
    lost = Plans(np.array([[0, 0, 0]]), np.array([np.inf]), np.array([np.inf]), EFFORT, exact=True)
    best = posterior.weighed(0, lost, [(Hypothesis(0, 0, 0.0), lost)])
    assert best.probabilities.tolist() == [0]
    assert best.searched_mass == 0
