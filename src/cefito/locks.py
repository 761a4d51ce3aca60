"""Locks on folders, one process each, and temporary files and folders, renamed once they are whole.

Locks are the operating system's, so that they end with their process, however it ends.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from cefito.errors import DataError, RunError, explained

logger = logging.getLogger(__name__)

LOCK_FILE = ".lock"
PATIENCE = 5.0
"""Seconds that a lock is waited for without a word."""
_SUFFIX = ".tmp"


@contextmanager
def locked(folder: Path, what: str, *, wait: bool = False) -> Iterator[None]:
    """Lock a folder for this process, and make it if missing.

    If the work inside fails before it writes anything, a folder made here is removed again.

    Args:
        folder: The folder.
        what: What works there, for messages.
        wait: Wait until the process that works there leaves the folder; if that takes a while, a
            warning names it.

    Raises:
        RunError: Another process works there, or the folder cannot be written.
    """
    from filelock import FileLock, Timeout

    path = folder / LOCK_FILE
    with ExitStack() as stack:
        with explained(folder, "cannot be made", "Choose another folder.", error=RunError):
            stack.enter_context(made_folders(folder))
        lock = FileLock(path)
        with explained(path, "could not be written", "Choose another folder.", error=RunError):
            try:
                lock.acquire(timeout=PATIENCE if wait else 0)
            except Timeout as problem:
                fault = f"another command works there ({_holder(path)})"
                if not wait:
                    remedy = "Wait until it has ended, or choose another folder."
                    raise RunError(f"{folder}: {fault}. {remedy}") from problem
                logger.warning("%s: %s; waiting until it is done there", folder, fault)
                lock.acquire()
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            path.write_text(
                f"{what}, process {os.getpid()}, since {since} on {socket.gethostname()}"
            )
        try:
            yield
        finally:
            with suppress(
                OSError
            ):  # Windows removes no open file; who waits for it takes a new one
                path.unlink()
            lock.release()


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


@contextmanager
def file_locked(file: IO[bytes]) -> Iterator[None]:
    """Wait until no other process has locked an opened file, and lock it; not on Windows."""
    with suppress(ImportError, OSError):  # OSError: a file system without locks
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)
    yield  # closing the file unlocks it


def _holder(path: Path) -> str:
    """Return who holds a lock, as its file says."""
    with suppress(OSError, ValueError):
        if note := path.read_text()[:200]:
            return note
    return "it does not say which"


def is_leftover(path: Path) -> bool:
    """Return whether a file is a lock or a temporary file."""
    return path.name == LOCK_FILE or (path.name.startswith(".") and path.name.endswith(_SUFFIX))


def remove_leftovers(path: Path) -> None:
    """Remove what killed processes left beside a path, in a folder that this process has locked."""
    for left in path.parent.glob(f".{path.name}.*{_SUFFIX}"):
        left.unlink(missing_ok=True)


@contextmanager
def temporary_beside(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Yield the path of a temporary file, or a new folder, beside a path; access as by the umask.

    It is removed afterwards unless it was renamed; only a killed process leaves it behind.
    """
    place = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_SUFFIX}")
    try:
        if folder:
            place.mkdir()
        yield place
    finally:
        if folder:
            shutil.rmtree(place, ignore_errors=True)
        else:
            with suppress(OSError):
                place.unlink(missing_ok=True)


def check_new(target: Path, name: str | None = None) -> None:
    """Refuse a target that exists, except an empty folder, and an empty name of a data set."""
    if name is not None and not name.strip():
        raise DataError("name: is empty. Give one or leave it out.", setting="name")
    taken = target.exists() or target.is_symlink()  # exists() is False for a dangling link
    if taken and (not target.is_dir() or any(target.iterdir())):
        raise DataError(f"{target}: exists already. Choose another name or remove it first.")


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Fill a temporary folder and rename it to `target`; an error leaves nothing behind."""
    check_new(target)
    with ExitStack() as stack:
        with explained(target, "cannot be made", "Choose another folder."):
            stack.enter_context(made_folders(target.parent))
            temporary = stack.enter_context(temporary_beside(target, folder=True))
        left = "Nothing was left there."
        kinds = OSError, RunError  # RunError: `write_atomic` failed on a file in `temporary`
        with explained(target, "could not be written", left, *kinds, writes=True):
            yield temporary
            temporary.replace(target)
