"""Every executor by its name. Whoever adds one registers it here, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

from cefito.errors import ConfigError
from cefito.executors.base import Executor
from cefito.executors.processes import ProcessExecutor
from cefito.executors.serial import SerialExecutor

__all__ = ["EXECUTORS", "make_executor"]

EXECUTORS: dict[str, Callable[[int], Executor]] = {
    "serial": SerialExecutor,
    "processes": ProcessExecutor,
}
"""What makes each executor, given how many workers it may have. New ones are added here only."""


def make_executor(name: str | None = None, *, workers: int = 1) -> Executor:
    """An executor by its name.

    Args:
        name: Its name; by default "serial" for one worker and "processes" for more.
        workers: How many jobs may be worked on at the same time.

    Raises:
        ConfigError: No such executor, or no worker.
    """
    if workers < 1:
        raise ConfigError(f"workers {workers}: expected at least 1.", setting="workers")
    if name is None:
        name = "serial" if workers == 1 else "processes"
    if name not in EXECUTORS:
        raise ConfigError(
            f"no executor '{name}'; there are {', '.join(EXECUTORS)}.", setting="executor"
        )
    return EXECUTORS[name](workers)
