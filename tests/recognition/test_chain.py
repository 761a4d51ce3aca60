"""The chain against sums over all paths, and the features of rows against their formulas."""

from dataclasses import replace
from itertools import combinations, pairwise, product

import numpy as np
import pytest

from cefito.data.annotations import Step, Video
from cefito.data.vocabulary import Taxonomy
from cefito.recognition.chain import Filtered, StepChain, likelihoods, softened
from cefito.recognition.classifier import RowMemory, Standard, past_features, whole_features
from cefito.recognition.plan_chain import PlanChain, aligned, either_order, order_ratios
from cefito.recognition.scores import segments
from cefito.recognition.settings import RecogniserConfig
from cefito.verification.verifier import Verifier

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


def plan_moves(chain, task, plan, state):
    """Yield the same of a chain whose steps are known; the place of a state is one of the plan."""
    kind, step, phase = state
    places = [*map(list(chain.actions[task]).index, plan), chain.actions.shape[1]]
    place, after = places[step], step + 1
    ahead = None if after == len(plan) else ("active", after, chain.entered[task, places[after]])
    if kind == "start":
        pause, first = chain.pause[task, -1], ("active", 0, chain.entered[task, places[0]])
        yield from [(("pause", -1, 0), pause, None), (first, 1 - pause, 0)]
    elif kind == "pause":
        resume = chain.resume[task, place] if ahead else 0.0
        yield from [(state, 1 - resume, None), (ahead, resume, after)]
    else:
        leave, pause = chain.leave[task, place], chain.pause[task, place] if ahead else 1.0
        yield state, 1 - leave, None
        if phase < chain.phases - 1:
            yield ("active", step, phase + 1), leave, None
        else:
            yield ("pause", step, 0), leave * pause, None
            yield ahead, leave * (1 - pause), after


class Reference:
    """A chain of states by their moves, over all tasks or by a plan of one task."""

    def __init__(self, chain, task=None, plan=None):
        self.chain, self.plan, self.size = chain, plan, chain.actions.shape[1]
        self.tasks = np.flatnonzero(np.isfinite(chain.log_tasks)) if task is None else [task]

    def moves(self, task, state):
        if self.plan is None:
            return moves(self.chain, task, state)
        return plan_moves(self.chain, task, self.plan, state)

    def begin(self, task):
        return task, ("start", self.size if self.plan is None else -1, None)

    def action(self, task, place):
        return self.chain.actions[task, place] if self.plan is None else self.plan[place]

    def label(self, task, state):
        active = state[0] == "active"
        return self.action(task, state[1]) if active else self.chain.background

    def finished(self, state):
        return self.plan is None or state[1] == len(self.plan) - 1

    def paths(self, seen):
        """Yield the task and probability of every path, with its states, labels, begun places."""

        def longer(task, value, states, labels, begun):
            if len(labels) == len(seen):
                if self.finished(states[-1]):
                    yield task, value, states[1:], labels, begun
                return
            for state, chance, place in self.moves(task, states[-1]):
                if chance > 0:
                    label = self.label(task, state)
                    more = value * chance * seen[len(labels)][label]
                    path = [*states, state], [*labels, label], [*begun, place]
                    yield from longer(task, more, *path)

        for task in self.tasks:
            share = 1.0 if self.plan is not None else np.exp(self.chain.log_tasks[task])
            yield from longer(task, share, [self.begin(task)[1]], [], [])

    def enumerated(self, seen):
        """Return p(label) of each row, p(begin), p(task) and p(task, next action) by all paths."""
        chain, count = self.chain, len(seen)
        rows, begin = np.zeros((count, chain.background + 1)), np.zeros((count, chain.background))
        tasks, nexts = np.zeros(len(chain.actions)), np.zeros(chain.actions.shape)
        for task, value, states, labels, begun in self.paths(seen):
            kind, latest, _ = states[-1]
            tasks[task] += value
            rows[np.arange(count), labels] += value
            for row, place in enumerate(begun):
                if place is not None:
                    begin[row, self.action(task, place)] += value
            if kind != "end" and self.plan is None:
                nexts[task] += value * chain.transitions[task, latest, : self.size]
        total = tasks.sum()
        return rows / total, begin / total, tasks / total, nexts / max(nexts.sum(), 1e-300)

    def summed(self, seen):
        """Return the first three by logarithms of all states, for long videos."""
        chain, count = self.chain, len(seen)
        states = {self.begin(task): place for place, task in enumerate(self.tasks)}
        edges, queue = [], list(states)
        for task, state in queue:
            for other, chance, place in self.moves(task, state):
                if chance > 0:
                    if (task, other) not in states:
                        queue.append((task, other))
                        states[task, other] = len(states)
                    edges.append((states[task, state], states[task, other], chance, place))
        log, begun = np.full((2, len(states), len(states)), -np.inf)
        for one, other, chance, place in edges:
            log[one, other] = np.logaddexp(log[one, other], np.log(chance))
            if place is not None:
                begun[one, other] = np.logaddexp(begun[one, other], np.log(chance))
        labels = np.array([self.label(*one) for one in states])
        owners = np.array([task for task, _ in states])
        alphas = [np.full(len(states), -np.inf)]
        share = chain.log_tasks[self.tasks] if self.plan is None else 0.0
        alphas[0][: len(self.tasks)] = share
        logs = np.log(seen)[:, labels]
        for row in logs:
            alphas.append(np.logaddexp.reduce(alphas[-1][:, None] + log, axis=0) + row)
        after = np.array([0.0 if self.finished(state) else -np.inf for _, state in states])
        total = np.logaddexp.reduce(alphas[-1] + after)
        tasks = np.bincount(owners, np.exp(alphas[-1] + after - total), len(chain.actions))
        rows, begin = np.zeros((count, chain.background + 1)), np.zeros((count, chain.background))
        for row in range(count - 1, -1, -1):
            np.add.at(rows[row], labels, np.exp(alphas[row + 1] + after - total))
            ahead = logs[row] + after
            flow = np.exp(np.logaddexp.reduce(alphas[row][:, None] + begun, axis=0) + ahead - total)
            np.add.at(begin[row], labels[flow > 0], flow[flow > 0])
            after = np.logaddexp.reduce(log + ahead, axis=1)
        return rows, begin, tasks


