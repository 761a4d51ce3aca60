"""What the tests of commands share: a run, and calls of the command line."""

import signal

import pytest

from cefito.cli import main
from tiny_runs import TINY_RUN, as_arguments, snapshot


@pytest.fixture(scope="session")
def trained(world, tmp_path_factory):
    """A finished run, not to be changed."""
    out = tmp_path_factory.mktemp("runs") / "run"
    command = ["train", str(world.folder), "--horizon", "3", "--out", str(out), "--preset", "paper"]
    command += ["--method", "cefito"]
    assert main([*command, *as_arguments(TINY_RUN)]) == 0
    return out


@pytest.fixture
def call(capsys):
    """Call the command line, as (exit code, stdout, stderr)."""

    def call(*argv):
        capsys.readouterr()
        code = main([str(part) for part in argv])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def ran(capsys):
    """Call the command line, which must exit with 0, as (stdout, stderr)."""

    def ran(*argv):
        capsys.readouterr()
        code = main([str(part) for part in argv])
        said = capsys.readouterr()
        assert code == 0, said.err
        return said

    return ran


@pytest.fixture
def default_handler():
    """A test run in the background may ignore interrupts."""
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, old)


@pytest.fixture
def refused(call, tmp_path):
    """Call the command line; it must exit with 2, say one line on stderr alone, change no file."""

    def refused(*argv):
        before = snapshot(tmp_path)
        code, out, err = call(*argv)
        (line,) = err.splitlines(keepends=True)
        assert (code, out) == (2, "")
        assert line.startswith("error: ")
        assert line.endswith("\n")
        assert snapshot(tmp_path) == before
        return line

    return refused
