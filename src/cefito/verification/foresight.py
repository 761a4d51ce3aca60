"""How probable a step is a mistake, from the steps before it and right videos of all tasks.

Nothing labelled is needed: mistakes are made up from right videos, each of which is judged by the
others. Right videos of a task are few, so that counts of the other tasks, whose actions have the
same names, are their prior. With n of the task and N of the others, a step a, and D the actions
done before it, the last of which is l:

    p(b occurs)     = (n(b) + (N(b) + 1/2) / (N + 1) / 2) / (n + 1/2)
    p(b before a)   = (n(b, a) + 3 P) / (n(b, a) + n(a, b) + 3),  P = (N(b, a) + 2) / (… + 4)
    p(a after l)    = (n(l, a) + 2 Q) / (n(l) + 2),  Q = (N(l, a) + p(a occurs) / Σ) / (N(l) + 1)

The strengths of the first two have the highest likelihood of training videos of Assembly101 that
are left out. The evidence of a step is what is needed most before it, max over b not in D of
p(b occurs) max(0, 2 p(b before a) − 1), or 0 if a is in D; −log p(a after l); and −log p(a occurs).
A logistic regression learns to tell right steps from later steps of the same video that are brought
forward.

What is strange in a step is counted: a name that no video has, an action that no video of the task
has, an unusual repetition or length. If a share r of the right steps of videos left out has one,
and mistakes are a share m of all steps, in equal parts of six kinds (these, an order, and none that
can be seen), it is a mistake with the probability (m/6) / (m/6 + (1 − m) r).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Self

import numpy as np

from cefito.data.annotations import Step, Video
from cefito.data.vocabulary import Taxonomy
from cefito.files import Expected, check_tensors
from cefito.verification.order import UNUSUAL, Floats, TaskOrder, log_length, repetitions

_STRANGE = UNKNOWN, ADDED, REPEATED, LENGTH = "unknown", "added", "repeated", "length"
_OCCURS, _BEFORE, _AFTER = 0.5, 3.0, 2.0  # videos, pairs and steps that the prior counts as
_PAIRS, _STEPS = 2.0, 1.0  # pairs and steps that the prior of the prior counts as
_KINDS = len(_STRANGE) + 2  # and an order, and none that can be seen
_FEW = 20  # videos of a task whose lengths and repetitions are counted without the one judged
_RIDGE = 0.05  # weight of the sum of squares
_NEWTON = 30  # steps


@dataclass(frozen=True, eq=False)
class NameCounts:
    """What right videos show of the steps of all actions, K."""

    before: Floats  # n(a, b) [K, K]
    follows: Floats  # n(l, a) [K + 1, K]; the start is the last row
    occurs: Floats  # n(a) [K]
    videos: int

    @classmethod
    def of(cls, order: TaskOrder, count: int) -> Self:
        """Return the counts of a task by action ids of a taxonomy of K actions."""
        before, follows = np.zeros((count, count)), np.zeros((count + 1, count))
        occurs, ids = np.zeros(count), order.actions
        before[np.ix_(ids, ids)] = order.before
        follows[np.ix_(np.append(ids, count), ids)] = order.follows[:, :-1]
        occurs[ids] = order.occurs
        return cls(before, follows, occurs, order.videos)

    def plus(self, other: NameCounts, sign: int = 1) -> NameCounts:
        """Return the counts of both, or those without the other's."""
        return NameCounts(
            self.before + sign * other.before,
            self.follows + sign * other.follows,
            self.occurs + sign * other.occurs,
            self.videos + sign * other.videos,
        )


