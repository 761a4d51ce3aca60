"""A study: rows, horizons and seeds on one data set, trained and scored cell by cell.

Every cell (a row at one horizon with one seed) keeps its scores in a file of its own, so that a
study can be killed at any moment and gone on with, and a cell that fails leaves the others as they
are:

    OUT/T3/seed0/cells/ROW.json        scores of the row, or the error that it ended with
    OUT/T3/seed0/runs/METHOD-DIGEST/   run folders, by what they depend on; rows that only plan
                                       differently share one
    OUT/T3/seed0/trainings/            checkpoints and metrics, shared by all runs of the seed
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from cefito.data.prepared import PreparedDataset, open_dataset
from cefito.data.windows import Selection, cut_windows
from cefito.errors import ConfigError, RunError
from cefito.evaluation.records import CellFile, FailureFile
from cefito.executors import Executor, Failed, Killed, Outcome, make_executor
from cefito.locks import locked
from cefito.planners.settings import RunConfig, load_config
from cefito.progress import Progress, silent
from cefito.runtime import check_seed, pick_device
from cefito.study.trials import Trial, TrialScorer, read_cell, write_failure
from cefito.study.variants import PlannerVariant, check_variant

__all__ = ["Study", "check_study", "missing_cells", "run_study"]


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is trained and scored.

    A study travels to another process by the folder of its data set, which is opened there anew.

    Attributes:
        dataset: The opened data set.
        out: Folder of the study.
        rows: The lines of its tables.
        horizons: All T.
        seeds: Seeds of the trainings.
        fewer_seeds: Rows that are trained with the first seeds only, and how many of these.
        preset: Preset of the settings.
        settings: Settings changed in all rows, dotted keys.
        selection: Where epochs and weights are chosen.
        sample: Test windows to score, a fixed sample; None for all.
        costly: Candidates a test window on average, beyond which exhaustive rows are scored on the
            smaller `costly_sample`.
        costly_sample: Its size.
        device: "auto", "cpu" or "cuda".
    """

    dataset: PreparedDataset
    out: Path
    rows: tuple[PlannerVariant, ...]
    horizons: tuple[int, ...] = (3, 4)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    fewer_seeds: Mapping[str, int] = field(default_factory=dict)
    preset: str = "small"
    settings: Mapping[str, Any] = field(default_factory=dict)
    selection: Selection = "held-out"
    sample: int | None = None
    costly: float = 5000
    costly_sample: int = 100
    device: str = "auto"
    _configs: dict[tuple[int, str, str], RunConfig] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __reduce__(self) -> tuple[Callable[..., Study], tuple[Path, dict[str, Any]]]:
        rest = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.init}
        del rest["dataset"]
        return _opened, (self.dataset.folder, rest)

    def config(self, row: PlannerVariant, horizon: int) -> RunConfig:
        """All settings of a row at a horizon; the preset is parsed once for each.

        Raises:
            ConfigError: Settings that cannot be.
        """
        overrides = {**self.settings, **row.settings}
        key = (horizon, row.method, json.dumps(overrides, sort_keys=True, default=str))
        if key not in self._configs:
            self._configs[key] = load_config(
                self.preset,
                method=row.method,
                dataset=self.dataset.taxonomy.dataset,
                horizon=horizon,
                overrides=overrides,
            )
        return self._configs[key]

    def folder(self, horizon: int, seed: int) -> Path:
        """Where all of one horizon and seed lies."""
        return self.out / f"T{horizon}" / f"seed{seed}"

    def cells(self) -> list[Trial]:
        """All cells, in the order of tables."""
        return [
            Trial(row=row, horizon=horizon, seed=seed)
            for horizon in self.horizons
            for place, seed in enumerate(self.seeds)
            for row in self.rows
            if place < self.fewer_seeds.get(row.name, len(self.seeds))
        ]


def _opened(dataset: Path, rest: dict[str, Any]) -> Study:
    return Study(dataset=open_dataset(dataset), **rest)


