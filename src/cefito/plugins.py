"""Registries: entries by name, of this package and of others that are installed.

Another package adds an entry by an entry point of the registry's group, whose name is that of the
entry. It is imported when it is first used; one that cannot be is reported and left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar, cast

from cefito.errors import CefitoError, ConfigError, reason

__all__ = ["Registry"]

Entry = TypeVar("Entry")

logger = logging.getLogger(__name__)


class Registry(MutableMapping[str, Entry], Generic[Entry]):
    """Entries by name, this package's first.

    Iteration imports the entries of other packages and leaves out those that cannot be used, with a
    warning; to look one of them up by its name raises a ConfigError.

    Args:
        group: Group of entry points, such as "cefito.planners".
        what: An entry in messages, such as "method".
        own: Entries of this package, or their places "module:NAME", imported when first used.
        fault: Says what is wrong with an entry of a name; empty if nothing is.
    """

    def __init__(
        self,
        group: str,
        what: str,
        own: Mapping[str, Entry | str],
        fault: Callable[[str, Any], str],
    ) -> None:
        self.group, self.what, self.fault = group, what, fault
        self._own: dict[str, Entry | str] = dict(own)
        self._loaded: dict[str, Entry] = {}
        self._refused: dict[str, str] = {}

    def __getitem__(self, name: str) -> Entry:
        if name in self._own:
            entry = self._own[name]
            if isinstance(entry, str):
                entry = self._own[name] = EntryPoint(name, entry, self.group).load()
            return cast("Entry", entry)
        if name not in self._loaded:
            point = self._points[name]
            if name not in self._refused and (fault := self._load(point)):
                said = f"the {self.what} '{name}' of the package {self._package(point)}"
                self._refused[name] = f"{said} cannot be used ({fault}); update or uninstall it."
            if name in self._refused:
                raise ConfigError(self._refused[name])
        return self._loaded[name]

    def __setitem__(self, name: str, entry: Entry) -> None:
        self._own[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._own[name]

    def __iter__(self) -> Iterator[str]:
        yield from list(self._own)
        for name in self._points:
            known = name in self._refused
            try:
                self[name]
            except CefitoError as problem:
                if not known:
                    logger.warning("%s", problem)
            else:
                yield name

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._points

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def package(self, name: str) -> tuple[str, str] | None:
        """Return name and version of the package that adds an entry; None for this one."""
        if name in self._own or name not in self._points:
            return None
        dist = self._points[name].dist
        return None if dist is None else (dist.name, dist.version)

    @cached_property
    def _points(self) -> dict[str, EntryPoint]:
        """Entry points of other packages, by name."""
        found: dict[str, EntryPoint] = {}
        for point in entry_points(group=self.group):
            if point.name in self._own or point.name in found:
                said = f"the {self.what} '{point.name}' of the package {self._package(point)}"
                logger.warning("%s is left out: another has this name; uninstall one.", said)
            else:
                found[point.name] = point
        return found

    def _load(self, point: EntryPoint) -> str:
        """Load an entry; return why it cannot be used, empty if it can."""
        try:
            entry = point.load()
        except Exception as problem:
            return f"{type(problem).__name__}: {reason(problem)}"
        if not (fault := self.fault(point.name, entry)):
            self._loaded[point.name] = entry
        return fault

    def _package(self, point: EntryPoint) -> str:
        return (
            "of an unknown name"
            if point.dist is None
            else f"{point.dist.name} {point.dist.version}"
        )
