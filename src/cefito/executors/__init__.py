"""Executors: map a function over arguments, in this process, in several, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable

from cefito.errors import ConfigError
from cefito.executors.base import Done, Executor, Failed, Killed, Outcome, SerialExecutor
from cefito.executors.processes import ProcessExecutor
from cefito.executors.ray import RayExecutor

__all__ = [
    "EXECUTORS",
    "Done",
    "Executor",
    "Failed",
    "Killed",
    "Outcome",
    "ProcessExecutor",
    "RayExecutor",
    "SerialExecutor",
    "make_executor",
]

EXECUTORS: dict[str, Callable[[int], Executor]] = {
    "serial": SerialExecutor,
    "processes": ProcessExecutor,
    "ray": RayExecutor,
}
"""Constructor of each executor, called with the number of workers."""


def make_executor(
    name: str | None = None, *, workers: int = 1, address: str | None = None, gpus: int = 0
) -> Executor:
    """Return an executor, by default "serial" for one worker and "processes" for several.

    Args:
        name: A key of `EXECUTORS`.
        workers: Number of jobs that run at the same time.
        address: Address of a running Ray cluster; makes "ray" the default.
        gpus: Number of GPUs that Ray reserves for each job; others share what there is.
    """
    if workers < 1:
        raise ConfigError(f"workers {workers}: expected at least 1.", setting="workers")
    if name is None:
        name = ("serial" if workers == 1 else "processes") if address is None else "ray"
    if name not in EXECUTORS:
        choices = ", ".join(EXECUTORS)
        raise ConfigError(f"no executor '{name}'; there are {choices}.", setting="executor")
    if name == "ray":
        return RayExecutor(workers, address, gpus)
    if address is not None:
        raise ConfigError(f"address {address}: only for the executor 'ray'.", setting="address")
    return EXECUTORS[name](workers)
