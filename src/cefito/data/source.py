"""`Source`: annotations as a reader found them, with the names of their feature files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from cefito.data.annotations import Annotations, Step, Video, json_lines, read_annotations
from cefito.data.folds import FEW_VIDEOS, drawn_groups
from cefito.data.vocabulary import folded, nfc
from cefito.errors import DataError
from cefito.markup import counted, step_times
from cefito.settings import Record, parse_record

ERRORS_FILE = "errors.jsonl"
"""Errors of steps and missing steps, beside `videos.jsonl`."""
TEST_SHARE = 0.3
SPLIT_SEED = 20260502
UNPUBLISHED = (
    "The split is not the one of the unified protocol; for scores comparable with published ones, "
    "use its window files."
)
"""Note on annotations whose split differs from the one of published tables."""
_REPEATS_PUBLISHED = ("crosstask",)
"""Data sets whose published annotations, and so the published windows, contain repeated steps."""


@dataclass(frozen=True)
class Source:
    """Annotations, before their features are looked for.

    `names` has possible names of a video's feature file, the likeliest first; by default its id.
    """

    annotations: Annotations
    form: str  # in words
    files: tuple[Path, ...]  # that were read
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # sentences that the user should read
    features: Path | None = None  # folder that the annotations name, if it exists
    action_text: Path | None = None  # file of the actions' text embeddings
    tier: str = ""  # of an annotation tool, that holds the steps; empty if there is none


def read_common(folder: Path | str) -> Source:
    """Read the common form, a folder with taxonomy.json and videos.jsonl."""
    folder = Path(folder)
    place = folder / "videos.jsonl"
    annotations, files, notes = read_annotations(folder), [folder / "taxonomy.json", place], []
    if (path := folder / ERRORS_FILE).exists():
        annotations, note = _with_errors(annotations, path)
        files.append(path)
        notes += [note] * bool(note)
    for video in annotations.videos:
        for number, step in enumerate(video.steps, 1):
            step_times(step.start, step.end, place=f"{place}, '{video.video_id}', step {number}")
    return Source(
        annotations=annotations,
        form="taxonomy.json and videos.jsonl",
        files=tuple(files),
        notes=(*check_repeats(annotations, place), *notes),
    )


class _Errors(Record, extra="ignore"):
    """A line of errors.jsonl."""

    video_id: str
    steps: list[tuple[str, ...]]  # kinds of the errors of each step
    missing: tuple[int | str, ...] = ()  # actions that were not performed, ids or names


_ERRORS_SHAPE = (
    'Expected {"video_id", "steps": [[kinds of errors] for each step], "missing": [action ids or '
    "names]} a line."
)


def _with_errors(annotations: Annotations, path: Path) -> tuple[Annotations, str]:
    """Add the errors of a file to the steps; and a note on names that no action has."""
    names = annotations.taxonomy.actions
    ids = {folded(action.name): action.id for action in names}
    videos, unknown = {video.video_id: video for video in annotations.videos}, 0
    for where, line in json_lines(path, _ERRORS_SHAPE):
        entry = parse_record(_Errors, line, f"{where}: not a video", _ERRORS_SHAPE, DataError)
        video = videos.get(nfc(entry.video_id))
        if video is None or len(video.steps) != len(entry.steps):
            has = f"'{entry.video_id}' with {len(entry.steps)} steps"
            raise DataError(f"{where}: videos.jsonl has no video {has}. Correct the line.")
        task = annotations.taxonomy.tasks[video.task].actions
        task_ids = {folded(names[action].name): action for action in task}
        missing = [
            label if isinstance(label, int) else (ids | task_ids).get(folded(label), label)
            for label in entry.missing
        ]
        known_actions = [
            label for label in missing if isinstance(label, int) and 0 <= label < len(names)
        ]
        unknown += len(missing) - len(known_actions)
        pairs = zip(video.steps, entry.steps, strict=True)
        steps = tuple(replace(step, errors=kinds) for step, kinds in pairs)
        videos[video.video_id] = replace(video, steps=steps, missing=tuple(known_actions))
    note = f"{path.name}: left out {counted(unknown, 'missing step')} of no known action."
    return replace(annotations, videos=tuple(videos.values())), note * bool(unknown)


def check_repeats(annotations: Annotations, place: Path) -> tuple[str, ...]:
    """Refuse repeated steps of a video, or note them if the published windows have them."""
    repeats: list[tuple[Video, int, int]] = []  # with the numbers of both steps
    for video in annotations.videos:
        seen: dict[Step, int] = {}
        for number, step in enumerate(video.steps, 1):
            if (earlier := seen.setdefault(step, number)) != number:
                repeats.append((video, earlier, number))
    if not repeats:
        return ()
    count, videos = len(repeats), counted(len({id(video) for video, *_ in repeats}), "video")
    video, earlier, number = repeats[0]
    step = video.steps[number - 1]
    first = (
        f"steps {earlier} and {number} (counted from 1) of video '{video.video_id}' are identical, "
        f"'{annotations.taxonomy.actions[step.action].name}' from {step.start:g} s to "
        f"{step.end:g} s"
    )
    if annotations.taxonomy.dataset not in _REPEATS_PUBLISHED:
        more = f", and so are {count - 1} more in {videos}" * (count > 1)
        raise DataError(f"{place}: {first}{more}. Remove all but one of each.")
    return (
        f"The published annotations repeat {counted(count, 'step')} of {videos}; they are kept, so "
        f"that the windows are the published ones. For example, {first}.",
    )


def draw_split(videos: Sequence[Video]) -> tuple[Video, ...]:
    """Draw 30 % of the videos of each task for test, one of two or three, by a fixed seed.

    Where videos share a group, whole groups are drawn, with about 30 % of all videos. Of fewer than
    30 videos none is drawn: all train, and folds judge.
    """
    if len(videos) < FEW_VIDEOS:
        return tuple(replace(video, split="train") for video in videos)
    by_task: dict[int, list[int]] = defaultdict(list)
    for index, video in enumerate(videos):
        by_task[video.task].append(index)
    generator = np.random.default_rng(SPLIT_SEED)
    test = drawn_groups(videos, TEST_SHARE, SPLIT_SEED)
    for task in [] if test else sorted(by_task):
        members = by_task[task]
        count = max(round(TEST_SHARE * len(members)), int(len(members) > 1))
        test.update(int(index) for index in generator.choice(members, size=count, replace=False))
    return tuple(
        replace(video, split="test" if index in test else "train")
        for index, video in enumerate(videos)
    )
