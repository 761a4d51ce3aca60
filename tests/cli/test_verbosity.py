"""Features of all commands: `python -m`, completion, `--verbose` and `--quiet`."""

import logging
import os
import subprocess
import sys

import pytest

from cefito.cli import COMMANDS, console
from cefito.cli.console import Volume, at_volume, split_threads, split_volume, volume
from cefito.errors import ConfigError


def test_python_m_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "cefito", "nonsense"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("argv", "rest", "chosen"),
    [
        (["train", "DATA"], ["train", "DATA"], Volume.NORMAL),
        (["--quiet", "train", "DATA"], ["train", "DATA"], Volume.QUIET),
        (["train", "--verbose", "DATA"], ["train", "DATA"], Volume.VERBOSE),
        (["train", "--quiet", "DATA", "--quiet"], ["train", "DATA"], Volume.QUIET),
        (["train", "--", "--quiet"], ["train", "--", "--quiet"], Volume.NORMAL),
    ],
)
def test_options_of_the_volume_stand_anywhere(argv, rest, chosen):
    assert split_volume(argv) == (rest, chosen)
    with pytest.raises(ConfigError, match="expected one of them"):
        split_volume(["--quiet", "--verbose", *argv])
    for command in COMMANDS:
        assert split_volume([command, "--quiet"]) == ([command], Volume.QUIET)


@pytest.mark.parametrize(
    ("line", "rest", "threads"),
    [
        ("train DATA --threads 2", "train DATA", "2"),
        ("--threads=3 train DATA", "train DATA", "3"),
        ("train DATA", "train DATA", "1"),
        ("train DATA --preset paper", "train DATA --preset paper", None),
        ("train DATA --preset=released", "train DATA --preset=released", None),
        ("--quiet extract VIDEOS", "--quiet extract VIDEOS", None),
        ("plan RUN --task paper", "plan RUN --task paper", "1"),
        ("--quiet serve RUN --threads 4", "--quiet serve RUN --threads 4", None),
        ("plan-batch RUN --threads 2", "plan-batch RUN --threads 2", None),
        ("train -- --threads 2", "train -- --threads 2", "1"),
    ],
)
def test_threads(monkeypatch, line, rest, threads):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("torch.set_num_threads", lambda _: None)
    assert split_threads(line.split()) == rest.split()
    assert os.environ.get("OMP_NUM_THREADS") == threads
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    split_threads(line.split())
    assert os.environ["OMP_NUM_THREADS"] == (threads if threads in ("2", "3") else "7")


@pytest.mark.parametrize("given", ["0", "x", "-1", "1.5", "²", "", "2 --threads 3"])
def test_threads_that_are_none(given):
    with pytest.raises(ConfigError, match="from 1 to 1024"):
        split_threads(["train", "DATA", "--threads", *given.split()])


def test_quiet_keeps_results_and_urgent_messages(capsys):
    with at_volume(Volume.QUIET), console.log_warnings():
        console.talk("wrote it")
        console.talk("failed: a cell", urgent=True)
        logging.getLogger("cefito.somewhere").warning("odd")
        with console.progress("planning", total=1) as advance:
            advance(1)
        console.table("", ("a",), [[1]])
    captured = capsys.readouterr()
    assert captured.err == "failed: a cell\nwarning: odd\n"
    assert captured.out == "a\n1\n"
    assert volume() is Volume.NORMAL


def test_verbose_shows_information(capsys):
    logger = logging.getLogger("cefito.somewhere")
    for chosen in (Volume.NORMAL, Volume.VERBOSE):
        with at_volume(chosen), console.log_warnings():
            logger.info("epoch 3")
    assert capsys.readouterr().err == "info: epoch 3\n"
