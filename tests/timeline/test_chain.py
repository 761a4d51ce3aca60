"""The chain against sums over all paths, and the features of rows against their formulas."""

from collections import defaultdict

import numpy as np
import pytest

from cefito.timeline.chain import StepChain
from cefito.timeline.memory import Memory, Standard, past_features, whole_features
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
    ahead = chain.transitions[task, place] if kind != "end" else None
    if kind == "end":
        yield state, 1.0, None
    elif kind == "active":
        leave = chain.leave[task, place]
        yield state, 1 - leave, None
        if phase < chain.phases - 1:
            yield ("active", place, phase + 1), leave, None
            return
        pause = chain.pause[task, place]
        yield ("pause", place, 0), leave * pause, None
        for other in np.flatnonzero(ahead[:size]):
            share = ahead[other] / ahead[:size].sum()
            begun = ("active", other, chain.entered[task, other])
            yield begun, leave * (1 - pause) * share, other
    else:
        resume = chain.resume[task, place]
        yield state, 1 - resume, None
        yield ("end", size, 0), resume * ahead[size], None
        for other in np.flatnonzero(ahead[:size]):
            begun = ("active", other, chain.entered[task, other])
            yield begun, resume * ahead[other], other


def paths(chain, seen):
    """Yield the task, probability with the rows, states and begun places of every path."""
    size = chain.actions.shape[1]

    def label(task, state):
        return chain.actions[task, state[1]] if state[0] == "active" else chain.background

    def longer(task, value, states, begun):
        if len(states) == len(seen):
            yield task, value, states, begun
            return
        for state, chance, place in moves(chain, task, states[-1]):
            if chance > 0:
                more = value * chance * seen[len(states)][label(task, state)]
                yield from longer(task, more, [*states, state], [*begun, place])

    for task, log in enumerate(chain.log_tasks):
        first, pause = chain.transitions[task, size, :size], chain.pause[task, size]
        starts = [(("pause", size, 0), pause, None)]
        for place in np.flatnonzero(first):
            state = ("active", place, chain.entered[task, place])
            starts.append((state, (1 - pause) * first[place] / first.sum(), place))
        for state, chance, place in starts:
            value = np.exp(log) * chance * seen[0][label(task, state)]
            yield from longer(task, value, [state], [place])


def enumerated(chain, seen, *, finished=False):
    """Return p(label) of each row, p(begin), p(task) and p(task, next action) by all paths."""
    size, count = chain.actions.shape[1], len(seen)
    rows, begin = np.zeros((count, chain.background + 1)), np.zeros((count, chain.background))
    tasks, nexts, total = np.zeros(len(chain.actions)), defaultdict(float), 0.0
    for task, value, states, begun in paths(chain, seen):
        if finished and not (states[-1][0] == "end" or states[-1][1] == size - 1):
            continue
        total += value
        tasks[task] += value
        for row, ((kind, place, _), start) in enumerate(zip(states, begun, strict=True)):
            shown = chain.actions[task, place] if kind == "active" else chain.background
            rows[row, shown] += value
            if start is not None:
                begin[row, chain.actions[task, start]] += value
        if states[-1][0] != "end":
            for place, share in enumerate(chain.transitions[task, states[-1][1], :size]):
                nexts[task, place] += value * share
    return rows / total, begin / total, tasks / total, nexts


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
    found = chain.smoothed(seen)
    rows, begin, tasks, _ = enumerated(chain, seen)
    np.testing.assert_allclose(found.rows, rows, atol=1e-12)
    np.testing.assert_allclose(found.begin, begin, atol=1e-12)
    np.testing.assert_allclose(found.tasks, tasks, atol=1e-12)
    # a factor of a row changes nothing
    scaled = chain.smoothed(seen * np.array([1e-9, 2, 3e6, 1])[:, None])
    np.testing.assert_allclose(scaled.rows, rows, atol=1e-12)


def test_rows_up_to_now(chain, seen):
    for count, states in enumerate(chain.forward(seen), start=1):
        rows, _, tasks, nexts = enumerated(chain, seen[:count])
        np.testing.assert_allclose(chain.by_label(states), rows[-1], atol=1e-12)
        np.testing.assert_allclose(states.sum(axis=1), tasks, atol=1e-12)
        expected = np.zeros(chain.actions.shape)
        for at, value in nexts.items():
            expected[at] = value
        np.testing.assert_allclose(chain.next_states(states), expected / expected.sum(), atol=1e-12)
        summed = chain.summed(chain.next_states(states))
        assert summed[1] == pytest.approx((expected / expected.sum())[[0, 1], [1, 0]].sum())


