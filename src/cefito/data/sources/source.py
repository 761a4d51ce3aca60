"""What every reader of annotations gives: videos with their steps.

It also says under which names their features may lie.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cefito.data.taxonomy import Taxonomy
from cefito.data.videos import Annotations, Step, Video, read_annotations
from cefito.errors import DataError

__all__ = [
    "SPLIT_SEED",
    "TEST_SHARE",
    "UNPUBLISHED",
    "Source",
    "draw_split",
    "make_step",
    "padded",
    "read_common",
    "read_taxonomy",
]

TEST_SHARE = 0.3
SPLIT_SEED = 20260502
UNPUBLISHED = (
    "The split is not that of the unified protocol; scores that shall stand beside published ones "
    "need its window files."
)
"""Said of annotations that come with another split than the one of published tables."""


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


def read_common(folder: Path | str) -> Source:
    """Read the common form, a folder with taxonomy.json and videos.jsonl.

    Raises:
        DataError: A file is missing or malformed.
    """
    folder = Path(folder)
    return Source(
        annotations=read_annotations(folder),
        form="taxonomy.json and videos.jsonl",
        names={},
        files=(folder / "taxonomy.json", folder / "videos.jsonl"),
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
            f"{place}: runs from {start} s to {end} s; expected 0 ≤ start ≤ end. Mend or remove "
            "the step."
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
