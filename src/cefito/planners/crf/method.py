"""Declaration of the chain, a linear-chain CRF."""

from cefito.planners.base import Abilities
from cefito.planners.crf.settings import ChainSettings
from cefito.planners.methods import Method, PlannerVariant

__all__ = ["ABILITIES", "CHAIN"]

ABILITIES = Abilities(constraints=True, probabilities=True, finetuning=True)

CHAIN = Method(
    name="chain",
    planner="cefito.planners.crf.planner:ChainPlanner",
    settings=ChainSettings,
    title="chain",
    line="scores whole sequences of all tasks exactly; a part of CEFITO by itself",
    abilities=ABILITIES,
    variants=(PlannerVariant(name="chain", title="chain", method="chain"),),
)
