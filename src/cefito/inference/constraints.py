"""Constraints with actions by name or id, and their form on the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import StrictBool, StrictInt, StrictStr, create_model

from cefito.data.vocabulary import Taxonomy, find_action, find_actions
from cefito.errors import ConfigError
from cefito.search.constraints import (
    Constraints,
    EachAction,
    OneAction,
    by_step,
    declared,
    entry_parts,
)
from cefito.settings import Settings
from cefito.verification.order import reached
from cefito.verification.order_files import read_orders

Name = StrictInt | StrictStr
"""An id, or a name as `cefito.data.vocabulary` reads it."""

_ACTIONS = (OneAction, EachAction)


def _named(kind: Any) -> Any:
    """Return the type of a field of `Constraints` with names in the place of actions."""
    if kind in _ACTIONS:
        return Name
    if get_origin(kind) is tuple:
        parts = tuple(inner if inner is ... else _named(inner) for inner in get_args(kind))
        return tuple.__class_getitem__(parts)
    return StrictBool if kind is bool else StrictInt


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
        """Return the constraints by ids (ConfigError); names are looked up in the task first."""

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
                meanings = [meaning for item in value for meaning in ids(kinds[0], item, setting)]
                return [tuple(dict.fromkeys(meanings))]
            return list(product(*map(ids, kinds, value, [setting] * len(kinds))))

        kinds = {name: kind for name, (kind, _) in declared().items()}
        return Constraints(**{name: ids(kinds[name], value, name)[0] for name, value in self})


def parse_constraints(
    taxonomy: Taxonomy, texts_by_field: Mapping[str, Any], *, task: int | None = None
) -> NamedConstraints:
    """Parse constraints from the text of the command line, by field.

    Args:
        taxonomy: Tasks and actions that are named.
        texts_by_field: Values of the options, by the fields of `Constraints`.
        task: Id of the task in which names are looked up first.
    """

    def entries(name: str, texts: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        for text in texts:
            if name == "before" and text.endswith(".json"):
                orders = read_orders(Path(text), taxonomy)
                pairs = [
                    reached(edges)
                    for order_task, edges in orders.items()
                    if task in (None, order_task)
                ]
                yield from sorted(frozenset().union(*pairs))
            else:
                yield _entry(name, text, taxonomy, task)

    joined = {name for name, (kind, _) in declared().items() if len(entry_parts(kind)) > 1}
    return NamedConstraints(
        **{
            name: tuple(entries(name, value)) if name in joined else value
            for name, value in texts_by_field.items()
        }
    )


def _entry(name: str, text: str, taxonomy: Taxonomy, task: int | None) -> tuple[Any, ...]:
    """Return the parts of an entry: STEP=ACTION, or others with commas between them."""
    kind, how = declared()[name]
    kinds, sign = entry_parts(kind), "=" if by_step(kind) else ","
    pieces = text.split(sign)
    cuts = combinations(range(1, len(pieces)), len(kinds) - 1)
    splits = [[sign.join(pieces[a:b]) for a, b in pairwise((0, *cut, len(pieces)))] for cut in cuts]
    splits = [split for split in splits if all(map(_fits, kinds, split))]
    if len(splits) > 1:
        actions = [place for place, kind in enumerate(kinds) if kind in _ACTIONS]
        is_action = partial(_known, taxonomy=taxonomy, task=task)
        splits = [split for split in splits if all(is_action(split[place]) for place in actions)]
    if len(splits) != 1:
        form, example = how.help.partition(":")[0], sign.join(map(str, how.example[0]))
        more = "; it is ambiguous, so give ids" if splits else f", such as {example}"
        raise ConfigError(f"{text!r}: expected {form}{more}.", setting=name)
    return tuple(
        word if kind in _ACTIONS else int(word) for kind, word in zip(kinds, splits[0], strict=True)
    )


def _fits(kind: Any, text: str) -> bool:
    return bool(text.strip() if kind in _ACTIONS else re.fullmatch(r"\s*[0-9]{1,9}\s*", text))


def _known(word: str, taxonomy: Taxonomy, task: int | None) -> bool:
    try:
        find_actions(taxonomy, word, task=task)
    except ConfigError:
        return False
    return True
