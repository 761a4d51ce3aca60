"""The chain against sums over all paths, and the features of rows against their formulas."""

import numpy as np
import pytest

from cefito.timeline.chain import StepChain
from cefito.timeline.classifier import RowMemory, Standard, past_features, whole_features
from cefito.timeline.recogniser import likelihoods, softened

TASKS = [[0, 1, 2], [1, 3]]
LABELS = [
    [4, 0, 0, 0, 1, 1, 4, 2, 2, 2, 4],
    [0, 0, 4, 4, 2, 2, 1, 1],
    [4, 4, 1, 1, 1, 3, 3, 3, 3, 3, 4],
]


@pytest.fixture(scope="module")
def chain():
    labels = [np.array(row) for row in LABELS]
    return StepChain.fit(labels, [0, 0, 1], TASKS, 4, phases=2, smoothing=0.1)


def moves(chain, task, state):
    """Yield the next state, its probability, and the place that begins there or None."""
    kind, place, phase = state
    size = chain.actions.shape[1]

    def begin(chance, ahead):
        for other in np.flatnonzero(ahead):
            begun = ("active", other, chain.entered[task, other])
            yield begun, chance * ahead[other], other

    if kind == "start":
        first, pause = chain.transitions[task, size, :size], chain.pause[task, size]
        yield ("pause", size, 0), pause, None
        yield from begin(1 - pause, first / first.sum())
    elif kind == "end":
        yield state, 1.0, None
    elif kind == "pause":
        resume, ahead = chain.resume[task, place], chain.transitions[task, place]
        yield state, 1 - resume, None
        yield ("end", size, 0), resume * ahead[size], None
        yield from begin(resume, ahead[:size])
    else:
        leave, pause = chain.leave[task, place], chain.pause[task, place]
        yield state, 1 - leave, None
        if phase < chain.phases - 1:
            yield ("active", place, phase + 1), leave, None
            return
        yield ("pause", place, 0), leave * pause, None
        ahead = chain.transitions[task, place, :size]
        yield from begin(leave * (1 - pause), ahead / max(ahead.sum(), 1e-300))


def paths(chain, seen):
    """Yield the task and probability of every path, with its states, labels and begun places."""

    def longer(task, value, states, labels, begun):
        if len(labels) == len(seen):
            yield task, value, states[1:], labels, begun
            return
        for state, chance, place in moves(chain, task, states[-1]):
            label = chain.actions[task, state[1]] if state[0] == "active" else chain.background
            more = value * chance * seen[len(labels)][label]
            if more > 0:
                yield from longer(task, more, [*states, state], [*labels, label], [*begun, place])

    for task, log in enumerate(chain.log_tasks):
        yield from longer(task, np.exp(log), [("start", None, 0)], [], [])


def enumerated(chain, seen, *, finished=False):
    """Return p(label) of each row, p(begin), p(task) and p(task, next action) by all paths."""
    size, count = chain.actions.shape[1], len(seen)
    rows, begin = np.zeros((count, chain.background + 1)), np.zeros((count, chain.background))
    tasks, nexts = np.zeros(len(chain.actions)), np.zeros(chain.actions.shape)
    for task, value, states, labels, begun in paths(chain, seen):
        kind, latest, _ = states[-1]
        if finished and not (kind == "end" or latest == size - 1):
            continue
        tasks[task] += value
        rows[np.arange(count), labels] += value
        for row, place in enumerate(begun):
            if place is not None:
                begin[row, chain.actions[task, place]] += value
        if kind != "end":
            nexts[task] += value * chain.transitions[task, latest, :size]
    total = tasks.sum()
    return rows / total, begin / total, tasks / total, nexts / max(nexts.sum(), 1e-300)


@pytest.fixture(scope="module")
def seen():
    return np.random.default_rng(3).dirichlet(np.ones(5), size=4)


def test_every_row_leads_somewhere(chain):
    assert chain.start.sum() == pytest.approx(1)
    assert np.exp(chain.log_tasks).sum() == pytest.approx(1)
    for one in (chain, chain.given([1]), chain.of_plan([2, 0], 0)):
        reached = one.start > 0
        for _ in range(20):
            reached |= np.einsum("cs,cst->ct", reached, one.matrix) > 0
        assert one.matrix.sum(axis=2)[reached] == pytest.approx(1)
        assert (one.entering <= one.matrix + 1e-12).all()