@dataclass(frozen=True, eq=False)
class Foresight:
    """Probabilities of mistakes of steps by those before them, learned from right videos."""

    total: NameCounts  # of all tasks
    weights: Floats  # of the evidence, then the constant [4]
    strange: dict[str, float]  # p(mistake) of what is unknown, added, repeated, of unusual length

    @classmethod
    def fit(
        cls,
        orders: Sequence[TaskOrder],
        videos: Sequence[Video],
        taxonomy: Taxonomy,
        mistakes: float,
    ) -> Self:
        """Learn from right videos, each of which is judged by the others.

        Args:
            orders: Of all tasks.
            videos: The videos that the orders count.
            taxonomy: Names of the K actions.
            mistakes: Mistakes a video, m times its mean number of steps.
        """
        count = len(taxonomy.actions)
        learned = cls(summed(orders, count), np.zeros(4), {})
        rows, wrong, weights, names = [np.zeros((0, 3))], list[bool](), list[float](), list[str]()
        right = [video for video in videos if video.clean and video.steps]
        for video in right:
            order, actions = orders[video.task], [step.action for step in video.steps]
            whole = NameCounts.of(order, count)
            prior = learned.total.plus(whole, -1)
            alone = TaskOrder.of([video], order.actions.tolist())
            own = whole.plus(NameCounts.of(alone, count), -1)
            if order.videos <= _FEW:  # of more, one changes no mean length
                others = [one for one in videos if one.task == video.task and one is not video]
                order = TaskOrder.of(others, order.actions.tolist())
            again = repetitions(order, actions, taxonomy)
            names += map(partial(strange_in, order, own, prior), video.steps, again)
            for place, action in enumerate(actions):
                done, later = actions[:place], dict.fromkeys(actions[place + 1 :])
                moved = [b for b in later if b != action and b not in done]
                rows.append(evidence(own, prior, done, [action, *moved]))
                wrong += [False, *[True] * len(moved)]
                known = names[len(names) - len(actions) + place] != UNKNOWN
                weights += [float(known), *[1 / len(moved) for _ in moved]]
        table, labels, weight = np.concatenate(rows), np.array(wrong, dtype=bool), np.array(weights)
        share = min(mistakes * len(right) / max(len(names), 1), 0.5)
        odds = share / (1 - share) / _KINDS  # of a mistake of one kind against a right step
        weight[labels] *= odds * len(names) / max(weight[labels].sum(), 1e-9)
        for name in _STRANGE:
            rate = (names.count(name) + 0.5) / (len(names) + 1)
            learned.strange[name] = odds / (odds + rate)
        if weight[~labels].any():  # else a step's name is of one video alone, which teaches nothing
            learned.weights[:] = _logistic(table, labels, weight)
        return learned

    def relearned(self, order: TaskOrder, changed: TaskOrder) -> Self:
        """Return it with a task's order changed for one of fewer videos."""
        count = len(self.total.occurs)
        total = self.total.plus(NameCounts.of(order, count), -1)
        return replace(self, total=total.plus(NameCounts.of(changed, count)))

    def chances(
        self, order: TaskOrder, sequences: Iterable[Sequence[Step]], taxonomy: Taxonomy
    ) -> Iterator[tuple[Floats, Floats]]:
        """Yield p(error of order) and p(mistake) of each step by those before it [n].

        What steps show is computed once, although several sequences begin with them.

        Args:
            order: Order of the task.
            sequences: The steps.
            taxonomy: Names of the actions.
        """
        count = len(self.total.occurs)
        own = NameCounts.of(order, count)
        prior = self.total.plus(own, -1)

        @cache
        def shown(*actions: int) -> Floats:
            *done, action = actions
            if action >= count:
                return np.zeros(3)
            row: Floats = evidence(own, prior, [a for a in done if a < count], [action])[0]
            return row

        for steps in sequences:
            actions, ends = [step.action for step in steps], range(1, len(steps) + 1)
            rows = np.array([shown(*actions[:end]) for end in ends])
            again = repetitions(order, actions, taxonomy)
            names = [*map(partial(strange_in, order, own, prior), steps, again)]
            orders = np.where([name == UNKNOWN for name in names], 0, self._orders(rows))
            yield orders, self._combined(rows, names)

    def arrays(self) -> dict[str, Floats]:
        """Return all that `of_arrays` needs beside the orders."""
        return {"weights": self.weights, "strange": np.array([*self.strange.values()])}

    @classmethod
    def of_arrays(
        cls, arrays: dict[str, Floats], orders: Sequence[TaskOrder], count: int, place: str
    ) -> Self:
        """Build from what `arrays` returned; RunError for others, `place` is their file."""
        expected = {"weights": Expected((4,), -1e9, 1e9), "strange": Expected((4,), 0, 1)}
        check_tensors(arrays, expected, place)
        strange = dict(zip(_STRANGE, arrays["strange"].tolist(), strict=True))
        return cls(summed(orders, count), arrays["weights"], strange)

    def told(self, name: str) -> bool:
        """Return whether what is strange is more likely a mistake than not."""
        return self.strange[name] >= 0.5

    def _orders(self, rows: Floats) -> Floats:
        chances: Floats = 1 / (1 + np.exp(-rows @ self.weights[:-1] - self.weights[-1]))
        return chances

    def _combined(self, rows: Floats, names: Sequence[str]) -> Floats:
        """Return p(mistake) by the evidence [n, 3] and what is strange in each step [n]."""
        chances = self._orders(rows)
        for place, name in enumerate(names):
            if name == UNKNOWN:
                chances[place] = self.strange[name]
            elif name and self.told(name):
                chances[place] = max(chances[place], self.strange[name])
        return chances


