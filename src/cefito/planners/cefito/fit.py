"""Training of all parts of a CEFITO planner, and of the weights of its objective."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from cefito.data.action_space import ActionSpace
from cefito.data.taxonomy import Taxonomy
from cefito.data.windows import Windows
from cefito.field.fields import incremental_field
from cefito.planners.cefito.field_fit import fit_field
from cefito.planners.cefito.fitting import fit_objective
from cefito.planners.cefito.settings import CefitoSettings
from cefito.planners.context import TrainingContext
from cefito.planners.crf.model import ChainModel
from cefito.planners.shared.task_model import TaskModel
from cefito.search.prior import NGramPrior
from cefito.training.negatives import check_negatives
from cefito.training.trainer import TrainingResult

__all__ = ["fit_parts", "warn_fallback"]

logger = logging.getLogger(__name__)


def fit_parts(
    train: Windows,
    val: Windows,
    space: ActionSpace,
    *,
    start: Mapping[str, Any],  # parts of the planner to begin with, if any
    settings: CefitoSettings,
    seed: int,
    context: TrainingContext,
) -> tuple[dict[str, Any], dict[str, TrainingResult]]:
    """Return the parts of a planner by the names of its attributes, and their trainings."""
    action_count = len(train.taxonomy.actions)
    check_negatives(  # before anything is trained
        settings.training.negatives,
        dict(enumerate(space.actions)),
        action_count=action_count,
        horizon=train.horizon,
    )
    trainings: dict[str, TrainingResult] = {}
    shared: dict[str, Any] = {"settings": settings, "seed": seed, "context": context}
    task_model = None
    if settings.search.task_model == "classifier":
        task_model, trainings[TaskModel.title] = TaskModel.fit(
            train, val, start=start.get("task_model"), **shared
        )
    chain, chain_results = ChainModel.fit(
        train, val, space=space, start=start.get("chain"), **shared
    )
    known = start["incremental"].field if start else None
    field, field_results = fit_field(train, val, space=space, start=known, **shared)
    prior = NGramPrior.tuned(
        train.actions,
        train.tasks,
        action_count=action_count,
        actions=space.actions,
        val_sequences=val.actions,
        val_tasks=val.tasks,
        known=start.get("prior"),
    )
    incremental = incremental_field(field)
    windows, progress = settings.search.fitting_windows, context.progress
    fitted = fit_objective(chain, incremental, prior, val, windows=windows, progress=progress)
    parts = {
        "settings": settings,
        "taxonomy": train.taxonomy,
        "space": space,
        "incremental": incremental,
        "prior": prior,
        "fitted": fitted,
        "chain": chain,
        "task_model": task_model,
    }
    return parts, {**trainings, **chain_results, **field_results}


def warn_fallback(space: ActionSpace, taxonomy: Taxonomy) -> None:
    """Name the tasks without training windows."""
    if not space.fallback:
        return
    names = [f"{task} ('{taxonomy.tasks[task].name}')" for task in space.fallback[:3]]
    logger.warning(
        "tasks without training windows, which may use all actions that the taxonomy lists for "
        "them: %d, %s%s",
        len(space.fallback),
        ", ".join(names),
        ", …" if len(space.fallback) > len(names) else "",
    )
