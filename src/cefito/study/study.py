"""A study: rows, horizons and seeds on one data set, trained and scored trial by trial.

Every trial (a row at one horizon with one seed) has its own file, so that a study can be killed and
resumed at any moment, and a failing trial does not affect the others:

    OUT/T3/seed0/trials/ROW.json       scores of the row, or its error
    OUT/T3/seed0/trials/ROW.KEY.json   the same, of settings or data other than those of ROW.json
    OUT/T3/seed0/runs/METHOD-DIGEST/   run folders, named by a digest of everything that they depend
                                       on; rows that differ only in planning share one
    OUT/T3/seed0/trainings/            checkpoints and metrics, shared by all runs of the seed
    OUT/costs/METHOD-DIGEST-DEVICE/    seconds that a run was measured to take (`costs.py`)

A study of all lengths from 1 to 6, which planners are not told, has its trials in OUT/T1-6. A row
whose runs plan one length each is trained for every length, in OUT/T1, OUT/T2, …, and plans the
length that the any-length run of the seed predicts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from cefito.data.prepared import PreparedDataset, open_dataset
from cefito.data.windows import Selection, Windows, action_space, cut_windows, steps_text
from cefito.errors import ConfigError, RunError, explained
from cefito.evaluation.metrics import Orders, training_orders
from cefito.evaluation.runs import SAMPLE_SEED
from cefito.planners.methods import (
    METHODS,
    PlannerVariant,
    RunConfig,
    find_method,
    load_config,
)
from cefito.runtime import check_seed, determining, pick_device
from cefito.study.trials import ROWS, Trial, check_variant
from cefito.training.trackers import TrackerName, check_tracker


class OfDataset:
    """Base of what is pickled with the folder of its data set, which is opened anew."""

    def __reduce__(self: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        settings = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.init}
        return _opened, (type(self), settings.pop("dataset").folder, settings)


@dataclass(frozen=True, kw_only=True)
class Study(OfDataset):
    """Rows, horizons and seeds to train and score."""

    dataset: PreparedDataset
    out: Path
    rows: tuple[PlannerVariant, ...]
    horizons: tuple[int, ...] = (3, 4)
    # the shortest length of the scored windows, if planners are not told the length; None to score
    # the windows of each horizon alone
    shortest: int | None = None
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    # the trials that this process works on, beside others: of a seed and of rows; None for all
    only_seed: int | None = None
    only_rows: tuple[str, ...] | None = None
    preset: str = "small"
    settings: Mapping[str, Any] = field(default_factory=dict)  # for all rows, dotted keys
    selection: Selection = "held-out"  # windows that epochs and weights are chosen on
    sample: int | None = None  # size of a fixed sample of test windows to score; None for all
    # exhaustive rows are scored on a sample of `costly_sample` windows if these have more than
    # `costly` candidates on average
    costly: float = 5000
    costly_sample: int = 100
    device: str = "auto"  # as `pick_device` takes it
    track: TrackerName | None = None  # program that gets the metrics of trainings, too
    _test: dict[int, Windows] = field(default_factory=dict, init=False, repr=False, compare=False)
    _candidates: dict[int, tuple[int, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _configs: dict[tuple[int, str, str], tuple[RunConfig, Any]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """All trials, in the order of tables."""
        return tuple(
            self._trial(row, horizon, seed, self.shortest)
            for horizon in self.horizons
            for seed in self.seeds
            for row in self.rows
        )

    @cached_property
    def share(self) -> tuple[Trial, ...]:
        """The trials that this process works on."""
        return tuple(
            trial
            for trial in self.trials
            if self.only_seed in (None, trial.seed)
            and (self.only_rows is None or trial.row.name in self.only_rows)
        )

    def _trial(
        self, row: PlannerVariant, horizon: int, seed: int, shortest: int | None = None
    ) -> Trial:
        trained, of_lengths = row, list[Trial]()
        if shortest is not None and self.predicts_length(row):
            trained = ROWS["any-length"]
            lengths = range(shortest, horizon + 1)
            of_lengths = [self._trial(row, length, seed) for length in lengths]
        config, settings = self._config(trained, horizon)
        folder = self.out / f"T{steps_text(horizon, shortest)}" / f"seed{seed}"
        code = [name for name in [METHODS.code(trained.method)] if name]
        training = _digest([self.dataset.fingerprint, self.selection, settings, *code])
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
                *["stored task"] * row.stored_task,
                *([] if shortest is None else [shortest, *(trial.key for trial in of_lengths)]),
                *code,
            ]
        )
        return Trial(
            row=row,
            horizon=horizon,
            shortest=shortest,
            seed=seed,
            config=config,
            key=key,
            path=folder / "trials" / f"{row.name}.json",
            run_folder=folder / "runs" / f"{trained.method}-{training}",
            of_lengths=tuple(of_lengths),
        )

    def _config(self, row: PlannerVariant, horizon: int) -> tuple[RunConfig, Any]:
        """Return the settings of a row's run, and the part that its training depends on."""
        overrides = {**self.settings, **row.settings}
        key = (horizon, row.method, json.dumps(overrides, sort_keys=True, default=str))
        if key not in self._configs:
            config = load_config(
                self.preset,
                method=row.method,
                dataset=self.dataset.taxonomy.dataset,
                horizon=horizon,
                overrides=overrides,
                shared=True,
            )
            self._configs[key] = config, determining(config.sections, "float32")
        return self._configs[key]

    @property
    def unreached(self) -> dict[str, list[str]]:
        """Rows that a changed setting does not reach, by its key: they lack it or set their own."""
        named = {
            key: [row.name for row in self.rows if not self._reads(row, key)]
            for key in self.settings
        }
        return {key: names for key, names in named.items() if names}

    def _reads(self, row: PlannerVariant, key: str) -> bool:
        """Whether the scores of a row depend on a setting; nothing but its planner is trained."""
        section = key.partition(".")[0]
        methods = [row.method, *["any-length"] * self.predicts_length(row)]
        read = {name for method in methods for name in find_method(method).settings.model_fields}
        search = self._config(row, self.horizons[0])[0].sections.get("search", {})
        if (search | dict(row.search)).get("task_model") == "chain":
            read -= {"classifier", "classifier_training"}
        return key not in row.settings and section in read

    @cached_property
    def orders(self) -> Orders:
        """Orders that the training videos keep, for the order-tolerant success rate."""
        return training_orders(self.dataset)

    def predicts_length(self, row: PlannerVariant) -> bool:
        """Whether a row plans one length only, so that the length must be predicted for it."""
        several = find_method(row.method).planner.abilities.any_length
        return self.shortest is not None and not several

    def scored_windows(self, row: PlannerVariant, horizon: int) -> tuple[Windows, int]:
        """The test windows that a row is scored on, and the number of all test windows."""
        test = self._test_windows(horizon)
        windows = test.sample(self.sample, SAMPLE_SEED)
        if row.exhaustive:
            candidates = np.array(self._action_counts(horizon), dtype=float)  # K of each task
            if (candidates[windows.tasks] ** windows.lengths).mean() > self.costly:
                # a subset of the other rows' windows, so that differences can be taken on it
                windows = windows.sample(self.costly_sample, SAMPLE_SEED)
        return windows, len(test)

    def _test_windows(self, horizon: int) -> Windows:
        if horizon not in self._test:
            self._test.clear()  # one horizon at a time: windows copy their observations
            self._test[horizon] = self._windows(horizon, "test")
        return self._test[horizon]

    def _action_counts(self, horizon: int) -> tuple[int, ...]:
        if horizon not in self._candidates:
            actions = action_space(self._windows(horizon, "train"), "training").actions
            self._candidates[horizon] = tuple(map(len, actions))
        return self._candidates[horizon]

    def _windows(self, horizon: int, split: str) -> Windows:
        return cut_windows(self.dataset, horizon=horizon, shortest=self.shortest, split=split)


