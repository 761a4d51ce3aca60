"""The log of a service on stderr, as lines or JSON. Ids of live sessions are masked: secrets."""

from __future__ import annotations

import json
import logging.config
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from asgi_correlation_id import CorrelationIdFilter
from starlette.types import Scope
from uvicorn.logging import DefaultFormatter

from cefito.serve.settings import LogFormat, events_log
from cefito.serve.stations import TOKEN

requests_log = logging.getLogger("cefito.requests")

SESSION = "ses_"
"""Begin of a session's id, by which it is recognised wherever it is logged."""
MONITORED = ("/health", "/ready")
"""Paths that monitors ask every few seconds, without a token."""
_SECRETS = re.compile(rf"((?:{SESSION}|{TOKEN})[\w-]{{4}})[\w-]{{18,39}}")


def masked(text: str) -> str:
    """Return text with the first letters alone of the ids of sessions and of tokens in it."""
    return _SECRETS.sub(r"\1…", text)


def log_request(scope: Scope, status: int, seconds: float) -> None:
    """Log a request that has ended, but not that a monitor was told that all is well.

    Args:
        scope: Request, as ASGI describes it, with the route that answered.
        status: Status of the answer.
        seconds: Time from its arrival to the end of its answer.
    """
    alive = scope["path"] in MONITORED and status < 400
    if alive or not requests_log.isEnabledFor(logging.INFO):
        return
    host, port = scope.get("client") or ("", 0)
    query = scope["query_string"].decode("ascii", "backslashreplace")
    place = quote(scope["path"]) + f"?{query}" * bool(query)
    method, milliseconds = scope["method"], round(1e3 * seconds, 1)
    name = getattr(scope["state"].get("station"), "name", "")
    line = f'{host}:{port} {name or "-"} "{method} {place} HTTP/{scope["http_version"]}" {status}'
    facts = {
        "method": method,
        "path": getattr(scope.get("route"), "path", None),
        "status": status,
        "milliseconds": milliseconds,
        "client": host,
        **({"station": name} if name else {}),
    }
    requests_log.info("%s %.1f ms", line, milliseconds, extra={"facts": facts})


class TextLines(DefaultFormatter):
    """A line for each record: time, id of the request, level, message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with its traceback if there is one."""
        return masked(super().format(record))


class JsonLines(logging.Formatter):
    """An object of JSON for each record, on a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object."""
        facts: dict[str, Any] | None = getattr(record, "facts", None)
        traceback = {} if not record.exc_info else {"traceback": super().format(record)}
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": "request" if facts else record.getMessage(),
            "request_id": getattr(record, "correlation_id", None),
            **(facts or {}),
            **traceback,
        }
        return json.dumps(
            {name: masked(of) if isinstance(of, str) else of for name, of in entry.items()}
        )


@contextmanager
def logged_to_stderr(form: LogFormat, *, requests: bool) -> Iterator[None]:
    """Write warnings, what the service says of itself and perhaps requests to stderr meanwhile."""
    text = {"()": TextLines, "fmt": "%(asctime)s %(correlation_id)s %(levelprefix)s %(message)s"}
    as_json = form == "json"
    loggers = logging.getLogger(), requests_log, events_log
    before = [(logger, logger.level, [*logger.handlers]) for logger in loggers]
    stderr = {"class": "logging.StreamHandler", "stream": "ext://sys.stderr"}
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "filters": {
                "id": {"()": CorrelationIdFilter, "default_value": None if as_json else "-"}
            },
            "formatters": {"lines": {"()": JsonLines} if as_json else text},
            "handlers": {"stderr": {**stderr, "formatter": "lines", "filters": ["id"]}},
            "loggers": {
                requests_log.name: {"level": logging.INFO if requests else logging.WARNING},
                events_log.name: {"level": logging.INFO},
            },
            "root": {"handlers": ["stderr"], "level": logging.WARNING},
        }
    )
    logging.captureWarnings(as_json)
    try:
        yield
    finally:
        logging.captureWarnings(capture=False)
        for logger, level, handlers in before:
            logger.setLevel(level)
            logger.handlers[:] = handlers
