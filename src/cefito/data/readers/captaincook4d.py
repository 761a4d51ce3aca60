"""CaptainCook4D: its step annotations, a split of its recordings, and published features of steps.

Actions and tasks are numbered by the ascending published ids of steps and activities, recordings
are sorted by the numbers in their names, and steps by start and end, which are rounded to
milliseconds. A step with a negative time, or that does not end after it starts, was not performed
and is left out.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.data.annotations import SPLITS, Annotations, Taxonomy, Video, nfc, parsing
from cefito.data.downloads import Place, find_place, find_places
from cefito.data.pickles import load_pickled
from cefito.data.prepared import PreparedDataset, write_dataset
from cefito.data.readers.source import Source, check_repeats, make_step
from cefito.errors import DataError
from cefito.files import MAX_BYTES, check_array, check_new, read_bytes, read_json
from cefito.settings import Record, read_record

DOWNLOAD = "captaincook4d"
"""Name under which annotations and features are downloaded."""
_SHAPE = (
    'Expected {recording: {"activity_id", "activity_name", "steps": [{"step_id", "description", '
    '"start_time", "end_time"}]}}.'
)
_SPLIT_SHAPE = 'Expected {"train": [recordings], "val": […], "test": […]}.'
_NAMES_SHAPE = 'Expected {step id: description}, as in {"1": "Pour-Pour 1 egg into the cup"}.'


def read_captaincook4d(
    annotations: Path | str, split: Path | str, names: Path | str | None = None
) -> Source:
    """Read the step annotations and the split; recordings in no split are left out with a note.

    Args:
        annotations: The complete step annotations, JSON.
        split: Recordings of train, val and test, JSON.
        names: Descriptions by step id, JSON; by default the first one in the annotations.
    """
    return _read(Path(annotations), Path(split), None if names is None else Path(names))[0]


def downloaded_files(folder: Path | str) -> dict[str, Path]:
    """Paths of `annotations`, `names`, `split` and `features` in the folder of the download."""
    return {
        place.name.removeprefix(f"{DOWNLOAD}-"): Path(folder) / place.file
        for place in find_places(DOWNLOAD)
    }


def prepare_captaincook4d(
    folder: Path | str, target: Path | str, *, name: str | None = None
) -> PreparedDataset:
    """Turn the downloaded annotations and features of steps into a prepared data set.

    The observation of a step is the mean of EgoVLP's projected features [256] of the 2 s segments
    that the step touches; it is the same at the start and at the end of the step.

    Args:
        folder: Folder of the download.
        target: New folder.
        name: Name shown in tables; by default captaincook4d.

    Raises:
        DataError: A file is missing or malformed, the features are not the published ones, or
            annotations and features do not fit.
    """
    folder, target = Path(folder), Path(target)
    check_new(target, name)
    files = downloaded_files(folder)
    embeddings = read_step_embeddings(files["features"], find_place(f"{DOWNLOAD}-features"))
    source, ids = _read(files["annotations"], files["split"], files["names"], embeddings)
    videos = source.annotations.videos
    rows = np.concatenate(
        [
            embeddings[video.video_id].rows_of(
                [(ids[step.action], step.start, step.end) for step in video.steps],
                place=f"{files['features']}, recording '{video.video_id}'",
            )
            for video in videos
        ]
    )
    return write_dataset(
        target,
        name=name or source.annotations.taxonomy.dataset,
        annotations=source.annotations,
        start=rows,
        end=rows,
        provenance={
            "observations": (
                "mean EgoVLP features of the 2 s segments of each step, the same at its start and "
                "end, stored as float16"
            ),
            "source": {"kind": source.form, "files": [path.name for path in files.values()]},
            "notes": list(source.notes),
            "cefito": version("cefito"),
        },
    )


@dataclass(frozen=True)
class _Performed:
    """A performed step: its published id, description, start and end in seconds."""

    number: int
    description: str
    start: float
    end: float


@dataclass(frozen=True)
class _Recording:
    activity: int
    name: str  # of the activity
    steps: tuple[_Performed, ...]
    skipped: int  # annotated steps that were not performed


def _read(
    annotations: Path, split: Path, names: Path | None, kept: Collection[str] | None = None
) -> tuple[Source, list[int]]:
    """The source of recordings that are in the split and in `kept`; the step id of each action."""
    value = read_json(annotations, _SHAPE, most=MAX_BYTES)
    if not isinstance(value, dict) or not value:
        raise DataError(f"{annotations}: not CaptainCook4D's step annotations. {_SHAPE}")
    split_of = _split(split)
    descriptions = {} if names is None else _descriptions(names)
    entries = {nfc(recording): entry for recording, entry in value.items()}
    chosen = [recording for recording in sorted(entries, key=_numbers) if recording in split_of]
    used = {
        recording: _recording(entries[recording], f"{annotations}, recording '{recording}'")
        for recording in chosen
        if kept is None or recording in kept
    }
    if not used:
        raise DataError(f"{split}: names no recording of {annotations.name}. {_SPLIT_SHAPE}")
    taxonomy, actions, tasks = _taxonomy(used, descriptions)
    videos = []
    for recording, found in used.items():
        place = f"{annotations}, recording '{recording}'"
        steps = [make_step(x.start, x.end, actions[x.number], place=place) for x in found.steps]
        task = tasks[found.activity]
        videos.append(Video(recording, split_of[recording], task, tuple(steps)))
    made = Annotations(taxonomy=taxonomy, videos=tuple(videos))
    repeats = check_repeats(made, annotations)
    notes = []
    if skipped := sum(found.skipped for found in used.values()):
        because = "have negative times or no duration: not performed, so left out"
        notes.append(f"{skipped} steps {because}.")
    if len(chosen) < len(entries):
        notes.append(f"{len(entries) - len(chosen)} recordings are in no split and are left out.")
    if missing := [recording for recording in chosen if recording not in used]:
        notes.append(f"{len(missing)} recordings have no features and are left out: {missing[0]}.")
    source = Source(
        annotations=made,
        form="CaptainCook4D's step annotations",
        files=(annotations, split) if names is None else (annotations, split, names),
        notes=(*notes, *repeats),
    )
    return source, list(actions)


def _numbers(recording: str) -> list[str | int]:
    """Key that sorts 1_7 before 1_10."""
    parts = re.split(r"([0-9]+)", recording)
    return [int(part) if number % 2 else part for number, part in enumerate(parts)]


def _recording(entry: Any, place: str) -> _Recording:
    with parsing(place, "a recording", _SHAPE):
        steps = [
            _Performed(
                int(step["step_id"]),
                str(step["description"]),
                round(float(step["start_time"]), 3),
                round(float(step["end_time"]), 3),
            )
            for step in entry["steps"]
        ]
        performed = [step for step in steps if 0 <= step.start < step.end]
        return _Recording(
            activity=int(entry["activity_id"]),
            name=nfc(str(entry["activity_name"])).strip(),
            steps=tuple(sorted(performed, key=lambda step: (step.start, step.end))),
            skipped=len(steps) - len(performed),
        )


def _taxonomy(
    recordings: dict[str, _Recording], descriptions: dict[int, str]
) -> tuple[Taxonomy, dict[int, int], dict[int, int]]:
    """The taxonomy, and its ids of the published step and activity ids, ascending."""
    names: dict[int, str] = {}
    activities: dict[int, str] = {}
    owned: dict[int, set[int]] = defaultdict(set)
    for found in recordings.values():
        activities.setdefault(found.activity, found.name)
        for step in found.steps:
            names.setdefault(step.number, descriptions.get(step.number, step.description))
            owned[found.activity].add(step.number)
    actions = {number: action for action, number in enumerate(sorted(names))}
    tasks = {activity: task for task, activity in enumerate(sorted(activities))}
    taxonomy = Taxonomy.from_names(
        "captaincook4d",
        [(activities[one], [actions[number] for number in owned[one]]) for one in tasks],
        [_name(names[number]) for number in actions],
    )
    return taxonomy, actions, tasks


def _name(description: str) -> str:
    """The description without the verb before its first hyphen, as in "Coat -Coat a cup"."""
    return nfc(description.partition("-")[2].strip() or description.strip())


def _descriptions(path: Path) -> dict[int, str]:
    value = read_json(path, _NAMES_SHAPE)
    with parsing(str(path), "descriptions of steps", _NAMES_SHAPE):
        return {int(number): str(description) for number, description in value.items()}


def _split(path: Path) -> dict[str, str]:
    value, what = read_json(path, _SPLIT_SHAPE), f"{path}: not a split of recordings"
    splits = read_record(_Split, value, what, _SPLIT_SHAPE, DataError)
    found: dict[str, str] = {}
    for split in SPLITS:
        for recording in map(nfc, getattr(splits, split)):
            if found.setdefault(recording, split) != split:
                both = f"'{recording}' is in {found[recording]} and in {split}"
                raise DataError(f"{path}: {both}. Keep it in one of them.")
    return found


class _Split(Record, extra="ignore"):
    train: tuple[str, ...] = ()
    val: tuple[str, ...] = ()
    test: tuple[str, ...] = ()


WIDTH = 256
"""Features of a step."""
SEGMENT = 2.0
"""Seconds of video of which EgoVLP makes one vector."""
_EMBEDDINGS = (
    'Expected {"data": {recording: {"step_embeddings": float16 [steps, 256], "step_info": '
    '[{"step_id", "start_time", "end_time"}]}}}.'
)


@dataclass(frozen=True)
class StepEmbeddings:
    """Features of the performed steps of a recording."""

    features: NDArray[np.float16]  # [n, 256]
    steps: list[tuple[int, float, float]]  # published step id, start and end in seconds [n]

    def rows_of(
        self, steps: Sequence[tuple[int, float, float]], *, place: str
    ) -> NDArray[np.float16]:
        """Return the features of annotated steps in their order, [n, 256].

        Steps of one id are matched in the order of their times.

        Args:
            steps: Published step id, start and end in seconds of each annotated step, by time.
            place: Begins errors.

        Raises:
            DataError: The recording has features of other steps.
        """
        rows: dict[int, list[int]] = defaultdict(list)
        for row in sorted(range(len(self.steps)), key=lambda row: self.steps[row][1:]):
            rows[self.steps[row][0]].append(row)
        chosen: list[int] = []
        fault = ""
        for number, start, end in steps:
            if rows[number]:
                chosen.append(rows[number].pop(0))
                found = self.steps[chosen[-1]]
                if max(abs(found[1] - start), abs(found[2] - end)) < SEGMENT:
                    continue
            fault = f"no features of step {number} from {start:g} s to {end:g} s"
            break
        if not fault and len(chosen) < len(self.steps):
            fault = f"features of {len(self.steps)} steps, but {len(chosen)} are annotated"
        if fault:
            raise DataError(f"{place}: has {fault}. Download annotations and features again.")
        return self.features[chosen]


def read_step_embeddings(path: Path, place: Place) -> dict[str, StepEmbeddings]:
    """Read the features of each recording's steps.

    Args:
        path: The file.
        place: What is documented of it; a file with another SHA-256 is not unpickled.

    Raises:
        DataError: The file is missing, not the documented one, names a class or function other than
            those of NumPy arrays, or has another content.
    """
    command = f"cefito data download {place.name} {path.parent}"
    data = read_bytes(path, f"Download it: {command}.")
    remedy = f"Remove it and download it again: {command}."
    if (digest := hashlib.sha256(data).hexdigest()) != place.sha256:
        raise DataError(f"{path}: SHA-256 {digest}; expected {place.sha256}. {remedy}")
    value = load_pickled(data, path, "the published features of steps", remedy)
    with parsing(str(path), "features of steps", _EMBEDDINGS):
        return {
            str(recording): _embeddings(entry, f"{path}, recording '{recording}'")
            for recording, entry in value["data"].items()
        }


def _embeddings(entry: Any, place: str) -> StepEmbeddings:
    with parsing(place, "features of steps", _EMBEDDINGS):
        features = entry["step_embeddings"]
        steps = [
            (int(step["step_id"]), float(step["start_time"]), float(step["end_time"]))
            for step in entry["step_info"]
        ]
        if features.dtype != np.float16:
            raise TypeError(f"numbers of type {features.dtype}")
    return StepEmbeddings(check_array(features, shape=(len(steps), WIDTH), place=place), steps)
