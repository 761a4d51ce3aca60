"""What is usual: n-grams of the steps of whole videos, and their weight beside the network.

Let h be the steps done, d and c the last two of them, and s a state: a task t and its action a. The
n-grams of whole training videos, whose first step follows the start, give

    p_u(s | h) ∝ p(t) Π_i p(h_i | h_i−2, h_i−1, t) · p₃(a | d, c, t)        (p₁ if h is unknown)

Where there is no initial observation, the first state of a plan is drawn from the log-linear pool
(Genest and Zidek 1986, "Combining probability distributions") with the network's distribution p_n

    log p(s) = a log p_n(s) + b log p_u(s | h) + r [a was done] + constant

For each kind of what is known, a, b and r maximise the likelihood of validation videos, times their
normal priors. First steps vary less than later ones, and each video has only one. So their
smoothing is chosen by first steps alone, by cross-validation over all videos, and their pool has
the network only if it clearly helps.

The number of steps left, L, is counted after the last step done c and after n steps done:

    p_u(L | t, h) ∝ p(L | t, c) p(L | t, n) / p(L | t)

each smoothed by the one of fewer conditions. If nothing but the steps done is known, the length is
drawn from a pool with the network's, p(L | t, h) ∝ p_n(L | h)^a p_u(L | t, h)^b.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from cefito.data.windows import Windows, padded_rows
from cefito.planners.chain.states import TaskStates
from cefito.search.prior import GRID, START, NGramPrior, check_counts, chosen_smoothing

Weights = tuple[float, float, float]
NETWORK: Weights = (1.0, 0.0, 0.0)
"""Weights a, b and r of the network alone."""
COUNTED: Weights = (0.0, 1.0, 0.0)
"""Weights of the n-grams alone."""
CENTRES: dict[str, Weights] = {
    "begin": (0.1, 1.0, 0.0),
    "nothing": (0.2, 0.9, 0.0),
    "goal": (0.5, 0.6, 0.0),
    "unknown": (0.4, 1.0, 0.0),
}
"""Centres of the priors of the weights, by what is seen beside the steps done, in this order.

"begin": nothing is seen or done yet; "unknown": nothing is seen, and the steps done are not known.
"""
LENGTH, LENGTH_CENTRE = "length", (0.2, 0.9, 0.0)
"""The pool of the length, and the centre of the priors of its weights."""
_FOREIGN = 0.01
"""Probability that a step done is of no task, so that it tells nothing of the task."""
_LEAST = -30.0
"""Log-probability that the network gives a state at least."""
_SPREAD = 0.5
"""Deviation of the normal priors of the weights."""
_STRENGTHS = (0.5, 5.0, 2.0)
"""Steps that the smoothing of p(L | t), p(L | t, c) and p(L | t, n) counts as."""
FOLDS = 5
"""Parts of the videos that are held out in turn."""
_SMOOTHING = ("strengths", "settings")  # arrays of a prior that say how it smooths
_COUNTS = ("left_after", "left_at")


def whole_videos(windows: Windows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the actions of whole videos [V, D], −1 after the last, and their tasks [V].

    Windows without the steps before them count as videos.
    """
    if windows.before is None:
        return windows.actions, windows.tasks
    ends = windows.start + windows.lengths
    order = ends.argsort(kind="stable")  # the window that reaches the furthest comes last
    rows = list(dict(zip(windows.video[order].tolist(), order.tolist(), strict=True)).values())
    joined = np.concatenate([windows.before[rows], windows.actions[rows]], axis=1)
    return padded_rows([row[row >= 0].tolist() for row in joined]), windows.tasks[rows]


