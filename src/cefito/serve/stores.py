"""Where the lines of live sessions are kept: in files of one service, or in Valkey for several.

The first line says how a session was opened, and each of the others is an event. A line is appended
at the place up to which its writer has read, or not at all: of two workers that append at one place
the second is refused, reads what the first wrote, and tries again. So no worker needs to own a
session, and one that was paused cannot add to what others have gone on with.
"""

from __future__ import annotations

import errno
import math
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol

from cefito.errors import ConfigError, explained
from cefito.files import lines_of
from cefito.serve.settings import ServiceSettings, check_installed

if TYPE_CHECKING:
    from valkey.client import Pipeline, Valkey

PASSWORD_VARIABLE = "CEFITO_STORE_PASSWORD"
"""Environment variable that may hold the password of Valkey."""
_PATIENCE = 5.0  # seconds for Valkey to answer
_TOGETHER = 256  # lines read at a time


class BehindError(Exception):
    """A session has other lines than its reader has seen."""


class GoneError(Exception):
    """There is no such session."""


class SessionStore(Protocol):
    """Keeps lines of sessions by their ids; methods block (OSError if it cannot be used)."""

    shared: bool
    """Whether several services use it, and it ends the sessions that none of them uses."""
    name: str
    """Where it is, for the log."""
    told: float
    """When the log was last told that it cannot be used; −∞ before."""
    away: bool
    """Whether the log was told so, and not yet that it can be used again."""

    def left(self) -> Iterable[str]:
        """Return the ids of sessions of a service before this one, which must end them."""
        ...

    def append(self, id: str, place: int, line: str) -> int:
        """Append a line at a place; the place behind it.

        Args:
            id: Of the session.
            place: Up to which the writer has read; 0 begins a session.
            line: What is kept.

        Raises:
            BehindError: The lines do not end at the place.
            GoneError: There is no such session.
        """
        ...

    def read(self, id: str, place: int) -> Iterator[tuple[bytes, int]]:
        """Yield the lines from a place on, 0 for all, and the place behind each; a use of it.

        Args:
            id: Of the session.
            place: Up to which the reader has read.

        Raises:
            BehindError: The lines end before the place.
            GoneError: There is no such session.
        """
        ...

    def delete(self, id: str) -> None:
        """End a session, if there is one."""
        ...


def open_store(settings: ServiceSettings) -> SessionStore | None:
    """Open the store of a service (CefitoError); None if it keeps its sessions in memory alone."""
    if settings.session_store is not None:
        return ValkeyStore(settings.session_store, settings.limits.session_seconds)
    return None if settings.session_folder is None else FileStore(settings.session_folder)


class FileStore:
    """A file for each session in a folder `sessions` (DataError); places are numbers of bytes."""

    shared, told, away = False, -math.inf, False

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "sessions"
        self.name = str(self._folder)
        with explained(self._folder, "cannot be made", "Choose another folder."):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def left(self) -> Iterable[str]:
        """Return the names of all files."""
        return [file.stem for file in self._folder.glob("*.jsonl")]

    def append(self, id: str, place: int, line: str) -> int:
        """Append to the file; half a line at its end, which was not answered, is taken away."""
        data = f"{line}\n".encode()
        with self._opened(id, "r+b" if place else "xb", buffering=0) as opened:
            if (end := opened.seek(0, os.SEEK_END)) != place:
                opened.seek(place)
                if end < place or b"\n" in opened.read():
                    raise BehindError
                opened.truncate(place)
                opened.seek(place)
            if (written := opened.write(data)) < len(data):
                opened.truncate(place)
                raise OSError(errno.ENOSPC, f"its disk took {written} of {len(data)} bytes")
        return place + len(data)

    def read(self, id: str, place: int) -> Iterator[tuple[bytes, int]]:
        """Read the whole lines of the file."""
        with self._opened(id, "rb") as opened:
            if opened.seek(0, os.SEEK_END) < place:
                raise BehindError
            opened.seek(place)
            for line in lines_of(opened, self._file(id), ""):
                if not line.endswith(b"\n"):
                    return
                place += len(line)
                yield line, place

    def delete(self, id: str) -> None:
        """Remove the file."""
        with suppress(OSError):
            self._file(id).unlink()

    def _file(self, id: str) -> Path:
        return self._folder / f"{id}.jsonl"

    def _opened(self, id: str, mode: Literal["rb", "r+b", "xb"], buffering: int = -1) -> IO[bytes]:
        """Open a regular file itself (OSError): no link is followed, and no pipe is waited for."""

        def opener(name: str, flags: int) -> int:
            for more in ("O_NOFOLLOW", "O_NONBLOCK"):
                flags |= getattr(os, more, 0)
            return os.open(name, flags, 0o600)

        try:
            opened: IO[bytes] = open(self._file(id), mode, buffering, opener=opener)  # noqa: SIM115
        except FileNotFoundError as problem:
            raise GoneError from problem
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            opened.close()
            raise OSError("it is not a regular file")
        return opened


