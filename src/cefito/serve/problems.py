"""Errors as problem documents (RFC 9457), each with a remedy in one line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from asgi_correlation_id import correlation_id
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from cefito.errors import CefitoError, complaint
from cefito.search.constraints import declared

_MEDIA_TYPE = "application/problem+json"

# Settings of the library and the request fields that set them.
_FIELDS = {
    **{name: f"constraints.{how.option}" for name, (_, how) in declared().items()},
    "budget_gflop": "budget",
    "encoder": "",
    "feature_rate": "rate",
    "least": "min_probability",
    "features": "observations",
    "from_step": "video.step",
    "to_step": "video.last",
    "goal": "observations.goal",
    "initial": "observations.initial",
    "method": "search",
    "video": "video.id",
}
# Files that remedies name, and the requests that replace them.
_CALLS = {"taxonomy.json lists": "GET /v1/model lists"}
_KINDS = {
    "busy": (429, "The service is busy; Retry-After says when to try again"),
    "deadline": (504, "No answer was found before the deadline"),
    "expensive": (422, "The search would cost too much"),
    "gone": (499, "The client has disconnected"),
    "host": (421, "Unknown host name, or a page of another site"),
    "internal": (500, "A defect of the service"),
    "invalid": (422, "The request is invalid"),
    "no-encoder": (422, "No encoder for uploads"),
    "not-found": (404, "Not found"),
    "not-ready": (503, "The service is not ready; Retry-After says when to try again"),
    "role": (403, "The station may not do this"),
    "slow": (408, "The request arrived too slowly"),
    "token": (401, "No valid token"),
    "too-large": (413, "The request is too large"),
    "upload": (422, "The upload cannot be used"),
}
_BY_STATUS = {
    400: ("invalid", "the body cannot be read as its content type."),
    404: ("not-found", "there is nothing here. GET /docs lists the routes."),
    405: ("not-found", "this route does not take this method. GET /docs lists the routes."),
}
# Names that pydantic puts into a location for the alternatives of a union.
_ALTERNATIVES = ("str", "int", "list[float]", "constrained-str", "constrained-int")


class ProblemDetails(BaseModel):
    """An error (RFC 9457); further members are numbers that belong to its type."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="The kind of problem.", examples=["urn:cefito:invalid"])
    title: str = Field(description="The kind in words.")
    status: int = Field(description="HTTP status.")
    detail: str = Field(description="The reason and the remedy, in one line.")
    request_id: str
    field: str | None = Field(None, description="The request field at fault, if one is.")


class ProblemError(HTTPException):
    """A request that is answered by a problem document, with `numbers` as further members.

    Args:
        detail: The reason and the remedy; by default the title.
        field: Of the request, at fault.
        kind: Last part of the problem's type.
        status: HTTP status, if not the default of the kind.
        headers: Further headers of the answer.
        numbers: Further members.
    """

    def __init__(
        self,
        detail: str = "",
        field: str | None = None,
        *,
        kind: str = "invalid",
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        **numbers: float,
    ) -> None:
        default, self.title = _KINDS[kind]
        super().__init__(status or default, " ".join(detail.split()) or self.title, headers)
        self.kind, self.field, self.numbers = kind, field, numbers

    def document(self) -> dict[str, Any]:
        """The problem document of the current request."""
        return {
            "type": f"urn:cefito:{self.kind}",
            "title": self.title,
            "status": self.status_code,
            "detail": self.detail,
            "request_id": correlation_id.get() or "",
            **({} if self.field is None else {"field": self.field}),
            **self.numbers,
        }

    def response(self) -> Response:
        """The document as JSON in ASCII, since names in it may not be valid Unicode."""
        body = json.dumps(self.document(), allow_nan=False)
        return Response(body, self.status_code, self.headers, _MEDIA_TYPE)


_PROBLEM: dict[str, Any] = {
    "description": "A problem, whose type says which.",
    "model": ProblemDetails,
    "content": {_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}},
}
POSSIBLE_PROBLEMS: dict[int | str, dict[str, Any]] = {"4XX": _PROBLEM, "5XX": _PROBLEM}
"""Problems that routes may answer with, for the OpenAPI document."""


def to_problem(
    error: Exception, names: Mapping[str, str], content_type: str = "application/json"
) -> ProblemError:
    """Convert an error of the library, of pydantic or of Starlette into a problem.

    Args:
        error: The error.
        names: What replaces folders of the server, which clients must not see.
        content_type: Type of the request's body.
    """
    if isinstance(error, ProblemError):  # also one that says what the library said
        error.detail = _without_places(error.detail, names)
        return error
    if isinstance(error, RequestValidationError) and "json" not in content_type:
        first = error.errors()[0]
        if first["loc"] == ("body",) and isinstance(first["input"], bytes | str):
            sent = f"was sent as {content_type[:100]!r}" if content_type else "has no content type"
            return ProblemError(
                f"the body {sent}. Send the header 'Content-Type: application/json'.",
                "header.content-type",
            )
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            fault = f"{first['ctx']['error']} at character {first['loc'][-1]}"
            return ProblemError(f"the body is not JSON ({fault}).", status=400)
    if isinstance(error, RequestValidationError | ValidationError):
        return _of_validation(error.errors())
    if isinstance(error, CefitoError):
        detail = _without_places(str(error), names)
        return ProblemError(detail, _FIELDS.get(error.setting, error.setting) or None)
    assert isinstance(error, HTTPException)
    kind, detail = _BY_STATUS.get(error.status_code, ("invalid", str(error.detail)))
    return ProblemError(detail, kind=kind, status=error.status_code, headers=error.headers)


def _without_places(detail: str, names: Mapping[str, str]) -> str:
    """A message with names and routes in the place of folders and files of the server."""
    for old, new in (*names.items(), *_CALLS.items()):
        detail = detail.replace(old, new)
    return detail


def _of_validation(errors: Sequence[Any]) -> ProblemError:
    """The first of pydantic's errors, and the number of fields with others."""

    def location(error: Any) -> str:
        parts = [str(level) for level in error["loc"] if level not in ("body", *_ALTERNATIVES)]
        return ".".join(level for level in parts if not level.startswith("list["))

    field = location(errors[0])
    # Of a union, report the alternative that has the right type and a wrong value.
    alike = [error for error in errors if location(error) == field]
    first = next((error for error in alike if not error["type"].endswith("_type")), errors[0])
    others = len({location(error) for error in errors}) - 1
    place = f"{field[:200]}: " if field else ""
    more = f" ({others} more)" if others else ""
    detail = f"{place}{complaint(first)}{more}. GET /openapi.json describes the fields."
    return ProblemError(detail, field[:200] or None)
