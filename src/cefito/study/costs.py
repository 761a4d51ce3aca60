"""What a study will take, told before its first training, and corrected as scores are finished.

Each network of a row is trained for one epoch, on some of the windows, and a few queries are
planned. Trainings may stop early, so that most estimates are too high. What was measured is kept in
OUT/costs, so that several jobs that share the folder, and a command that is repeated, measure it
once. Each network of a recogniser takes a few steps, of as many as the progress of a training says.
"""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import torch

from cefito.data.windows import Windows, cut_windows, fitting_windows, steps_text
from cefito.errors import RunError
from cefito.evaluation.score import evaluate_planner
from cefito.files import FileRecord
from cefito.locks import locked
from cefito.markup import counted
from cefito.parts.folder import RunInfo, window_sizes
from cefito.planners.methods import SERVER, PlannerVariant, find_method
from cefito.progress import Advance, EnoughSteps, Progress, silent
from cefito.runtime import determining, pick_device
from cefito.study.study import Study
from cefito.study.trials import Trial
from cefito.training.settings import TrainingConfig, TrainingResult
from cefito.training.trainer import TrainingContext

logger = logging.getLogger(__name__)

WINDOWS, _QUERIES = 400, 16  # most that are tried
_STEPS = 8  # of each network of a recogniser; the first one loads libraries
_SHARE = 0.2  # of all steps, after which the rest of a recogniser is taken to be alike


@dataclass(frozen=True, kw_only=True)
class _OneEpoch(TrainingContext):
    """Trains each network for an epoch, and notes the seconds, by what is trained."""

    warm: set[type] = field(default_factory=set)  # losses whose libraries are loaded
    tried: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)  # of all epochs

    def train(
        self, name: str, loss: Any, training: TrainingConfig, *, seed: int, settings: Any
    ) -> TrainingResult:
        begun = time.monotonic()
        epoch = training.optimiser.model_copy(update={"epochs": 1})
        short = training.model_copy(update={"optimiser": epoch})
        for _ in range(1 if type(loss) in self.warm else 2):  # the first loads libraries
            started = time.monotonic()
            result = super().train(name, loss, short, seed=seed, settings=settings)
        self.warm.add(type(loss))
        key = json.dumps([name, seed, determining(settings)])
        self.seconds[key] = (time.monotonic() - started) * training.optimiser.epochs
        self.tried[key] = time.monotonic() - begun
        return result


class _Measured(FileRecord):
    """What a run was measured to take."""

    what: ClassVar[str] = "measurement of what a run takes"
    remedy: ClassVar[str] = "Remove it to measure again."

    trainings: dict[str, float]  # seconds of all epochs of all windows, by what is trained
    rest: float  # seconds of a fit beside them
    size: int  # windows times steps
    queries: dict[str, float]  # seconds of a query, by row


@dataclass
class StudyCosts:
    """Estimated seconds of the scores that are missing, by label; done ones are taken out."""

    seconds: dict[str, float]
    rows: dict[str, float]  # seconds of each row
    horizons: dict[str, float]  # seconds of each number of steps
    unknown: tuple[str, ...]  # rows that are not estimated
    workers: int = 1
    kept: bool = False  # whether some of it was measured by an earlier command
    basis: str = "one epoch of each network {where}, and most trainings stop earlier"
    estimated: float = 0.0  # seconds of what is done
    taken: float = 0.0

    @property
    def words(self) -> str:
        """The estimate and its parts, as sentences."""
        count, total = counted(len(self.seconds), "score"), sum(self.rows.values())
        rows = ", ".join(f"{name} {_minutes(part)}" for name, part in self.rows.items())
        lengths = ", ".join(f"T = {name} {_minutes(part)}" for name, part in self.horizons.items())
        said = f"estimate for {count}: {_minutes(total / self.workers)}"
        said += f", by {counted(self.workers, 'worker')}" * (self.workers > 1)
        said += (f"; of rows {rows}" + f"; of {lengths}" * bool(lengths)) * (total >= 60)
        where = "measured here, or by an earlier command" if self.kept else "on this machine"
        left = f"; not estimated: {', '.join(self.unknown)}" * bool(self.unknown)
        return f"{said}. It is of {self.basis.format(where=where)}{left}."

    def finished(self, label: str, seconds: float) -> str:
        """Note the seconds that a score took, and say what remains, corrected by those done."""
        expected = self.seconds.pop(label, 0.0)
        self.estimated, self.taken = self.estimated + expected, self.taken + seconds
        # a tenth of all counts as estimated rightly, so that the first scores do not decide alone
        trust = 0.1 * sum(self.rows.values()) or 1.0
        share = (self.taken + trust) / (self.estimated + trust)
        remaining = _minutes(share * sum(self.seconds.values()))
        return f"{counted(len(self.seconds), 'score')} to go, {remaining} by those done"

    def weight(self, label: str) -> float:
        """The seconds of a missing score; of one that is not estimated, those of an average one."""
        estimates = [seconds for seconds in self.seconds.values() if seconds]
        return self.seconds.get(label) or (fmean(estimates) if estimates else 1.0)

    def telling(self, say: Callable[[str], None], label: Callable[[Any], str]) -> dict[str, Any]:
        """Return `each` of `mapped`, which says what remains if something does, and `weight`."""

        def each(job: Any, seconds: float) -> None:
            said = self.finished(label(job), seconds)
            if self.seconds:
                say(said)

        return {"each": each, "weight": lambda job: self.weight(label(job))}


