"""The server of language models: its address, its key, one request to it, and kept responses.

Keys are read from the environment only: a run of someone else may name any server. A response is
written as it comes, so that a killed process loses only the requests in flight.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from cefito.errors import CefitoError, ConfigError, RunError, explained
from cefito.files import read_json, user_cache, write_json
from cefito.planners.language_model.method import LlmConfig
from cefito.planners.language_model.prompt import Request
from cefito.settings import Record

if TYPE_CHECKING:
    import openai


class Response(Record):
    """A response of a server."""

    asked: str  # time of the response, UTC, ISO 8601
    served: str  # the model that answered, as the server calls it
    content: str  # empty after a refusal
    refusal: str = ""  # the reason for it
    finish: str = ""  # the reason for the end: "stop", "length", …
    prompt_tokens: int = 0
    completion_tokens: int = 0


class ResponseCache:
    """The responses of a folder, each a file with the name of its request's key."""

    def __init__(self, folder: Path) -> None:
        remedy = "Choose another folder."
        with explained(folder, "cannot be made", remedy, error=ConfigError, setting="llm.cache"):
            folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder

    def get(self, key: str) -> Response | None:
        """Return the cached response to a request, or None."""
        path, remedy = self.folder / f"{key}.json", "Remove it to ask again."
        if not path.exists():
            return None
        value = read_json(path, remedy, RunError)
        kinds = KeyError, TypeError, ValueError
        with explained(path, "holds no response", remedy, *kinds, error=RunError):
            return Response.model_validate(value["response"])

    def put(self, request: Request, host: str, response: Response) -> None:
        """Keep the response to a request."""
        value = {"host": host, "question": request.messages, "response": response.model_dump()}
        write_json(self.folder / f"{request.key(host)}.json", value)


KEY, _URL = "OPENAI_API_KEY", "OPENAI_BASE_URL"  # the key is sent to this server and to no other
_OWN_URL = "CEFITO_LLM_BASE_URL"  # these three override a run's settings
_BUDGET, _CACHE = "CEFITO_LLM_BUDGET", "CEFITO_LLM_CACHE"
_OPENAI = "https://api.openai.com/v1"
_SHOWN = 300  # characters of a server's message that are repeated


def check_settings(config: LlmConfig) -> None:
    """Refuse settings with which nothing could be asked, before anything is trained."""
    if not config.model.strip():
        raise ConfigError(
            "llm.model: no language model is named. Name one as its server calls it, and the "
            "server, as in llm.model = qwen3:30b and llm.base_url = http://localhost:11434/v1.",
            setting="llm.model",
        )
    Server.of(config)
    budget(config)
    _check_installed()


def _check_installed() -> None:
    if find_spec("openai") is None:
        raise ConfigError(
            "asking a language model needs openai, which is not installed. Install it: pip install "
            "'cefito[llm]'."
        )


def budget(config: LlmConfig) -> int:
    """Return the maximum requests of one planning."""
    value = os.environ.get(_BUDGET, "")
    if value and not re.fullmatch(r"[0-9]{1,9}", value):
        raise ConfigError(f"{_BUDGET}={value[:40]}: expected a whole number of requests.")
    return int(value) if value else config.budget


def cache_folder(config: LlmConfig) -> Path:
    """Return the folder of the response cache."""
    named = os.environ.get(_CACHE) or config.cache
    return Path(named).expanduser() if named else user_cache("llm")


