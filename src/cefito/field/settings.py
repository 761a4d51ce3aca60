"""Settings of the networks; defaults are the paper's."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from cefito.field.distances import DISTANCES
from cefito.settings import Settings, check_weights

__all__ = ["ClassifierConfig", "FieldConfig", "ProposalConfig"]


class FieldConfig(Settings):
    """The predictor and the distance (paper, Sec. 3.2 and Supp. B).

    Attributes:
        width: D, the width of a token.
        depth: Number of transformer blocks.
        heads: Attention heads a block.
        mlp_ratio: Hidden width of a block's MLP over D.
        init: Deviation of new weights: "fixed" 0.02, or "fan_in", one over the root of a layer's
            inputs, which suits narrow fields; or "torch", PyTorch's own with mask tokens of zero
            (released code).
        dropout: Share of the residual branches' outputs that is zeroed in training (paper: none).
        action_encoding: "text" reads the data set's text embeddings, frozen; "learned" learns them;
            "auto" uses text if the data set has it, else learns them; "observed" uses the mean
            of each action's normalised training observations (not in the paper: for data sets too
            small to learn embeddings).
        action_dim: Width of learned action embeddings.
        goal_skip: Add the vector of the last action, times a learned factor, to each predicted
            state, so that the network predicts the deviation from the usual state after the action
            (paper: no). Needs "observed".
        distance: "l2" is the paper's norm, "mean_square" the released code's mean over the features
            of the squared difference; see `cefito.field.distances`.
        centre: Subtract the training windows' mean observation before the layer norm (paper: no).
        observation_epsilon: Added to the variance in the layer norm of observations (released
            code: 1e-5; the norms between the blocks have 1e-6).
        goal_projection: Hidden width of a residual MLP on the normalised goal before the distance;
            0 is off, as in the paper.
        directions: "forward" (paper), or "both": a second predictor reads sequences from the goal
            back to the initial observation, and the two energies add up.
        members: Fields trained from different seeds, whose energies are averaged (paper: one).
    """

    width: int = Field(384, ge=8)
    depth: int = Field(4, ge=1)
    heads: int = Field(6, ge=1)
    mlp_ratio: float = Field(4.0, gt=0)
    init: Literal["fixed", "fan_in", "torch"] = "fixed"
    dropout: float = Field(0.0, ge=0, lt=1)
    action_encoding: Literal["auto", "text", "learned", "observed"] = "auto"
    action_dim: int = Field(512, ge=1)
    goal_skip: bool = False
    distance: str = "l2"
    centre: bool = False
    observation_epsilon: float = Field(1e-5, gt=0)
    goal_projection: int = Field(0, ge=0)
    directions: Literal["forward", "both"] = "forward"
    members: int = Field(1, ge=1)

    @field_validator("distance")
    @classmethod
    def _distance_is_known(cls, name: str) -> str:
        if name not in DISTANCES:
            raise ValueError(f"unknown distance '{name}'; expected one of {', '.join(DISTANCES)}")
        return name

    @model_validator(mode="after")
    def _heads_divide_width(self) -> FieldConfig:
        if self.width % self.heads or self.width % 2:
            raise ValueError(
                f"width {self.width} must be even and divisible by the {self.heads} heads"
            )
        ends = 1 if self.directions == "forward" else 2
        blocks = self.depth * self.width**2 * (4 + 2 * self.mlp_ratio)
        rest = self.width * self.action_dim + 2 * self.goal_projection
        check_weights(self.members * ends * (blocks + rest), f"fields of width {self.width}")
        if self.goal_skip and self.action_encoding != "observed":
            raise ValueError("goal_skip needs action_encoding = 'observed'")
        return self


class ClassifierConfig(Settings):
    """The task classifier, a four-layer MLP on both observations (paper, Sec. 3.3).

    Attributes:
        hidden: Widths of the three hidden layers; 0 stands for the released code's E/3, 4E, E/3.
        normalise: Layer-normalise the observations first (released code: raw).
        centre: Subtract the training windows' mean observation first (released code: no).
        dropout: Share of hidden units zeroed in training.
        init: New weights: Kaiming "uniform", or Kaiming "normal" (released code).
    """

    hidden: tuple[NonNegativeInt, NonNegativeInt, NonNegativeInt] = (0, 0, 0)
    init: Literal["uniform", "normal"] = "uniform"
    normalise: bool = False
    centre: bool = False
    dropout: float = Field(0.0, ge=0, lt=1)

    @model_validator(mode="after")
    def _fits_memory(self) -> ClassifierConfig:
        first, second, third = (max(width, 1) for width in self.hidden)
        check_weights(first * (1 + second) + third * (1 + second), "a classifier of these widths")
        return self


class ProposalConfig(Settings):
    """The step model: predicts each step's action from both observations (not in the paper)."""

    hidden: tuple[PositiveInt, PositiveInt] = (256, 256)  # widths of the two hidden layers
    action_dim: int = Field(128, ge=1)  # width of the learned action vectors, shared by all steps
    normalise: bool = True  # layer-normalise the observations first
    centre: bool = True  # subtract the training windows' mean observation first
    # share of the observations' features, and of hidden units, zeroed in training
    dropout: float = Field(0.6, ge=0, lt=1)

    @model_validator(mode="after")
    def _fits_memory(self) -> ProposalConfig:
        first, second = self.hidden
        count = first * (2 + second) + self.action_dim * (1 + second)
        check_weights(count, "a step model of these widths")
        return self
