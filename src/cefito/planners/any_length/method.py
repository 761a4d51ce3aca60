"""Declaration and settings of the chain of any length, with or without a goal."""

from __future__ import annotations

from pydantic import Field

from cefito.planners.base import Abilities
from cefito.planners.chain.method import ChainConfig, ChainTrainingConfig
from cefito.planners.methods import Method, PlannerVariant
from cefito.settings import Settings
from cefito.training.settings import OptimiserConfig


class AnyLengthConfig(ChainConfig):
    """The network that scores the chains of all lengths (not in the paper)."""

    recency: float = Field(0.5, gt=0, lt=1)  # weight of a step done, for each step done after it


class AnyLengthTrainingConfig(ChainTrainingConfig):
    """How it is trained: as the chain, with parts of what is known hidden in some windows."""

    optimiser: OptimiserConfig = OptimiserConfig(
        epochs=30, batch_size=256, learning_rate=9e-4, weight_decay=0.01, schedule="cosine"
    )
    hide_initial: float = Field(0.05, ge=0, lt=1)  # share of windows without initial observation
    hide_goal: float = Field(0.25, ge=0, lt=1)  # share of windows without goal
    hide_done: float = Field(0.65, ge=0, lt=1)  # share of windows without the steps done before
    forget: float = Field(0.1, ge=0, lt=1)  # share of steps done before that are left out
    length_weight: float = Field(0.3, ge=0)  # weight of the cross-entropy of the length


class AnyLengthSettings(Settings):
    """The sections that the chain of any length reads."""

    any_length: AnyLengthConfig = AnyLengthConfig()
    any_length_training: AnyLengthTrainingConfig = AnyLengthTrainingConfig()


ABILITIES = Abilities(constraints=True, probabilities=True, finetuning=True, any_length=True)

ANY_LENGTH = Method(
    name="any-length",
    planner="cefito.planners.any_length.planner:AnyLengthPlanner",
    settings=AnyLengthSettings,
    title="any-length chain",
    line="predicts the number of steps and plans them, with or without a goal, after steps done",
    abilities=ABILITIES,
    variants=(PlannerVariant(name="any-length", title="any-length chain", method="any-length"),),
)
