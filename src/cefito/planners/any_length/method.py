"""Declaration of the chain of any length, with or without a goal, after steps done before."""

from cefito.planners.any_length.settings import AnyLengthSettings
from cefito.planners.base import Abilities
from cefito.planners.methods import Method, PlannerVariant

ABILITIES = Abilities(constraints=True, probabilities=True, any_length=True)

ANY_LENGTH = Method(
    name="any-length",
    planner="cefito.planners.any_length.planner:AnyLengthPlanner",
    settings=AnyLengthSettings,
    title="any-length chain",
    line="predicts the number of steps and plans them, with or without a goal, after steps done",
    abilities=ABILITIES,
    variants=(PlannerVariant(name="any-length", title="any-length chain", method="any-length"),),
)
