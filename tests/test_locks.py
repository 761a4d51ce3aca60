"""Locks on folders and temporary files: who holds them, and what the dead leave behind."""

import os
import signal
import stat
import subprocess
import sys

import pytest

from cefito.errors import DataError, RunError
from cefito.files import new_folder, write_text
from cefito.locks import LOCK_FILE, is_leftover, locked, temporary_beside

HOLDER = """
import sys, time
from pathlib import Path
from cefito.locks import locked, temporary_beside
with locked(Path(sys.argv[1]), "a training"), temporary_beside(Path(sys.argv[2])) as file, \
        temporary_beside(Path(sys.argv[3]), folder=True) as folder:
    file.write_text("half")
    (folder / "half").write_text("half")
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds a folder and is at work on a file and a folder beside it."""
    places = [str(tmp_path / name) for name in ("run", "file.txt", "folder")]
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, *places], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_the_second_says_who_holds_it_and_the_dead_hold_nothing(holder, tmp_path):
    found = rf"run: another command works there \(a training, process {holder.pid}, since 20"
    with pytest.raises(RunError, match=found), locked(tmp_path / "run", "another"):
        pass
    assert (tmp_path / "run" / LOCK_FILE).exists()
    write_text(tmp_path / "file.txt", "whole")  # beside the other's temporary file
    with new_folder(tmp_path / "folder") as made:
        (made / "whole").write_text("whole")
    assert (tmp_path / ".file.txt.tmp").read_text() == "half"
    assert (tmp_path / ".folder.tmp" / "half").exists()

    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert all(is_leftover(tmp_path / name) for name in (".file.txt.tmp", ".folder.tmp"))
    with locked(tmp_path / "run", "another"):
        pass
    assert list((tmp_path / "run").iterdir()) == []
    write_text(tmp_path / "file.txt", "again")
    (tmp_path / "folder" / "whole").unlink()
    with new_folder(tmp_path / "folder") as made:
        assert list(made.iterdir()) == []
        (made / "whole").write_text("again")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.txt", "folder", "run"]
    assert (tmp_path / "file.txt").read_text() == "again"
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["whole"]


def test_a_start_that_fails_leaves_no_folder(tmp_path):
    with pytest.raises(KeyError), locked(tmp_path / "a" / "b", "work"):
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "result").touch()
    with pytest.raises(FileExistsError), locked(tmp_path / "a", "work"):
        (tmp_path / "a" / "result").open("x")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["result"]
    with pytest.raises(KeyError), new_folder(tmp_path / "x" / "y"):
        raise KeyError
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", ["a" * 300, "nul\0byte"])
def test_impossible_names(name, tmp_path):
    with pytest.raises(RunError, match="cannot be made"), locked(tmp_path / "x" / name, "work"):
        pass
    with pytest.raises((DataError, OSError)), new_folder(tmp_path / "x" / name):
        pass
    with pytest.raises(RunError, match="could not be written"):
        write_text(tmp_path / name, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_files_have_the_access_that_the_process_gives(mask, tmp_path):
    old = os.umask(mask)
    try:
        write_text(tmp_path / "file", "")
        with new_folder(tmp_path / "folder") as made:
            write_text(made / "inner", "")
    finally:
        os.umask(old)
    modes = [(tmp_path / name).stat().st_mode for name in ("file", "folder/inner", "folder")]
    assert [stat.S_IMODE(mode) for mode in modes] == [0o666 & ~mask, 0o666 & ~mask, 0o777 & ~mask]


def test_a_temporary_file_goes_with_an_error(tmp_path):
    with pytest.raises(FileExistsError), temporary_beside(tmp_path / "x") as place:
        place.open("x")
    assert list(tmp_path.iterdir()) == []
