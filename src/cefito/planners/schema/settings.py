"""Settings of SCHEMA; the defaults are the published ones, repeated in `paper.toml`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from cefito.planners.shared.transitions import TransitionSource
from cefito.settings import Settings, check_weights
from cefito.training.settings import OptimiserConfig, StoppingConfig, TrainingConfig

__all__ = ["Described", "SchemaConfig", "SchemaSettings"]

Described = Literal["file", "templates", "observations", "names", "free", "none"]


class SchemaConfig(Settings):
    """SCHEMA: the states between are decoded first, then the actions, over described states.

    Attributes:
        hidden: Width of the observation encoder's first layer; 0 for twice the features of an
            observation.
        width: Width of tokens, even.
        heads: Attention heads of the decoders.
        layers: Layers of each decoder.
        feedforward: Width of the decoders' feed-forward layers; 0 for twice the tokens' width.
        input_dropout: Share of the features of observations and descriptions zeroed in training.
        dropout: Share of the hidden units of decoders and heads zeroed in training.
        normalise: Layer-normalise the observations first (published: raw).
        centre: Subtract the training windows' mean observation first (published: no).
        descriptions: Descriptions of the states before and after each action. A .npy file with
            embeddings of sentences, [K, 6, W] (three before, then three after), as published; or,
            without such a file, "templates": sentences from fixed templates through a text encoder;
            "observations": the mean observations at the start and the end of each action over
            training windows; "names": fixed vectors hashed from the actions' names; "free": six
            learned vectors for each action; "none": no descriptions, so no memory to decode over
            and nothing to align with.
        name_width: W of the vectors that are hashed from names.
        text_encoder: Of templates: "clip", "t5", a folder, or a name on the hub.
        text_layer: Layer that is read of the text encoder; empty for its kind's first layer.
        state_task: Whether the decoder of states is given the logits of the tasks (published: yes,
            but not for NIV).
        alignment: Weight of the alignment's loss; 0 for none.
        task: Weight of the task's loss.
        states: Weight of the error of the decoded states.
        transitions: Where transitions are counted: in whole training "videos", or in "windows", in
            which the middle of long videos counts more often.
        smoothing: Added to every count of a transition.
        training: How it is trained.
    """

    hidden: NonNegativeInt = 0
    width: PositiveInt = 128
    heads: PositiveInt = 32
    layers: PositiveInt = 2
    feedforward: NonNegativeInt = 0
    input_dropout: float = Field(0.4, ge=0, lt=1)
    dropout: float = Field(0.2, ge=0, lt=1)
    normalise: bool = False
    centre: bool = False
    descriptions: str = Field("names", min_length=1)
    name_width: PositiveInt = 768
    text_encoder: str = "openai/clip-vit-large-patch14-336"
    text_layer: str = "projected"
    state_task: bool = True
    alignment: float = Field(1.0, ge=0)
    task: float = Field(1.0, gt=0)
    states: float = Field(0.1, ge=0)
    transitions: TransitionSource = "videos"
    smoothing: float = Field(0.0, ge=0)
    training: TrainingConfig = TrainingConfig(
        optimiser=OptimiserConfig(
            epochs=500,
            batch_size=256,
            learning_rate=4e-3,
            weight_decay=0.01,
            schedule="step",
            factor=0.65,
            interval=0.08,
        ),
        stopping=StoppingConfig(every=1, patience=0, windows=0),
    )

    @model_validator(mode="after")
    def _usable(self) -> SchemaConfig:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} must be divisible by the {self.heads} heads")
        if self.width % 2:
            raise ValueError(f"width {self.width} must be even")
        layer = self.width * (8 * self.width + 2 * (self.feedforward or 2 * self.width))
        count = self.hidden * (1 + self.width) + 2 * self.layers * layer
        check_weights(count + self.name_width * (6 + self.width), "a network of these widths")
        return self

    @property
    def described(self) -> Described:
        """Kind of the descriptions."""
        match self.descriptions:
            case "templates" | "observations" | "names" | "free" | "none" as kind:
                return kind
        return "file"


class SchemaSettings(Settings):
    """The sections that SCHEMA reads; pydantic has the name `schema` for itself."""

    schema_model: SchemaConfig = SchemaConfig()
