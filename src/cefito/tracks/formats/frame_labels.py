"""A label a frame, a line each, as MS-TCN and its followers read them: groundTruth/VIDEO.txt.

The folder above may hold mapping.txt, with the labels, and the splits, as train.split1.bundle.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path

from cefito.data.annotations import SPLITS
from cefito.errors import ConfigError
from cefito.files import file_names
from cefito.tracks.document import Choices, Document, Format, StepRow, Told
from cefito.tracks.track import Track

TRUTH = "groundTruth"
"""Folder of the labels."""
_SPLITS = "splits"  # folder of the lists of files
_LABEL = re.compile(r"[^\t,;|\"<>{}\[\]=]{1,100}")
_SIGNS = ',;|"<>{}[]='  # that no label has
_CODES = {sign: f"%{ord(sign):02X}" for sign in _SIGNS}  # as they are written
_NUMBER = re.compile(r"[0-9.,:+-]+")
BACKGROUND = "background"
"""Label of frames that are of no step, as it is written."""
_BACKGROUND = (
    *(BACKGROUND, "bg", "sil", "null", "void", "no_action"),
    *("action_start", "action_end"),  # of 50 Salads
)
_REPEATED = 0.5  # least share of lines that repeat the one before


def names_of_no_step(choices: Choices, usual: Iterable[str] = _BACKGROUND) -> set[str]:
    """Return the labels of frames that are of no step, in small letters; if not chosen, `usual`."""
    none = usual if choices.background is None else choices.background.split(",")
    return {name.strip().casefold() for name in none}


def _labels(text: str) -> list[str]:
    return [line.strip() for line in text.strip().split("\n")]


def _read(document: Document) -> Iterator[StepRow]:
    """Yield each run of equal labels that is no background."""
    names, no_steps = _mapping(document.path), names_of_no_step(document.choices)
    labels = _labels(document.text)
    rate, split = document.rate(document.video), _split(document)
    first = 0
    for label, lines in groupby(labels):
        after = first + len(list(lines))
        name = names.get(label, label)
        for sign, code in _CODES.items():
            name = name.replace(code, sign)
        place = document.place(f"line {first + 1} to line {after}")
        if _NUMBER.fullmatch(name):
            raise document.wrong(f"has the label '{name}'. Put mapping.txt beside its folder.")
        if name.casefold() in no_steps:
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


def bundles(folder: Path, number: int | None) -> dict[str, Path]:
    """Return the list of files of each split of a folder, of a number or else the first ones."""
    wanted = "*" if number is None else number
    return {
        name: lists[0]
        for name in SPLITS
        if (lists := sorted(folder.glob(f"{_SPLITS}/{name}.split{wanted}.bundle")))
    }


def _split(document: Document) -> str:
    """The split whose bundle lists a file; empty if none does."""
    for folder in document.path.resolve().parents[:2]:
        for name, bundle in bundles(folder, document.choices.bundle).items():
            if document.path.name in bundled(bundle):
                document.notes[f"files with their split in {bundle.name}"] += 1
                return name
    return ""


def bundled(bundle: Path) -> list[str]:
    """Return the names of the files that a bundle lists, which may begin with folders."""
    names = bundle.read_text("utf-8", "replace").split("\n")
    return [name.strip().rpartition("/")[2] for name in names if name.strip()]


def _recognises(document: Document) -> bool:
    """Whether all lines are names, most of which repeat the one before."""
    labels = _labels(document.head)
    if len(labels) < 2 or not all(map(_LABEL.fullmatch, labels)):
        return False
    repeated = sum(label == following for label, following in pairwise(labels))
    return repeated >= _REPEATED * len(labels)


def _write(videos: Sequence[Track], frame_rate: float) -> str:
    """Return the label of each frame of one video, a line each."""
    (video,) = videos
    labels = [BACKGROUND] * round(video.seconds * frame_rate)
    for step in video.steps:
        first = round(step.start * frame_rate)
        after = max(first + 1, round(step.end * frame_rate))
        labels += [BACKGROUND] * (after - len(labels))
        label = _label(step.name)
        if {*labels[first:after]} - {BACKGROUND, label}:
            problem = f"'{step.name}' and another step are in frame {first} or after it"
            remedy = "A frame has one label. Give more frames per second, or another format"
            raise ConfigError(f"video '{video.video}': {problem}. {remedy}.", setting="frame_rate")
        labels[first:after] = [label] * (after - first)
    return "".join(f"{label}\n" for label in labels)


def _label(name: str) -> str:
    """Return a name as a label, which mapping.txt ends at a space (ConfigError if it is none)."""
    joined = "_".join(name.split())
    label = "".join(_CODES.get(letter, letter) for letter in joined)
    odd = _NUMBER.fullmatch(joined) or joined.casefold() in _BACKGROUND
    if odd or not _LABEL.fullmatch(label):
        read_as = "a number, or a label of no step" if odd else "no label (1 to 100 characters)"
        problem = f"step '{name}': labels of frames would be read as {read_as}"
        raise ConfigError(f"{problem}. Rename the step, or give another format.")
    return label


def _beside(videos: Sequence[Track]) -> Mapping[str, str]:
    """Return mapping.txt of all labels, and the lists of the files of each split.

    Raises:
        ConfigError: Two names that are one label.
    """
    names = dict.fromkeys(step.name for video in videos for step in video.steps)
    labels = {_label(name): name for name in names}
    if len(labels) < len(names):
        pair = next(name for name in names if labels[_label(name)] != name)
        both = f"'{pair}' and '{labels[_label(pair)]}'"
        raise ConfigError(f"{both} are one label, '{_label(pair)}'. Rename one.")
    lines = enumerate(dict.fromkeys([BACKGROUND, *labels]))
    files = file_names([video.video for video in videos])
    of_split = {
        name: [f"{files[video.video]}.txt" for video in videos if video.split == name]
        for name in SPLITS
    }
    return {"mapping.txt": "".join(f"{number} {label}\n" for number, label in lines)} | {
        f"{_SPLITS}/{name}.split1.bundle": "".join(f"{file}\n" for file in listed)
        for name, listed in of_split.items()
        if listed
    }


FORMATS = (
    Format(
        name="labels of frames",
        endings=(".txt",),
        told=Told.RUNS,
        recognises=_recognises,
        read=_read,
        step="run of frames",
        key="frames",
        write=_write,
        single=True,
        frames=True,
        beside=_beside,
        folder=TRUTH,
    ),
)
