"""Declaration of CEFITO: a chain, perhaps a field and a task classifier, and their search."""

from __future__ import annotations

from typing import Any

from cefito.field.settings import FieldConfig
from cefito.planners.base import Abilities
from cefito.planners.chain.method import ChainSettings
from cefito.planners.methods import CLASSIFIER, TEXT, Method, Paper, PlannerVariant
from cefito.planners.shared.settings import ClassifierSettings, PlanningConfig
from cefito.training.settings import FieldTrainingConfig


class CefitoSettings(ClassifierSettings, ChainSettings):
    """The sections that CEFITO reads."""

    field: FieldConfig = FieldConfig()
    training: FieldTrainingConfig = FieldTrainingConfig()
    search: PlanningConfig = PlanningConfig()


ABILITIES = Abilities(constraints=True, search=True, probabilities=True, finetuning=True)

# what the method of both plans by: the chain's likeliest sequences of each task, ordered anew
_BOTH = {
    "objective": "fitted",
    "task_model": "chain",
    "tasks": 5,
    "method": "guided",
    "proposals": 64,
    "refinements": 0,
}

_SHARED: dict[str, Any] = {
    "planner": "cefito.planners.cefito.planner:CefitoPlanner",
    "settings": CefitoSettings,
    "needs": (CLASSIFIER,),
    "uses": (TEXT,),
    "abilities": ABILITIES,
}

CEFITO = Method(
    **_SHARED,
    name="cefito",
    title="CEFITO",
    parameters={"energy field": 8_523_013, "task classifier": 7_094_290},
    line="searches sequences of low energy, by what a field says of goal and actions",
    paper=Paper(
        "Contrastive Energy Fields for Inference-Time Procedure Planning in Instructional Videos",
        "GCPR 2026",
    ),
    variants=(
        PlannerVariant(
            name="cefito",
            title="CEFITO, exact search",
            method="cefito",
            search={"method": "exhaustive"},
            exhaustive=True,
        ),
        PlannerVariant(
            name="cefito-guided",
            title="CEFITO, guided search",
            method="cefito",
            search={"method": "guided"},
        ),
        PlannerVariant(
            name="cefito-literal",
            title="CEFITO, L2 norm of layer-normed features",
            method="cefito",
            settings={"field.distance": "l2", "field.normalisation": "layer"},
            search={"method": "exhaustive"},
            exhaustive=True,
            ablation=True,
        ),
        PlannerVariant(name="cefito+chain", title="CEFITO + chain", method="cefito", search=_BOTH),
    ),
)

CEFITO_CHAIN = Method(
    **_SHARED,
    name="cefito+chain",
    title="CEFITO + chain",
    parameters={"energy field": 8_523_013},
    line="orders the likeliest sequences of the chain anew, by chain and energy",
    changes={f"search.{name}": value for name, value in _BOTH.items()},
)
