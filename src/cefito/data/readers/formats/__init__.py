"""Formats of annotation tools; to add one, write a file here and a row in `FORMATS`."""

from cefito.data.readers.formats import (
    boris,
    captions,
    chapters,
    cvat,
    elan,
    label_studio,
    table,
    via,
)
from cefito.data.readers.formats.document import Choices, Document, Format, StepRow

__all__ = ["FORMATS", "Choices", "Document", "Format", "StepRow"]

FORMATS: tuple[Format, ...] = (
    table.PARQUET,
    elan.FORMAT,
    cvat.FORMAT,
    via.FORMAT,
    boris.FORMAT,
    label_studio.FORMAT,
    captions.VTT,
    captions.SRT,
    chapters.FORMAT,
    table.CSV,  # every other text
)
"""Formats in the order in which they are tried."""
