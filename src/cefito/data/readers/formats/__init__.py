"""Formats of annotation tools; to add one, write a file here and a row in `FORMATS`."""

from cefito.data.readers.formats import (
    activitynet,
    boris,
    captions,
    chapters,
    cvat,
    elan,
    frame_labels,
    label_studio,
    table,
    unread,
    via,
)
from cefito.data.readers.formats.document import Choices, Document, Format, StepRow

__all__ = ["FORMATS", "Choices", "Document", "Format", "StepRow"]

FORMATS: tuple[Format, ...] = (
    table.PARQUET,
    unread.FORMAT,
    elan.FORMAT,
    cvat.FORMAT,
    via.FORMAT,
    activitynet.FORMAT,
    captions.VTT,
    captions.SRT,
    captions.SBV,
    table.NAMED,  # before tools whose exports are told by the name of a column
    boris.FORMAT,
    label_studio.FORMAT,
    frame_labels.FORMAT,
    chapters.FORMAT,
    table.CSV,  # every other text
)
"""Formats in the order in which they are tried."""
