"""Locks on folders, one process each, and temporary files that a killed process may leave behind.

Locks are the operating system's (flock), so that they end with their process, however it ends.
Without them (Windows) nothing is locked.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from cefito.errors import RunError, explained

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".lock"
_SUFFIX = ".tmp"


@contextmanager
def locked(folder: Path, what: str) -> Iterator[None]:
    """Lock a folder for this process, and make it if missing.

    If the work inside fails before it writes anything, a folder made here is removed again.
    """
    path = folder / LOCK_FILE
    with ExitStack() as stack:
        with explained(folder, "cannot be made", "Choose another folder.", error=RunError):
            stack.enter_context(made_folders(folder))
        handle = _take(path, what)
        try:
            yield
        finally:
            if handle is not None:
                path.unlink(missing_ok=True)  # before the lock is released, see `_take`
                os.close(handle)


@contextmanager
def made_folders(folder: Path) -> Iterator[None]:
    """Make a folder and its parents; if the work inside fails, remove new ones left empty."""
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for place in made:
            with suppress(OSError):  # it holds something, or was never made
                place.rmdir()
        raise


def _take(path: Path, what: str) -> int | None:
    """Lock a file and write into it who holds it; None if the system has no locks."""
    while fcntl is not None:
        with explained(path, "could not be written", "Choose another folder.", error=RunError):
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            found = f"another command works there ({_holder(handle)})"
            os.close(handle)
            remedy = "Wait until it has ended, or choose another folder."
            raise RunError(f"{path.parent}: {found}. {remedy}") from problem
        except OSError:  # a file system without locks
            os.close(handle)
            path.unlink(missing_ok=True)
            return None
        if _same(handle, path):  # otherwise its last holder has just removed it
            note = {"pid": os.getpid(), "host": socket.gethostname(), "what": what}
            note["since"] = time.strftime("%Y-%m-%d %H:%M:%S")
            os.ftruncate(handle, 0)
            os.write(handle, json.dumps(note).encode())
            return handle
        os.close(handle)
    return None


def _same(handle: int, path: Path) -> bool:
    """Return whether a path still leads to an opened file."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(handle), path.stat())
    return False


def _holder(handle: int) -> str:
    """Return who holds a lock, as its file says."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        note = json.loads(os.pread(handle, 4096, 0))
        elsewhere = "" if note["host"] == socket.gethostname() else f" on {note['host']}"
        return f"{note['what']}, process {note['pid']}{elsewhere}, since {note['since']}"
    return "it does not say which"


def is_leftover(path: Path) -> bool:
    """Return whether a file is a lock or a temporary file."""
    return path.name == LOCK_FILE or (path.name.startswith(".") and path.name.endswith(_SUFFIX))


@contextmanager
def temporary_beside(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Yield a temporary file or folder beside a path, removed afterwards unless it was renamed.

    Its name contains the path's, so that the next process that writes there finds and overwrites
    what a killed one left. Access follows the umask.
    """
    handle = None
    usual = path.with_name(f".{path.name}{_SUFFIX}")
    for place in (usual, path.with_name(f".{path.name}.{secrets.token_hex(4)}{_SUFFIX}")):
        handle = _made(place, folder)
        if handle is not None:
            break
    if handle is None:
        raise FileExistsError(errno.EEXIST, "a temporary file is in the way", str(place))
    try:
        yield place
    finally:
        os.close(handle)
        if folder:
            shutil.rmtree(place, ignore_errors=True)
        else:
            with suppress(OSError):
                place.unlink(missing_ok=True)


def _made(place: Path, folder: bool) -> int | None:
    """Make a temporary file or folder and lock it; None if another process works in it."""
    for _ in range(3):
        with suppress(FileExistsError):
            if folder:
                place.mkdir()
            else:
                os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            handle = os.open(place, os.O_RDONLY)
            if fcntl is not None:
                with suppress(OSError):
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _same(handle, place):
                return handle
            os.close(handle)
            continue
        if fcntl is None or not _remove_abandoned(place):
            return None
    return None


def _remove_abandoned(place: Path) -> bool:
    """Remove a temporary file or folder that no process holds; return whether it did."""
    with suppress(OSError), ExitStack() as stack:
        handle = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
        stack.callback(os.close, handle)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink()
        return True
    return False
