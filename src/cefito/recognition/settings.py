"""Settings of recognisers of steps, and of networks of single rows, which the verifier has too."""

from __future__ import annotations

from math import log2
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field

from cefito.errors import ConfigError
from cefito.runtime import Precision
from cefito.settings import Settings

_Shares = Annotated[
    tuple[Annotated[float, Field(ge=0, le=1)], ...], Field(min_length=1, max_length=16)
]

_MOST_LAYERS, _MOST_ROWS = 16, 10**6
_LEAST_TRUST = 1e-3


class RecogniserSettings(Settings):
    """Base of the settings of recognisers."""

    method: str = Field(
        "segmental", description="The recogniser by name; a wrong one is answered with all names."
    )
    precision: Precision = Field(
        "float32", description="Precision of matrix products in training: float32, bfloat16, auto."
    )


Chosen = TypeVar("Chosen", bound=RecogniserSettings)


def settings_of(config: RecogniserSettings | None, kind: type[Chosen]) -> Chosen:
    """Return settings of a recogniser, its defaults for None (ConfigError if of another one)."""
    if config is None:
        return kind()
    if not isinstance(config, kind):
        problem = f"settings of the recogniser {config.method}: expected those of {kind().method}"
        raise ConfigError(f"{problem}.", setting="recogniser.method")
    return config


class NearestConfig(RecogniserSettings):
    """The nearest training row, which has nothing to set."""

    method: str = "nearest"


class RowNetworksConfig(Settings):
    """Networks of one hidden layer, whose probabilities are averaged, and their training."""

    members: int = Field(3, ge=1, le=64, description="Networks whose probabilities are averaged.")
    width: int = Field(128, ge=1, le=1 << 16, description="Hidden units of each.")
    training_steps: int = Field(400, ge=1, le=10**6, description="Batches that each is trained on.")
    batch_size: int = Field(256, ge=1, le=1 << 16)
    learning_rate: float = Field(1e-3, gt=0)
    weight_decay: float = Field(1.0, ge=0)
    input_dropout: float = Field(0.2, ge=0, lt=1)
    dropout: float = Field(0.5, ge=0, lt=1)


