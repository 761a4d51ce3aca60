"""Declaration of ViterbiPlanNet."""

from cefito.planners.base import Abilities
from cefito.planners.methods import DESCRIPTIONS, GRAPH, Method, Paper, PlannerVariant, ablation
from cefito.planners.viterbi.settings import ViterbiSettings

ABILITIES = Abilities(true_task=False)

VITERBI = Method(
    name="viterbi",
    planner="cefito.planners.viterbi.planner:ViterbiPlanner",
    settings=ViterbiSettings,
    title="ViterbiPlanNet",
    line="emissions of a network, decoded through a differentiable Viterbi layer",
    paper=Paper("ViterbiPlanNet", "CVPR 2026", "2603.04265"),
    needs=(GRAPH,),
    uses=(DESCRIPTIONS,),
    abilities=ABILITIES,
    parameters={"ViterbiPlanNet": 5_549_602},
    variants=(
        PlannerVariant(name="viterbi", title="ViterbiPlanNet", own_name=True, method="viterbi"),
        ablation(
            "viterbi",
            "unaligned",
            "ViterbiPlanNet (no alignment)",
            {"viterbi.descriptions": "none"},
            own_name=True,
        ),
    ),
)
