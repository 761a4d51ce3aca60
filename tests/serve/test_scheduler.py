"""The queue and the threads, with work that only waits."""

from __future__ import annotations

import threading
import time
import weakref
from concurrent.futures import CancelledError, wait

import pytest

from cefito.serve.scheduler import BusyError, ClosedError, ExpiredError, Scheduler, SearchJob
from serve.live_sessions import until

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


def submit(scheduler, *jobs):
    for one in jobs:
        scheduler.submit(one)


def results(jobs):
    wait([one.future for one in jobs], timeout=LONG)
    return [one.future.exception() or one.future.result() for one in jobs]


def held(scheduler, works, **changes):
    """A job that occupies a thread until the gate opens."""
    first = job("held", kind=None, expensive=changes.pop("expensive", False), **changes)
    works.begun.clear()
    scheduler.submit(first)
    assert works.begun.wait(LONG)
    return first


def test_waiting_jobs_of_one_kind_go_together(started, works):
    scheduler = started()
    first = held(scheduler, works)
    jobs = [job("x"), job("y", kind="b"), job("z"), *(job(str(n)) for n in range(3))]
    submit(scheduler, *jobs)
    works.gate.set()
    assert results([first, *jobs]) == ["held!", "x!", "y!", "z!", "0!", "1!", "2!"]
    assert works.done == [["held"], ["x", "z", "0", "1"], ["y"], ["2"]]
    assert [one.together for one in jobs] == [4, 1, 4, 4, 4, 1]


def test_brief_searches_follow_each_other(started, works):
    scheduler = started(workers=2)
    first = job("first")
    scheduler.submit(first)
    results([first])  # its kind is now known to be brief
    works.begun.clear()
    scheduler.submit(job("held"))
    assert works.begun.wait(LONG)
    submit(scheduler, later := job("x"), unknown := job("y", kind="b"))
    assert results([unknown]) == ["y!"]
    assert not later.future.done()
    works.gate.set()
    assert results([later]) == ["x!"]


def test_expensive_jobs_and_those_without_a_kind_are_alone(started, works):
    scheduler = started()
    first = held(scheduler, works)
    jobs = [job(name, kind=None) for name in "xy"] + [job(name, expensive=True) for name in "de"]
    submit(scheduler, *jobs)
    works.gate.set()
    results([first, *jobs])
    assert works.done[1:] == [["x"], ["y"], ["d"], ["e"]]


def test_a_bad_job_fails_alone(started, works):
    scheduler = started()
    first = held(scheduler, works)
    jobs = [job("x"), job("bad"), job("y")]
    submit(scheduler, *jobs)
    works.gate.set()
    assert results([first, *jobs])[1::2] == ["x!", "y!"]
    assert isinstance(jobs[1].future.exception(), ValueError)
    later = job("after")  # and the thread lives on
    scheduler.submit(later)
    assert results([later]) == ["after!"]


def test_abandoned_jobs_make_room(started, works):
    scheduler = started(queue=2)
    held(scheduler, works)
    gone = [job("x"), job("y")]
    submit(scheduler, *gone)
    for one in gone:
        one.abandoned = True
    submit(scheduler, job("z"), job("w"))
    assert scheduler.waiting == 2


def test_expensive_jobs_leave_a_thread_free(started, works):
    scheduler = started(workers=2)
    held(scheduler, works, expensive=True)
    second, cheap = job("expensive", expensive=True), job("cheap")
    submit(scheduler, second, cheap)
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
    submit(scheduler, late, gone)
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
    submit(scheduler, *jobs[1:])
    scheduler.close()
    assert results(jobs)[0] == "held?"
    assert isinstance(jobs[1].future.exception(), ClosedError)
    assert not scheduler.open
    with pytest.raises(ClosedError):
        scheduler.submit(job("z"))


# several clients


def many(client, count, **changes):
    """Jobs of one client."""
    jobs = [job(f"{client}{number}", **changes) for number in range(count)]
    for one in jobs:
        one.client = client
    return jobs


def test_the_client_that_was_served_least_comes_next(started, works):
    scheduler = started(queue=100, together=2)
    first = held(scheduler, works)
    jobs = [*many("a", 6), *many("b", 4)]
    submit(scheduler, *jobs[:6])
    submit(scheduler, *jobs[6:])
    late = many("c", 1, kind="other")
    submit(scheduler, *late)
    works.gate.set()
    results([first, *jobs, *late])
    order = [["c0"], ["b0", "b1"], ["a0", "a1"], ["b2", "b3"], ["a2", "a3"], ["a4", "a5"]]
    assert works.done[1:] == order


def test_idle_time_gives_no_more_than_the_next_turns(started, works):
    scheduler = started(queue=100, together=1)
    jobs = many("a", 20)
    submit(scheduler, *jobs)
    results(jobs)
    first = held(scheduler, works)
    both = [*many("a", 8), *many("b", 8)]
    submit(scheduler, *both[:8])
    submit(scheduler, *both[8:])
    works.gate.set()
    results([first, *both])
    turns = [name[0] for (name,) in works.done[-16:-8]]
    assert turns.count("a") >= 3


def test_a_batch_of_one_is_not_filled_with_the_many_jobs_of_others(started, works):
    scheduler = started(queue=100, together=8)
    first = held(scheduler, works)
    jobs = many("heavy", 5)
    submit(scheduler, *jobs)
    lights = [one for client in "xyz" for one in many(client, 1)]
    for one in lights:
        scheduler.submit(one)
    works.gate.set()
    results([first, *jobs, *lights])
    assert works.done[1:] == [["x0", "y0", "z0"], [f"heavy{number}" for number in range(5)]]


def test_a_full_queue_leaves_every_client_its_share(started, works):
    scheduler = started(queue=6)
    held(scheduler, works)
    submit(scheduler, *many("a", 6))
    with pytest.raises(BusyError, match="full for about"):
        submit(scheduler, *many("a", 1))
    submit(scheduler, *many("b", 3))  # its half
    with pytest.raises(BusyError):
        submit(scheduler, *many("b", 1))
    submit(scheduler, *many("c", 1))
    assert scheduler.waiting == 10


def test_jobs_that_are_alone_never_overlap(started, works):
    scheduler = started(workers=2)
    first, second, other = (job(work) for work in ("held", "second", "other"))
    for one in (first, second, other):
        one.kind = None
    first.alone = second.alone = "session"
    scheduler.submit(first)
    assert works.begun.wait(LONG)
    scheduler.submit(second)
    scheduler.submit(other)
    assert other.future.result(LONG) == "other!"
    assert not second.future.done()
    works.gate.set()
    assert second.future.result(LONG) == "second!"
    assert works.done == [["held"], ["other"], ["second"]]


def test_idle_threads_hold_no_work(started, works):
    """It refers to a run, which may be replaced."""

    class Run:
        pass

    scheduler, run = started(workers=2), Run()
    asked = job(run)
    left = weakref.ref(run)
    scheduler.submit(asked)
    assert asked.future.result(LONG).endswith("!")
    works.done.clear()
    del asked, run
    until(lambda: left() is None)
