"""Executors: map a function over arguments, in this process, in several, or elsewhere."""

from cefito.executors.base import Done, Executor, Failed, Killed, Outcome
from cefito.executors.registry import EXECUTORS, make_executor

__all__ = ["EXECUTORS", "Done", "Executor", "Failed", "Killed", "Outcome", "make_executor"]
