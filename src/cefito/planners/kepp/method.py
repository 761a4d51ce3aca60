"""Declaration of KEPP."""

from cefito.planners.base import Abilities
from cefito.planners.kepp.settings import KeppSettings
from cefito.planners.methods import GRAPH, Method, Paper, PlannerVariant, ablation

ABILITIES = Abilities(true_task=False)


KEPP = Method(
    name="kepp",
    planner="cefito.planners.kepp.planner:KeppPlanner",
    settings=KeppSettings,
    title="KEPP",
    line="diffusion with walks of the graph between two actions that it predicts first",
    paper=Paper(
        "Why Not Use Your Textbook? Knowledge-Enhanced Procedure Planning of Instructional Videos",
        "CVPR 2024",
        "2403.02782",
    ),
    needs=(GRAPH,),
    abilities=ABILITIES,
    parameters={"KEPP step network": 41_843_589, "KEPP plan network": 42_184_335},
    variants=(
        PlannerVariant(name="kepp", title="KEPP", own_name=True, method="kepp"),
        ablation(
            "kepp",
            "in-sample",
            "KEPP (in-sample paths)",
            {"kepp.paths": "in-sample"},
            own_name=True,
        ),
        ablation("kepp", "ends", "KEPP (ends alone)", {"kepp.knowledge": "ends"}, own_name=True),
        ablation(
            "kepp",
            "graphless",
            "KEPP (no graph, no ends)",
            {"kepp.knowledge": "none"},
            own_name=True,
        ),
    ),
)
