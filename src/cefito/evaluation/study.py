"""A study: planners, horizons and seeds on one data set, trained and scored cell by cell.

Every cell (a row of the study at one horizon with one seed) keeps its scores in a file of its own,
so that a study can be killed at any moment and gone on with, and a cell that fails leaves the
others as they are:

    OUT/T3/seed0/cells/ROW.json        scores of the row, or the error that it ended with
    OUT/T3/seed0/runs/METHOD-DIGEST/   run folders, by what they depend on; rows that only plan
                                       differently share one
    OUT/T3/seed0/trainings/            checkpoints and metrics, shared by all runs of the seed
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np

from cefito.data.action_space import action_space
from cefito.data.prepared import PreparedDataset, open_dataset
from cefito.data.windows import Selection, Windows, cut_windows
from cefito.errors import CefitoError, ConfigError, RunError
from cefito.evaluation.rows import ROWS, Row, find_rows
from cefito.evaluation.score import evaluate_planner
from cefito.files import read_json, write_json
from cefito.planners.cefito.planner import CefitoPlanner
from cefito.planners.registry import find_method
from cefito.planners.run import Run, train_run
from cefito.planners.settings import RunConfig, load_config
from cefito.progress import Progress, silent
from cefito.runtime import check_seed, pick_device
from cefito.search.settings import search_settings

__all__ = [
    "ROWS",
    "Cell",
    "Row",
    "Study",
    "check_study",
    "find_rows",
    "missing_cells",
    "read_cell",
    "run_study",
    "scored_windows",
]

logger = logging.getLogger(__name__)
SAMPLE_SEED = 0
"""Seed of samples of windows, so that those of one size are the same everywhere."""


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
        costly: Candidates a test window on average, beyond which exhaustive rows are scored on the
            smaller `costly_sample`.
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
        return load_config(
            self.preset, dataset=name, horizon=horizon, overrides={**self.settings, **row.settings}
        )

    def folder(self, horizon: int, seed: int) -> Path:
        """Where all of one horizon and seed lies."""
        return self.out / f"T{horizon}" / f"seed{seed}"

    def cells(self) -> list[Cell]:
        """All cells."""
        return [
            Cell(row=row, horizon=horizon, seed=seed)
            for horizon in self.horizons
            for seed in self.seeds
            for row in self.rows
        ]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A row at one horizon with one seed."""

    row: Row
    horizon: int
    seed: int

    def path(self, study: Study) -> Path:
        """Where its scores are kept."""
        return study.folder(self.horizon, self.seed) / "cells" / f"{self.row.name}.json"

    def run(self, study: Study, dataset: PreparedDataset) -> Path:
        """The run folder that it plans with, one for each data set.

        Selection and settings of the method.
        """
        config = study.config(self.row, dataset.taxonomy.dataset, self.horizon)
        digest = _digest(
            [dataset.fingerprint, study.selection, find_method(self.row.method).settings(config)]
        )
        return study.folder(self.horizon, self.seed) / "runs" / f"{self.row.method}-{digest}"


def scored_windows(study: Study, row: Row, test: Windows, train: Windows) -> Windows:
    """The test windows that a row is scored on."""
    chosen = test.sample(study.sample, SAMPLE_SEED)
    if row.exhaustive:
        sizes = np.array(
            [len(actions) for actions in action_space(train, "training").actions], dtype=float
        )
        if (sizes[chosen.tasks] ** test.horizon).mean() > study.costly:
            return chosen.sample(
                study.costly_sample, SAMPLE_SEED
            )  # of the others' windows, to be compared on these
    return chosen


def cell_key(study: Study, cell: Cell, dataset: PreparedDataset) -> str:
    """A digest of all that a cell's scores depend on."""
    row = cell.row
    config = study.config(row, dataset.taxonomy.dataset, cell.horizon)
    return _digest(
        [
            dataset.fingerprint,
            row.method,
            find_method(row.method).settings(config),
            dict(row.search),
            row.true_task,
            row.exhaustive and [study.costly, study.costly_sample],
            study.sample,
            study.selection,
            cell.horizon,
            cell.seed,
        ]
    )


