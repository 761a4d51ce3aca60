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
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cefito.data.annotations import SPLITS, Annotations, Video, make_step, parsing
from cefito.data.downloads import Place, find_place, find_places
from cefito.data.pickles import load_pickled
from cefito.data.prepared import PreparedDataset, write_dataset
from cefito.data.source import Source, check_repeats
from cefito.data.vocabulary import Taxonomy, nfc
from cefito.errors import DataError
from cefito.files import MAX_BYTES, check_array, read_bytes, read_json
from cefito.locks import check_new
from cefito.settings import Record, read_record

DOWNLOAD = "captaincook4d"
"""Name under which annotations and features are downloaded."""
_SHAPE = (
    'Expected {recording: {"activity_id", "activity_name", "steps": [{"step_id", "description", '
    '"start_time", "end_time"}]}}.'
)
_ERRORS_SHAPE = (
    'Expected [{"recording_id", "step_annotations": [{"step_id", "start_time", "errors": [{"tag"}]}'
    "]}]."
)
_SPLIT_SHAPE = 'Expected {"train": [recordings], "val": […], "test": […]}.'
_NAMES_SHAPE = 'Expected {step id: description}, as in {"1": "Pour-Pour 1 egg into the cup"}.'


def read_captaincook4d(folder: Path | str) -> Source:
    """Read the step annotations, the split and the errors in a download's folder.

    Recordings in no split are left out with a note.
    """
    return _read(downloaded_files(folder))[0]


def downloaded_files(folder: Path | str) -> dict[str, Path]:
    """Paths of `annotations`, `errors`, `names`, `split` and `features` in a download's folder."""
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
    embeddings = _read_embeddings(files["features"], find_place(f"{DOWNLOAD}-features"))
    source, ids = _read(files, embeddings)
    rows = []
    for video in source.annotations.videos:
        place = f"{files['features']}, recording '{video.video_id}'"
        steps = [(ids[step.action], step.start, step.end) for step in video.steps]
        rows.append(_rows(embeddings[video.video_id], steps, place))
    observations = np.concatenate(rows)
    return write_dataset(
        target,
        name=name or source.annotations.taxonomy.dataset,
        annotations=source.annotations,
        start=observations,
        end=observations,
        provenance={
            "observations": (
                "mean EgoVLP features of the 2 s segments of each step, the same at its start and "
                "end, stored as float16"
            ),
            "source": {"kind": source.form, "files": [path.name for path in source.files]},
            "notes": list(source.notes),
            "cefito": version("cefito"),
        },
    )


class _Step(Record, extra="ignore"):
    step_id: int
    description: str
    start_time: float
    end_time: float

    @property
    def times(self) -> tuple[float, float]:
        return round(self.start_time, 3), round(self.end_time, 3)


class _Recording(Record, extra="ignore"):
    activity_id: int
    activity_name: str
    steps: tuple[_Step, ...]

    @property
    def performed(self) -> list[_Step]:
        """The performed steps by start and end."""
        steps = [step for step in self.steps if 0 <= step.times[0] < step.times[1]]
        return sorted(steps, key=lambda step: step.times)


class _Errors(NamedTuple):
    # by recording and step id, the kinds of errors of each time that it was performed, in order
    kinds: dict[tuple[str, int], list[tuple[str, ...]]]
    missing: dict[str, list[int]]  # step ids that were not performed, by recording


class _ErrorEntry(Record, extra="ignore"):
    class Step(Record, extra="ignore"):
        class Error(Record, extra="ignore"):
            tag: str

        step_id: int
        start_time: float
        errors: tuple[Error, ...] = ()

    recording_id: str
    step_annotations: tuple[Step, ...]


