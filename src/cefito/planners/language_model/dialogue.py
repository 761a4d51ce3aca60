"""Ask a language model about many queries: reuse cached responses, repair invalid answers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass

from cefito.errors import ConfigError
from cefito.planners.language_model.method import LlmConfig
from cefito.planners.language_model.prompt import (
    InvalidAnswerError,
    Request,
    parse,
    repair_request,
)
from cefito.planners.language_model.server import (
    Response,
    ResponseCache,
    Server,
    budget,
    cache_folder,
)
from cefito.progress import Progress, silent

logger = logging.getLogger(__name__)
_WORTH_A_WARNING = 20  # requests from which their number is logged as a warning

Respond = Callable[[Request], Response | None]  # None if the response is missing


@dataclass(frozen=True)
class Completion:
    """The outcome of one query's request and its repairs."""

    key: str  # of the first request in the cache
    sequence: tuple[int, ...] | None  # of the plan; None if no answer was valid
    repaired: bool  # the plan comes from a repair request
    responses: tuple[Response, ...]  # oldest first


def ask_all(
    requests: Sequence[Request],
    config: LlmConfig,
    *,
    stop: Callable[[], bool] | None = None,
    progress: Progress = silent,
) -> list[Completion | None]:
    """Return the completion of each query's request; None if `stop` returned True before.

    Equal requests are made once. Responses are cached as they come, so that repeating an
    interrupted or failed call continues it.
    """
    server, cache = Server.of(config), ResponseCache(cache_folder(config))
    ended = threading.Event()

    def stopped() -> bool:
        return ended.is_set() or (stop is not None and stop())

    def cached(request: Request) -> Response | None:
        return cache.get(request.key(server.host))

    firsts = {request.key(server.host): request for request in requests}
    found = {
        key: _converse(key, request, config.repairs, cached) for key, request in firsts.items()
    }
    missing = [key for key, completion in found.items() if completion is None]
    if missing and not stopped():
        _check_budget(len(missing) * (1 + config.repairs), server, config)
        with (
            progress(f"asking {config.model}", total=len(missing)) as advance,
            closing(server.client(config)) as client,
            ThreadPoolExecutor(config.concurrency, thread_name_prefix="cefito-llm") as pool,
        ):

            def respond(request: Request) -> Response | None:
                if stopped():
                    return None
                if (response := cached(request)) is None:
                    try:
                        response = server.ask(client, request)
                        cache.put(request, server.host, response)
                    except BaseException:
                        ended.set()  # the first error ends all
                        raise
                return response

            futures = {
                pool.submit(_converse, key, firsts[key], config.repairs, respond): key
                for key in missing
            }
            try:
                for future in as_completed(futures):
                    found[futures[future]] = future.result()
                    advance()
            finally:
                ended.set()
                pool.shutdown(cancel_futures=True)
    return [found[request.key(server.host)] for request in requests]


def _converse(key: str, request: Request, repairs: int, respond: Respond) -> Completion | None:
    """Ask, and ask again after invalid answers; None if a response is missing."""
    responses: list[Response] = []
    for attempt in range(1 + repairs):
        response = respond(request)
        if response is None:
            return None
        responses.append(response)
        try:
            return Completion(key, _parse(request, response), attempt > 0, tuple(responses))
        except InvalidAnswerError as problem:
            request = repair_request(request, response.content, str(problem))
    return Completion(key, None, True, tuple(responses))


def _check_budget(most: int, server: Server, config: LlmConfig) -> None:
    """Refuse more requests than the budget (ConfigError), and log their largest number."""
    allowed = budget(config)
    message = f"{config.model} at {server.place} may be asked {most:,} times"
    if most > allowed:
        raise ConfigError(
            f"{message}, but the budget is {allowed:,} requests; none was made. Raise it "
            "(llm.budget, or CEFITO_LLM_BUDGET in the environment), or score a sample.",
            setting="llm.budget",
        )
    level = logging.WARNING if most >= _WORTH_A_WARNING else logging.INFO
    logger.log(level, "%s; the budget is %s requests", message, f"{allowed:,}")


def _parse(request: Request, response: Response) -> tuple[int, ...]:
    if response.refusal:
        raise InvalidAnswerError("it refuses, but only ids of actions are asked for")
    try:
        return parse(request, response.content)
    except InvalidAnswerError as problem:
        if response.finish == "length":
            raise InvalidAnswerError("it was cut short") from problem
        raise
