"""Queries of planners: pairs of observations, checked when they are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cefito.arrays import row_numbers
from cefito.data.prepared import Scene
from cefito.data.windows import Windows
from cefito.errors import DataError, RunError
from cefito.files import aligned
from cefito.planners.given import Given

if TYPE_CHECKING:
    from torch import Tensor

LARGEST = 1e12
"""Largest magnitude of a feature: squares and their sums must fit in float32.

Features of real models stay below a few thousand.
"""
_ARRAYS = ("initial", "goal", "tasks", "seen", "done", "elapsed", "scenes")


@dataclass(frozen=True, eq=False)
class Queries:
    """Pairs of observations to plan between.

    Floating-point numbers of any precision are accepted, and kept as float32.

    Args:
        initial: Initial observations [N, E].
        goal: Goal observations [N, E].
        tasks: Ids of the true tasks [N]; None to have them predicted.
        seen: Whether the initial observation and the goal are known [N, 2]; None if all are. The
            rows of unknown observations are never read.
        done: Ids of the actions done before the plan, oldest first, padded with −1 [N, D]; a row of
            −1 alone if nothing was done yet; None if unknown.
        elapsed: Seconds between both observations [N], NaN if unknown; None if all are unknown.
        scenes: `Scene` of both observations [N, 2]; None if there are no pictures.

    Raises:
        DataError: An array of another type or shape, a value that is NaN, infinite or beyond
            `LARGEST`, a negative id, or a time that is not positive, or not between two known
            observations.
    """

    initial: NDArray[np.floating[Any]]
    goal: NDArray[np.floating[Any]]
    tasks: NDArray[np.int64] | None = None
    seen: NDArray[np.bool_] | None = None
    done: NDArray[np.int64] | None = None
    elapsed: NDArray[np.float32] | None = None
    scenes: NDArray[np.object_] | None = None

    def __post_init__(self) -> None:
        for name in ("initial", "goal"):
            object.__setattr__(self, name, _observations(getattr(self, name), name))
        if self.initial.shape != self.goal.shape:
            raise DataError(
                f"queries: 'initial' has shape {list(self.initial.shape)} and 'goal' "
                f"{list(self.goal.shape)}; both must be the same [N, E]."
            )
        count = len(self)
        if self.tasks is not None:
            object.__setattr__(self, "tasks", _tasks(self.tasks, count))
        if self.seen is not None:
            expected = f"booleans [{count}, 2], for the initial observation and the goal"
            _shaped(self.seen, "seen", (count, 2), "b", expected)
        if self.done is not None:
            words = f"whole numbers [{count}, D], the ids of the actions done before each query"
            done = _shaped(self.done, "done", (count, None), "iu", words)
            object.__setattr__(self, "done", done.astype(np.int64, copy=False))
        if self.elapsed is not None:
            object.__setattr__(self, "elapsed", _elapsed(self.elapsed, self.known))

    @classmethod
    def partial(
        cls,
        *,
        size: int,
        initial: NDArray[np.floating[Any]] | None = None,
        goal: NDArray[np.floating[Any]] | None = None,
        done: Sequence[int] | None = None,
    ) -> Queries:
        """Return one query of the observations [E] that are known.

        Args:
            size: E, for observations that are not known.
            initial: Observation before the first step.
            goal: Observation after the last step.
            done: Actions done before, oldest first, none if nothing was done yet; None if unknown.
        """
        observations = (initial, goal)
        rows = [
            np.zeros(size, np.float32) if observation is None else np.asarray(observation)
            for observation in observations
        ]
        seen = [observation is not None for observation in observations]
        return cls(
            initial=rows[0][None],
            goal=rows[1][None],
            seen=None if all(seen) else np.array([seen]),
            done=None if done is None else np.array([list(done)], dtype=np.int64),
        )

    @classmethod
    def from_windows(cls, windows: Windows, **flags: bool) -> Queries:
        """Return the windows' observations, and what else is given, by fields of `Given`.

        Observations between the steps must have been loaded into the windows.

        Raises:
            ConfigError: An unknown field.
            DataError: Windows without a stored task.
        """
        told = Given.of(**flags)
        tasks = windows.tasks if told.oracle_task else None
        if told.stored_task:
            tasks = windows.predicted
            if tasks is None or (tasks < 0).any():
                missing = len(windows) if tasks is None else int((tasks < 0).sum())
                raise DataError(
                    f"{windows.dataset}: {missing} of {len(windows)} windows of split "
                    f"'{windows.split}' and T = {windows.horizon} have no stored task prediction. "
                    "Prepare the data set from window files with predictions, and rewrite steps "
                    "beyond the features if some were dropped.",
                    setting="stored_task",
                )
        return cls(
            initial=windows.initial,
            goal=windows.goal,
            tasks=tasks,
            seen=np.tile([True, False], (len(windows), 1)) if told.without_goal else None,
            done=windows.before if told.after_done else None,
            elapsed=windows.elapsed if told.with_elapsed else None,
            scenes=windows.scenes,
        )

    @classmethod
    def concatenate(cls, several: Sequence[Queries]) -> Queries:
        """Concatenate queries by rows, all with the same `extras`."""
        if len(several) == 1:
            return several[0]
        arrays = {
            name: [array for queries in several if (array := getattr(queries, name)) is not None]
            for name in _ARRAYS
        }
        if arrays["seen"]:
            arrays["seen"] = [queries.known for queries in several]
        widest = max((array.shape[1] for array in arrays["done"]), default=0)
        arrays["done"] = [
            np.pad(array, ((0, 0), (0, widest - array.shape[1])), constant_values=-1)
            for array in arrays["done"]
        ]
        return cls(**{name: np.concatenate(parts) for name, parts in arrays.items() if parts})

    def __len__(self) -> int:
        return len(self.initial)

    def __repr__(self) -> str:
        tasks = "unknown" if self.tasks is None else "known"
        return f"Queries({len(self)} of {self.initial.shape[1]} features, tasks {tasks})"

    def subset(self, rows: Sequence[int] | NDArray[np.integer[Any]]) -> Queries:
        """Return the queries of the given rows."""
        return self._part(row_numbers(rows))

    def blocks(self, size: int) -> list[Queries]:
        """Split into blocks of at most `size` queries."""
        if 0 < len(self) <= size:
            return [self]
        return [self._part(slice(first, first + size)) for first in range(0, len(self), size)]

    def _part(self, rows: NDArray[np.int64] | slice) -> Queries:
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        return replace(
            self, **{name: array[rows] for name, array in arrays.items() if array is not None}
        )

    def check_ids(self, name: str, count: int) -> None:
        """Refuse tasks or steps done with ids from `count` on (DataError)."""
        ids = getattr(self, name)
        if ids is None:
            return
        beyond = np.flatnonzero((ids >= count).any(axis=tuple(range(1, ids.ndim))))
        if len(beyond):
            actions = "" if name == "tasks" else " the actions"
            raise DataError(
                f"queries, '{name}', row {beyond[0]} (counted from 0): {ids[beyond[0]].tolist()}; "
                f"the run knows{actions} 0 to {count - 1}."
            )

    @property
    def extras(self) -> tuple[str, ...]:
        """Names of the arrays besides observations; queries can be joined if these are equal."""
        names = ("tasks", "done", "elapsed", "scenes")
        return tuple(name for name in names if getattr(self, name) is not None)

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether the initial observation and the goal are known [N, 2]."""
        return np.ones((len(self), 2), dtype=np.bool_) if self.seen is None else self.seen

    @property
    def empty(self) -> NDArray[np.bool_]:
        """Whether neither an observation, nor the task, nor a step done before is known [N]."""
        if self.seen is None or self.tasks is not None:
            return np.zeros(len(self), dtype=np.bool_)
        done = False if self.done is None else (self.done >= 0).any(axis=1)
        return np.asarray(~(self.seen.any(axis=1) | done))

    @property
    def whole(self) -> bool:
        """Whether every query has both observations, and it is unknown which steps were done."""
        return self.done is None and (self.seen is None or bool(self.seen.all()))

    def with_task(self, task: int) -> Queries:
        """Return the same queries, all of one known task."""
        return replace(self, tasks=np.full(len(self), task, dtype=np.int64))

    def with_done(self, done: Sequence[int]) -> Queries:
        """Return the same queries, all after the same actions, oldest first."""
        row = np.array(done, dtype=np.int64)
        return replace(self, done=np.tile(row, (len(self), 1)))

    def with_elapsed(self, seconds: float) -> Queries:
        """Return the same queries, all with this time between both observations."""
        return replace(self, elapsed=np.full(len(self), seconds, dtype=np.float32))

    def with_scenes(self, *scenes: Scene | None) -> Queries:
        """Return one query with the places of both its pictures, as it is if one is None."""
        if None in scenes:
            return self
        return replace(self, scenes=np.array([scenes], dtype=object))

    def with_goal(self, goal: NDArray[np.floating[Any]]) -> Queries:
        """Return the same queries, all with the same goal observation [E]."""
        seen = np.stack([self.known[:, 0], np.ones(len(self), dtype=np.bool_)], axis=1)
        return replace(self, goal=np.tile(goal, (len(self), 1)), seen=None if seen.all() else seen)


