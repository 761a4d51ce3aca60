"""Constraints with actions by name or id, and their form on the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import StrictBool, StrictInt, StrictStr, create_model

from cefito.data.annotations import Taxonomy
from cefito.data.vocabulary import find_action, find_actions
from cefito.errors import ConfigError
from cefito.search.constraints import Constraints, EachAction, OneAction, declared
from cefito.settings import Settings
from cefito.timeline.order import reached, read_orders

Name = StrictInt | StrictStr
"""An id, or a name as `cefito.data.vocabulary` reads it."""
Pins = tuple[tuple[StrictInt, Name], ...]
ActionNames = tuple[Name, ...]
Pairs = tuple[tuple[Name, Name], ...]

_UNCONSTRAINED = Constraints()


def _named(kind: Any) -> Any:
    """Return the type of a field of `Constraints` with names in the place of actions."""
    if kind in (OneAction, EachAction):
        return Name
    if get_origin(kind) is tuple:
        parts = tuple(part if part is ... else _named(part) for part in get_args(kind))
        return tuple.__class_getitem__(parts)
    return {int: StrictInt, bool: StrictBool}[kind]


_FIELDS: Any = {
    name: (_named(kind), getattr(Constraints, name)) for name, (kind, _) in declared().items()
}


class NamedConstraints(create_model("_Fields", __base__=Settings, **_FIELDS)):  # type: ignore[misc]
    """`Constraints` with actions by name or id, field by field; also their form in JSON.

    A name of several actions means all of them in `forbidden` and `before`, and is refused
    elsewhere: the types of the fields of `Constraints` say which.
    """

    def with_more(self, other: NamedConstraints) -> NamedConstraints:
        """Return the constraints of both."""
        return NamedConstraints(
            **{
                name: value + more if isinstance(value, tuple) else more or value
                for (name, value), (_, more) in zip(self, other, strict=True)
            }
        )

    def resolved(self, taxonomy: Taxonomy, *, task: int | None = None) -> Constraints:
        """Return the constraints by ids; names are looked up in the task first.

        Raises:
            ConfigError: No such action, or several of a name that must mean one.
        """

        def ids(kind: Any, value: Any, setting: str) -> Sequence[Any]:
            """Return all meanings of a value of a kind."""
            if kind == OneAction:
                return [find_action(taxonomy, value, task=task, setting=setting)]
            if kind == EachAction:
                return find_actions(taxonomy, value, task=task, setting=setting)
            if get_origin(kind) is not tuple:
                return [value]
            kinds = get_args(kind)
            if kinds[1:] == (...,):  # every meaning of every item, each once
                every = [one for item in value for one in ids(kinds[0], item, setting)]
                return [tuple(dict.fromkeys(every))]
            return list(product(*map(ids, kinds, value, [setting] * len(kinds))))

        given = {name: value for name, value in self if value != getattr(Constraints, name)}
        if not given:
            return _UNCONSTRAINED
        return Constraints(
            **{name: ids(declared()[name][0], value, name)[0] for name, value in given.items()}
        )


def parse_constraints(
    taxonomy: Taxonomy, given: Mapping[str, Any], *, task: int | None = None
) -> NamedConstraints:
    """Parse constraints from the text of the command line, by field."""

    def parsed(kind: Any, value: Any) -> Any:
        if kind == Pins:
            return tuple(map(_pin, value))  # STEP=ACTION, steps counted from 1
        if kind == Pairs:  # A,B, split at the comma with an action on each side, or a file
            return tuple(pair for entry in value for pair in _orders(entry, taxonomy, task))
        return value

    kinds = NamedConstraints.model_fields
    return NamedConstraints(
        **{name: parsed(kinds[name].annotation, value) for name, value in given.items()}
    )


def _pin(entry: str) -> tuple[int, str]:
    step, _, action = entry.partition("=")
    if not re.fullmatch(r"\s*[0-9]{1,9}\s*", step) or not action.strip():
        expected = "expected a step, counted from 1, and an action, as in 1=17 or 1='add ham'."
        raise ConfigError(f"{entry!r}: {expected}", setting="pinned")
    return int(step), action


def _orders(entry: str, taxonomy: Taxonomy, task: int | None) -> Sequence[tuple[Name, Name]]:
    if not entry.endswith(".json"):
        return [_order(entry, taxonomy, task)]
    found = read_orders(Path(entry), taxonomy)
    pairs = [reached(edges) for own, edges in found.items() if task in (None, own)]
    return sorted(frozenset().union(*pairs))


def _order(entry: str, taxonomy: Taxonomy, task: int | None) -> tuple[str, str]:
    parts = entry.split(",")
    splits = [(",".join(parts[:place]), ",".join(parts[place:])) for place in range(1, len(parts))]
    if len(splits) == 1 and all(part.strip() for part in parts):
        return splits[0]
    known = [split for split in splits if all(_known(part, taxonomy, task) for part in split)]
    if len(known) != 1:
        more = "; it is ambiguous, so give ids" if known else ", as in 3,17 or 'add ham,fill bowl'"
        raise ConfigError(
            f"{entry!r}: expected two actions with a comma between{more}.", setting="before"
        )
    return known[0]


def _known(given: str, taxonomy: Taxonomy, task: int | None) -> bool:
    try:
        find_actions(taxonomy, given, task=task)
    except ConfigError:
        return False
    return True
