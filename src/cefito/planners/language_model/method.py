"""Settings and declarations of the planners that ask a language model."""

from __future__ import annotations

import json
from typing import Any, Literal, Self

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
    graph: bool = False  # the prompt has the most probable training successors of each action
    successors: int = Field(5, ge=1, le=1000)  # their number for each action
    candidates: int = Field(5, ge=1, le=1000)  # of each end in the prompt of "llm-ranked"
    tasks: int = Field(3, ge=1, le=1000)  # candidates in the prompt of "llm-ranked"
    temperature: float = Field(0.0, ge=-1, le=2)  # -1 leaves it to the server
    seed: int = Field(0, ge=-1)  # -1 sends none
    answer_format: Literal["schema", "object", "text"] = "schema"  # text: by the prompt alone
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
    """Settings of the language-model planners; PKG's are of the step model and the graph."""

    llm: LlmConfig = LlmConfig()


ABILITIES = Abilities(top_k=False, true_ends=True)


def _rows(method: str, title: str, name: str = "", *, true_ends: bool = False) -> Any:
    """Two rows of a method; the prompts of the second have transitions of training windows."""
    name, given = name or method, {"method": method, "true_ends": true_ends}
    graph = {"llm.graph": True}
    return (
        PlannerVariant(name=name, title=title, **given),
        PlannerVariant(name=f"{name}-pkg", title=f"{title} + PKG", settings=graph, **given),
    )


_SHARED: dict[str, Any] = {
    "settings": LlmSettings,
    "needs": (GRAPH, CLASSIFIER, SERVER),
    "abilities": ABILITIES,
}

LLM_ENDS = Method(
    **_SHARED,
    name="llm-ends",
    planner="cefito.planners.language_model.planner:LlmEndsPlanner",
    title="language model, recognised ends",
    line="fills in the steps between a recognised first and last action",
    variants=(
        *_rows("llm-ends", "LLM, recognised ends"),
        *_rows("llm-ends", "LLM, true ends (oracle)", "llm-oracle-ends", true_ends=True),
    ),
)

LLM_RANKED = Method(
    **_SHARED,
    name="llm-ranked",
    planner="cefito.planners.language_model.planner:LlmRankedPlanner",
    title="language model, ranked ends",
    line="chooses all steps, given candidates of task and ends with their probabilities",
    variants=_rows("llm-ranked", "LLM, ranked ends"),
)
