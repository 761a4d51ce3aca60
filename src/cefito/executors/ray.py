"""Jobs in actors of a Ray cluster: of this machine, ending with the jobs, or at an address.

An actor keeps its copy of the function, so that what that has loaded is there for its next job.
Whatever jobs read and write by paths must lie where every machine of a cluster sees it.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, ClassVar, Generic

from cefito.errors import ConfigError, RunError
from cefito.executors.base import (
    Argument,
    Failed,
    Outcome,
    Value,
    failure,
    ignore,
    queues,
)
from cefito.executors.processes import threads_each
from cefito.executors.worker import THREAD_SETTINGS, CalledFunction, pickled_outcome

__all__ = ["RayExecutor"]

STORE_BYTES = 128 << 20
"""Shared memory that a cluster of this machine may take: jobs and their values are small."""


_PATIENCE = 10.0  # seconds that a cluster has to answer at all


@dataclass(frozen=True)
class RayExecutor:
    """Works on jobs in actors of a Ray cluster, one core each.

    Where Ray is connected already in this process, that cluster is used and stays as it is.

    Attributes:
        workers: How many actors.
        address: Of a cluster that runs, as `ray.init` takes it; None for one of this machine, which
            is begun for the jobs and ends with them.

    Raises:
        ConfigError: Ray is not installed.
    """

    in_process: ClassVar[bool] = False
    workers: int = 1
    address: str | None = None

    def __post_init__(self) -> None:
        if find_spec("ray") is None:
            raise ConfigError(
                "the executor 'ray' needs Ray, which is not installed. Run pip install "
                "cefito[ray], or choose 'processes'.",
                setting="executor",
            )

    def map(
        self,
        function: Callable[[Argument], Value],
        arguments: Sequence[Argument],
        *,
        groups: Sequence[Hashable] | None = None,
        advance: Callable[[float], None] = ignore,
    ) -> list[Outcome[Value]]:
        """Call a function with every argument; see `Executor.map`.

        Raises:
            RunError: There is no cluster at the address.
            Exception: The function cannot be pickled.
        """
        if not arguments:
            return []
        pickled = bytes(ForkingPickler.dumps(function))
        with _connected(self.workers, self.address) as ray:
            mapping: _Mapping[Argument, Value] = _Mapping(ray, pickled, arguments, groups, advance)
            return mapping.run(self.workers)


class _Actor:
    """What lives in a worker of the cluster: a function, called in the folder of its caller.

    Modules are found where the caller finds them, as in processes that it starts.
    """

    def __init__(self, pickled: bytes, threads: int, folder: str, path: list[str]) -> None:
        self.function, self.folder = CalledFunction(pickled, threads), folder
        sys.path.extend(place for place in path if place not in sys.path)

    def call(self, argument: bytes) -> bytes:
        """The pickled outcome of a job."""
        if not Path(self.folder).is_dir():
            return bytes(
                ForkingPickler.dumps(
                    Failed(
                        f"a machine of the cluster has no folder {self.folder}. Work where all of "
                        "its machines see the same files"
                    )
                )
            )
        os.chdir(self.folder)
        return pickled_outcome(self.function, argument)


class _Mapping(Generic[Argument, Value]):
    """One call of `map`: which jobs wait, which are worked on, and what became of the others."""

    def __init__(
        self,
        ray: Any,
        function: bytes,
        arguments: Sequence[Argument],
        groups: Sequence[Hashable] | None,
        advance: Callable[[float], None],
    ) -> None:
        self.ray, self.arguments, self.advance = ray, arguments, advance
        self.outcomes: dict[int, Outcome[Value]] = {}
        self.waiting = queues(len(arguments), groups)
        self.function = ray.put(function)
        self.running: dict[Any, tuple[Any, deque[int]]] = {}  # by what will hold the outcome

    def run(self, most: int) -> list[Outcome[Value]]:
        """Work on all jobs in at most so many actors."""
        most = max(1, min(most, len(self.waiting)))
        threads, here = threads_each(most), str(Path.cwd())
        made = self.ray.remote(_Actor).options(
            num_cpus=1,
            max_restarts=0,
            max_task_retries=0,
            runtime_env={"env_vars": dict.fromkeys(THREAD_SETTINGS, str(threads))},
        )
        try:
            while self.waiting or self.running:
                while self.waiting and len(self.running) < most:
                    self._next(made.remote(self.function, threads, here, sys.path), deque())
                done, _ = self.ray.wait(list(self.running), num_returns=1)
                for reference in done:
                    self._take(reference)
        finally:
            for actor, _ in self.running.values():
                self.ray.kill(actor)
        return [self.outcomes[job] for job in range(len(self.arguments))]

    def _next(self, actor: Any, queue: deque[int]) -> None:
        """Give an actor its next job; one for which there is none is no longer needed."""
        while queue or self.waiting:
            queue = queue or self.waiting.popleft()
            try:
                argument = bytes(ForkingPickler.dumps(self.arguments[queue[0]]))
            except Exception as problem:
                self._note(queue.popleft(), failure(problem))
            else:
                self.running[actor.call.remote(argument)] = (actor, queue)
                return
        self.ray.kill(actor)

    def _take(self, reference: Any) -> None:
        """Note what became of a job, and give its actor the next one."""
        actor, queue = self.running.pop(reference)
        lost = False
        try:
            outcome = pickle.loads(self.ray.get(reference))
        except self.ray.exceptions.RayActorError:
            outcome, lost = Failed("its worker ended, perhaps killed for want of memory"), True
        except Exception as problem:
            outcome = failure(problem)
        self._note(queue.popleft(), outcome)
        if not lost:
            self._next(actor, queue)
        elif queue:
            self.waiting.append(queue)

    def _note(self, job: int, outcome: Outcome[Value]) -> None:
        assert job not in self.outcomes
        self.outcomes[job] = outcome
        self.advance(1)


@contextmanager
def _connected(workers: int, address: str | None) -> Iterator[Any]:
    """Ray, connected; what was begun here ends here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anyone
    import ray

    if ray.is_initialized():
        yield ray
        return
    asked: dict[str, Any] = {"address": address}
    if address is None:
        asked = {
            "address": "local",
            "num_cpus": workers,
            "object_store_memory": STORE_BYTES,
            "include_dashboard": False,
        }
    try:
        if address is not None:
            _reach(address)
        ray.init(**asked, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, OSError, RuntimeError, ValueError) as problem:
        if address is None:
            raise
        raise RunError(
            f"no Ray cluster answers at {address} ({_line(problem)}). Give the address of one that "
            "runs, with this version of Ray, or none to work on this machine; one that asks for a "
            "token needs RAY_AUTH_MODE=token in the environment.",
            setting="address",
        ) from problem
    try:
        yield ray
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """See that someone listens at HOST:PORT, for which Ray itself takes minutes.

    Raises:
        OSError: Nobody does.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE):
            return


def _line(problem: Exception) -> str:
    return " ".join(str(problem).split())[:200].rstrip(".")
