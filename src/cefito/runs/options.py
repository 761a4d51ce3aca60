"""Options of training: one record, which all that train runs take.

Its annotations are types, not texts: the command line makes its options from them.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from cefito.data.windows import Errors, Selection
from cefito.progress import Progress, silent
from cefito.training.trackers import TrackerName

if TYPE_CHECKING:
    import torch

PartName = Literal["recogniser", "verifier"]


class TrainArguments(TypedDict, total=False):
    """The fields of `TrainOptions`, for type checkers."""

    seed: int
    selection: Selection
    keep_checkpoints: bool
    track: TrackerName | None
    errors: Errors
    device: "torch.device | str | None"
    progress: Progress
    trainings: Path | str | None
    reuse: bool
    workers: int
    parts: Collection[PartName]


@dataclass(frozen=True, kw_only=True)
class TrainChoices:
    """Options of training that are options of every command that trains runs, too.

    Attributes:
        seed: Seed of everything drawn: weights, batches and negatives.
        selection: Where epochs and weights are chosen: held-out (validation split), or published
            (on test, as published work does; scores are then too good).
        keep_checkpoints: Keep what killed trainings go on from once the run is finished.
        track: Program that gets the metrics of each epoch, too: tensorboard or wandb.
    """

    seed: int = 0
    selection: Selection = "held-out"
    keep_checkpoints: bool = False
    track: TrackerName | None = None


@dataclass(frozen=True, kw_only=True)
class TrainOptions(TrainChoices):
    """How runs are trained, apart from their settings.

    Attributes:
        seed: Seed of everything drawn.
        selection: Where epochs and weights are chosen: "held-out" or "published".
        keep_checkpoints: Keep checkpoints in the run folder once the run is finished.
        track: Program that gets the metrics of each epoch, too: "tensorboard" or "wandb".
        errors: Leave out training and validation "windows" with a step done wrongly, or "videos"
            with an error.
        device: Where to train; the CPU by default.
        progress: Shows progress.
        trainings: Folder of checkpoints and metrics, shared with other runs so that equal trainings
            are done once; the run folder by default.
        reuse: Open a finished run of the same settings in the folder, instead of repeating the end
            of its training.
        workers: Processes that train the networks of an ensemble side by side, on a CPU. A script
            that asks for several needs `if __name__ == "__main__":`.
        parts: What a run of several lengths gets beside its planner, on the training and validation
            videos: a "recogniser" of steps, if the data set has the rows of whole videos, and a
            "verifier".
    """

    errors: Errors = "keep"
    device: Any = None
    progress: Progress = silent
    trainings: Path | str | None = None
    reuse: bool = False
    workers: int = 1
    parts: Collection[PartName] = ("recogniser", "verifier")

    @classmethod
    def of(cls, options: "TrainOptions | None", changes: TrainArguments) -> "TrainOptions":
        """Return options, by default those of this class, with some changed."""
        return replace(options or TrainOptions(), **changes)
