"""The published benchmarks CrossTask, COIN and NIV, in any public form of their annotations.

The form (`_FORMS`) is recognised by content. CrossTask's release: each action belongs to one task
(133 actions); equal names share an id in the second vocabulary (105); `videos_val.csv` lists the
test videos. COIN's own JSON: a task is a `recipe_type`, an action an `id` of an annotation; action
ids that begin with 1 are lowered by 1; ids that never occur keep their place under a made-up name.
Lists of COIN's entries, one a split, are those of PDPP.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from cefito.data.annotations import Annotations, Step, Video, make_step, parsing
from cefito.data.readers.windows_json import (
    WINDOWS,
    is_windows,
    of_vocabulary,
    read_windows,
    split_named,
)
from cefito.data.source import UNPUBLISHED, Source, check_repeats, read_common
from cefito.data.vocabulary import Taxonomy, named_actions, nfc
from cefito.errors import ConfigError, DataError
from cefito.files import MAX_BYTES, read_json, read_text

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
        steps = tuple(_steps(path, taxonomy.tasks[task].actions))
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
    tasks: list[tuple[str, range]] = []
    names: list[str] = []
    places: dict[str, int] = {}
    numbered = [(number, line.strip()) for number, line in enumerate(_text(path).splitlines(), 1)]
    for filled, block in groupby(numbered, key=lambda pair: bool(pair[1])):
        if not filled:
            continue
        (first, *_), lines = zip(*block, strict=True)
        steps = [name.strip() for name in lines[-1].split(",")]
        fits = len(lines) == 5 and lines[3] == str(len(steps)) and all(steps)
        if not fits or lines[0] in places:
            raise DataError(f"{path}, line {first}: not a task, or a repeated one. {_BLOCKS}")
        places[lines[0]] = len(tasks)
        tasks.append((lines[1], range(len(names), len(names) + len(steps))))
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


def _steps(path: Path, actions: Sequence[int]) -> Iterator[Step]:
    count = len(actions)
    for number, line in enumerate(_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != 3 or not cells[0].isdecimal() or not 1 <= int(cells[0]) <= count:
            raise DataError(f"{place}: expected step,start,end with a step from 1 to {count}.")
        yield make_step(cells[1], cells[2], actions[int(cells[0]) - 1], place=place)


def _text(path: Path) -> str:
    return nfc(read_text(path, "Expected text of CrossTask's release.", encoding="utf-8-sig"))


_SPLITS = {"training": "train", "validation": "val", "testing": "test"}
_SHAPE = (
    'Expected {"class", "recipe_type", "subset": "training" or "testing", "annotation": [{"id", '
    '"segment": [start, end], "label"}]}.'
)


def read_coin(files: Sequence[tuple[Path, Any]]) -> Source:
    """Read the parsed content of COIN's file, or of lists of its entries, one a split.

    Each task owns the actions that occur in it.
    """
    path, entries = files[0][0], dict[str, _Entry]()
    for file, value in files:
        listed = isinstance(value, list)
        videos_of = value if listed else [value["database"]]
        for video, entry in (pair for some in videos_of for pair in some.items()):
            if nfc(video) in entries:
                raise DataError(f"{file}: repeats video '{video}'. Leave one out.")
            split = split_named(file) if listed else None
            entries[nfc(video)] = _entry(video, entry, file, split)
    ids = [action for _, _, _, steps in entries.values() for action, _, _ in steps]
    if not ids:
        raise DataError(f"{path}: holds no annotated steps. {_SHAPE}")
    base = 0 if min(ids) == 0 else 1
    action_names: dict[int, str] = {}
    task_names: dict[int, str] = {}
    owned: dict[int, set[int]] = defaultdict(set)
    videos = []
    names: dict[str, tuple[str, ...]] = {}
    for video, (task, task_name, split, raw) in entries.items():
        place, names[video] = f"{path}, video '{video}'", (f"{task_name}_{task}_{video}", video)
        _name(task_names, task, task_name, "recipe_type", place)
        steps = []
        for number, (action, name, segment) in enumerate(raw, 1):
            _name(action_names, action - base, name, "step id (less 1)", place)
            owned[task].add(action - base)
            pair = isinstance(segment, list) and len(segment) == 2
            start, end = segment if pair else (segment, None)
            step_place = f"{place}, step {number} (counted from 1)"
            steps.append(make_step(start, end, action - base, place=step_place))
        videos.append(Video(video, split, task, tuple(steps)))
    taxonomy = Taxonomy.from_ids("coin", task_names, action_names, owned, path)
    annotations = Annotations(taxonomy, tuple(videos))
    return Source(
        annotations=annotations,
        form="COIN's annotations",
        files=tuple(file for file, _ in files),
        names=names,
        notes=(*check_repeats(annotations, path), UNPUBLISHED),
    )


_Entry = tuple[int, str, str, list[tuple[int, str, Any]]]
"""Task, its name, split, and id, name and segment of each step."""


def _entry(video: str, entry: Any, path: Path, split: str | None) -> _Entry:
    """The facts of a video; its split, if the file has none of its own."""
    with parsing(f"{path}, video '{video}'", "a video of COIN", _SHAPE):
        steps = [
            (int(step["id"]), nfc(str(step["label"])).strip(), step["segment"])
            for step in entry["annotation"]
        ]
        task, name = int(entry["recipe_type"]), nfc(str(entry["class"]))
        return task, name, split or _SPLITS[entry["subset"]], steps


def _name(names: dict[int, str], number: int, name: str, kind: str, place: str) -> None:
    if names.setdefault(number, name) != name:
        both = f"is '{name}' here, but '{names[number]}' in an earlier video"
        raise DataError(f"{place}: {kind} {number} {both}. Correct one of them.")


BENCHMARKS = ("crosstask", "coin", "niv")
_FORMS = (
    "Known forms: a folder with taxonomy.json and videos.jsonl; window files of the unified "
    "protocol (a JSON list of windows with 'legal_range'); CrossTask's release (tasks_primary.txt "
    "and annotations/); COIN's JSON (with 'database', or a list of {VIDEO: entry} a split)."
)


def read_benchmark(
    benchmark: str, annotations: Path | str, *, taxonomy: Path | str | None = None
) -> Source:
    """Read a benchmark's annotations in any of their public forms.

    The text embeddings of the actions are those of `action_embeddings….npy` beside window files.

    Args:
        benchmark: crosstask, coin or niv.
        annotations: File or folder in one of the public forms, or the folder of a repository that
            has them in `dataset/NAME`, as that of the paper's authors.
        taxonomy: A taxonomy for window files, a taxonomy.json or as the authors write it; by
            default the one beside them is used.
    """
    place = Path(annotations)
    if benchmark not in BENCHMARKS:
        raise ConfigError(f"benchmark {benchmark!r}: expected one of {', '.join(BENCHMARKS)}.")
    inside = [folder for folder in place.glob("dataset/*/") if folder.name.lower() == benchmark]
    place = inside[0] if len(inside) == 1 else place
    source = _read(benchmark, place, None if taxonomy is None else Path(taxonomy))
    if source.form != WINDOWS:
        return source
    folder = place if place.is_dir() else place.parent
    paths = sorted(folder.glob("action_embeddings*.npy"))
    if len(paths) > 1:
        listed = ", ".join(path.name for path in paths)
        raise DataError(f"{folder}: has {listed}. Leave the one of these files there.")
    if not paths:
        return source
    note = f"Text embeddings of the actions are those of {paths[0].name}."
    return replace(source, action_text=paths[0], notes=(*source.notes, note))


@contextmanager
def naming_benchmark(paths: Sequence[Path]) -> Iterator[None]:
    """Name the command for a benchmark's files, if they were refused as one's own (DataError)."""
    try:
        yield
    except DataError as problem:
        for path in paths:
            if benchmark := _benchmark_of(path):
                command = f"cefito data prepare {benchmark} --annotations {path} --out FOLDER"
                raise DataError(f"{path}: is of a benchmark. Use {command}.") from problem
        raise


def _benchmark_of(path: Path) -> str:
    """Return the benchmark whose annotations a file or folder holds; empty if it is none."""
    around = any((folder / _TASKS).is_file() for folder in path.absolute().parents[:2])
    if around or (path.is_dir() and find_release(path)):
        return "crosstask"
    inside = [*path.glob("*.json"), *path.glob("dataset/*/*.json")]
    files = [path] if path.is_file() else sorted(inside)
    for file in files:
        with suppress(DataError):
            value = read_json(file, _FORMS, most=MAX_BYTES)
            if _is_coin(value):
                return "coin"
            if is_windows(value):
                place = "/".join(file.absolute().parts[-3:]).casefold()
                return next((name for name in BENCHMARKS if name in place), "|".join(BENCHMARKS))
    return ""


def _read(benchmark: str, place: Path, taxonomy: Path | None) -> Source:
    if place.is_dir():
        release = find_release(place)
        common = (place / "taxonomy.json").is_file() and (place / "videos.jsonl").is_file()
        if taxonomy is not None and (common or release is not None):
            raise DataError(f"{place}: has its own taxonomy. Give no other.", setting="taxonomy")
        if common:
            return read_common(place)
        if release is not None:
            _check_benchmark("crosstask", benchmark, release)
            return read_release(release)
    folder = place if place.is_dir() else place.parent
    beside = [folder / "taxonomy.json", *folder.glob("*_taxonomy*.json")]
    paths = sorted(place.glob("*.json")) if place.is_dir() else [place]
    files = [
        (path, read_json(path, _FORMS, most=MAX_BYTES)) for path in paths if path not in beside
    ]
    windows = [file for file in files if is_windows(file[1])]
    database = [file for file in files if _is_coin(file[1])]
    vocabulary = _taxonomy(taxonomy, [path for path in beside if path.is_file()])
    if windows and not database:
        notes = []
        if vocabulary is not None:
            windows, note = of_vocabulary(windows, vocabulary)
            notes += [note] * bool(note)
        if others := [path.name for path, value in files if value != [] and not is_windows(value)]:
            notes.append(f"Not read, since of no known form: {', '.join(others)}.")
        source = read_windows(windows, dataset=benchmark, taxonomy=vocabulary)
        return replace(source, notes=(*source.notes, *notes))
    lists = all(isinstance(value, list) for _, value in database)
    if database and (len(database) == 1 or lists) and not windows:
        _check_benchmark("coin", benchmark, database[0][0])
        if taxonomy is not None:
            raise DataError(f"{place}: has its own taxonomy. Give no other.", setting="taxonomy")
        return read_coin(database)
    forms = "several forms" if database else "no known form"
    raise DataError(f"{place}: the annotations have {forms}. {_FORMS}")


def _is_coin(value: Any) -> bool:
    match value:
        case {"database": dict()}:
            return True
        case [dict() as video, *_] if video:
            return all(
                isinstance(entry, dict) and "recipe_type" in entry for entry in video.values()
            )
    return False


def _taxonomy(path: Path | None, beside: list[Path]) -> Taxonomy | None:
    if path is not None:
        return Taxonomy.read(path / "taxonomy.json" if path.is_dir() else path)
    if len(beside) > 1:
        listed = ", ".join(path.name for path in sorted(beside))
        raise DataError(f"{beside[0].parent}: has {listed}. Name one.", setting="taxonomy")
    return Taxonomy.read(beside[0]) if beside else None


def _check_benchmark(actual: str, benchmark: str, place: Path) -> None:
    if actual != benchmark:
        raise DataError(f"{place}: is of {actual}. Use cefito data prepare {actual}.")
