"""Running a study: its missing trials are trained and scored, in this process or several."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from cefito.errors import CefitoError, ConfigError, RunError
from cefito.evaluation.score import ScoredWindows, evaluate_planner, planned_tasks, successes
from cefito.executors import Executor, Failed, Killed, Outcome, make_executor
from cefito.executors.base import failure
from cefito.locks import locked
from cefito.planners.any_length.predicted import PredictedLengthPlanner, predicts_lengths
from cefito.planners.base import Queries
from cefito.progress import Progress, prefixed, silent
from cefito.runs.run import Run
from cefito.runs.train import train_run
from cefito.runtime import pick_device
from cefito.study.study import Study, check_study
from cefito.study.trials import FailedTrial, Trial, TrialFile

logger = logging.getLogger(__name__)

Job = TypeVar("Job")
Value = TypeVar("Value")
KILLED = (
    "its process was killed (signal {}), perhaps for want of memory. Repeat the command, with "
    "fewer workers."
)
"""Why a job has no scores whose process was killed."""


def missing_trials(study: Study) -> list[Trial]:
    """All trials of its share without scores, also failed and damaged ones, in order of work."""
    order = {seed: place for place, seed in enumerate(study.seeds)}
    trials = sorted(study.share, key=lambda trial: order[trial.seed])
    return [trial for trial in trials if isinstance(trial.result, FailedTrial)]


def run_study(
    study: Study,
    *,
    workers: int = 1,
    executor: str | None = None,
    address: str | None = None,
    progress: Progress = silent,
    **told: Any,
) -> list[str]:
    """Train and score all missing trials; return a line for each trial without scores.

    Several processes may work on shares of a study at once: a training that two of them need is
    done by one, for which the other waits.

    Args:
        study: What is compared.
        workers: Number of processes; each takes all trials of one seed at one horizon.
        executor: A name in `cefito.executors.EXECUTORS`.
        address: Address of a running Ray cluster.
        progress: Shows how many trials are done.
        told: `each` and `weight` of `mapped`, for trials.
    """
    gpus = int(study.device.startswith("cuda"))
    mapping = make_executor(executor, workers=workers, address=address, gpus=gpus)
    check_study(study, workers=workers)
    whole = study.share == study.trials
    with locked(study.out, "a comparison") if whole else nullcontext():
        trials = missing_trials(study)
        groups = [(trial.horizon, trial.seed) for trial in trials]
        scorer = TrialScorer(study, progress)
        outcomes = mapped(mapping, scorer, trials, progress, groups=groups, **told)
        unwritten = {}  # errors of trials that could not write their files
        for trial, outcome in zip(trials, outcomes, strict=True):
            if isinstance(outcome, Failed):
                unwritten[trial.label] = f"{outcome.error.rstrip('.')}. Repeat the command."
            elif isinstance(outcome, Killed) and isinstance(trial.result, FailedTrial):
                trial.write_failure(KILLED.format(outcome.signal))
        return [
            f"{trial.label}: {unwritten.get(trial.label, result.error)}"
            for trial in study.share
            if isinstance(result := trial.result, FailedTrial)
        ]


def mapped(
    executor: Executor,
    scorer: Callable[[Job], Value],
    jobs: Sequence[Job],
    progress: Progress,
    *,
    each: Callable[[Job, float], None] | None = None,
    weight: Callable[[Job], float] | None = None,
    **how: Any,
) -> list[Outcome[Value]]:
    """Map a function over jobs.

    Args:
        executor: The executor.
        scorer: The function, which shows its own progress in this process.
        jobs: Its arguments.
        progress: Shows how many are done in other processes.
        each: Called in this process with each job once it is done, and the seconds that it took.
        weight: What a job counts in the progress, in any unit; all are alike by default.
        how: Options of `Executor.map`.
    """
    if not executor.in_process and jobs:
        parts = [1.0 if weight is None else weight(job) for job in jobs]
        how["weights"] = [len(jobs) * part / sum(parts) for part in parts]
        with progress("comparing", total=len(jobs)) as advance:
            return executor.map(scorer, jobs, **how, advance=advance)

    def timed(job: Job) -> Value:
        started = time.monotonic()
        value = scorer(job)
        if each is not None:
            each(job, time.monotonic() - started)
        return value

    return executor.map(timed, jobs, **how)


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
            trial.write_failure(" ".join(str(problem).split()))
        except Exception as problem:  # a failing planner must not stop the others
            logger.error("%s failed", trial.label)
            failed = failure(problem)
            trial.write_failure(
                f"{failed.error}. This is a defect of the planner; the others are not affected. "
                f"Its traceback is in {trial.file}. Repeat the command once it is fixed.",
                failed.traceback,
            )
        else:
            trial.write(scores)

    def _scores(self, trial: Trial) -> TrialFile:
        study, row = self.study, trial.row
        run = self._trained(trial)
        trained = {"": run.info.training}  # results of trainings, by the end of their names
        if not trial.of_lengths:
            planner = row.apply(run.planner)
        else:
            runs = [self._trained(part) for part in trial.of_lengths]
            trained |= {f", T = {part.horizon}": part.info.training for part in runs}
            if not predicts_lengths(run.planner):
                raise ConfigError(f"{run.planner.name} predicts no number of steps.")
            parts = tuple(row.apply(part.planner) for part in runs)
            planner = PredictedLengthPlanner(run.planner, parts)
        windows, whole = study.scored_windows(row, trial.horizon)
        evaluation, plans = evaluate_planner(
            planner,
            windows,
            orders=study.orders,
            sampled_from=whole,
            progress=prefixed(self.progress, trial.label),
            **row.given,
        )
        queries = Queries.from_windows(windows, **row.given)
        tasks = planned_tasks(planner, queries, plans)
        totals = ScoredWindows(plans, windows, tasks, study.orders).sums_by(windows.video)
        totals = {name: pair for name, pair in totals.items() if pair[0].ndim == 1}
        _, of_videos = np.unique(windows.video, return_counts=True)
        description = planner.describe()
        return TrialFile(
            **{**dict(evaluation), **trial.place},
            key=trial.key,
            method=row.method,
            selection=study.selection,
            parameters=description.parameters,
            training={
                name + end: result for end, part in trained.items() for name, result in part.items()
            },
            success="".join("01"[right] for right in successes(plans, windows).astype(int)),
            videos=windows.video.tolist(),
            starts=windows.start.tolist(),
            lengths=None if trial.shortest is None else windows.lengths.tolist(),
            video_sums={name: sums.round(4).tolist() for name, (sums, _) in totals.items()},
            video_counts={
                name: counts.tolist()
                for name, (_, counts) in totals.items()
                if not np.array_equal(counts, of_videos)
            },
            weights=description.weights,
            tasks_searched=description.tasks,
        )

    def _trained(self, trial: Trial) -> Run:
        """The run of a trial, trained if there is none."""
        study, folder = self.study, trial.run_folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            return train_run(
                study.dataset,
                folder,
                config=trial.config,
                horizon=trial.horizon,
                shortest=trial.shortest,
                seed=trial.seed,
                selection=study.selection,
                device=pick_device(study.device),
                progress=prefixed(self.progress, trial.label),
                trainings=folder.parents[1] / "trainings",
                reuse=True,
                track=study.track,
                parts=(),
            )
        except RunError as problem:
            if str(folder) not in str(problem):
                raise
            raise RunError(
                f"{problem} Here: remove {folder} and repeat the command, which makes it again."
            ) from problem
