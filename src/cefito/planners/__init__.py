"""Planners: one method a file or folder, behind one protocol; evaluation sees nothing else."""

from cefito.planners.base import Abilities, BasePlanner, Description, Fitted, Planner, Queries
from cefito.planners.cefito.planner import CefitoPlanner
from cefito.planners.context import TrainingContext
from cefito.planners.mtid.planner import MtidPlanner
from cefito.planners.p3iv.planner import P3ivPlanner
from cefito.planners.pdpp.planner import PdppPlanner
from cefito.planners.pkg.planner import PkgPlanner
from cefito.planners.planllm.planner import PlanLlmPlanner
from cefito.planners.registry import METHODS, find_method
from cefito.planners.schema.planner import SchemaPlanner
from cefito.planners.shared.task_model import TaskModel
from cefito.planners.simple.frequent import FrequentPlanner
from cefito.planners.simple.nearest import NearestPlanner
from cefito.planners.viterbi.planner import ViterbiPlanner

__all__ = [
    "METHODS",
    "Abilities",
    "BasePlanner",
    "CefitoPlanner",
    "Description",
    "Fitted",
    "FrequentPlanner",
    "MtidPlanner",
    "NearestPlanner",
    "P3ivPlanner",
    "PdppPlanner",
    "PkgPlanner",
    "PlanLlmPlanner",
    "Planner",
    "Queries",
    "SchemaPlanner",
    "TaskModel",
    "TrainingContext",
    "ViterbiPlanner",
    "find_method",
]
