"""Planners: one method a file, behind one protocol; evaluation sees nothing else."""

from cefito.planners.base import Planner, Queries
from cefito.planners.cefito import CefitoPlanner
from cefito.planners.frequent import FrequentPlanner
from cefito.planners.methods import METHODS, make_planner
from cefito.planners.nearest import NearestPlanner
from cefito.planners.pdpp import PdppPlanner
from cefito.planners.pkg import PkgPlanner
from cefito.planners.task_model import TaskModel
from cefito.planners.trained import TrainingContext
from cefito.planners.viterbi import ViterbiPlanner

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
