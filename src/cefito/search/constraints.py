"""What a user asks of a plan: steps known already, actions that must or must not occur, orders.

Searches hold to it exactly. To add a constraint:

1. Here: a field of `Constraints`, its words in `Constraints.summary`, and in `check` a message for
   each mistake that a glance can show.
2. In `feasible`: what it means for a full sequence (`Feasible.valid`), and what must be remembered
   of a prefix to tell whether it can still be met (the states). Where nothing new must be
   remembered, as for forbidden actions, a change of `Feasible.__init__` is all.
3. In the tests an example of it and its meaning word for word; `tests/search/test_constraints.py`
   and `tests/search/conftest.py` say where. Searches and command line take it from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from graphlib import CycleError, TopologicalSorter

from cefito.errors import ConfigError

__all__ = ["Constraints", "check"]


@dataclass(frozen=True)
class Constraints:
    """What a plan must satisfy; empty by default.

    Attributes:
        pinned: Pairs of a step, counted from 1, and the id of its action.
        required: Ids of actions that must occur.
        forbidden: Ids of actions that must not occur.
        before: Pairs of ids (A, B): where both occur, every A stands before every B.
        no_repeats: Whether no action may occur twice.
    """

    pinned: tuple[tuple[int, int], ...] = ()
    required: tuple[int, ...] = ()
    forbidden: tuple[int, ...] = ()
    before: tuple[tuple[int, int], ...] = ()
    no_repeats: bool = False

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self))

    def summary(self) -> str:
        """All that is asked for, in words."""
        parts = [
            *(f"action {action} at step {step}" for step, action in self.pinned),
            *(f"action {action} required" for action in self.required),
            *(f"action {action} forbidden" for action in self.forbidden),
            *(f"action {first} before {second}" for first, second in self.before),
        ]
        return "; ".join([*parts, "no repeats"] if self.no_repeats else parts)


def check(constraints: Constraints, actions: Sequence[int], horizon: int) -> None:
    """Refuse what a glance shows to be wrong, with a message for each mistake.

    Args:
        constraints: What is asked for.
        actions: Allowed action ids.
        horizon: T.

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
                f"action {first} cannot stand before itself; name two different actions, or ask "
                "for no repeats."
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
