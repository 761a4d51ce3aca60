"""Formats of steps: each file here declares some, which are found by its name `FORMATS`.

To add one, write a file; nothing else names it.
"""

from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Literal

from cefito.tracks.document import Format

__all__ = ["FORMATS", "WRITERS", "Written"]


def in_order(formats: Sequence[Format]) -> tuple[Format, ...]:
    """Return formats in the order of their marks; one that reads an element ends its refusal."""
    read = {tags for declared in formats if declared.read for tags in declared.tags}
    kept = [declared for declared in formats if declared.read or not read & {*declared.tags}]
    return tuple(sorted(kept, key=lambda declared: declared.told))


FORMATS = in_order(
    [
        declared
        for module in iter_modules(__path__, f"{__name__}.")
        for declared in import_module(module.name).FORMATS
    ]
)
"""All formats, in the order in which they are tried."""
WRITERS = {declared.key: declared for declared in FORMATS if declared.key}
"""Formats that are written, by key; of several with one ending, the last is meant by it."""
if len(WRITERS) < sum(bool(declared.key) for declared in FORMATS):
    raise TypeError(f"two formats have one key: expected others than {', '.join(WRITERS)}")
if TYPE_CHECKING:
    Written = str
else:
    Written = Literal[tuple(sorted(WRITERS))]
"""Name of a format that is written."""
