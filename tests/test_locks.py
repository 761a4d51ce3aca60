"""Locks on folders and temporary files: who holds them, and what they leave behind."""

import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from time import sleep

import pytest
from filelock import FileLock

from cefito.errors import DataError, RunError
from cefito.files import write_text
from cefito.locks import LOCK_FILE, is_leftover, locked, new_folder, temporary_beside

HOLDER = """
import sys, time
from pathlib import Path
from cefito.locks import locked, temporary_beside
with locked(Path(sys.argv[1]), "a training"), temporary_beside(Path(sys.argv[2])) as file:
    file.write_text("half")
    print("ready", flush=True)
    time.sleep(60)
"""


def test_the_second_says_who_holds_it_and_the_dead_hold_nothing(tmp_path):
    call = [sys.executable, "-c", HOLDER, str(tmp_path / "run"), str(tmp_path / "file.txt")]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        found = rf"run: another command works there \(a training, process {holder.pid}, since 20"
        with pytest.raises(RunError, match=found), locked(tmp_path / "run", "another"):
            pass
        assert (tmp_path / "run" / LOCK_FILE).exists()
        write_text(tmp_path / "file.txt", "whole")  # beside the other's temporary file
        holder.send_signal(signal.SIGKILL)
    with locked(tmp_path / "run", "another"):
        pass
    assert list((tmp_path / "run").iterdir()) == []
    left, *others = sorted(tmp_path.iterdir())
    assert is_leftover(left)
    assert [path.name for path in others] == ["file.txt", "run"]
    assert (tmp_path / "file.txt").read_text() == "whole"


@pytest.mark.parametrize("patience", [0, 3600])
def test_who_waits_long_says_for_whom(tmp_path, caplog, monkeypatch, patience):
    tried, acquire = list[float](), FileLock.acquire

    def noted(lock, timeout=-1):
        tried.append(timeout)
        return acquire(lock, timeout)

    monkeypatch.setattr("cefito.locks.PATIENCE", patience)
    monkeypatch.setattr(FileLock, "acquire", noted)
    call = [sys.executable, "-c", HOLDER, str(tmp_path / "run"), str(tmp_path / "file.txt")]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        lock = locked(tmp_path / "run", "another", wait=True)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lock.__enter__)
            while len(tried) < (1 if patience else 2) and not waiting.done():
                sleep(0.01)
            holder.send_signal(signal.SIGKILL)
        lock.__exit__(None, None, None)
    assert tried == ([patience] if patience else [0, -1])
    about = f"run: another command works there (a training, process {holder.pid}, since 20"
    assert [about in said for said in caplog.messages] == [True] * (len(tried) - 1)
    assert all(said.endswith("); waiting until it is done there") for said in caplog.messages)


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


def test_files_have_the_access_that_the_process_gives(tmp_path):
    old = os.umask(0o027)
    try:
        write_text(tmp_path / "file", "")
        with new_folder(tmp_path / "folder") as made:
            write_text(made / "inner", "")
    finally:
        os.umask(old)
    modes = [(tmp_path / name).stat().st_mode for name in ("file", "folder/inner", "folder")]
    assert [stat.S_IMODE(mode) for mode in modes] == [0o640, 0o640, 0o750]


def test_a_temporary_file_goes_with_an_error(tmp_path):
    (tmp_path / "x").touch()
    with pytest.raises(FileExistsError), temporary_beside(tmp_path / "y"):
        (tmp_path / "x").open("x")
    with pytest.raises(FileExistsError), temporary_beside(tmp_path / "x", folder=True) as place:
        place.mkdir()
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
