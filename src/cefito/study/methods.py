"""Every method with its paper, what it needs, what it can do, its size, and its rows of tables."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from cefito.planners.about import MethodInfo, about, needs_of, published_sizes
from cefito.planners.base import Abilities
from cefito.planners.registry import METHODS, find_method
from cefito.study.variants import ROWS, PlannerVariant

__all__ = ["TOP_K", "ListedMethod", "abilities_of", "listed_methods"]

TOP_K = "top-k"
"""What every planner can: several plans of a query, best first."""


@dataclass(frozen=True)
class ListedMethod:
    """A method, as it is listed.

    Attributes:
        name: Its name.
        about: What it is.
        needs: What it needs beside windows and its own networks.
        can: What its planners can be asked for.
        parameters: Learned numbers of each of its networks at the published size; empty where none
            is published.
        rows: The rows of tables that are of it.
    """

    name: str
    about: MethodInfo
    needs: tuple[str, ...]
    can: tuple[str, ...]
    parameters: dict[str, int]
    rows: tuple[PlannerVariant, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        paper = self.about.paper
        return {
            "name": self.name,
            "title": self.about.title,
            "what": self.about.line,
            "paper": None if paper is None else paper.to_dict(),
            "needs": list(self.needs),
            "uses": list(self.about.uses),
            "can": list(self.can),
            "parameters": self.parameters or None,
            "rows": [
                {
                    "name": row.name,
                    "title": row.title,
                    "oracle": row.oracle,
                    "ablation": row.ablation,
                }
                for row in self.rows
            ],
        }


def abilities_of(method: str) -> tuple[str, ...]:
    """What planners of a method can be asked for, in words.

    Raises:
        ConfigError: There is no such method.
    """
    abilities = find_method(method).planner.abilities
    able = (entry.name for entry in fields(Abilities) if getattr(abilities, entry.name))
    return (TOP_K, *(name.replace("_", " ") for name in able))


def listed_methods() -> list[ListedMethod]:
    """All registered methods, in the order of their registration."""
    return [
        ListedMethod(
            name=name,
            about=about(name),
            needs=needs_of(name),
            can=abilities_of(name),
            parameters=published_sizes(method),
            rows=tuple(row for row in ROWS.values() if row.method == name),
        )
        for name, method in METHODS.items()
    ]
