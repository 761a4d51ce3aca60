from itertools import product

import numpy as np
import pytest
import torch

from cefito.planners.any_length import guidance
from cefito.planners.any_length.guidance import SessionModel
from cefito.planners.queries import Queries


@pytest.fixture(scope="module")
def guide(planner):
    return SessionModel(planner.model, planner.lengths)


def one_hot(actions, count):
    return torch.eye(count)[list(actions)].reshape(-1, count)


def every_sequence(outlook):
    """(length, task, states, probability) of all sequences of an outlook."""
    for place, scores in enumerate(outlook.scores):
        states = scores.states
        for task in range(states.task_count):
            members = states.grid[task][states.grid[task] < len(states)].tolist()
            rows = list(product(members, repeat=scores.horizon))
            logs = scores.log_probabilities(torch.tensor(rows)[None])[0]
            shares = (outlook.log_lengths[place] + logs).exp().tolist()
            yield from (
                (scores.horizon, task, row, share) for row, share in zip(rows, shares, strict=True)
            )


def test_an_outlook_is_the_planners_distribution(planner, guide, windows):
    val = windows[1]
    row = int(np.flatnonzero((val.before >= 0).sum(axis=1) == 2)[0])
    done = val.before[row][:2]
    query = Queries.partial(
        size=val.initial.shape[1], initial=val.initial[row], goal=val.goal[row], done=done
    )
    count = planner.vocabulary.actions
    first, last = (guide.encode(torch.from_numpy(part[row])) for part in (val.initial, val.goal))
    for goal in (last, None):
        seen = np.array([[True, goal is not None]])
        query = Queries(initial=query.initial, goal=query.goal, seen=seen, done=query.done)
        outlook = guide.posterior(first, goal, one_hot(done, count))
        np.testing.assert_allclose(outlook.log_tasks, planner.log_tasks(query)[0], atol=1e-4)
        (plans,) = planner.plan(query, 20)
        found = {}
        for _, _, states, share in every_sequence(outlook):
            actions = tuple(planner.model.states.actions[list(states)].tolist())
            found[actions] = max(found.get(actions, 0), share)
        for sequence, share in zip(plans.sequences, plans.probabilities, strict=True):
            assert found[tuple(sequence.tolist())] == pytest.approx(share, rel=1e-3)


def test_first_states_are_weighed(guide, windows):
    first = guide.encode(torch.from_numpy(windows[1].initial[0]))
    count = guide.model.states.lookup.shape[1]
    outlook = guide.posterior(first, None, one_hot([], count))
    factors = torch.linspace(-1, 1, len(guide.model.states))
    weighed = outlook.weighed(factors)
    expected = {}
    for length, _, states, share in every_sequence(outlook):
        expected[length, states] = share * float(factors[states[0]].exp())
    total = sum(expected.values())
    marginals = torch.zeros(count)
    for length, _, states, share in every_sequence(weighed):
        assert share == pytest.approx(expected[length, states] / total, rel=1e-3, abs=1e-9)
        marginals[guide.model.states.actions[states[0]]] += share
    np.testing.assert_allclose(weighed.next_actions(), marginals, atol=1e-5)
    sums = torch.zeros(guide.model.states.task_count)
    for _, task, _, share in every_sequence(weighed):
        sums[task] += share
    np.testing.assert_allclose(weighed.log_tasks.exp(), sums, atol=1e-5)


def test_steps_between_observations_against_enumeration(guide, windows):
    val = windows[1]
    count = guide.model.states.lookup.shape[1]
    states = guide.model.states
    for row in (0, 20):
        first, second = (
            guide.encode(torch.from_numpy(part[row])) for part in (val.initial, val.goal)
        )
        outlook, ratios = guide.posterior(first, None, one_hot([], count)), guide.log_ratios(second)
        expected, after, total = (np.zeros((guide.lengths[-1], count)), np.zeros(len(states)), 0.0)
        moves, stayed = {}, 0.0  # p(next | state) of each length, of all states
        for length, scores in zip(guide.lengths, outlook.scores, strict=True):
            logs = torch.full((len(states), len(states)), -torch.inf)
            for task, members in enumerate(states.grid):
                own = members[members < len(states)]
                logs[own[:, None], own] = scores.transitions[task, : len(own), : len(own)]
            moves[length] = logs.softmax(dim=1).double().numpy()
        factors = np.exp(ratios.double().numpy())
        for length, _, sequence, share in every_sequence(outlook):
            for done in range(length):
                going = (1 - guidance.GOING) * guidance.GOING ** (done - 1)
                prior = share * (0.4 if done == 0 else 0.6 * going)
                shown = factors[sequence[done]] ** (1 if done else 0.75)
                weight = (1 - guidance.LEFT_OUT) * prior * shown
                left_out = guidance.LEFT_OUT * prior * moves[length][sequence[done]] * factors
                total += weight + left_out.sum()
                stayed += weight * (done == 0)
                after[sequence[done]] += weight
                after += left_out
                for place in range(done):
                    expected[place, states.actions[sequence[place]]] += weight + left_out.sum()
                expected[done, states.actions[sequence[done]]] += left_out.sum()
        found = outlook.seen_later(ratios, 0.4, 0.25)
        np.testing.assert_allclose(found.steps, expected / total, atol=1e-4)
        np.testing.assert_allclose(found.log_next.exp(), after / total, atol=1e-4)
        assert found.stayed == pytest.approx(stayed / total, abs=1e-4)


def test_next_steps_after_a_step_against_enumeration(guide, windows):
    states = guide.model.states
    first = guide.encode(torch.from_numpy(windows[1].initial[3]))
    outlook = guide.posterior(first, None, one_hot([], states.lookup.shape[1]))
    expected = np.zeros((states.lookup.shape[1], len(states)))
    for length, _, sequence, share in every_sequence(outlook):
        if length > 1:
            expected[states.actions[sequence[0]], sequence[1]] += share
    impossible = 0
    for action, shares in enumerate(expected):
        if not shares.sum():
            impossible, shares = impossible + 1, expected.sum(axis=0)
        np.testing.assert_allclose(outlook.after(action).exp(), shares / shares.sum(), atol=1e-4)
    assert 0 < impossible < len(expected)


def test_what_an_observation_shows(guide, windows):
    """Likelihood ratios: with the prior they give probabilities again."""
    ratios = guide.log_ratios(guide.encode(torch.from_numpy(windows[1].initial[3])))
    assert float((guide._prior + ratios).exp().sum()) == pytest.approx(1, abs=1e-4)
    np.testing.assert_allclose(guide.log_ratios(guide.nothing), 0, atol=1e-6)


def test_uncertain_steps_count_as_done(guide):
    """Rows of less than 1 enter the history as steps that were done, with the same shares."""
    count = guide.model.states.lookup.shape[1]
    rows = one_hot([2, 0], count)
    whole = guide.posterior(None, None, rows)
    part = guide.posterior(None, None, 0.6 * rows)
    np.testing.assert_allclose(whole.next_actions(), part.next_actions(), atol=1e-6)
