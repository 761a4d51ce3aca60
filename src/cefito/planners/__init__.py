"""Planners: one method a file, behind one protocol; evaluation sees nothing else."""

from cefito.planners.base import Planner, Queries
from cefito.planners.cefito import CefitoPlanner
from cefito.planners.frequent import FrequentPlanner
from cefito.planners.nearest import NearestPlanner
from cefito.planners.task_model import TaskModel

__all__ = ["CefitoPlanner", "FrequentPlanner", "NearestPlanner", "Planner", "Queries", "TaskModel"]
