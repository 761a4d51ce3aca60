"""Scores of a run, kept in its folder, and of a method by cross-validation over videos."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from cefito.data.folds import By, are_grouped, fold_view, group_numbers, known_videos, split_folds
from cefito.data.prepared import PreparedDataset
from cefito.data.windows import Windows, cut_windows
from cefito.errors import ConfigError, RunError
from cefito.evaluation.metrics import Orders, training_orders
from cefito.evaluation.records import (
    Evaluation,
    FoldScores,
    RunEvaluation,
    TasksWithoutTraining,
    save_plans,
)
from cefito.evaluation.score import ScoredWindows, evaluate_planner, planned_tasks
from cefito.files import check_target, file_digest
from cefito.locks import locked
from cefito.parts.coverage import weights_digest
from cefito.parts.folder import window_sizes
from cefito.parts.matching import match_dataset
from cefito.planners.base import Description, Planner, Queries
from cefito.planners.base_planner import check_task_given
from cefito.planners.given import Given
from cefito.planners.methods import RunConfig, find_method
from cefito.progress import Progress, prefixed, silent
from cefito.runs.options import TrainOptions
from cefito.runs.run import Run
from cefito.runs.train import train_run
from cefito.runtime import return_memory
from cefito.search.problem import Plans
from cefito.search.settings import changed_settings
from cefito.verification.order import reached
from cefito.verification.order_files import read_orders

logger = logging.getLogger(__name__)

FOLD_SCORES = "folds.json"
"""File of the scores of a cross-validation, in the folder of its runs."""
SAMPLE_SEED = 0
"""Seed of samples of windows, so that samples of one size are the same everywhere."""
_SHORT = {"method": "search", "budget_gflop": "budget"}  # names of settings in file names


def evaluate_run(
    run: Run,
    *,
    split: str = "test",
    sample: int | None = None,
    dataset: Path | str | None = None,
    plans_file: Path | str | None = None,
    order: Path | str | None = None,
    progress: Progress = silent,
    **given: bool,
) -> tuple[RunEvaluation, Path | None]:
    """Score a run on a split of its data set or of another, with its planner's search.

    Args:
        run: An opened run.
        split: "train", "val" or "test".
        sample: Score a fixed random sample of this many windows.
        dataset: Any data set of the same kind of observations, by default the run's own; the scores
            list the content of another one that the run does not know.
        plans_file: Also save the plans of every window there, as `save_plans` does.
        order: File of orders, as `cefito graph` writes them: the order-tolerant success rate obeys
            them, of tasks that it names, instead of those that all training videos keep.
        progress: Shows progress.
        given: What the planner is given, by fields of `Given`.

    Returns:
        The scores, and the file in the run folder that keeps them; None for a shared run, and if it
        cannot be written.

    Raises:
        ConfigError: An invalid argument, or one that the planner makes no use of.
        RunError: The data set is gone, or the run cannot be used on it.
        DataError: The split has no windows.
    """
    known = Given.of(**given)
    plans_file = _checked(sample, plans_file)
    if known.oracle_task and known.stored_task:
        raise ConfigError(
            "is either the true task or the stored one. Leave one out.", setting="stored_task"
        )
    if known.task:
        check_task_given(run.planner)
    data = run.dataset(dataset)
    match = match_dataset(run, data)
    windows, other = match.windows(split)
    orders: Orders = training_orders(data, match.vocabulary)
    if order is not None:
        edges = read_orders(Path(order), run.taxonomy)
        orders = {**orders, **{task: reached(own) for task, own in edges.items()}}
    data = data.without_observations()  # frees memory: the windows have copies
    del match  # holds the observations, too
    chosen = windows.sample(sample, SAMPLE_SEED)
    return_memory()  # before planning needs more
    evaluation, plans = evaluate_planner(
        run.planner, chosen, orders=orders, sampled_from=len(windows), progress=progress, **given
    )
    tasks = planned_tasks(run.planner, Queries.from_windows(chosen, **given), plans)
    description = run.planner.describe()
    scores = _run_scores(
        evaluation,
        run.planner,
        data,
        ScoredWindows(plans, chosen, tasks, orders),
        plans_file,
        method=run.method,
        seed=run.info.seed,
        run=weights_digest(run.files) or None,
        preset=run.info.preset,
        selection=run.info.selection,
        weights=description.weights,
        tasks_without_training=_without_training(description, chosen),
        other_dataset=other,
    )
    path = run.folder / scores_name(
        run,
        split=split,
        given=known,
        sampled=len(chosen) if len(chosen) < len(windows) else None,
        other=None if other is None else data.fingerprint,
        order=None if order is None else file_digest(Path(order)),
    )
    if run.copy_of:
        return scores, None
    try:
        scores.write(path)
    except RunError as problem:
        logger.warning("the scores are not kept: %s", problem)
        return scores, None
    return scores, path


def _checked(sample: int | None, plans_file: Path | str | None) -> Path | None:
    """Refuse an empty sample and a file that plans cannot be saved to; return its path."""
    if sample is not None and sample < 1:
        raise ConfigError(f"sample of {sample} windows; expected at least 1.", setting="sample")
    if plans_file is None:
        return None
    check_target(Path(plans_file), (".jsonl",), "save_plans")
    return Path(plans_file)


def _run_scores(
    evaluation: Evaluation,
    planner: Planner,
    data: PreparedDataset,
    scored: ScoredWindows,
    plans_file: Path | None,
    **entries: Any,
) -> RunEvaluation:
    """Return the scores of a run, and save the plans of its windows if there is a file for them."""
    if plans_file is not None:
        save_plans(scored.window_plans(data), plans_file)
    description = planner.describe()
    return RunEvaluation(
        **dict(evaluation),
        **entries,
        fingerprint=data.fingerprint,
        actions_from=description.actions_from,
        search=description.search,
        parameters=description.parameters,
        intervals=scored.intervals(),
        per_task=scored.per_task(),
        plans_sha256=None if plans_file is None else file_digest(plans_file),
    )


def scores_name(
    run: Run,
    *,
    split: str,
    given: Given,
    sampled: int | None = None,
    other: str | None = None,
    order: str | None = None,
) -> str:
    """The name of the file that `evaluate_run` keeps scores in, with all that is not usual.

    Args:
        run: The run.
        split: Split of the windows.
        given: What the planner is told.
        sampled: Size of a sample of the windows; None for all.
        other: Fingerprint of a data set that is not the run's.
        order: Digest of a file of orders.
    """
    words = ["evaluation", split, *(name.replace("_", "-") for name in given.parts)]
    if run.chosen_steps is not None:
        words.append(f"steps-{run.steps}")
    if sampled is not None:
        words.append(f"sample-{sampled}")
    if other is not None:
        words.append(other[:12])
    if order is not None:
        words.append(f"order-{order[:12]}")
    for name, value in changed_search(run).items():
        shown = f"{value:.12g}" if isinstance(value, float) else value
        words.append(f"{_SHORT.get(name, name).replace('_', '-')}-{shown}")
    return f"{'-'.join(words)}.json"


def changed_search(run: Run) -> dict[str, Any]:
    """The settings of the search that differ from those the run was trained with."""
    search, trained = run.planner.describe().search, run.trained_search
    return {} if search is None or trained is None else changed_settings(search, trained)


def _without_training(description: Description, windows: Windows) -> TasksWithoutTraining | None:
    """Windows of tasks without training; None for planners that do not depend on training."""
    if description.actions_from is None:
        return None
    tasks = description.tasks_without_training
    return TasksWithoutTraining(
        tasks=tasks, windows=int(np.isin(windows.tasks, np.array(tasks, dtype=np.int64)).sum())
    )


def cross_validate(
    dataset: PreparedDataset,
    *,
    config: RunConfig,
    horizon: int,
    folds: int | None = None,
    by: By | None = None,
    shortest: int | None = None,
    all_videos: bool = False,
    out: Path | str | None = None,
    sample: int | None = None,
    plans_file: Path | str | None = None,
    options: TrainOptions | None = None,
    **given: bool,
) -> RunEvaluation:
    """Train a run for each fold on the videos of all others, and score all of them as one.

    Folds keep groups of videos together, if there are any, else they split the videos of each task
    evenly. Each training holds out a
    part of its videos for validation, as `split_videos` does. Every window is planned by the run
    that was trained without its video. Means are over all windows; intervals resample videos. The
    order-tolerant success rate takes the orders that all these videos keep.

    Args:
        dataset: An opened data set.
        config: The method and its settings.
        horizon: T.
        folds: Number of folds; by default as of `split_folds`.
        by: What folds keep together; groups by default, if there are any.
        shortest: As in `cefito.runs.train.train_run`.
        all_videos: Also use the videos of the test split.
        out: Folder that keeps the runs and the scores; finished runs in it are used again. By
            default nothing is kept.
        sample: Score a fixed random sample of this many windows.
        plans_file: Also save the plans of every window there, as `save_plans` does.
        options: Seed, of the folds as well, device and the rest; `TrainOptions` by default.
        given: What the planner is given, by fields of `Given`.

    Raises:
        ConfigError: An invalid argument, or one that the planner makes no use of.
        DataError: The videos give no windows.
        RunError: The folder holds something else.
    """
    plans_file, options = _checked(sample, plans_file), options or TrainOptions()
    seed, progress = options.seed, options.progress
    known = Given.of(**given)
    videos = known_videos(dataset, test=all_videos)
    parts = split_folds(dataset, videos, folds, seed=seed, by=by)
    folds = len(parts)
    grouped = by != "video" and are_grouped(group_numbers([dataset.videos[row] for row in videos]))
    sizes = window_sizes(find_method(config.method).planner, horizon, shortest)
    every = cut_windows(fold_view(dataset, train=(), held=videos), **sizes, split="test")
    windows = every.sample(sample, SAMPLE_SEED)
    plans: dict[int, Plans] = {}  # of each window, by row
    tasks: dict[int, int] = {}
    scored: list[FoldScores] = []
    seconds = 0.0
    with _folder(out) as place:
        for fold, held in enumerate(parts):
            rows = np.flatnonzero(np.isin(windows.video, held))
            if not len(rows):
                continue
            own, named = windows.subset(rows), {dataset.videos[video].group for video in held}
            run = train_run(
                fold_view(dataset, train=sorted(set(videos) - set(held)), held=held),
                place / f"fold-{fold + 1}-of-{folds}",
                config=config,
                horizon=horizon,
                shortest=shortest,
                options=options,
                progress=prefixed(progress, f"fold {fold + 1} of {folds}"),
                reuse=True,
                parts=(),
            )
            planner = run.planner
            if known.oracle_task:
                check_task_given(planner)
            evaluation, found = evaluate_planner(
                planner, own, orders=None, sampled_from=None, progress=progress, **given
            )
            predicted = planned_tasks(planner, Queries.from_windows(own, **given), found)
            plans |= zip(rows.tolist(), found, strict=True)
            if predicted is not None:
                tasks |= zip(rows.tolist(), predicted.tolist(), strict=True)
            seconds += evaluation.seconds_per_query * len(own)
            scored.append(
                FoldScores(
                    videos=tuple(dataset.videos[video].video_id for video in held),
                    groups=tuple(sorted(named - {""})) if grouped else None,
                    windows=len(own),
                    training=run.info.windows["train"],
                    metrics=evaluation.metrics,
                )
            )
        listed = [plans[row] for row in range(len(windows))]
        planned = np.array([tasks[row] for row in range(len(windows))]) if tasks else None
        pooled = ScoredWindows(listed, windows, planned, training_orders(dataset, videos=videos))
        evaluation = pooled.evaluation(
            planner.name, seconds=seconds, sampled_from=len(every), given=known
        )
        scores = _run_scores(
            evaluation.model_copy(update={"split": f"{folds} folds"}),
            planner,
            dataset,
            pooled,
            plans_file,
            method=config.method,
            seed=seed,
            preset=config.preset,
            selection="held-out",
            folds=scored,
        )
        scores.write(place / FOLD_SCORES)
    return scores


@contextmanager
def _folder(out: Path | str | None) -> Iterator[Path]:
    """Lock and yield the folder of the runs, one that is removed at the end by default."""
    if out is not None:
        with locked(Path(out), "a cross-validation"):
            yield Path(out)
        return
    with TemporaryDirectory(prefix="cefito-") as temporary:
        yield Path(temporary)
