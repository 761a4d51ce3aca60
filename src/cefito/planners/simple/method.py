"""Declarations of the planners without a network of their own."""

from cefito.planners.base import Abilities
from cefito.planners.methods import CLASSIFIER, Method, rows
from cefito.planners.shared.settings import ClassifierSettings

FREQUENT_ABILITIES = Abilities(probabilities=True)

NEAREST = Method(
    name="nearest",
    planner="cefito.planners.simple.planners:NearestPlanner",
    title="nearest window",
    line="the training window of nearest observations",
    abilities=Abilities(),
    variants=rows("nearest", "nearest window"),
)
FREQUENT = Method(
    name="frequent",
    planner="cefito.planners.simple.planners:FrequentPlanner",
    settings=ClassifierSettings,
    title="most frequent window",
    line="the training window that the predicted task shows most often",
    needs=(CLASSIFIER,),
    abilities=FREQUENT_ABILITIES,
    variants=rows("frequent", "most frequent window"),
)
