"""Delivery of events to a URL or a command: in order, at least once, also over a kill.

Events wait in a spool, a file of SQLite, until the receiver acknowledges them. A process that was
killed leaves them there; the next one on the spool delivers them first.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import http.client
import os
import shlex
import shutil
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib import request
from urllib.error import HTTPError
from urllib.parse import urlsplit

from pydantic import SecretStr

from cefito.errors import ConfigError, RunError, explained, reason
from cefito.files import read_text
from cefito.line.events import Event
from cefito.markup import counted

SECRET_VARIABLE = "CEFITO_EVENT_SECRET"
"""Environment variable that may hold the secrets of signatures."""
MOST = 10_000
"""Events of a full spool."""
TIMEOUT = 30.0
"""Seconds that a receiver may take for an event."""
_PREFIX = "whsec_"
_SECRET_BYTES = range(24, 65)  # of Standard Webhooks
_MARK = 0x63657674  # application of the file: "cevt"
_GONE = 410


class DeliveryError(Exception):
    """The receiver did not acknowledge an event.

    Args:
        why: The reason, in words.
        after: Seconds after which the receiver wants to be asked again.
        ended: Whether it wants no more events.
    """

    def __init__(self, why: str, *, after: float = 0.0, ended: bool = False) -> None:
        super().__init__(why)
        self.after, self.ended = after, ended


class Spooled(NamedTuple):
    """An event in a spool."""

    number: int
    id: str
    body: str  # JSON


class Spool:
    """Events that wait for their delivery, in a file, in order; one process at a time has it.

    Args:
        path: The file, which is made if missing.
        most: Number of events from which on it is full.

    Raises:
        RunError: Another process has it, or it cannot be written or is another kind of file.
    """

    def __init__(self, path: Path, most: int = MOST) -> None:
        self.path, self.most = path, most
        remedy = "Name another file."
        with explained(path, "cannot be made", remedy, error=RunError, setting="event_spool"):
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._file = sqlite3.connect(
                path, timeout=0, isolation_level=None, check_same_thread=False
            )
            with ExitStack() as stack:
                stack.callback(self._file.close)
                self._open()
                stack.pop_all()
        except sqlite3.Error as problem:
            taken = "locked" in str(problem)
            fault = "another process delivers its events" if taken else f"is no spool ({problem})"
            raise RunError(f"{path}: {fault}. {remedy}", setting="event_spool") from problem

    def _open(self) -> None:
        run = self._file.execute
        run("PRAGMA locking_mode = EXCLUSIVE")  # a lock of the system, which ends with the process
        run("PRAGMA synchronous = FULL")
        run("PRAGMA journal_mode = WAL")  # one write to the disk an event
        run("BEGIN EXCLUSIVE")
        (mark,), (tables,) = (
            run(query).fetchone()
            for query in ("PRAGMA application_id", "SELECT count(*) FROM sqlite_master")
        )
        if tables and mark != _MARK:
            raise sqlite3.DatabaseError("a file of another program")
        run(f"PRAGMA application_id = {_MARK}")
        run(
            "CREATE TABLE IF NOT EXISTS events"
            "(number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, body TEXT NOT NULL)"
        )
        run("COMMIT")
        self._count: int = run("SELECT count(*) FROM events").fetchone()[0]

    def __len__(self) -> int:
        return self._count

    def add(self, event: Event) -> None:
        """Add an event, which is on the disk when this returns (RunError if it cannot be)."""
        try:
            values = event.id, event.model_dump_json()
            self._file.execute("INSERT INTO events(id, body) VALUES (?, ?)", values)
        except sqlite3.Error as problem:
            remedy = "Free some disk space, or name another file."
            raise RunError(f"{self.path}: cannot be written ({problem}). {remedy}") from problem
        self._count += 1

    def first(self) -> Spooled | None:
        """Return the oldest event."""
        query = "SELECT number, id, body FROM events ORDER BY number LIMIT 1"
        row = self._file.execute(query).fetchone()
        return None if row is None else Spooled(*row)

    def remove(self, number: int) -> None:
        """Delete an event."""
        self._count -= self._file.execute("DELETE FROM events WHERE number = ?", [number]).rowcount

    def close(self) -> None:
        """Leave the file to other processes."""
        self._file.close()


Deliver = Callable[[Spooled], None]
"""Delivers an event, or raises `DeliveryError`."""


class Delivery:
    """A thread that delivers the events of a spool.

    Args:
        spool: The spool, which the delivery closes.
        deliver: Delivers an event.
        say: Takes messages for people.
        pauses: Seconds after the first failure of an event, which double each time, and at most.
    """

    def __init__(
        self,
        spool: Spool,
        deliver: Deliver,
        say: Callable[[str], None],
        *,
        pauses: tuple[float, float] = (0.5, 60.0),
    ) -> None:
        self._spool, self._deliver, self._say = spool, deliver, say
        self._first_pause, self._longest = pauses
        self._changed = threading.Condition()
        self._ending = self._stopped = self._said_full = False
        self._gone = ""  # why the receiver wants no more events
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()

    @property
    def path(self) -> Path:
        """The file of the spool."""
        return self._spool.path

    def put(self, event: Event, *, wait: bool = True) -> None:
        """Keep an event for delivery; wait while the spool is full, and say so once.

        Raises:
            RunError: The spool cannot be written, or is full and the receiver wants no more events.
        """
        with self._changed:
            while wait and len(self._spool) >= self._spool.most:
                full = f"{self._spool.path}: holds {counted(len(self._spool), 'event')}"
                if self._gone:
                    raise RunError(f"{full}, and {self._gone}. Give another receiver.")
                if not self._said_full:
                    self._say(f"{full}: following waits until the receiver takes some")
                self._said_full = True
                self._changed.wait(1.0)
            self._spool.add(event)
            self._changed.notify_all()

    def close(self, seconds: float) -> int:
        """Wait until all events are delivered, at most some seconds; return how many remain."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
            until = time.monotonic() + seconds
            while len(self._spool) and not self._gone and (left := until - time.monotonic()) > 0:
                self._changed.wait(min(left, 1.0))
            remaining = len(self._spool)
            self._stopped = True
            self._spool.close()
            self._changed.notify_all()
        return remaining

    def _run(self) -> None:
        pause = 0.0  # 0 as long as events are acknowledged
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopped or len(self._spool))
                if self._stopped:
                    return
            try:
                self._deliver_first()
            except (DeliveryError, sqlite3.Error) as problem:
                with self._changed:
                    if self._stopped:
                        return
                    ended = isinstance(problem, DeliveryError) and problem.ended
                    if ended or not pause:
                        then = "no event follows" if ended else "it is asked again"
                        self._say(f"an event waits: {problem}; {then}")
                    if ended:
                        self._gone = str(problem)
                        self._changed.notify_all()
                        return
                    pause = min(max(2 * pause, self._first_pause), self._longest)
                    self._rest(min(max(pause, getattr(problem, "after", 0.0)), self._longest))
            else:
                if pause:
                    self._say("the receiver takes events again")
                pause = 0.0

    def _deliver_first(self) -> None:
        with self._changed:
            event = None if self._stopped else self._spool.first()
        if event is None:
            return
        self._deliver(event)
        with self._changed:
            if not self._stopped:
                self._spool.remove(event.number)
                self._changed.notify_all()

    def _rest(self, seconds: float) -> None:
        """Wait before the next attempt, at most a second from when the film has ended."""
        until = time.monotonic() + min(seconds, self._longest)
        while not self._stopped and (left := until - time.monotonic()) > 0:
            self._changed.wait(min(left, 1.0))
            if self._ending:
                return


