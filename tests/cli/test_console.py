import re
import signal
import sys

import pytest

from cefito.cli import console
from consoles import Terminal


@pytest.fixture(autouse=True)
def default_handler():
    """A test run in the background may ignore interrupts."""
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, old)


def test_the_first_interrupt_asks_and_the_second_interrupts(capfd):
    with console.stoppable("stopping") as stop:
        assert not stop()
        signal.raise_signal(signal.SIGINT)
        assert stop()
        assert capfd.readouterr().err == "\nstopping\n"
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert stop()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_old_handler_comes_back_after_an_error():
    with pytest.raises(ZeroDivisionError), console.stoppable("stopping") as stop:
        raise ZeroDivisionError
    assert not stop()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_tables_that_are_too_wide_are_stacked(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("COLUMNS", "40")
    rows = [["first planner", "11.11", "22.22", "33.33"], ["other", "44.44", "55.55", "66.66"]]
    console.table("a title", ("planner", "SR", "mAcc", "a wide head"), rows, stacked=True)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", sys.stdout.getvalue())
    assert shown.count("a title") == 1
    tables = shown.split("┏")[1:]
    cells = [
        [re.findall(r"[\w.]+(?: [\w.]+)*", line) for line in part.splitlines()] for part in tables
    ]
    assert [[line for line in part if line] for part in cells] == [
        [
            ["planner", "SR", "mAcc"],
            ["first planner", "11.11", "22.22"],
            ["other", "44.44", "55.55"],
        ],
        [["planner", "a wide head"], ["first planner", "33.33"], ["other", "66.66"]],
    ]
    assert all(len(line) <= 40 for line in shown.splitlines())
