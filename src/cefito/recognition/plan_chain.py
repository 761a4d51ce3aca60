"""The chain of a video whose steps are known, and only their times are not.

Its states come one after another: the pause before the first step, the phases of this step, the
pause after it, and so on. After a row, a state stays, moves to the next one, or, from the last
phase of a step to the first one of the next step, skips a pause. Any of these may be needed after
thousands of rows that speak against it, so that all is computed with logarithms.

By such chains the rows of two neighbouring steps are compared in both orders (`either_order`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np
from numpy.typing import NDArray

from cefito.recognition.chain import Floats, Smoothed, StepChain
from cefito.recognition.scores import Segment, segments

_FAR = 8.0  # difference of log-likelihoods without durations, from which on an order is sure
_EVEN = 0.4  # log L / L' below which an order is in doubt in any film
_OPEN = 0.3  # least share of sequences that get the other order of neighbours in doubt


@dataclass(frozen=True, eq=False)
class PlanChain:
    """Distribution of the labels of the rows of a video, by its steps in order."""

    labels: NDArray[np.int64]  # of each state [S]; K is the background
    begins: NDArray[np.int64]  # state in which each step begins
    # logarithms of the probabilities to stay in each state, and to reach it from the one before
    # it, and from the second one before it [3, S]
    log_moves: Floats
    log_start: Floats  # of the states of the first row [S]
    background: int

    @classmethod
    def of(cls, chain: StepChain, plan: Sequence[int], task: int) -> PlanChain:
        """Return the chain of steps of a task, by their actions, of which there is at least one."""
        place = {int(action): place for place, action in enumerate(chain.actions[task])}
        labels, begins, before = [chain.background], list[int](), -1
        stay, move, skip = [1 - chain.resume[task, -1]], [0.0], [0.0]
        for action in plan:
            own = place[action]
            count, leave = int(chain.phases - chain.entered[task, own]), chain.leave[task, own]
            begins.append(len(labels))
            labels += [action] * count + [chain.background]
            move += [chain.resume[task, before], *[leave] * (count - 1)]
            move += [leave * chain.pause[task, own]]
            at_once = chain.leave[task, before] * (1 - chain.pause[task, before])
            skip += [at_once * (before >= 0), *[0.0] * count]
            stay += [1 - leave] * count + [1 - chain.resume[task, own]]
            before = own
        # after the last step comes the rest of the video
        stay[-1], move[-1] = 1.0, leave
        start = np.zeros(len(labels))
        start[:2] = chain.pause[task, -1], 1 - chain.pause[task, -1]
        with np.errstate(divide="ignore"):
            moves, begun = np.log([stay, move, skip]), np.log(start)
        return cls(np.array(labels), np.array(begins), moves, begun, chain.background)

    @property
    def fewest(self) -> int:
        """Least number of rows of a video in which its last step has begun."""
        rows = np.where(np.isfinite(self.log_start), 1.0, np.inf)  # up to each state
        for state in range(1, self.begins[-1] + 1):
            for back in (1, 2):
                if state >= back and np.isfinite(self.log_moves[back, state]):
                    rows[state] = min(rows[state], rows[state - back] + 1)
        return int(rows[self.begins[-1]])

    def smoothed(self, likelihoods: Floats) -> Smoothed:
        """Return what all rows say of each one, by positive likelihoods [n, K + 1].

        The last step has begun at the last row. There are at least `fewest` rows.
        """
        seen, (stay, move, skip) = np.log(likelihoods)[:, self.labels], self.log_moves
        alphas, reached = self._forward(seen)
        betas = np.full_like(seen, -np.inf)
        betas[-1, self.begins[-1] :] = 0
        for row in range(len(seen) - 1, 0, -1):
            ahead = betas[row] + seen[row]
            np.add(ahead, stay, out=betas[row - 1])
            moved, skipped = ahead[1:] + move[1:], ahead[2:] + skip[2:]
            betas[row - 1, :-1] = np.logaddexp(betas[row - 1, :-1], moved)
            betas[row - 1, :-2] = np.logaddexp(betas[row - 1, :-2], skipped)
        total = np.logaddexp.reduce(alphas[-1] + betas[-1])
        rows = np.exp(alphas + betas - total) @ np.eye(self.background + 1)[self.labels]
        begun = np.exp(reached + seen + betas - total)[:, self.begins]
        begin = begun @ np.eye(self.background)[self.labels[self.begins]]
        return Smoothed(rows, begin, np.ones(1))

    def _forward(self, seen: Floats) -> tuple[Floats, Floats]:
        """Return log α and log p(rows before, state reached at the row), by log p(row | state).

        All are [n, S].
        """
        (stay, move, skip), (alphas, reached) = self.log_moves, np.full((2, *seen.shape), -np.inf)
        reached[0], alphas[0] = self.log_start, self.log_start + seen[0]
        for row in range(1, len(seen)):
            np.add(alphas[row - 1, :-1], move[1:], out=reached[row, 1:])
            skipped = alphas[row - 1, :-2] + skip[2:]
            np.logaddexp(reached[row, 2:], skipped, out=reached[row, 2:])
            stayed = alphas[row - 1] + stay
            alphas[row] = np.logaddexp(reached[row], stayed) + seen[row]
        return alphas, reached

    def log_likelihood(self, likelihoods: Floats) -> float:
        """Return log p(rows) by their likelihoods [n, K + 1]; −∞ if there are too few rows."""
        if len(likelihoods) < self.fewest:
            return -np.inf
        alphas, _ = self._forward(np.log(likelihoods)[:, self.labels])
        return float(np.logaddexp.reduce(alphas[-1, self.begins[-1] :]))


def either_order(
    drawn: NDArray[np.int64],
    chain: StepChain,
    task: int,
    likelihoods: Floats,
    generator: np.random.Generator,
    *,
    leasts: tuple[float, float],
) -> tuple[NDArray[np.int64], bool]:
    """Return drawn labels in which neighbours change places whose order the rows do not show.

    The other value is whether the median ratio of more than one pair of neighbours is below what
    right films show, as in films of none of the tasks.

    Networks that know the usual order show it in all films. So this order of two neighbours is in
    doubt where their ratio log L / L' (`order_ratios`) is below what right videos show, the other
    one where it is below `_EVEN`. A share p/2 of the sequences gets the other order,
    p = L' / (L + L'), and at least `_OPEN`: it is in doubt, but no finding for that alone.

    Args:
        drawn: Labels [count, n].
        chain: Chain of steps that they were drawn by.
        task: Id of the task in it.
        likelihoods: Likelihoods of the rows [n, K + 1].
        generator: Chooses the sequences.
        leasts: Ratio below which an order is in doubt, where at least `_EVEN` is taken, and median
            ratio below which a film is.
    """
    changed, least = drawn.copy(), max(leasts[0], _EVEN)
    place = {int(action): place for place, action in enumerate(chain.actions[task])}
    moves = chain.transitions[task]
    neighbours = [*order_ratios(drawn, chain, task, likelihoods, far=max(*leasts, _FAR))]
    for a, b, ratio in neighbours:
        usual = moves[place[a], place[b]] >= moves[place[b], place[a]]
        if ratio >= (least if usual else _EVEN):
            continue
        share = max(1 / (1 + np.exp(ratio)), 2 * _OPEN)
        for row in np.flatnonzero(generator.random(len(changed)) < share / 2):
            for left, right in pairwise(segments(changed[row], chain.background)):
                if (left.action, right.action) == (a, b):
                    parts = np.split(changed[row], [left.start, left.end, right.start, right.end])
                    changed[row] = np.concatenate([parts[part] for part in (0, 3, 2, 1, 4)])
    ratios = [ratio for *_, ratio in neighbours]
    return changed, len(ratios) > 1 and median(ratios) < leasts[1]  # numpy's imports more


def order_ratios(
    drawn: NDArray[np.int64],
    chain: StepChain,
    task: int,
    likelihoods: Floats,
    *,
    far: float = np.inf,
) -> Iterator[tuple[int, int, float]]:
    """Yield each two neighbours a, b of the commonest sequence, and log L / L' of their order.

    L and L' are the likelihoods of this order and of the other one: the rows from the step before
    them to the step after them are asked alone, without how usual an order is.

    Args:
        drawn: As the next three, of `either_order`.
        chain: The chain.
        task: The task.
        likelihoods: Of the rows.
        far: Difference of log-likelihoods without durations, from which on the ratio is ∞.
    """
    sequences = [segments(labels, chain.background) for labels in drawn]
    plans = Counter(tuple(segment.action for segment in steps) for steps in sequences)
    plan = plans.most_common(1)[0][0]
    steps = next(s for s in sequences if tuple(segment.action for segment in s) == plan)
    logs = np.log(likelihoods)
    for place, (a, b) in enumerate(pairwise(plan)):
        rows = logs[steps[place].start : steps[place + 1].end]
        if _one_after_another(rows, a, b) - _one_after_another(rows, b, a) > far:
            yield a, b, np.inf
            continue
        around = slice(max(place - 1, 0), place + 3)
        first = steps[around][0].start if place else 0
        last = steps[around][-1].end if place + 3 <= len(plan) else len(likelihoods)
        before, after = plan[max(place - 1, 0) : place], plan[place + 2 : place + 3]
        own, other = (
            PlanChain.of(chain, (*before, *pair, *after), task).log_likelihood(
                likelihoods[first:last]
            )
            for pair in ((a, b), (b, a))
        )
        yield a, b, own - other if np.isfinite(other) else np.inf


def _one_after_another(logs: Floats, a: int, b: int) -> float:
    """Return the largest Σ log p(row) of rows [n, K + 1] that show a, then b, and any pauses."""
    first, second = (np.maximum(logs[:, action], logs[:, -1]) for action in (a, b))
    return float(np.append(0.0, (first - second).cumsum()).max() + second.sum())


def aligned(rows: Floats, begin: Floats, plan: Sequence[int]) -> list[Segment]:
    """Return when each step of a plan takes place.

    The first rows s_1 < s_2 < … have the greatest product of p(a_i begins at s_i). A step ends
    where rows up to its end, and pauses from there to the next step, have the greatest sum of
    probabilities.

    Args:
        rows: p(label) of each row [n, K + 1].
        begin: p(a step of each action begins at the row) [n, K].
        plan: Ids of the steps in order.
    """
    count, steps = len(rows), len(plan)
    log = np.log(begin[:, list(plan)] + 1e-30)
    best, origin = np.full((steps, count), -np.inf), np.zeros((steps, count), dtype=np.int64)
    best[0] = log[:, 0]
    for step in range(1, steps):
        latest, value = 0, -np.inf  # of the first row of the step before
        for row in range(step, count):
            if best[step - 1, row - 1] > value:
                latest, value = row - 1, best[step - 1, row - 1]
            best[step, row], origin[step, row] = value + log[row, step], latest
    starts = [int(best[-1].argmax())]
    for step in range(steps - 1, 0, -1):
        starts.insert(0, int(origin[step, starts[0]]))
    timed = []
    for action, start, after in zip(plan, starts, [*starts[1:], count], strict=True):
        gain = np.cumsum(rows[start:after, action] - rows[start:after, -1])
        timed.append(Segment(action, start, start + 1 + int(gain.argmax())))
    return timed