def open_receiver(
    target: str, secrets: tuple[SecretStr, ...] = (), *, timeout: float = TIMEOUT
) -> Deliver:
    """Return what delivers events to a URL, as requests of POST, or to a command, on its input.

    A URL acknowledges an event by a status from 200 to 299, a command by the exit code 0. Requests
    have the headers of Standard Webhooks, signed with each of the secrets.

    Args:
        target: URL of http or https, or a command with its arguments.
        secrets: Secrets of signatures, as `read_secrets` returns them.
        timeout: Seconds that a receiver may be silent; a command, that it may run.

    Raises:
        ConfigError: A URL without a host or with a password, or a command that there is not.
    """
    if "://" in target.partition(" ")[0]:
        usable = False
        with suppress(ValueError):  # no address of IPv6, or no number of a port
            parts = urlsplit(target)
            named = parts.hostname and "@" not in parts.netloc and parts.port != 0
            usable = bool(named) and parts.scheme in ("http", "https")
        if not usable:
            fault = "expected http:// or https:// with a host, without a password"
            raise ConfigError(f"--on-event: {fault}.", setting="on_event")
        keys = [base64.b64decode(secret.get_secret_value()) for secret in secrets]
        return lambda event: _post(target, event, keys, timeout)
    try:
        words = shlex.split(target, posix=os.name != "nt")
    except ValueError as problem:
        raise ConfigError(f"{target}: {problem}.", setting="on_event") from problem
    if not words:
        raise ConfigError("--on-event: expected a URL or a command.", setting="on_event")
    if shutil.which(words[0]) is None:
        raise ConfigError(f"{target}: there is no such command.", setting="on_event")
    return lambda event: _run_command(words, event, timeout)


