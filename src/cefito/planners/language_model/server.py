"""Whom to ask, with which key, and one request to it.

The environment says what is no part of a run:

OPENAI_BASE_URL, OPENAI_API_KEY   a server and its key, as everywhere with the openai SDK; the key
                                  is sent to the host of that address and to no other
CEFITO_LLM_BASE_URL               a server to ask instead of the one that the settings name
CEFITO_LLM_BUDGET                 most requests of one planning, instead of `llm.budget`
CEFITO_LLM_CACHE                  folder of answers, instead of `llm.cache`

Keys are read from there alone. A run that somebody else made may name any server; it never gets a
key that the environment does not name that server beside.
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

from cefito.encoders.cache import default_cache
from cefito.errors import CefitoError, ConfigError, RunError
from cefito.planners.language_model.prompt import Request
from cefito.planners.language_model.response_cache import Answered
from cefito.planners.language_model.settings import LlmConfig

if TYPE_CHECKING:
    import httpx2
    import openai
    from openai.types.chat import ChatCompletion

__all__ = ["KEY", "Server", "budget", "cache_folder", "check_asking"]

KEY = "OPENAI_API_KEY"
_URL, _OWN_URL = "OPENAI_BASE_URL", "CEFITO_LLM_BASE_URL"
_BUDGET, _CACHE = "CEFITO_LLM_BUDGET", "CEFITO_LLM_CACHE"
_OPENAI = "https://api.openai.com/v1"
_SAID = 300  # characters of a server's message that are repeated


def check_asking(config: LlmConfig) -> None:
    """Refuse what could not be asked, before anything is trained.

    Raises:
        ConfigError: No model is named, the address is none, or openai is not installed.
    """
    if not config.model.strip():
        raise ConfigError(
            "llm.model: no language model is named. Name one as its server calls it, and where it "
            "is served, as in llm.model = qwen3:30b and llm.base_url = "
            "http://localhost:11434/v1.",
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
    """Most requests of one planning.

    Raises:
        ConfigError: The environment says something that is no number of them.
    """
    said = os.environ.get(_BUDGET, "")
    if not said:
        return config.budget
    if not re.fullmatch(r"[0-9]{1,9}", said):
        raise ConfigError(f"{_BUDGET}={said[:40]}: expected a whole number of requests.")
    return int(said)


def cache_folder(config: LlmConfig) -> Path:
    """Where answers are kept."""
    named = os.environ.get(_CACHE) or config.cache
    return Path(named).expanduser() if named else default_cache().with_name("llm")


@dataclass(frozen=True)
class Server:
    """A server of language models.

    Attributes:
        url: Its address, as requests are made to it.
        key: The key that it gets; empty for none.
    """

    url: str
    key: str

    def __repr__(self) -> str:
        return f"Server({self.place!r})"

    @classmethod
    def of(cls, config: LlmConfig) -> Server:
        """The server that the settings and the environment name.

        Raises:
            ConfigError: The address is none.
        """
        named = os.environ.get(_URL) or _OPENAI
        url = os.environ.get(_OWN_URL) or config.base_url or named
        try:
            parts, owner = urlsplit(url), urlsplit(named)
            own = (parts.scheme, parts.hostname, parts.port) == (
                owner.scheme,
                owner.hostname,
                owner.port,
            )
        except ValueError:  # a port that is none
            parts, own = urlsplit(""), False
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                "llm.base_url: is no address of a server. Give one as in http://localhost:8000/v1.",
                setting="llm.base_url",
            )
        return cls(url, os.environ.get(KEY, "") if own else "")

    @property
    def host(self) -> str:
        """Its name, without port: what answers are told apart by."""
        return urlsplit(self.url).hostname or ""

    @property
    def place(self) -> str:
        """Its address without user, password and query, for messages."""
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return urlunsplit((parts.scheme, f"{parts.hostname}{port}", parts.path, "", ""))

    def client(self, config: LlmConfig) -> openai.OpenAI:
        """A client of it, to be closed.

        Raises:
            ConfigError: openai is not installed.
        """
        _check_installed()
        import openai

        client = openai.OpenAI(
            base_url=self.url,
            api_key=self.key or "none",  # the SDK wants one; local servers look at none
            admin_api_key="none",
            timeout=config.timeout,
            max_retries=config.retries,
            http_client=_http_client(),
        )
        if not self.key:  # the SDK takes these from the environment, for its own server
            client.organization = client.project = None
        return client

    def ask(
        self, client: openai.OpenAI, request: Request, key: str
    ) -> tuple[Answered, list[tuple[str, str]]]:
        """Make one request.

        Args:
            client: As `client` gives it; threads may share one.
            request: The request.
            key: Its key.

        Returns:
            The answer, and the messages that it answers.

        Raises:
            RunError: The server cannot be reached or refuses, after all retries.
            ConfigError: It does not take the key, the model or the form of the answer.
        """
        import openai

        body: dict[str, Any] = dict(request.body)
        messages: Any = [{"role": role, "content": text} for role, text in request.messages]
        try:
            completion = client.chat.completions.create(messages=messages, **body)
        except openai.OpenAIError as problem:
            raise self._explained(problem, client.max_retries, body["model"]) from problem
        except ValueError as problem:  # not even JSON
            raise self._strange() from problem
        return self._answered(completion, key), list(request.messages)

    def _answered(self, completion: ChatCompletion, key: str) -> Answered:
        try:
            choice, usage = completion.choices[0], completion.usage
            return Answered(
                key=key,
                asked=datetime.now(UTC).isoformat(timespec="seconds"),
                served=str(completion.model or ""),
                content=choice.message.content or "",
                refusal=choice.message.refusal or "",
                finish=choice.finish_reason or "",
                prompt_tokens=(usage.prompt_tokens or 0) if usage else 0,
                completion_tokens=(usage.completion_tokens or 0) if usage else 0,
            )
        except (AttributeError, IndexError, TypeError, ValueError) as problem:
            raise self._strange() from problem

    def _strange(self) -> RunError:
        return RunError(
            f"{self.place}: answers, but not as a server of chat completions does. Name another "
            "address; most end in /v1."
        )

    def _explained(self, problem: openai.OpenAIError, retries: int, model: str) -> CefitoError:
        """The error of a request in a line, without the key."""
        import openai

        again = "What was answered is kept: repeat the command to go on."
        tries = f"in {retries + 1} tries" if retries else "in one try"
        if isinstance(problem, openai.APITimeoutError):
            return RunError(f"{self.place}: no answer in time, {tries} (llm.timeout). {again}")
        if isinstance(problem, openai.APIConnectionError):
            cause = problem.__cause__ or problem
            return RunError(f"{self.place}: cannot be reached ({self._said(cause)}). {again}")
        if not isinstance(problem, openai.APIStatusError):
            return RunError(f"{self.place}: {self._said(problem)}. {again}")
        said, status = self._said(problem), problem.status_code
        if status in (401, 403):
            sent = (
                f"the key in {KEY} was sent"
                if self.key
                else f"no key was sent: {KEY} is sent to the server that {_URL} names"
            )
            return ConfigError(f"{self.place}: refuses access ({said}); {sent}.")
        if status == 404:
            return ConfigError(
                f"{self.place}: has no model '{model}', or no chat completions ({said}). Correct "
                "llm.model or llm.base_url.",
                setting="llm.model",
            )
        if status == 429 or status >= 500:
            return RunError(f"{self.place}: {said}, {tries}. {again}")
        return ConfigError(
            f"{self.place}: does not take the request ({said}). Where it is the form of the "
            "answer, set llm.answer_format to object or text; temperature and seed can be left "
            "to it by -1.",
            setting="llm.answer_format",
        )

    def _said(self, problem: BaseException) -> str:
        text = " ".join(str(problem).split()).rstrip(".")
        if self.key:
            text = text.replace(self.key, "…")
        return text[:_SAID] or type(problem).__name__


def _http_client() -> httpx2.Client | None:
    """What requests go through; None for the SDK's own. Tests put another in its place."""
    return None