def check_study(study: Study, *, workers: int = 1) -> None:
    """Refuse what cannot be before any work, and make the folder of the study.

    Args:
        study: What to do.
        workers: How many cells are worked on at the same time.

    Raises:
        ConfigError: Settings that cannot be, or a planner that does not exist or cannot do what its
            row says.
        DataError: The data set gives no test windows.
        RunError: No such device, or the folder cannot be made.
    """
    for setting, values in (
        ("planners", [row.name for row in study.rows]),
        ("horizons", study.horizons),
        ("seeds", study.seeds),
    ):
        if not values or len(set(values)) < len(values):
            given = ", ".join(map(str, values)) or "none"
            raise ConfigError(
                f"{setting} {given}: expected one or more, each once.", setting=setting
            )
    for name, number in (
        ("workers", workers),
        ("sample", study.sample),
        ("costly sample", study.costly_sample),
        *((f"seeds of {name}", count) for name, count in study.fewer_seeds.items()),
    ):
        if number is not None and number < 1:
            raise ConfigError(
                f"{name} {number}: expected at least 1.", setting=name.replace(" ", "_")
            )
    for row in study.rows:
        check_variant(row)
    for cell in study.cells():
        check_seed(cell.seed)
        cell.key(study)
    for horizon in study.horizons:
        cut_windows(study.dataset, horizon=horizon, split="test")
    pick_device(study.device)
    try:
        study.out.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the name
        reason = getattr(problem, "strerror", None) or problem
        raise RunError(
            f"{study.out}: cannot be made ({reason}). Choose another folder."
        ) from problem


def missing_cells(study: Study) -> list[Trial]:
    """All cells that have no scores yet, in the order in which they are worked on.

    Those that ended with an error are tried again, and damaged files are written anew.
    """
    order = {seed: place for place, seed in enumerate(study.seeds)}
    cells = sorted(study.cells(), key=lambda cell: order[cell.seed])
    return [cell for cell in cells if not _scored(study, cell)]


def _scored(study: Study, cell: Trial) -> bool:
    with suppress(RunError):
        return isinstance(read_cell(study, cell), CellFile)
    return False


def run_study(
    study: Study,
    *,
    workers: int = 1,
    executor: str | None = None,
    address: str | None = None,
    progress: Progress = silent,
) -> list[str]:
    """Train and score what is missing.

    Args:
        study: What to do.
        workers: How many cells are worked on at the same time; a worker takes all of one seed at
            one horizon, one after the other.
        executor: Name of the executor, as in `cefito.executors.EXECUTORS`; by default one worker
            works in this process, and several in processes of their own.
        address: Of a Ray cluster that runs, for the executor ray.
        progress: Shows progress.

    Returns:
        What went wrong, a line a cell, each saying what to do; empty where all went well.

    Raises:
        ConfigError: As `check_study`, or no such executor.
        DataError: As `check_study`.
        RunError: As `check_study`.
    """
    mapping = make_executor(executor, workers=workers, address=address)
    check_study(study, workers=workers)
    with locked(study.out, "a comparison"):
        return _run(study, mapping, progress)


def _run(study: Study, mapping: Executor, progress: Progress) -> list[str]:
    """Train and score what is missing, in a folder that is ours."""
    cells = missing_cells(study)
    groups = [(cell.horizon, cell.seed) for cell in cells]
    if mapping.in_process:
        outcomes = mapping.map(TrialScorer(study, progress), cells, groups=groups)
    elif cells:
        with progress("comparing", total=len(cells)) as advance:
            outcomes = mapping.map(TrialScorer(study), cells, groups=groups, advance=advance)
    else:
        outcomes = []
    return _problems(study, _unwritten(study, cells, outcomes))


def _unwritten(
    study: Study, cells: Sequence[Trial], outcomes: Sequence[Outcome[None]]
) -> dict[str, str]:
    """What is wrong with cells that could not write their files, by their places.

    Those whose process was killed get their file here.
    """
    unwritten = {}
    for cell, outcome in zip(cells, outcomes, strict=True):
        if isinstance(outcome, Failed):
            unwritten[cell.place] = f"{outcome.error.rstrip('.')}. Repeat the command."
        elif isinstance(outcome, Killed) and not _scored(study, cell):
            write_failure(
                study,
                cell,
                f"its process was killed (signal {outcome.signal}), perhaps for want of memory. "
                "Repeat the command, with fewer workers.",
            )
    return unwritten


def _problems(study: Study, unwritten: Mapping[str, str]) -> list[str]:
    """What is wrong with each cell that has no scores."""
    problems = []
    for cell in study.cells():
        try:
            record = read_cell(study, cell)
            if isinstance(record, CellFile):
                continue
            reason = (
                record.error
                if isinstance(record, FailureFile)
                else "was not scored. Repeat the command."
            )
        except RunError as problem:
            reason = str(problem)
        problems.append(f"{cell.place}: {unwritten.get(cell.place, reason)}")
    return problems
