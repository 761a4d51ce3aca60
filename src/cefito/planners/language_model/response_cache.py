"""Cache of LLM responses: one SQLite file, which several threads and processes may share.

A response is committed as it comes, so that a killed process loses only the requests in flight.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cefito.errors import ConfigError, RunError
from cefito.planners.language_model.prompt import Request
from cefito.settings import Record

FILE = "responses.sqlite"
_TABLE = (
    "CREATE TABLE IF NOT EXISTS responses (key TEXT PRIMARY KEY, host TEXT NOT NULL, "
    "question TEXT NOT NULL, response TEXT NOT NULL)"
)
_locks: dict[str, threading.Lock] = {}  # one per requested key, for the threads of this process


class Response(Record):
    """A response of a server."""

    asked: str  # time of the response, UTC, ISO 8601
    served: str  # the model that answered, as the server calls it
    content: str  # empty after a refusal
    refusal: str = ""  # the reason for it
    finish: str = ""  # the reason for the end: "stop", "length", …
    prompt_tokens: int = 0
    completion_tokens: int = 0


class ResponseCache:
    """The responses in a folder, which is made if missing; to be closed."""

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as problem:  # ValueError: a NUL in the name
            reason = getattr(problem, "strerror", None) or problem
            raise ConfigError(
                f"{folder}: the response cache cannot be made ({reason}). Choose another folder.",
                setting="llm.cache",
            ) from problem
        self.path = folder / FILE
        self._lock = threading.Lock()
        with self._access():
            self._database = sqlite3.connect(
                self.path, timeout=60, isolation_level=None, check_same_thread=False
            )
            self._database.execute(_TABLE)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def get(self, key: str) -> Response | None:
        """Return the cached response to a request, or None."""
        with self._access():
            row = self._database.execute(
                "SELECT response FROM responses WHERE key = ?", (key,)
            ).fetchone()
        return None if row is None else Response.model_validate_json(row[0])

    def get_or_ask(self, request: Request, host: str, ask: Callable[[], Response]) -> Response:
        """Return the cached response, or ask and cache the response before it is returned.

        Threads that want the same response wait for the first of them.
        """
        key = request.key(host)
        with _locks.setdefault(key, threading.Lock()):
            if (cached := self.get(key)) is not None:
                return cached
            response = ask()
            values = (key, host, json.dumps(request.messages), response.model_dump_json())
            with self._access():
                self._database.execute(
                    "INSERT OR IGNORE INTO responses VALUES (?, ?, ?, ?)", values
                )
        return response

    @contextmanager
    def _access(self) -> Iterator[None]:
        try:
            with self._lock:  # all threads share one connection
                yield
        except sqlite3.Error as problem:
            raise RunError(
                f"{self.path}: the response cache cannot be read or written ({problem}). Free some "
                "disk space or choose another folder (llm.cache), and repeat the command."
            ) from problem
