"""Declaration of the chain, a linear-chain CRF."""

from cefito.planners.crf.settings import ChainSettings
from cefito.planners.methods import Method, PlannerVariant

__all__ = ["CHAIN"]

CHAIN = Method(
    name="chain",
    planner="cefito.planners.crf.planner:ChainPlanner",
    settings=ChainSettings,
    title="chain",
    line="scores whole sequences of all tasks exactly; a part of CEFITO by itself",
    variants=(PlannerVariant(name="chain", title="chain", method="chain"),),
)
