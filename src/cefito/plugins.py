"""Registries: entries by name, of this package and of others that are installed.

Another package adds an entry by an entry point of the registry's group, whose name is that of the
entry. It is imported when it is first used; one that cannot be is reported and left out.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, redirect_stdout
from functools import cached_property
from hashlib import sha256
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from cefito.errors import CefitoError, ConfigError, reason

Entry = TypeVar("Entry")

logger = logging.getLogger(__name__)


_REMEDY = "update or uninstall it."


def _fault_of(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {reason(problem)}"


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
        shipped: Mapping[str, Entry | str],
        fault: Callable[[str, Any], str],
    ) -> None:
        self.group, self.what, self.fault = group, what, fault
        self._shipped = frozenset(shipped)
        self._own: dict[str, Entry | str] = dict(shipped)
        self.loaded: dict[str, Entry] = {}
        self.refused: dict[str, str] = {}

    def __getitem__(self, name: str) -> Entry:
        if name in self._own:
            entry = self._own[name]
            if isinstance(entry, str):
                entry = self._own[name] = EntryPoint(name, entry, self.group).load()
            return cast("Entry", entry)
        if name not in self.loaded:
            point = self.points[name]
            if name not in self.refused and (fault := self._load(point)):
                self.refused[name] = f"{self.said(name)} cannot be used ({fault}); {_REMEDY}"
            if name in self.refused:
                raise ConfigError(self.refused[name])
        return self.loaded[name]

    def __setitem__(self, name: str, entry: Entry) -> None:
        self._own[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._own[name]

    def __iter__(self) -> Iterator[str]:
        yield from list(self._own)
        for name in self.points:
            refused = name in self.refused
            try:
                self[name]
            except CefitoError as problem:
                if not refused:
                    logger.warning("%s", problem)
            else:
                yield name

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self.points

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def shipped(self) -> list[str]:
        """Names of this package's entries, for which no other package is imported."""
        return [name for name in self._own if name in self._shipped]

    def named(self, name: Any, setting: str = "") -> Entry:
        """Return the entry of a name that the user chose by a setting (ConfigError)."""
        if not isinstance(name, str) or name not in self:
            problem = f"no {self.what} '{name}'; there are {', '.join(self)}"
            raise ConfigError(f"{problem}.", setting=setting)
        return self[name]

    def package(self, name: str) -> tuple[str, str] | None:
        """Return name and version of the package that adds an entry; None for this one."""
        if name in self._own or name not in self.points:
            return None
        return _package(self.points[name])

    def code(self, name: str) -> str:
        """Return a digest of the code of another package's entry; empty for one of this package.

        It is of all Python files of the outermost package of the entry's module, as they are now.
        """
        if self.package(name) is None:
            return ""
        spec, digest = find_spec(self.points[name].module.partition(".")[0]), sha256()
        folders = [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]
        files = [(file, folder) for folder in folders for file in folder.rglob("*.py")]
        if spec and spec.origin and not folders:
            files = [(Path(spec.origin), Path(spec.origin).parent)]
        for file, folder in sorted(files):
            content = file.read_bytes()
            digest.update(f"{file.relative_to(folder)} {len(content)} ".encode() + content)
        return digest.hexdigest()[:12]

    def said(self, name: str) -> str:
        """Return how messages call an entry, with its package if it is of another one."""
        package = self.package(name)
        return f"the {self.what} '{name}'" + (
            f" of the package {' '.join(package)}" if package else ""
        )

    @contextmanager
    def trying(self, name: str) -> Iterator[None]:
        """Leave an entry out from now, with a warning, if it is added and its code fails."""
        try:
            yield
        except (Exception, SystemExit) as problem:
            if name in self._shipped:
                raise
            refused = f"{self.said(name)} failed ({_fault_of(problem)}) and is left out; {_REMEDY}"
            self._own.pop(name, None)
            self.loaded.pop(name, None)
            self.refused[name] = refused
            logger.warning("%s", refused)

    @cached_property
    def points(self) -> dict[str, EntryPoint]:
        """Entry points of other packages, by name."""
        points: dict[str, EntryPoint] = {}
        for point in entry_points(group=self.group):
            if point.name in self._own or point.name in points:
                name, of = point.name, " ".join(_package(point))
                said = f"the {self.what} '{name}' of the package {of}"
                logger.warning("%s is left out: another has this name; uninstall one.", said)
            else:
                points[point.name] = point
        return points

    def _load(self, point: EntryPoint) -> str:
        """Load an entry; return why it cannot be used, empty if it can."""
        try:
            with redirect_stdout(sys.stderr):  # stdout has results alone
                entry = point.load()
                fault = self.fault(point.name, entry)
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # sys.exit among them
            if type(problem).__module__.startswith("cefito."):  # a signal
                raise
            return _fault_of(problem)
        if not fault:
            self.loaded[point.name] = entry
        return fault


def _package(point: EntryPoint) -> tuple[str, str]:
    """Return name and version of the package of an entry point."""
    name, version = (point.dist.name, point.dist.version) if point.dist else ("", "")
    return name or "of an unknown name", version or ""
