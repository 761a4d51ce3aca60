"""Constraints with actions by name or id."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

from pydantic import StrictBool, StrictInt, StrictStr

from cefito.data.names import find_action, find_actions
from cefito.data.taxonomy import Taxonomy
from cefito.errors import ConfigError
from cefito.search.constraints import Constraints
from cefito.settings import Settings

__all__ = ["Name", "NamedConstraints", "parse_constraints"]

Name = StrictInt | StrictStr
"""An id, or a name as `cefito.data.names` reads it."""


class NamedConstraints(Settings):
    """`Constraints` with actions by name or id; also their form in JSON.

    A name of several actions means all of them in `forbidden` and `before`, and is refused
    elsewhere.
    """

    pinned: tuple[tuple[StrictInt, Name], ...] = ()
    required: tuple[Name, ...] = ()
    forbidden: tuple[Name, ...] = ()
    before: tuple[tuple[Name, Name], ...] = ()
    no_repeats: StrictBool = False

    def with_more(self, other: NamedConstraints) -> NamedConstraints:
        """Return the constraints of both."""
        return NamedConstraints(
            pinned=self.pinned + other.pinned,
            required=self.required + other.required,
            forbidden=self.forbidden + other.forbidden,
            before=self.before + other.before,
            no_repeats=self.no_repeats or other.no_repeats,
        )

    def resolved(self, taxonomy: Taxonomy, *, task: int | None = None) -> Constraints:
        """Return the constraints by ids.

        Args:
            taxonomy: The actions.
            task: Id of the task, if known; names are looked up in it first.

        Raises:
            ConfigError: No such action, or several of a name that must mean one.
        """

        def one(given: Name, setting: str) -> int:
            return find_action(taxonomy, given, task=task, setting=setting)

        def each(given: Name, setting: str) -> tuple[int, ...]:
            return find_actions(taxonomy, given, task=task, setting=setting)

        return Constraints(
            pinned=tuple((step, one(action, "pinned")) for step, action in self.pinned),
            required=tuple(one(action, "required") for action in self.required),
            forbidden=_distinct(
                number for action in self.forbidden for number in each(action, "forbidden")
            ),
            before=_distinct(
                (before, after)
                for first, second in self.before
                for before in each(first, "before")
                for after in each(second, "before")
            ),
            no_repeats=self.no_repeats,
        )


_Item = TypeVar("_Item")


def _distinct(items: Iterable[_Item]) -> tuple[_Item, ...]:
    return tuple(dict.fromkeys(items))


def parse_constraints(
    taxonomy: Taxonomy,
    *,
    pinned: Sequence[str] = (),
    required: Sequence[str] = (),
    forbidden: Sequence[str] = (),
    before: Sequence[str] = (),
    no_repeats: bool = False,
    task: int | None = None,
) -> NamedConstraints:
    """Parse constraints from the text of the command line.

    Args:
        taxonomy: The actions.
        pinned: STEP=ACTION, steps counted from 1.
        required: Actions.
        forbidden: Actions.
        before: A,B; if names contain commas, the text is split where both sides are actions.
        no_repeats: Whether no action may occur twice.
        task: Id of the task, if known.

    Raises:
        ConfigError: Text of another form.
    """
    return NamedConstraints(
        pinned=tuple(map(_pin, pinned)),
        required=tuple(required),
        forbidden=tuple(forbidden),
        before=tuple(_order(entry, taxonomy, task) for entry in before),
        no_repeats=no_repeats,
    )


def _pin(entry: str) -> tuple[int, str]:
    step, _, action = entry.partition("=")
    if not re.fullmatch(r"\s*[0-9]{1,9}\s*", step) or not action.strip():
        raise ConfigError(
            f"{entry!r}: expected a step, counted from 1, and an action, as in 1=17 or 1='add "
            "ham'.",
            setting="pinned",
        )
    return int(step), action


def _order(entry: str, taxonomy: Taxonomy, task: int | None) -> tuple[str, str]:
    """Split "A,B" at the comma with an action on each side."""
    parts = entry.split(",")
    splits = [(",".join(parts[:place]), ",".join(parts[place:])) for place in range(1, len(parts))]
    if len(splits) == 1 and all(part.strip() for part in parts):
        return splits[0]
    known = [split for split in splits if all(_known(part, taxonomy, task) for part in split)]
    if len(known) != 1:
        raise ConfigError(
            f"{entry!r}: expected two actions with a comma between, as in 3,17 or 'add ham,fill "
            f"bowl'{'; it is ambiguous, so give ids' if known else ''}.",
            setting="before",
        )
    return known[0]


def _known(given: str, taxonomy: Taxonomy, task: int | None) -> bool:
    try:
        find_actions(taxonomy, given, task=task)
    except ConfigError:
        return False
    return True
