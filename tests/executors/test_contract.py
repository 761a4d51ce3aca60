"""Every registered executor fulfils the protocol."""

import socket
from collections.abc import Sequence

import pytest

from cefito.errors import ConfigError, RunError
from cefito.executors import EXECUTORS, Done, Failed, make_executor
from executors import jobs
from executors.jobs import values


@pytest.fixture(params=EXECUTORS)
def executor(request):
    if request.param == "ray":
        request.getfixturevalue("ray_cluster")
    return make_executor(request.param, workers=2)


def test_values_come_in_order(executor):
    assert values(executor.map(jobs.double, range(7))) == [0, 2, 4, 6, 8, 10, 12]
    assert values(executor.map(jobs.double, ["a"])) == ["aa"]
    assert executor.map(jobs.double, []) == []


class Read(Sequence):
    """Arguments that are read one after the other."""

    def __init__(self, count):
        self.length, self.read = count, []

    def __len__(self):
        return self.length

    def __getitem__(self, place):
        if place >= self.length:
            raise IndexError
        self.read.append(place)
        return place


def test_arguments_are_taken_in_order(executor):
    arguments = Read(6)
    assert values(executor.map(jobs.double, arguments)) == [0, 2, 4, 6, 8, 10]
    assert arguments.read == list(range(6))


def test_progress_advances_as_jobs_end(executor):
    steps = []
    executor.map(jobs.fail, range(5), advance=steps.append)
    assert steps == [1] * 5


def test_a_job_that_fails_leaves_the_others(executor):
    outcomes = executor.map(jobs.fail, range(4))
    assert outcomes[0] == Done(0)
    assert outcomes[2] == Done(2)
    for number in (1, 3):
        assert isinstance(outcomes[number], Failed)
        assert outcomes[number].error == f"UnpicklableError: no such number: {number}"
        assert outcomes[number].traceback.startswith("Traceback")
        assert "in fail" in outcomes[number].traceback
    (outcome,) = executor.map(jobs.nothing_but_a_type, [0])
    assert outcome.error == "ZeroDivisionError"


def test_groups_are_worked_on_in_order(executor, tmp_path):
    arguments = [(str(tmp_path), number, 0.01) for number in range(9)]
    groups = [number % 3 for number in range(9)]
    assert values(executor.map(jobs.note, arguments, groups=groups)) == list(range(9))
    begun, done = (
        [int(line) for line in (tmp_path / name).read_text().split()] for name in ("begun", "done")
    )
    for group in range(3):
        ours = [number for number in range(9) if number % 3 == group]
        assert [number for number in begun if number in ours] == ours
        assert [number for number in done if number in ours] == ours


def test_executors_by_name():
    assert type(make_executor()) is EXECUTORS["serial"]
    assert type(make_executor(workers=2)) is EXECUTORS["processes"]
    assert make_executor(workers=2).workers == 2
    with pytest.raises(ConfigError, match=r"executor 'abacus'; .* serial, processes"):
        make_executor("abacus")
    with pytest.raises(ConfigError, match="workers 0: expected at least 1"):
        make_executor(workers=0)


def test_a_cluster_that_does_not_answer(monkeypatch):
    ray = pytest.importorskip("ray", reason="Ray is not installed: make test-ray installs it")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # else what is connected is used
    with socket.socket() as nobody:  # bound, but not listening
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        with pytest.raises(RunError) as caught:
            make_executor(address=address).map(jobs.double, [1])
    assert str(caught.value).startswith(f"Ray at {address}: no cluster answers (")
    assert "\n" not in str(caught.value)


def test_an_interrupt_passes_the_serial_one():
    with pytest.raises(KeyboardInterrupt):
        make_executor("serial").map(jobs.interrupted, range(3))
