"""Declaration of the chain, a linear-chain CRF."""

from cefito.planners.base import Abilities
from cefito.planners.chain.settings import ChainSettings
from cefito.planners.methods import Method, PlannerVariant

ABILITIES = Abilities(constraints=True, probabilities=True, finetuning=True)

CHAIN = Method(
    name="chain",
    planner="cefito.planners.chain.planner:ChainPlanner",
    settings=ChainSettings,
    title="chain",
    line="scores whole sequences of all tasks exactly; a part of CEFITO by itself",
    abilities=ABILITIES,
    variants=(PlannerVariant(name="chain", title="chain", method="chain"),),
)