def summed(orders: Iterable[TaskOrder], count: int) -> NameCounts:
    """Return the counts of all tasks."""
    total = NameCounts.of(TaskOrder.of([], range(count)), count)
    for order in orders:
        total = total.plus(NameCounts.of(order, count))
    return total


def evidence(
    own: NameCounts, others: NameCounts, done: Sequence[int], actions: Sequence[int]
) -> Floats:
    """Return the evidence of each of n actions that may come after those done [n, 3].

    Args:
        own: Counts of the task.
        others: Counts of the other tasks.
        done: Ids of the actions done, in order.
        actions: Ids of the n actions.
    """
    shares = (others.occurs + 0.5) / (others.videos + 1)
    occurs = (own.occurs + _OCCURS * shares) / (own.videos + _OCCURS)  # [K]
    kept, broken, kept_others, broken_others = (  # [K, n]
        pairs
        for counts in (own, others)
        for pairs in (counts.before[:, actions], counts.before[actions].T)
    )
    even = (kept_others + _PAIRS) / (kept_others + broken_others + 2 * _PAIRS)
    before = (kept + _BEFORE * even) / (kept + broken + _BEFORE)
    needs = occurs[:, None] * np.maximum(0, 2 * before - 1)
    needs[[*done]] = 0
    needs[actions, range(len(actions))] = 0
    needed = np.where(np.isin(actions, [*done]), 0, needs.max(axis=0))
    last = done[-1] if done else len(occurs)
    usual = others.follows[last] + _STEPS * occurs / occurs.sum()
    follows = own.follows[last] + _AFTER * usual / usual.sum()
    follows /= follows.sum()
    return np.column_stack([needed, -np.log(follows[actions]), -np.log(occurs[actions])])


def strange_in(
    order: TaskOrder, own: NameCounts, others: NameCounts, step: Step, repetitions: int
) -> str:
    """Return what is strange in a step: unknown, added, repeated, length, or ''.

    Args:
        order: Order of the task.
        own: Counts of the task.
        others: Counts of the other tasks.
        step: The step.
        repetitions: How many of its action came before it, and were not undone.
    """
    action = step.action
    if action >= len(own.occurs) or not own.occurs[action] + others.occurs[action]:
        return UNKNOWN
    if not own.occurs[action]:
        return ADDED if own.videos else ""
    place = order.index[action]
    if order.repeated[place] < 0.5 and repetitions:
        return REPEATED
    change = log_length(step.start, step.end) - order.length[place]
    return LENGTH if abs(change) > UNUSUAL * order.spread[place] else ""


def _logistic(rows: Floats, labels: Floats, weights: Floats) -> Floats:
    """Return weights and constant of a logistic regression [F + 1], by Newton's method."""
    mean, spread = rows.mean(axis=0), rows.std(axis=0)
    spread[spread < 1e-9] = np.inf  # evidence that is always the same has no weight
    scaled = np.column_stack([(rows - mean) / spread, np.ones(len(rows))])
    found, ridge = np.zeros(scaled.shape[1]), _RIDGE * np.eye(scaled.shape[1])
    for _ in range(_NEWTON):
        chances = 1 / (1 + np.exp(-scaled @ found))
        slope = scaled.T @ (weights * (chances - labels)) + ridge @ found
        curve = (scaled.T * (weights * chances * (1 - chances))) @ scaled + ridge
        step = np.linalg.solve(curve, slope)
        found = found - step * min(1, 2 / max(np.abs(step).max(), 1e-9))  # damped
    plain = found[:-1] / spread
    return np.append(plain, found[-1] - plain @ mean)