def _read_errors(path: Path) -> _Errors:
    """Read the errors of all recordings; none if there is no such file."""
    errors = _Errors(defaultdict(list), defaultdict(list))
    if not path.exists():
        return errors
    value, what = read_json(path, _ERRORS_SHAPE, most=MAX_BYTES), f"{path}: not errors of steps"
    with parsing(str(path), "errors of steps", _ERRORS_SHAPE):
        for raw in value:
            entry = read_record(_ErrorEntry, raw, what, _ERRORS_SHAPE, DataError)
            recording = nfc(entry.recording_id)
            for step in sorted(entry.step_annotations, key=lambda step: step.start_time):
                if step.start_time < 0:
                    errors.missing[recording].append(step.step_id)
                else:
                    tags = tuple(dict.fromkeys(error.tag for error in step.errors))
                    errors.kinds[recording, step.step_id].append(tags)
    return errors


def _read(
    files: Mapping[str, Path], kept: Collection[str] | None = None
) -> tuple[Source, list[int]]:
    """The source of recordings that are in the split and in `kept`; the step id of each action."""
    annotations, split, names = (files[name] for name in ("annotations", "split", "names"))
    errors = _read_errors(files["errors"])
    value = read_json(annotations, _SHAPE, most=MAX_BYTES)
    if not isinstance(value, dict) or not value:
        raise DataError(f"{annotations}: not CaptainCook4D's step annotations. {_SHAPE}")
    split_of, descriptions = _split(split), _descriptions(names)
    entries = {nfc(recording): entry for recording, entry in value.items()}
    chosen = [recording for recording in sorted(entries, key=_numbers) if recording in split_of]
    used: dict[str, _Recording] = {}
    for recording in chosen:
        if kept is None or recording in kept:
            what = f"{annotations}, recording '{recording}': not a recording"
            used[recording] = read_record(_Recording, entries[recording], what, _SHAPE, DataError)
    if not used:
        raise DataError(f"{split}: names no recording of {annotations.name}. {_SPLIT_SHAPE}")
    taxonomy, actions, tasks = _taxonomy(used.values(), descriptions)
    videos = []
    for recording, details in used.items():
        steps, place = [], f"{annotations}, recording '{recording}'"
        for segment in details.performed:
            step = make_step(*segment.times, actions[segment.step_id], place=place)
            kinds = errors.kinds[recording, segment.step_id]
            steps.append(replace(step, errors=kinds.pop(0) if kinds else ()))
        missing = tuple(
            actions[step_id] for step_id in errors.missing[recording] if step_id in actions
        )
        task, split_name = tasks[details.activity_id], split_of[recording]
        videos.append(Video(recording, split_name, task, tuple(steps), missing=missing))
    made = Annotations(taxonomy=taxonomy, videos=tuple(videos))
    repeats = check_repeats(made, annotations)
    notes = []
    if skipped := sum(len(details.steps) for details in used.values()) - made.step_count:
        because = "have negative times or no duration: not performed, so left out"
        notes.append(f"{skipped} steps {because}.")
    if len(chosen) < len(entries):
        notes.append(f"{len(entries) - len(chosen)} recordings are in no split and are left out.")
    if absent := [recording for recording in chosen if recording not in used]:
        notes.append(f"{len(absent)} recordings have no features and are left out: {absent[0]}.")
    read = [annotations, split, names]
    if files["errors"].exists():
        read.append(files["errors"])
    else:
        notes.append("Errors of steps are not known: cefito data download captaincook4d-errors.")
    source = Source(
        annotations=made,
        form="CaptainCook4D's step annotations",
        files=tuple(read),
        notes=(*notes, *repeats),
    )
    return source, list(actions)


def _numbers(recording: str) -> list[str | int]:
    """Key that sorts 1_7 before 1_10."""
    parts = re.split(r"([0-9]+)", recording)
    return [int(piece) if number % 2 else piece for number, piece in enumerate(parts)]


