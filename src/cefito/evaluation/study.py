"""A study: planners, horizons and seeds on one data set, trained and scored cell by cell.

Every cell (a row of the study at one horizon with one seed) keeps its scores in a file of its own, so that a study can be
killed at any moment and gone on with, and a cell that fails leaves the others as they are:

    OUT/T3/seed0/cells/ROW.json          scores of the row, or the error that it ended with
    OUT/T3/seed0/runs/METHOD[-DIGEST]/   run folders; rows that only plan differently share one
    OUT/T3/seed0/trainings/              checkpoints and metrics, shared by all runs of the seed
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from cefito.data.action_space import action_space
from cefito.data.prepared import PreparedDataset, open_dataset
from cefito.data.windows import Selection, Windows, cut_windows
from cefito.errors import CefitoError, ConfigError, RunError
from cefito.evaluation.score import evaluate_planner
from cefito.files import read_json, write_json
from cefito.planners.cefito import CefitoPlanner
from cefito.planners.methods import find_method
from cefito.planners.run import Run, pick_device, train_run
from cefito.planners.settings import search_settings
from cefito.progress import Progress, silent
from cefito.training.config import RunConfig, load_config

__all__ = ["ROWS", "Cell", "Row", "Study", "find_rows", "run_study"]

logger = logging.getLogger(__name__)
SAMPLE_SEED = 0
"""Seed of samples of windows, so that those of one size are the same everywhere."""
TRUE_TASK = "-true-task"
"""What a row's name ends with where the true task is given."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a table: a method, how it is trained and how it plans.

    Attributes:
        name: Its name in files and on the command line.
        title: Its name in tables.
        method: Name of the method.
        settings: Settings changed in training, dotted keys as in `load_config`.
        search: Settings of the search changed in planning, as in `search_settings`; of CEFITO only.
        exhaustive: Whether planning costs so much that long horizons are scored on a sample.
        true_task: Whether the true task is given.
    """

    name: str
    title: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    search: Mapping[str, Any] = field(default_factory=dict)
    exhaustive: bool = False
    true_task: bool = False

    @property
    def run(self) -> str:
        """Name of the run folder that it plans with."""
        return f"{self.method}-{_digest(dict(self.settings))}" if self.settings else self.method

    def with_true_task(self) -> Row:
        """The same with the true task given.

        Raises:
            ConfigError: The method makes no use of it.
        """
        if not find_method(self.method).uses_task:
            raise ConfigError(f"'{self.name}{TRUE_TASK}': {self.title} makes no use of the task.")
        return replace(self, name=self.name + TRUE_TASK, title=f"{self.title}, true task", true_task=True)


_PAPER = {"method": "exhaustive", "objective": "energy", "tasks": 1}
ROWS: dict[str, Row] = {row.name: row for row in (
    Row(name="cefito", title="CEFITO, exact search", method="cefito", search={"method": "exhaustive"}, exhaustive=True),
    Row(name="cefito-guided", title="CEFITO, guided search", method="cefito", search={"method": "guided"}),
    Row(name="cefito-energy", title="CEFITO, energy alone", method="cefito", search=_PAPER, exhaustive=True),
    Row(name="cefito-no-energy", title="CEFITO without the energy", method="cefito",
        search={"method": "guided", "objective": "likelihood"}),
    Row(name="viterbi", title="ViterbiPlanNet", method="viterbi"),
    Row(name="pdpp", title="PDPP", method="pdpp"),
    Row(name="pkg", title="PKG, exact", method="pkg"),
    Row(name="pkg-beam", title="PKG, beam search", method="pkg-beam"),
    Row(name="nearest", title="nearest window", method="nearest"),
    Row(name="frequent", title="most frequent window", method="frequent"),
)}
"""Rows that can be asked for by name, each also with `-true-task` behind it where the method makes use of the task."""


def find_rows(names: Sequence[str]) -> tuple[Row, ...]:
    """Rows by their names.

    Raises:
        ConfigError: No such row, or one twice.
    """
    rows = []
    for name in names:
        base = name.removesuffix(TRUE_TASK)
        if base not in ROWS:
            raise ConfigError(f"no planner '{name}'; there are {', '.join(ROWS)}, each also with '{TRUE_TASK}' behind it.")
        rows.append(ROWS[base] if base == name else ROWS[base].with_true_task())
    if len({row.name for row in rows}) < len(rows):
        raise ConfigError(f"planners {', '.join(names)}: one is named twice.")
    return tuple(rows)


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is trained and scored.

    Attributes:
        dataset: Folder of the prepared data set.
        out: Folder of the study.
        rows: The lines of its tables.
        horizons: All T.
        seeds: Seeds of the trainings.
        preset: Preset of the settings.
        settings: Settings changed in all rows, dotted keys.
        selection: Where epochs and weights are chosen.
        sample: Test windows to score, a fixed sample; None for all.
        costly: Candidates a test window on average, beyond which exhaustive rows are scored on the smaller `costly_sample`.
        costly_sample: Its size.
        device: "auto", "cpu" or "cuda".
    """

    dataset: Path
    out: Path
    rows: tuple[Row, ...]
    horizons: tuple[int, ...] = (3, 4)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    preset: str = "small"
    settings: Mapping[str, Any] = field(default_factory=dict)
    selection: Selection = "held-out"
    sample: int | None = None
    costly: float = 5000
    costly_sample: int = 100
    device: str = "auto"

    def config(self, row: Row, name: str, horizon: int) -> RunConfig:
        """All settings of a row at a horizon.

        Args:
            row: A row.
            name: Name of the data set, for variants of presets.
            horizon: T.
        """
        return load_config(self.preset, dataset=name, horizon=horizon, overrides={**self.settings, **row.settings})

    def folder(self, horizon: int, seed: int) -> Path:
        """Where all of one horizon and seed lies."""
        return self.out / f"T{horizon}" / f"seed{seed}"

    def cells(self) -> list[Cell]:
        """All cells."""
        return [Cell(row=row, horizon=horizon, seed=seed) for horizon in self.horizons for seed in self.seeds
                for row in self.rows]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A row at one horizon with one seed."""

    row: Row
    horizon: int
    seed: int

    def path(self, study: Study) -> Path:
        """Where its scores are kept."""
        return study.folder(self.horizon, self.seed) / "cells" / f"{self.row.name}.json"


def test_windows(study: Study, row: Row, test: Windows, train: Windows) -> Windows:
    """The test windows that a row is scored on."""
    chosen = test.sample(study.sample, SAMPLE_SEED)
    if row.exhaustive:
        sizes = np.array([len(actions) for actions in action_space(train, "training").actions], dtype=float)
        if (sizes[chosen.tasks] ** test.horizon).mean() > study.costly:
            return test.sample(min(study.costly_sample, len(chosen)), SAMPLE_SEED)
    return chosen


def cell_key(study: Study, cell: Cell, dataset: PreparedDataset) -> str:
    """A digest of all that a cell's scores depend on."""
    row = cell.row
    config = study.config(row, dataset.taxonomy.dataset, cell.horizon)
    return _digest([dataset.fingerprint, row.method, find_method(row.method).settings(config), dict(row.search), row.true_task,
                    row.exhaustive and [study.costly, study.costly_sample], study.sample, study.selection, cell.horizon,
                    cell.seed])


