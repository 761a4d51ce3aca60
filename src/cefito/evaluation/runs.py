"""Scoring a run folder, which then contains the scores and, on request, the plans."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cefito.data.windows import Windows
from cefito.errors import ConfigError, RunError
from cefito.evaluation.calibration import answered, best_probabilities
from cefito.evaluation.orders import training_orders
from cefito.evaluation.plan_files import save_plans, window_plans
from cefito.evaluation.records import Answered, RunEvaluation, TasksWithoutTraining
from cefito.evaluation.score import (
    evaluate_planner,
    planned_tasks,
    successes,
    task_scores,
    video_intervals,
)
from cefito.files import file_digest
from cefito.inference.plan_tables import check_plan_file
from cefito.planners.base import Description, Queries
from cefito.planners.checks import check_min_probability, check_task_given
from cefito.planners.given import Given
from cefito.progress import Progress, silent
from cefito.runs.matching import match_dataset
from cefito.runs.run import Run
from cefito.runtime import return_memory
from cefito.search.problem import Plans
from cefito.search.settings import changed_settings

logger = logging.getLogger(__name__)

SAMPLE_SEED = 0
"""Seed of samples of windows, so that samples of one size are the same everywhere."""
_SHORT = {"method": "search", "budget_gflop": "budget"}  # names of settings in file names


def evaluate_run(
    run: Run,
    *,
    split: str = "test",
    sample: int | None = None,
    min_probability: float | None = None,
    dataset: Path | str | None = None,
    plans_file: Path | str | None = None,
    progress: Progress = silent,
    **given: bool,
) -> tuple[RunEvaluation, Path | None]:
    """Score a run on a split of its data set or of another, with its planner's search.

    Args:
        run: An opened run.
        split: "train", "val" or "test".
        sample: Score a fixed random sample of this many windows.
        min_probability: Also give coverage and success if only best plans of at least this
            probability are answered.
        dataset: Any data set of the same kind of observations, by default the run's own; the scores
            list the content of another one that the run does not know.
        plans_file: Also save the plans of every window there, as `save_plans` does.
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
    dataset, known = None if dataset is None else Path(dataset), Given.of(**given)
    if sample is not None and sample < 1:
        raise ConfigError(f"sample of {sample} windows; expected at least 1.", setting="sample")
    if min_probability is not None:
        check_min_probability(run.planner, min_probability)
    if known.oracle_task and known.stored_task:
        raise ConfigError(
            "is either the true task or the stored one. Leave one out.", setting="stored_task"
        )
    if known.task:
        check_task_given(run.planner)
    if plans_file is not None:
        plans_file = Path(plans_file)
        check_plan_file(plans_file, "save_plans")
    data = run.dataset(dataset)
    match = match_dataset(run, data)
    windows, other = match.windows(split)
    orders = training_orders(data, match.vocabulary)
    data = data.without_observations()  # frees memory: the windows have copies
    chosen = windows.sample(sample, SAMPLE_SEED)
    return_memory()  # before planning needs more
    evaluation, plans = evaluate_planner(
        run.planner,
        chosen,
        orders=orders,
        sampled_from=len(windows),
        progress=progress,
        **given,
    )
    tasks = planned_tasks(run.planner, Queries.from_windows(chosen, **given), plans)
    if plans_file is not None:
        save_plans(window_plans(data, chosen, plans, tasks=tasks), plans_file)
    description = run.planner.describe()
    scores = RunEvaluation(
        **dict(evaluation),
        fingerprint=data.fingerprint,
        method=run.method,
        seed=run.info.seed,
        preset=run.info.preset,
        selection=run.info.selection,
        actions_from=description.actions_from,
        search=description.search,
        weights=description.weights,
        tasks_without_training=_without_training(description, chosen),
        answered=_answered(plans, chosen, min_probability),
        parameters=description.parameters,
        intervals=video_intervals(plans, chosen, tasks=tasks, orders=orders),
        per_task=task_scores(plans, chosen, tasks=tasks, orders=orders),
        other_dataset=other,
        plans_sha256=None if plans_file is None else file_digest(plans_file),
    )
    path = run.folder / scores_name(
        run,
        split=split,
        given=known,
        sampled=len(chosen) if len(chosen) < len(windows) else None,
        other=None if other is None else data.fingerprint,
        min_probability=min_probability,
    )
    if run.copy_of:
        return scores, None
    try:
        scores.write(path)
    except RunError as problem:
        logger.warning("the scores are not kept: %s", problem)
        return scores, None
    return scores, path


def scores_name(
    run: Run,
    *,
    split: str,
    given: Given,
    sampled: int | None = None,
    other: str | None = None,
    min_probability: float | None = None,
) -> str:
    """The name of the file that `evaluate_run` keeps scores in, with all that is not usual.

    `sampled` is the size of a sample, `other` the fingerprint of another data set.
    """
    words = ["evaluation", split, *(name.replace("_", "-") for name in given.parts)]
    if run.chosen_steps is not None:
        words.append(f"steps-{run.steps}")
    if sampled is not None:
        words.append(f"sample-{sampled}")
    if other is not None:
        words.append(other[:12])
    for name, value in changed_search(run).items():
        words.append(f"{_SHORT.get(name, name).replace('_', '-')}-{_plain(value)}")
    if min_probability is not None:
        words.append(f"min-probability-{_plain(min_probability)}")
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


def _answered(
    plans: Sequence[Plans], windows: Windows, min_probability: float | None
) -> Answered | None:
    probabilities = best_probabilities(plans)
    if min_probability is None or probabilities is None:
        return None
    return answered(probabilities, successes(plans, windows), min_probability=min_probability)


def _plain(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
