"""Jobs of tests; a light module, since each new worker imports it."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

from cefito.executors import Done


class UnpicklableError(Exception):
    """An error that must not travel as it is."""

    def __reduce__(self):
        raise TypeError("cannot travel")


def values(outcomes):
    """The values of jobs that must all be done."""
    assert all(isinstance(outcome, Done) for outcome in outcomes), outcomes
    return [outcome.value for outcome in outcomes]


def double(number):
    return 2 * number


def gpus(seconds):
    """Wait, and tell which GPUs the worker may use."""
    time.sleep(seconds)
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def remove(folder):
    """Remove an empty folder."""
    Path(folder).rmdir()


def process(_):
    return os.getpid()


def fail(number):
    if number % 2:
        raise UnpicklableError(f"no such\n   number: {number}")
    return number


def nothing_but_a_type(_):
    raise ZeroDivisionError


def give(kind):
    """Something that cannot be sent back."""
    return threading.Lock() if kind == "lock" else lambda: kind


def interrupted(number):
    if number == 1:
        raise KeyboardInterrupt
    return number


def end(how):
    """End the process of the job, or not."""
    if how == "exit":
        sys.exit(3)
    if how == "exit at once":
        os._exit(4)
    if isinstance(how, int):
        os.kill(os.getpid(), how)
    return how


def end_at_once(*_):
    """End the process before it takes a job."""
    os._exit(4)


def note(given):
    """Leave a mark that a job was worked on, wait, leave one that it is done."""
    folder, number, seconds = given
    with (Path(folder) / "begun").open("a") as file:
        file.write(f"{number}\n")
    time.sleep(seconds)
    with (Path(folder) / "done").open("a") as file:
        file.write(f"{number}\n")
    return number


def doomed(seconds):
    """Die a little later, perhaps while the value is sent or the next job is begun."""
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return b"x" * 100_000


def sleep(place):
    """Write the id of this process into a file and sleep."""
    Path(place).write_text(str(os.getpid()))
    time.sleep(600)


def threads(with_torch):
    """Threads of libraries and of PyTorch."""
    used = None
    if with_torch:
        import torch

        used = torch.get_num_threads()
    return os.environ["OMP_NUM_THREADS"], used


class Counter:
    """Counts its calls in a worker; a copy begins anew."""

    def __init__(self):
        self.calls = 0

    def __call__(self, _):
        self.calls += 1
        return os.getpid(), self.calls

    def __reduce__(self):
        return Counter, ()


class Unknown:
    """A function that no worker can unpickle."""

    def __reduce__(self):
        return missing, ()

    def __call__(self, _):
        return None


def missing():
    if __name__ != "__main__" and os.environ.get("PARENT") != str(os.getpid()):
        raise ImportError("there is no such module here")
    return Unknown()
