"""Options of training: one record, which all that train runs take.

Its annotations are types, not texts: the command line makes its options from them.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from cefito.data.windows import Errors, Selection
from cefito.progress import Progress, silent
from cefito.training.trackers import TrackerName

if TYPE_CHECKING:
    import torch

_OPTION = {"recorded": True}  # an option of commands that train, too, which run.json records
_UNRECORDED = {"recorded": False}  # one that makes no other run
PartName = Literal["recogniser", "verifier"]


class TrainArguments(TypedDict, total=False):
    """The fields of `TrainOptions`, for type checkers."""

    seed: int
    selection: Selection
    errors: Errors
    keep_checkpoints: bool
    track: TrackerName | None
    device: "torch.device | str | None"
    progress: Progress
    trainings: Path | str | None
    reuse: bool
    workers: int
    parts: Collection[PartName]


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """How runs are trained, apart from their settings.

    Attributes:
        seed: Seed of weights, batches and negatives.
        selection: Where epochs and weights are chosen: held-out (validation split), or published
            (on test, as published work does; scores are then too good).
        errors: What to leave out of training, if steps were done wrongly: keep (nothing), windows
            (those with such a step) or videos (those with an error).
        keep_checkpoints: Keep what killed trainings go on from once the run is finished.
        track: Program that gets the metrics of each epoch, too: tensorboard, or wandb, which works
            offline unless WANDB_MODE is online.
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

    seed: int = field(default=0, metadata=_OPTION)
    selection: Selection = field(default="held-out", metadata=_OPTION)
    errors: Errors = field(default="keep", metadata=_OPTION)
    keep_checkpoints: bool = field(default=False, metadata=_UNRECORDED)
    track: TrackerName | None = field(default=None, metadata=_UNRECORDED)
    device: Any = None
    progress: Progress = silent
    trainings: Path | str | None = None
    reuse: bool = False
    workers: int = 1
    parts: Collection[PartName] = ("recogniser", "verifier")

    @classmethod
    def of_commands(cls) -> list[tuple[str, Any, Any]]:
        """Return name, type and default of the options of commands."""
        return [
            (option.name, option.type, option.default) for option in fields(cls) if option.metadata
        ]

    @property
    def recorded(self) -> dict[str, Any]:
        """The options that run.json records and that differ from the default, by name."""
        defaults = {
            option.name: option.default
            for option in fields(self)
            if option.metadata.get("recorded")
        }
        values = {name: getattr(self, name) for name in defaults}
        return {name: value for name, value in values.items() if value != defaults[name]}

    @classmethod
    def of(cls, options: "TrainOptions | None", changes: TrainArguments) -> "TrainOptions":
        """Return options, by default those of this class, with some changed."""
        return replace(options or cls(), **changes)