@dataclass(frozen=True, eq=False)
class Usual:
    """Smoothed n-grams of the steps of whole videos of each task."""

    prior: NGramPrior
    first: NGramPrior  # the same with other smoothing, for the first step
    left_after: NDArray[np.int64]  # how often L steps followed action c, or none, [C, K + 1, L]
    left_at: NDArray[np.int64]  # how often L steps followed n steps [C, N, L]
    states: TaskStates

    @classmethod
    def fit(
        cls,
        states: TaskStates,
        train: Windows,
        val: Windows,
        lengths: range,
        learned: Usual | None = None,
    ) -> Self:
        """Count training videos, and choose order and strengths by validation videos.

        Args:
            states: States of all tasks.
            train: Windows of all lengths.
            val: Validation windows.
            lengths: Lengths of plans.
            learned: Counts that are added, over some of these states.
        """
        (videos, tasks), (val_videos, val_tasks) = whole_videos(train), whole_videos(val)
        possible = (states.lookup >= 0).cpu().numpy()  # [C, K]
        val_videos = padded_rows(
            [
                [action for action in row if action >= 0 and possible[task, action]]
                for row, task in zip(val_videos.tolist(), val_tasks, strict=True)
            ]
        )
        before = None if learned is None else learned.prior
        prior = NGramPrior.tuned(
            videos,
            tasks,
            action_count=states.lookup.shape[1],
            actions=states.by_task(),
            val_sequences=val_videos,
            val_tasks=val_tasks,
            learned=before,
        )
        sequences = padded_rows([*videos.tolist(), *val_videos.tolist()])
        of, fold = np.concatenate([tasks, val_tasks]), np.arange(len(sequences)) % FOLDS
        begun = possible[of, sequences[:, 0]] & (sequences[:, 0] >= 0)
        parts = [
            (
                _counted(states, sequences[fold != held], of[fold != held], learned=before).levels,
                sequences[(fold == held) & begun, :1],
                of[(fold == held) & begun],
            )
            for held in range(FOLDS)
        ]
        order, strengths = chosen_smoothing(parts, orders=(1, 2), grid=GRID)
        first = _counted(states, videos, tasks, order=order, strengths=strengths, learned=before)
        return cls(prior, first, *_counts_left(videos, tasks, states, lengths, learned), states)

    def with_more(self, windows: Windows) -> Usual:
        """Return the n-grams of more videos, with the same order and strengths."""
        videos, tasks = whole_videos(windows)
        prior, first = (
            _counted(
                self.states, videos, tasks, order=old.order, strengths=old.strengths, learned=old
            )
            for old in (self.prior, self.first)
        )
        lengths = range(windows.horizon + 1 - self.left_at.shape[2], windows.horizon + 1)
        left = _counts_left(videos, tasks, self.states, lengths, self)
        return Usual(prior, first, *left, self.states)

    @property
    def log_tasks(self) -> NDArray[np.float64]:
        """Logarithm of p(task) [C] by the number of its videos, plus a half."""
        videos = self.left_at[:, 0].sum(axis=1) + 0.5
        return np.asarray(np.log(videos / videos.sum()))

    def log_states(self, done: NDArray[np.int64] | None, count: int) -> Tensor:
        """Return log p_u(state | steps done) [B, S].

        Args:
            done: Action ids of B queries, oldest first, −1 for none, [B, D]; None if unknown.
            count: B.
        """
        tasks, actions = (
            tensor.cpu().numpy() for tensor in (self.states.tasks, self.states.actions)
        )
        log_tasks = np.tile(self.log_tasks, (count, 1))
        if done is None:
            shares = np.tile(self.prior.levels.single(tasks, actions), (count, 1))
        else:
            all_tasks = np.arange(self.states.task_count)
            possible = self.states.lookup.cpu().numpy() >= 0  # [C, K]
            before = np.full((count, 2), START)  # the last two steps, d and c
            for step in done.T:
                there = step >= 0
                ids = np.where(there, step, 0)[:, None]
                likelihood = self._after(all_tasks, before, ids)  # [B, C]
                likelihood = (
                    np.where(possible[all_tasks, ids], (1 - _FOREIGN) * likelihood, 0)
                    + _FOREIGN / possible.shape[1]
                )
                log_tasks += np.where(there[:, None], np.log(likelihood), 0.0)
                moved = np.concatenate([before[:, 1:], ids], axis=1)
                before = np.where(there[:, None], moved, before)
            shares = self._after(tasks, before, actions)  # [B, S]
        logs = torch.from_numpy(log_tasks[:, tasks] + np.log(shares))
        return logs.log_softmax(dim=1).float().to(self.states.actions.device)

    def _after(
        self, tasks: NDArray[np.int64], before: NDArray[np.int64], actions: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return p(action | task, two steps before) [B, N], given tasks [N] and `before` [B, 2]."""
        d, c = before[:, :1], before[:, 1:]
        later, first = (
            prior.levels.after(tasks, d, c, actions) for prior in (self.prior, self.first)
        )
        return np.where(c == START, first, later)

    def log_lengths(self, last: NDArray[np.int64], number: NDArray[np.int64]) -> Tensor:
        """Return log p_u(steps left | task, last step done or `START`, number) [B, C, L]."""
        alone, after, at = _STRENGTHS
        of_task = self.left_at.sum(axis=1)  # [C, L]
        of_task = _smoothed(
            of_task, alone, _smoothed(of_task.sum(axis=0), 1.0, 1 / of_task.shape[1])
        )
        of_task = of_task[:, None]
        number = number.clip(max=self.left_at.shape[1] - 1)
        logs = (
            np.log(_smoothed(self.left_after[:, last], after, of_task))  # START is the last place
            + np.log(_smoothed(self.left_at[:, number], at, of_task))
            - np.log(of_task)
        )
        rows = torch.from_numpy(logs).transpose(0, 1).log_softmax(dim=2)
        return rows.float().to(self.states.actions.device)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return arrays for a safetensors file; `from_arrays` is the inverse."""
        smoothing = {f"first.{name}": self.first.to_arrays()[name] for name in _SMOOTHING}
        counts = {name: getattr(self, name).astype(np.int32) for name in _COUNTS}
        return {**self.prior.to_arrays(), **smoothing, **counts, "log_tasks": self.log_tasks}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], states: TaskStates) -> Self:
        """Make it from the arrays of `to_arrays`."""
        first = {**arrays, **{name: arrays[f"first.{name}"] for name in _SMOOTHING}}
        priors = NGramPrior.from_arrays(arrays), NGramPrior.from_arrays(first)
        check_counts(arrays, _COUNTS)
        left_after, left_at = (arrays[name] for name in _COUNTS)
        tasks, actions = states.lookup.shape
        if len(left_at) != tasks or left_after.shape[:2] != (tasks, actions + 1):
            raise ValueError("counts of the steps left do not fit the actions and tasks")
        return cls(*priors, left_after, left_at, states)


