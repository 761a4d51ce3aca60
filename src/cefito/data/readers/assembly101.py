"""Assembly101's labels of mistakes: right videos to learn from, and test videos with mistakes.

The project assembly-101/assembly101-mistake-detection has one file a video without a head: first
and last frame at 30 a second, verb, part, what it is attached to, "correct", "mistake" or
"correction", and the cause of a mistake. Lists name the videos of each split (Assembly101-O, as
published with Differentiable Task Graph Learning). The toy is the task, in all its variants.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from cefito.data.downloads import find_places
from cefito.errors import DataError, explained
from cefito.files import MAX_BYTES, read_bytes, read_text
from cefito.markup import decoded, step_times
from cefito.tracks.track import TimedStep, Track

DOWNLOAD = "assembly101"
"""Name under which the labels and splits are downloaded."""
_REMEDY = f"Download it: cefito data download {DOWNLOAD} FOLDER."
_RATE = 30  # frames a second
_TOY = re.compile(r"-([a-z]\d+)[a-z]?_")
_FILE = re.compile(r"(?:.*/)?annots/([^/]+)\.csv")
_VERBS = {"position": "attach"}  # as published work writes it
_LABELS = "correct", "mistake", "correction"
_SHAPE = "Expected first frame, last frame, verb, part, other part, label and cause"


def read_assembly101(folder: Path | str, *, whole: bool = False) -> list[Track]:
    """Read the videos of both splits, in the order of their lists.

    Test videos end with their first mistake, as published work cuts them. A mistake has its cause
    as its kind.

    Args:
        folder: Folder of the download, or with a folder annots of the project in place of its
            archive.
        whole: Whether test videos go on to their end.

    Raises:
        DataError: A file that is missing or damaged, or a video without labels.
    """
    folder = Path(folder)
    places = {
        place.name.removeprefix(f"{DOWNLOAD}-"): place.file for place in find_places(DOWNLOAD)
    }
    texts = dict(_texts(folder, folder / places["labels"]))
    tracks = []
    for split in ("train", "test"):
        path = folder / places[split]
        for name in read_text(path, _REMEDY).split():
            if name not in texts:
                problem = f"names the video '{name}', which has no labels"
                raise DataError(f"{path}: {problem}. Download both again.")
            tracks.append(_track(name, split, *texts[name], whole=whole or split == "train"))
    return tracks


def _texts(folder: Path, archive: Path) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the name of each video, and place and content of its file."""
    if (folder / "annots").is_dir():
        for path in sorted((folder / "annots").glob("*.csv")):
            yield path.stem, (str(path), decoded(read_bytes(path, _REMEDY), path)[0])
        return
    content = read_bytes(archive, _REMEDY)
    with (
        explained(archive, "is damaged", "Download it again.", zipfile.BadZipFile, OSError),
        zipfile.ZipFile(io.BytesIO(content)) as files,
    ):
        for entry in files.infolist():
            if (match := _FILE.fullmatch(entry.filename)) and entry.file_size < MAX_BYTES:
                place = Path(entry.filename)
                yield match[1], (f"{archive}, {place}", decoded(files.read(entry), place)[0])


def _track(name: str, split: str, place: str, text: str, *, whole: bool) -> Track:
    """Return a video, up to its first mistake unless it is whole."""
    toy = _TOY.search(name)
    if toy is None:
        raise DataError(f"{place}: the name of the video has no toy, as in '…_9011-b06b_9011…'.")
    steps = list[TimedStep]()
    for line, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if not row:
            continue
        steps.append(_step(row, f"{place}, line {line}"))
        if steps[-1].errors and not whole:
            break
    return Track(
        video=name,
        task=f"toy {toy[1]}",
        recognised=False,
        seconds=max((step.end for step in steps), default=0.0),
        steps=tuple(steps),
        split=split,
    )


def _step(row: list[str], place: str) -> TimedStep:
    first, last, verb, part, label, cause = (*row[:4], *row[5:7], *[""] * 7)[:6]
    label = label.strip()
    frames = [text.strip() for text in (first, last)]
    if not all(frame.isdecimal() for frame in frames) or label not in _LABELS or not part.strip():
        raise DataError(f"{place}: {_SHAPE}; the label is one of {', '.join(_LABELS)}.")
    start, end = (round(int(frame) / _RATE, 2) for frame in frames)
    step_times(start, end, place=place)
    verb = _VERBS.get(verb.strip(), verb.strip())
    errors = (cause.strip() or "error",) if label == "mistake" else ()
    name = f"{verb}-{part.strip().replace(' ', '_')}"
    return TimedStep(name=name, start=start, end=end, errors=errors)
