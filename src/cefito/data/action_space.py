"""The actions that plans of each task may use: A(c)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cefito.data.windows import Windows
from cefito.errors import DataError

__all__ = ["ActionSpace", "action_space", "extended_space"]


@dataclass(frozen=True)
class ActionSpace:
    """The allowed actions of every task."""

    actions: tuple[tuple[int, ...], ...]  # ascending action ids, position = task id
    source: Literal["training", "taxonomy"]  # paper, Sec. 3.3, or released code
    fallback: tuple[int, ...]  # tasks without training windows, which use the taxonomy's actions

    def to_dict(self) -> dict[str, Any]:
        """Convert to a dictionary for JSON."""
        return {
            "source": self.source,
            "fallback": list(self.fallback),
            "actions": [list(row) for row in self.actions],
        }

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> ActionSpace:
        """Convert from the dictionary of `to_dict`."""
        return cls(
            actions=tuple(tuple(row) for row in value["actions"]),
            source=value["source"],
            fallback=tuple(value["fallback"]),
        )


def action_space(train: Windows, source: Literal["training", "taxonomy"]) -> ActionSpace:
    """Derive A(c) for all tasks; tasks without training windows always use the taxonomy."""
    rows, fallback = [], []
    for task in train.taxonomy.tasks:
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
    """Extend A(c) of known tasks by the actions of further training windows and by new tasks.

    New tasks have higher ids. `fallback` lists known tasks without training windows so far.
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
