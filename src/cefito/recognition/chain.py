"""The semi-Markov chain of the steps of a video, and the pauses between them, over all tasks.

A task c is followed from its start. Action a lasts for a time of its own: it passes through up to
P phases, each of which ends after a row with the probability q_a, so that durations are negative
binomial. Then comes a pause, with the probability g_a, or the next action at once. Pauses and the
rest of the video after the last step are geometric. Given the latest action, the next one, or the
end, has the probability p(b | a, c). All of this is one Markov chain of the states

    (c, a, phase), (c, pause after a), (c, pause before the first step), (c, end)

with a matrix M of transitions between rows, so that the sums below are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cefito.errors import RunError
from cefito.files import Expected, Stored, check_tensors
from cefito.recognition.scores import Segment, segments

Floats = NDArray[np.float64]
_SHARED = 3.0  # transitions of other tasks count as at most so many
_MEAN = 2.0  # segments of mean duration, or videos, that each estimate is shrunk by
_AGAINST = 0.05  # factor of transitions against an order that is given
_FOREVER = 8**11  # rows after which every video has ended
_NEVER = 1e-200  # share of a transition over many rows that counts as 0
_TOGETHER = 16  # most rows smoothed at once
_RANGE = 400.0  # sum of their |log p(row | label)|, which a float holds
_NEAR = 1e-6  # distance of sums of probabilities from 1
MOST_PHASES = 32
"""P at most, so that the first of them is never out of a float's range beside the last."""
_MOST_LEAVE = 0.98  # greatest q, of an action that lasts one row


@dataclass(frozen=True, eq=False)
class Filtered:
    """Distributions of the states at each row, given the rows up to it.

    Tasks, and their ends, may differ by more than a float holds, so each has a logarithm.
    """

    within: Floats  # p(state | task, not at its end) [n, C, S]; 0 at the end
    logs: Floats  # log p(task, not at its end), log p(task, at its end) [n, C, 2], up to a constant
    growth: Floats  # p(row | task, rows before, not at its end) [n, C], up to a factor of each row

    def __getitem__(self, rows: slice) -> Filtered:
        return Filtered(self.within[rows], self.logs[rows], self.growth[rows])

    @classmethod
    def joined(cls, parts: Iterable[Filtered]) -> Filtered:
        """Join successive rows."""
        columns = zip(*((part.within, part.logs, part.growth) for part in parts), strict=True)
        return cls(*map(np.concatenate, columns))

    def among(self, tasks: NDArray[np.int64]) -> Filtered:
        """Return what is known of some tasks."""
        return Filtered(self.within[:, tasks], self.logs[:, tasks], self.growth[:, tasks])

    @property
    def tasks(self) -> Floats:
        """p(task) [n, C]."""
        tasks: Floats = self._shares.sum(axis=2)
        return tasks

    @property
    def ended(self) -> Floats:
        """p(the last step is over) [n]."""
        ended: Floats = self._shares[:, :, 1].sum(axis=1)
        return ended

    @property
    def states(self) -> Floats:
        """p(state) [n, C, S]."""
        shares = self._shares
        states: Floats = self.within * shares[:, :, :1]
        states[:, :, -1] = shares[:, :, 1]
        return states

    @cached_property
    def _shares(self) -> Floats:
        """p(task, not at its end), p(task, at its end) [n, C, 2]."""
        shares: Floats = np.exp(self.logs - self.logs.max(axis=(1, 2), keepdims=True))
        shares /= shares.sum(axis=(1, 2), keepdims=True)
        return shares

    def of_task(self, task: int) -> Floats:
        """Return p(state | task) [n, S] of one task, however improbable, up to a factor."""
        logs = self.logs[:, task]
        shares = np.exp(logs - logs.max(axis=1, keepdims=True))
        states: Floats = self.within[:, task] * shares[:, :1]
        states[:, -1] = shares[:, 1]
        return states


