"""Ask a language model about many queries: reuse cached responses, repair invalid answers."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass

from cefito.errors import ConfigError
from cefito.planners.language_model.method import LlmConfig
from cefito.planners.language_model.prompt import Request, repair_request
from cefito.planners.language_model.server import (
    Response,
    ResponseCache,
    Server,
    budget,
    cache_folder,
)
from cefito.progress import Progress, silent

_FENCE = re.compile(r"\A```\w*\n(.*)\n```\Z", re.DOTALL)


class InvalidAnswerError(ValueError):
    """The answer does not have the requested form; the message is for the model."""


def parse(request: Request, content: str) -> tuple[int, ...]:
    """Return the plan of a JSON object of exactly the requested steps."""
    text = content.strip()
    fenced = _FENCE.match(text)
    try:
        value = json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError) as problem:
        raise InvalidAnswerError("it is not valid JSON") from problem
    names = [f"step_{step}" for step in range(1, len(request.choices) + 1)]
    if not isinstance(value, dict) or set(value) != set(names):
        raise InvalidAnswerError(f"expected an object of {', '.join(names)}")
    for name, allowed in zip(names, request.choices, strict=True):
        given = value[name]
        if type(given) is not int or given not in allowed:
            shown = json.dumps(given)[:40]
            raise InvalidAnswerError(
                f"{name} is {shown}, expected one of {', '.join(map(str, allowed))}"
            )
    return tuple(value[name] for name in names)


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


class _Dialogue:
    """The different requests of some queries, and their completions as far as cached.

    `most` is the number of requests to the server if every missing one needs all repairs.
    """

    def __init__(
        self, requests: Sequence[Request], cache: ResponseCache, config: LlmConfig
    ) -> None:
        self.server, self.config = Server.of(config), config
        self.host = self.server.host
        self.requests = {request.key(self.host): request for request in requests}
        self.found: dict[str, Completion | None] = {}
        self.most = 0
        for key, request in self.requests.items():
            count, self.found[key] = self.converse(
                request, lambda request: cache.get(request.key(self.host))
            )
            if self.found[key] is None:
                self.most += 1 + config.repairs - count

    def converse(self, first: Request, respond: Respond) -> tuple[int, Completion | None]:
        """Ask, and ask again after invalid answers.

        Return the number of responses, and the completion; None if a response is missing.
        """
        key, request, responses = first.key(self.host), first, list[Response]()
        for attempt in range(1 + self.config.repairs):
            response = respond(request)
            if response is None:
                return len(responses), None
            responses.append(response)
            try:
                sequence = _parse(request, response)
                return len(responses), Completion(key, sequence, attempt > 0, tuple(responses))
            except InvalidAnswerError as problem:
                request = repair_request(request, response.content, str(problem))
        return len(responses), Completion(key, None, True, tuple(responses))


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
    with closing(ResponseCache(cache_folder(config))) as cache:
        dialogue = _Dialogue(requests, cache, config)
        if None in dialogue.found.values() and not (stop is not None and stop()):
            _check_budget(dialogue)
            _ask_missing(dialogue, cache, stop, progress)
        return [dialogue.found[request.key(dialogue.host)] for request in requests]


def _check_budget(dialogue: _Dialogue) -> None:
    most, allowed = dialogue.most, budget(dialogue.config)
    message = f"{dialogue.config.model} at {dialogue.server.place} may be asked {most:,} times"
    if most > allowed:
        raise ConfigError(
            f"{message}, but the budget is {allowed:,} requests; none was made. Raise it "
            "(llm.budget, or CEFITO_LLM_BUDGET in the environment), or score a sample.",
            setting="llm.budget",
        )
    level = logging.WARNING if most >= _WORTH_A_WARNING else logging.INFO
    logger.log(level, "%s; the budget is %s requests", message, f"{allowed:,}")


def _ask_missing(
    dialogue: _Dialogue, cache: ResponseCache, stop: Callable[[], bool] | None, progress: Progress
) -> None:
    """Complete the missing requests in several threads; the first error ends all."""
    missing = [key for key, completion in dialogue.found.items() if completion is None]
    server, config, ended = dialogue.server, dialogue.config, threading.Event()
    with (
        progress(f"asking {config.model}", total=len(missing)) as advance,
        closing(server.client(config)) as client,
        ThreadPoolExecutor(config.concurrency, thread_name_prefix="cefito-llm") as pool,
    ):

        def respond(request: Request) -> Response | None:
            if ended.is_set() or (stop is not None and stop()):
                return None
            if (response := cache.get(request.key(server.host))) is None:
                try:
                    response = server.ask(client, request)
                    cache.put(request, server.host, response)
                except BaseException:
                    ended.set()
                    raise
            return response

        futures = {
            pool.submit(dialogue.converse, dialogue.requests[key], respond): key for key in missing
        }
        try:
            for future in as_completed(futures):
                _, dialogue.found[futures[future]] = future.result()
                advance()
        finally:
            ended.set()
            pool.shutdown(cancel_futures=True)


def _parse(request: Request, response: Response) -> tuple[int, ...]:
    if response.refusal:
        raise InvalidAnswerError("it refuses, but only ids of actions are asked for")
    try:
        return parse(request, response.content)
    except InvalidAnswerError as problem:
        if response.finish == "length":
            raise InvalidAnswerError("it was cut short") from problem
        raise
