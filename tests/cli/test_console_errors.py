"""One line for any error of the command line, and safe text."""

import io
import os
import signal
import subprocess
import sys
import time

import pytest

from cefito.cli import build_app, console, main, real_number, whole_number
from cefito.data import open_dataset
from cefito.errors import ConfigError

START = "import sys; from cefito.cli import main; sys.exit(main())"


@pytest.fixture
def failing(monkeypatch):
    """Have the application raise an error."""

    def fail(problem):
        def app(argv, **named):
            raise problem

        monkeypatch.setattr("cefito.cli.build_app", lambda: app)

    return fail


@pytest.mark.parametrize(
    ("problem", "code", "message"),
    [
        (OSError(36, "File name too long", "x"), 2, "x: File name too long. Choose a shorter"),
        (OSError(28, "No space left on device"), 1, "No space left on device. Free some disk"),
        (MemoryError("Unable to allocate 3 TiB"), 1, "not enough memory (Unable to allocate 3 TiB"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes"), 1, "not enough mem"),
        (RecursionError("maximum"), 2, "nested too deeply"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), 2, "Use UTF-8"),
        (KeyError("a\nb"), 1, "unexpected KeyError: 'a\\nb' – a defect of cefito or of a package"),
    ],
)
def test_every_error_is_one_line(problem, code, message, failing, capsys):
    failing(problem)
    assert main(["x"]) == code
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert message in said
    assert main(["x", "--traceback"]) == code
    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last)")
    assert message in said.splitlines()[-1]


def test_names_move_no_terminal(monkeypatch, capsys):
    def app(argv, **named):
        raise ConfigError("video '\x1b]0;title\x07\u202eabc' " + "x" * 100_000)

    vars(app)["parse_commands"] = build_app().parse_commands
    monkeypatch.setattr("cefito.cli.build_app", lambda: app)
    assert main(["x"]) == 2
    said = capsys.readouterr().err
    assert r"video '\x1b]0;title\x07\u202eabc'" in said
    assert len(said) < 2200
    assert console.printable("a\tb\n") == "a\tb\n"


@pytest.mark.parametrize(
    ("encoding", "shown"), [("ascii", "a \\u2192 \\xe9 \\u8336"), ("utf-8", "a → é 茶")]
)
def test_consoles_of_few_letters(encoding, shown, monkeypatch):
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    console.open_streams()
    stream.write("a → é 茶")
    stream.flush()
    assert buffer.getvalue().decode(encoding) == shown


@pytest.mark.parametrize(("target", "code"), [(">/dev/full", 2), (">&-", 2), ("| true", 141)])
def test_a_full_or_closed_stdout(target, code):
    call = f"set -o pipefail; '{sys.executable}' -c '{START}' config show paper --json {target}"
    done = subprocess.run(["bash", "-c", call], stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == code
    assert done.stderr.startswith("error: standard output: " if code == 2 else "")
    assert done.stderr.count("\n") == (code == 2)


@pytest.mark.parametrize("target", ["2>/dev/full", "2>&-"])
def test_a_full_or_closed_stderr_loses_no_work(target, tmp_path):
    call = f"'{sys.executable}' -c '{START}' data world '{tmp_path}/world' {target}"
    assert subprocess.run(call, shell=True, timeout=60).returncode == 0
    open_dataset(tmp_path / "world")


@pytest.mark.parametrize("columns", ["0", "-5", "²", "99999999", "9" * 5000])
def test_odd_widths_of_consoles(columns, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["--help"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 400


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_cleans_up(name, monkeypatch, capsys):
    number, seen = getattr(signal, name), []
    inherited = signal.signal(number, signal.SIG_DFL)  # nohup ignores SIGHUP

    def app(argv, **named):
        try:
            os.kill(os.getpid(), number)
            time.sleep(5)
        finally:
            seen.append("cleaned")

    monkeypatch.setattr("cefito.cli.build_app", lambda: app)
    try:
        assert main(["x"]) == 128 + number
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, inherited)
    assert seen == ["cleaned"]
    assert capsys.readouterr().err == f"error: ended by {name}\n"


def test_nohup_is_respected(monkeypatch):
    inherited = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    app = lambda *_, **__: os.kill(os.getpid(), signal.SIGHUP) or 7  # noqa: E731
    monkeypatch.setattr("cefito.cli.build_app", lambda: app)
    try:
        assert main(["x"]) == 7
    finally:
        signal.signal(signal.SIGHUP, inherited)


def test_numbers(capsys):
    assert [whole_number(text) for text in ("3", " -4 ", "+5", "007")] == [3, -4, 5, 7]
    assert [real_number(text) for text in ("3", "-.5", "1e-3", "2.")] == [3, -0.5, 0.001, 2]
    for text in ("3.7", "3.0", "1e3", "true", "", "0x10", "٣", "9" * 5000, "1_0"):
        with pytest.raises(ValueError, match=r"not a whole|too large"):
            whole_number(text)
    for text in ("nan", "inf", "1e999", "1,5", "0x1", "1_0", ""):
        with pytest.raises(ValueError, match=r"is not a number|too large"):
            real_number(text)
    for argv in (
        "train x --horizon 3 --out y --seed 3.7",
        "plan x --top-k 1.7",
        "plan x --seconds 4.5",
    ):
        assert main(argv.split()) == 2
        assert "is not a whole number; expected one such as 3" in capsys.readouterr().err