class RecogniserConfig(RowNetworksConfig, RecogniserSettings):
    """How steps are recognised in the rows of whole videos (not in the paper).

    The defaults were chosen by folds over the training videos of two data sets.
    """

    directions: int = Field(
        300,
        ge=1,
        le=1 << 16,
        description="Principal components that the numbers of a row are reduced to.",
    )
    memories: tuple[Annotated[float, Field(gt=0, le=1e5)], ...] = Field(
        (2.0, 6.0, 20.0),
        max_length=16,
        description="Time constants of averages of past rows, in seconds.",
    )
    longest_mean: int = Field(
        1800,
        ge=1,
        le=_MOST_ROWS,
        description="Rows that the mean of the video so far reaches back, at a row a second.",
    )
    row_passes: int = Field(
        6,
        ge=0,
        le=10_000,
        description="Times that the networks of single rows see as many rows as the videos have, "
        "at least.",
    )
    temporal_layers: int = Field(
        8, ge=0, le=12, description="Layers of the temporal network beside them; 0 for none."
    )
    attention_layers: int = Field(
        8,
        ge=0,
        le=_MOST_LAYERS,
        description="Blocks of each stage of the attention network of whole videos at a row a "
        "second; 0 for none, nor without the temporal network, whose other settings it shares.",
    )
    attention_decoders: int = Field(
        1, ge=0, le=64, description="Stages of it that refine the first."
    )
    attention_shares: _Shares = Field(
        (0.0, 0.5),
        description="Shares of it in the logarithm of a row's probability; one is chosen.",
    )
    temporal_channels: int = Field(64, ge=1, le=1 << 12, description="Numbers of each layer.")
    temporal_passes: int = Field(
        60,
        ge=1,
        le=10_000,
        description="Times that its training sees as many rows as the videos have; the attention "
        "network sees each video a third as often.",
    )
    temporal_steps: int = Field(
        200, ge=1, le=10**6, description="Batches that it is trained on at least."
    )
    temporal_rows: int = Field(
        512, ge=1, le=1 << 16, description="Rows of a part of a video that it is trained on."
    )
    temporal_parts: int = Field(4, ge=1, le=1 << 10, description="Parts of a batch.")
    temporal_learning_rate: float = Field(2e-3, gt=0)
    temporal_weight_decay: float = Field(1e-2, ge=0)
    temporal_clip: float = Field(
        1.0, ge=0, description="Bound on the norm of its gradient; 0 for none."
    )
    temporal_input_dropout: float = Field(0.3, ge=0, lt=1)
    temporal_dropout: float = Field(0.5, ge=0, lt=1)
    temporal_smoothing: float = Field(
        0.15, ge=0, description="Weight of the loss of changes from row to row (MS-TCN)."
    )
    temporal_jump: float = Field(
        4.0, gt=0, description="Largest change of a logarithm in that loss (MS-TCN)."
    )
    chain: bool = Field(
        True, description="Join rows by the chain of steps; else each row is labelled by itself."
    )
    phases: int = Field(
        4, ge=1, le=32, description="Most phases of a step; durations are negative binomial."
    )
    smoothing: float = Field(
        0.1, ge=1e-6, description="Weight of an action's frequency beside the transitions counted."
    )
    trusts: tuple[Annotated[float, Field(gt=0, le=10)], ...] = Field(
        (0.03, 0.1, 0.3, 0.6, 1.0, 1.7, 3.0),
        min_length=1,
        max_length=16,
        description="Powers of a row's likelihood, since rows resemble each other, at a row a "
        "second; one is chosen.",
    )
    weights: _Shares = Field(
        (0.0, 0.25, 0.5, 0.75, 1.0),
        description="Powers of the networks' probability of a label beside the chain's; one is "
        "chosen for whole videos, and one for the present row.",
    )
    changes: int = Field(
        50,
        ge=0,
        le=1 << 16,
        description="Principal components, at most one for four steps, whose changes networks see "
        "that do not know the order of steps; 0 for no such networks.",
    )
    rearranged: int = Field(
        4, ge=1, le=100, description="Copies of each video, in random orders, to train them on."
    )
    shares: _Shares = Field(
        (0.0, 0.5, 1.0),
        description="Shares of these networks in the logarithm of a row's likelihood; one is "
        "chosen.",
    )
    doubts: _Shares = Field(
        (0.0, 0.1, 0.3),
        description="Shares of steps that follow in any order when videos are verified; one is "
        "chosen.",
    )
    drawn: int = Field(
        64, ge=1, le=10_000, description="Sequences of steps drawn when videos are verified."
    )
    prior_power: float = Field(
        0.8, ge=0, le=10, description="Power of the frequency that probabilities are divided by."
    )
    unexpected: float = Field(
        1e-3, gt=0, le=1, description="Likelihood of a row that no network expected."
    )
    lag: float = Field(
        30.0,
        gt=0,
        le=3600,
        description="Seconds before which a row's step is not settled; it is after twice as many.",
    )
    sure_step: float = Field(
        0.2,
        ge=0,
        le=1,
        description="Mean probability of its rows from which a step counts as done, row by row.",
    )
    shortest_step: float = Field(
        0.4,
        ge=0,
        le=1,
        description="Least duration of a step that counts as done, as a share of the mean of its "
        "action; a step that goes on or was reported may be shorter.",
    )
    folds: int = Field(
        3, ge=2, le=100, description="Parts of the videos held out in turn to calibrate."
    )

    def at_rate(self, rate: float) -> Self:
        """Return the settings for rows at a rate above one a second.

        Such rows resemble each other more, so that powers of their likelihood fall with the rate,
        and the attention network has a block more each time that the rate doubles, which reaches as
        many seconds.
        """
        if rate <= 1:
            return self
        layers = self.attention_layers + round(log2(rate)) * (self.attention_layers > 0)
        return self.model_copy(
            update={
                "trusts": tuple(max(trust / rate, _LEAST_TRUST) for trust in self.trusts),
                "attention_layers": min(layers, _MOST_LAYERS),
                "longest_mean": min(round(self.longest_mean * rate), _MOST_ROWS),
            }
        )

    @property
    def attention(self) -> ASFormerConfig | None:
        """Settings of the attention network of whole videos; None for none."""
        if not (self.attention_layers and self.temporal_layers):
            return None
        return ASFormerConfig(
            layers=self.attention_layers,
            decoders=self.attention_decoders,
            channels=self.temporal_channels,
            dropout=self.temporal_dropout,
            input_dropout=self.temporal_input_dropout,
            smoothing=self.temporal_smoothing,
            jump=self.temporal_jump,
        )

    @property
    def sees_changes(self) -> bool:
        """Whether there are networks of changes, which are differences from averages."""
        return bool(self.changes and self.memories)


