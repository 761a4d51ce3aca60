"""Declaration of the planner that asks a language model, and of its rows in tables."""

from __future__ import annotations

import json
import os
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from cefito.errors import ConfigError
from cefito.planners.base import Abilities
from cefito.planners.methods import CLASSIFIER, GRAPH, SERVER, Method, PlannerVariant
from cefito.planners.pkg.method import PkgSettings
from cefito.planners.shared.settings import ClassifierSettings
from cefito.settings import Settings

SMALL = "smollm2"
"""Name of the server that this process starts itself, with a small model."""
_SERVER = "CEFITO_LLM_SERVER"
NO_SERVER = (
    "no server of a language model is named. Name one by --set llm.server=http://127.0.0.1:8080/v1 "
    f"or, for a small model in this process, --set llm.server={SMALL}."
)
NO_PICTURES = (
    "a vision-language model needs the pictures of both observations, and there are none. Give two "
    "pictures, or a film with two times, or prepare the data set with the folder of its films "
    "(--videos)."
)

TITLES = {
    "task": "task alone",
    "ends": "recognised ends",
    "ranked": "ranked ends",
    "graph": "recognised ends and graph",
    "pictures": "pictures",
}
"""What a language model is told besides the task, its actions and the number of steps."""


class LlmConfig(Settings):
    """The language model, what it is told, and its server."""

    told: Literal["task", "ends", "ranked", "graph", "pictures"] = "ends"
    server: str = ""  # address, with "/v1" if it has it, or "smollm2"
    model: str = ""  # as its server calls it; empty for the only one there
    candidates: int = Field(5, ge=1, le=100)  # of each ranked end, successors of each action
    tasks: int = Field(3, ge=1, le=100)  # candidates beside ranked ends
    temperature: float = Field(0.0, ge=-1, le=2)  # -1 leaves it to the server
    seed: int = Field(0, ge=-1)  # -1 sends none
    extra: str = ""  # a JSON object of further fields of the request
    concurrency: int = Field(4, ge=1, le=256)  # requests in flight at the same time
    retries: int = Field(2, ge=0, le=20)  # after a failure of server or network
    timeout: float = Field(60.0, gt=0, le=3600)  # seconds
    answers: str = ""  # folder that keeps the answers; empty for cefito's in the user's caches

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        if -1 < self.temperature < 0:
            raise ValueError("temperature: expected 0 to 2, or -1 to leave it to the server")
        try:
            extra = json.loads(self.extra or "{}")
        except (ValueError, RecursionError) as problem:
            raise ValueError(f"extra: not valid JSON ({problem})") from problem
        if not isinstance(extra, dict):
            raise ValueError("extra: expected a JSON object")
        if fault := _fault(self.server):
            raise ValueError(f"server: {fault}")
        return self

    @property
    def address(self) -> str:
        """Address of the server, `SMALL`, or empty; the environment overrides the setting."""
        address = os.environ.get(_SERVER) or self.server
        if fault := _fault(address):
            raise ConfigError(f"{_SERVER}: {fault}.")
        return address


def _fault(address: str) -> str:
    """Return what is wrong with an address, without repeating it, for it may hold a secret."""
    if address in ("", SMALL):
        return ""
    try:
        parts = urlsplit(address)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        return f"expected an address as http://127.0.0.1:8080/v1, or {SMALL}"
    if parts.username or parts.password or parts.query or parts.fragment:
        return "expected an address without user, password and query; OPENAI_API_KEY holds a key"
    return ""


class LlmSettings(ClassifierSettings, PkgSettings):
    """Settings of the planner; PKG's are of the step model, the graph and the replacement."""

    llm: LlmConfig = LlmConfig()


ABILITIES = Abilities(top_k=False)


def _row(told: str) -> PlannerVariant:
    kind = "vision-language model" if told == "pictures" else "language model"
    arguments: Any = {"method": "llm", "settings": {"llm.told": told}}
    return PlannerVariant(name=f"llm-{told}", title=f"{kind}, {TITLES[told]}", **arguments)


LLM = Method(
    name="llm",
    planner="cefito.planners.language_model.planner:LlmPlanner",
    settings=LlmSettings,
    title="language model",
    line="a language model is asked, told what networks recognise",
    needs=(GRAPH, CLASSIFIER, SERVER),
    abilities=ABILITIES,
    variants=tuple(map(_row, TITLES)),
)
