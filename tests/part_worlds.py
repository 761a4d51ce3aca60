"""Parts of the embedded world as data sets of their own, whose ids are others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cefito.data import Annotations, PreparedDataset, Video
from cefito.data.prepared import write_dataset
from cefito.data.vocabulary import Action, Task, Taxonomy


def part_of(
    world: PreparedDataset,
    folder: Path,
    *,
    tasks: Sequence[int],
    keep: Callable[[Video], bool] = bool,
    drop: Sequence[int] = (),
    rename: Callable[[Video], Video] = lambda video: video,
    dim: int | None = None,
    **changes: Any,
) -> PreparedDataset:
    """Some tasks of a world, numbered in the given order; actions are numbered as they come.

    Steps of `drop`ped actions are left out; `changes` replace arguments of `write_dataset`.
    """
    old = world.taxonomy
    ids = {}
    for task in tasks:
        for action in old.tasks[task].actions:
            if action not in drop:
                ids.setdefault(action, len(ids))
    taxonomy = Taxonomy(
        dataset=old.dataset,
        tasks=tuple(
            Task(
                number,
                old.tasks[task].name,
                tuple(sorted(ids[a] for a in old.tasks[task].actions if a in ids)),
            )
            for number, task in enumerate(tasks)
        ),
        actions=tuple(Action(number, old.actions[action].name) for action, number in ids.items()),
    )
    videos, rows = [], []
    for index, video in enumerate(world.videos):
        if video.task in tasks and keep(video):
            known = [place for place, step in enumerate(video.steps) if step.action in ids]
            steps = tuple(
                replace(video.steps[place], action=ids[video.steps[place].action])
                for place in known
            )
            videos.append(replace(rename(video), task=tasks.index(video.task), steps=steps))
            rows += [int(world.first_row[index]) + place for place in known]
    given: dict[str, Any] = {
        "name": world.name,
        "provenance": world.provenance,
        "annotations": Annotations(taxonomy=taxonomy, videos=tuple(videos)),
        "start": world.start[np.array(rows), :dim],
        "end": world.end[np.array(rows), :dim],
    }
    return write_dataset(folder, **{**given, **changes})