def _observations(raw: Any, name: str) -> NDArray[np.float32]:
    place = f"queries, '{name}'"
    try:
        array = np.asarray(raw)
    except ValueError as problem:  # rows of different lengths
        raise DataError(f"{place}: is not an array ({problem}). Give numbers [N, E].") from problem
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
    lowest, highest = float(array.min(initial=0)), float(array.max(initial=0))
    if not (lowest >= -LARGEST and highest <= LARGEST):  # also for NaN
        wide = array.astype(np.float64)
        row, column = np.argwhere(~(np.abs(wide) <= LARGEST))[0]
        value = wide[row, column]
        what = f"{value:g}, which is too large to compute with" if np.isfinite(value) else value
        raise DataError(
            f"{place}, row {row} (counted from 0): holds {what}. Extract its features again or "
            "leave the query out."
        )
    return aligned(np.asarray(array, dtype=np.float32))


def _shaped(
    raw: Any, name: str, shape: tuple[int | None, ...], kinds: str, expected: str
) -> NDArray[Any]:
    """Refuse an array of another shape (None for any size), or of types of other kinds."""
    array = np.asarray(raw)
    fits = len(shape) == array.ndim and all(
        size in (None, length) for size, length in zip(shape, array.shape, strict=True)
    )
    if not fits or (array.dtype.kind not in kinds and array.size):
        raise DataError(
            f"queries, '{name}': has shape {list(array.shape)} and type {array.dtype}; expected "
            f"{expected}."
        )
    return array


