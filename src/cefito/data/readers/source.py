"""What every reader of annotations gives: videos with their steps.

It also says under which names their features may lie.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cefito.data.readers.merges import Merges, apply_merges, equal_names
from cefito.data.taxonomy import Taxonomy
from cefito.data.text import nfc
from cefito.data.videos import Annotations, Step, Video, read_annotations
from cefito.errors import DataError

__all__ = [
    "REPEATS_PUBLISHED",
    "SPLIT_SEED",
    "TEST_SHARE",
    "UNPUBLISHED",
    "Source",
    "check_repeats",
    "draw_split",
    "make_step",
    "padded",
    "read_common",
    "read_folder",
    "read_taxonomy",
]

TEST_SHARE = 0.3
SPLIT_SEED = 20260502
UNPUBLISHED = (
    "The split is not that of the unified protocol; scores that shall stand beside published ones "
    "need its window files."
)
"""Said of annotations that come with another split than the one of published tables."""


REPEATS_PUBLISHED = ("crosstask",)
"""Data sets whose published annotations hold steps twice, which published windows are cut from."""


@dataclass(frozen=True)
class Source:
    """Annotations as found, before features are looked for.

    Attributes:
        annotations: Taxonomy and videos.
        form: The form in which they were found, in words.
        files: Files that were read.
        names: For a video the names under which its features may lie, the likeliest first; its id
            where there is no entry.
        notes: What a user should know, one sentence each.
    """

    annotations: Annotations
    form: str
    files: tuple[Path, ...]
    names: dict[str, tuple[str, ...]]
    notes: tuple[str, ...] = ()


def read_common(folder: Path | str, *, merges: Merges | None = None) -> Source:
    """Read the common form, a folder with taxonomy.json and videos.jsonl.

    Args:
        folder: Where they lie.
        merges: Names to be replaced.

    Raises:
        DataError: A file is missing or malformed, a time is negative, or a step stands twice.
    """
    folder = Path(folder)
    found = read_folder(folder, merges=merges)
    return Source(
        annotations=found.annotations,
        form="taxonomy.json and videos.jsonl",
        names={},
        files=(folder / "taxonomy.json", folder / "videos.jsonl"),
        notes=found.notes,
    )


@dataclass(frozen=True)
class Folder:
    """Annotations in the common form.

    Attributes:
        annotations: With names replaced as asked for.
        written: As they stand in the files.
        kept: For each action its id in the files.
        notes: What a user should know, one sentence each.
    """

    annotations: Annotations
    written: Annotations
    kept: tuple[int, ...]
    notes: tuple[str, ...]


def read_folder(folder: Path, *, merges: Merges | None = None) -> Folder:
    """Annotations of a folder, held to what sources are held to.

    Args:
        folder: It holds taxonomy.json and videos.jsonl.
        merges: Names to be replaced.

    Raises:
        DataError: A file is missing or malformed, a time is negative, or a step stands twice.
    """
    places: list[str] = []

    def check(video: Video, place: str) -> None:
        for number, step in enumerate(video.steps):
            make_step(
                step.start, step.end, step.action, place=f"{place}, step {number} (counted from 0)"
            )
        places.append(place)

    written = annotations = read_annotations(folder, check=check)
    forms: dict[str, int] = {}
    for number, video in enumerate(annotations.videos):
        other = forms.setdefault(nfc(video.video_id), number)
        if other != number:
            raise DataError(
                f"{places[number]}: video '{video.video_id}' looks like that of "
                f"{places[other].rpartition(', ')[2]}, with its accents written otherwise. Rename "
                "one of them."
            )
    notes = []
    kept = tuple(range(len(annotations.taxonomy.actions)))
    if merges is not None:
        annotations, kept = apply_merges(annotations, merges)
        notes.append(merges.note())
    notes += [
        f"{len(ids)} actions of a task are called '{name}' (ids {', '.join(map(str, ids))})."
        for name, found in equal_names(annotations.taxonomy).items()
        for ids in found
    ]
    notes += check_repeats(annotations, lambda number: places[number])
    return Folder(annotations=annotations, written=written, kept=kept, notes=tuple(notes))


def check_repeats(annotations: Annotations, place: Callable[[int], str]) -> tuple[str, ...]:
    """Refuse steps that stand twice in a video, with the same times and action.

    Where published annotations hold some, these are kept: the windows that published scores are
    made on hold them, too.

    Args:
        annotations: The videos, with steps in the order in which they were found.
        place: Where a video stands, by its number.

    Returns:
        A note where there are published ones.

    Raises:
        DataError: A step stands twice.
    """
    taxonomy = annotations.taxonomy
    count, first, members = 0, "", 0
    for index, video in enumerate(annotations.videos):
        seen: dict[Step, int] = {}
        before = count
        for number, step in enumerate(video.steps):
            earlier = seen.setdefault(step, number)
            if earlier == number:
                continue
            what = (
                f"steps {earlier} and {number} (counted from 0) of video '{video.video_id}' are "
                f"the same, '{taxonomy.actions[step.action].name}' from {step.start:g} s to "
                f"{step.end:g} s"
            )
            if taxonomy.dataset not in REPEATS_PUBLISHED:
                raise DataError(f"{place(index)}: {what}. Remove one of them.")
            first = first or what
            count += 1
        members += count > before
    if not count:
        return ()
    return (
        f"{count} steps of {members} videos stand twice in the annotations as published; they are "
        f"kept, so that the windows are the published ones. The first: {first}.",
    )


def make_step(start: Any, end: Any, action: int, *, place: str) -> Step:
    """A step with checked times.

    Args:
        start: Seconds, a number or its text.
        end: Seconds, a number or its text.
        action: Id of its action.
        place: Where it stands, for the message.

    Raises:
        DataError: No numbers, negative, or the end before the start.
    """
    try:
        step = Step(start=float(start), end=float(end), action=action)
    except (TypeError, ValueError, OverflowError) as problem:
        raise DataError(
            f"{place}: runs from {start!r} to {end!r}; expected seconds. Mend or remove the step."
        ) from problem
    if (
        not (math.isfinite(step.start) and math.isfinite(step.end))
        or step.start < 0
        or step.end < step.start
    ):
        raise DataError(
            f"{place}: runs from {step.start:.9g} s to {step.end:.9g} s; expected 0 ≤ start ≤ end. "
            "Mend or remove the step."
        )
    return step


def draw_split(videos: Sequence[Video]) -> tuple[Video, ...]:
    """Share videos between train and test: 30 % of each task to test, by a fixed seed.

    A task of two or three videos gives one, a single video goes to train.
    """
    by_task: dict[int, list[int]] = defaultdict(list)
    for index, video in enumerate(videos):
        by_task[video.task].append(index)
    generator = np.random.default_rng(SPLIT_SEED)
    test: set[int] = set()
    for task in sorted(by_task):
        members = by_task[task]
        count = max(round(TEST_SHARE * len(members)), int(len(members) > 1))
        test.update(int(index) for index in generator.choice(members, size=count, replace=False))
    return tuple(
        replace(video, split="test" if index in test else "train")
        for index, video in enumerate(videos)
    )


def padded(names: dict[int, str], *, kind: str, place: str) -> list[str]:
    """Names by id, with a made-up name for each id that does not occur.

    So the ids stay what they are.

    Raises:
        DataError: An id is no number from 0 to 9,999.
    """
    wrong = [number for number in names if not 0 <= number < 10_000]
    if wrong:
        raise DataError(
            f"{place}: {kind} id {wrong[0]}; expected 0 to 9,999. Renumber them, or give a "
            "taxonomy.json."
        )
    return [names.get(number, f"{kind} {number}") for number in range(max(names, default=-1) + 1)]


def read_taxonomy(*places: Path | None) -> Taxonomy | None:
    """The first `taxonomy.json` that there is among files and folders, or None.

    Raises:
        DataError: It is malformed, or a file named by the user is missing (the first place).
    """
    asked, *likely = places
    if asked is not None:
        return Taxonomy.read(asked / "taxonomy.json" if asked.is_dir() else asked)
    for place in likely:
        if place is not None and (place / "taxonomy.json").is_file():
            return Taxonomy.read(place / "taxonomy.json")
    return None