def random_chain(rng):
    """A chain of one to three tasks of one to three actions, with pauses seldom or always."""
    count, background = int(rng.integers(1, 4)), 4
    tasks = [rng.permutation(4)[: rng.integers(1, 4)].tolist() for _ in range(count)]
    labels, owners, pauses = [], [], rng.choice([0.0, 0.3, 1.0])
    for _ in range(int(rng.integers(1, 7))):
        owners.append(int(rng.integers(count)))
        parts = [np.full(int(rng.random() < pauses), background)]
        for _ in range(int(rng.integers(1, 5))):
            parts.append(np.full(rng.integers(1, 5), rng.choice(tasks[owners[-1]])))
            parts.append(np.full(int((rng.random() < pauses) * rng.integers(1, 4)), background))
        labels.append(np.concatenate(parts))
    smoothing = float(rng.choice([0.01, 0.1, 1.0]))
    chain = StepChain.fit(
        labels, owners, tasks, background, phases=int(rng.integers(1, 4)), smoothing=smoothing
    )
    if rng.random() < 0.3:
        chain = chain.with_orders({0: [(tasks[0][0], tasks[0][-1])]} if len(tasks[0]) > 1 else {})
    return chain, tasks


def random_rows(rng, count):
    """Likelihoods of rows, faint or sharp, up to a factor of each."""
    rows = rng.dirichlet(np.full(5, rng.choice([0.2, 1.0])), size=count) + rng.choice([1e-3, 1e-9])
    return rows * np.geomspace(1e-9, 1e9, count)[rng.permutation(count)][:, None]


