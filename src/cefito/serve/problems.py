"""Errors as problem documents (RFC 9457), each with a remedy in one line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from asgi_correlation_id import correlation_id
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException

from cefito.errors import CefitoError

__all__ = ["MEDIA_TYPE", "Problem", "ProblemError", "invalid", "to_problem"]

MEDIA_TYPE = "application/problem+json"

# Settings of the library and the request fields that set them.
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
# Commands that remedies name, and the requests that replace them.
_CALLS = {"cefito data list shows": "GET /v1/model shows"}
_TITLES = {
    "busy": "The queue is full",
    "deadline": "The deadline has passed",
    "expensive": "The search would cost too much",
    "gone": "The client has disconnected",
    "host": "Wrong host or origin",
    "internal": "A defect of the service",
    "invalid": "The request is invalid",
    "no-encoder": "No encoder for uploads",
    "not-ready": "The service takes no requests now",
    "slow": "The request arrived too slowly",
    "token": "No valid token",
    "too-large": "The request is too large",
    "upload": "The upload cannot be used",
}
_BY_STATUS = {
    400: ("invalid", "the body cannot be read as its content type."),
    404: ("not-found", "there is nothing here. GET /docs lists the routes."),
    405: ("not-found", "this route does not take this method. GET /docs lists the routes."),
}
# Names that pydantic puts into a location for the alternatives of a union.
_ALTERNATIVES = ("str", "int", "list[float]", "constrained-str", "constrained-int")


class Problem(BaseModel):
    """An error (RFC 9457); further members are numbers that belong to its type."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="The kind of problem.", examples=["urn:cefito:invalid"])
    title: str = Field(description="The kind in words.")
    status: int = Field(description="HTTP status.")
    detail: str = Field(description="The reason and the remedy, in one line.")
    request_id: str
    field: str | None = Field(None, description="The request field at fault, if one is.")


class ProblemError(HTTPException):
    """A request that is answered by a problem document.

    Args:
        status: HTTP status.
        kind: Last part of the problem's type.
        detail: The reason and the remedy.
        field: The request field at fault.
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
        super().__init__(status, " ".join(detail.split()), headers)
        self.kind, self.field, self.numbers = kind, field, dict(numbers or {})

    def document(self) -> dict[str, Any]:
        """The problem document of the current request."""
        return {
            "type": f"urn:cefito:{self.kind}",
            "title": _TITLES.get(self.kind) or HTTPStatus(self.status_code).phrase,
            "status": self.status_code,
            "detail": self.detail,
            "request_id": correlation_id.get() or "",
            **({} if self.field is None else {"field": self.field}),
            **self.numbers,
        }

    def encoded(self) -> bytes:
        """The document as JSON in ASCII, since names in it may not be valid Unicode."""
        return json.dumps(self.document(), allow_nan=False).encode("ascii")


def invalid(detail: str, field: str | None = None, **numbers: float) -> ProblemError:
    """A request whose contents cannot be used (422)."""
    return ProblemError(422, "invalid", detail, field=field, numbers=numbers)


def to_problem(error: Exception, names: Mapping[str, str]) -> ProblemError:
    """Convert an error into the problem that answers the request.

    Args:
        error: A problem, or an error of the library, of pydantic or of Starlette.
        names: Names of runs and data sets by their folders, which clients must not see.
    """
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, RequestValidationError | ValidationError):
        return _of_validation(error.errors())
    if isinstance(error, CefitoError):
        detail = str(error)
        for old, new in (*names.items(), *_CALLS.items()):
            detail = detail.replace(old, new)
        return invalid(detail, _FIELDS.get(error.setting, error.setting) or None)
    assert isinstance(error, HTTPException)
    kind, detail = _BY_STATUS.get(error.status_code, ("invalid", str(error.detail)))
    return ProblemError(error.status_code, kind, detail, headers=error.headers)


def _of_validation(errors: Sequence[Any]) -> ProblemError:
    """The first of pydantic's errors, and the number of fields with others."""

    def location(error: Any) -> str:
        parts = [str(part) for part in error["loc"] if part not in ("body", *_ALTERNATIVES)]
        return ".".join(part for part in parts if not part.startswith("list["))

    field = location(errors[0])
    # Of a union, report the alternative that has the right type and a wrong value.
    first = next(
        (
            error
            for error in errors
            if location(error) == field and not error["type"].endswith("_type")
        ),
        errors[0],
    )
    others = len({location(error) for error in errors}) - 1
    place = f"{field[:200]}: " if field else ""
    message = first["msg"].removeprefix("Value error, ")
    more = f" ({others} more)" if others else ""
    return invalid(
        f"{place}{message}{more}. GET /openapi.json describes the fields.", field[:200] or None
    )
