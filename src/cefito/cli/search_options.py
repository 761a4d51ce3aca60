"""Options of the search, made from its settings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Optional

from cyclopts import Parameter

from cefito.cli.options import options_class
from cefito.search.settings import SearchConfig, search_settings

if TYPE_CHECKING:
    from cefito.runs.run import Run

__all__ = ["AS_TRAINED", "SearchOptions", "option_of"]

_NAMES = {"method": "--search", "budget_gflop": "--budget"}
"""Options with another name than their setting."""

_OF_TRAINING = ("actions", "fitting_windows")
"""Settings that are decided when a run is trained."""


@dataclass(frozen=True)
class SearchOptions:
    """How to search; by default as the run was trained. Fields: the settings of `SearchConfig`."""

    def changes(self) -> dict[str, Any]:
        """Return the given settings."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def applied(self, run: Run) -> Run:
        """Return the run with the given settings."""
        changes = self.changes()
        if not changes:
            return run
        if run.trained_search is None:
            return run.with_search(SearchConfig())  # which refuses, and names the methods that can
        return run.with_search(search_settings(run.trained_search, **changes))


def option_of(setting: str) -> str:
    """Return the option of a setting of the search."""
    return _NAMES.get(setting, "--" + setting.replace("_", "-"))


def _descriptions() -> dict[str, str]:
    """Return the description of each setting from the docstrings."""
    docs = [inspect.cleandoc(kind.__doc__ or "") for kind in SearchConfig.__mro__]
    attributes = "\n".join(doc.partition("Attributes:\n")[2] for doc in docs)
    entries = re.findall(r"^    (\w+): (.*(?:\n     +.*)*)", attributes, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _options() -> Iterator[tuple[str, Any, Any]]:
    """Yield name, type and default of each option."""
    descriptions = _descriptions()
    for name, setting in SearchConfig.model_fields.items():
        parameter = Parameter(name=option_of(name), help=descriptions.get(name, ""))
        if name not in _OF_TRAINING:
            yield name, Annotated[Optional[setting.annotation], parameter], None  # noqa: UP045


if not TYPE_CHECKING:  # a type checker cannot see fields that are made at run time
    SearchOptions = options_class(SearchOptions, _options())

AS_TRAINED = SearchOptions()
"""Nothing changed."""