def check_random_chain(seed):
    """Compare a random chain with all paths; return how many there were."""
    rng = np.random.default_rng(seed)
    chain, tasks = random_chain(rng)
    seen, task = random_rows(rng, int(rng.integers(1, 5))), int(rng.integers(len(tasks)))
    for own in (chain, chain.given([task])):
        smoothed, filtered = own.smoothed(seen), own.filtered(seen)
        expected = Reference(own).enumerated(seen)
        for one, other in zip(vars(smoothed).values(), expected[:3], strict=True):
            np.testing.assert_allclose(one, other, atol=1e-10)
        states, so_far = None, []
        for row in range(len(seen)):  # one after another
            states = own.filtered(seen[row : row + 1], states)
            so_far.append(states)
            rows, _, shares, nexts = Reference(own).enumerated(seen[: row + 1])
            for one in (states, filtered[row : row + 1]):
                np.testing.assert_allclose(own.by_label(one.states)[0], rows[-1], atol=1e-10)
                np.testing.assert_allclose(one.tasks[0], shares, atol=1e-10)
                np.testing.assert_allclose(own.next_states(one)[0], nexts, atol=1e-10)
            (joint,) = own.backward(Filtered.joined(so_far), seen[: row + 1])
            back = own.by_label(joint)
            np.testing.assert_allclose(back, own.smoothed(seen[: row + 1]).rows, atol=1e-10)
    plan = rng.choice(tasks[task], size=rng.integers(1, 4)).tolist()
    line, brute = PlanChain.of(chain, plan, task), Reference(chain, task, plan)
    flat = np.ones((12, 5))
    assert line.fewest == next(n for n in range(1, 13) if any(brute.paths(flat[:n])))
    rows = random_rows(rng, line.fewest + int(rng.integers(2)))
    found, expected = line.smoothed(rows), brute.enumerated(rows)
    np.testing.assert_allclose(found.rows, expected[0], atol=1e-10)
    np.testing.assert_allclose(found.begin, expected[1], atol=1e-10)
    check_aligned(rng, found, plan)


def check_aligned(rng, found, plan):
    """Compare the times of a plan with all others."""
    starts = list(combinations(range(len(found.rows)), len(plan)))
    value = [np.log(found.begin[list(own), plan] + 1e-30).sum() for own in starts]
    steps = aligned(found.rows, found.begin, plan)
    ours = np.log(found.begin[[one.start for one in steps], plan] + 1e-30).sum()
    assert ours == pytest.approx(max(value))
    for step, after in zip(
        steps, [*(one.start for one in steps[1:]), len(found.rows)], strict=True
    ):
        sums = [
            found.rows[step.start : end, step.action].sum() + found.rows[end:after, -1].sum()
            for end in range(step.start + 1, after + 1)
        ]
        assert sums[step.end - step.start - 1] == pytest.approx(max(sums))


@pytest.mark.parametrize("least", [1e-3, 1e-12, 1e-60])
def test_rows_that_nothing_explains_and_their_factors_leave_no_float(least):
    """As many rows as are smoothed at once depend on likelihoods, and no result does."""
    rng = np.random.default_rng(2)
    chain, _ = random_chain(rng)
    seen = rng.dirichlet(np.full(5, 0.1), size=70) + least
    expected = chain.smoothed(seen)
    factors = np.geomspace(1e-90, 1e90, 70)[rng.permutation(70)][:, None]
    np.testing.assert_allclose(expected.rows.sum(axis=1), 1)
    np.testing.assert_allclose(chain.smoothed(seen * factors).rows, expected.rows, atol=1e-9)


