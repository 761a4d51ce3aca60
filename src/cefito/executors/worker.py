"""A worker process: jobs come in and outcomes go out through one pipe.

It ends when its pipe is closed or its parent has ended. Only the parent handles interrupts.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from typing import Any

from cefito.executors.base import attempt, failure

_READY = b"ready"
THREAD_SETTINGS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Environment variables for the number of threads of libraries."""


def work(
    connection: Connection[Any, Any],
    threads: int,
    outcome: Callable[[CalledFunction, bytes], bytes] | None = None,
) -> None:
    """Run jobs until there are no more; the pipe gives the pickled function, then arguments.

    `outcome` calls the function with an argument and returns what is sent, by default pickled.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for setting in THREAD_SETTINGS:  # libraries read them when they are loaded
        os.environ[setting] = str(threads)
    try:
        connection.send_bytes(_READY)
        function = CalledFunction(connection.recv_bytes(), threads)
        while True:
            connection.send_bytes((outcome or pickled_outcome)(function, connection.recv_bytes()))
    except (EOFError, OSError):  # the parent closed the pipe
        return


class CalledFunction:
    """A function that is unpickled by its first call, which may fail like a job."""

    def __init__(self, pickled: bytes, threads: int) -> None:
        self.pickled, self.threads = pickled, threads
        self.function: Any = None

    def __call__(self, argument: bytes) -> Any:
        """Call the function with a pickled argument."""
        if self.function is None:
            function = pickle.loads(self.pickled)
            if "torch" in sys.modules:  # perhaps loaded before the environment was set
                sys.modules["torch"].set_num_threads(self.threads)
            self.function = function
        return self.function(pickle.loads(argument))


def pickled_outcome(function: CalledFunction, argument: bytes) -> bytes:
    """Call a function and pickle the outcome; a value that cannot be pickled is a failure."""
    try:
        return bytes(ForkingPickler.dumps(attempt(function, argument)))
    except Exception as problem:
        return bytes(ForkingPickler.dumps(failure(problem)))


def _end_with_parent() -> None:
    """End this process at once when its parent has ended."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