def _taxonomy(
    recordings: Iterable[_Recording], descriptions: dict[int, str]
) -> tuple[Taxonomy, dict[int, int], dict[int, int]]:
    """The taxonomy, and its ids of the published step and activity ids, ascending."""
    names: dict[int, str] = {}
    activities: dict[int, str] = {}
    owned: dict[int, set[int]] = defaultdict(set)
    for recording in recordings:
        activities.setdefault(recording.activity_id, nfc(recording.activity_name).strip())
        for step in recording.performed:
            names.setdefault(step.step_id, descriptions.get(step.step_id, step.description))
            owned[recording.activity_id].add(step.step_id)
    actions = {number: action for action, number in enumerate(sorted(names))}
    tasks = {activity: task for task, activity in enumerate(sorted(activities))}
    taxonomy = Taxonomy.from_names(
        "captaincook4d",
        [
            (activities[activity], [actions[number] for number in owned[activity]])
            for activity in tasks
        ],
        # without the verb before the first hyphen, as in "Coat-Coat a cup"
        [
            nfc(names[number].partition("-")[2].strip() or names[number].strip())
            for number in actions
        ],
    )
    return taxonomy, actions, tasks


def _descriptions(path: Path) -> dict[int, str]:
    value = read_json(path, _NAMES_SHAPE)
    with parsing(str(path), "descriptions of steps", _NAMES_SHAPE):
        return {int(number): str(description) for number, description in value.items()}


def _split(path: Path) -> dict[str, str]:
    value, what = read_json(path, _SPLIT_SHAPE), f"{path}: not a split of recordings"
    splits = read_record(_Split, value, what, _SPLIT_SHAPE, DataError)
    split_of: dict[str, str] = {}
    for split in SPLITS:
        for recording in map(nfc, getattr(splits, split)):
            if split_of.setdefault(recording, split) != split:
                both = f"'{recording}' is in {split_of[recording]} and in {split}"
                raise DataError(f"{path}: {both}. Keep it in one of them.")
    return split_of


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
_Performed = tuple[int, float, float]
"""Published step id, start and end in seconds."""


def _read_embeddings(path: Path, place: Place) -> dict[str, Any]:
    """The published features by recording; a file with another SHA-256 is not unpickled."""
    command = f"cefito data download {place.name} {path.parent}"
    data = read_bytes(path, f"Download it: {command}.")
    remedy = f"Remove it and download it again: {command}."
    if (digest := hashlib.sha256(data).hexdigest()) != place.sha256:
        raise DataError(f"{path}: SHA-256 {digest}; expected {place.sha256}. {remedy}")
    value = load_pickled(data, path, "the published features of steps", remedy)
    with parsing(str(path), "features of steps", _EMBEDDINGS):
        return {str(recording): entry for recording, entry in value["data"].items()}


def _rows(entry: Any, steps: Sequence[_Performed], place: str) -> NDArray[np.float16]:
    """The features of a recording's annotated steps, [n, 256].

    Steps of one id are matched in the order of their times.
    """
    with parsing(place, "features of steps", _EMBEDDINGS):
        features = entry["step_embeddings"]
        held: list[_Performed] = [
            (int(step["step_id"]), float(step["start_time"]), float(step["end_time"]))
            for step in entry["step_info"]
        ]
        if features.dtype != np.float16:
            raise TypeError(f"numbers of type {features.dtype}")
    check_array(features, shape=(len(held), WIDTH), place=place)
    rows: dict[int, list[int]] = defaultdict(list)
    for row in sorted(range(len(held)), key=lambda row: held[row][1:]):
        rows[held[row][0]].append(row)
    chosen: list[int] = []
    fault = ""
    for number, start, end in steps:
        match = rows[number].pop(0) if rows[number] else None
        if match is None or max(abs(held[match][1] - start), abs(held[match][2] - end)) >= SEGMENT:
            fault = f"no features of step {number} from {start:g} s to {end:g} s"
            break
        chosen.append(match)
    if not fault and len(chosen) < len(held):
        fault = f"features of {len(held)} steps, but {len(chosen)} are annotated"
    if fault:
        raise DataError(f"{place}: has {fault}. Download annotations and features again.")
    return features[chosen]  # type: ignore[no-any-return]
