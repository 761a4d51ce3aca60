"""LeRobot data sets by their `meta/info.json`: each run of frames with one subtask is a step.

Frames have a number `subtask_index`, which `meta/subtasks.parquet` names
(https://huggingface.co/docs/lerobot/main/dataset_subtask). Or all frames of an episode have the
same list `language_persistent`, whose entries of the style "subtask" hold from their time on until
the next one (https://huggingface.co/docs/lerobot/main/language_and_recipes).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Strict

from cefito.data.robots import SUBTASK, TASK, episode_name, open_robot
from cefito.data.vocabulary import nfc
from cefito.tracks.document import Document, Format, LooseRecord, StepRow
from cefito.tracks.formats.frame_labels import BACKGROUND, names_of_no_step

_LANGUAGE = "language_persistent"
_REMEDY = "Write steps into it with cefito data subtasks, or annotate its episodes."


class _Entry(LooseRecord):
    content: str | None
    style: str | None
    timestamp: Annotated[float, Strict()]


def _read(document: Document) -> Iterator[StepRow]:
    document.remedy = _REMEDY
    folder = document.path.absolute().parent.parent  # a file of a cache is a link to another folder
    robot, no_steps = open_robot(folder), names_of_no_step(document.choices, [BACKGROUND])
    tasks, splits, subtasks = robot.names(TASK), robot.splits(), dict[int, str]()
    for path in robot.tables:
        frames, table = robot.frames(path, [TASK], [SUBTASK, _LANGUAGE])
        if SUBTASK in frames:
            subtasks = subtasks or robot.names(SUBTASK)
        begins = [*_begins(frames["episode_index"]), len(table)]
        for first, after in pairwise(begins):
            number, times = int(frames["episode_index"][first]), frames["timestamp"][first:after]
            last, where = float(times[-1]) + 1 / robot.info.fps, f"episode {number}"
            task = _name(document, tasks, int(frames[TASK][first]), TASK, where)
            if (frames[TASK][first:after] != frames[TASK][first]).any():
                document.notes["episodes of several tasks count as of the first"] += 1
            spans = list[tuple[str, str, float, float]]()
            if SUBTASK in frames:
                numbers = frames[SUBTASK][first:after]
                ends = [*_begins(numbers), len(numbers)]
                spans += [
                    (
                        SUBTASK,
                        _name(document, subtasks, int(numbers[start]), SUBTASK, where),
                        float(times[start]),
                        float(times[end]) if end < len(times) else last,
                    )
                    for start, end in pairwise(ends)
                    if numbers[start] >= 0
                ]
            if _LANGUAGE in table.column_names:
                spans += _persistent(document, table[_LANGUAGE][first].as_py() or [], last, where)
            if not spans:
                document.left_out["episodes without subtasks"] += 1
            for tier, label, start, end in spans:
                if label.casefold() in no_steps:
                    document.left_out[f"runs of '{label}'"] += 1
                    continue
                yield StepRow(
                    video=nfc("/".join([*folder.parts[1:], episode_name(number)])),
                    step=label,
                    start=start,
                    end=end,
                    place=document.place(f"{where}, second {start:g}"),
                    task=task,
                    split=next((name for name, episodes in splits if number in episodes), ""),
                    tier=tier,
                )


def _begins(values: NDArray[Any]) -> list[int]:
    """Return where runs of equal values begin."""
    changed = np.diff(values) != 0
    return [int(place) for place in np.flatnonzero([len(values) > 0, *changed])]


def _name(document: Document, names: dict[int, str], number: int, index: str, where: str) -> str:
    if number not in names:
        problem = f"has the {index} {number}, which has no name. Copy the data set again"
        raise document.wrong(f"{problem}.", where)
    return names[number]


def _persistent(
    document: Document, entries: list[object], last: float, where: str
) -> list[tuple[str, str, float, float]]:
    """Return the subtasks of an episode; each holds until the next, or the end of the episode."""
    records = [document.record(_Entry, entry, f"{where}, {_LANGUAGE}") for entry in entries]
    subtasks = {one for one in records if one.style == "subtask" and one.timestamp < last}
    if left := sum(entry not in subtasks for entry in records):
        document.left_out["persistent annotations of other styles, or behind the end"] += left
    ordered = sorted(subtasks, key=lambda entry: entry.timestamp)
    ends = [*(entry.timestamp for entry in ordered[1:]), last]
    if any(one.timestamp == other.timestamp for one, other in pairwise(ordered)):
        raise document.wrong("has two subtasks at one time. Correct them.", where)
    return [
        (_LANGUAGE, entry.content or "", entry.timestamp, end)
        for entry, end in zip(ordered, ends, strict=True)
    ]


FORMATS = (
    Format(
        name="LeRobot",
        endings=(".json",),
        marks=(r"\A\s*\{", '"codebase_version"', '"features"'),
        read=_read,
        step="subtask",
        tier="column",
    ),
)
