"""A study: rows, horizons and seeds on one data set, trained and scored trial by trial.

Every trial (a row at one horizon with one seed) has its own file, so that a study can be killed and
resumed at any moment, and a failing trial does not affect the others:

    OUT/T3/seed0/trials/ROW.json       scores of the row, or its error
    OUT/T3/seed0/runs/METHOD-DIGEST/   run folders, named by a digest of everything that they depend
                                       on; rows that differ only in planning share one
    OUT/T3/seed0/trainings/            checkpoints and metrics, shared by all runs of the seed
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, fields
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from cefito.data.prepared import PreparedDataset, open_dataset
from cefito.data.windows import Selection, Windows, action_space, cut_windows, with_between
from cefito.errors import CefitoError, ConfigError, RunError
from cefito.evaluation.orders import Orders, training_orders
from cefito.evaluation.runs import SAMPLE_SEED
from cefito.evaluation.score import evaluate_planner, successes
from cefito.executors import Executor, Failed, Killed, Outcome, make_executor
from cefito.locks import locked
from cefito.planners.methods import RunConfig, load_config
from cefito.progress import Advance, Progress, silent
from cefito.runs.run import Run
from cefito.runs.train import train_run
from cefito.runtime import check_seed, determining, pick_device
from cefito.study.trials import PlannerVariant, Trial, TrialFile, check_variant, read_trial

__all__ = ["Study", "TrialScorer", "check_study", "missing_trials", "run_study"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Study:
    """Rows, horizons and seeds to train and score.

    A study is pickled with the folder of its data set, which the other process opens anew.
    """

    dataset: PreparedDataset
    out: Path
    rows: tuple[PlannerVariant, ...]
    horizons: tuple[int, ...] = (3, 4)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    fewer_seeds: Mapping[str, int] = field(default_factory=dict)  # rows with the first seeds only
    preset: str = "small"
    settings: Mapping[str, Any] = field(default_factory=dict)  # for all rows, dotted keys
    selection: Selection = "held-out"  # windows that epochs and weights are chosen on
    sample: int | None = None  # size of a fixed sample of test windows to score; None for all
    costly: float = 5000  # mean number of candidates above which exhaustive rows are scored on …
    costly_sample: int = 100  # … a sample of this size
    device: str = "auto"  # "auto", "cpu" or "cuda"
    _test: dict[int, Windows] = field(default_factory=dict, init=False, repr=False, compare=False)
    _candidates: dict[int, tuple[int, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __reduce__(self) -> tuple[Callable[..., Study], tuple[Path, dict[str, Any]]]:
        rest = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.init}
        del rest["dataset"]
        return _opened, (self.dataset.folder, rest)

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """All trials, in the order of tables."""
        configs: dict[tuple[int, str, str], RunConfig] = {}
        places = {(row.name, horizon): row for horizon in self.horizons for row in self.rows}
        parts = {}  # of each row at a horizon: settings, and those that training depends on
        for (name, horizon), row in places.items():
            overrides = {**self.settings, **row.settings}
            key = (horizon, row.method, json.dumps(overrides, sort_keys=True, default=str))
            if key not in configs:
                configs[key] = load_config(
                    self.preset,
                    method=row.method,
                    dataset=self.dataset.taxonomy.dataset,
                    horizon=horizon,
                    overrides=overrides,
                    shared=True,
                )
            parts[name, horizon] = configs[key], determining(configs[key].sections, "float32")
        return tuple(
            self._trial(row, horizon, seed, *parts[row.name, horizon])
            for horizon in self.horizons
            for place, seed in enumerate(self.seeds)
            for row in self.rows
            if place < self.fewer_seeds.get(row.name, len(self.seeds))
        )

    def _trial(
        self, row: PlannerVariant, horizon: int, seed: int, config: RunConfig, settings: Any
    ) -> Trial:
        folder = self.out / f"T{horizon}" / f"seed{seed}"
        training = _digest([self.dataset.fingerprint, self.selection, settings])
        key = _digest(
            [
                self.dataset.fingerprint,
                row.method,
                settings,
                dict(row.search),
                row.true_task,
                row.exhaustive and [self.costly, self.costly_sample],
                self.sample,
                self.selection,
                horizon,
                seed,
                *["true ends"] * row.true_ends,
                *["states between"] * row.true_between,
            ]
        )
        return Trial(
            row=row,
            horizon=horizon,
            seed=seed,
            config=config,
            key=key,
            path=folder / "trials" / f"{row.name}.json",
            run_folder=folder / "runs" / f"{row.method}-{training}",
        )

    @cached_property
    def orders(self) -> Orders:
        """Orders that the training videos keep, for the order-tolerant success rate."""
        return training_orders(self.dataset)

    def scored_windows(self, row: PlannerVariant, horizon: int) -> tuple[Windows, int]:
        """The test windows that a row is scored on, and the number of all test windows."""
        test = self._test_windows(horizon)
        windows = test.sample(self.sample, SAMPLE_SEED)
        if row.exhaustive:
            candidates = np.array(self._action_counts(horizon), dtype=float)  # K of each task
            if (candidates[windows.tasks] ** horizon).mean() > self.costly:
                # a subset of the other rows' windows, so that differences can be taken on it
                windows = windows.sample(self.costly_sample, SAMPLE_SEED)
        if row.true_between:
            windows = with_between(self.dataset, windows)
        return windows, len(test)

    def _test_windows(self, horizon: int) -> Windows:
        if horizon not in self._test:
            self._test.clear()  # one horizon at a time: windows copy their observations
            self._test[horizon] = cut_windows(self.dataset, horizon=horizon, split="test")
        return self._test[horizon]

    def _action_counts(self, horizon: int) -> tuple[int, ...]:
        if horizon not in self._candidates:
            train = cut_windows(self.dataset, horizon=horizon, split="train")
            actions = action_space(train, "training").actions
            self._candidates[horizon] = tuple(map(len, actions))
        return self._candidates[horizon]


def _opened(dataset: Path, rest: dict[str, Any]) -> Study:
    return Study(dataset=open_dataset(dataset), **rest)


def _digest(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def check_study(study: Study, *, workers: int = 1) -> None:
    """Check the settings of a study before any work, and make its folder."""
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
    for seed in study.seeds:
        check_seed(seed)
    _ = study.trials  # refuses settings
    for horizon in reversed(study.horizons):  # the first one's windows are needed first
        study._test_windows(horizon)
    pick_device(study.device)
    try:
        study.out.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the name
        reason = getattr(problem, "strerror", None) or problem
        raise RunError(
            f"{study.out}: cannot be made ({reason}). Choose another folder."
        ) from problem


def missing_trials(study: Study) -> list[Trial]:
    """All trials without scores, also failed and damaged ones, in the order of work."""
    order = {seed: place for place, seed in enumerate(study.seeds)}
    trials = sorted(study.trials, key=lambda trial: order[trial.seed])
    return [trial for trial in trials if not _scored(trial)]


def _scored(trial: Trial) -> bool:
    with suppress(RunError):
        return isinstance(read_trial(trial), TrialFile)
    return False


def run_study(
    study: Study,
    *,
    workers: int = 1,
    executor: str | None = None,
    address: str | None = None,
    progress: Progress = silent,
) -> list[str]:
    """Train and score all missing trials; return a line for each trial without scores.

    A worker takes all trials of one seed at one horizon. `executor` is a name in
    `cefito.executors.EXECUTORS`, `address` of a running Ray cluster.
    """
    mapping = make_executor(executor, workers=workers, address=address)
    check_study(study, workers=workers)
    with locked(study.out, "a comparison"):
        return _run(study, mapping, progress)


def _run(study: Study, mapping: Executor, progress: Progress) -> list[str]:
    trials = missing_trials(study)
    groups = [(trial.horizon, trial.seed) for trial in trials]
    outcomes: Sequence[Outcome[None]] = []
    if mapping.in_process:
        outcomes = mapping.map(TrialScorer(study, progress), trials, groups=groups)
    elif trials:
        with progress("comparing", total=len(trials)) as advance:
            outcomes = mapping.map(TrialScorer(study), trials, groups=groups, advance=advance)
    unwritten = {}  # errors of trials that could not write their files
    for trial, outcome in zip(trials, outcomes, strict=True):
        if isinstance(outcome, Failed):
            unwritten[trial.label] = f"{outcome.error.rstrip('.')}. Repeat the command."
        elif isinstance(outcome, Killed) and not _scored(trial):
            trial.write_failure(
                f"its process was killed (signal {outcome.signal}), perhaps for want of memory. "
                "Repeat the command, with fewer workers."
            )
    problems = []
    for trial in study.trials:
        try:
            record = read_trial(trial)
        except RunError as problem:
            reason = str(problem)
        else:
            if isinstance(record, TrialFile):
                continue
            reason = record.error if record else "was not scored. Repeat the command."
        problems.append(f"{trial.label}: {unwritten.get(trial.label, reason)}")
    return problems


@dataclass(frozen=True)
class TrialScorer:
    """Scores trials and writes their files; in another process it shows no progress."""

    study: Study
    progress: Progress = silent

    def __reduce__(self) -> tuple[Callable[..., TrialScorer], tuple[Study]]:
        return TrialScorer, (self.study,)

    def __call__(self, trial: Trial) -> None:
        """Train the trial's run, score it and write its file."""
        try:
            scores = self._scores(trial)
        except CefitoError as problem:
            trial.write_failure(_line(problem))
        except Exception as problem:  # a failing planner must not stop the others
            logger.error("%s failed", trial.label)
            error = (
                f"{type(problem).__name__}: {_line(problem)}. This is a defect of the planner; the "
                f"others are not affected. Its traceback is in {trial.path}. Repeat the command "
                "once it is fixed."
            )
            trial.write_failure(error, traceback.format_exc())
        else:
            trial.write(scores)

    def _scores(self, trial: Trial) -> TrialFile:
        study, row = self.study, trial.row

        def progress(
            description: str, *, total: int | None = None
        ) -> AbstractContextManager[Advance]:
            return self.progress(f"{trial.label}: {description}", total=total)

        run = self._trained(trial, progress)
        planner = row.apply(run.planner)
        windows, whole = study.scored_windows(row, trial.horizon)
        evaluation, plans = evaluate_planner(
            planner,
            windows,
            oracle_task=row.true_task,
            oracle_ends=row.true_ends,
            oracle_between=row.true_between,
            orders=study.orders,
            sampled_from=whole,
            progress=progress,
        )
        description = planner.describe()
        return TrialFile(
            **dict(evaluation),
            key=trial.key,
            row=row.name,
            seed=trial.seed,
            method=row.method,
            selection=study.selection,
            parameters=description.parameters,
            training=run.info.training,
            success="".join("01"[right] for right in successes(plans, windows).astype(int)),
            videos=windows.video.tolist(),
            starts=windows.start.tolist(),
            weights=description.weights,
            tasks_searched=description.tasks,
            evidence=description.evidence,
        )

    def _trained(self, trial: Trial, progress: Progress) -> Run:
        """The run of a trial, trained if there is none."""
        study, folder = self.study, trial.run_folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            return train_run(
                study.dataset,
                folder,
                config=trial.config,
                horizon=trial.horizon,
                seed=trial.seed,
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
