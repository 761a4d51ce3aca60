"""Jobs in actors of a Ray cluster: one on this machine that ends with the jobs, or a running one.

Files that jobs read and write must have the same paths on all machines of a cluster.
"""

from __future__ import annotations

import logging
import os
import pickle
import re
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from cefito.errors import ConfigError, RunError, explained, install_command
from cefito.executors.base import Executor, Failed, JobQueue, failure
from cefito.executors.processes import (
    THREAD_SETTINGS,
    CalledFunction,
    pickled_outcome,
    threads_each,
)

_STORE_BYTES = 128 << 20  # shared memory of a cluster on this machine; jobs and values are small
_ADDRESS = re.compile(r"auto|(ray://)?[^\s/]+:\d{1,5}")
_PATIENCE = 10.0  # seconds in which a cluster must answer


@dataclass(frozen=True)
class RayExecutor(Executor):
    """Runs jobs in actors of a Ray cluster, one core and so many GPUs each.

    If Ray is already connected in this process, that cluster is used and keeps running.
    """

    address: str | None = None  # of a running cluster; None for one that ends with the jobs
    gpus: int = 0

    def __post_init__(self) -> None:
        if find_spec("ray") is None:
            remedy = f"Run {install_command('ray')}, or choose 'processes'."
            raise ConfigError(f"Ray is not installed. {remedy}", setting="executor")
        if self.address is not None and not _ADDRESS.fullmatch(self.address):
            problem = f"address {self.address}: expected HOST:PORT of a Ray cluster, or auto"
            raise ConfigError(f"{problem}.", setting="address")

    def _run(self, function: Callable[[Any], Any], jobs: JobQueue[Any, Any], workers: int) -> None:
        pickled = bytes(ForkingPickler.dumps(function))
        with _connected(self.workers, self.address) as ray:
            if ray.cluster_resources().get("GPU", 0) < self.gpus:
                problem = "the cluster has no GPU, which the device cuda needs"
                raise ConfigError(f"{problem}. Choose another device.", setting="device")
            _run_in_actors(ray, pickled, jobs, workers, self.gpus)


class _Actor:
    """A worker of the cluster, in the folder and with the modules of its caller."""

    def __init__(self, function: bytes, threads: int, folder: str, path: list[str]) -> None:
        self.function, self.folder = CalledFunction(function, threads), folder
        sys.path.extend(place for place in path if place not in sys.path)

    def call(self, argument: bytes) -> bytes:
        """Return the pickled outcome of a job."""
        if not Path(self.folder).is_dir():
            lost = f"{self.folder}: is missing on a machine of the cluster. Use a shared folder"
            return bytes(ForkingPickler.dumps(Failed(lost)))
        os.chdir(self.folder)
        return pickled_outcome(self.function, argument)


def _run_in_actors(
    ray: Any, function: bytes, jobs: JobQueue[Any, Any], workers: int, gpus: int
) -> None:
    threads, stored = threads_each(workers), ray.put(function)
    made = ray.remote(_Actor).options(
        num_cpus=1,
        num_gpus=gpus,
        max_restarts=0,
        max_task_retries=0,
        runtime_env={"env_vars": dict.fromkeys(THREAD_SETTINGS, str(threads))},
    )
    running: dict[Any, tuple[Any, deque[int]]] = {}  # actor and its group, by the pending outcome

    def start_next(actor: Any, group: deque[int]) -> None:
        group, argument = jobs.next(group)
        if argument is None:
            ray.kill(actor)
        else:
            running[actor.call.remote(argument)] = (actor, group)

    def take(reference: Any) -> None:
        actor, group = running.pop(reference)
        try:
            outcome = pickle.loads(ray.get(reference))
        except ray.exceptions.RayActorError:
            lost = Failed("its worker ended, perhaps killed because memory ran out")
            jobs.note(group.popleft(), lost)
            if group:
                jobs.waiting.append(group)
            return
        except Exception as problem:
            outcome = failure(problem)
        jobs.note(group.popleft(), outcome)
        start_next(actor, group)

    try:
        while jobs.waiting or running:
            while jobs.waiting and len(running) < workers:
                start_next(made.remote(stored, threads, str(Path.cwd()), sys.path), deque())
            if running:
                for reference in ray.wait(list(running), num_returns=1)[0]:
                    take(reference)
    finally:
        for actor, _ in running.values():
            ray.kill(actor)


@contextmanager
def _connected(workers: int, address: str | None) -> Iterator[Any]:
    """Connect Ray; a cluster that was started here ends here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anyone
    import ray

    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"address": address or "local"}
    if address is None:
        options |= {"num_cpus": workers, "object_store_memory": _STORE_BYTES}
        options |= {"include_dashboard": False}
    remedy = (
        "Choose one of this version of Ray; for one that requires a token, set RAY_AUTH_MODE=token."
    )
    place, kinds = (
        f"Ray at {address or 'local'}",
        (OSError, OverflowError, RuntimeError, ValueError),
    )
    with explained(place, "no cluster answers", remedy, *kinds, error=RunError, setting="address"):
        if address is not None:
            _check_reachable(address)
        ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raise an OSError if nobody listens at HOST:PORT; Ray itself takes minutes to find out."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
