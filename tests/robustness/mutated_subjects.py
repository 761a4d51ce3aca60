"""What is mutated: a data set, runs, a checkpoint and a study; batches, reports and inputs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from mutations import Answer, Remarks, Subject, digest
from PIL import Image

from cefito.arrays import load_npy
from cefito.batch.batch import plan_batch
from cefito.batch.planning import QuerySettings, plan_rows
from cefito.batch.sources import open_table
from cefito.data.annotations import read_annotations
from cefito.data.prepared import PreparedDataset, open_dataset
from cefito.data.readers.feature_files import load_features
from cefito.data.readers.step_source import read_steps
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.data.windows import cut_windows
from cefito.encoders.images import load_image
from cefito.errors import CefitoError
from cefito.executors import EXECUTORS, Killed
from cefito.planners.methods import load_config
from cefito.planners.queries import Queries
from cefito.report import report_comparison, report_run
from cefito.runs.run import Run, open_run
from cefito.runs.train import train_run
from cefito.study.checking import check
from cefito.study.results import RESULTS, gather
from cefito.study.running import run_study
from cefito.study.study import Study
from cefito.study.trials import find_rows
from cefito.training import trainer

_EIGHT = "field.action_dim chain.hidden chain.width chain.emission viterbi.hidden viterbi.width"
_EIGHT += " schema_model.hidden schema_model.width"
_ONCE = "training chain_training pkg.training viterbi.training schema_model.training pdpp.training"
_ONCE += " kepp.step.training kepp.plan.training classifier_training"
SMALL: dict[str, Any] = {
    **dict.fromkeys(_EIGHT.split(), 8),
    **{f"{part}.optimiser.epochs": 1 for part in _ONCE.split()},
    "field.width": 16,
    "field.depth": 1,
    "field.heads": 2,
    "training.negatives.count": 4,
    "training.stopping.windows": 5,
    "training.stopping.candidates": 20,
    "classifier.hidden": [8, 8, 8],
    "classifier_training.optimiser.epochs": 3,
    "chain.members": 2,
    "search.fitting_windows": 5,
    "search.task_model": "classifier",
    "pkg.network.hidden": [8, 8],
    "schema_model.heads": 2,
    "pdpp.widths": [8, 16, 32],
    "kepp.folds": 2,
    **{key: [8] for key in ("kepp.step.widths", "kepp.plan.widths")},
    **dict.fromkeys(("pdpp.sampling", "kepp.step.sampling", "kepp.plan.sampling"), 2),
}
SHARD = 64


def of_dataset(folder: Path, _: Remarks) -> str:
    """Digest the windows, name and fingerprint of a data set."""
    data = open_dataset(folder)
    test = cut_windows(data, horizon=3, split="test")
    parts = (test.initial, test.goal, test.actions, test.tasks, test.video)
    return digest(data.name, data.fingerprint, data.provenance, data.taxonomy, *parts)


def of_plans(queries: Queries) -> Answer:
    """Digest the plans and the description of a run."""

    def answer(folder: Path, _: Remarks) -> str:
        run = open_run(folder)
        parts: list[Any] = []
        for plans in run.planner.plan(queries, 3):
            names = [run.taxonomy.names(row) for row in plans.actions]
            parts += [plans.actions, plans.energies, plans.scores, plans.exact, names]
        return digest(run.horizon, run.method, run.info.dataset.name, *parts)

    return answer


def of_training(dataset: PreparedDataset) -> Answer:
    """Digest the weights of a killed training after it is continued."""

    def answer(folder: Path, _: Remarks) -> str:
        train_run(dataset, folder, config=config("frequent"), horizon=3, seed=0)
        return digest((folder / "classifier.safetensors").read_bytes())

    return answer


def of_trials(study: Study) -> Answer:
    """Digest the results of a study."""

    def answer(folder: Path, _: Remarks) -> str:
        results = gather(replace(study, out=folder))
        for trial in results.trials:
            if (error := getattr(trial, "error", None)) is not None:
                raise CefitoError(f"{folder}: {error}")
        return digest(results.to_dict())

    return answer


def config(method: str) -> Any:
    """Settings of the smallest networks."""
    return load_config("small", method=method, overrides=SMALL, shared=True)


class KilledError(Exception):
    """Stops a training."""


@contextmanager
def killed_after(steps: int) -> Iterator[None]:
    """Stop trainings after some steps."""
    whole, left = trainer.Training._step, [steps]

    def step(self: Any, *rest: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise KilledError
        return whole(self, *rest)

    trainer.Training._step = step  # type: ignore[method-assign]
    try:
        yield
    except KilledError:
        pass
    finally:
        trainer.Training._step = whole  # type: ignore[method-assign]


def studied(data: PreparedDataset, out: Path, horizons: tuple[int, ...]) -> Study:
    """Make a study of two planners."""
    rows = find_rows(["nearest", "frequent"])
    study = Study(dataset=data, out=out, rows=rows, horizons=horizons, seeds=(0,), settings=SMALL)
    problems = run_study(study)
    assert not problems, problems
    return study


def stored(root: Path, methods: tuple[str, ...]) -> list[Subject]:
    """Make subjects of which cefito wrote every file."""
    data = write_world(root / "data", knobs=WorldKnobs(train=24, val=12, test=12, dim=8))
    queries = Queries.from_windows(cut_windows(data, horizon=3, split="test")).subset(range(4))
    subjects = [Subject("data set", data.folder, ("*",), of_dataset, stored=True)]
    for method in methods:
        run = train_run(data, root / method, config=config(method), horizon=3, seed=0)
        subjects.append(
            Subject(f"run of {method}", run.folder, ("*",), of_plans(queries), stored=True)
        )
    killed = root / "killed"
    with killed_after(5):
        train_run(data, killed, config=config("frequent"), horizon=3, seed=0)
    files = ("classifier/checkpoint.safetensors", "classifier/metrics.jsonl")
    subjects.append(Subject("checkpoint", killed, files, of_training(data), stored=True))
    study = studied(data, root / "study", (2, 3))
    trials = ("T*/seed*/trials/*.json",)
    return [*subjects, Subject("trials", study.out, trials, of_trials(study), stored=True)]


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
                    source = open_table(path)
                    found = plan_rows(run, list(source.rows()), source.folder, QuerySettings())
                    remarks += [bad.reason for bad in found.bad]
            except CefitoError as problem:
                remarks.append(str(problem))
        return "read"

    return answer


def work(root: Path) -> list[Subject]:
    """Make subjects of a user's work: batches, reports, inputs."""
    data = write_world(root / "data", knobs=WorldKnobs(train=24, val=12, test=12, dim=8))
    run = train_run(data, root / "run", config=config("frequent"), horizon=3, seed=0)
    planner = train_run(data, root / "planner", config=config("nearest"), horizon=3, seed=0)
    of_scores = of_run(data.folder)
    of_scores(run.folder, [])  # keeps scores and plans
    study = studied(data, root / "study", (2,))
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
        Subject("shards of a batch", half, ("plans.jsonl.parts/*",), table),
        Subject("inputs of a begun batch", half, named, table, fresh_table),
        Subject("files of a finished batch", whole, ("plans.jsonl*",), table),
        Subject("inputs of a finished batch", whole, named, table, fresh_table),
        Subject("folder of features", folder, ("pairs/*.npy",), features, fresh_features),
        Subject("study", study.out, (*kept, "**/*.safetensors"), of_study),
        Subject("scored run", run.folder, kept, of_scores),
        Subject("tables, features, uploads", inputs, ("*",), of_inputs(planner)),
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
