"""The queue and the threads, with work that only waits."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError, wait

import pytest

from cefito.serve.scheduler import BusyError, ClosedError, ExpiredError, Scheduler, SearchJob

LONG = 20.0  # seconds that nothing here should take


def job(work, *, kind="a", expensive=False, seconds=LONG):
    return SearchJob(work=work, kind=kind, expensive=expensive, deadline=time.monotonic() + seconds)


class Works:
    """Work that a gate can hold, with a record of the batches."""

    def __init__(self):
        self.done, self.gate, self.begun = [], threading.Event(), threading.Event()

    def __call__(self, jobs, stop):
        works = [one.work for one in jobs]
        self.done.append(works)
        self.begun.set()
        if "held" in works:
            until = time.monotonic() + LONG
            while not (self.gate.is_set() or stop()) and time.monotonic() < until:
                time.sleep(0.002)
        if "bad" in works:
            raise ValueError("bad")
        return [f"{work}!" if not stop() else f"{work}?" for work in works]


@pytest.fixture
def works():
    return Works()


@pytest.fixture
def started(works):
    schedulers = []

    def start(**changes):
        settings = {"workers": 1, "queue": 8, "together": 4} | changes
        scheduler = Scheduler(works, **settings)
        scheduler.start()
        schedulers.append(scheduler)
        return scheduler

    yield start
    works.gate.set()
    for scheduler in schedulers:
        scheduler.close()


def results(jobs):
    wait([one.future for one in jobs], timeout=LONG)
    return [one.future.exception() or one.future.result() for one in jobs]


def held(scheduler, works, **changes):
    """A job that occupies a thread until the gate opens."""
    first = job("held", kind=None, expensive=changes.pop("expensive", False), **changes)
    works.begun.clear()
    scheduler.submit([first])
    assert works.begun.wait(LONG)
    return first


def test_waiting_jobs_of_one_kind_go_together(started, works):
    scheduler = started()
    first = held(scheduler, works)
    jobs = [job("x"), job("y", kind="b"), job("z"), *(job(str(n)) for n in range(3))]
    scheduler.submit(jobs)
    works.gate.set()
    assert results([first, *jobs]) == ["held!", "x!", "y!", "z!", "0!", "1!", "2!"]
    assert works.done == [["held"], ["x", "z", "0", "1"], ["y"], ["2"]]
    assert [one.together for one in jobs] == [4, 1, 4, 4, 4, 1]


def test_expensive_jobs_and_those_without_a_kind_are_alone(started, works):
    scheduler = started()
    first = held(scheduler, works)
    jobs = [job(name, kind=None) for name in "xy"] + [job(name, expensive=True) for name in "de"]
    scheduler.submit(jobs)
    works.gate.set()
    results([first, *jobs])
    assert works.done[1:] == [["x"], ["y"], ["d"], ["e"]]


def test_a_bad_job_fails_alone(started, works):
    scheduler = started()
    first = held(scheduler, works)
    jobs = [job("x"), job("bad"), job("y")]
    scheduler.submit(jobs)
    works.gate.set()
    assert results([first, *jobs])[1::2] == ["x!", "y!"]
    assert isinstance(jobs[1].future.exception(), ValueError)
    later = job("after")  # and the thread lives on
    scheduler.submit([later])
    assert results([later]) == ["after!"]


def test_a_full_queue_takes_all_or_nothing(started, works):
    scheduler = started(queue=3)
    held(scheduler, works)
    scheduler.submit([job("x"), job("y")])
    with pytest.raises(BusyError) as refusal:
        scheduler.submit([job("a"), job("b")])
    assert refusal.value.seconds > 0
    assert scheduler.waiting == 2
    scheduler.submit([job("z")])


def test_abandoned_jobs_make_room(started, works):
    scheduler = started(queue=2)
    held(scheduler, works)
    gone = [job("x"), job("y")]
    scheduler.submit(gone)
    for one in gone:
        one.abandoned = True
    scheduler.submit([job("z"), job("w")])
    assert scheduler.waiting == 2


def test_expensive_jobs_leave_a_thread_free(started, works):
    scheduler = started(workers=2)
    held(scheduler, works, expensive=True)
    second, cheap = job("expensive", expensive=True), job("cheap")
    scheduler.submit([second, cheap])
    assert results([cheap]) == ["cheap!"]  # before the expensive one that came first
    assert not second.future.done()
    works.gate.set()
    assert results([second]) == ["expensive!"]


def test_a_job_stops_when_abandoned_or_at_its_deadline(started, works):
    scheduler = started()
    first = held(scheduler, works)
    first.abandoned = True
    assert results([first]) == ["held?"]
    assert results([held(scheduler, works, seconds=0.05)]) == ["held?"]


def test_jobs_that_expired_or_were_abandoned_in_the_queue_do_not_begin(started, works):
    scheduler = started()
    first, late, gone = held(scheduler, works), job("late", seconds=0.01), job("gone")
    scheduler.submit([late, gone])
    gone.abandoned = True
    time.sleep(0.03)
    works.gate.set()
    results([first, late])
    assert isinstance(late.future.exception(), ExpiredError)
    with pytest.raises(CancelledError):
        gone.future.result(timeout=LONG)
    assert works.done == [["held"]]


def test_closing_stops_what_runs_and_drops_the_queue(started, works):
    scheduler = started()
    jobs = [held(scheduler, works), job("x")]
    scheduler.submit(jobs[1:])
    scheduler.close()
    assert results(jobs)[0] == "held?"
    assert isinstance(jobs[1].future.exception(), ClosedError)
    assert not scheduler.open
    with pytest.raises(ClosedError):
        scheduler.submit([job("z")])
