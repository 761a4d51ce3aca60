"""Progress in Python: on a terminal, in a notebook, and as lines."""

import re
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest

import cefito
from cefito import progress
from consoles import Terminal


class Page:
    """What a notebook shows at one place, state after state."""

    def __init__(self):
        self.states = []

    def update(self, html):
        self.states.append(html.data)


@pytest.fixture
def notebook(monkeypatch):
    """A stand-in for IPython in a notebook; gives the places that something was shown at."""
    pages = []

    def display(html, *, display_id):
        assert display_id is True
        assert html.data == ""
        pages.append(Page())
        return pages[-1]

    ipython, shown = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())
    ipython.display = shown
    shown.display = display
    shown.HTML = lambda data: SimpleNamespace(data=data)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    return pages


def test_as_lines(capsys):
    with cefito.progress.bar()("planning, windows", total=4) as advance:
        advance(3)
    assert re.fullmatch(r"planning, windows: 3/4, \S+ it/s, 0:00:00 remaining\n", taken(capsys))
    with cefito.progress.bar(passing=True)("planning", total=4) as advance:
        advance(4)
    assert taken(capsys) == ""


def taken(capsys):
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_on_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.bar()("planning", total=4) as advance:
        advance(4, note="loss 0.5")
    assert "4/4" in sys.stderr.getvalue()
    assert "loss 0.5" in sys.stderr.getvalue()


def test_in_a_notebook(notebook, monkeypatch, capsys):
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with progress.bar()("chain <1>", total=4) as advance:
        advance(1)  # too soon after the beginning to be drawn
        now += 0.5
        advance(1, note="loss 0.5")
    (page,) = notebook
    assert page.states[0] == page.states[1]  # drawn again at the end
    bar, _, text = page.states[0].partition(" chain")
    assert bar == "<progress value='2' max='4'></progress>"
    assert text == " &lt;1&gt;: 2/4, 4 it/s, 0:00:00 remaining, loss 0.5"
    with progress.bar(passing=True)("planning") as advance:
        advance(1)
    assert notebook[1].states[0].startswith("<progress></progress> planning: 1, ")
    assert notebook[1].states[-1] == ""
    assert taken(capsys) == ""


def test_ipython_in_a_terminal_is_no_notebook(notebook, monkeypatch, capsys):
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: SimpleNamespace())
    with progress.bar()("planning", total=1) as advance:
        advance(1)
    assert notebook == []
    assert taken(capsys).startswith("planning: 1/1")


@pytest.mark.parametrize("code", ["cefito.progress.bar()", "cefito.progress.silent('x')"])
def test_the_module_is_there_after_import_cefito(code):
    """And nothing heavy is loaded for it."""
    check = (
        f"import sys, cefito; {code}; assert not {{'torch', 'rich', 'IPython'}} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", check], check=True)
