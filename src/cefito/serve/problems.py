"""Errors as problem documents (RFC 9457), with the library's own one-line remedy."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from cefito.errors import CefitoError

__all__ = ["MEDIA_TYPE", "Problem", "ProblemError", "of_error"]

MEDIA_TYPE = "application/problem+json"

# What the library calls otherwise than requests do.
_FIELDS = {
    "before": "constraints.before",
    "budget_gflop": "budget",
    "encoder": "",
    "features": "observations",
    "forbidden": "constraints.forbid",
    "from_step": "video.step",
    "method": "search",
    "pinned": "constraints.pin",
    "required": "constraints.require",
    "video": "video.id",
}

# Remedies that name a command, and what a client calls in its place.
_CALLS = {"cefito data list shows": "GET /v1/model shows"}


class Problem(BaseModel):
    """What went wrong, as RFC 9457 has it; further members are numbers that belong to the kind.

    Attributes:
        type: The kind of problem.
        title: The kind in words.
        status: HTTP status.
        detail: What was found and what to do, in one line.
        request_id: Of the request.
        field: The field of the request that is to blame, where there is one.
    """

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["urn:cefito:invalid"])
    title: str
    status: int
    detail: str
    request_id: str
    field: str | None = None


class ProblemError(Exception):
    """A request that is answered by a problem.

    Attributes:
        status: HTTP status.
        kind: Last part of the problem's type.
        detail: What was found and what to do, in one line.
        field: The field of the request that is to blame.
        numbers: Further members of the document.
        headers: Further headers of the response.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        field: str | None = None,
        numbers: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.kind, self.detail = status, kind, " ".join(detail.split())
        self.field, self.numbers, self.headers = field, dict(numbers or {}), dict(headers or {})

    def document(self, request_id: str) -> dict[str, Any]:
        """The document."""
        field = {} if self.field is None else {"field": self.field}
        return {
            "type": f"urn:cefito:{self.kind}",
            "title": _TITLES.get(self.kind) or HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "request_id": request_id,
            **field,
            **self.numbers,
        }


_TITLES = {
    "busy": "The queue is full",
    "deadline": "The deadline has passed",
    "gone": "The client has gone",
    "host": "Called by a name that is not its own",
    "internal": "A defect of the service",
    "invalid": "The request cannot be answered as it is",
    "no-encoder": "No encoder for uploads",
    "not-ready": "The service takes no requests now",
    "slow": "The request came too slowly",
    "token": "No valid token",
    "too-dear": "The search would take too much",
    "too-large": "The request is too large",
    "upload": "The upload cannot be used",
}


def of_error(problem: CefitoError, names: Mapping[str, str] | None = None) -> ProblemError:
    """An error of the library as a refusal.

    Args:
        problem: The error.
        names: What is said in the place of folders of the server, which are nobody's business.
    """
    detail = str(problem)
    for folder, name in (names or {}).items():
        detail = detail.replace(folder, name)
    for command, call in _CALLS.items():
        detail = detail.replace(command, call)
    setting = problem.setting
    return ProblemError(422, "invalid", detail, field=_FIELDS.get(setting, setting) or None)
