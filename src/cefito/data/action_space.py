"""Which actions each task may use when it is planned for: A(c)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cefito.data.taxonomy import Taxonomy
from cefito.data.windows import Windows
from cefito.errors import DataError

__all__ = ["ActionSpace", "action_space", "extended_space"]


@dataclass(frozen=True)
class ActionSpace:
    """The allowed actions of every task.

    Attributes:
        actions: Ascending action ids, position = task id.
        source: "training" (paper, Sec. 3.3) or "taxonomy" (released code).
        fallback: Tasks without training windows, which were given all actions that the taxonomy
            lists for them.
    """

    actions: tuple[tuple[int, ...], ...]
    source: Literal["training", "taxonomy"]
    fallback: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON; `from_dict` reads it back."""
        return {
            "source": self.source,
            "fallback": list(self.fallback),
            "actions": [list(row) for row in self.actions],
        }

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> ActionSpace:
        """From what `to_dict` gave."""
        return cls(
            actions=tuple(tuple(row) for row in value["actions"]),
            source=value["source"],
            fallback=tuple(value["fallback"]),
        )


def action_space(train: Windows, source: Literal["training", "taxonomy"]) -> ActionSpace:
    """Derive A(c) for all tasks.

    Args:
        train: Training windows.
        source: Where actions come from; tasks without training windows fall back to the taxonomy in
            either case.

    Raises:
        DataError: A task has no actions in the taxonomy either.
    """
    taxonomy: Taxonomy = train.taxonomy
    rows, fallback = [], []
    for task in taxonomy.tasks:
        seen = train.actions[train.tasks == task.id]
        if not len(seen):
            fallback.append(task.id)
        rows.append(
            tuple(int(action) for action in np.unique(seen))
            if len(seen) and source == "training"
            else task.actions
        )
        if not rows[-1]:
            raise DataError(
                f"task {task.id} ('{task.name}') has neither training windows nor actions in the "
                "taxonomy. Give it actions there or remove it."
            )
    return ActionSpace(actions=tuple(rows), source=source, fallback=tuple(fallback))


def extended_space(
    known: Sequence[tuple[int, ...]],
    train: Windows,
    source: Literal["training", "taxonomy"],
    fallback: Collection[int] = (),
) -> ActionSpace:
    """A(c) of tasks that were known, with what further training windows show of these and others.

    Args:
        known: Actions of the tasks that were known, position = task id.
        train: Further training windows, of these tasks and perhaps of others behind them.
        source: Where actions come from.
        fallback: Known tasks that had no training windows.

    Raises:
        DataError: A new task has neither windows nor actions in the taxonomy.
    """
    seen = action_space(train, source)
    rows = [
        tuple(sorted({*known[task], *(row if task not in seen.fallback else ())}))
        if task < len(known)
        else row
        for task, row in enumerate(seen.actions)
    ]
    without = [task for task in seen.fallback if task >= len(known) or task in fallback]
    return ActionSpace(actions=tuple(rows), source=source, fallback=tuple(without))