def _tasks(raw: Any, count: int) -> NDArray[np.int64]:
    words = "the id of each query's task"
    ids = _shaped(raw, "tasks", (count,), "iu", f"whole numbers [{count}], {words}")
    negative = np.flatnonzero(ids < 0)
    if len(negative):
        raise DataError(
            f"queries, 'tasks', row {negative[0]} (counted from 0): {ids[negative[0]]}; expected "
            f"{words}, or None."
        )
    return ids.astype(np.int64, copy=False)


def _elapsed(raw: Any, seen: NDArray[np.bool_]) -> NDArray[np.float32]:
    expected = f"seconds [{len(seen)}], floating-point numbers"
    elapsed = _shaped(raw, "elapsed", seen.shape[:1], "f", expected)
    there = ~np.isnan(elapsed)
    wrong = np.flatnonzero(there & ~((elapsed > 0) & np.isfinite(elapsed)))
    if len(wrong):
        raise DataError(
            f"queries, 'elapsed', row {wrong[0]} (counted from 0): {elapsed[wrong[0]]:g}; expected "
            "the seconds between both observations, above 0."
        )
    if (there & ~seen.all(axis=1)).any():
        raise DataError(
            "queries, 'elapsed': the time between two observations of which one is unknown. Leave "
            "it out, or give both."
        )
    return elapsed.astype(np.float32, copy=False)


def finite_outputs(values: Tensor, title: str) -> Tensor:
    """Return finite outputs [N, ...], else raise a `RunError` that names the first query."""
    finite = values.isfinite().flatten(1).all(dim=1)
    if not bool(finite.all()):
        row = int((~finite).nonzero()[0])
        raise RunError(
            f"query {row} (counted from 0): the {title} gives NaN or infinity. Give observations "
            "extracted as those of the run were; if they are, the run's weights are damaged: train "
            "it again."
        )
    return values
