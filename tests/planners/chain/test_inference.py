"""The chain against brute-force enumeration."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from cefito.planners.chain.inference import SequenceScores
from cefito.planners.chain.model import ChainEvidence
from cefito.planners.chain.states import TaskStates


def case(seed, *, horizon=None, forbid=False):
    """Random scores of random tasks, and the actions of these."""
    rng = np.random.default_rng(seed)
    action_count = int(rng.integers(3, 8))
    rows = []
    for _ in range(rng.integers(1, 5)):
        size = rng.integers(1, 5) if action_count > 4 else 2
        rows.append(sorted(rng.choice(action_count, size=size, replace=False).tolist()))
    blocks = TaskStates.make(rows, action_count)
    horizon = horizon or int(rng.integers(1, 5))
    generator = torch.Generator().manual_seed(seed)
    emissions = 3 * torch.randn(3, horizon, len(blocks), generator=generator, dtype=torch.float64)
    width = blocks.grid.shape[1]
    transitions = 2 * torch.randn(len(rows), width, width, generator=generator, dtype=torch.float64)
    if forbid:
        for scores, share in ((transitions, 0.2), (emissions, 0.1)):
            scores[torch.rand(scores.shape, generator=generator) < share] = -torch.inf
    return SequenceScores(blocks, emissions, transitions), rows


def enumerate_all(chain, rows, query):
    """All sequences as (task, states, score)."""
    found = []
    emissions, transitions = chain.emissions[query].tolist(), chain.transitions.tolist()
    offset = np.cumsum([0, *map(len, rows)])
    for task, row in enumerate(rows):
        for places in itertools.product(range(len(row)), repeat=chain.horizon):
            states = tuple(int(offset[task] + place) for place in places)
            score = sum(emissions[step][state] for step, state in enumerate(states))
            score += sum(transitions[task][a][b] for a, b in itertools.pairwise(places))
            found.append((task, states, score))
    return found


@pytest.mark.parametrize("forbid", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_everything_equals_enumeration(seed, forbid):
    chain, rows = case(seed, forbid=forbid)
    marginals, tasks = chain.log_marginals().exp(), chain.log_tasks().exp()
    evidence = ChainEvidence.of(chain)
    some = seed % len(rows)
    with np.errstate(invalid="ignore"):  # if every sequence is forbidden
        free, within = evidence.marginals(), evidence.marginals(np.full(len(chain), some))
    for query in range(len(chain)):
        found = enumerate_all(chain, rows, query)
        scores = torch.tensor([score for _, _, score in found], dtype=torch.float64)
        total = scores.logsumexp(0)
        assert float(chain.log_partition()[query]) == pytest.approx(float(total), abs=1e-9)
        if total == -torch.inf:
            continue
        shares = (scores - total).exp()
        expected_tasks = torch.zeros(len(rows), dtype=torch.float64)
        expected = torch.zeros(chain.horizon, len(chain.states), dtype=torch.float64)
        by_actions: dict[tuple[int, ...], float] = {}
        for (task, states, _), share in zip(found, shares.tolist(), strict=True):
            expected_tasks[task] += share
            for t, state in enumerate(states):
                expected[t, state] += share
            key = tuple(chain.states.actions[list(states)].tolist())
            by_actions[key] = by_actions.get(key, 0.0) + share
        torch.testing.assert_close(tasks[query], expected_tasks, atol=1e-9, rtol=0)
        torch.testing.assert_close(marginals[query], expected, atol=1e-9, rtol=0)
        for found_tasks in (free.tasks, within.tasks):
            np.testing.assert_allclose(found_tasks[query], expected_tasks, atol=1e-9)
        steps = np.zeros((2, chain.horizon, chain.states.lookup.shape[1]))
        for state, action in enumerate(chain.states.actions.tolist()):
            steps[0, :, action] += expected[:, state].numpy()
            if chain.states.tasks[state] == some and expected_tasks[some]:
                steps[1, :, action] += (expected[:, state] / expected_tasks[some]).numpy()
        np.testing.assert_allclose(free.steps[query], steps[0], atol=1e-9)
        if expected_tasks[some]:
            np.testing.assert_allclose(within.steps[query], steps[1], atol=1e-6)
        if chain.horizon > 1:
            pairs = chain.log_pairs()[query].exp()  # [C, A, A]
            together = torch.zeros_like(pairs)
            for (task, states, _), share in zip(found, shares.tolist(), strict=True):
                first, second = (int(chain.states.place[state]) for state in states[:2])
                together[task, first, second] += share
            torch.testing.assert_close(pairs, together, atol=1e-9, rtol=0)
        all_states = torch.tensor([states for _, states, _ in found])
        torch.testing.assert_close(
            chain.rows(slice(query, query + 1)).log_probabilities(all_states[None])[0],
            scores - total,
        )
        for key, share in list(by_actions.items())[:20]:
            sequences = torch.tensor(key).expand(len(chain), -1)
            value = float(chain.log_sequence_probabilities(sequences)[query].exp())
            assert value == pytest.approx(share, abs=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_given_tasks_are_a_condition(seed):
    chain, rows = case(seed)
    only = torch.tensor([seed % len(rows)] * len(chain))
    given = chain.given(only)
    for query in range(len(chain)):
        found = [one for one in enumerate_all(chain, rows, query) if one[0] == int(only[query])]
        scores = torch.tensor([score for _, _, score in found], dtype=torch.float64)
        states = torch.tensor([states for _, states, _ in found])
        logs = given.rows(slice(query, query + 1)).log_probabilities(states[None])[0]
        torch.testing.assert_close(logs, scores.log_softmax(0))
        shares = given.log_tasks()[query].exp()
        torch.testing.assert_close(shares, F.one_hot(only[query], len(rows)).double())


@pytest.mark.parametrize("forbid", [False, True])
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("count", [1, 4, 1000])
def test_best_equals_enumeration(seed, count, forbid):
    chain, rows = case(seed, forbid=forbid)
    some = sorted({seed % len(rows), len(rows) - 1})
    for tasks in (range(len(rows)), some, some[:1]):
        whole = len(tasks) == len(rows)
        states, scores = chain.best(
            count, None if whole else torch.tensor(tasks).expand(len(chain), -1)
        )
        for query in range(len(chain)):
            every = enumerate_all(chain, rows, query)
            found = [one for one in every if one[0] in tasks]
            if whole:
                highest = max((value for *_, value in found), default=-np.inf)
                assert float(chain.highest()[query]) == pytest.approx(highest, abs=1e-9)
            expected = sorted((one for one in found if one[2] > -np.inf), key=lambda one: -one[2])
            possible = scores[query] > -torch.inf
            sequences = map(tuple, states[query][possible].tolist())
            assert [*sequences] == [one for _, one, _ in expected[:count]]
            values = [value for *_, value in expected[:count]]
            np.testing.assert_allclose(scores[query][possible], values, atol=1e-9)


def test_ties_come_in_the_order_of_states():
    blocks = TaskStates.make([[0, 1], [1, 2]], 3)
    chain = SequenceScores(blocks, torch.zeros(1, 2, 4), torch.zeros(2, 2, 2))
    states, scores = chain.best(100)
    assert states[0].tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [2, 2], [2, 3], [3, 2], [3, 3]]
    assert scores.tolist() == [[0.0] * 8]


@pytest.mark.parametrize("forbid", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_gradient_of_the_partition_is_the_marginals(seed, forbid):
    chain, _ = case(seed, forbid=forbid)
    emissions, transitions = (
        chain.emissions.clone().requires_grad_(),
        chain.transitions.clone().requires_grad_(),
    )
    moving = SequenceScores(chain.states, emissions, transitions)
    total = moving.log_partition()
    total[total > -torch.inf].sum().backward()
    assert emissions.grad is not None
    if transitions.grad is None:  # one step alone
        transitions.grad = torch.zeros_like(transitions)
    assert bool(transitions.grad.isfinite().all())
    live = total > -torch.inf
    torch.testing.assert_close(
        emissions.grad[live], chain.log_marginals().exp()[live], atol=1e-9, rtol=0
    )


@pytest.mark.parametrize("horizon", [1, 3])
def test_gradient_of_the_sums_of_tasks_of_unlike_sizes(horizon):
    states = TaskStates.make([[0, 2], [1, 2, 3, 4, 5, 6], [], [0, 1, 2], [3]], 7)
    assert [(tasks.tolist(), *grid.shape) for tasks, grid in states.blocks] == [
        ([1], 1, 6), ([3, 0], 2, 3), ([4], 1, 1), ([2], 1, 1)
    ]  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    shapes = (2, horizon, len(states)), (5, 6, 6)
    emissions, transitions = (
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in shapes
    )

    def sums(emissions, transitions):
        return SequenceScores(states, emissions, transitions).log_task_sums()[:, [0, 1, 3, 4]]

    assert torch.autograd.gradcheck(sums, (emissions, transitions))


def test_float32_is_exact_for_extreme_scores():
    chain, _ = case(7, horizon=4)
    double = SequenceScores(chain.states, 60 * chain.emissions, chain.transitions)
    single = SequenceScores(chain.states, double.emissions.float(), double.transitions.float())
    torch.testing.assert_close(
        single.log_partition().double(), double.log_partition(), rtol=1e-5, atol=1e-3
    )
    assert bool(single.log_marginals().exp().isfinite().all())


def test_tasks_weighed_by_a_power():
    blocks = TaskStates.make([[0, 1], [1, 2]], 3)
    generator = torch.Generator().manual_seed(0)
    chain = SequenceScores(
        blocks, torch.randn(5, 3, 4, generator=generator), torch.randn(2, 2, 2, generator=generator)
    )
    weighed = chain.weighing_tasks(0.4)
    expected = (0.4 * chain.log_tasks()).log_softmax(dim=1)
    torch.testing.assert_close(weighed.log_tasks(), expected)
    sequences = torch.tensor([[0, 1, 1]]).expand(5, -1)
    within = [
        part.log_probabilities(sequences) - part.log_tasks()[:, 0] for part in (chain, weighed)
    ]
    torch.testing.assert_close(*within)
    for known in (weighed, weighed.rows(slice(1, 4))):
        sums = replace(known, sums=None).log_task_sums()
        torch.testing.assert_close(known.log_task_sums(), sums)
    assert chain.weighing_tasks(1.0) is chain
