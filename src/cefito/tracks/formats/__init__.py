"""Formats of steps: each file here declares some, which are found by its name `FORMATS`.

To add one, write a file; nothing else names it.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Literal

from cefito.tracks.document import Format

__all__ = ["FORMATS", "WRITERS", "Written"]

FORMATS: tuple[Format, ...] = tuple(
    sorted(
        (
            declared
            for module in iter_modules(__path__, f"{__name__}.")
            for declared in import_module(module.name).FORMATS
        ),
        key=lambda declared: declared.told,
    )
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
