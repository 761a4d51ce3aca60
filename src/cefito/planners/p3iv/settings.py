"""Settings of P3IV; the defaults are the published ones, repeated in `paper.toml`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from cefito.settings import Settings, check_weights
from cefito.training.settings import OptimiserConfig, StoppingConfig, TrainingConfig

__all__ = ["P3ivConfig", "P3ivSettings"]


class P3ivConfig(Settings):
    """P3IV (Zhao et al., CVPR 2022): weakly supervised planning with a probabilistic decoder.

    Attributes:
        rows: R; observations are so many feature rows of equal length side by side, which are
            encoded one by one and averaged. It must divide their number of features.
        hidden: Width of the hidden layer of the observation encoder and of all heads.
        width: D of the decoder's tokens, noise included.
        noise: Numbers of a token that are noise, one vector for all tokens of a sample; 0 for a
            deterministic planner.
        layers: Layers of the decoder.
        heads: Attention heads.
        feedforward: Width of the feed-forward layers.
        memory: Memory of a layer. "slots": attention over all learned slots, as the paper
            describes; "released": one learned vector per layer, the effect of the released code.
        slots: Learned slots of memory, of "slots" only.
        token_dropout: Share of the tokens' features zeroed in training.
        dropout: Share of the decoder's hidden units and attention weights zeroed in training.
        test_dropout: Whether both stay on in planning, as in the released code; from one seed that
            is saved with the weights.
        whiten: Subtract the mean of all features of the training observations, and divide by their
            deviation: two numbers.
        normalise: Layer-normalise the feature rows (published: no).
        centre: Subtract each feature's own mean (published: no).
        language: Vectors that the decoded states are drawn to in training. "text": the data set's
            text vectors of the action names, as published; "names": fixed vectors hashed from the
            names in their place; "auto": text if there is any, else names.
        name_width: Length of the vectors that are hashed from names.
        contrastive: Weight of the loss that draws states to the names of their actions; 0 for none.
        adversarial: Weight of a critic's judgement in the loss; 0 for no critic.
        diversity: Weight of the loss that keeps two noises apart; 0 for none.
        critic_rate: Step size of the critic as a share of the generator's.
        samples: Noises that a plan is decoded from, drawn once.
        validation_samples: The first so many of them choose the epoch.
        decoding: "viterbi": the likeliest sequences under samples and transitions; "greedy": from
            the last action backwards, each by itself, the effect of the released code.
        training: How it is trained.
    """

    rows: PositiveInt = 3
    hidden: PositiveInt = 256
    width: PositiveInt = 128
    noise: NonNegativeInt = 32
    layers: PositiveInt = 2
    heads: PositiveInt = 8
    feedforward: PositiveInt = 128
    memory: Literal["slots", "released"] = "slots"
    slots: PositiveInt = 106
    token_dropout: float = Field(0.1, ge=0, lt=1)
    dropout: float = Field(0.3, ge=0, lt=1)
    test_dropout: bool = False
    whiten: bool = True
    normalise: bool = False
    centre: bool = False
    language: Literal["auto", "text", "names"] = "auto"
    name_width: PositiveInt = 512
    contrastive: float = Field(0.5, ge=0)
    adversarial: float = Field(0.1, ge=0)
    diversity: float = Field(0.1, ge=0)
    critic_rate: float = Field(1 / 70, gt=0)
    samples: PositiveInt = 1500
    validation_samples: PositiveInt = 200
    decoding: Literal["viterbi", "greedy"] = "viterbi"
    training: TrainingConfig = TrainingConfig(
        optimiser=OptimiserConfig(
            epochs=200,
            batch_size=32,
            learning_rate=7e-4,
            weight_decay=0.0,
            schedule="step",
            factor=0.65,
            interval=0.1,
        ),
        stopping=StoppingConfig(every=2, patience=0, windows=0),
    )

    @model_validator(mode="after")
    def _usable(self) -> P3ivConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be divisible by the {self.heads} heads")
        if self.noise >= self.width:
            raise ValueError(
                f"noise {self.noise} leaves nothing of the tokens, which are {self.width} wide"
            )
        if self.token_width % 2:
            raise ValueError(
                f"width {self.width} without noise {self.noise} leaves {self.token_width} numbers "
                "of a token, and positions need an even number"
            )
        if self.diversity and not self.noise:
            raise ValueError("diversity compares two noises, and noise is 0: set diversity to 0")
        layer = self.width * (8 * self.width + 2 * self.feedforward)
        heads = self.hidden * (1 + self.width + self.name_width)
        memory = self.slots * self.width + self.samples * self.noise
        check_weights(self.layers * layer + heads + memory, "a network of these sizes")
        return self

    @property
    def token_width(self) -> int:
        """Numbers of a token without its noise; of encoded observations and states, too."""
        return self.width - self.noise

    @property
    def passes(self) -> int:
        """Passes of the decoder for one query."""
        return self.samples if self.noise or self.test_dropout else 1


class P3ivSettings(Settings):
    """The sections that P3IV reads."""

    p3iv: P3ivConfig = P3ivConfig()
