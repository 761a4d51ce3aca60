"""Settings that several methods read."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from cefito.field.settings import ClassifierConfig
from cefito.search.settings import SearchConfig
from cefito.settings import Settings
from cefito.training.settings import ClassifierTrainingConfig, OptimiserConfig, StoppingConfig


class ClassifierSettings(Settings):
    """The sections that every method with a task classifier reads."""

    classifier: ClassifierConfig = ClassifierConfig()
    classifier_training: ClassifierTrainingConfig = ClassifierTrainingConfig()


def stepped(
    *, epochs: int, interval: float, every: int = 1, **optimiser_options: Any
) -> dict[str, Any]:
    """Return a training whose rate falls by the factor 0.65 at intervals, a share of the epochs.

    It keeps the best of all epochs, as published, where these were chosen on the test windows.

    Args:
        epochs: Number of epochs.
        interval: Share of the epochs after which the rate falls.
        every: Epochs between validations.
        optimiser_options: Other settings of `OptimiserConfig`.
    """
    optimiser = {"epochs": epochs, "schedule": "step", "factor": 0.65, "interval": interval}
    return {
        "optimiser": OptimiserConfig(**optimiser, **optimiser_options),
        "stopping": StoppingConfig(every=every, patience=0, windows=0),
    }


class CoverageConfig(Settings):
    """How sets of plans are calibrated (not in the paper)."""

    folds: Literal["auto"] | int = Field(
        "auto",
        description="Parts of the training videos that are held out in turn; 0 for the validation "
        "videos. auto is 0 if there are `few_videos` of these and the run was not trained on them, "
        "else `most_folds`, or as many as there are groups.",
    )
    most_folds: int = Field(10, ge=2, description="Folds of auto.")
    few_videos: int = Field(
        50, ge=1, description="Validation videos below which auto holds out training videos."
    )
    windows: int = Field(
        20, ge=1, description="Most windows of a video that are scored under one condition."
    )


class PlanningConfig(SearchConfig):
    """What a planner that searches minimises, among which sequences, and the search for it.

    Attributes:
        objective: The "energy" alone (paper), the "chain" alone, or "fitted": the chain and the
            energy with one weight, fitted on the validation split.
        task_model: Model of the task probabilities: the task "classifier" (paper), or the "chain",
            summed over all sequences of a task; a classifier is only trained if it is chosen.
        tasks: Likeliest tasks to search (paper: 1).
        actions: A(c) from the "training" windows (paper) or from the "taxonomy" (released code).
        fitting_windows: Validation windows that the energy's weight is fitted on; 0 for all.
    """

    objective: Literal["energy", "chain", "fitted"] = "energy"
    task_model: Literal["classifier", "chain"] = "classifier"
    tasks: int = Field(1, ge=1)
    actions: Literal["training", "taxonomy"] = "training"
    fitting_windows: int = Field(200, ge=0)