def test_a_plan_is_done_in_order(chain, seen):
    plan, seen = chain.of_plan([2, 0, 1], 0), np.tile(seen, (2, 1))[:6]
    found = plan.smoothed(seen, finished=True)
    rows, begin, _, _ = enumerated(plan, seen, finished=True)
    np.testing.assert_allclose(found.rows, rows, atol=1e-12)
    np.testing.assert_allclose(found.begin, begin, atol=1e-12)
    assert found.begin.sum(axis=0) == pytest.approx([1, 1, 1, 0])
    times = found.begin.T @ np.arange(len(seen))
    assert times[2] < times[0] < times[1]


def test_a_given_task_keeps_its_place(chain, seen):
    found = chain.given([1]).smoothed(seen)
    assert found.tasks.tolist() == [0, 1]
    assert found.begin[:, [0, 2]].sum() == 0
    both = chain.given([0, 1])
    np.testing.assert_allclose(both.smoothed(seen).rows, chain.smoothed(seen).rows)


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
    lengths = [(row == action).sum() for action in (0, 1) for row in labels if action in row]
    counts = [sum(0 in row for row in labels), len(labels)]
    means = [np.mean(lengths[: counts[0]]), np.mean(lengths[counts[0] :])]
    assert (chain.phases - chain.entered[0]) / chain.leave[0] == pytest.approx(means, rel=0.01)
    # expected rows of a step by the matrix: sum of the powers of its own block
    for place, mean in enumerate(means):
        states = slice(place * 4, place * 4 + 4)
        stay = chain.matrix[0, states, states] - chain.entering[0, states, states]
        visits = np.linalg.inv(np.eye(4) - stay)[chain.entered[0, place]]
        assert visits.sum() == pytest.approx(mean, rel=0.01)


def test_arrays_and_back(chain, seen):
    same = StepChain.of_arrays(chain.arrays())
    assert same.phases == 2
    assert same.background == 4
    np.testing.assert_array_equal(same.smoothed(seen).rows, chain.smoothed(seen).rows)


def averaged(rows, time):
    found = [rows[0]]
    for row in rows[1:]:
        found.append(found[-1] + (1 - np.exp(-1 / time)) * (row - found[-1]))
    return np.stack(found)


def test_features_of_rows():
    rows = np.random.default_rng(1).normal(size=(7, 2)).astype(np.float32)
    past, times = past_features(rows, [2.0, 5.0]), (2.0, 5.0)
    memory = Memory(times)
    np.testing.assert_array_equal(past, [memory.features(row) for row in rows])
    centred = np.stack([row - rows[: count + 1].mean(axis=0) for count, row in enumerate(rows)])
    np.testing.assert_allclose(past[:, :2], centred, atol=1e-6)
    np.testing.assert_allclose(past[:, 4:6], averaged(centred, 5), atol=1e-6)
    changed = rows.copy()
    changed[-1] += 3
    np.testing.assert_array_equal(past_features(changed, times)[:-1], past[:-1])
    whole = whole_features(rows, times)
    assert whole.shape == (7, 10)
    np.testing.assert_allclose(whole[:, 4:6], averaged(whole[:, :2], 5), atol=1e-6)
    assert (whole_features(rows[:1], times) == 0).all()
    assert (np.abs(whole_features(changed, times) - whole)[0] > 1e-3).any()
    back = whole_features(rows[::-1], times)[::-1]
    np.testing.assert_allclose(back[:, 2:6], whole[:, 6:], atol=1e-6)


def test_standard_rows_are_clipped():
    rows = np.array([[1.0, 5.0], [3.0, 5.0]], np.float32)
    standard = Standard.of([rows])
    np.testing.assert_allclose(standard.scaled(rows)[:, 0], [-1, 1], atol=0.01)
    assert standard.scaled(np.array([1e6, 5.0], np.float32)).tolist() == [5, 0]


def test_likelihoods_and_temperatures():
    logs = np.log([[0.5, 0.25, 0.25], [0.01, 0.99, 1e-30]])
    np.testing.assert_allclose(likelihoods(logs, 1.0)[0], [1.001, 0.501, 0.501])
    assert likelihoods(logs, 0.5)[0, 1] == pytest.approx(0.5**0.5 + 1e-3)
    assert likelihoods(logs - 900, 1.0)[1].min() == pytest.approx(1e-3)
    np.testing.assert_allclose(softened(np.array([0.8, 0.2]), 2.0), [2 / 3, 1 / 3])
