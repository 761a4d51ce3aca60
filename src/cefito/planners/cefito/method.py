"""Declaration of CEFITO."""

from cefito.planners.base import Abilities
from cefito.planners.cefito.settings import CefitoSettings
from cefito.planners.methods import CLASSIFIER, TEXT, Method, Paper, PlannerVariant

ABILITIES = Abilities(constraints=True, search=True, probabilities=True, finetuning=True)

_FIELD = {"field.trained": True}  # of rows that plan by the energy alone

CEFITO = Method(
    name="cefito",
    planner="cefito.planners.cefito.planner:CefitoPlanner",
    settings=CefitoSettings,
    title="CEFITO",
    line="searches sequences of low energy, by what a field says of goal and actions",
    paper=Paper(
        "Contrastive Energy Fields for Inference-Time Procedure Planning in Instructional Videos",
        "GCPR 2026",
    ),
    needs=(CLASSIFIER,),
    uses=(TEXT,),
    tuned_by="chain",
    abilities=ABILITIES,
    parameters={"energy field": 8_523_013, "task classifier": 7_094_290},
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
            name="cefito-energy",
            title="CEFITO, energy alone",
            method="cefito",
            settings=_FIELD,
            search={"method": "exhaustive", "objective": "energy", "tasks": 1},
            exhaustive=True,
            ablation=True,
        ),
        PlannerVariant(
            name="cefito-energy-guided",
            title="CEFITO, energy alone, guided search",
            method="cefito",
            settings=_FIELD,
            search={
                "method": "guided",
                "objective": "energy",
                "tasks": 1,
                "proposals": 512,
                "starts": 12,
                "refinements": 256,
            },
            ablation=True,
        ),
        PlannerVariant(
            name="cefito-literal",
            title="CEFITO, energy alone, L2 norm of layer-normed features",
            method="cefito",
            settings={"field.distance": "l2", "field.normalisation": "layer"} | _FIELD,
            search={"method": "exhaustive", "objective": "energy", "tasks": 1},
            exhaustive=True,
            ablation=True,
        ),
        PlannerVariant(
            name="cefito-no-energy",
            title="CEFITO without the energy",
            method="cefito",
            search={"method": "guided", "objective": "chain"},
            ablation=True,
        ),
    ),
)