def estimated_costs(
    study: Study, trials: Sequence[Trial], *, workers: int = 1, progress: Progress = silent
) -> StudyCosts:
    """Measure what the missing scores of a study will take, or read what was measured before.

    Rows that ask a server are not estimated, nor those that fail, which say so when it is their
    turn.

    Args:
        study: The study.
        trials: Its missing scores, in order of work.
        workers: Processes that share the work.
        progress: Shows progress in rows.
    """
    measured: dict[str, _Measured | None] = {}
    begun, trained = set[Path](), set[tuple[int, int, str]]()
    seconds = dict[str, float]()
    rows, horizons = defaultdict[str, float](float), defaultdict[str, float](float)
    unknown, kept = dict[str, None](), False
    fits = {run.run_folder.name for trial in trials for run in (trial, *trial.of_lengths)}
    with progress("estimating", total=len(fits)) as advance:
        for trial in trials:
            cost = 0.0
            for run in (trial, *trial.of_lengths):
                name = run.run_folder.name
                if name not in measured:
                    measured[name], before = _kept_or_measured(study, run)
                    kept |= before
                    advance(1)
                if (costs_of_run := measured[name]) is None:
                    unknown[trial.row.name] = None
                    continue
                if not trial.of_lengths or run is not trial:
                    windows, _ = study.scored_windows(trial.row, trial.horizon)
                    count = len(windows) / max(1, len(trial.of_lengths))
                    cost += costs_of_run.queries[trial.row.name] * count
                if run.run_folder in begun or _is_finished(run.run_folder):
                    continue
                begun.add(run.run_folder)
                scale = _size(_fitting(study, run)[0]) / costs_of_run.size
                cost += costs_of_run.rest
                for key, length in costs_of_run.trainings.items():
                    place = run.horizon, run.seed, key
                    cost += 0.0 if place in trained else length * scale
                    trained.add(place)
            seconds[trial.label] = cost
            rows[trial.row.name] += cost
            horizons[steps_text(trial.horizon, trial.shortest)] += cost
    return StudyCosts(seconds, dict(rows), dict(horizons), tuple(unknown), workers, kept)


class _FewSteps:
    """Progress of a recogniser's training, of which each network takes a few steps."""

    def __init__(self) -> None:
        self.total: float | None = 0
        self.done = 0.0  # of these steps, with those that were left out
        self.seconds = 0.0  # that they take
        self.times: list[float] = []  # of a step of the present network
        self.ended = False  # whether its other steps are left out
        self.last = time.monotonic()

    @contextmanager
    def __call__(self, description: str, *, total: int | None = None) -> Iterator[Advance]:  # noqa: ARG002
        self.total = total
        yield self._advance

    def _advance(self, count: float = 1, *, note: str = "") -> None:  # noqa: ARG002
        now = time.monotonic()
        self.seconds += now - self.last
        self.done += count
        if self.ended:
            self.seconds += count * fmean(self.times[1:])
            self.times, self.ended = [], False
            if self.total and self.done >= _SHARE * self.total:
                raise EnoughSteps
        elif count:
            self.times.append((now - self.last) / count)
            self.ended = len(self.times) == _STEPS
        self.last = time.monotonic()
        if self.ended:
            raise EnoughSteps

    @property
    def total_seconds(self) -> float:
        """The seconds of all steps, with what was done between them."""
        if self.ended:  # by a loop of its own
            return self.seconds + ((self.total or 0) - self.done) * fmean(self.times[1:])
        return self.seconds * max(1.0, (self.total or 0) / (self.done or 1))


