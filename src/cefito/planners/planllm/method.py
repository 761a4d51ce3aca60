"""Declarations of PlanLLM-style planning, and of its oracle that sees the states between."""

from cefito.planners.base import Abilities
from cefito.planners.methods import DESCRIPTIONS, GRAPH, Method, Paper, PlannerVariant
from cefito.planners.planllm.settings import PlanLlmSettings

LEAKY = Abilities(true_between=True)

_PAPER = Paper(
    "PlanLLM: Video Procedure Planning with Refinable Large Language Models",
    "AAAI 2025",
    "2412.19139",
)

PLANLLM = Method(
    name="planllm",
    planner="cefito.planners.planllm.planner:PlanLlmPlanner",
    settings=PlanLlmSettings,
    title="PlanLLM-style",
    line="SCHEMA with a query transformer; start and goal are all that it sees",
    paper=_PAPER,
    needs=(GRAPH,),
    uses=(DESCRIPTIONS,),
    abilities=Abilities(),
    parameters={"PlanLLM network": 42_003_608},
    variants=(
        PlannerVariant(
            name="planllm", title="PlanLLM-style (no BERT)", own_name=True, method="planllm"
        ),
    ),
)
PLANLLM_LEAKY = Method(
    name="planllm-leaky",
    planner="cefito.planners.planllm.planner:LeakyPlanner",
    settings=PlanLlmSettings,
    title="PlanLLM-style, leaky",
    line="the same, shown the true states between the steps as published: an oracle",
    paper=_PAPER,
    needs=(GRAPH,),
    uses=(DESCRIPTIONS,),
    abilities=LEAKY,
    parameters={"leaky PlanLLM network": 42_003_608},
    variants=(
        PlannerVariant(
            name="planllm-leaky",
            title="PlanLLM-style (no BERT, sees the states between: oracle)",
            own_name=True,
            method="planllm-leaky",
            true_between=True,
        ),
    ),
)
