"""Asking for many queries: what is known is not asked again, what is invalid is asked once more."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass

from cefito.errors import ConfigError
from cefito.planners.language_model.parsing import (
    InvalidAnswerError,
    Sequences,
    parse_leniently,
    read,
)
from cefito.planners.language_model.prompt import Request, next_request
from cefito.planners.language_model.response_cache import Answered, ResponseCache, open_book
from cefito.planners.language_model.server import Server, budget, cache_folder
from cefito.planners.language_model.settings import LlmConfig
from cefito.progress import Progress, silent

__all__ = ["Asked", "Cost", "ask_all", "expected_cost"]

logger = logging.getLogger(__name__)
_WORTH_A_WARNING = 20  # requests of which a command says beforehand how many they may be


@dataclass(frozen=True)
class Asked:
    """What came of a query's request.

    Attributes:
        key: Of its first request.
        sequences: Plans, best first; none where no answer held any.
        repaired: Whether they are of a second answer, or made of invalid ones.
        answers: All answers, in the order in which they were asked for.
    """

    key: str
    sequences: Sequences
    repaired: bool
    answers: tuple[Answered, ...]


@dataclass(frozen=True)
class Cost:
    """What asking would come to.

    Attributes:
        different: Different requests among those of all queries.
        known: How many of them are answered already.
        most: Most requests that would be made.
        budget: Most that may be.
    """

    different: int
    known: int
    most: int
    budget: int


class _UnknownError(Exception):
    """A request has no known answer."""


def ask_all(
    requests: Sequence[Request],
    config: LlmConfig,
    *,
    stop: Callable[[], bool] | None = None,
    progress: Progress = silent,
) -> list[Asked | None]:
    """Ask for all queries.

    Equal requests are made once. Answers are kept as they come, so that what is interrupted or
    fails goes on where it was.

    Args:
        requests: Of each query.
        config: Whom to ask, and how.
        stop: Asked now and then; once it says so, nothing more is asked.
        progress: Shows progress.

    Returns:
        What came of each; None where it was stopped before.

    Raises:
        ConfigError: More requests than the budget allows, or the server does not take them.
        RunError: The server cannot be reached or fails.
    """
    server, book = _opened(config)
    keyed = {request.key(server.host): request for request in requests}
    keys = [request.key(server.host) for request in requests]
    found = {key: _known(request, server, book, config) for key, request in keyed.items()}
    missing = [key for key, asked in found.items() if asked is None]
    if missing and not (stop is not None and stop()):
        _check_budget(_most(missing, keyed, server, book, config), server, config)
        found |= _ask({key: keyed[key] for key in missing}, server, book, config, stop, progress)
    return [found[key] for key in keys]


def expected_cost(requests: Sequence[Request], config: LlmConfig) -> Cost:
    """What asking for all queries would come to, without asking.

    Raises:
        ConfigError: As `check_asking`, or the folder of answers cannot be made.
        RunError: The answers cannot be read.
    """
    server, book = _opened(config)
    keyed = {request.key(server.host): request for request in requests}
    missing = [
        key for key, request in keyed.items() if _known(request, server, book, config) is None
    ]
    return Cost(
        different=len(keyed),
        known=len(keyed) - len(missing),
        most=_most(missing, keyed, server, book, config),
        budget=budget(config),
    )


def _opened(config: LlmConfig) -> tuple[Server, ResponseCache]:
    server = Server.of(config)
    return server, open_book(cache_folder(config), server.host, config.model)


def _most(
    missing: Sequence[str],
    keyed: dict[str, Request],
    server: Server,
    book: ResponseCache,
    config: LlmConfig,
) -> int:
    """Most requests that may be needed, each perhaps with all its repairs."""
    tries = 1 + config.repairs
    return sum(tries - _answers(keyed[key], server, book, tries) for key in missing)


def _answers(request: Request, server: Server, book: ResponseCache, tries: int) -> int:
    """How many answers of a conversation are known."""
    count = 0
    for _ in range(tries):
        answered = book.get(request.key(server.host))
        if answered is None:
            break
        count += 1
        problem = _problem(request, answered)
        request = next_request(request, answered.content, problem or "")
    return count


def _check_budget(most: int, server: Server, config: LlmConfig) -> None:
    allowed = budget(config)
    what = f"{config.model} at {server.place} would be asked up to {most:,} times"
    if most > allowed:
        raise ConfigError(
            f"{what}, but the budget is {allowed:,} requests; none was made. Raise it "
            "(llm.budget, or CEFITO_LLM_BUDGET in the environment), or score a sample.",
            setting="llm.budget",
        )
    level = logging.WARNING if most >= _WORTH_A_WARNING else logging.INFO
    logger.log(level, "%s; the budget is %s requests", what, f"{allowed:,}")


def _ask(
    requests: dict[str, Request],
    server: Server,
    book: ResponseCache,
    config: LlmConfig,
    stop: Callable[[], bool] | None,
    progress: Progress,
) -> dict[str, Asked | None]:
    """Make requests by several threads, a few ahead of the answers; the first error ends all."""
    found: dict[str, Asked | None] = {}
    ended = threading.Event()
    label = f"asking {config.model}"
    with (
        progress(label, total=len(requests)) as advance,
        closing(server.client(config)) as client,
        ThreadPoolExecutor(config.concurrency, thread_name_prefix="cefito-llm") as pool,
    ):

        def answer(request: Request, key: str) -> Answered:
            if ended.is_set():
                raise _UnknownError
            return book.ask_once(key, lambda: server.ask(client, request, key))

        running: dict[Future[Asked | None], str] = {}
        waiting = iter(requests.items())
        try:
            while True:
                while len(running) < config.concurrency and not (stop is not None and stop()):
                    key, request = next(waiting, ("", None))
                    if request is None:
                        break
                    running[pool.submit(_unless_ended, request, server, config, answer)] = key
                if not running:
                    return found
                done, _ = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
                for future in done:
                    found[running.pop(future)] = future.result()
                    advance()
        finally:
            ended.set()
            for future in running:
                future.cancel()


def _unless_ended(
    request: Request,
    server: Server,
    config: LlmConfig,
    answer: Callable[[Request, str], Answered],
) -> Asked | None:
    try:
        return _converse(request, server, config, answer)
    except _UnknownError:
        return None


def _known(
    request: Request, server: Server, book: ResponseCache, config: LlmConfig
) -> Asked | None:
    """What came of a request, if all answers that it takes are known."""

    def answer(_: Request, key: str) -> Answered:
        answered = book.get(key)
        if answered is None:
            raise _UnknownError
        return answered

    return _unless_ended(request, server, config, answer)


def _converse(
    request: Request,
    server: Server,
    config: LlmConfig,
    answer: Callable[[Request, str], Answered],
) -> Asked:
    """Ask, and where the answer is invalid ask again; at last make of it what can be made."""
    first, answers = request.key(server.host), []
    asked = []
    for number in range(1 + config.repairs):
        answered = answer(request, request.key(server.host))
        answers.append(answered)
        asked.append(request)
        try:
            return Asked(first, _read(request, answered), number > 0, tuple(answers))
        except InvalidAnswerError as problem:
            request = next_request(request, answered.content, str(problem))
    for answered in reversed(answers):
        sequences = parse_leniently(asked[0], answered.content)
        if sequences:
            return Asked(first, sequences, True, tuple(answers))
    return Asked(first, (), True, tuple(answers))


def _read(request: Request, answered: Answered) -> Sequences:
    if answered.refusal:
        raise InvalidAnswerError("it refuses, but only ids of actions are asked for")
    try:
        return read(request, answered.content)
    except InvalidAnswerError as problem:
        if answered.finish == "length":
            raise InvalidAnswerError("it was cut short") from problem
        raise


def _problem(request: Request, answered: Answered) -> str | None:
    """What is wrong with an answer; None where nothing is."""
    try:
        _read(request, answered)
    except InvalidAnswerError as problem:
        return str(problem)
    return None