def recogniser_costs(
    fits: Mapping[str, Callable[..., Any]],
    missing: Sequence[tuple[str, str]],
    device: str,
    *,
    folds: int = 1,
    workers: int = 1,
    progress: Progress = silent,
) -> StudyCosts:
    """Measure what the missing scores of recognisers will take.

    Args:
        fits: What trains each row, on the videos of the first fold.
        missing: Row and label of each score.
        device: Where they are trained.
        folds: Trainings of a score.
        workers: Processes that share the work.
        progress: Shows progress in rows.
    """
    measured, unknown = dict[str, float](), list[str]()
    with progress("estimating", total=len(fits)) as advance:
        for name, fit in fits.items():
            steps = _FewSteps()
            try:
                with suppress(EnoughSteps):
                    fit(context=TrainingContext(device=device, progress=steps))
                    steps._advance(0)
                if steps.total is None:
                    raise RunError("its progress has no end")
                measured[name] = folds * steps.total_seconds
            except Exception as problem:
                logger.info("%s is not estimated: %s", name, problem)
                unknown.append(name)
            advance(1)
    seconds = {label: measured.get(name, 0.0) for name, label in missing}
    rows = {
        name: taken * [row for row, _ in missing].count(name) for name, taken in measured.items()
    }
    basis = "a few steps of each network {where}, without what scoring takes"
    return StudyCosts(seconds, rows, {}, tuple(unknown), workers, basis=basis)


def _kept_or_measured(study: Study, run: Trial) -> tuple[_Measured | None, bool]:
    """Return what a run takes, and whether that was measured before.

    If another job measures it, wait for that. A method that fails, or asks a server, has none.
    """
    method, device = find_method(run.config.method), pick_device(study.device)
    if SERVER in method.needs:
        return None, False
    folder = study.out / "costs" / f"{run.run_folder.name}-{device.type}"
    rows = {
        trial.row.name: trial.row
        for trial in study.trials
        for planned in trial.of_lengths or (trial,)
        if planned.run_folder.name == run.run_folder.name
    }
    with locked(folder, "an estimate", wait=True):
        with suppress(RunError):
            kept = _Measured.read(folder / "seconds.json")
            if kept.queries.keys() >= rows.keys():
                return kept, True
        try:
            measured = _measured(study, run, [*rows.values()])
        except Exception as problem:
            logger.info("%s is not estimated: %s", run.label, problem)
            return None, False
        measured.write(folder / "seconds.json")
        return measured, False


def _fitting(study: Study, run: Trial) -> tuple[Windows, Windows]:
    sizes = window_sizes(find_method(run.config.method).planner, run.horizon, run.shortest)
    return fitting_windows(study.dataset, selection=study.selection, **sizes)


def _size(windows: Windows) -> int:
    """Return the number of steps of windows."""
    return int(windows.lengths.sum())


@torch.random.fork_rng(devices=[])
def _measured(study: Study, run: Trial, rows: Sequence[PlannerVariant]) -> _Measured:
    """Measure a run, of the study's first seed, on some of its windows, and queries of rows."""
    fit = find_method(run.config.method).planner.fit
    whole, val = _fitting(study, run)
    some, few = (windows.sample(WINDOWS, seed=0) for windows in (whole, val))
    context = _OneEpoch(device=pick_device(study.device))
    started = time.monotonic()
    fitted = fit(some, few, settings=run.config.settings, seed=study.seeds[0], context=context)
    trials = sum(context.tried.values())
    scale = _size(whole) / _size(some)
    trainings = {key: scale * length for key, length in context.seconds.items()}
    rest = max(0.0, time.monotonic() - started - trials)
    asked = cut_windows(study.dataset, horizon=run.horizon, shortest=run.shortest, split="test")
    asked = asked.sample(_QUERIES, seed=0)
    queries = {}
    for row in rows:
        given: dict[str, Any] = row.given
        evaluation, _ = evaluate_planner(row.apply(fitted.planner), asked, **given)
        queries[row.name] = evaluation.seconds_per_query
    return _Measured(trainings=trainings, rest=rest, size=_size(whole), queries=queries)


def _is_finished(folder: Path) -> bool:
    with suppress(RunError):
        return RunInfo.read(folder).finished
    return False


def _minutes(seconds: float) -> str:
    """Return a length in minutes or hours, in words."""
    if seconds >= 3 * 3600:
        return f"{round(seconds / 3600):,} h"
    return "under a minute" if seconds < 60 else f"{round(seconds / 60):,} min"
