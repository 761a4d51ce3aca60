"""Window files of the unified protocol and of PDPP, from which videos are reconstructed.

A file is a list of windows of T steps each (`_SHAPE`). NIV has no "vid"; the name of the feature
file is used instead. Action ids are the ids of the taxonomy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cefito.data.annotations import SPLITS, Annotations, Step, Taxonomy, Video, nfc, parsing
from cefito.data.readers.folder import feature_name
from cefito.data.readers.source import Source, check_repeats, make_step, padded
from cefito.errors import DataError

__all__ = ["is_windows", "join_windows", "read_windows"]

_SHAPE = (
    'Expected a list of {"id": {"vid", "task", "feature", "legal_range": [[start, end, action], '
    '…], "task_id"}, "instruction_len"}.'
)
_TAXONOMY = "Give the taxonomy of these files (CrossTask has two)."
_ONE_PROTOCOL = "Give complete window files of one protocol, without padding or repeated windows."


@dataclass(frozen=True)
class _Window:
    place: str
    task: int
    task_name: str
    names: tuple[str, ...]
    steps: tuple[Step, ...]


def is_windows(value: Any) -> bool:
    """Whether parsed JSON looks like a window file."""
    return (
        isinstance(value, list)
        and bool(value)
        and isinstance(value[0], dict)
        and isinstance(value[0].get("id"), dict)
        and "legal_range" in value[0]["id"]
    )


def read_windows(
    files: Sequence[tuple[Path, Any]], *, dataset: str, taxonomy: Taxonomy | None
) -> Source:
    """Reconstruct the videos of window files, whose names contain train, val or test.

    The shortest windows of a video give its steps, and the others must agree. Without a taxonomy,
    actions are named by their numbers and each task owns the actions that occur in it.
    """
    windows: dict[str, list[_Window]] = defaultdict(list)
    split_of: dict[str, tuple[str, Path]] = {}
    for path, content in files:
        split = _split(path)
        for number, entry in enumerate(content):
            video, window = _window(entry, f"{path}, window {number} (counted from 0)")
            earlier, where = split_of.setdefault(video, (split, path))
            if earlier != split:
                both = f"video '{video}' is in {split} here and in {earlier} in {where.name}"
                raise DataError(f"{path}: {both}. {_ONE_PROTOCOL}")
            windows[video].append(window)
    notes: tuple[str, ...] = ()
    if taxonomy is None:
        taxonomy = _taxonomy(windows, dataset, files[0][0])
        notes = ("Window files hold no names of actions; give a taxonomy.json to add them.",)
    videos = []
    for video, members in windows.items():
        steps = _video_steps(video, members)
        task = _task(members, taxonomy, video)
        unknown = {step.action for step in steps} - set(taxonomy.tasks[task].actions)
        if unknown:
            problem = f"action {min(unknown)} of video '{video}' is not one of task {task}"
            raise DataError(f"{members[0].place}: {problem}. {_TAXONOMY}")
        videos.append(Video(video_id=video, split=split_of[video][0], task=task, steps=steps))
    annotations = Annotations(taxonomy=taxonomy, videos=tuple(videos))
    return Source(
        annotations=annotations,
        form="window files of the unified protocol",
        files=tuple(path for path, _ in files),
        notes=(*notes, *check_repeats(annotations, files[0][0])),
        names={
            video: tuple(dict.fromkeys(name for window in members for name in window.names))
            for video, members in windows.items()
        },
    )


def join_windows(windows: Sequence[Sequence[Step]]) -> tuple[Step, ...] | None:
    """Join windows of one length into the sequence that they overlap into; None if ambiguous.

    Windows in the order of the video are joined in that order; otherwise each follows the one whose
    last steps are its first ones.
    """
    joined = _chain(windows)
    if joined is not None:
        return joined
    after = {tuple(window[:-1]): window for window in windows}
    ends = {tuple(window[1:]) for window in windows}
    first = [window for window in windows if tuple(window[:-1]) not in ends]
    if len(after) < len(windows) or len(first) != 1:
        return None
    order = [first[0]]
    while len(order) < len(windows):
        follower = after.get(tuple(order[-1][1:]))
        if follower is None:
            return None
        order.append(follower)
    return _chain(order)


def _chain(windows: Sequence[Sequence[Step]]) -> tuple[Step, ...] | None:
    steps = list(windows[0])
    for window in windows[1:]:
        overlap = len(window) - 1
        if steps[len(steps) - overlap :] != list(window[:-1]):
            return None
        steps.append(window[-1])
    return tuple(steps)


def _video_steps(video: str, members: list[_Window]) -> tuple[Step, ...]:
    by_length: dict[int, list[_Window]] = defaultdict(list)
    for window in members:
        by_length[len(window.steps)].append(window)
    shortest = by_length[min(by_length)]
    steps = join_windows([window.steps for window in shortest])
    if steps is None:
        found = f"the windows of video '{video}' do not overlap into one sequence"
        raise DataError(f"{shortest[0].place}: {found}. {_ONE_PROTOCOL}")
    for length, longer in by_length.items():
        runs = {steps[first : first + length] for first in range(len(steps) - length + 1)}
        for window in longer:
            if window.steps not in runs:
                problem = f"shorter windows of video '{video}' do not contain its steps in a row"
                raise DataError(f"{window.place}: {problem}. {_ONE_PROTOCOL}")
    return steps


def _split(path: Path) -> str:
    found = [split for split in SPLITS if split in path.name.lower()]
    if len(found) != 1:
        raise DataError(f"{path}: its name must contain exactly one of {', '.join(SPLITS)}.")
    return found[0]


def _window(entry: Any, place: str) -> tuple[str, _Window]:
    with parsing(place, "a window", _SHAPE):
        value = entry["id"]
        steps = tuple(
            make_step(start, end, _id(action), place=f"{place}, step {number}")
            for number, (start, end, action) in enumerate(value["legal_range"], 1)
        )
        feature = value.get("feature")
        name = value.get("vid") or (feature_name(feature) if isinstance(feature, str) else None)
        task = _id(value["task_id"])
        task_name = nfc(str(value.get("task", ""))).strip()
        length = entry.get("instruction_len", len(steps))
        if not isinstance(name, str) or not name or not steps or length != len(steps):
            raise ValueError(f"{len(steps)} steps of video {name!r}, 'instruction_len' {length}")
    names = (feature, name) if isinstance(feature, str) and feature else (name,)
    return nfc(name), _Window(place=place, task=task, task_name=task_name, names=names, steps=steps)


def _id(value: Any) -> int:
    if not str(value).isdecimal():
        raise TypeError(f"id {value!r} is not a whole number")
    return int(value)


def _taxonomy(windows: dict[str, list[_Window]], dataset: str, place: Path) -> Taxonomy:
    owned: dict[int, set[int]] = defaultdict(set)
    task_names: dict[int, str] = {}
    for members in windows.values():
        for window in members:
            owned[window.task].update(step.action for step in window.steps)
            task_names[window.task] = window.task_name or f"task {window.task}"
    seen = {action: f"action {action}" for members in owned.values() for action in members}
    actions = padded(seen, kind="action", place=place)
    names = padded(task_names, kind="task", place=place)
    tasks = [(name, owned[number]) for number, name in enumerate(names)]
    return Taxonomy.from_names(dataset, tasks, actions)


def _task(members: list[_Window], taxonomy: Taxonomy, video: str) -> int:
    found = {window.task for window in members}
    known = len(taxonomy.tasks)
    if len(found) != 1 or not 0 <= members[0].task < known:
        ids = f"video '{video}' has task ids {sorted(found)}; the taxonomy has {known} tasks"
        raise DataError(f"{members[0].place}: {ids}. {_TAXONOMY}")
    return members[0].task