def read_cell(study: Study, cell: Cell, dataset: PreparedDataset) -> dict[str, Any] | None:
    """The scores of a cell; None where there are none, or those of other settings.

    Raises:
        RunError: The file is damaged.
    """
    path = cell.path(study)
    if not path.exists():
        return None
    value = read_json(path, "Remove it to have the cell scored again.", RunError)
    return value if isinstance(value, dict) and value.get("key") == cell_key(study, cell, dataset) else None


def run_study(study: Study, *, workers: int = 1, progress: Progress = silent) -> list[str]:
    """Train and score what is missing.

    Args:
        study: What to do.
        workers: Processes; each takes one seed at one horizon at a time, with its share of the cores.
        progress: Shows progress.

    Returns:
        What went wrong, a line a cell, each saying what to do; empty where all went well.

    Raises:
        ConfigError: Settings that cannot be, or a planner that does not exist.
        DataError: The data set cannot be opened or gives no windows.
    """
    if not study.rows or not study.horizons or not study.seeds or workers < 1:
        raise ConfigError(f"a study needs planners, horizons, seeds and a worker; it has {len(study.rows)}, "
                          f"{len(study.horizons)}, {len(study.seeds)} and {workers}.")
    dataset = open_dataset(study.dataset)
    for cell in study.cells():
        cell_key(study, cell, dataset)  # refuses what cannot be before any work
    for horizon in study.horizons:
        cut_windows(dataset, horizon=horizon, split="test")
    pick_device(study.device)
    jobs = [(horizon, seed) for seed in study.seeds for horizon in study.horizons]
    jobs = [job for job in jobs if _missing(study, *job, dataset)]
    if workers == 1 or len(jobs) < 2:
        for horizon, seed in jobs:
            _work(study, horizon, seed, progress)
    else:
        _in_processes(study, jobs, min(workers, len(jobs)), dataset, progress)
    problems = []
    for cell in study.cells():
        place = f"{cell.row.name}, T = {cell.horizon}, seed {cell.seed}"
        try:
            value = read_cell(study, cell, dataset)
        except RunError as problem:
            problems.append(f"{place}: {problem}")
            continue
        if value is None:
            problems.append(f"{place}: its process ended before it was scored. Repeat the command.")
        elif "error" in value:
            problems.append(f"{place}: {value['error']}")
    return problems


