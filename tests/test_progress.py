"""Progress in Python: on a terminal, and as lines."""

import re
import subprocess
import sys

import pytest

import cefito
from cefito import progress
from consoles import Terminal


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


@pytest.mark.parametrize("code", ["cefito.progress.bar()", "cefito.progress.silent('x')"])
def test_the_module_is_there_after_import_cefito(code):
    """And nothing heavy is loaded for it."""
    check = (
        f"import sys, cefito; {code}; assert not {{'torch', 'rich', 'IPython'}} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", check], check=True)
