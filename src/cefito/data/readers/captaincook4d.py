"""CaptainCook4D: its complete step annotations and a split of its recordings.

A step with negative times was not performed and is left out. Steps are sorted by their start times.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

from cefito.data.annotations import SPLITS, Annotations, Taxonomy, Video, nfc, parsing
from cefito.data.readers.source import Source, check_repeats, make_step
from cefito.errors import DataError
from cefito.files import MAX_BYTES, read_json
from cefito.settings import Record, read_record

__all__ = ["read_captaincook4d"]

_SHAPE = (
    'Expected {recording: {"activity_id", "activity_name", "steps": [{"step_id", "description", '
    '"start_time", "end_time"}]}}.'
)
_SPLIT_SHAPE = 'Expected {"train": [recordings], "val": […], "test": […]}.'


def read_captaincook4d(annotations: Path | str, split: Path | str) -> Source:
    """Read the step annotations and the split; recordings in no split are left out with a note."""
    annotations, split = Path(annotations), Path(split)
    value = read_json(annotations, _SHAPE, most=MAX_BYTES)
    if not isinstance(value, dict) or not value:
        raise DataError(f"{annotations}: not CaptainCook4D's step annotations. {_SHAPE}")
    split_of = _split(split)
    entries = {
        nfc(recording): _entry(entry, f"{annotations}, recording '{recording}'")
        for recording, entry in value.items()
    }
    taxonomy, actions, tasks = _taxonomy(entries)
    videos, skipped = [], 0
    for recording, (activity, _, steps) in entries.items():
        if recording not in split_of:
            continue
        made = []
        for number, (step, _, start, end) in enumerate(steps):
            if start < 0 and end < 0:
                continue
            place = f"{annotations}, recording '{recording}', step {number} (counted from 0)"
            made.append(make_step(start, end, actions[step], place=place))
        skipped += len(steps) - len(made)
        videos.append(Video(recording, split_of[recording], tasks[activity], tuple(made)))
    if not videos:
        raise DataError(f"{split}: names no recording of {annotations.name}. {_SPLIT_SHAPE}")
    found = Annotations(taxonomy=taxonomy, videos=tuple(videos))
    repeats = check_repeats(found, annotations)
    in_order = tuple(
        replace(video, steps=tuple(sorted(video.steps, key=lambda step: (step.start, step.end))))
        for video in videos
    )
    notes = []
    if skipped:
        notes.append(f"{skipped} steps have negative times: not performed, so left out.")
    if len(videos) < len(entries):
        notes.append(f"{len(entries) - len(videos)} recordings are in no split and are left out.")
    return Source(
        annotations=replace(found, videos=in_order),
        form="CaptainCook4D's step annotations",
        files=(annotations, split),
        notes=(*notes, *repeats),
    )


_Entry = tuple[int, str, list[tuple[int, str, float, float]]]


def _entry(entry: Any, place: str) -> _Entry:
    with parsing(place, "a recording", _SHAPE):
        steps = []
        for step in entry["steps"]:
            name = nfc(str(step["description"])).strip()
            times = float(step["start_time"]), float(step["end_time"])
            steps.append((int(step["step_id"]), name, *times))
        return int(entry["activity_id"]), nfc(str(entry["activity_name"])).strip(), steps


def _taxonomy(entries: dict[str, _Entry]) -> tuple[Taxonomy, dict[int, int], dict[int, int]]:
    """The taxonomy, and its ids of the published step and activity ids."""
    names: dict[int, str] = {}
    activities: dict[int, str] = {}
    owned: dict[int, set[int]] = defaultdict(set)
    for activity, activity_name, steps in entries.values():
        activities.setdefault(activity, activity_name)
        for step, name, _, _ in steps:
            names.setdefault(step, name)
            owned[activity].add(step)
    order = dict.fromkeys(
        step for activity in sorted(activities) for step in sorted(owned[activity])
    )
    actions = {step: number for number, step in enumerate(order)}
    tasks = {activity: number for number, activity in enumerate(sorted(activities))}
    taxonomy = Taxonomy.from_names(
        "captaincook4d",
        [(activities[activity], [actions[step] for step in owned[activity]]) for activity in tasks],
        [names[step] for step in actions],
    )
    return taxonomy, actions, tasks


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
