"""Window files of the unified protocol and of PDPP, from which videos are reconstructed.

A file is a list of windows of T steps each (`_SHAPE`), in which "instruction_len" is the number of
steps of the whole video. NIV has no "vid"; the name of the feature file is used instead. Action ids
are the ids of the taxonomy. "event_class_top1" is the task that the authors' classifier predicted.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from cefito.data.annotations import SPLITS, Annotations, Step, Video, make_step, parsing
from cefito.data.readers.feature_files import feature_name
from cefito.data.source import Source, check_repeats
from cefito.data.vocabulary import Taxonomy, folded, nfc
from cefito.errors import DataError
from cefito.markup import counted

WINDOWS = "window files of the unified protocol"
_SHAPE = (
    'Expected a list of {"id": {"vid", "task", "feature", "legal_range": [[start, end, action], '
    '…], "task_id", optional "actions": [names] and "event_class_top1"}, "instruction_len"}.'
)
_TAXONOMY = "Give the taxonomy of these files (CrossTask has two)."
_ONE_PROTOCOL = "Give complete window files of one protocol, without padding or repeated windows."


@dataclass(frozen=True)
class _Window:
    place: str
    task: int
    task_name: str
    names: tuple[str, ...]  # possible names of the feature file
    steps: tuple[Step, ...]
    actions: tuple[str, ...]  # names of the steps; empty if unknown
    video_steps: int  # in the whole video; the window's own if unknown
    predicted: int  # the task that a classifier of others predicted; −1 if unknown


_Windows = dict[tuple[int, Path], list[_Window]]
"""Windows of a video by their length and file."""


def is_windows(value: Any) -> bool:
    """Whether parsed JSON looks like a window file."""
    match value:
        case [{"id": {"legal_range": _}}, *_]:
            return True
    return False


def of_vocabulary(
    files: Sequence[tuple[Path, Any]], taxonomy: Taxonomy
) -> tuple[list[tuple[Path, Any]], str]:
    """Window files that use a taxonomy, if they hold all splits, and a note on those of another."""
    fitting = []
    for path, content in files:
        window = _window(content[0], f"{path}, window 0 (counted from 0)")[1]
        if not _misnamed(window, taxonomy):
            fitting.append((path, content))
    if {split_named(path) for path, _ in fitting} != {split_named(path) for path, _ in files}:
        return list(files), ""
    others = [path.name for path, _ in files if path not in {fit for fit, _ in fitting}]
    return fitting, f"Not read, since of other actions: {', '.join(others)}." if others else ""


def read_windows(
    files: Sequence[tuple[Path, Any]], *, dataset: str, taxonomy: Taxonomy | None
) -> Source:
    """Reconstruct the videos of window files, whose names contain train, val or test.

    The shortest windows of a video give its steps, and every file of its split must hold all of its
    windows of that file's length. Each task owns the actions that occur in it, and those that a
    taxonomy lists.

    Args:
        files: Path and parsed content of each file.
        dataset: Name of the data set.
        taxonomy: Names of tasks and actions; None makes them of the windows.
    """
    windows: dict[str, _Windows] = defaultdict(lambda: defaultdict(list))
    split_of: dict[str, tuple[str, Path]] = {}
    for path, content in files:
        split = split_named(path)
        for number, entry in enumerate(content):
            video, window = _window(entry, f"{path}, window {number} (counted from 0)")
            earlier, where = split_of.setdefault(video, (split, path))
            if earlier != split:
                both = f"video '{video}' is in {split} here and in {earlier} in {where.name}"
                raise _not_one_protocol(path, both)
            windows[video][len(window.steps), path].append(window)
    notes: list[str] = []
    if taxonomy is None:
        taxonomy = _taxonomy(_all(windows), dataset, files[0][0])
        if taxonomy.actions[-1].name == f"action {len(taxonomy.actions) - 1}":
            notes.append("Window files hold no names of actions; give a taxonomy.json to add them.")
    videos = [
        _video(video, split_of[video][0], members, taxonomy) for video, members in windows.items()
    ]
    taxonomy, note = _with_owners(taxonomy, videos)
    notes += [note] * bool(note)
    held = {(split_of[video][0], key) for video, members in windows.items() for key in members}
    for record in videos:
        for split, (length, path) in held:
            wanted = split == record.split and len(record.steps) >= length
            if wanted and (length, path) not in windows[record.video_id]:
                raise _not_one_protocol(path, f"windows of video '{record.video_id}' are missing")
    if lengths := sorted({length for video in videos for length in video.predicted}):
        notes.append(
            "The task predictions of the window files (event_class_top1) are stored with their "
            f"videos, for T = {', '.join(map(str, lengths))}: they are scored as the stored task."
        )
    annotations = Annotations(taxonomy=taxonomy, videos=tuple(videos))
    return Source(
        annotations=annotations,
        form=WINDOWS,
        files=tuple(path for path, _ in files),
        notes=(*notes, *check_repeats(annotations, files[0][0])),
        names={
            video: tuple(dict.fromkeys(name for window in _of(members) for name in window.names))
            for video, members in windows.items()
        },
        features=_features(files[0][0], next(_all(windows)).names[0]),
    )


def _not_one_protocol(place: object, problem: str) -> DataError:
    return DataError(f"{place}: {problem}. {_ONE_PROTOCOL}")


def _of(members: _Windows) -> Iterator[_Window]:
    return (window for several in members.values() for window in several)


def _all(windows: Mapping[str, _Windows]) -> Iterator[_Window]:
    return (window for members in windows.values() for window in _of(members))


def _features(file: Path, feature: str) -> Path | None:
    """The folder of a feature file, named relative to the window file or to a folder above it."""
    folder = PurePosixPath(feature).parent
    if folder.is_absolute() or ".." in folder.parts or not folder.parts:
        return None
    places = (above / folder for above in file.resolve().parents[:4])
    return next((place for place in places if place.is_dir()), None)


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


def _video(video: str, split: str, members: _Windows, taxonomy: Taxonomy) -> Video:
    """Join the windows of a video; those of all files must be all windows of the joined steps."""
    shortest = members[min(members)]
    steps = join_windows([window.steps for window in shortest])
    if steps is None:
        problem = f"the windows of video '{video}' do not overlap into one sequence"
        raise _not_one_protocol(shortest[0].place, problem)
    task = _task(list(_of(members)), taxonomy, video)
    predicted: dict[int, tuple[int, ...]] = {}
    for (length, _), windows in members.items():
        runs = [steps[first : first + length] for first in range(len(steps) - length + 1)]
        for window in windows:
            if window.steps not in runs:
                problem = f"shorter windows of video '{video}' do not contain its steps in a row"
                raise _not_one_protocol(window.place, problem)
            if window.video_steps not in (length, len(steps)):
                make = f"the windows of video '{video}' make {len(steps)} steps"
                problem = f"'instruction_len' is {window.video_steps}, but {make}"
                raise _not_one_protocol(window.place, problem)
        if Counter(window.steps for window in windows) != Counter(runs):
            problem = f"{len(runs) - len(windows)} windows of video '{video}' are missing"
            raise _not_one_protocol(windows[0].place, problem)
        tasks = {window.steps: window.predicted for window in windows}
        if set(tasks.values()) == {-1}:
            continue
        row = tuple(tasks[run] for run in runs)
        differ = any(window.predicted != tasks[window.steps] for window in windows)
        if differ or predicted.setdefault(length, row) != row or max(row) >= len(taxonomy.tasks):
            problem = f"'event_class_top1' of video '{video}' is not one known task a window"
            raise _not_one_protocol(windows[0].place, problem)
    return Video(video, split, task, steps, predicted=predicted)


def split_named(path: Path) -> str:
    """Return the split in the name of a file (DataError if there is not one)."""
    splits = [split for split in SPLITS if split in path.name.lower()]
    if len(splits) != 1:
        raise DataError(f"{path}: its name must contain exactly one of {', '.join(SPLITS)}.")
    return splits[0]


def _window(entry: Any, place: str) -> tuple[str, _Window]:
    with parsing(place, "a window", _SHAPE):
        value = entry["id"]
        steps = tuple(
            make_step(start, end, _id(action), place=f"{place}, step {number}")
            for number, (start, end, action) in enumerate(value["legal_range"], 1)
        )
        feature = value["feature"] if isinstance(value.get("feature"), str) else ""
        name = value.get("vid") or feature_name(feature) or None
        actions = tuple(nfc(str(action)) for action in value.get("actions", ()))
        predicted = value.get("event_class_top1")
        if not (isinstance(name, str) and name and steps and len(actions) in (0, len(steps))):
            raise ValueError(f"{len(steps)} steps of video {name!r}, {len(actions)} names of them")
        return nfc(name), _Window(
            place=place,
            task=_id(value["task_id"]),
            task_name=nfc(str(value.get("task_name", value.get("task", "")))).strip(),
            names=(feature, name) if feature else (name,),
            steps=steps,
            actions=actions,
            video_steps=_id(entry.get("instruction_len", len(steps))),
            predicted=-1 if predicted is None else _id(predicted),
        )


def _id(value: Any) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", str(value)):
        raise TypeError(f"id {value!r} is not a whole number")
    return int(value)


def _taxonomy(windows: Iterator[_Window], dataset: str, place: Path) -> Taxonomy:
    """The tasks and actions that windows name."""
    owned: dict[int, set[int]] = defaultdict(set)
    task_names: dict[int, str] = {}
    seen: dict[int, str] = {}
    for window in windows:
        ids = [step.action for step in window.steps]
        owned[window.task].update(ids)
        task_names[window.task] = window.task_name or f"task {window.task}"
        named = window.actions or [f"action {action}" for action in ids]
        for action, name in zip(ids, named, strict=True):
            if seen.setdefault(action, name) != name:
                both = f"action {action} is '{seen[action]}' and '{name}'"
                raise DataError(f"{window.place}: {both}. {_TAXONOMY}")
    return Taxonomy.from_ids(dataset, task_names, seen, owned, place)


def _with_owners(taxonomy: Taxonomy, videos: Sequence[Video]) -> tuple[Taxonomy, str]:
    """Let tasks own the actions of their videos, too, which other tasks may list; and a note."""
    owned = {task.id: {*task.actions} for task in taxonomy.tasks}
    for video in videos:
        owned[video.task] |= {step.action for step in video.steps}
    tasks = tuple(replace(task, actions=tuple(sorted(owned[task.id]))) for task in taxonomy.tasks)
    added = sum(len(task.actions) for task in tasks) - sum(len(t.actions) for t in taxonomy.tasks)
    said = f"{counted(added, 'action')} of the windows, and the taxonomy lists them under others"
    note = f"Tasks have {said}; they count as actions of both."
    return replace(taxonomy, tasks=tasks), note * bool(added)


def _task(members: list[_Window], taxonomy: Taxonomy, video: str) -> int:
    """The task of a video's windows, whose actions the taxonomy has by the same names."""
    tasks = {window.task for window in members}
    count = len(taxonomy.tasks)
    if len(tasks) != 1 or members[0].task >= count:
        ids = f"video '{video}' has task ids {sorted(tasks)}; the taxonomy has {count} tasks"
        raise DataError(f"{members[0].place}: {ids}. {_TAXONOMY}")
    for window in members:
        if problem := _misnamed(window, taxonomy):
            raise DataError(f"{window.place}: {problem} (video '{video}'). {_TAXONOMY}")
    return members[0].task


def _misnamed(window: _Window, taxonomy: Taxonomy) -> str:
    """What a taxonomy says otherwise of a window's task and actions; empty if nothing."""
    if window.task >= len(taxonomy.tasks):
        return f"task {window.task} is unknown"
    task = taxonomy.tasks[window.task]
    for place, step in enumerate(window.steps):
        unknown = step.action >= len(taxonomy.actions)
        if unknown or (not window.actions and step.action not in task.actions):
            return f"action {step.action} is not one of task {task.id}"
        listed = taxonomy.actions[step.action].name
        name = window.actions[place] if window.actions else listed
        if name != listed and folded(name) != folded(listed):
            return f"action {step.action} is '{name}', in the taxonomy '{listed}'"
    return ""
