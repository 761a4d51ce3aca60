"""Procedure planning in instructional videos by searching a contrastive energy field (CEFITO).

The names below are the public face; they are loaded when first used, so that `import cefito` stays
light.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cefito import progress
    from cefito.data import PreparedDataset, Windows, cut_windows, open_dataset
    from cefito.data.readers.custom import prepare
    from cefito.evaluation import Evaluation, evaluate_planner
    from cefito.field.classifier import TaskClassifier
    from cefito.field.energy import EnergyField
    from cefito.inference.answer import Answer
    from cefito.inference.planning_run import (
        PlanningRun,
        finetune,
        open_run,
        train_run,
        train_runs,
    )
    from cefito.inference.session import Session
    from cefito.planners.cefito.planner import CefitoPlanner
    from cefito.planners.methods import RunConfig, load_config
    from cefito.planners.queries import Queries
    from cefito.planners.simple.frequent import FrequentPlanner
    from cefito.planners.simple.nearest import NearestPlanner
    from cefito.runs.run import Run
    from cefito.search import (
        Constraints,
        ExhaustiveSearch,
        GuidedSearch,
        Plans,
        Problem,
        make_search,
    )

__version__ = version("cefito")

_HOMES = {
    "Answer": "cefito.inference.answer",
    "CefitoPlanner": "cefito.planners.cefito.planner",
    "Constraints": "cefito.search",
    "EnergyField": "cefito.field.energy",
    "Evaluation": "cefito.evaluation",
    "ExhaustiveSearch": "cefito.search",
    "FrequentPlanner": "cefito.planners.simple.frequent",
    "GuidedSearch": "cefito.search",
    "NearestPlanner": "cefito.planners.simple.nearest",
    "PlanningRun": "cefito.inference.planning_run",
    "Plans": "cefito.search",
    "PreparedDataset": "cefito.data",
    "Problem": "cefito.search",
    "Queries": "cefito.planners.queries",
    "Run": "cefito.runs.run",
    "RunConfig": "cefito.planners.methods",
    "Session": "cefito.inference.session",
    "TaskClassifier": "cefito.field.classifier",
    "Windows": "cefito.data",
    "cut_windows": "cefito.data",
    "evaluate_planner": "cefito.evaluation",
    "finetune": "cefito.inference.planning_run",
    "load_config": "cefito.planners.methods",
    "make_search": "cefito.search",
    "open_dataset": "cefito.data",
    "open_run": "cefito.inference.planning_run",
    "prepare": "cefito.data.readers.custom",
    "train_run": "cefito.inference.planning_run",
    "train_runs": "cefito.inference.planning_run",
}

__all__ = [
    "Answer",
    "CefitoPlanner",
    "Constraints",
    "EnergyField",
    "Evaluation",
    "ExhaustiveSearch",
    "FrequentPlanner",
    "GuidedSearch",
    "NearestPlanner",
    "PlanningRun",
    "Plans",
    "PreparedDataset",
    "Problem",
    "Queries",
    "Run",
    "RunConfig",
    "Session",
    "TaskClassifier",
    "Windows",
    "cut_windows",
    "evaluate_planner",
    "finetune",
    "load_config",
    "make_search",
    "open_dataset",
    "open_run",
    "prepare",
    "progress",
    "train_run",
    "train_runs",
]


def __getattr__(name: str) -> Any:
    if name == "progress":  # a module, for cefito.progress.bar()
        return import_module("cefito.progress")
    if name not in _HOMES:
        raise AttributeError(f"module 'cefito' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