def _opened(kind: Callable[..., Any], dataset: Path, settings: dict[str, Any]) -> Any:
    return kind(dataset=open_dataset(dataset), **settings)


def _digest(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def check_share(
    only: Sequence[str] | None, names: Sequence[str], seed: int | None, seeds: Sequence[int]
) -> None:
    """Refuse rows and a seed that a study of several jobs does not have (ConfigError).

    Args:
        only: Rows of this job; None for all.
        names: Rows of the study.
        seed: Seed of this job; None for all.
        seeds: Seeds of the study.
    """
    if unknown := [name for name in only or () if name not in names]:
        listed = ", ".join(names)
        raise ConfigError(
            f"only {', '.join(unknown)}: is not among the rows {listed}.", setting="only"
        )
    if seed is not None and seed not in seeds:
        raise ConfigError(f"seed {seed}: is not among the seeds 0 to {seeds[-1]}.", setting="seed")


def check_study(study: Study, *, workers: int = 1) -> None:
    """Check the settings of a study before any work, and make its folder."""
    for setting, values in (
        ("planners", [row.name for row in study.rows]),
        ("horizons", study.horizons),
        ("seeds", study.seeds),
    ):
        if not values or len(set(values)) < len(values):
            listed = ", ".join(map(str, values)) or "none"
            raise ConfigError(
                f"{setting} {listed}: expected one or more, each once.", setting=setting
            )
    for name, number in (
        ("workers", workers),
        ("sample", study.sample),
        ("costly sample", study.costly_sample),
    ):
        if number is not None and number < 1:
            raise ConfigError(
                f"{name} {number}: expected at least 1.", setting=name.replace(" ", "_")
            )
    if study.shortest is not None and not (
        len(study.horizons) == 1 and 1 <= study.shortest < study.horizons[0]
    ):
        listed = ", ".join(map(str, study.horizons))
        raise ConfigError(
            f"steps {study.shortest} to {listed}: expected a range of lengths, such as 1 to 6.",
            setting="steps",
        )
    names = [row.name for row in study.rows]
    check_share(study.only_rows, names, study.only_seed, study.seeds)
    for row in study.rows:
        check_variant(row)
    for seed in study.seeds:
        check_seed(seed)
    check_tracker(study.track)
    _ = study.trials  # refuses settings
    for horizon in reversed(study.horizons):  # the first one's windows are needed first
        study._test_windows(horizon)
    pick_device(study.device)
    with explained(study.out, "cannot be made", "Choose another folder.", error=RunError):
        study.out.mkdir(parents=True, exist_ok=True)