def _missing(study: Study, horizon: int, seed: int, dataset: PreparedDataset) -> list[Cell]:
    """Cells of a seed that have no scores yet; those that ended with an error are tried again."""
    missing = []
    for row in study.rows:
        cell = Cell(row=row, horizon=horizon, seed=seed)
        with suppress(RunError):  # a damaged file is written anew
            value = read_cell(study, cell, dataset)
            if value is not None and "error" not in value:
                continue
        missing.append(cell)
    return missing


def _in_processes(study: Study, jobs: list[tuple[int, int]], workers: int, dataset: PreparedDataset, progress: Progress
                  ) -> None:
    """Run jobs in processes of their own, so that one that is killed takes no other with it."""
    import torch

    context = multiprocessing.get_context("spawn")
    threads = max(1, torch.get_num_threads() // workers)
    waiting = list(jobs)
    running: list[Any] = []
    paths = [cell.path(study) for job in jobs for cell in _missing(study, *job, dataset)]
    before, done = {path: _modified(path) for path in paths}, 0
    with progress("comparing", total=len(paths)) as advance:
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    process = context.Process(target=_work, args=(study, *waiting.pop(0), silent, threads), daemon=True)
                    process.start()
                    running.append(process)
                time.sleep(0.2)
                running = [process for process in running if process.is_alive()]
                now = sum(_modified(path) != before[path] for path in paths)
                if now > done:
                    advance(now - done)
                    done = now
        finally:
            for process in running:
                process.terminate()


def _modified(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def _work(study: Study, horizon: int, seed: int, progress: Progress, threads: int | None = None) -> None:
    """Score the missing cells of one horizon and seed."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    dataset = open_dataset(study.dataset)
    for cell in _missing(study, horizon, seed, dataset):
        path = cell.path(study)
        path.parent.mkdir(parents=True, exist_ok=True)
        key = cell_key(study, cell, dataset)
        try:
            value = _score(study, cell, dataset, progress)
        except CefitoError as problem:
            value = {"error": str(problem)}
        except Exception as problem:  # a planner that fails must not take the others with it
            logger.exception("%s, T = %d, seed %d failed", cell.row.name, horizon, seed)
            value = {"error": f"{type(problem).__name__}: {problem}. This is a defect of the planner; the others are not "
                              "concerned. Repeat the command once it is mended."}
        write_json(path, {"key": key, "row": cell.row.name, "horizon": horizon, "seed": seed, **value})


def _score(study: Study, cell: Cell, dataset: PreparedDataset, progress: Progress) -> dict[str, Any]:
    row = cell.row

    def named(description: str, *, total: int | None = None) -> Any:
        return progress(f"{row.name}, T = {cell.horizon}, seed {cell.seed}: {description}", total=total)

    run = _trained(study, cell, dataset, named)
    planner = run.planner
    if row.search:
        planner.use(search_settings(planner.config.search, **row.search))
    train, test = (cut_windows(dataset, horizon=cell.horizon, split=split) for split in ("train", "test"))
    windows = test_windows(study, row, test, train)
    evaluation, plans = evaluate_planner(planner, windows, oracle_task=row.true_task, sampled_from=len(test))
    success = [len(plan) > 0 and bool((plan.actions[0] == actual).all())
               for plan, actual in zip(plans, windows.actions, strict=True)]
    value = evaluation.to_dict() | {
        "method": row.method, "selection": study.selection, "parameters": dict(planner.parameters),
        "training": run.info["training"], "success": "".join("01"[right] for right in success),
        "videos": windows.video.tolist(), "starts": windows.start.tolist()}
    if isinstance(planner, CefitoPlanner):
        assert planner.hypotheses is not None
        value |= {"weights": vars(planner.weights), "tasks_searched": planner.config.search.tasks or planner.hypotheses.tasks}
    return value


def _trained(study: Study, cell: Cell, dataset: PreparedDataset, progress: Progress) -> Run[Any]:
    """The run of a cell, trained where there is none."""
    place = study.folder(cell.horizon, cell.seed)
    folder, config = place / "runs" / cell.row.run, study.config(cell.row, dataset.taxonomy.dataset, cell.horizon)
    (place / "runs").mkdir(parents=True, exist_ok=True)
    return train_run(dataset, folder, config=config, horizon=cell.horizon, seed=cell.seed, method=cell.row.method,
                     selection=study.selection, device=pick_device(study.device), progress=progress,
                     trainings=place / "trainings", reuse=True)


def _digest(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]