class _NoRedirects(request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow none: the signature and the facts are for the address that was given."""


def _post(url: str, event: Spooled, keys: list[bytes], timeout: float) -> None:
    now, body = str(int(time.time())), event.body.encode()
    headers = {"content-type": "application/json", "webhook-id": event.id, "webhook-timestamp": now}
    if keys:
        signed = f"{event.id}.{now}.".encode() + body
        digests = (hmac.digest(key, signed, hashlib.sha256) for key in keys)
        headers["webhook-signature"] = " ".join(
            f"v1,{base64.b64encode(digest).decode()}" for digest in digests
        )
    asked = request.Request(url, body, headers, method="POST")
    try:
        with closing(request.build_opener(_NoRedirects).open(asked, timeout=timeout)):
            pass
    except HTTPError as problem:
        problem.close()
        after, said = problem.headers.get("retry-after", ""), f"the receiver answers {problem.code}"
        if 300 <= problem.code < 400:
            said += ", a redirect, which is not followed"
        seconds = float(after) if after.isdecimal() else 0.0
        raise DeliveryError(said, after=seconds, ended=problem.code == _GONE) from None
    except (OSError, http.client.HTTPException, ValueError) as problem:
        why = reason(getattr(problem, "reason", None) or problem)
        raise DeliveryError(f"the receiver cannot be reached ({why})") from None


def _run_command(words: list[str], event: Spooled, timeout: float) -> None:
    try:
        done = subprocess.run(
            words,
            input=event.body.encode(),
            stdout=subprocess.DEVNULL,  # stdout has the records of the film
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DeliveryError(f"the command runs for more than {timeout:g} s") from None
    except OSError as problem:
        raise DeliveryError(f"the command cannot be run ({reason(problem)})") from None
    if done.returncode:
        raise DeliveryError(f"the command exits with {done.returncode}")


def read_secrets(path: Path | None) -> tuple[SecretStr, ...]:
    """Read secrets of signatures from a file, otherwise from the environment: base64, a line each.

    Several are for a change of the secret: requests are signed with each of them.

    Raises:
        ConfigError: The file cannot be read, or holds something else.
    """
    place = str(path) if path else f"${SECRET_VARIABLE}"
    expected = f"expected {_PREFIX} and 24 to 64 bytes in base64 a line"
    if path:
        remedy = "Give a file of secrets."
        lines = read_text(path, remedy, ConfigError, setting="event_secret").split()
    else:
        lines = os.environ.get(SECRET_VARIABLE, "").split()
    for line in lines:
        try:
            size = len(base64.b64decode(line.removeprefix(_PREFIX), validate=True))
        except binascii.Error:
            size = 0
        if size not in _SECRET_BYTES or not line.startswith(_PREFIX):
            raise ConfigError(f"{place}: {expected}.", setting="event_secret" if path else "")
    if path and not lines:
        raise ConfigError(f"{place}: is empty; {expected}.", setting="event_secret")
    return tuple(SecretStr(line.removeprefix(_PREFIX)) for line in lines)
