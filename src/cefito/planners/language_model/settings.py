"""Settings of the planners that ask a language model; `paper.toml` repeats the defaults."""

from __future__ import annotations

import json
from typing import Literal, Self

from pydantic import Field, model_validator

from cefito.planners.pkg.settings import PkgSettings
from cefito.planners.shared.task_model import ClassifierSettings
from cefito.settings import Settings

__all__ = ["LlmConfig", "LlmSettings"]


class LlmConfig(Settings):
    """A language model, what it is told, and how it is asked.

    Whom it asks and with what key can be said by the environment as well, see
    `cefito.planners.language_model.server`.

    Attributes:
        model: Name of the model, as its server calls it; it has to be given.
        base_url: Where it is served, up to and with "/v1"; empty for what the environment says.
        graph: Tell it the likeliest successors of every action in training.
        successors: How many of each action.
        examples: Sequences of the nearest training windows that it is told.
        candidates: Recognised actions of each end that "llm-ranked" tells.
        tasks: Likeliest tasks that "llm-ranked" tells.
        plans: Plans that one answer has to hold, the likeliest first.
        temperature: Of sampling; -1 leaves it to the server.
        seed: Of sampling; -1 sends none.
        answer_format: How answers are held to their form: by a JSON schema, as any JSON object, or
            by the words of the prompt alone.
        extra: A JSON object that is sent along, for what only some servers know.
        repairs: How often it is asked again, with what was wrong, where an answer is invalid.
        concurrency: Requests at the same time.
        retries: Of a request that the server or the network failed, with growing pauses.
        timeout: Seconds to wait for an answer.
        budget: Most requests of one planning; more are refused before the first.
        cache: Folder that keeps all answers; empty for cefito's in the user's caches.
    """

    model: str = ""
    base_url: str = ""
    graph: bool = False
    successors: int = Field(5, ge=1, le=1000)
    examples: int = Field(0, ge=0, le=1000)
    candidates: int = Field(5, ge=1, le=1000)
    tasks: int = Field(3, ge=1, le=1000)
    plans: int = Field(1, ge=1, le=20)
    temperature: float = Field(0.0, ge=-1, le=2)
    seed: int = Field(0, ge=-1)
    answer_format: Literal["schema", "object", "text"] = "schema"
    extra: str = ""
    repairs: int = Field(1, ge=0, le=5)
    concurrency: int = Field(8, ge=1, le=256)
    retries: int = Field(5, ge=0, le=20)
    timeout: float = Field(60.0, gt=0, le=3600)
    budget: int = Field(1000, ge=1)
    cache: str = ""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if -1 < self.temperature < 0:
            raise ValueError("temperature: expected 0 to 2, or -1 to leave it to the server")
        if self.extra:
            try:
                value = json.loads(self.extra)
            except (ValueError, RecursionError) as problem:
                raise ValueError(f"extra: not valid JSON ({problem})") from problem
            if not isinstance(value, dict):
                raise ValueError("extra: expected a JSON object")
        return self


class LlmSettings(ClassifierSettings, PkgSettings):
    """The sections that planners with a language model read.

    Those of PKG are of the model that recognises the first and the last action, and of the graph.
    """

    llm: LlmConfig = LlmConfig()
