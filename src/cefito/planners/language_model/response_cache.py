"""All answers that were ever given, so that nothing is asked twice.

One file a server and model: a JSON object a line, appended as each answer comes, with the request
that it answers. Whoever is killed loses what was under way; a line that was cut short is passed
over, and several processes may write at the same time. The file may be read, passed on with
results, and removed at any time.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

from pydantic import ValidationError

from cefito.errors import ConfigError, RunError
from cefito.settings import Record

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["Answered", "ResponseCache", "open_book"]


class Answered(Record):
    """An answer as it came.

    Attributes:
        key: Of the request, as `Request.key` gives it.
        asked: When, UTC, ISO 8601.
        served: The model that answered, as the server calls it.
        content: What it said; empty where it refused.
        refusal: Why it refused; empty where it did not.
        finish: Why it ended: "stop", "length", …
        prompt_tokens: Tokens that it read, as the server counts.
        completion_tokens: Tokens that it wrote.
    """

    key: str
    asked: str
    served: str
    content: str
    refusal: str = ""
    finish: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0


class ResponseCache:
    """The answers of one model on one server.

    Attributes:
        path: The file.
    """

    _LINE_KEYS: ClassVar[frozenset[str]] = frozenset(Answered.model_fields)

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[str, Answered] = {}
        self._read_to = 0
        self._lock = threading.Lock()
        self._asking: dict[str, threading.Lock] = {}

    def refresh(self) -> None:
        """Read what was written since it was last read, by whomever.

        Raises:
            RunError: The file cannot be read.
        """
        with self._lock:
            self._refresh()

    def _refresh(self) -> None:
        try:
            size = self.path.stat().st_size
            if size < self._read_to:  # removed or replaced
                self._known, self._read_to = {}, 0
            if size == self._read_to:
                return
            with self.path.open("rb") as file:
                file.seek(self._read_to)
                data = file.read()
        except FileNotFoundError:
            self._known, self._read_to = {}, 0
            return
        except OSError as problem:
            raise RunError(
                f"{self.path}: cannot be read ({problem.strerror}). Name another cache."
            ) from problem
        whole = data[: data.rfind(b"\n") + 1]
        self._read_to += len(whole)
        for line in whole.splitlines():
            with suppress(ValueError, ValidationError, RecursionError):  # cut short
                value = json.loads(line)
                kept = {name: value[name] for name in self._LINE_KEYS & set(value)}
                answered = Answered.model_validate(kept, strict=True)
                self._known[answered.key] = answered

    def get(self, key: str) -> Answered | None:
        """The answer to a request, if it is known."""
        with self._lock:
            return self._known.get(key)

    def ask_once(self, key: str, ask: Callable[[], tuple[Answered, object]]) -> Answered:
        """The answer to a request: the known one, or a new one, which is kept before it is given.

        Threads that want the same wait for the first of them.

        Args:
            key: Of the request.
            ask: Makes the request; gives the answer and what is to stand beside it in the file.

        Raises:
            RunError: The file cannot be written, or as `ask`.
        """
        with self._lock:
            turn = self._asking.setdefault(key, threading.Lock())
        with turn:
            known = self.get(key)
            if known is None:
                known, question = ask()
                self._append({**known.model_dump(), "question": question})
                with self._lock:
                    self._known[key] = known
        with self._lock:
            self._asking.pop(key, None)
        return known

    def _append(self, value: object) -> None:
        line = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                if fcntl is not None:
                    with suppress(OSError):  # a file system without locks
                        fcntl.flock(handle, fcntl.LOCK_EX)
                end = os.lseek(handle, 0, os.SEEK_END)
                os.lseek(handle, max(end - 1, 0), os.SEEK_SET)
                if end and os.read(handle, 1) != b"\n":  # a killed process wrote half a line
                    line = b"\n" + line
                while line:
                    line = line[os.write(handle, line) :]
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as problem:
            raise RunError(
                f"{self.path}: an answer could not be kept ({problem.strerror}). Free some disk "
                "space or name another cache, and repeat the command."
            ) from problem


def open_book(folder: Path, host: str, model: str) -> ResponseCache:
    """The answers of a model on a server, as far as a folder has them; the folder is made.

    Args:
        folder: Where all answers are kept.
        host: Name of the server.
        model: Name of the model.

    Raises:
        ConfigError: The folder cannot be made.
        RunError: The file cannot be read.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the name
        reason = getattr(problem, "strerror", None) or problem
        raise ConfigError(
            f"{folder}: the folder that keeps answers cannot be made ({reason}). Choose another.",
            setting="llm.cache",
        ) from problem
    words = re.sub(r"[^\w.-]+", "-", f"{host}-{model}")[:80].strip("-.")
    digest = sha256(json.dumps([host, model]).encode()).hexdigest()[:8]
    book = _book(folder.resolve() / f"{words}-{digest}.jsonl")
    book.refresh()
    return book


@cache
def _book(path: Path) -> ResponseCache:
    """One a file and process, so that it is read once and all threads share it."""
    return ResponseCache(path)
