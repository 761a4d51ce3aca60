"""Declarations of the planners without a network of their own."""

from cefito.planners.base import Abilities
from cefito.planners.methods import CLASSIFIER, Method, PlannerVariant
from cefito.planners.shared.settings import ClassifierSettings

FREQUENT_ABILITIES = Abilities(probabilities=True)

NEAREST = Method(
    name="nearest",
    planner="cefito.planners.simple.nearest:NearestPlanner",
    title="nearest window",
    line="the training window of nearest observations",
    abilities=Abilities(),
    variants=(PlannerVariant(name="nearest", title="nearest window", method="nearest"),),
)
FREQUENT = Method(
    name="frequent",
    planner="cefito.planners.simple.frequent:FrequentPlanner",
    settings=ClassifierSettings,
    title="most frequent window",
    line="the training window that the predicted task shows most often",
    needs=(CLASSIFIER,),
    abilities=FREQUENT_ABILITIES,
    variants=(PlannerVariant(name="frequent", title="most frequent window", method="frequent"),),
)
