"""Declaration of P3IV."""

from cefito.planners.base import Abilities
from cefito.planners.methods import GRAPH, TEXT, Method, Paper, PlannerVariant, ablation
from cefito.planners.p3iv.settings import P3ivSettings

ABILITIES = Abilities(true_task=False)

P3IV = Method(
    name="p3iv",
    planner="cefito.planners.p3iv.planner:P3ivPlanner",
    settings=P3ivSettings,
    title="P3IV",
    line="a transformer with noise that decodes all steps at once, then Viterbi",
    paper=Paper(
        "P3IV: Probabilistic Procedure Planning from Instructional Videos with Weak Supervision",
        "CVPR 2022",
        "2205.02300",
    ),
    needs=(GRAPH,),
    uses=(TEXT,),
    abilities=ABILITIES,
    parameters={"P3IV": 800_773},
    variants=(
        PlannerVariant(name="p3iv", title="P3IV", own_name=True, method="p3iv"),
        ablation(
            "p3iv",
            "noiseless",
            "P3IV (no noise)",
            {"p3iv.noise": 0, "p3iv.diversity": 0.0},
            own_name=True,
        ),
        ablation(
            "p3iv",
            "released",
            "P3IV (as released)",
            {
                "p3iv.memory": "released",
                "p3iv.decoding": "greedy",
                "p3iv.test_dropout": True,
            },
            own_name=True,
        ),
    ),
)
