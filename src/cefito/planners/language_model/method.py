"""Declarations of the planners that ask a language model."""

from functools import partial

from cefito.planners.base import Abilities
from cefito.planners.language_model.settings import LlmSettings
from cefito.planners.methods import CLASSIFIER, GRAPH, SERVER, Method, PlannerVariant

ABILITIES = Abilities(true_ends=True)

_PARTS: dict[str, tuple[str, str, int]] = {  # further parts of prompts: title, setting, value
    "pkg": (" + PKG", "llm.graph", True),
    "examples": (" + examples", "llm.examples", 5),
}


def _variant(
    method: str, title: str, *parts: str, name: str = "", true_ends: bool = False
) -> PlannerVariant:
    """A variant whose prompts have further parts."""
    return PlannerVariant(
        name="-".join((name or method, *parts)),
        title=title + "".join(_PARTS[part][0] for part in parts),
        method=method,
        settings={_PARTS[part][1]: _PARTS[part][2] for part in parts},
        true_ends=true_ends,
    )


_ENDS, _RANKED = ("llm-ends", "LLM, recognised ends"), ("llm-ranked", "LLM, ranked ends")
_TRUE = ("llm-ends", "LLM, true ends (oracle)")
_oracle = partial(_variant, name="llm-oracle-ends", true_ends=True)

LLM_ENDS = Method(
    name="llm-ends",
    planner="cefito.planners.language_model.planner:LlmEndsPlanner",
    settings=LlmSettings,
    title="language model, recognised ends",
    line="fills in the steps between a recognised first and last action",
    needs=(GRAPH, CLASSIFIER, SERVER),
    abilities=ABILITIES,
    variants=(
        _variant(*_ENDS),
        _variant(*_ENDS, "pkg"),
        _variant(*_ENDS, "examples"),
        _oracle(*_TRUE),
        _oracle(*_TRUE, "pkg"),
    ),
)

LLM_RANKED = Method(
    name="llm-ranked",
    planner="cefito.planners.language_model.planner:LlmRankedPlanner",
    settings=LlmSettings,
    title="language model, ranked ends",
    line="chooses all steps, given candidates of task and ends with their probabilities",
    needs=(GRAPH, CLASSIFIER, SERVER),
    abilities=ABILITIES,
    variants=(
        _variant(*_RANKED),
        _variant(*_RANKED, "pkg"),
        _variant(*_RANKED, "examples"),
        _variant(*_RANKED, "pkg", "examples"),
    ),
)
