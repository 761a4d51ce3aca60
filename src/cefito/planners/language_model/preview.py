"""What a language model would be told and how often it would be asked, before it is."""

from __future__ import annotations

from typing import Any

from cefito.errors import ConfigError
from cefito.planners.base import Planner, Queries
from cefito.planners.language_model.dialogue import expected_cost
from cefito.planners.language_model.planner import LlmPlanner
from cefito.planners.language_model.server import Server
from cefito.settings import Record

__all__ = ["Message", "Preview", "preview"]


class Message(Record):
    """One message of a request.

    Attributes:
        role: Who says it.
        content: What is said.
    """

    role: str
    content: str


class Preview(Record):
    """A request, and what asking for all queries would come to.

    Attributes:
        key: Digest of the request, by which its answer is kept.
        messages: What would be said.
        body: What would be sent beside it.
        model: Name of the model.
        server: Address of the server.
        queries: Number of queries.
        different: Different requests among them.
        known: How many of these are answered already.
        most: Most requests that would be made.
        budget: Most that may be.
    """

    key: str
    messages: list[Message]
    body: dict[str, Any]
    model: str
    server: str
    queries: int
    different: int
    known: int
    most: int
    budget: int


def preview(planner: Planner, queries: Queries, number: int = 0) -> Preview:
    """The request for one query, and the cost of all; nothing is asked.

    Args:
        planner: A planner that asks a language model.
        queries: The queries.
        number: Which of them, counted from 0.

    Raises:
        ConfigError: The planner asks none, or there is no such query.
        DataError: As `LlmPlanner.requests`.
        RunError: As `LlmPlanner.requests`, or the answers cannot be read.
    """
    if not isinstance(planner, LlmPlanner):
        raise ConfigError(f"{planner.name} asks no language model. Name a run of one that does.")
    if not 0 <= number < len(queries):
        raise ConfigError(
            f"window {number}: there are {len(queries):,}, counted from 0.", setting="window"
        )
    server, requests = Server.of(planner.config), planner.requests(queries)
    cost, request = expected_cost(requests, planner.config), requests[number]
    return Preview(
        key=request.key(server.host),
        messages=[Message(role=role, content=text) for role, text in request.messages],
        body=request.body,
        model=planner.config.model,
        server=server.place,
        queries=len(queries),
        different=cost.different,
        known=cost.known,
        most=cost.most,
        budget=cost.budget,
    )
