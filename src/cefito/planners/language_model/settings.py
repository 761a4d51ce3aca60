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
    """The language model, the content of its prompts, and the limits on requests.

    Environment variables override some of these, see `cefito.planners.language_model.server`.

    Attributes:
        model: Name of the model, as its server calls it; required.
        base_url: Address of the server, including "/v1"; empty to use the environment's.
        graph: Put the most probable training successors of every action into the prompt.
        successors: Number of successors per action.
        examples: Number of action sequences of the nearest training windows in the prompt.
        candidates: Candidates of each end in the prompt of "llm-ranked".
        tasks: Candidate tasks in the prompt of "llm-ranked".
        plans: Plans that one answer must contain, best first.
        temperature: Sampling temperature; -1 leaves it to the server.
        seed: Sampling seed; -1 sends none.
        answer_format: How the answer format is enforced: by a JSON schema, as any JSON object, or
            by the words of the prompt alone.
        extra: A JSON object of further request fields, for options that only some servers have.
        repairs: Number of repair requests after an invalid answer.
        concurrency: Requests in flight at the same time.
        retries: Retries of a request after a server or network failure, with growing pauses.
        timeout: Seconds to wait for a response.
        budget: Maximum requests of one planning; a planning that may need more is refused.
        cache: Folder of the response cache; empty for cefito's in the user's caches.
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
    """Settings sections of the language-model planners.

    The PKG sections configure the step model, which recognises both ends, and the graph.
    """

    llm: LlmConfig = LlmConfig()