@pytest.mark.parametrize("seed", range(25))
def test_all_paths_of_random_chains(seed):
    check_random_chain(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("hundred", range(30))
def test_all_paths_of_thousands_of_random_chains(hundred):
    for seed in range(100 * hundred + 1000, 100 * hundred + 1100):
        check_random_chain(seed)


def clear(labels, background=4):
    """Likelihoods of rows that show labels as clearly as networks can."""
    return np.where(np.arange(background + 1) == np.asarray(labels)[:, None], 1.0, 0.0) + 1e-3


LONG = {
    "another task first": [1] * 150 + [3] * 200 + [0, 1, 2] * 150,
    "a long pause after the last step": [0] * 20 + [1] * 20 + [2] * 20 + [4] * 900 + [0] * 400,
    "a long pause at first": [4] * 900 + [3] * 300 + [0] * 300,
    "against the order": [2] * 300 + [0] * 300 + [1] * 300 + [2] * 150,
    "no action of the task": [3] * 1200,
}


@pytest.mark.parametrize("name", LONG)
def test_long_videos_that_speak_against_what_is_known(chain, name):
    """Also by far more than a float holds."""
    seen = clear(LONG[name])
    fast = replace(chain, resume=np.full_like(chain.resume, 0.6))
    for own in (chain, chain.given([0]), chain.given([1]), fast):
        found, expected = own.smoothed(seen), Reference(own).summed(seen)
        for one, other in zip(vars(found).values(), expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-8)
    for task, plan in ((0, [0, 1, 2]), (0, [2, 0]), (1, [1, 3]), (1, [3])):
        found = PlanChain.of(chain, plan, task).smoothed(seen)
        rows, begin, _ = Reference(chain, task, plan).summed(seen)
        np.testing.assert_allclose(found.rows, rows, atol=1e-8)
        np.testing.assert_allclose(found.begin, begin, atol=1e-8)
        assert found.begin.sum(axis=0)[plan] == pytest.approx(1)


def test_a_later_task_is_recognised_in_the_end(chain):
    """After hundreds of rows of another one."""
    seen, states = clear([3] * 300 + [0, 2] * 400), None
    for row in seen:
        states = chain.filtered(row[None], states)
    assert states.tasks[0] == pytest.approx([1, 0])
    assert chain.smoothed(seen).tasks == pytest.approx([1, 0])


def test_what_is_told_of_the_present_step(chain):
    states = chain.filtered(clear([3] * 400))
    assert chain.told(chain.given([1]).filtered(clear([3])), 0, 1e-6) is None
    told = chain.told(states[-1:], 0, 1e-6)
    assert told.tasks[0].tolist() == [1, 0]  # although it has the probability 0
    assert chain.by_label(told.states)[0] == pytest.approx([1, 0, 0, 0, 0])
    after = chain.filtered(clear([0] * 3), told)
    assert np.isfinite(after.states).all()
    before = chain.filtered(clear([0, 0]))[-1:]
    told = chain.told(before, 0, 1e-6)  # which was recognised, and goes on
    np.testing.assert_allclose(
        told.states[0, 0, :2], before.states[0, 0, :2] / before.states[0, 0, :2].sum(), atol=1e-5
    )


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
    for place in (0, 1):
        mean = np.mean([(row == place).sum() for row in labels if place in row])
        assert chain.lasting[place] == pytest.approx(mean, rel=0.01)


def averaged(rows, time):
    found = [rows[0]]
    for row in rows[1:]:
        found.append(found[-1] + (1 - np.exp(-1 / time)) * (row - found[-1]))
    return np.stack(found)


def test_features_of_rows():
    rows = np.random.default_rng(1).normal(size=(7, 2)).astype(np.float32)
    given = RecogniserConfig(memories=(1.0, 2.5)), 2.0
    past, memory = past_features(rows, *given), RowMemory(*given)
    np.testing.assert_allclose(past, [memory.features(row) for row in rows], atol=1e-6)
    centred = np.stack([row - rows[: count + 1].mean(axis=0) for count, row in enumerate(rows)])
    np.testing.assert_allclose(past[:, :2], centred, atol=1e-6)
    np.testing.assert_allclose(past[:, 4:6], averaged(centred, 5), atol=1e-6)
    changed = np.concatenate([rows[:-1], rows[-1:] + 3])
    np.testing.assert_array_equal(past_features(changed, *given)[:-1], past[:-1])
    whole = whole_features(rows, *given)
    assert whole.shape == (7, 10)
    np.testing.assert_allclose(whole[:, 4:6], averaged(whole[:, :2], 5), atol=1e-6)
    assert (whole_features(rows[:1], *given) == 0).all()
    assert (np.abs(whole_features(changed, *given) - whole)[0] > 1e-3).any()
    back = whole_features(rows[::-1], *given)[::-1]
    np.testing.assert_allclose(back[:, 2:6], whole[:, 6:], atol=1e-6)


def test_standard_rows_likelihoods_and_temperatures():
    assert Standard.of([np.eye(2, dtype=np.float32)], 2).scaled(np.array([1e6, 0.5])).tolist() == [
        5,
        0,
    ]
    logs = np.log([[0.5, 0.25, 0.25], [0.01, 0.99, 1e-30]])
    np.testing.assert_allclose(likelihoods(logs, 1.0, 1e-3)[0], [1.001, 0.501, 0.501])
    assert likelihoods(logs, 0.5, 1e-3)[0, 1] == pytest.approx(0.5**0.5 + 1e-3)
    assert likelihoods(logs - 900, 1.0, 1e-3)[1].min() == pytest.approx(1e-3)
    np.testing.assert_allclose(softened(np.array([0.8, 0.2]), 2.0), [2 / 3, 1 / 3])


@pytest.mark.parametrize("slow_start", [False, True])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 64, 777, 3599])
def test_many_rows_that_are_not_seen_are_passed_at_once(chain, count, slow_start):
    """Also if the pause before the first step lasts much longer than all else."""
    if slow_start:
        resume = chain.resume.copy()
        resume[:, -1] = 1e-4
        chain = replace(chain, resume=resume)
    begun = chain.filtered(np.array([[1.0, 1, 1, 9, 1], [1.0, 1e9, 1, 1, 1]]))[-1:]
    for _ in range(2):
        slow = chain.filtered(np.ones((count, 5)), begun)[-1:] if count else begun
        fast = chain.ahead(begun, count)
        np.testing.assert_allclose(fast.within, slow.within, rtol=1e-8, atol=1e-150)
        np.testing.assert_allclose(fast.logs[..., 0], slow.logs[..., 0], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(fast.states, slow.states, rtol=1e-8, atol=1e-12)
        begun = chain.filtered(np.array([[1.0, 1e-9, 1, 1, 1e-200]]), fast)


def test_in_the_end_every_video_has_ended(chain):
    for count in (10**6, 10**30):
        states = chain.ahead(chain.start, count).states[0]
        np.testing.assert_allclose(states[:, -1], np.exp(chain.log_tasks), rtol=1e-9)
        assert states[:, :-1].max() < 1e-100


def test_labels_are_drawn_as_probable_as_they_are(chain):
    """Shares of drawn labels and of pairs of rows are those of the sums over all paths."""
    rng = np.random.default_rng(0)
    seen = rng.random((7, 5)) + 0.05
    alone = chain.given([0])
    states = alone.filtered(seen).states[:, 0]
    drawn = chain.drawn(states, 0, 40_000, np.random.default_rng(1))
    assert drawn.shape == (40_000, 7)
    shares = np.stack([(drawn == label).mean(axis=0) for label in range(5)], axis=1)
    assert shares == pytest.approx(alone.smoothed(seen).rows, abs=0.012)
    # given the label of row 3, the rows before it are those of this part with that label sure
    sure = seen.copy()
    sure[3] = np.where(np.arange(5) == 1, 1.0, 1e-12)
    given = drawn[drawn[:, 3] == 1]
    assert len(given) > 1000
    shares = np.stack([(given == label).mean(axis=0) for label in range(5)], axis=1)
    assert shares == pytest.approx(alone.smoothed(sure).rows, abs=0.04)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_loosened_chain_lets_any_action_of_the_task_or_its_end_follow(chain, share):
    loose = chain.loosened(share)
    for task, actions in enumerate(TASKS):
        count = len(actions)
        rows = loose.transitions[task][[*range(count), -1]]
        assert rows.sum(axis=1) == pytest.approx(1)
        usual = chain.transitions[task][[*range(count), -1]]
        even = np.zeros(usual.shape[1])
        even[[*range(count), -1]] = 1 / (count + 1)
        assert rows == pytest.approx((1 - share) * usual + share * even)


def paths_of(line, logs):
    """Yield log p(path, rows) of all paths of states that begin the last step."""
    for path in product(range(len(line.labels)), repeat=len(logs)):
        if path[-1] < line.begins[-1]:
            continue
        total = line.log_start[path[0]]
        for before, after in pairwise(path):
            possible = 0 <= after - before <= 2
            total += line.log_moves[after - before, after] if possible else -np.inf
        yield total + sum(logs[row, line.labels[state]] for row, state in enumerate(path))


def test_the_likelihood_of_a_plan_is_that_of_all_paths(chain):
    seen = np.random.default_rng(0).random((4, 5)) + 0.1
    line = PlanChain.of(chain, (0, 2), 0)
    expected = np.logaddexp.reduce([*paths_of(line, np.log(seen))])
    assert line.log_likelihood(seen) == pytest.approx(expected)
    assert line.log_likelihood(seen[: line.fewest - 1]) == -np.inf


def test_neighbours_are_asked_from_the_step_before_them_to_the_step_after(chain):
    """Other rows change no ratio, and how usual an order is has no part in it."""
    usual = np.repeat([0, 1, 2, 0], 3)
    seen = np.random.default_rng(0).random((12, 5)) + 0.1
    before, after = seen.copy(), seen.copy()
    before[:3], after[9:] = before[:3, ::-1], after[9:, ::-1]
    ratios, without_first, without_last = (
        [*order_ratios(usual[None], chain, 0, rows)] for rows in (seen, before, after)
    )
    assert (without_first[2], without_last[0]) == (ratios[2], ratios[0])
    assert [*order_ratios(usual[None], chain.loosened(1.0), 0, seen)] == ratios


@pytest.mark.parametrize(
    ("other", "least", "changes"),
    [(1.0, 0.0, True), (0.01, 0.0, False), (0.01, 20.0, True), (0.01, 5.0, False)],
)
def test_an_order_that_rows_show_less_than_right_videos_do_is_in_doubt(
    chain, other, least, changes
):
    """Rows of 1 and 2 look alike, so that sequences have both orders; else all keep theirs."""
    usual = np.array([0, 0, 0, 1, 1, 4, 2, 2, 2])
    seen = np.full((9, 5), 1e-3)
    seen[np.arange(9), usual] = 1.0
    seen[[3, 4], 2] = seen[[6, 7, 8], 1] = other
    drawn = np.repeat(usual[None], 200, axis=0)
    (*_, clear), (*pair, ratio) = order_ratios(drawn, chain, 0, seen)
    assert pair == [1, 2]
    assert (ratio < max(least, 0.4)) == changes
    assert clear > 20
    generator = np.random.default_rng(0)
    result, strange = either_order(drawn, chain, 0, seen, generator, leasts=(least, 0.0))
    other_order = [0, 0, 0, 2, 2, 2, 4, 1, 1]
    assert {tuple(row) for row in result.tolist()} == {
        tuple(row) for row in [usual.tolist(), *[other_order] * changes]
    }
    assert changes * 0.2 <= (result == other_order).all(axis=1).mean() <= 0.5
    assert (drawn == usual).all()
    assert not strange  # of two neighbours
    steps = [
        tuple(Step(one.start, one.end, one.action) for one in segments(row, 4))
        for row in [usual, *result]
    ]
    names = Taxonomy.from_names("", [("tea", range(4))], ["boil", "add", "pour", "stir"])
    right = [Video(f"v{n}", "train", 0, steps[0]) for n in range(10)]
    found = Verifier.fit(right, names).verify(steps[0], 0, drawn=steps[1:])
    assert found.deviations == ()  # nothing is found for that alone
    assert bool(found.unsure) == changes


def test_a_film_is_strange_if_rows_hardly_show_the_order_of_most_neighbours(chain):
    usual = np.array([0, 0, 0, 1, 1, 4, 2, 2, 2])
    seen = np.full((9, 5), 0.9)
    seen[np.arange(9), usual] = 1.0
    _, strange = either_order(
        usual[None], chain, 0, seen, np.random.default_rng(0), leasts=(0.0, 10.0)
    )
    assert strange
