"""How a language model answered a query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Reply"]


@dataclass(frozen=True)
class Reply:
    """How a model outside of the library answered a query, of planners that ask one.

    Attributes:
        outcome: "kept" where its first answer was valid; "repaired" where a second one was, or
            plans could be made of an invalid one; "replaced" where other plans stand for it;
            "unasked" where it was stopped before.
        model: Name of the model that was asked for.
        host: Server that was asked.
        key: Digest of the request; equal ones were made once.
        served: The model that answered, as the server calls it.
        asked: When the answer was given, UTC, ISO 8601.
        requests: Requests that the answer took.
        prompt_tokens: Tokens that it read.
        completion_tokens: Tokens that it wrote.
    """

    outcome: Literal["kept", "repaired", "replaced", "unasked"]
    model: str
    host: str
    key: str = ""
    served: str = ""
    asked: str = ""
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
