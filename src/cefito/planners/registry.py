"""All methods by their names; to add a method, add its name and folder here."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module

from cefito.errors import ConfigError
from cefito.planners.method import Method

__all__ = ["METHODS", "find_method", "methods_with"]

_FOLDERS = {
    "cefito": "cefito",
    "chain": "crf",
    "viterbi": "viterbi",
    "pdpp": "pdpp",
    "mtid": "mtid",
    "kepp": "kepp",
    "schema": "schema",
    "planllm": "planllm",
    "planllm-leaky": "planllm",
    "p3iv": "p3iv",
    "pkg": "pkg",
    "pkg-beam": "pkg",
    "llm-ends": "language_model",
    "llm-ranked": "language_model",
    "nearest": "simple",
    "frequent": "simple",
}
"""Names in the order of tables, and the folder whose module `method` declares each."""


class _Registry(MutableMapping[str, Method]):
    """Methods by name; the code of a method is imported when it is first used."""

    def __init__(self, folders: dict[str, str]) -> None:
        self._entries: dict[str, str | Method] = dict(folders)

    def __getitem__(self, name: str) -> Method:
        entry = self._entries[name]
        if isinstance(entry, str):
            declared = vars(import_module(f"cefito.planners.{entry}.method")).values()
            entry = next(x for x in declared if isinstance(x, Method) and x.name == name)
            self._entries[name] = entry
        return entry

    def __setitem__(self, name: str, method: Method) -> None:
        self._entries[name] = method

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)


METHODS = _Registry(_FOLDERS)


def find_method(name: str) -> Method:
    """Return a method by its name."""
    if name not in METHODS:
        raise ConfigError(f"no method '{name}'; there are {', '.join(METHODS)}.")
    return METHODS[name]


def methods_with(ability: str) -> str:
    """Return the names of the methods with an ability (a field of `Abilities`), for a message."""
    names = (name for name, method in METHODS.items() if getattr(method.planner.abilities, ability))
    return ", ".join(names) or "none"
