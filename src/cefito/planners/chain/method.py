"""Declaration of the chain, a linear-chain CRF, and its settings."""

from __future__ import annotations

from pydantic import Field

from cefito.planners.base import Abilities
from cefito.planners.methods import Method, PlannerVariant
from cefito.settings import Layers, Settings, Size
from cefito.training.settings import (
    AugmentationConfig,
    EmaConfig,
    OptimiserConfig,
    PlannerTrainingConfig,
    StoppingConfig,
)


class ChainConfig(Settings):
    """The network that scores a chain (not in the paper).

    Values were chosen on the validation windows of captaincook4d and of draws of 8 of its recipes.
    """

    hidden: Size = 3072  # width of the encoder's first linear layer
    width: Size = 128  # width of encoded observations
    # width of the hidden layer between both encoded observations and the emissions
    emission: Size = 256
    # share of the observations' features zeroed in training
    input_dropout: float = Field(0.4, ge=0, lt=1)
    # share of the encoded observations and of hidden units zeroed in training
    dropout: float = Field(0.2, ge=0, lt=1)
    # initial factor, learned, of the cosines that predict an end
    scale: float = Field(1 / 0.07, gt=0)
    # initial factor, learned, of the logits of each end that are added to the emissions of its step
    ends: float = 0.3
    smoothing: float = Field(0.2, gt=0)  # added to each count of a transition within a task
    learned: bool = True  # learn transitions around the logarithms of the smoothed counts
    words: bool = False  # learn vectors of the words that names of several actions share
    normalise: bool = True  # layer-normalise observations
    centre: bool = True  # subtract the training windows' mean observation first
    members: Layers = 1  # networks trained from different seeds, whose scores are averaged


class ChainTrainingConfig(PlannerTrainingConfig):
    """How the chain is trained.

    Its last epoch is taken: a choice among epochs by few validation windows is mostly chance.
    """

    optimiser: OptimiserConfig = OptimiserConfig(
        epochs=120, batch_size=256, learning_rate=9e-4, weight_decay=0.01, schedule="cosine"
    )
    ema: EmaConfig = EmaConfig(decay=0.0)
    stopping: StoppingConfig = StoppingConfig(every=10_000, patience=0, windows=0)
    augmentation: AugmentationConfig = AugmentationConfig(swap=0.5)
    # weight of the mean cross-entropy of the first action, read from the initial observation alone,
    # and of the last one, read from the goal alone
    ends_weight: float = Field(1.0, ge=0)


class ChainSettings(Settings):
    """The sections that the chain reads."""

    chain: ChainConfig = ChainConfig()
    chain_training: ChainTrainingConfig = ChainTrainingConfig()


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