@dataclass(frozen=True, eq=False)
class StepChain(Stored):
    """Distribution of the labels of the rows of a video, before the rows are seen."""

    actions: NDArray[np.int64]  # action at each place of each task [C, A]; K if there is none
    log_tasks: Floats  # log p(c) [C]
    # p(next | latest) [C, A + 1, A + 1]; the last row is the start, the last column the end
    transitions: Floats
    entered: NDArray[np.int64]  # phase in which each action begins [C, A]
    leave: Floats  # q, probability to leave a phase after a row [C, A]
    # g, probability of a pause after each action and, in the last column, at the start [C, A + 1]
    pause: Floats
    resume: Floats  # probability that this pause ends after a row [C, A + 1]
    phases: int  # P
    background: int  # K, the label of rows without a step

    @classmethod
    def fit(
        cls,
        labels: Sequence[NDArray[np.integer]],
        tasks: Sequence[int],
        task_actions: Sequence[Sequence[int]],
        action_count: int,
        *,
        phases: int,
        smoothing: float,
    ) -> Self:
        """Count the rows of annotated videos.

        Args:
            labels: The action of each row of each video; `action_count` is the background.
            tasks: The task of each video.
            task_actions: The actions of each task.
            action_count: K.
            phases: P.
            smoothing: Weight of an action's frequency in its task, in transitions for each action.
        """
        background, size = action_count, max(map(len, task_actions))
        counted, rows, paused, pauses = np.zeros((4, action_count + 1))
        left = np.zeros(action_count + 1)
        pairs = np.zeros((len(task_actions), action_count + 1, action_count + 1))
        for row, owner in zip(labels, tasks, strict=True):
            latest, before = background, 0
            every = [*segments(row, background), Segment(background, len(row), 0)]
            for action, start, end in every:
                pairs[owner, latest, action] += 1
                left[latest] += 1
                if start > before:
                    paused[latest] += start - before
                    pauses[latest] += 1
                if action != background:
                    counted[action] += 1
                    rows[action] += end - start
                latest, before = action, end
        mean = _shrunk(rows, counted)[:-1]
        lasting = _shrunk(paused, pauses)
        share = _shrunk(pauses, left)
        number = np.clip(mean.round(), 1, phases).astype(np.int64)  # phases of each action
        number, mean = np.append(number, phases), np.append(mean, np.inf)
        # the background stands at places without an action
        actions = np.full((len(task_actions), size), background)
        transitions = np.zeros((len(task_actions), size + 1, size + 1))
        for task, own in enumerate(task_actions):
            actions[task, : len(own)] = own
            places = np.append(np.arange(len(own)), size)
            transitions[task][np.ix_(places, places)] = _transitions(
                pairs, task, [*own, background], smoothing
            )
        none = np.full((len(actions), 1), background)
        begun = np.concatenate([actions, none], axis=1)
        videos = np.bincount(tasks, minlength=len(task_actions)) + 1.0
        return cls(
            actions=actions,
            log_tasks=np.log(videos / videos.sum()),
            transitions=transitions,
            entered=(phases - number)[actions],
            leave=np.minimum(number / mean, _MOST_LEAVE)[actions],
            pause=share[begun],
            resume=np.minimum(1 / np.maximum(lasting, 1), _MOST_LEAVE)[begun],
            phases=phases,
            background=background,
        )

    def given(self, tasks: Sequence[int]) -> Self:
        """Return the chain of some tasks alone, which keep their places."""
        kept = np.full(len(self.log_tasks), -np.inf)
        kept[list(tasks)] = self.log_tasks[list(tasks)]
        return replace(self, log_tasks=kept - np.logaddexp.reduce(kept))

    def among(self, tasks: NDArray[np.int64]) -> Self:
        """Return the chain of some tasks alone, which get new places."""
        names = "actions", "log_tasks", "transitions", "entered", "leave", "pause", "resume"
        arrays: dict[str, Any] = {name: getattr(self, name)[tasks] for name in names}
        return replace(self, **arrays)

    def with_orders(self, orders: Mapping[int, Iterable[tuple[int, int]]]) -> Self:
        """Return the chain in which, of pairs of actions (a, b) of a task, a seldom follows b."""
        transitions = self.transitions.copy()
        for task, pairs in orders.items():
            place = {int(action): place for place, action in enumerate(self.actions[task])}
            for a, b in pairs:
                transitions[task, place[b], place[a]] *= _AGAINST
        return replace(self, transitions=_normalised(transitions))

    def loosened(self, share: float) -> Self:
        """Return the chain in which, with a share of p, any action of the task or its end follows.

        p(b | a, c) becomes (1 − share) p(b | a, c) + share / (number of actions + 1).
        """
        follows = np.ones((len(self.actions), self.actions.shape[1] + 1))  # the end, too
        follows[:, :-1] = self.actions < self.background
        even = _normalised(follows)[:, None]
        return replace(self, transitions=(1 - share) * self.transitions + share * even)

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """Label of each state [C, S]; the number of actions K stands for the background."""
        active = np.repeat(self.actions, self.phases, axis=1)
        pauses = np.full((len(active), self.actions.shape[1] + 2), self.background)
        return np.concatenate([active, pauses], axis=1)

    @cached_property
    def lasting(self) -> Floats:
        """Mean rows of a step of each action [K + 1]: phases that it passes through / q."""
        rows = np.zeros(self.background + 1)
        rows[self.actions] = (self.phases - self.entered) / np.maximum(self.leave, 1e-9)
        return rows

    @cached_property
    def start(self) -> Filtered:
        """The states of the first row, before it is seen."""
        size, start = self.actions.shape[1], np.zeros(self.labels.shape)
        begun = _normalised(self.transitions[:, size, :size])
        at_once = 1 - self.pause[:, size, None]
        np.put_along_axis(start, self.entries, begun * at_once, axis=1)
        start[:, size * self.phases + size] = self.pause[:, size]
        logs = np.stack([self.log_tasks, np.full(len(start), -np.inf)], axis=1)
        return Filtered(start[None], logs[None], np.ones((1, len(start))))

    @property
    def entries(self) -> NDArray[np.int64]:
        """State in which each action begins [C, A]."""
        return np.arange(self.actions.shape[1]) * self.phases + self.entered

    @cached_property
    def matrix(self) -> Floats:
        """M, probabilities of the state of the next row [C, S, S]."""
        count, size = self.actions.shape
        active, states = size * self.phases, np.arange(size * self.phases)
        matrix, end = np.zeros((count, *self.labels.shape[1:], self.labels.shape[1])), -1
        last, waiting = states[self.phases - 1 :: self.phases], active + np.arange(size + 1)
        direct = (self.leave * (1 - self.pause[:, :size]))[:, :, None]
        begun = np.concatenate(
            [
                direct * _normalised(self.transitions[:, :size, :size]),
                self.resume[:, :, None] * self.transitions[:, :, :size],
            ],
            axis=1,
        )  # [C, 2 A + 1, A], of the last phases and of the pauses
        for task in range(count):
            matrix[task][np.ix_([*last, *waiting], self.entries[task])] = begun[task]
        leave = np.repeat(self.leave, self.phases, axis=1)  # [C, A · P]
        matrix[:, states, states] += 1 - leave
        inner = states[states % self.phases < self.phases - 1]
        matrix[:, inner, inner + 1] += leave[:, inner]
        matrix[:, last, waiting[:-1]] += self.leave * self.pause[:, :size]
        matrix[:, waiting, waiting] += 1 - self.resume
        matrix[:, waiting, end] += self.resume * self.transitions[:, :, size]
        matrix[:, end, end] = 1
        return matrix

    def filtered(self, likelihoods: Floats, before: Filtered | None = None) -> Filtered:
        """Return the states at each row, given the rows up to it, and those `before` them.

        α_t ∝ (α_t−1 M) · p(row t | label), by positive likelihoods [n, K + 1] up to a factor of
        each row.
        """
        labels, matrix, background = self.labels, self.matrix, self.background
        latest = self.start if before is None else before
        states, logs = latest.within[-1], latest.logs[-1]
        rows = list[tuple[Floats, Floats, Floats]]()
        with np.errstate(divide="ignore"):  # the end cannot be reached at first
            for row in likelihoods:
                if rows or before is not None:
                    states = (states[:, None, :] @ matrix)[:, 0]
                joint = states * row[labels]
                sides = joint @ self._sides
                joint[:, -1] = 0
                joint /= sides[:, :1]
                # α_t(end) = (α_t−1(end) + flow) p(row t | background)
                after = np.log(sides) + logs[:, :1]
                after[:, 1] = np.logaddexp(after[:, 1], logs[:, 1] + math.log(row[background]))
                states, logs = joint, after
                rows.append((states, logs, sides[:, 0]))
        if len(rows) == 1:  # as in a stream, whose cost is that of calls
            return Filtered(states[None], logs[None], rows[0][2][None])
        return Filtered(*map(np.array, zip(*rows, strict=True)))

    @cached_property
    def _sides(self) -> Floats:
        """Sums over the states but the end, and over the end [S, 2]."""
        end = np.arange(self.labels.shape[1]) == self.labels.shape[1] - 1
        return np.stack([~end, end], axis=1).astype(np.float64)

    def ahead(self, states: Filtered, rows: int) -> Filtered:
        """Return the present states after a number of rows that were not seen.

        α N^n by the octal digits of n, where N is M without the end, so that the cost grows with
        log n alone: α N^n 1 is the probability that the end was not reached.
        """
        rows, place = min(rows, _FOREVER), 0
        within, left = states.within[-1], np.zeros(len(self.actions))  # log(α N^n 1)
        while rows:
            power, logs = self._power(place)
            for _ in range(rows % 8):
                weights, most = _scaled(within, logs)
                sums = weights.sum(axis=1, keepdims=True)
                within = (weights[:, None, :] @ power)[:, 0] / sums
                left = left + (most + np.log(sums))[:, 0]
            rows, place = rows // 8, place + 1
        logs, ended = states.logs[-1].copy(), np.log(np.maximum(-np.expm1(left), 1e-300))
        logs[:, 1] = np.logaddexp(logs[:, 1], logs[:, 0] + ended)
        logs[:, 0] += left
        return Filtered(within[None], logs[None], np.ones((1, len(logs))))

    @cached_property
    def _powers(self) -> dict[int, tuple[Floats, Floats]]:
        """N^(8^k) of each k that was needed: rows that sum to 1 [C, S, S], and logs of sums [C, S].

        States that are soon left and those that last differ by more than a float holds.
        """
        matrix = self.matrix.copy()
        matrix[:, :, -1] = 0
        return {0: _rows_and_logs(matrix)}

    def _power(self, place: int) -> tuple[Floats, Floats]:
        if place not in self._powers:
            power, logs = self._power(place - 1)
            for _ in range(3):
                weights, most = _scaled(power, logs[:, None, :])
                power, more = _rows_and_logs(weights @ power)
                logs = logs + most[:, :, 0] + more
            self._powers[place] = power, logs
        return self._powers[place]

    def told(self, states: Filtered, action: int, share: float) -> Filtered | None:
        """Return the present states if the step of an action goes on; None if no task has it.

        Args:
            states: The states at the present row, n = 1.
            action: Id of the action.
            share: Probability that the step began at this row, relative to all else.
        """
        before, logs = self.start.within, np.logaddexp.reduce(states.logs, axis=2)
        kept = np.exp(states.logs[:, :, 0] - np.where(np.isfinite(logs), logs, 0))[:, :, None]
        told = states.within * kept * (self.labels == action)
        begun = np.where(self.actions == action, share, 0.0)[None]
        places = self.entries[None]
        begun = begun + np.take_along_axis(told, places, axis=2)
        np.put_along_axis(told, places, begun, axis=2)
        sums = told.sum(axis=2)
        possible = (sums > 0) & np.isfinite(logs)
        if not possible.any():
            return None
        sums = np.where(possible, sums, 1.0)
        within = np.where(possible[:, :, None], told / sums[:, :, None], before)
        first = np.where(possible, logs + np.log(sums), -np.inf)
        return Filtered(within, np.stack([first, np.full_like(first, -np.inf)], axis=2), sums)

    def smoothed(self, likelihoods: Floats, filtered: Filtered | None = None) -> Smoothed:
        """Return what all rows together say of each one, by the likelihoods [n, K + 1].

        What was `filtered` from them is not computed again.
        """
        filtered, count = filtered or self.filtered(likelihoods), len(likelihoods)
        first = np.arange(len(self.actions))[:, None] * self.labels.shape[1] + self.entries
        rows, begun = np.empty((count, self.background + 1)), np.empty((count, *first.shape))
        end, tasks = count, np.zeros(len(self.actions))
        for joint in self.backward(filtered, likelihoods):
            if end == count:
                tasks = joint[-1].sum(axis=1)
            part = slice(end - len(joint), end)
            rows[part] = self.by_label(joint)
            begun[part] = joint.reshape(len(joint), -1).take(first, axis=1)
            end = part.start
        # A step begins at a row if its action is in its first phase there, and not since the row
        # before: α_t−1 (1 − q) · p(row t | label) of α_t. All do so at the first row.
        alphas = filtered.within.reshape(count, -1).take(first, axis=1)
        stayed = alphas[:-1] * (1 - self.leave) * likelihoods[1:, self.actions]
        whole = alphas[1:] * filtered.growth[1:, :, None]
        begun[1:] *= np.maximum(1 - stayed / np.maximum(whole, 1e-300), 0)
        begin = _summed(begun, self.actions, self.background + 1)[:, :-1]
        return Smoothed(rows, begin, tasks / tasks.sum())

    def backward(self, filtered: Filtered, likelihoods: Floats) -> Iterator[Floats]:
        """Yield p(state | all rows) [m, C, S] of m successive rows, the latest rows first.

        β_t−1 = M (p(row t | label) · β_t), and p(state of row t) ∝ α_t · β_t.

        Args:
            filtered: What was filtered at n rows.
            likelihoods: Their likelihoods [n, K + 1].
        """
        matrix, scale = self.matrix, np.zeros(len(self.actions))
        after = np.ones((*self.labels.shape, 1))  # β / e^scale of the task
        total = np.logaddexp.reduce(filtered.logs[-1], axis=None)  # log p(all rows)
        ended = np.zeros(len(likelihoods) + 1)  # log β of the end before each row
        ended[:-1] = np.log(likelihoods[::-1, self.background]).cumsum()[::-1]
        farthest = max(np.abs(np.log([likelihoods.min(), likelihoods.max()])).max(), 1.0)
        together = min(_TOGETHER, 1 + int(_RANGE / farthest))
        for end in range(len(likelihoods), 0, -together):
            rows = slice(max(end - together, 0), end)
            seen = likelihoods[rows][:, self.labels, None]
            afters = np.empty_like(seen)
            for place in range(len(seen) - 1, -1, -1):
                afters[place] = after
                after = matrix @ (after * seen[place])
            logs = filtered.logs[rows] - total
            joint = filtered.within[rows] * afters[..., 0]
            joint *= np.exp(logs[:, :, :1] + scale[:, None])
            joint[:, :, -1] = np.exp(logs[:, :, 1] + ended[rows.start + 1 : end + 1, None])
            yield joint
            most = after[:, :-1].max(axis=1)
            scale += np.log(most[:, 0])
            after /= most[:, None]
            after[:, -1, 0] = np.exp(ended[rows.start] - scale)

    def drawn(
        self, filtered: Floats, task: int, count: int, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        """Draw labels of rows [count, n] of a video of a task, given all rows.

        States are drawn from the last row to the first: p(state of row t | state of row t + 1) ∝
        α_t · M.

        Args:
            filtered: α, the states of the task at each row given the rows up to it [n, S].
            task: Id of the task.
            count: Number of sequences.
            generator: Draws them.
        """
        moves, size = np.ascontiguousarray(self.matrix[task].T), self.labels.shape[1]
        states = np.empty((len(filtered), count), dtype=np.int64)
        states[-1] = generator.choice(size, count, p=filtered[-1] / filtered[-1].sum())
        for row in range(len(filtered) - 2, -1, -1):
            sums = (filtered[row] * moves[states[row + 1]]).cumsum(axis=1)  # [count, S]
            drawn = generator.random(count) * sums[:, -1]
            states[row] = (sums[:, :-1] <= drawn[:, None]).sum(axis=1)
        labels: NDArray[np.int64] = self.labels[task][states].T
        return labels

    def next_states(self, filtered: Filtered) -> Floats:
        """Return p(task, next action) [n, C, A] by the present states, but no end."""
        count, size = self.actions.shape
        active, within = size * self.phases, filtered.within
        latest = within[:, :, active:-1].copy()  # [n, C, A + 1]
        latest[..., :size] += within[..., :active].reshape(-1, count, size, self.phases).sum(axis=3)
        logs = filtered.logs[:, :, 0, None]
        latest *= np.exp(logs - logs.max(axis=1, keepdims=True))
        ahead = (latest[:, :, None, :] @ self.transitions)[:, :, 0, :size]
        shares: Floats = ahead / np.maximum(ahead.sum(axis=(1, 2), keepdims=True), 1e-300)
        return shares

    def by_label(self, states: Floats) -> Floats:
        """Sum probabilities of states [n, C, S] by their labels [n, K + 1]."""
        return _summed(states, self.labels, self.background + 1)

    def summed(self, places: Floats) -> Floats:
        """Sum values of places [C, A] by their actions [K]."""
        sums = np.bincount(self.actions.ravel(), places.ravel(), self.background + 1)
        return sums[:-1].astype(np.float64)

    @classmethod
    def of_arrays(
        cls,
        arrays: dict[str, NDArray[Any]],
        task_actions: Sequence[Sequence[int]],
        action_count: int,
        *,
        place: str,
    ) -> Self:
        """Build from what `arrays` returned, for the tasks that `fit` was given.

        Raises:
            RunError: Other arrays; `place`, their file, begins the message.
        """
        count, size = len(task_actions), max(map(len, task_actions))
        places = (count, size + 1)
        expected = {
            "actions": Expected((count, size), 0, action_count, "i"),
            "log_tasks": Expected((count,), -1e3, 1e-9),
            "transitions": Expected((count, size + 1, size + 1), 0, 1),
            "entered": Expected((count, size), 0, MOST_PHASES - 1, "i"),
            "leave": Expected((count, size), 0, _MOST_LEAVE),
            "pause": Expected(places, 0, 1),
            "resume": Expected(places, 1e-12, _MOST_LEAVE),
            "phases": Expected((), 1, MOST_PHASES, "i"),
            "background": Expected((), action_count, action_count, "i"),
        }
        check_tensors(arrays, expected, place)
        actions = np.full((count, size), action_count)
        for task, ids in enumerate(task_actions):
            actions[task, : len(ids)] = ids
        known = np.append(actions < action_count, np.ones((count, 1), dtype=bool), axis=1)
        sums = arrays["transitions"].sum(axis=2)[known]
        for name, fits in (
            ("actions", np.array_equal(arrays["actions"], actions)),
            ("log_tasks", abs(np.exp(arrays["log_tasks"]).sum() - 1) < _NEAR),
            ("transitions", (np.abs(sums - 1) < _NEAR).all()),
            ("entered", (arrays["entered"] < arrays["phases"]).all()),
            ("leave", (arrays["leave"][known[:, :-1]] > 0).all()),
        ):
            if not fits:
                raise RunError(
                    f"{place}: tensor '{name}' does not fit the other ones and the tasks."
                )
        own = {column.name: arrays[column.name] for column in fields(cls)}
        values: dict[str, Any] = {
            name: array if array.ndim else array.item() for name, array in own.items()
        }
        return cls(**values)


@dataclass(frozen=True, eq=False)
class Smoothed:
    """What all rows of a video say of each row."""

    rows: Floats  # p(label of the row) [n, K + 1]
    begin: Floats  # p(a step of the action begins at the row) [n, K]
    tasks: Floats  # p(task) [C]


def _scaled(shares: Floats, logs: Floats) -> tuple[Floats, Floats]:
    """Return shares · e^logs [..., S] up to a factor, and its logarithm [..., 1]."""
    with np.errstate(divide="ignore"):
        weights = np.log(shares) + logs
    most = np.maximum(weights.max(axis=-1, keepdims=True), -1e300)  # no state: −∞
    return np.exp(weights - most), most


def _rows_and_logs(matrix: Floats) -> tuple[Floats, Floats]:
    """Return rows of a matrix [C, S, S] that sum to 1, or 0, and the logarithms of sums [C, S]."""
    sums = matrix.sum(axis=2)
    sums = np.where(sums > 0, sums, 1.0)
    rows = matrix / sums[:, :, None]
    return np.where(rows < _NEVER, 0.0, rows), np.log(sums)  # subnormal numbers are slow


def _shrunk(sums: Floats, counts: Floats) -> Floats:
    """Return means, shrunk to the mean of all."""
    pooled = sums.sum() / max(counts.sum(), 1)
    shrunk: Floats = (sums + _MEAN * pooled) / (counts + _MEAN)
    return shrunk


def _summed(values: Floats, labels: NDArray[np.int64], size: int) -> Floats:
    """Sum values [n, ...] of each row by their labels [...], of which there are `size`."""
    places = np.arange(len(values)).reshape(-1, *[1] * labels.ndim) * size + labels
    sums = np.bincount(places.ravel(), values.ravel(), len(values) * size)
    return sums.astype(np.float64).reshape(len(values), size)


def _normalised(rows: Floats) -> Floats:
    scaled: Floats = rows / np.maximum(rows.sum(axis=-1, keepdims=True), 1e-300)
    return scaled


def _transitions(pairs: Floats, task: int, ids: list[int], smoothing: float) -> Floats:
    """Return p(b | a) among the ids of a task, the last of which is the start or the end.

    n(a, b) + smoothing · frequency of b + what other tasks show of a, as at most a few videos.
    """
    own = pairs[task][np.ix_(ids, ids)]
    frequency = (own.sum(axis=0) + 0.5) / (own.sum() + 0.5 * len(ids))
    others = pairs.sum(axis=0)[np.ix_(ids, ids)] - own
    known = others.sum(axis=1, keepdims=True)
    shared = others / np.maximum(known, 1) * np.minimum(known, _SHARED)
    return _normalised(own + smoothing * len(ids) * frequency + shared)


def likelihoods(logs: Floats, trust: float, unexpected: float) -> Floats:
    """Return (p(label | x) / p(label)^γ)^λ + ε of rows [n, K + 1], up to a factor of each row.

    Args:
        logs: log p(label | x) − γ log p(label) [n, K + 1].
        trust: λ.
        unexpected: ε.
    """
    scaled: Floats = np.exp(trust * (logs - logs.max(axis=1, keepdims=True)))
    return scaled + unexpected


def softened(rows: Floats, temperature: float) -> Floats:
    """Return probabilities [..., K + 1] to the power 1 / T, that sum to 1 again."""
    powers = rows ** (1 / temperature)
    scaled: Floats = powers / powers.sum(axis=-1, keepdims=True)
    return scaled