class ValkeyStore:
    """A stream for each session in a server of Valkey, or Redis; places are numbers of lines.

    The number of a line is that of its entry, and the server refuses an entry whose number is not
    beyond the last one's.

    Args:
        address: Of the server and its database, such as valkey://10.0.0.5:6379/0.
        seconds: For which a session is kept that nobody uses.

    Raises:
        ConfigError: The package valkey is not installed, or the server does not answer.
    """

    shared, told, away, name = True, -math.inf, False, "the session store"

    def __init__(self, address: str, seconds: float) -> None:
        check_installed("valkey", "valkey")
        from valkey import Valkey
        from valkey.exceptions import ValkeyError

        self._milliseconds, self._error = int(1e3 * seconds), ValkeyError
        remedy = (
            "Start it, give its address, such as valkey://10.0.0.5:6379/0, or put its password "
            f"into {PASSWORD_VARIABLE}."
        )
        refused = partial(explained, error=ConfigError, setting="session_store")
        with refused("the session store", "no answer", remedy, OSError, ValueError, ValkeyError):
            self._client: Valkey = Valkey.from_url(
                address,
                password=os.environ.get(PASSWORD_VARIABLE),
                socket_timeout=_PATIENCE,
                socket_connect_timeout=_PATIENCE,
            )
            self._client.ping()
            self._client.close()  # processes are forked, each with connections of its own

    def left(self) -> Iterable[str]:
        """Return nothing, since the server ends sessions that nobody uses."""
        return ()

    def append(self, id: str, place: int, line: str) -> int:
        """Append an entry to the stream."""
        asked, key = self._client.pipeline(), _key(id)
        asked.xadd(key, {"line": line}, f"{place + 1}-0", nomkstream=place > 0)
        asked.pexpire(key, self._milliseconds)
        added, _ = self._answers(asked)
        if added is None:
            raise GoneError
        return place + 1

    def read(self, id: str, place: int) -> Iterator[tuple[bytes, int]]:
        """Read the stream."""
        more = True
        while more:
            asked, key = self._client.pipeline(), _key(id)
            asked.xrange(key, f"({place}-0", count=_TOGETHER)
            asked.xlen(key)
            asked.pexpire(key, self._milliseconds)
            entries, length, _ = self._answers(asked)
            if not length:
                raise GoneError
            if length < place:
                raise BehindError
            more = len(entries) == _TOGETHER
            for number, fields in entries:
                place += 1
                if number != f"{place}-0".encode():
                    raise ValueError(f"line {place} is missing")
                yield fields[b"line"], place

    def delete(self, id: str) -> None:
        """Delete the stream."""
        asked = self._client.pipeline()
        asked.delete(_key(id))
        self._answers(asked)

    def _answers(self, asked: Pipeline) -> list[Any]:
        """Return the answers to commands, which are carried out together (OSError)."""
        try:
            answers: list[Any] = asked.execute(raise_on_error=False)
        except self._error as problem:
            raise OSError(str(problem)) from problem
        for answer in answers:
            if isinstance(answer, self._error):
                raise BehindError if "equal or smaller" in str(answer) else OSError(str(answer))
        return answers


def _key(id: str) -> str:
    return f"cefito:{id}"