def read_cell(study: Study, cell: Cell, dataset: PreparedDataset) -> dict[str, Any] | None:
    """The scores of a cell; None where there are none, or those of other settings.

    Raises:
        RunError: The file is damaged.
    """
    path = cell.path(study)
    if not path.exists():
        return None
    value = read_json(path, "Remove it to have the cell scored again.", RunError)
    return (
        value
        if isinstance(value, dict) and value.get("key") == cell_key(study, cell, dataset)
        else None
    )


def check_study(study: Study, *, workers: int = 1) -> PreparedDataset:
    """Refuse what cannot be before any work, and make the folder of the study.

    Args:
        study: What to do.
        workers: Processes.

    Returns:
        The data set.

    Raises:
        ConfigError: Settings that cannot be, or a planner that does not exist.
        DataError: The data set cannot be opened or gives no test windows.
        RunError: No such device, or the folder cannot be made.
    """
    for name, values in (
        ("planners", [row.name for row in study.rows]),
        ("horizons", study.horizons),
        ("seeds", study.seeds),
    ):
        if not values or len(set(values)) < len(values):
            raise ConfigError(
                f"{name} {', '.join(map(str, values)) or 'none'}: expected one or more, each once."
            )
    for name, number in (
        ("workers", workers),
        ("sample", study.sample),
        ("costly sample", study.costly_sample),
    ):
        if number is not None and number < 1:
            raise ConfigError(f"{name} {number}: expected at least 1.")
    dataset = open_dataset(study.dataset)
    for cell in study.cells():
        check_seed(cell.seed)
        cell_key(study, cell, dataset)
    for horizon in study.horizons:
        cut_windows(dataset, horizon=horizon, split="test")
    pick_device(study.device)
    try:
        study.out.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise RunError(
            f"{study.out}: cannot be made ({problem.strerror}). Choose another folder."
        ) from problem
    return dataset


def run_study(study: Study, *, workers: int = 1, progress: Progress = silent) -> list[str]:
    """Train and score what is missing.

    Args:
        study: What to do.
        workers: Processes; each takes one seed at one horizon at a time, with its share of the
            cores. One works in this process.
        progress: Shows progress.

    Returns:
        What went wrong, a line a cell, each saying what to do; empty where all went well.

    Raises:
        ConfigError: Likewise DataError and RunError: as `check_study`.
    """
    dataset = check_study(study, workers=workers)
    jobs = [
        _missing(study, horizon, seed, dataset)
        for seed in study.seeds
        for horizon in study.horizons
    ]
    jobs = [job for job in jobs if job]
    if workers > 1 and jobs:
        _in_processes(study, jobs, min(workers, len(jobs)), dataset, progress)
    else:
        for job in jobs:
            _work(study, job, progress)
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


def missing_cells(study: Study, dataset: PreparedDataset) -> list[Cell]:
    """All cells that have no scores yet."""
    return [
        cell
        for horizon in study.horizons
        for seed in study.seeds
        for cell in _missing(study, horizon, seed, dataset)
    ]


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


