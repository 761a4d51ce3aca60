"""COIN's own JSON.

Its form is {"database": {VIDEO: {"class", "recipe_type", "subset", "annotation": [{"id", "segment",
"label"}]}}}.

A task is a `recipe_type`, an action an `id`. Ids of actions that begin with 1 are lowered by 1;
with a taxonomy, names are compared, so that a shift cannot go unnoticed. Ids that never occur keep
their place under a made-up name.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from cefito.data.readers.source import UNPUBLISHED, Source, check_repeats, make_step, padded
from cefito.data.taxonomy import Action, Task, Taxonomy
from cefito.data.text import nfc
from cefito.data.videos import Annotations, Video
from cefito.errors import DataError

__all__ = ["is_coin", "read_coin"]

_SPLITS = {"training": "train", "validation": "val", "testing": "test"}
_SHAPE = (
    'Expected {"class", "recipe_type", "subset": "training" or "testing", "annotation": [{"id", '
    '"segment": [start, end], "label"}]}.'
)


def is_coin(value: Any) -> bool:
    """Whether parsed JSON looks like COIN's annotations."""
    return isinstance(value, dict) and isinstance(value.get("database"), dict)


def read_coin(path: Path, value: dict[str, Any], *, taxonomy: Taxonomy | None) -> Source:
    """Read COIN's annotations.

    Args:
        path: The file, for messages.
        value: Its parsed content.
        taxonomy: The vocabulary; without one it is derived, and a task owns the actions that occur
            in it.

    Raises:
        DataError: A video is malformed, ids and names contradict each other; the message names the
            video.
    """
    database = value["database"]
    entries = {nfc(video): _entry(video, entry, path) for video, entry in database.items()}
    lowest = min(
        (action for _, _, _, steps in entries.values() for action, _, _ in steps), default=1
    )
    base = 0 if lowest == 0 else 1
    action_names: dict[int, str] = {}
    task_names: dict[int, str] = {}
    owned: dict[int, set[int]] = defaultdict(set)
    videos = []
    for video, (task, task_name, split, raw) in entries.items():
        place = f"{path}, video '{video}'"
        _name(task_names, task, task_name, "recipe_type", place)
        for action, name, _ in raw:
            _name(action_names, action - base, name, "step id (less 1)", place)
            owned[task].add(action - base)
        steps = tuple(
            make_step(
                *_pair(segment), action - base, place=f"{place}, step {number} (counted from 0)"
            )
            for number, (action, _, segment) in enumerate(raw)
        )
        videos.append(Video(video_id=video, split=split, task=task, steps=steps))
    if not action_names:
        raise DataError(f"{path}: holds no annotated steps. {_SHAPE}")
    if taxonomy is None:
        taxonomy = Taxonomy(
            dataset="coin",
            tasks=tuple(
                Task(id=number, name=name, actions=tuple(sorted(owned.get(number, ()))))
                for number, name in enumerate(padded(task_names, kind="task", place=str(path)))
            ),
            actions=tuple(
                Action(id=number, name=name)
                for number, name in enumerate(padded(action_names, kind="action", place=str(path)))
            ),
        )
    else:
        _agree(taxonomy, task_names, action_names, owned, path)
    names: dict[str, tuple[str, ...]] = {
        video: (f"{task_name}_{task}_{video}", video)
        for video, (task, task_name, _, _) in entries.items()
    }
    annotations = Annotations(taxonomy=taxonomy, videos=tuple(videos))
    repeats = check_repeats(annotations, lambda _: str(path))
    return Source(
        annotations=annotations,
        form="COIN's annotations",
        files=(path,),
        names=names,
        notes=(*repeats, UNPUBLISHED),
    )


_Raw = list[tuple[int, str, Any]]


def _entry(video: str, entry: Any, path: Path) -> tuple[int, str, str, _Raw]:
    try:
        steps = [
            (int(step["id"]), nfc(str(step["label"])).strip(), step["segment"])
            for step in entry["annotation"]
        ]
        task, name = int(entry["recipe_type"]), nfc(str(entry["class"]))
        return task, name, _SPLITS[entry["subset"]], steps
    except (KeyError, TypeError, ValueError) as problem:
        raise DataError(
            f"{path}, video '{video}': not a video of COIN ({problem!r}). {_SHAPE}"
        ) from problem


def _pair(segment: Any) -> tuple[Any, Any]:
    return (
        (segment[0], segment[1])
        if isinstance(segment, list) and len(segment) == 2
        else (segment, None)
    )


def _name(names: dict[int, str], number: int, name: str, kind: str, place: str) -> None:
    if names.setdefault(number, name) != name:
        raise DataError(
            f"{place}: {kind} {number} is called '{name}' here and '{names[number]}' before. Mend "
            "one of them."
        )


def _letters(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _agree(
    taxonomy: Taxonomy,
    tasks: dict[int, str],
    actions: dict[int, str],
    owned: dict[int, set[int]],
    path: Path,
) -> None:
    for kind, entries, found in (
        ("task", taxonomy.tasks, tasks),
        ("action", taxonomy.actions, actions),
    ):
        for number, name in found.items():
            known = entries[number].name if 0 <= number < len(entries) else None
            if known is None or _letters(known) != _letters(name):
                raise DataError(
                    f"{path}: {kind} {number} is called '{name}', in the taxonomy it is {known!r}. "
                    "Give the taxonomy of these annotations, or none."
                )
    for task, members in owned.items():
        extra = members - set(taxonomy.tasks[task].actions)
        if extra:
            raise DataError(
                f"{path}: action {min(extra)} occurs in task {task}, for which the taxonomy does "
                "not list it. Give the taxonomy of these annotations, or none."
            )
