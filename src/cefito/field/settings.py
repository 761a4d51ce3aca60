"""Settings of the networks, whose defaults are the paper's, and the distances of the energy.

A distance (paper, Eqs. 1 and 4) is a non-decreasing function of the squared L2 distance and of the
dimension E. The fast evaluation of energies depends on this: it never computes a predicted goal in
E dimensions, only its squared distance from the observed one (`ReducedDistance`). To add a
distance, register it in `DISTANCES`: `FieldConfig.distance` then accepts its name, and the tests
check it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import Field, NonNegativeInt, field_validator, model_validator

from cefito.settings import Layers, Settings, Size

if TYPE_CHECKING:
    from torch import Tensor


Distance: TypeAlias = "Callable[[Tensor, int], Tensor]"
"""Squared L2 distances, of any shape, and E → distances of the same shape."""

_LEAST = 1e-12  # lower bound of the radicand, which bounds the gradient of the root


def l2(squared: Tensor, observation_dim: int) -> Tensor:  # noqa: ARG001
    """Return the L2 distance ‖p − g‖ (paper, Eq. 4)."""
    return squared.clamp_min(_LEAST).sqrt()


def mean_square(squared: Tensor, observation_dim: int) -> Tensor:
    """Return ‖p − g‖² / E (released code)."""
    return squared / observation_dim


DISTANCES: dict[str, Distance] = {"l2": l2, "mean_square": mean_square}
"""All distances by the names that `FieldConfig.distance` takes."""


class FieldConfig(Settings):
    """The predictor and the distance (paper, Sec. 3.2 and Supp. B)."""

    width: Size = Field(384, ge=8)  # D, the width of a token
    depth: Layers = 4  # number of transformer blocks
    heads: int = Field(6, ge=1)  # attention heads a block
    mlp_ratio: float = Field(4.0, gt=0, le=100)  # hidden width of a block's MLP over D
    # deviation of new weights: "fixed" 0.02, or "fan_in", one over the root of a layer's inputs,
    # which suits narrow fields; or "torch", PyTorch's own with mask tokens of zero (released code)
    init: Literal["fixed", "fan_in", "torch"] = "fixed"
    # "text" reads the data set's text embeddings, frozen; "learned" learns them; "auto" uses text
    # if the data set has it, else learns them; "observed" uses the mean of each action's normalised
    # training observations (not in the paper: for data sets too small to learn embeddings)
    action_encoding: Literal["auto", "text", "learned", "observed"] = "auto"
    action_dim: Size = 512  # width of learned embeddings (Tab. 4 does not say)
    # add the vector of the last action, times a learned factor, to each predicted state, so that
    # the network predicts the deviation from the usual state after the action (paper: no). Needs
    # "observed"
    goal_skip: bool = False
    # "mean_square", the mean over the features of the squared difference (released code), or "l2",
    # the norm that the paper writes, beside which its margins are void; see docs/method.md
    distance: str = "mean_square"
    # subtract the training windows' mean observation before the normalisation (paper: no)
    centre: bool = False
    # of observations along their features: parameter-free "layer" norm (released code), or "unit"
    # length; the paper names neither
    normalisation: Literal["layer", "unit"] = "layer"
    # added to the variance in the layer norm of observations (released code: 1e-5; the norms
    # between the blocks have 1e-6)
    observation_epsilon: float = Field(1e-5, gt=0)
    # "forward" (paper), or "both": a second predictor reads sequences from the goal back to the
    # initial observation, and the two energies add up
    directions: Literal["forward", "both"] = "forward"

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
        if self.goal_skip and self.action_encoding != "observed":
            raise ValueError("goal_skip needs action_encoding = 'observed'")
        return self


class ClassifierConfig(Settings):
    """The task classifier, a four-layer MLP on both observations (paper, Sec. 3.3)."""

    # widths of the three hidden layers; 0 stands for the released code's E/3, 4E, E/3
    hidden: tuple[NonNegativeInt, NonNegativeInt, NonNegativeInt] = (0, 0, 0)
    # new weights: Kaiming "uniform", or Kaiming "normal" (released code)
    init: Literal["uniform", "normal"] = "uniform"
    normalise: bool = False  # layer-normalise the observations first (released code: raw)
    # subtract the training windows' mean observation first (released code: no)
    centre: bool = False
    dropout: float = Field(0.0, ge=0, lt=1)  # share of hidden units zeroed in training


class ProposalConfig(Settings):
    """The step model: predicts each step's action from both observations (not in the paper)."""

    hidden: tuple[Size, Size] = (256, 256)  # widths of the two hidden layers
    action_dim: Size = 128  # width of the learned action vectors, shared by all steps
    normalise: bool = True  # layer-normalise the observations first
    centre: bool = True  # subtract the training windows' mean observation first
    # share of the observations' features, and of hidden units, zeroed in training
    dropout: float = Field(0.6, ge=0, lt=1)
