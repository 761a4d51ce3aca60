"""Settings of the verifier."""

from __future__ import annotations

from pydantic import Field

from cefito.recognition.settings import RecogniserConfig
from cefito.settings import Settings


class VerifierConfig(Settings):
    """How errors of steps are learned (not in the paper).

    The defaults were chosen by folds over training videos.
    """

    members: int = Field(3, ge=1, le=64, description="Networks whose probabilities are averaged.")
    width: int = Field(48, ge=1, le=1 << 16, description="Hidden units of each.")
    training_steps: int = Field(400, ge=1, le=10**6, description="Batches that each is trained on.")
    batch_size: int = Field(256, ge=1, le=1 << 16)
    learning_rate: float = Field(4e-3, gt=0)
    weight_decay: float = Field(0.5, ge=0)
    input_dropout: float = Field(0.1, ge=0, lt=1)
    dropout: float = Field(0.3, ge=0, lt=1)
    folds: int = Field(
        4, ge=2, le=100, description="Parts of the videos held out in turn to calibrate."
    )
    fewest_errors: int = Field(
        20, ge=1, description="Steps with an error, without which networks are not trained."
    )

    @property
    def network(self) -> RecogniserConfig:
        """Settings of the networks, without one of time."""
        values = self.model_dump(exclude={"folds", "fewest_errors"})
        return RecogniserConfig(temporal_layers=0, **values)