def test_sums_over_all_paths(chain, seen):
    plan, six = chain.of_plan([2, 0, 1], 0), np.concatenate([seen, seen[:2]])
    for own, rows, finished in [
        (chain, seen, False),
        (chain.given([1]), seen, False),
        (plan, six, True),
    ]:
        # a factor of a row changes nothing
        factors = np.geomspace(1e-9, 1e9, len(rows))[:, None]
        found = own.smoothed(rows * factors, finished=finished)
        expected = enumerated(own, rows, finished=finished)
        for one, other in zip((found.rows, found.begin, found.tasks), expected[:3], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-12)
    # the plan's steps begin once each and in order
    assert found.begin.sum(axis=0) == pytest.approx([1, 1, 1, 0])
    times = found.begin.T @ np.arange(6)
    assert times[2] < times[0] < times[1]
    assert chain.given([1]).smoothed(seen).tasks.tolist() == [0, 1]


def test_rows_up_to_now(chain, seen):
    for count, states in enumerate(chain.forward(seen), start=1):
        rows, _, tasks, nexts = enumerated(chain, seen[:count])
        np.testing.assert_allclose(chain.by_label(states), rows[-1], atol=1e-12)
        np.testing.assert_allclose(states.sum(axis=1), tasks, atol=1e-12)
        np.testing.assert_allclose(chain.next_states(states), nexts, atol=1e-12)
        assert chain.summed(nexts)[1] == pytest.approx(nexts[[0, 1], [1, 0]].sum())


def test_counted_transitions_pauses_and_durations():
    rng, labels = np.random.default_rng(0), []
    for _ in range(400):
        parts = [np.repeat(2, rng.integers(0, 3))]
        for action in (0, 1) if rng.random() < 0.75 else (1,):
            parts += [np.repeat(action, rng.integers(4 + 4 * action, 9 + 4 * action))]
            parts += [np.repeat(2, 5)] if action == 0 else []
        labels.append(np.concatenate(parts))
    chain = StepChain.fit(labels, [0] * 400, [[0, 1]], 2, phases=4, smoothing=0.1)
    first, second = chain.transitions[0, 2, :2]
    assert (first, second) == pytest.approx((0.75, 0.25), abs=0.05)
    assert chain.transitions[0, 0, 1] > 0.98
    assert chain.transitions[0, 1, 2] > 0.98  # the end
    assert chain.pause[0] == pytest.approx([1, 0, 2 / 3], abs=0.05)
    assert 1 / chain.resume[0, 0] == pytest.approx(5, abs=0.1)
    for place in (0, 1):  # expected rows of a step: the sum of the powers of its own block
        mean = np.mean([(row == place).sum() for row in labels if place in row])
        states = slice(place * 4, place * 4 + 4)
        stay = chain.matrix[0, states, states] - chain.entering[0, states, states]
        visits = np.linalg.inv(np.eye(4) - stay)[chain.entered[0, place]]
        assert visits.sum() == pytest.approx(mean, rel=0.01)


def averaged(rows, time):
    found = [rows[0]]
    for row in rows[1:]:
        found.append(found[-1] + (1 - np.exp(-1 / time)) * (row - found[-1]))
    return np.stack(found)


def test_features_of_rows():
    rows = np.random.default_rng(1).normal(size=(7, 2)).astype(np.float32)
    past, times = past_features(rows, [2.0, 5.0]), (2.0, 5.0)
    memory = RowMemory(times)
    np.testing.assert_array_equal(past, [memory.features(row) for row in rows])
    centred = np.stack([row - rows[: count + 1].mean(axis=0) for count, row in enumerate(rows)])
    np.testing.assert_allclose(past[:, :2], centred, atol=1e-6)
    np.testing.assert_allclose(past[:, 4:6], averaged(centred, 5), atol=1e-6)
    changed = np.concatenate([rows[:-1], rows[-1:] + 3])
    np.testing.assert_array_equal(past_features(changed, times)[:-1], past[:-1])
    whole = whole_features(rows, times)
    assert whole.shape == (7, 10)
    np.testing.assert_allclose(whole[:, 4:6], averaged(whole[:, :2], 5), atol=1e-6)
    assert (whole_features(rows[:1], times) == 0).all()
    assert (np.abs(whole_features(changed, times) - whole)[0] > 1e-3).any()
    back = whole_features(rows[::-1], times)[::-1]
    np.testing.assert_allclose(back[:, 2:6], whole[:, 6:], atol=1e-6)


def test_standard_rows_likelihoods_and_temperatures():
    assert Standard.of([np.eye(2)], 2).scaled(np.array([1e6, 0.5])).tolist() == [5, 0]
    logs = np.log([[0.5, 0.25, 0.25], [0.01, 0.99, 1e-30]])
    np.testing.assert_allclose(likelihoods(logs, 1.0)[0], [1.001, 0.501, 0.501])
    assert likelihoods(logs, 0.5)[0, 1] == pytest.approx(0.5**0.5 + 1e-3)
    assert likelihoods(logs - 900, 1.0)[1].min() == pytest.approx(1e-3)
    np.testing.assert_allclose(softened(np.array([0.8, 0.2]), 2.0), [2 / 3, 1 / 3])