def _in_processes(
    study: Study,
    jobs: Sequence[list[Cell]],
    workers: int,
    dataset: PreparedDataset,
    progress: Progress,
) -> None:
    """Run jobs in processes of their own.

    One that is killed takes with it no more than the cell that it was working at.
    """
    import torch

    context = multiprocessing.get_context("spawn")
    threads = max(1, torch.get_num_threads() // workers)
    before = {cell.path(study): _modified(cell.path(study)) for job in jobs for cell in job}

    def left(job: list[Cell]) -> list[Cell]:
        return [cell for cell in job if _modified(cell.path(study)) == before[cell.path(study)]]

    waiting, done = list(jobs), 0
    running: list[tuple[Any, list[Cell]]] = []
    with progress("comparing", total=len(before)) as advance:
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    job = waiting.pop(0)
                    process = context.Process(
                        target=_work, args=(study, job, silent, threads), daemon=True
                    )
                    process.start()
                    running.append((process, job))
                wait([process.sentinel for process, _ in running], timeout=1)
                ended = [(process, job) for process, job in running if not process.is_alive()]
                running = [(process, job) for process, job in running if process.is_alive()]
                for process, job in ended:
                    rest = left(job)
                    if (
                        rest and process.exitcode is not None and process.exitcode < 0
                    ):  # killed, not unable to begin
                        _write(
                            study,
                            rest[0],
                            dataset,
                            {
                                "error": (
                                    f"its process was killed (signal {-process.exitcode}), "
                                    "perhaps for want of memory. Repeat the "
                                    "command, with fewer workers."
                                )
                            },
                        )
                        waiting += [rest[1:]] if rest[1:] else []
                now = len(before) - sum(len(left(job)) for job in jobs)
                if now > done:
                    advance(now - done)
                    done = now
        finally:
            for process, _ in running:
                process.terminate()
                process.join()


def _modified(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def _work(
    study: Study, cells: Sequence[Cell], progress: Progress, threads: int | None = None
) -> None:
    """Score cells, one after the other."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    dataset = open_dataset(study.dataset)
    for cell in cells:
        try:
            value = _score(study, cell, dataset, progress)
        except CefitoError as problem:
            value = {"error": _line(problem)}
        except Exception as problem:  # a planner that fails must not take the others with it
            logger.error("%s, T = %d, seed %d failed", cell.row.name, cell.horizon, cell.seed)
            value = {
                "traceback": traceback.format_exc(),
                "error": (
                    f"{type(problem).__name__}: {_line(problem)}. This is a defect of the "
                    "planner; the others are not concerned. "
                    f"Its traceback is kept in {cell.path(study)}. Repeat the command once it is "
                    "mended."
                ),
            }
        _write(study, cell, dataset, value)


def _write(study: Study, cell: Cell, dataset: PreparedDataset, value: Mapping[str, Any]) -> None:
    """Write the file of a cell."""
    path = cell.path(study)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(
        path,
        {
            "key": cell_key(study, cell, dataset),
            "row": cell.row.name,
            "horizon": cell.horizon,
            "seed": cell.seed,
            **value,
        },
    )


def _score(
    study: Study, cell: Cell, dataset: PreparedDataset, progress: Progress
) -> dict[str, Any]:
    row = cell.row

    def named(description: str, *, total: int | None = None) -> Any:
        return progress(
            f"{row.name}, T = {cell.horizon}, seed {cell.seed}: {description}", total=total
        )

    run = _trained(study, cell, dataset, named)
    planner = run.planner
    if row.search:
        planner.use(search_settings(planner.config.search, **row.search))
    train, test = (
        cut_windows(dataset, horizon=cell.horizon, split=split) for split in ("train", "test")
    )
    windows = scored_windows(study, row, test, train)
    evaluation, plans = evaluate_planner(
        planner, windows, oracle_task=row.true_task, sampled_from=len(test)
    )
    success = [
        len(plan) > 0 and bool((plan.actions[0] == actual).all())
        for plan, actual in zip(plans, windows.actions, strict=True)
    ]
    value = evaluation.to_dict() | {
        "method": row.method,
        "selection": study.selection,
        "parameters": dict(planner.parameters),
        "training": run.info["training"],
        "success": "".join("01"[right] for right in success),
        "videos": windows.video.tolist(),
        "starts": windows.start.tolist(),
    }
    if isinstance(planner, CefitoPlanner):
        assert planner.hypotheses is not None
        value |= {
            "weights": vars(planner.weights),
            "tasks_searched": planner.config.search.tasks or planner.hypotheses.tasks,
        }
    return value


def _trained(study: Study, cell: Cell, dataset: PreparedDataset, progress: Progress) -> Run[Any]:
    """The run of a cell, trained where there is none.

    Raises:
        RunError: A damaged run, or a training that diverged; the message says what to do.
    """
    folder, config = (
        cell.run(study, dataset),
        study.config(cell.row, dataset.taxonomy.dataset, cell.horizon),
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        return train_run(
            dataset,
            folder,
            config=config,
            horizon=cell.horizon,
            seed=cell.seed,
            method=cell.row.method,
            selection=study.selection,
            device=pick_device(study.device),
            progress=progress,
            trainings=folder.parents[1] / "trainings",
            reuse=True,
        )
    except RunError as problem:
        if str(folder) not in str(problem):
            raise
        raise RunError(
            f"{problem} Here: remove {folder} and repeat the command, which makes it again."
        ) from problem


def _line(problem: Exception) -> str:
    return " ".join(str(problem).split())


def _digest(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]
