"""Declaration of KEPP."""

from cefito.planners.kepp.planner import KeppPlanner
from cefito.planners.kepp.settings import KeppSettings
from cefito.planners.method import GRAPH, Method, Paper, PlannerVariant

__all__ = ["KEPP"]


def _ablation(name: str, words: str, settings: dict[str, str]) -> PlannerVariant:
    return PlannerVariant(
        name=f"kepp-{name}",
        title=f"KEPP ({words})",
        own_name=True,
        method="kepp",
        settings=settings,
        ablation=True,
    )


KEPP = Method(
    name="kepp",
    planner=KeppPlanner,
    settings=KeppSettings,
    title="KEPP",
    line="diffusion with walks of the graph between two actions that it predicts first",
    paper=Paper(
        "Why Not Use Your Textbook? Knowledge-Enhanced Procedure Planning of Instructional Videos",
        "CVPR 2024",
        "2403.02782",
    ),
    needs=(GRAPH,),
    variants=(
        PlannerVariant(name="kepp", title="KEPP", own_name=True, method="kepp"),
        _ablation("in-sample", "in-sample paths", {"kepp.paths": "in-sample"}),
        _ablation("ends", "ends alone", {"kepp.knowledge": "ends"}),
        _ablation("graphless", "no graph, no ends", {"kepp.knowledge": "none"}),
    ),
)