@dataclass(frozen=True, repr=False)
class Server:
    """A server of language models."""

    url: str
    key: str  # empty to send none

    @classmethod
    def of(cls, config: LlmConfig) -> Server:
        """Return the server that the settings and the environment name."""
        trusted = os.environ.get(_URL) or _OPENAI
        url = os.environ.get(_OWN_URL) or config.base_url or trusted
        try:
            parts = urlsplit(url), urlsplit(trusted)
            origin, owner = ((part.scheme, part.hostname, part.port) for part in parts)
        except ValueError:  # an invalid port
            origin = owner = ("", None, None)
        if origin[0] not in ("http", "https") or not origin[1]:
            raise ConfigError(
                "llm.base_url: is not the address of a server. Give one as in "
                "http://localhost:8000/v1.",
                setting="llm.base_url",
            )
        return cls(url, os.environ.get(KEY, "") if origin == owner else "")

    @property
    def host(self) -> str:
        """Its host name, without the port; part of cache keys."""
        return urlsplit(self.url).hostname or ""

    @property
    def place(self) -> str:
        """Its address without user, password and query, for messages."""
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return urlunsplit((parts.scheme, f"{parts.hostname}{port}", parts.path, "", ""))

    def client(self, config: LlmConfig) -> openai.OpenAI:
        """Return a client, to be closed."""
        _check_installed()
        import openai

        client = openai.OpenAI(
            base_url=self.url,
            api_key=self.key or "none",  # the SDK requires one; local servers ignore it
            admin_api_key="none",
            timeout=config.timeout,
            max_retries=config.retries,
        )
        if not self.key:  # the SDK takes these from the environment, for its own server
            client.organization = client.project = None
        return client

    def ask(self, client: openai.OpenAI, request: Request) -> Response:
        """Make one request; threads may share the client."""
        import openai

        messages: Any = [{"role": role, "content": text} for role, text in request.messages]
        try:
            completion: Any = client.chat.completions.create(messages=messages, **request.body)
            choice, usage = completion.choices[0], completion.usage
            return Response(
                asked=datetime.now(UTC).isoformat(timespec="seconds"),
                served=str(completion.model or ""),
                content=choice.message.content or "",
                refusal=choice.message.refusal or "",
                finish=choice.finish_reason or "",
                prompt_tokens=(usage.prompt_tokens or 0) if usage else 0,
                completion_tokens=(usage.completion_tokens or 0) if usage else 0,
            )
        except openai.OpenAIError as problem:
            raise self._error(problem, client.max_retries, request.body["model"]) from problem
        except (AttributeError, IndexError, TypeError, ValueError) as problem:
            raise RunError(
                f"{self.place}: answers, but not as a server of chat completions. Name another "
                "address; most end in /v1."
            ) from problem

    def _error(self, problem: openai.OpenAIError, retries: int, model: str) -> CefitoError:
        """Return the error of a failed request, in one line and without the key."""
        import openai

        status = problem.status_code if isinstance(problem, openai.APIStatusError) else 500
        reason = str(problem)
        if isinstance(problem, openai.APITimeoutError):
            reason = "no answer in time (llm.timeout)"
        elif isinstance(problem, openai.APIConnectionError):  # says only "Connection error."
            reason = str(problem.__cause__ or problem)
        reason = " ".join(reason.split()).rstrip(".")
        if self.key:
            reason = reason.replace(self.key, "…")
        reason = reason[:_SHOWN] or type(problem).__name__
        if status == 429 or status >= 500:
            tries = f"{retries + 1} tries" if retries else "one try"
            return RunError(
                f"{self.place}: {reason}, in {tries}. Received responses are cached: repeat the "
                "command to continue."
            )
        if status in (401, 403):
            sent = f"the key in {KEY} was sent"
            if not self.key:
                sent = f"no key was sent: {KEY} is sent to the server that {_URL} names"
            return ConfigError(f"{self.place}: refuses access ({reason}); {sent}.")
        if status == 404:
            message = (
                f"{self.place}: has no model '{model}', or no chat completions ({reason}). Correct "
                "llm.model or llm.base_url."
            )
            return ConfigError(message, setting="llm.model")
        message = (
            f"{self.place}: does not take the request ({reason}). Correct llm.extra; -1 leaves "
            "llm.temperature and llm.seed to the server."
        )
        return ConfigError(message, setting="llm.extra")