class VideoNetworkConfig(RecogniserSettings):
    """A network that is trained on whole videos, one of them a batch."""

    channels: int = Field(64, ge=1, le=1 << 12, description="Numbers of each layer.")
    epochs: int = Field(100, ge=1, le=10**6, description="Times that each video is seen.")
    learning_rate: float = Field(5e-4, gt=0)
    one_cycle: bool = Field(
        False, description="Raise the learning rate, then lower it; else it is constant."
    )
    weight_decay: float = Field(0.0, ge=0)
    clip: float = Field(0.0, ge=0, description="Bound on the norm of the gradient; 0 for none.")
    dropout: float = Field(0.5, ge=0, lt=1)
    smoothing: float = Field(0.15, ge=0, description="Weight of the loss of changes.")
    jump: float = Field(4.0, gt=0, description="Largest change of a logarithm in that loss.")


class MSTCNConfig(VideoNetworkConfig):
    """MS-TCN++; the defaults are those of its authors' released training."""

    method: str = "mstcn"
    layers: int = Field(11, ge=1, le=16, description="Layers of the first stage.")
    refining_layers: int = Field(10, ge=1, le=16, description="Layers of a stage that refines.")
    refining_stages: int = Field(3, ge=0, le=64, description="Stages that refine.")


class ASFormerConfig(VideoNetworkConfig):
    """A transformer of ASFormer's kind; the defaults are as published."""

    method: str = "asformer"
    epochs: int = Field(120, ge=1, le=10**6, description="Times that each video is seen.")
    layers: int = Field(10, ge=1, le=16, description="Blocks of the encoder and of each decoder.")
    decoders: int = Field(3, ge=0, le=64, description="Stages that refine.")
    decay: float = Field(
        3.0, ge=0, description="Decoder d, from 0, weighs its attention by exp(−decay · d)."
    )
    reduction: int = Field(
        2, ge=1, le=1 << 12, description="Channels for each number of queries, keys and values."
    )
    input_dropout: float = Field(0.3, ge=0, lt=1, description="Share of input numbers left out.")


class OnlineConfig(VideoNetworkConfig):
    """A causal network of rows, which labels each row from those so far.

    The defaults of `sure` and `shortest` were chosen by folds over the training videos of IKEA ASM.
    """

    method: str = "online"
    network: Literal["tcn", "lstm"] = Field(
        "tcn", description="Dilated causal convolutions (tcn), or a recurrent network (lstm)."
    )
    layers: int = Field(8, ge=1, le=12, description="Layers of the convolutions.")
    units: int = Field(128, ge=1, le=1 << 12, description="Units of the recurrent network.")
    epochs: int = Field(60, ge=1, le=10**6, description="Times that each video is seen.")
    learning_rate: float = Field(2e-3, gt=0)
    one_cycle: bool = Field(
        True, description="Raise the learning rate, then lower it; else it is constant."
    )
    weight_decay: float = Field(1e-2, ge=0)
    clip: float = Field(1.0, ge=0, description="Bound on the norm of the gradient; 0 for none.")
    input_dropout: float = Field(0.3, ge=0, lt=1)
    rule: bool = Field(
        False, description="Keep the last label while the next is unsure and its segment short."
    )
    sure: float = Field(0.4, ge=0, le=1, description="Probability from which a label is sure.")
    shortest: float = Field(
        1.0,
        ge=0,
        le=1000,
        description="Length from which a segment is no longer short, in mean ones of training.",
    )
