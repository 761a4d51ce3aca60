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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cefito.timeline.scores import Segment, segments

Floats = NDArray[np.float64]
_SHARED = 3.0  # transitions of other tasks count as at most so many
_MEAN = 2.0  # segments of mean duration, or videos, that each estimate is shrunk by
_AGAINST = 0.05  # factor of transitions against an order that is given
_MOST_LEAVE = 0.98  # greatest q, of an action that lasts one row


@dataclass(frozen=True, eq=False)
class StepChain:
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
            found = _transitions(pairs, task, [*own, background], smoothing)
            transitions[task][np.ix_(places, places)] = found
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

    def with_orders(self, orders: Mapping[int, Iterable[tuple[int, int]]]) -> Self:
        """Return the chain in which, of pairs of actions (a, b) of a task, a seldom follows b."""
        found = self.transitions.copy()
        for task, pairs in orders.items():
            place = {int(action): place for place, action in enumerate(self.actions[task])}
            for a, b in pairs:
                found[task, place[b], place[a]] *= _AGAINST
        return replace(self, transitions=_normalised(found))

    def of_plan(self, plan: Sequence[int], task: int) -> Self:
        """Return the chain of the one sequence of actions of a task, each once and in order."""
        place = {int(action): place for place, action in enumerate(self.actions[task])}
        own = [place[action] for action in plan]
        size = len(plan)
        after = np.zeros((1, size + 1, size + 1))
        after[0, np.arange(-1, size), np.arange(size + 1)] = 1  # the start, −1, comes first
        return replace(
            self,
            actions=np.array([plan]),
            log_tasks=np.zeros(1),
            transitions=after,
            entered=self.entered[task, own][None],
            leave=self.leave[task, own][None],
            # after the last step comes the rest of the video
            pause=np.append(self.pause[task, own[:-1]], [1.0, self.pause[task, -1]])[None],
            resume=self.resume[task, [*own, -1]][None],
        )

    @property
    def labels(self) -> NDArray[np.int64]:
        """Label of each state [C, S]; the number of actions K stands for the background."""
        return self._layout[0]

    @property
    def latest(self) -> NDArray[np.int64]:
        """Place of the action that each state is in or after [S]; A before the first step."""
        return self._layout[1]

    @cached_property
    def _layout(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        count, size = self.actions.shape
        active = np.repeat(self.actions, self.phases, axis=1)
        background = np.full((count, size + 2), self.background)
        latest = np.append(np.arange(size).repeat(self.phases), np.arange(size + 1))
        return np.concatenate([active, background], axis=1), np.append(latest, size)

    @property
    def lasting(self) -> Floats:
        """Mean rows of a step of each action [K + 1]: phases that it passes through / q."""
        found = np.zeros(self.background + 1)
        found[self.actions] = (self.phases - self.entered) / np.maximum(self.leave, 1e-9)
        return found

    @cached_property
    def start(self) -> Floats:
        """Probabilities of the states of the first row [C, S]."""
        size, start = self.actions.shape[1], np.zeros(self.labels.shape)
        begun = _normalised(self.transitions[:, size, :size])
        at_once = 1 - self.pause[:, size, None]
        np.put_along_axis(start, self.entries, begun * at_once, axis=1)
        start[:, size * self.phases + size] = self.pause[:, size]
        found: Floats = start * np.exp(self.log_tasks)[:, None]
        return found

    @property
    def entries(self) -> NDArray[np.int64]:
        """State in which each action begins [C, A]."""
        return np.arange(self.actions.shape[1]) * self.phases + self.entered

    @cached_property
    def entering(self) -> Floats:
        """Probabilities that a step begins at the next row, in each state [C, S, S]."""
        count, size = self.actions.shape
        found = np.zeros((count, *self.labels.shape[1:], self.labels.shape[1]))
        last = np.arange(size) * self.phases + self.phases - 1
        direct = (self.leave * (1 - self.pause[:, :size]))[:, :, None]
        waiting = size * self.phases + np.arange(size + 1)
        rows = np.concatenate(
            [
                direct * _normalised(self.transitions[:, :size, :size]),
                self.resume[:, :, None] * self.transitions[:, :, :size],
            ],
            axis=1,
        )  # [C, 2 A + 1, A], of the last phases and of the pauses
        for task in range(count):
            found[task][np.ix_([*last, *waiting], self.entries[task])] = rows[task]
        return found

    @cached_property
    def matrix(self) -> Floats:
        """M, probabilities of the state of the next row [C, S, S]."""
        size, found = self.actions.shape[1], self.entering.copy()
        active, end = size * self.phases, found.shape[1] - 1
        leave = np.repeat(self.leave, self.phases, axis=1)  # [C, A · P]
        states = np.arange(active)
        found[:, states, states] += 1 - leave
        inner = states[states % self.phases < self.phases - 1]
        found[:, inner, inner + 1] += leave[:, inner]
        last, waiting = states[self.phases - 1 :: self.phases], active + np.arange(size + 1)
        found[:, last, waiting[:-1]] += self.leave * self.pause[:, :size]
        found[:, waiting, waiting] += 1 - self.resume
        found[:, waiting, end] += self.resume * self.transitions[:, :, size]
        found[:, end, end] = 1
        return found

    def forward(self, likelihoods: Floats) -> Iterator[Floats]:
        """Yield the distribution of the states [C, S] at each row, given the rows up to it.

        α_t ∝ (α_t−1 M) · p(row t | label), by likelihoods [n, K + 1] up to a factor of each row.
        """
        found = self.start
        for place, row in enumerate(likelihoods):
            found = self.updated(found if place else None, row)
            yield found

    def updated(self, before: Floats | None, likelihoods: Floats) -> Floats:
        """Return the distribution after one more row; `before` is None at the first one."""
        ahead = self.start if before is None else (before[:, None, :] @ self.matrix)[:, 0]
        joint = ahead * likelihoods[self.labels]
        found: Floats = joint / joint.sum()
        return found

    def backward(self, after: Floats, likelihoods: Floats) -> Floats:
        """Return β_t = M (p(row t + 1 | label) · β_t+1) [C, S], up to a factor."""
        joint = (self.matrix @ (likelihoods[self.labels] * after)[:, :, None])[:, :, 0]
        found: Floats = joint / joint.max()
        return found

    def smoothed(self, likelihoods: Floats, *, finished: bool = False) -> Smoothed:
        """Return what all rows together say of each one, by the likelihoods [n, K + 1].

        If it is `finished`, the step at the last place of a task has begun at the last row.
        """
        alphas, after = list(self.forward(likelihoods)), np.ones(self.labels.shape)
        if finished:
            after *= (self.latest == self.actions.shape[1] - 1) | (
                np.arange(len(self.latest)) == len(self.latest) - 1
            )
        count = len(likelihoods)
        rows, begin = np.zeros((count, self.background + 1)), np.zeros((count, self.background))
        tasks = (alphas[-1] * after).sum(axis=1)
        tasks /= tasks.sum()
        for place in range(count - 1, -1, -1):
            both = alphas[place] * after
            rows[place] = self.by_label(both / both.sum())
            seen = likelihoods[place][self.labels] * after
            if place:
                flow = (alphas[place - 1][:, None, :] @ self.entering)[:, 0] * seen
                total = (alphas[place - 1] * (self.matrix @ seen[:, :, None])[:, :, 0]).sum()
                begin[place] = self.by_label(flow / total)[:-1]
                after = self.backward(after, likelihoods[place])
            else:
                begin[0] = rows[0, :-1]
        return Smoothed(rows, begin, tasks)

    def by_label(self, states: Floats) -> Floats:
        """Sum probabilities of states [C, S] by their labels [K + 1]."""
        sums = np.bincount(self.labels.ravel(), states.ravel(), self.background + 1)
        return sums.astype(np.float64)

    def next_states(self, states: Floats) -> Floats:
        """Return p(task, next action) [C, A] by a distribution of states [C, S], but no end."""
        count, size = self.actions.shape
        latest = np.zeros((count, size + 1))
        np.add.at(latest.T, self.latest[:-1], states.T[:-1])  # without the end
        ahead = (latest[:, None, :] @ self.transitions)[:, 0, :size]
        found: Floats = ahead / max(ahead.sum(), 1e-300)
        return found

    def summed(self, places: Floats) -> Floats:
        """Sum values of places [C, A] by their actions [K]."""
        sums = np.bincount(self.actions.ravel(), places.ravel(), self.background + 1)
        return sums[:-1].astype(np.float64)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all that `of_arrays` needs."""
        return {one.name: np.asarray(getattr(self, one.name)) for one in fields(self)}

    @classmethod
    def of_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Self:
        """Build from what `arrays` returned."""
        found = ((one.name, arrays[one.name]) for one in fields(cls))
        values: dict[str, Any] = {name: one if one.ndim else one.item() for name, one in found}
        return cls(**values)


@dataclass(frozen=True, eq=False)
class Smoothed:
    """What all rows of a video say of each row."""

    rows: Floats  # p(label of the row) [n, K + 1]
    begin: Floats  # p(a step of the action begins at the row) [n, K]
    tasks: Floats  # p(task) [C]


def _shrunk(sums: Floats, counts: Floats) -> Floats:
    """Return means, shrunk to the mean of all."""
    pooled = sums.sum() / max(counts.sum(), 1)
    shrunk: Floats = (sums + _MEAN * pooled) / (counts + _MEAN)
    return shrunk


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
