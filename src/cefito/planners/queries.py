"""What plans are asked for: pairs of observations, checked when they are put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.arrays import aligned
from cefito.data.windows import Windows
from cefito.errors import DataError

__all__ = ["LARGEST", "Queries"]

LARGEST = 1e12
"""Magnitude of a feature beyond which squares and their sums leave what float32 can hold.

Features of real models stay below a few thousand.
"""


_ARRAYS = ("initial", "goal", "tasks", "ends", "between")


@dataclass(frozen=True, eq=False)
class Queries:
    """What plans are asked for.

    Floating-point numbers of any precision are taken, and kept as float32.

    Attributes:
        initial: Initial observations, float32 [N, E].
        goal: Goal observations, float32 [N, E].
        tasks: The tasks, where they are known (oracle), int64 [N]; None to have them predicted.
        ends: The true first and last actions, for an oracle that is told them, int64 [N, 2]; None
            for all others.
        between: The true observations between the steps, for an oracle that sees them, float32
            [N, T - 1, E]; None for all others.

    Raises:
        DataError: Observations that are not floating-point numbers or not two arrays of one shape
            [N, E], a row that holds NaN, infinity or a number beyond `LARGEST`, tasks that are not
            N ids, ends that are not N pairs of ids, or observations between that are not [N, T - 1,
            E].
    """

    initial: NDArray[np.float32]
    goal: NDArray[np.float32]
    tasks: NDArray[np.int64] | None = None
    ends: NDArray[np.int64] | None = None
    between: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        for name in ("initial", "goal"):
            object.__setattr__(self, name, _observations(getattr(self, name), name))
        if self.initial.shape != self.goal.shape:
            raise DataError(
                f"queries: 'initial' has shape {list(self.initial.shape)} and 'goal' "
                f"{list(self.goal.shape)}; both must be the same [N, E]."
            )
        if self.tasks is not None:
            object.__setattr__(self, "tasks", _tasks(self.tasks, len(self)))
        if self.ends is not None:
            object.__setattr__(self, "ends", _ends(self.ends, len(self)))
        if self.between is not None:
            object.__setattr__(self, "between", _between(self.between, self.initial.shape))

    @classmethod
    def from_windows(
        cls,
        windows: Windows,
        *,
        oracle_task: bool = False,
        oracle_ends: bool = False,
        oracle_between: bool = False,
    ) -> Queries:
        """The windows' observations; their true tasks and ends only for an oracle.

        So are the observations between, which only windows have that were given them.
        """
        tasks = windows.tasks if oracle_task else None
        ends = windows.actions[:, [0, -1]] if oracle_ends else None
        return cls(
            initial=windows.initial,
            goal=windows.goal,
            tasks=tasks,
            ends=ends,
            between=windows.between if oracle_between else None,
        )

    def __len__(self) -> int:
        return len(self.initial)

    def __repr__(self) -> str:
        known = "unknown" if self.tasks is None else "known"
        return f"Queries({len(self)} of {self.initial.shape[1]} features, tasks {known})"

    def subset(self, rows: Sequence[int] | NDArray[np.integer[Any]]) -> Queries:
        """The queries of the given rows."""
        return self._part(np.asarray(rows, dtype=np.int64))

    def blocks(self, size: int) -> list[Queries]:
        """The same in order, at most `size` at a time; they share the arrays of these."""
        return [self._part(slice(first, first + size)) for first in range(0, len(self), size)]

    def _part(self, rows: NDArray[np.int64] | slice) -> Queries:
        given = {name: getattr(self, name) for name in _ARRAYS}
        return replace(
            self, **{name: part[rows] for name, part in given.items() if part is not None}
        )

    def check_tasks(self, known: int) -> None:
        """Refuse tasks that a planner does not know.

        Args:
            known: Number of tasks that it knows.

        Raises:
            DataError: A task beyond these; the message names the first row.
        """
        if self.tasks is None:
            return
        beyond = np.flatnonzero(self.tasks >= known)
        if len(beyond):
            raise DataError(
                f"queries, 'tasks', row {beyond[0]} (counted from 0): is {self.tasks[beyond[0]]}; "
                f"the run knows 0 to {known - 1}."
            )

    def check_ends(self, known: int) -> None:
        """Refuse first and last actions that a planner does not know.

        Args:
            known: Number of actions that it knows.

        Raises:
            DataError: An action beyond these; the message names the first row.
        """
        if self.ends is None:
            return
        beyond = np.flatnonzero((self.ends >= known).any(axis=1))
        if len(beyond):
            raise DataError(
                f"queries, 'ends', row {beyond[0]} (counted from 0): are "
                f"{self.ends[beyond[0]].tolist()}; the run knows the actions 0 to {known - 1}."
            )

    def with_task(self, task: int) -> Queries:
        """The same queries, all of one known task."""
        return replace(self, tasks=np.full(len(self), task, dtype=np.int64))


def _observations(given: Any, name: str) -> NDArray[np.float32]:
    place = f"queries, '{name}'"
    try:
        array = np.asarray(given)
    except ValueError as problem:  # rows of different lengths
        raise DataError(f"{place}: is no array ({problem}). Give numbers [N, E].") from problem
    if array.dtype.kind != "f":
        raise DataError(
            f"{place}: holds values of type {array.dtype}; expected floating-point numbers. "
            "Convert them, for example with astype('float32')."
        )
    if array.ndim != 2 or array.shape[1] == 0:
        raise DataError(
            f"{place}: has shape {list(array.shape)}; expected [N, E], one row a query. A single "
            "observation x is x[None]."
        )
    for row, values in enumerate(array):  # one by one: no copy of all
        wide = values.astype(np.float64)
        if not (np.abs(wide) <= LARGEST).all():  # NaN is never below
            value = wide[~(np.abs(wide) <= LARGEST)][0]
            what = f"{value:g}, which is too large to compute with" if np.isfinite(value) else value
            raise DataError(
                f"{place}, row {row} (counted from 0): holds {what}. Extract its features again or "
                "leave the query out."
            )
    return aligned(np.asarray(array, dtype=np.float32))


def _between(given: Any, shape: tuple[int, ...]) -> NDArray[np.float32]:
    between = np.asarray(given)
    count, features = shape
    if between.ndim != 3 or (len(between), between.shape[2]) != shape:
        raise DataError(
            f"queries, 'between': has shape {list(between.shape)}; expected [{count}, T - 1, "
            f"{features}], what was observed between the steps of each query."
        )
    flat = _observations(between.reshape(count * between.shape[1], features), "between")
    return flat.reshape(between.shape)


def _tasks(given: Any, count: int) -> NDArray[np.int64]:
    tasks = np.asarray(given)
    if tasks.shape != (count,) or (tasks.dtype.kind not in "iu" and count):
        raise DataError(
            f"queries, 'tasks': has shape {list(tasks.shape)} and type {tasks.dtype}; expected "
            f"{count} whole numbers, the id of each query's task."
        )
    if count and int(tasks.min()) < 0:
        row = int(tasks.argmin())
        raise DataError(
            f"queries, 'tasks', row {row} (counted from 0): is {tasks[row]}; expected the id of a "
            "task, or no tasks at all to have them predicted."
        )
    return tasks.astype(np.int64, copy=False)


def _ends(given: Any, count: int) -> NDArray[np.int64]:
    ends = np.asarray(given)
    if ends.shape != (count, 2) or (ends.dtype.kind not in "iu" and count):
        raise DataError(
            f"queries, 'ends': has shape {list(ends.shape)} and type {ends.dtype}; expected "
            f"[{count}, 2] whole numbers, the ids of each query's first and last action."
        )
    if count and int(ends.min()) < 0:
        row = int(ends.min(axis=1).argmin())
        raise DataError(
            f"queries, 'ends', row {row} (counted from 0): are {ends[row].tolist()}; expected ids "
            "of actions, or no ends at all."
        )
    return ends.astype(np.int64, copy=False)
