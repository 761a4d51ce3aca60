"""Declaration of the planner that asks a language model, told what networks recognise."""

from __future__ import annotations

import json
from typing import Self

from pydantic import Field, model_validator

from cefito.planners.base import Abilities
from cefito.planners.methods import CLASSIFIER, GRAPH, SERVER, Method, PlannerVariant
from cefito.planners.pkg.method import PkgSettings
from cefito.planners.shared.settings import ClassifierSettings
from cefito.settings import Settings


class LlmConfig(Settings):
    """The language model, its prompts, and limits; environment variables override some."""

    model: str = ""  # as its server calls it; required
    base_url: str = ""  # of the server, including "/v1"; empty to use the environment's
    temperature: float = Field(0.0, ge=-1, le=2)  # -1 leaves it to the server
    seed: int = Field(0, ge=-1)  # -1 sends none
    extra: str = ""  # a JSON object of further request fields, which only some servers have
    repairs: int = Field(1, ge=0, le=5)  # requests after an invalid answer
    concurrency: int = Field(8, ge=1, le=256)  # requests in flight at the same time
    retries: int = Field(5, ge=0, le=20)  # after a server or network failure, growing pauses
    timeout: float = Field(60.0, gt=0, le=3600)  # seconds
    budget: int = Field(1000, ge=1)  # most requests of a planning; if it may need more, refused
    cache: str = ""  # folder of responses; empty for cefito's in the user's caches

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
        return self


class LlmSettings(ClassifierSettings, PkgSettings):
    """Settings of the language-model planner; PKG's are of the step model and its fallback."""

    llm: LlmConfig = LlmConfig()


ABILITIES = Abilities(top_k=False, true_ends=True)


LLM = Method(
    name="llm-ends",
    planner="cefito.planners.language_model.planner:LlmPlanner",
    settings=LlmSettings,
    title="language model, recognised ends",
    line="fills in the steps between a recognised first and last action",
    needs=(GRAPH, CLASSIFIER, SERVER),
    abilities=ABILITIES,
    variants=(
        PlannerVariant(name="llm-ends", title="LLM, recognised ends", method="llm-ends"),
        PlannerVariant(
            name="llm-oracle-ends",
            title="LLM, true ends (oracle)",
            method="llm-ends",
            true_ends=True,
        ),
    ),
)