def _counted(
    states: TaskStates, videos: NDArray[np.int64], tasks: NDArray[np.int64], **smoothing: Any
) -> NGramPrior:
    """Count the steps of videos [V, D] of tasks [V] to the actions of these tasks."""
    actions, count = states.by_task(), states.lookup.shape[1]
    return NGramPrior.fit(videos, tasks, action_count=count, actions=actions, **smoothing)


def _smoothed(
    counts: NDArray[Any], strength: float, others: NDArray[np.float64] | float
) -> NDArray[np.float64]:
    """Return (n(L) + s p(L)) / (Σ n + s) of counts n [..., L]."""
    return np.asarray((counts + strength * others) / (counts.sum(-1, keepdims=True) + strength))


def _counts_left(
    videos: NDArray[np.int64],
    tasks: NDArray[np.int64],
    states: TaskStates,
    lengths: range,
    before: Usual | None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the steps left after each action and at each place of videos [V, D] of tasks [V].

    Add the counts of `before`, if it is given.
    """
    (count, action_count), total = states.lookup.shape, (videos >= 0).sum(axis=1, keepdims=True)
    left = total - np.arange(videos.shape[1])  # before each step [V, D]
    last = np.pad(videos[:, :-1], ((0, 0), (1, 0)), constant_values=START)
    rows, places = np.nonzero(left >= lengths[0])
    of = tasks[rows], left[rows, places].clip(max=lengths[-1]) - lengths[0]
    after = np.zeros((count, action_count + 1, len(lengths)), np.int64)
    longest = videos.shape[1] if before is None else max(videos.shape[1], before.left_at.shape[1])
    at = np.zeros((count, longest, len(lengths)), np.int64)
    np.add.at(after, (of[0], last[rows, places], of[1]), 1)
    np.add.at(at, (of[0], places, of[1]), 1)
    if before is not None:
        tasks_before, actions_before = before.states.lookup.shape
        after[:tasks_before, :actions_before] += before.left_after[:, :-1]
        after[:tasks_before, START] += before.left_after[:, START]  # the last place
        at[:tasks_before, : before.left_at.shape[1]] += before.left_at
    return after, at


def pooled(logs: Tensor, usual: Tensor, done: Tensor, weights: Tensor) -> Tensor:
    """Return the pool [B, S] of log p_n, log p_u and the steps done [B, S], by weights [B, 3].

    Args:
        logs: log p_n [B, S].
        usual: log p_u [B, S].
        done: Whether the action of each state was done [B, S].
        weights: a, b and r of each query [B, 3].
    """
    a, b, r = weights.T[:, :, None]
    pool: Tensor = a * logs.clamp_min(_LEAST) + b * usual + r * done
    return pool.log_softmax(dim=1)


def fitted_pool(
    parts: Sequence[Tensor], target: Tensor, *, videos: int, centre: Weights
) -> Weights:
    """Return the weights of the greatest likelihood of true states [N], under their priors.

    Args:
        parts: log p_n, log p_u and the steps done, [N, S] each.
        target: True states [N].
        videos: Number of videos, each of which counts as one observation.
        centre: Centres of these priors.
    """
    from scipy.optimize import minimize

    if not len(target):
        return centre

    def loss(values: NDArray[np.float64]) -> float:
        misfit = -float(_log_true(parts, target, values).mean())
        return videos * misfit + float(np.square((values - centre) / _SPREAD).sum()) / 2

    optimum = minimize(loss, np.array(centre), method="L-BFGS-B").x
    return float(optimum[0]), float(optimum[1]), float(optimum[2])


def first_pool(parts: Sequence[Tensor], target: Tensor, *, centre: Weights) -> Weights:
    """Return the weights for the first steps of N videos, arguments as of `fitted_pool`.

    They are `COUNTED` unless the fitted ones gain more than their standard error on videos held out
    in turn: one step of each video says little of the network's weight.

    Args:
        parts: log p_n, log p_u and the steps done, [N, S] each.
        target: True states [N].
        centre: Centres of the weights' priors.
    """
    gains, fold = torch.zeros(len(target), dtype=torch.float64), torch.arange(len(target)) % FOLDS
    for held in fold.unique():
        (rows, held_target), (kept, others) = (
            ([tensor[chosen] for tensor in parts], target[chosen])
            for chosen in (fold == held, fold != held)
        )
        weights = fitted_pool(kept, others, videos=len(others), centre=centre)
        gains[fold == held] = _log_true(rows, held_target, weights) - _log_true(
            rows, held_target, COUNTED
        )
    if len(gains) > 1 and gains.mean() < gains.std() / len(gains) ** 0.5:
        return COUNTED
    return fitted_pool(parts, target, videos=len(target), centre=centre)


def _log_true(parts: Sequence[Tensor], target: Tensor, weights: Any) -> Tensor:
    """Return the log-probability of true states [N] under the pool of weights [3]."""
    logs, usual, done = (tensor.double() for tensor in parts)
    rows = torch.tensor(weights, dtype=torch.float64).expand(len(target), 3)
    return -F.nll_loss(pooled(logs, usual, done, rows), target, reduction="none")
