"""Constraints of plans: known steps, required and forbidden actions, orders of actions.

To add one: a field of `Constraints`, its words in `summary`, obvious mistakes in `check`; its
meaning in `feasible` (`Feasible.valid`, and the state of a prefix that decides whether it can still
be satisfied); an example in `tests/search/test_constraints.py` and `tests/search/conftest.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from graphlib import CycleError, TopologicalSorter
from typing import Annotated

from cefito.errors import ConfigError

__all__ = ["Constraints", "EachAction", "OneAction", "check"]

OneAction = Annotated[int, "one"]
"""An action id; a name in its place must be the name of one action."""
EachAction = Annotated[int, "each"]
"""An action id; a name in its place means all actions of that name."""


@dataclass(frozen=True)
class Constraints:
    """Constraints that a plan must satisfy; none by default.

    Attributes:
        pinned: Pairs of a step, counted from 1, and the id of its action.
        required: Ids of actions that must occur.
        forbidden: Ids of actions that must not occur.
        before: Pairs of ids (A, B): if both occur, every A must precede every B.
        no_repeats: Whether no action may occur twice.
    """

    pinned: tuple[tuple[int, OneAction], ...] = ()
    required: tuple[OneAction, ...] = ()
    forbidden: tuple[EachAction, ...] = ()
    before: tuple[tuple[EachAction, EachAction], ...] = ()
    no_repeats: bool = False

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self))

    def summary(self) -> str:
        """Return all constraints in words."""
        parts = [
            *(f"action {action} at step {step}" for step, action in self.pinned),
            *(f"action {action} required" for action in self.required),
            *(f"action {action} forbidden" for action in self.forbidden),
            *(f"action {first} before {second}" for first, second in self.before),
        ]
        return "; ".join([*parts, "no repeats"] if self.no_repeats else parts)


def check(constraints: Constraints, actions: Sequence[int], horizon: int) -> None:
    """Refuse obvious mistakes, with a message for each.

    Raises:
        ConfigError: The constraints name an action or step that does not exist, or contradict each
            other.
    """
    _check_pinned(constraints, horizon)
    required = set(constraints.required)
    named = required | {action for _, action in constraints.pinned}
    for action in sorted(named):
        word = "required" if action in required else "pinned"
        if action not in actions:
            raise ConfigError(
                f"action {action} is {word} but is not an action of this task; "
                f"choose among {', '.join(map(str, actions))}."
            )
        if action in constraints.forbidden:
            raise ConfigError(f"action {action} is both {word} and forbidden; drop one of the two.")
    if len(required) > horizon:
        raise ConfigError(
            f"{len(required)} actions are required but a plan has only {horizon} steps; "
            f"require fewer or plan more steps."
        )
    usable = len(set(actions) - set(constraints.forbidden))
    if not usable:
        raise ConfigError("every allowed action is forbidden; leave at least one.")
    if constraints.no_repeats and usable < horizon:
        raise ConfigError(
            f"no repeats: {horizon} steps need as many actions, but only {usable} may be used; "
            f"allow repeats, more actions or plan fewer steps."
        )
    _check_before(constraints, named)


def _check_pinned(constraints: Constraints, horizon: int) -> None:
    pinned: dict[int, int] = {}
    for step, action in constraints.pinned:
        if not 1 <= step <= horizon:
            raise ConfigError(
                f"action {action} is pinned to step {step}, which does not exist; "
                f"steps are counted from 1 to {horizon}."
            )
        if pinned.setdefault(step, action) != action:
            raise ConfigError(
                f"step {step} is pinned to two actions, {pinned[step]} and {action}; keep one."
            )
    if constraints.no_repeats:
        for action in pinned.values():
            steps = sorted(step for step in pinned if pinned[step] == action)
            if len(steps) > 1:
                raise ConfigError(
                    f"action {action} is pinned to steps {', '.join(map(str, steps))} although no "
                    "action may repeat; keep one or allow repeats."
                )


def _check_before(constraints: Constraints, named: set[int]) -> None:
    order: TopologicalSorter[int] = TopologicalSorter()
    for first, second in constraints.before:
        if first == second:
            raise ConfigError(
                f"action {first} cannot precede itself; name two different actions, or forbid "
                "repeats."
            )
        if first in named and second in named:
            order.add(second, first)
    try:
        order.prepare()
    except CycleError as error:
        circle = " before ".join(map(str, error.args[1]))
        raise ConfigError(
            f"required or pinned actions are ordered in a circle: {circle}; drop one of these "
            "orders."
        ) from error
