"""Every executor by its name. Whoever adds one registers it here, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

from cefito.errors import ConfigError
from cefito.executors.base import Executor
from cefito.executors.processes import ProcessExecutor
from cefito.executors.ray import RayExecutor
from cefito.executors.serial import SerialExecutor

__all__ = ["EXECUTORS", "make_executor"]

EXECUTORS: dict[str, Callable[[int], Executor]] = {
    "serial": SerialExecutor,
    "processes": ProcessExecutor,
    "ray": RayExecutor,
}
"""What makes each executor, given how many workers it may have. New ones are added here only."""


def make_executor(
    name: str | None = None, *, workers: int = 1, address: str | None = None
) -> Executor:
    """An executor by its name.

    Args:
        name: Its name; by default "serial" for one worker and "processes" for more, "ray" where
            there is an address.
        workers: How many jobs may be worked on at the same time.
        address: Of a Ray cluster that runs, for "ray".

    Raises:
        ConfigError: No such executor, one that is not installed, no worker, or an address for an
            executor that has none.
    """
    if workers < 1:
        raise ConfigError(f"workers {workers}: expected at least 1.", setting="workers")
    if name is None:
        name = ("serial" if workers == 1 else "processes") if address is None else "ray"
    if name not in EXECUTORS:
        raise ConfigError(
            f"no executor '{name}'; there are {', '.join(EXECUTORS)}.", setting="executor"
        )
    if address is None:
        return EXECUTORS[name](workers)
    if name != "ray":
        raise ConfigError(
            f"address {address}: the executor '{name}' has none. Choose 'ray', or leave it out.",
            setting="address",
        )
    return RayExecutor(workers, address)
