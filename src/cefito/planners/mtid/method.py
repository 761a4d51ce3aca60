"""Declaration of MTID."""

from cefito.planners.base import Abilities
from cefito.planners.methods import CLASSIFIER, Method, Paper, PlannerVariant, ablation
from cefito.planners.mtid.settings import MtidSettings

MTID = Method(
    name="mtid",
    planner="cefito.planners.mtid.planner:MtidPlanner",
    settings=MtidSettings,
    title="MTID",
    line="PDPP's diffusion with latents interpolated between the two observations",
    paper=Paper(
        "Masked Temporal Interpolation Diffusion for Procedure Planning in Instructional Videos",
        "ICLR 2025",
    ),
    needs=(CLASSIFIER,),
    abilities=Abilities(),
    parameters={"MTID task classifier": 28_352_018, "MTID network": 218_998_191},
    variants=(
        PlannerVariant(name="mtid", title="MTID", method="mtid"),
        ablation(
            "mtid", "uninterpolated", "MTID without interpolation", {"mtid.interpolation": False}
        ),
        ablation("mtid", "masked", "MTID, masked", {"mtid.mask": True}),
    ),
)
