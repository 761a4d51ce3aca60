"""Settings of the verifier."""

from __future__ import annotations

from pydantic import Field

from cefito.recognition.settings import RowNetworksConfig


class VerifierConfig(RowNetworksConfig):
    """How errors of steps are learned (not in the paper).

    The defaults were chosen by folds over training videos.
    """

    width: int = Field(48, ge=1, le=1 << 16, description="Hidden units of each.")
    learning_rate: float = Field(4e-3, gt=0)
    weight_decay: float = Field(0.5, ge=0)
    input_dropout: float = Field(0.1, ge=0, lt=1)
    dropout: float = Field(0.3, ge=0, lt=1)
    folds: int = Field(
        4, ge=2, le=100, description="Parts of the videos held out in turn to calibrate."
    )
    online: bool = Field(
        False, description="Whether networks learn a step from those before it alone."
    )
    fewest_errors: int = Field(
        20, ge=1, description="Steps with an error, without which networks are not trained."
    )
    mistakes: float = Field(
        1.0, gt=0, description="Expected mistakes a video, online, where no video names errors."
    )
    unsure: float = Field(
        0.2,
        gt=0,
        le=1,
        description="From which probability on a film leaves open whether a step was done, or in "
        "its place.",
    )
