"""What became of a language model's answers: who gave them, when, and how many had to be mended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cefito.evaluation.record import FileRecord
from cefito.search.problem import Plans

__all__ = ["Replies", "replies_title", "summarised_replies"]


class Replies(FileRecord):
    """The answers to some queries.

    Attributes:
        model: Name of the model that was asked for.
        host: Server that was asked.
        served: The models that answered, as the server calls them.
        first: Day of the first answer, UTC; empty where there is none.
        last: Day of the last one.
        queries: Number of queries.
        repaired: Queries whose first answer was invalid and could be mended.
        replaced: Queries with no answer of use, for which other plans stand.
        unasked: Queries that were not asked, for which other plans stand.
        requests: Different requests with their repairs; queries may share one.
        prompt_tokens: Tokens that these read.
        completion_tokens: Tokens that they wrote.
    """

    model: str
    host: str
    served: tuple[str, ...]
    first: str
    last: str
    queries: int
    repaired: int
    replaced: int
    unasked: int
    requests: int
    prompt_tokens: int
    completion_tokens: int

    def in_words(self) -> str:
        """All of it in a line."""
        unasked = f", {self.unasked:,} were not asked" if self.unasked else ""
        return (
            f"{self.model} at {self.host}, {_days(self.first, self.last)}: of {self.queries:,} "
            f"queries {self.repaired:,} had to be repaired and {self.replaced:,} replaced"
            f"{unasked}; {self.requests:,} requests, {self.prompt_tokens:,} tokens read, "
            f"{self.completion_tokens:,} written"
        )


def summarised_replies(plans: Sequence[Plans]) -> Replies | None:
    """The answers that some queries' plans are of; None where no model was asked."""
    replies = [plan.reply for plan in plans if plan.reply is not None]
    if not replies:
        return None
    outcomes = Counter(reply.outcome for reply in replies)
    requests = {reply.key: reply for reply in replies if reply.key}.values()
    days = sorted(reply.asked[:10] for reply in requests)
    return Replies(
        model=replies[0].model,
        host=replies[0].host,
        served=tuple(sorted({reply.served for reply in requests})),
        first=days[0] if days else "",
        last=days[-1] if days else "",
        queries=len(replies),
        repaired=outcomes["repaired"],
        replaced=outcomes["replaced"],
        unasked=outcomes["unasked"],
        requests=sum(reply.requests for reply in requests),
        prompt_tokens=sum(reply.prompt_tokens for reply in requests),
        completion_tokens=sum(reply.completion_tokens for reply in requests),
    )


def replies_title(replies: Sequence[Replies | None]) -> str:
    """What a row's title in tables says of its answers: model, days, shares that were mended.

    Args:
        replies: Of each of its cells.
    """
    known = [entry for entry in replies if entry is not None]
    if not known:
        return ""
    queries = sum(entry.queries for entry in known)
    repaired = 100 * sum(entry.repaired for entry in known) / queries
    replaced = 100 * sum(entry.replaced + entry.unasked for entry in known) / queries
    models = "/".join(dict.fromkeys(entry.model for entry in known))
    days = [day for entry in known for day in (entry.first, entry.last) if day]
    return (
        f" ({models}, {_days(min(days, default=''), max(days, default=''))}, {repaired:.1f} % "
        f"repaired, {replaced:.1f} % replaced)"
    )


def _days(first: str, last: str) -> str:
    if not first:
        return "not asked"
    return first if first == last else f"{first} to {last}"
