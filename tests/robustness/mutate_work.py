"""Mutate batches, studies, scored runs, tables, features and uploads, and judge each outcome.

    python tests/robustness/mutate_work.py

Each mutation copies a subject, changes one file and uses the copy. An outcome is

- refused: a `CefitoError` in one line;
- same: the result without the mutation, or, if an input was changed, that of new work on it;
- reported: another result, with a warning, a note or a bad row that says so;
- SILENT: another result, and nothing says so;
- TRACEBACK: another exception, or a bad row that is called a defect;
- HANG: no outcome in time.

`--only NUMBER` repeats one mutation. The exit code is 1 if there was one of the last three.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mutations import Hang, Outcome, config, digest, in_bytes, in_files, in_json, limited, report
from PIL import Image

from cefito.arrays import load_npy
from cefito.batch.batch import plan_batch
from cefito.batch.query_rows import QuerySettings, read_queries
from cefito.data.annotations import read_annotations
from cefito.data.readers.feature_files import load_features
from cefito.data.readers.step_source import read_steps
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.encoders.images import load_image
from cefito.errors import CefitoError
from cefito.executors import EXECUTORS, Killed
from cefito.report import report_comparison, report_run
from cefito.runs.run import Run, open_run
from cefito.runs.train import train_run
from cefito.study.checking import check
from cefito.study.results import RESULTS, gather
from cefito.study.running import run_study
from cefito.study.study import Study
from cefito.study.trials import find_rows

SECONDS = 60
BAD = ("SILENT", "TRACEBACK", "HANG")
SHARD = 64
Remarks = list[str]
Answer = Callable[[Path, Remarks], str]
"""Use a folder; return a digest of the result and append what the user is told."""


@dataclass(frozen=True)
class Subject:
    """A folder to mutate."""

    name: str
    folder: Path
    files: tuple[str, ...]  # patterns of the files to mutate
    answer: Answer
    anew: Answer | None  # result of new work on changed inputs; None if the result may not change


@contextmanager
def heard(remarks: Remarks) -> Iterator[None]:
    """Append the warnings of the library to remarks."""
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: remarks.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("cefito")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def batch(run: Run, queries: str, out: str = "plans.jsonl", **settings: Any) -> Answer:
    """Plan queries of a folder into a file of it."""
    how: dict[str, Any] = {"shard": SHARD, "settings": QuerySettings(**settings)}

    def answer(folder: Path, remarks: Remarks) -> str:
        done = plan_batch(run, folder / queries, folder / out, **how)
        remarks += done.problems
        if done.bad is not None:
            remarks += [json.loads(line)["reason"] for line in done.bad.read_text().splitlines()]
        if done.problems:
            return "nothing was written"
        return digest(done.plans.read_bytes(), done.counts)

    return answer


def of_study(folder: Path, remarks: Remarks) -> str:
    """Check a study and make its report."""
    remarks += check(folder).notes
    found = report_comparison(folder)
    return digest(found.to_dict() | {"title": "", "commands": [], "notes": [], "curves": []})


def of_run(dataset: Path) -> Answer:
    """Check a scored run and make its report."""

    def answer(folder: Path, remarks: Remarks) -> str:
        remarks += check(folder).notes
        found = report_run(open_run(folder), dataset=dataset, queries=20, frames=False).to_dict()
        scores = found["scores"] | {"seconds_per_query": 0, "plans_sha256": ""}
        kept = {"scores": scores, "commands": [], "notes": [], "curves": []}
        return digest(found | kept)

    return answer


def of_inputs(run: Run) -> Answer:
    """Read every file of a folder by the reader of its kind."""

    def answer(folder: Path, remarks: Remarks) -> str:
        for path in sorted(folder.iterdir()):
            kind = path.suffix
            try:
                if kind in (".png", ".jpg", ".bmp", ".webp"):
                    load_image(path)
                elif path.name == "row.npy":
                    load_npy(path)
                elif kind in (".npy", ".npz"):
                    features = load_features(path)
                    features.read(np.arange(features.rows))
                elif path.name == "steps.csv":
                    list(read_steps(path).annotations.videos)
                elif path.name == "videos.jsonl":
                    read_annotations(folder)
                elif kind in (".jsonl", ".csv"):
                    read_queries(run, path)
            except CefitoError as problem:
                remarks.append(str(problem))
        return "read"

    return answer


def make(root: Path) -> list[Subject]:
    """Make all subjects below a folder."""
    data = write_world(root / "data", knobs=WorldKnobs(train=24, val=12, test=12, dim=8))
    run = train_run(data, root / "run", config=config("frequent"), horizon=3, seed=0)
    planner = train_run(data, root / "planner", config=config("nearest"), horizon=3, seed=0)
    of_scores = of_run(data.folder)
    of_scores(run.folder, [])  # keeps scores and plans
    rows = find_rows(["nearest", "frequent"])
    study = Study(
        dataset=data, out=root / "study", rows=rows, horizons=(2,), seeds=(0,), settings={}
    )
    problems = run_study(study)
    assert not problems, problems
    gather(study).write(study.out / RESULTS)

    queries = root / "queries"
    fill_queries(queries)
    half, whole, folder = (root / name for name in ("half", "whole", "folder"))
    for copy in (half, whole, folder):
        shutil.copytree(queries, copy)
    rows_of: dict[str, Any] = {"seconds": 1, "precision": "float32"}
    table, features = batch(planner, "queries.jsonl"), batch(planner, "pairs", **rows_of)
    with interrupted():
        table(half, [])
    table(whole, [])
    for path in (folder / "pairs").glob("*b.npy"):
        path.unlink()
    wide_features(folder / "pairs")
    features(folder, [])
    inputs = root / "inputs"
    fill_inputs(inputs, queries)
    fresh_table = batch(planner, "queries.jsonl", "fresh.jsonl")
    fresh_features = batch(planner, "pairs", "fresh.jsonl", **rows_of)
    named, kept = ("pairs/*.npy", "queries.jsonl"), ("**/*.json", "**/*.jsonl")
    return [
        Subject("shards of a batch", half, ("plans.jsonl.parts/*",), table, None),
        Subject("inputs of a begun batch", half, named, table, fresh_table),
        Subject("files of a finished batch", whole, ("plans.jsonl*",), table, None),
        Subject("inputs of a finished batch", whole, named, table, fresh_table),
        Subject("folder of features", folder, ("pairs/*.npy",), features, fresh_features),
        Subject("study", study.out, (*kept, "**/*.safetensors"), of_study, None),
        Subject("scored run", run.folder, kept, of_scores, None),
        Subject("tables, features, uploads", inputs, ("*",), of_inputs(planner), None),
    ]


def fill_queries(folder: Path) -> None:
    """Write a table of queries, most of which name files of observations."""
    draw = np.random.default_rng(0)
    (folder / "pairs").mkdir(parents=True)
    rows = []
    for number in range(8):
        for end in "ab":
            values = draw.standard_normal(8).astype(np.float32)
            np.save(folder / "pairs" / f"{number}{end}.npy", values)
    for number in range(SHARD + 6):
        row = {"id": f"q{number}"}
        for key, end in (("initial", "a"), ("goal", "b")):
            row[key] = f"pairs/{number % 8}{end}.npy"
            if number % 5 == 0:
                row[key] = draw.standard_normal(8).round(3).tolist()
        rows.append(row)
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def wide_features(folder: Path) -> None:
    """Replace observations by features, one row a second."""
    draw = np.random.default_rng(1)
    for path in folder.glob("*.npy"):
        np.save(path, draw.standard_normal((12, 8)).astype(np.float32))


def fill_inputs(folder: Path, queries: Path) -> None:
    """Write one file of each kind that users give."""
    folder.mkdir()
    draw = np.random.default_rng(2)
    picture = Image.fromarray(draw.integers(0, 255, (24, 32, 3), dtype=np.uint8))
    for kind in ("png", "jpg", "bmp", "webp"):
        picture.save(folder / f"picture.{kind}")
    values = draw.standard_normal((9, 8)).astype(np.float32)
    np.save(folder / "features.npy", values)
    np.savez_compressed(folder / "packed.npz", frames_features=values)
    lists = [json.loads(line) for line in (queries / "queries.jsonl").read_text().splitlines()[::5]]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lists))
    (folder / "queries.csv").write_text("id,initial,goal\nq,row.npy,row.npy\nr,row.npy,row.npy\n")
    np.save(folder / "row.npy", values[0])
    head, steps = "video,task,step,start,end\n", ("boil", "pour", "drink")
    lines = [f"v{place % 3},tea,{step},{place},{place + 1}" for place, step in enumerate(steps * 3)]
    (folder / "steps.csv").write_text(head + "\n".join(lines) + "\n")
    taxonomy = {
        "dataset": "odd",
        "tasks": [{"id": 0, "name": "tea", "actions": [0, 1]}],
        "actions": [{"id": 0, "name": "boil"}, {"id": 1, "name": "pour"}],
    }
    video = {"video_id": "a", "split": "train", "task_id": 0, "steps": [[0, 1, 0], [1, 2, 1]]}
    (folder / "taxonomy.json").write_text(json.dumps(taxonomy))
    (folder / "videos.jsonl").write_text(json.dumps(video) + "\n")


@contextmanager
def interrupted() -> Iterator[None]:
    """Let batches end after their first shard."""

    class Stopped(EXECUTORS["serial"]):  # type: ignore[misc]
        def map(self, function: Any, arguments: Any, **how: Any) -> Any:
            return [*super().map(function, [arguments[0]], **how), Killed(9)]

    kept = EXECUTORS["serial"]
    EXECUTORS["serial"] = Stopped
    try:
        yield
    finally:
        EXECUTORS["serial"] = kept


# Changes that only make sense for these subjects; each returns its description.


def in_text(path: Path, draw: random.Random, other: Path) -> str:
    """Change a digit, or exchange, repeat or drop a line."""
    lines = path.read_bytes().splitlines(keepends=True)
    if not lines:
        return in_bytes(path, draw, other)
    place, kind = draw.randrange(len(lines)), draw.choice(("digit", "drop", "repeat", "exchange"))
    digits = [at for at, byte in enumerate(lines[place]) if chr(byte).isdigit()]
    if kind == "digit" and digits:
        at, line = draw.choice(digits), bytearray(lines[place])
        line[at] = ord(draw.choice([sign for sign in "0123456789" if ord(sign) != line[at]]))
        lines[place] = bytes(line)
    elif kind == "drop":
        del lines[place]
    elif kind == "repeat":
        lines.insert(place, lines[place])
    else:
        second = draw.randrange(len(lines))
        lines[place], lines[second] = lines[second], lines[place]
    path.write_bytes(b"".join(lines))
    return f"{kind} in line {place + 1}"


def in_array(path: Path, draw: random.Random, other: Path) -> str:
    """Replace an array by another one, in a file of the same time."""
    before, array = path.stat(), np.load(path)
    if not isinstance(array, np.ndarray):
        return in_bytes(path, draw, other)
    flat, kind = array.reshape(-1), draw.choice(("number", "nan", "order", "cut", "type", "huge"))
    place = draw.randrange(flat.size)
    if kind in ("number", "nan", "huge"):
        flat[place] = {"number": flat[place] + 1, "nan": np.nan, "huge": 1e38}[kind]
    elif kind == "order":
        array = array[::-1].copy()
    elif kind == "cut":
        array = array[:-1]
    else:
        array = array.astype(draw.choice(("int64", "float64", "float16", "complex64", "U8")))
    np.save(path, array)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return f"{kind} at {place}"


def in_kind(path: Path, draw: random.Random, other: Path) -> str:
    """Replace a file by what is no regular file, or by a huge one."""
    path.unlink()
    kind = draw.choice(("pipe", "device", "sparse", "loop", "nowhere"))
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "sparse":
        with path.open("wb") as file:
            file.truncate(20 << 30)
    else:
        path.symlink_to({"device": "/dev/zero", "loop": path.name, "nowhere": "nothing"}[kind])
    return kind


def mutated(subject: Subject, folder: Path, draw: random.Random) -> str:
    """Make one change in a copy of a subject and return its description."""
    found = {path for pattern in subject.files for path in folder.glob(pattern) if path.is_file()}
    paths = sorted(found)
    path = draw.choice(paths)
    other = draw.choice([one for one in paths if one != path] or [path])
    ways = [in_bytes, in_files, in_kind]
    if path.suffix in (".json", ".jsonl") and path.name != "metrics.jsonl":
        ways += [in_json, in_text] * 2
    elif path.suffix in (".csv", ".shard"):
        ways += [in_text] * 4
    elif path.suffix == ".npy":
        ways += [in_array] * 4
    elif path.name == "metrics.jsonl":  # its numbers are not sealed
        path.write_text("\n".join(path.read_text().splitlines()[: draw.randrange(2)]))
        return f"{path.relative_to(folder)}: shortened"
    return f"{path.relative_to(folder)}: {draw.choice(ways)(path, draw, other)}"


def used(answer: Answer, folder: Path) -> tuple[str, str, Remarks]:
    """Use a folder; return how it ended, with the result or the reason, and the remarks."""
    remarks: Remarks = []
    try:
        with limited(SECONDS), np.errstate(all="ignore"), heard(remarks):
            result = answer(folder, remarks)
    except CefitoError as problem:
        return ("TRACEBACK" if "\n" in str(problem) else "refused"), str(problem), remarks
    except Hang:
        return "HANG", "", remarks
    except Exception:
        return "TRACEBACK", traceback.format_exc(), remarks
    if wrong := [remark for remark in remarks if "defect of the program" in remark]:
        return "TRACEBACK", wrong[0], remarks
    return "done", result, remarks


def tried(subject: Subject, expected: str, number: int, seed: int) -> Outcome:
    """Mutate a copy of a subject and return the outcome."""
    draw = random.Random(f"{seed}/{number}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(shutil.copytree(subject.folder, Path(place) / "copy"))
        change = mutated(subject, folder, draw)
        if subject.anew is not None:
            work = Path(shutil.copytree(folder, Path(place) / "anew", symlinks=True, ignore=pipes))
            shutil.rmtree(work / "plans.jsonl.parts", ignore_errors=True)
            ended, expected, _ = used(subject.anew, work)
            if ended in BAD:
                return Outcome(number, subject.name, change, ended, expected)
        ended, detail, remarks = used(subject.answer, folder)
        if ended == "done":
            ended = "same" if detail == expected else "reported" if remarks else "SILENT"
            if subject.answer.__qualname__.startswith("of_inputs"):
                ended = "refused" if remarks else "same"
            detail = "; ".join(remarks)
    return Outcome(number, subject.name, change, ended, detail)


def pipes(folder: str, names: list[str]) -> list[str]:
    """Names of pipes and large files, which are not copied."""
    paths = {name: Path(folder) / name for name in names}
    return [
        name
        for name, path in paths.items()
        if path.is_fifo() or (path.is_file() and path.stat().st_size > 1 << 30)
    ]


def run(subjects: list[Subject], numbers: range, seed: int) -> Iterator[Outcome]:
    """Yield the outcomes of mutations of all subjects in turn."""
    expected = []
    for subject in subjects:
        with tempfile.TemporaryDirectory() as place:
            copy = Path(shutil.copytree(subject.folder, Path(place) / "copy"))
            ended, result, remarks = used(subject.answer, copy)
            assert (ended, remarks) == ("done", []), (subject.name, result, remarks)
            expected.append(result)
    for number in numbers:
        which = number % len(subjects)
        yield tried(subjects[which], expected[which], number, seed)


if __name__ == "__main__":
    sys.exit(report(__doc__ or "", make, run, BAD))
