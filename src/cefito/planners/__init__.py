"""Planners: one method a file, behind one protocol; evaluation sees nothing else."""

from cefito.planners.base import Planner, Queries
from cefito.planners.cefito.planner import CefitoPlanner
from cefito.planners.frequent import FrequentPlanner
from cefito.planners.nearest import NearestPlanner
from cefito.planners.networks import TrainingContext
from cefito.planners.pdpp.planner import PdppPlanner
from cefito.planners.pkg.planner import PkgPlanner
from cefito.planners.registry import METHODS, make_planner
from cefito.planners.task_model import TaskModel
from cefito.planners.viterbi.planner import ViterbiPlanner

__all__ = [
    "METHODS",
    "CefitoPlanner",
    "FrequentPlanner",
    "NearestPlanner",
    "PdppPlanner",
    "PkgPlanner",
    "Planner",
    "Queries",
    "TaskModel",
    "TrainingContext",
    "ViterbiPlanner",
    "make_planner",
]
