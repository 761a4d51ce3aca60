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
    "Answer": "inference.answer",
    "CefitoPlanner": "planners.cefito.planner",
    "Constraints": "search",
    "EnergyField": "field.energy",
    "Evaluation": "evaluation",
    "ExhaustiveSearch": "search",
    "FrequentPlanner": "planners.simple.frequent",
    "GuidedSearch": "search",
    "NearestPlanner": "planners.simple.nearest",
    "PlanningRun": "inference.planning_run",
    "Plans": "search",
    "PreparedDataset": "data",
    "Problem": "search",
    "Queries": "planners.queries",
    "Run": "runs.run",
    "RunConfig": "planners.methods",
    "Session": "inference.session",
    "TaskClassifier": "field.classifier",
    "Windows": "data",
    "cut_windows": "data",
    "evaluate_planner": "evaluation",
    "finetune": "inference.planning_run",
    "load_config": "planners.methods",
    "make_search": "search",
    "open_dataset": "data",
    "open_run": "inference.planning_run",
    "prepare": "data.readers.custom",
    "progress": "progress",  # a module, for cefito.progress.bar()
    "train_run": "inference.planning_run",
    "train_runs": "inference.planning_run",
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
    """Return a name, whose module is loaded when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_HOMES[name]}")
    return module if _HOMES[name] == name else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
