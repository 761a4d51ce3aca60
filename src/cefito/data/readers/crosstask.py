"""CrossTask's release: `tasks_primary.txt`, `annotations/TASK_VIDEO.csv` and `videos_val.csv`.

Each action belongs to one task (133 actions); equal names share an id in the second vocabulary
(105). `videos_val.csv` lists the test videos.
"""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import replace
from pathlib import Path

from cefito.data.annotations import Annotations, Taxonomy, Video, named_actions, nfc
from cefito.data.readers.source import UNPUBLISHED, Source, check_repeats, make_step
from cefito.errors import DataError
from cefito.files import read_text

_TASKS, _SPLIT = "tasks_primary.txt", "videos_val.csv"
_BLOCKS = (
    "Expected blocks of five lines: task id, title, address, number of steps, names of the steps "
    "with commas between."
)


def find_release(folder: Path) -> Path | None:
    """Find the folder with `tasks_primary.txt`, this one or one directly in it."""
    for place in (folder, *(path for path in sorted(folder.iterdir()) if path.is_dir())):
        if (place / _TASKS).is_file():
            return place
    return None


def read_release(folder: Path) -> Source:
    """Read CrossTask's release.

    Annotations of tasks that are not primary are ignored. A video annotated for two tasks becomes
    two videos, TASK_VIDEO each.
    """
    taxonomy, places = _tasks(folder / _TASKS)
    place = folder / "annotations"
    held = _test_videos(folder / _SPLIT)
    videos: list[Video] = []
    names: dict[str, tuple[str, ...]] = {}
    members = [path for path in sorted(place.glob("*_*.csv")) if path.stem.split("_")[0] in places]
    tasks_of = Counter(nfc(path.stem).partition("_")[2] for path in members)
    for path in members:
        source_id, _, found_id = nfc(path.stem).partition("_")
        task = places[source_id]
        video = found_id if tasks_of[found_id] == 1 else nfc(path.stem)
        names[video] = (nfc(path.stem), found_id)
        split = "test" if (source_id, found_id) in held else "train"
        actions = taxonomy.tasks[task].actions
        steps = tuple(
            make_step(start, end, actions[number - 1], place=line)
            for number, start, end, line in _steps(path, len(actions))
        )
        videos.append(Video(video_id=video, split=split, task=task, steps=steps))
    if not videos:
        raise DataError(f"{place}: no TASK_VIDEO.csv of a task in {_TASKS}. Unpack it again.")
    annotations = Annotations(taxonomy, tuple(videos))
    return Source(
        annotations=annotations,
        form="CrossTask's release",
        files=(folder / _TASKS, folder / _SPLIT),
        names=names,
        notes=(*check_repeats(annotations, place), UNPUBLISHED),
    )


def _tasks(path: Path) -> tuple[Taxonomy, dict[str, int]]:
    lines = [line.strip() for line in _text(path).splitlines()]
    blocks: list[list[tuple[int, str]]] = [[]]
    for number, line in enumerate(lines, start=1):
        if line:
            blocks[-1].append((number, line))
        elif blocks[-1]:
            blocks.append([])
    tasks: list[tuple[str, range]] = []
    names: list[str] = []
    places: dict[str, int] = {}
    for block in filter(None, blocks):
        steps = [name.strip() for name in block[-1][1].split(",")]
        fits = len(block) == 5 and block[3][1] == str(len(steps)) and all(steps)
        if not fits or block[0][1] in places:
            raise DataError(f"{path}, line {block[0][0]}: not a task, or a repeated one. {_BLOCKS}")
        places[block[0][1]] = len(tasks)
        tasks.append((block[1][1], range(len(names), len(names) + len(steps))))
        names += steps
    if not tasks:
        raise DataError(f"{path}: holds no tasks. {_BLOCKS}")
    shared = {name: number for number, name in enumerate(dict.fromkeys(names))}
    taxonomy = replace(
        Taxonomy.from_names("crosstask", tasks, names),
        shared=named_actions(shared),
        to_shared=tuple(shared[name] for name in names),
    )
    return taxonomy, places


def _test_videos(path: Path) -> set[tuple[str, str]]:
    rows = [row for row in csv.reader(_text(path).splitlines()) if row]
    for number, row in enumerate(rows, start=1):
        if len(row) < 2:
            raise DataError(f"{path}, line {number}: expected task,video,address.")
    return {(row[0].strip(), row[1].strip()) for row in rows}


def _steps(path: Path, count: int) -> list[tuple[int, str, str, str]]:
    found = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != 3 or not cells[0].isdecimal() or not 1 <= int(cells[0]) <= count:
            raise DataError(f"{place}: expected step,start,end with a step from 1 to {count}.")
        found.append((int(cells[0]), cells[1], cells[2], place))
    return found


def _text(path: Path) -> str:
    return nfc(read_text(path, "Expected text of CrossTask's release.", encoding="utf-8-sig"))
