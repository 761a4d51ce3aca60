"""Processes that are killed, values that cannot be pickled, and the end of the parent."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from multiprocessing import active_children
from pathlib import Path

import pytest

from cefito.executors import Done, Failed, Killed, make_executor
from cefito.executors.processes import threads_each
from executors import jobs
from executors.jobs import values


@pytest.fixture
def processes():
    return make_executor("processes", workers=2)


def test_jobs_run_in_other_processes(processes):
    pids = values(processes.map(jobs.process, range(20)))
    assert os.getpid() not in pids
    assert len(set(pids)) <= 2
    assert active_children() == []


def test_a_worker_keeps_its_copy_of_the_function(processes):
    kept = values(processes.map(jobs.Counter(), range(12)))
    for pid in {pid for pid, _ in kept}:
        calls = [calls for each, calls in kept if each == pid]
        assert sorted(calls) == list(range(1, len(calls) + 1))


def test_groups_stay_on_one_worker(processes):
    kept = values(processes.map(jobs.process, range(12), groups=[0] * 6 + [1] * 6))
    assert len(set(kept[:6])) == len(set(kept[6:])) == 1


@pytest.mark.nightly
def test_workers_share_the_cores(monkeypatch):
    import torch

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    two, nine = (make_executor("processes", workers=workers) for workers in (2, 9))
    assert values(two.map(jobs.threads, [False, False])) == [("3", None)] * 2
    assert values(nine.map(jobs.threads, [False])) == [("6", None)]  # no more workers than jobs
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert values(nine.map(jobs.threads, [True])) == [("1", 1)]


@pytest.mark.parametrize(
    ("setting", "cores", "workers", "each"),
    [
        ("2", 8, 4, 2),  # the setting of the user
        ("8", 8, 4, 2),  # limited by the cores
        ("4", 2, 3, 1),
        ("many", 8, 4, 3),  # not a number: the threads of PyTorch
        (None, 8, 4, 3),  # twelve threads are shared out
        (None, 8, 40, 1),
    ],
)
def test_threads_of_a_worker(setting, cores, workers, each, monkeypatch):
    import torch

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if setting is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", setting)
    threads = int(setting) if setting and setting.isdecimal() else 12
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr("cefito.executors.processes.cores", lambda: cores)
    assert threads_each(workers) == each


def test_failures_of_pickling(processes, monkeypatch):
    monkeypatch.setenv("PARENT", str(os.getpid()))
    outcomes = processes.map(jobs.give, ["lock", "function"])
    assert [type(outcome) for outcome in outcomes] == [Failed, Failed]
    assert "pickle" in outcomes[0].error
    outcomes = processes.map(jobs.double, [1, lambda: None, 2, lambda: None], groups=[0, 0, 1, 2])
    assert [type(outcome) for outcome in outcomes] == [Done, Failed, Done, Failed]
    outcomes = processes.map(jobs.Unknown(), [1, 2, 3])
    assert {outcome.error for outcome in outcomes} == {"ImportError: there is no such module here"}
    with pytest.raises(Exception, match=r"pickle|local"):
        processes.map(lambda number: number, [1])
    assert active_children() == []


def test_killed_and_ended_jobs_leave_the_others(processes):
    how = ["a", int(signal.SIGKILL), "exit", "b", "exit at once", int(signal.SIGTERM), "c"]
    exits = [Failed(f"its process ended with exit code {code}") for code in (3, 4)]
    expected = [Done("a"), Killed(9), exits[0], Done("b"), exits[1], Killed(15), Done("c")]
    steps = []
    assert processes.map(jobs.end, how, groups=[0] * 7, advance=steps.append) == expected
    assert steps == [1] * 7


def test_workers_that_cannot_begin(processes, monkeypatch):
    monkeypatch.setattr("cefito.executors.processes.work", jobs.end_at_once)
    outcomes = processes.map(jobs.double, range(4), groups=[0, 0, 1, 1])
    assert outcomes == [Failed("its process could not begin (exit code 4)")] * 4


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_workers_are_killed_at_any_moment(seed, processes, tmp_path):
    """Every job is accounted for once, whenever its worker is killed."""
    chance, stop, kills = random.Random(seed), threading.Event(), []

    def kill():
        while not stop.is_set() and len(kills) < 5:
            time.sleep(chance.uniform(0, 0.1))
            children = active_children()
            if children:
                victim = chance.choice(children)
                assert victim.pid is not None
                os.kill(victim.pid, signal.SIGKILL)
                kills.append(victim.pid)

    killer = threading.Thread(target=kill)
    count = 120
    steps = []
    killer.start()
    try:
        outcomes = processes.map(
            jobs.note,
            [(str(tmp_path), number, chance.choice([0, 0.01, 0.03])) for number in range(count)],
            groups=[number // 20 for number in range(count)] if seed else None,
            advance=steps.append,
        )
    finally:
        stop.set()
        killer.join()
    assert len(kills) == 5
    assert len(outcomes) == len(steps) == count
    begun, done = (Counter((tmp_path / name).read_text().split()) for name in ("begun", "done"))
    assert max(begun.values()) == 1  # no job is worked on twice
    for number, outcome in enumerate(outcomes):
        if outcome != Killed(9):
            assert outcome == Done(number)
            assert done[str(number)] == 1
    killed = sum(outcome == Killed(9) for outcome in outcomes)
    assert 1 <= killed <= len(set(kills))
    assert active_children() == []


def test_workers_die_while_they_answer(processes):
    chance = random.Random(7)
    moments = [chance.uniform(0, 0.004) for _ in range(8)]
    outcomes = processes.map(jobs.doomed, moments)
    assert len(outcomes) == 8
    assert all(outcome in (Done(b"x" * 100_000), Killed(9)) for outcome in outcomes)
    assert Killed(9) in outcomes


SCRIPT = """
import signal
import sys
from cefito.executors import make_executor
from executors import jobs
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # may be ignored
    make_executor("processes", workers=2).map(jobs.sleep, sys.argv[1:])
"""


# SIGTERM ends a process as SIGKILL does: nothing of the program runs any more
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_parent(how, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    places = [tmp_path / "a", tmp_path / "b"]
    paths = [str(Path(jobs.__file__).parents[1]), *sys.path]
    parent = subprocess.Popen(
        [sys.executable, str(script), *map(str, places)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(lambda: all(place.exists() and place.read_text() for place in places))
        pids = [int(place.read_text()) for place in places]
        assert all(map(alive, pids))
        parent.send_signal(how)
        _, errors = parent.communicate(timeout=60)
    finally:
        parent.kill()
        parent.wait()
    wait_for(lambda: not any(map(alive, pids)))
    assert parent.returncode == -how
    assert ("KeyboardInterrupt" in errors) is (how == signal.SIGINT)
    assert errors.count("Traceback") == (how == signal.SIGINT)


def alive(pid):
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"  # one whose parent was killed may wait to be reaped


def wait_for(condition, seconds=20.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)
