"""The queue and the threads, with work that is waiting alone."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError, wait

import pytest

from cefito.serve.scheduler import BusyError, ClosedError, Engine, ExpiredError, Job

LONG = 20.0  # seconds that nothing here should take


def job(work, *, kind="a", cheap=True, seconds=LONG):
    return Job(work=work, kind=kind, cheap=cheap, deadline=time.monotonic() + seconds)


class Works:
    """Work that can be held up, with a record of what was done together."""

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
    engines = []

    def start(**changes):
        settings = {"workers": 1, "queue": 8, "together": 4} | changes
        engine = Engine(works, **settings)
        engine.start()
        engines.append(engine)
        return engine

    yield start
    works.gate.set()
    for engine in engines:
        engine.close(1)


def results(jobs):
    wait([one.future for one in jobs], timeout=LONG)
    return [one.future.exception() or one.future.result() for one in jobs]


def held(engine, works, **changes):
    """A job that occupies a thread until the gate opens."""
    first = job("held", kind=None, cheap=changes.pop("cheap", True), **changes)
    works.begun.clear()
    engine.submit([first])
    assert works.begun.wait(LONG)
    return first


def test_waiting_jobs_of_one_kind_go_together(started, works):
    engine = started()
    first = held(engine, works)
    jobs = [job("x"), job("y", kind="b"), job("z"), *(job(str(n)) for n in range(3))]
    engine.submit(jobs)
    works.gate.set()
    assert results([first, *jobs]) == ["held!", "x!", "y!", "z!", "0!", "1!", "2!"]
    assert works.done == [["held"], ["x", "z", "0", "1"], ["y"], ["2"]]
    assert [one.together for one in jobs] == [4, 1, 4, 4, 4, 1]


def test_dear_jobs_and_those_without_a_kind_are_alone(started, works):
    engine = started()
    first = held(engine, works)
    jobs = [job("x", kind=None), job("y", kind=None), job("d", cheap=False), job("e", cheap=False)]
    engine.submit(jobs)
    works.gate.set()
    results([first, *jobs])
    assert works.done[1:] == [["x"], ["y"], ["d"], ["e"]]


def test_a_bad_job_fails_alone(started, works):
    engine = started()
    first = held(engine, works)
    jobs = [job("x"), job("bad"), job("y")]
    engine.submit(jobs)
    works.gate.set()
    assert results([first, *jobs])[1::2] == ["x!", "y!"]
    assert isinstance(jobs[1].future.exception(), ValueError)
    later = job("after")  # and the thread lives on
    engine.submit([later])
    assert results([later]) == ["after!"]


def test_a_full_queue_takes_all_or_nothing(started, works):
    engine = started(queue=3)
    held(engine, works)
    engine.submit([job("x"), job("y")])
    with pytest.raises(BusyError) as refusal:
        engine.submit([job("a"), job("b")])
    assert refusal.value.seconds > 0
    assert engine.waiting == 2
    engine.submit([job("z")])


def test_abandoned_jobs_make_room(started, works):
    engine = started(queue=2)
    held(engine, works)
    gone = [job("x"), job("y")]
    engine.submit(gone)
    for one in gone:
        one.abandoned = True
    engine.submit([job("z"), job("w")])
    assert engine.waiting == 2


def test_dear_jobs_leave_a_thread_free(started, works):
    engine = started(workers=2)
    held(engine, works, cheap=False)
    second, cheap = job("dear", cheap=False), job("cheap")
    engine.submit([second, cheap])
    assert results([cheap]) == ["cheap!"]  # before the dear one that came first
    assert not second.future.done()
    works.gate.set()
    assert results([second]) == ["dear!"]


def test_a_job_is_told_to_stop_when_nobody_waits(started, works):
    engine = started()
    first = held(engine, works)
    first.abandoned = True
    assert results([first]) == ["held?"]


def test_a_job_is_told_to_stop_at_its_deadline(started, works):
    engine = started()
    assert results([held(engine, works, seconds=0.05)]) == ["held?"]


def test_a_deadline_counts_in_the_queue(started, works):
    engine = started()
    first, late = held(engine, works), job("late", seconds=0.01)
    engine.submit([late])
    time.sleep(0.03)
    works.gate.set()
    results([first, late])
    assert isinstance(late.future.exception(), ExpiredError)
    assert ["late"] not in works.done


def test_abandoned_jobs_are_not_begun(started, works):
    engine = started()
    first, gone = held(engine, works), job("gone")
    engine.submit([gone])
    gone.abandoned = True
    works.gate.set()
    results([first])
    with pytest.raises(CancelledError):
        gone.future.result(timeout=LONG)
    assert ["gone"] not in works.done


def test_closing_finishes_what_there_is(started, works):
    engine = started()
    jobs = [held(engine, works), job("x"), job("y", kind=None)]
    engine.submit(jobs[1:])
    threading.Timer(0.05, works.gate.set).start()
    engine.close(LONG)
    assert [one.future.result() for one in jobs] == ["held!", "x!", "y!"]
    assert not engine.open
    with pytest.raises(ClosedError):
        engine.submit([job("z")])


def test_closing_does_not_wait_for_ever(started, works):
    engine = started()
    jobs = [held(engine, works), job("x")]
    engine.submit(jobs[1:])
    engine.close(0.05)
    assert results(jobs)[0] == "held?"
    assert isinstance(jobs[1].future.exception(), ClosedError)
