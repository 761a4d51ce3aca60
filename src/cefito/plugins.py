"""Registries: entries by name, of this package and of others that are installed.

Another package adds an entry by an entry point of the registry's group, whose name is that of the
entry. It is imported when it is first used; one that cannot be is reported and left out. What the
code of an entry returns is checked where it comes in (`checked_class`), so that nobody else needs
to, and an error names the entry and its package.
"""

from __future__ import annotations

import copy
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, redirect_stdout
from functools import cached_property, wraps
from importlib.metadata import EntryPoint, entry_points
from inspect import getattr_static
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from cefito.errors import CefitoError, ConfigError, RunError, is_out_of_memory, reason

Entry = TypeVar("Entry")

logger = logging.getLogger(__name__)


_REMEDY = "update or uninstall it."


class PackageError(RunError):
    """The code of another package failed; the cause is its own error."""


@contextmanager
def blamed(said: str) -> Iterator[None]:
    """Turn errors in the code of another package, which is named, into a RunError."""
    try:
        yield
    except (Exception, SystemExit) as problem:
        if isinstance(problem, CefitoError) or is_out_of_memory(problem):
            raise
        raise PackageError(f"{said} failed ({_fault_of(problem)}); {_REMEDY}") from problem


def _fault_of(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {reason(problem)}"


def checked_class(
    kind: Any, checks: Mapping[str, Callable[..., Any]], said: Callable[[], str]
) -> Any:
    """Return a subclass of a class of another package that checks what its methods return.

    A class of this package is returned as it is.

    Args:
        kind: The class.
        checks: By the names of methods, functions of the object (or class), the value and the
            arguments, which return the value and `demand` what it should be.
        said: Names the entry and its package, to begin an error with.
    """
    if str(kind.__module__).startswith("cefito.") or hasattr(kind, "_checked"):
        return kind
    names = {"__module__": kind.__module__, "__doc__": kind.__doc__, "_checked": True}
    made: Any = type(kind.__name__, (kind,), names)
    for name, check in checks.items():
        if not isinstance(getattr_static(kind, name, None), staticmethod | None):
            setattr(made, name, _checked(made, name, check, said))
    return made


def _checked(made: Any, name: str, check: Callable[..., Any], said: Callable[[], str]) -> Any:
    """Return a method that checks the value of the same method of the base."""
    original = getattr(made, name)

    @wraps(original)
    def method(own: Any, *given: Any, **named: Any) -> Any:
        with blamed(said()):
            found = getattr(super(made, own), name)(*given, **named)
            try:
                return check(own, found, *given, **named)
            except _BreachError as problem:
                broken = f"{said()} breaks its contract: '{name}' gave {problem}"
                raise RunError(f"{broken}; {_REMEDY}") from None

    bound = isinstance(getattr(original, "__self__", None), type)
    return classmethod(method) if bound else method


def recast(found: Any, kind: Any) -> Any:
    """Return an object of the base of a checked class as one of the class."""
    if type(found) is not kind and type(found) in kind.__mro__[:2]:
        found = copy.copy(found)
        object.__setattr__(found, "__class__", kind)
    demand(isinstance(found, kind), f"no {kind.__name__} but a {type(found).__name__}")
    return found


class _BreachError(Exception):
    """Says what was returned."""


def demand(right: object, found: str) -> None:
    """Say what was found unless it is right, in checks of `checked_class`."""
    if not right:
        raise _BreachError(found)


def array(title: str, found: Any, shape: tuple[float, ...], kinds: str) -> NDArray[Any]:
    """Demand an array with a type of some kinds and a shape, infinity for any size."""
    right = isinstance(found, np.ndarray) and found.dtype.kind in kinds
    demand(right, f"{title} that are no array of {'numbers' if 'f' in kinds else 'integers'}")
    fits = len(shape) == found.ndim and all(
        size in (np.inf, one) for size, one in zip(shape, found.shape, strict=True)
    )
    expected = ", ".join("any" if size == np.inf else str(size) for size in shape)
    demand(fits, f"{title} of the shape {list(found.shape)}, not [{expected}]")
    return np.asarray(found)


def shares(title: str, found: Any, shape: tuple[float, ...], near: float = 1e-3) -> NDArray[Any]:
    """Demand an array of numbers from 0 to 1."""
    values = array(title, found, shape, "f")
    wrong = ~((values >= 0) & (values <= 1 + near))  # so is NaN
    demand(not wrong.any(), f"{title} of {values[wrong][:1]}, not from 0 to 1")
    return values


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
        self._shipped = frozenset(own)
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
                self._refused[name] = f"{self.said(name)} cannot be used ({fault}); {_REMEDY}"
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
        return _package(self._points[name])

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
            self._loaded.pop(name, None)
            self._refused[name] = refused
            logger.warning("%s", refused)

    @cached_property
    def _points(self) -> dict[str, EntryPoint]:
        """Entry points of other packages, by name."""
        found: dict[str, EntryPoint] = {}
        for point in entry_points(group=self.group):
            if point.name in self._own or point.name in found:
                name, of = point.name, " ".join(_package(point))
                said = f"the {self.what} '{name}' of the package {of}"
                logger.warning("%s is left out: another has this name; uninstall one.", said)
            else:
                found[point.name] = point
        return found

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
            self._loaded[point.name] = entry
        return fault


def _package(point: EntryPoint) -> tuple[str, str]:
    """Return name and version of the package of an entry point."""
    name, version = (point.dist.name, point.dist.version) if point.dist else ("", "")
    return name or "of an unknown name", version or ""
