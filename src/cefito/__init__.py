"""Procedure planning in instructional videos by searching a contrastive energy field (CEFITO).

The names below are the public face; they are loaded when first used, so that `import cefito` stays
light.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cefito import progress as progress
    from cefito.data import PreparedDataset as PreparedDataset
    from cefito.data import Windows as Windows
    from cefito.data import cut_windows as cut_windows
    from cefito.data import open_dataset as open_dataset
    from cefito.data.readers.custom import prepare as prepare
    from cefito.evaluation import Evaluation as Evaluation
    from cefito.evaluation import evaluate_planner as evaluate_planner
    from cefito.field.classifier import TaskClassifier as TaskClassifier
    from cefito.field.energy import EnergyField as EnergyField
    from cefito.inference.answer import Answer as Answer
    from cefito.inference.session import Session as Session
    from cefito.inference.verification import VerifiedVideo as VerifiedVideo
    from cefito.inference.verification import graph as graph
    from cefito.inference.verification import verify as verify
    from cefito.inference.whole_videos import recognise as recognise
    from cefito.planners.cefito.planner import CefitoPlanner as CefitoPlanner
    from cefito.planners.methods import RunConfig as RunConfig
    from cefito.planners.methods import load_config as load_config
    from cefito.planners.queries import Queries as Queries
    from cefito.planners.simple.planners import FrequentPlanner as FrequentPlanner
    from cefito.planners.simple.planners import NearestPlanner as NearestPlanner
    from cefito.runs.finetune import finetune as finetune
    from cefito.runs.options import TrainOptions as TrainOptions
    from cefito.runs.run import PlanningRun as PlanningRun
    from cefito.runs.run import Run as Run
    from cefito.runs.run import follow as follow
    from cefito.runs.run import open_run as open_run
    from cefito.runs.train import train_run as train_run
    from cefito.runs.train import train_runs as train_runs
    from cefito.search import Constraints as Constraints
    from cefito.search import ExhaustiveSearch as ExhaustiveSearch
    from cefito.search import GuidedSearch as GuidedSearch
    from cefito.search import Plans as Plans
    from cefito.search import Problem as Problem
    from cefito.search import make_search as make_search
    from cefito.tracks import TimedStep as TimedStep
    from cefito.tracks import Track as Track

__version__ = version("cefito")

_NAMES = {
    "data": ("PreparedDataset", "Windows", "cut_windows", "open_dataset"),
    "data.readers.custom": ("prepare",),
    "evaluation": ("Evaluation", "evaluate_planner"),
    "field.classifier": ("TaskClassifier",),
    "field.energy": ("EnergyField",),
    "inference.answer": ("Answer",),
    "inference.session": ("Session",),
    "inference.verification": ("VerifiedVideo", "graph", "verify"),
    "inference.whole_videos": ("recognise",),
    "planners.cefito.planner": ("CefitoPlanner",),
    "planners.methods": ("RunConfig", "load_config"),
    "planners.queries": ("Queries",),
    "planners.simple.planners": ("FrequentPlanner", "NearestPlanner"),
    "progress": ("progress",),  # the module itself, for cefito.progress.bar()
    "runs.finetune": ("finetune",),
    "runs.options": ("TrainOptions",),
    "runs.run": ("PlanningRun", "Run", "follow", "open_run"),
    "runs.train": ("train_run", "train_runs"),
    "search": (
        "Constraints",
        "ExhaustiveSearch",
        "GuidedSearch",
        "Plans",
        "Problem",
        "make_search",
    ),
    "tracks": ("TimedStep", "Track"),
}
"""Public names by the modules that have them."""
_HOMES = {name: home for home, names in _NAMES.items() for name in names}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Return a name, whose module is loaded when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_HOMES[name]}")
    return module if _HOMES[name] == name else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
