"""COIN's own JSON: {"database": {VIDEO: {"class", "recipe_type", "subset", "annotation": […]}}}.

A task is a `recipe_type`, an action an `id` of "annotation": [{"id", "segment", "label"}]. Action
ids that begin with 1 are lowered by 1. Ids that never occur keep their place under a made-up name.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from cefito.data.annotations import Annotations, Taxonomy, Video, nfc, parsing
from cefito.data.readers.source import UNPUBLISHED, Source, check_repeats, make_step, padded
from cefito.errors import DataError

_SPLITS = {"training": "train", "validation": "val", "testing": "test"}
_SHAPE = (
    'Expected {"class", "recipe_type", "subset": "training" or "testing", "annotation": [{"id", '
    '"segment": [start, end], "label"}]}.'
)


def is_coin(value: Any) -> bool:
    """Whether parsed JSON looks like COIN's annotations."""
    return isinstance(value, dict) and isinstance(value.get("database"), dict)


def read_coin(path: Path, value: dict[str, Any]) -> Source:
    """Read the parsed content of COIN's file; each task owns the actions that occur in it."""
    entries = {nfc(video): _entry(video, entry, path) for video, entry in value["database"].items()}
    ids = [action for _, _, _, steps in entries.values() for action, _, _ in steps]
    if not ids:
        raise DataError(f"{path}: holds no annotated steps. {_SHAPE}")
    base = 0 if min(ids) == 0 else 1
    action_names: dict[int, str] = {}
    task_names: dict[int, str] = {}
    owned: dict[int, set[int]] = defaultdict(set)
    videos = []
    for video, (task, task_name, split, raw) in entries.items():
        place = f"{path}, video '{video}'"
        _name(task_names, task, task_name, "recipe_type", place)
        steps = []
        for number, (action, name, segment) in enumerate(raw, 1):
            _name(action_names, action - base, name, "step id (less 1)", place)
            owned[task].add(action - base)
            pair = isinstance(segment, list) and len(segment) == 2
            start, end = segment if pair else (segment, None)
            step_place = f"{place}, step {number} (counted from 1)"
            steps.append(make_step(start, end, action - base, place=step_place))
        videos.append(Video(video_id=video, split=split, task=task, steps=tuple(steps)))
    names = padded(task_names, kind="task", place=path)
    tasks = [(name, owned[number]) for number, name in enumerate(names)]
    actions = padded(action_names, kind="action", place=path)
    annotations = Annotations(Taxonomy.from_names("coin", tasks, actions), tuple(videos))
    return Source(
        annotations=annotations,
        form="COIN's annotations",
        files=(path,),
        names={
            video: (f"{task_name}_{task}_{video}", video)
            for video, (task, task_name, _, _) in entries.items()
        },
        notes=(*check_repeats(annotations, path), UNPUBLISHED),
    )


_Raw = list[tuple[int, str, Any]]


def _entry(video: str, entry: Any, path: Path) -> tuple[int, str, str, _Raw]:
    with parsing(f"{path}, video '{video}'", "a video of COIN", _SHAPE):
        steps = [
            (int(step["id"]), nfc(str(step["label"])).strip(), step["segment"])
            for step in entry["annotation"]
        ]
        task, name = int(entry["recipe_type"]), nfc(str(entry["class"]))
        return task, name, _SPLITS[entry["subset"]], steps


def _name(names: dict[int, str], number: int, name: str, kind: str, place: str) -> None:
    if names.setdefault(number, name) != name:
        both = f"is '{name}' here, but '{names[number]}' in an earlier video"
        raise DataError(f"{place}: {kind} {number} {both}. Correct one of them.")
