"""A label a frame, a line each, as MS-TCN and its followers read them: groundTruth/VIDEO.txt.

The folder above may hold mapping.txt, with the labels, and the splits, as train.split1.bundle.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path

from cefito.data.annotations import SPLITS
from cefito.tracks.document import Document, Format, StepRow, Told

_LABEL = re.compile(r"[^\t,;|\"<>{}\[\]=]{1,100}")
_NUMBER = re.compile(r"[0-9.,:+-]+")
_BACKGROUND = ("background", "bg", "sil", "null", "void", "no_action")
_REPEATED = 0.5  # least share of lines that repeat the one before


def _labels(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _read(document: Document) -> Iterator[StepRow]:
    """Yield each run of equal labels that is no background."""
    names = _mapping(document.path)
    labels = _labels(document.text)
    rate, split = document.rate(document.video), _split(document)
    first = 0
    for label, lines in groupby(labels):
        after = first + len(list(lines))
        name = names.get(label, label)
        place = document.place(f"line {first + 1} to line {after}")
        if _NUMBER.fullmatch(name):
            raise document.wrong(f"has the label '{name}'. Put mapping.txt beside its folder.")
        if name.casefold() in _BACKGROUND:
            document.left_out[f"runs of '{name}'"] += 1
        else:
            yield StepRow(document.video, name, first / rate, after / rate, place, split=split)
        first = after


def _mapping(path: Path) -> dict[str, str]:
    """Names of labels by number, of mapping.txt in the folder of a file or the one above."""
    folders = path.resolve().parents[:2]
    file = next((file for at in folders if (file := at / "mapping.txt").is_file()), None)
    lines = file.read_text("utf-8", "replace").split("\n") if file else []
    return {cells[0]: cells[1] for line in lines if len(cells := line.split(maxsplit=1)) == 2}


def _split(document: Document) -> str:
    """The split whose first bundle lists a file; empty if none does."""
    for folder in document.path.resolve().parents[:2]:
        for name in SPLITS:
            bundles = sorted(folder.glob(f"splits/{name}.split*.bundle"))
            if bundles and document.path.name in bundles[0].read_text("utf-8", "replace").split():
                document.notes[f"files with their split in {bundles[0].name}"] += 1
                return name
    return ""


def _recognises(document: Document) -> bool:
    """Whether all lines are names, most of which repeat the one before."""
    labels = _labels(document.head)
    if len(labels) < 2 or not all(map(_LABEL.fullmatch, labels)):
        return False
    repeated = sum(label == following for label, following in pairwise(labels))
    return repeated >= _REPEATED * len(labels)


FORMATS = (
    Format(
        name="labels of frames",
        endings=(".txt",),
        told=Told.RUNS,
        recognises=_recognises,
        read=_read,
        step="run of frames",
    ),
)
