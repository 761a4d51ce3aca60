"""Where and how a planner trains: what all its trainings are given beside their settings."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import torch

from cefito.errors import RunError
from cefito.precision import Resolved, determining, resolve
from cefito.progress import Progress, silent
from cefito.training.distributed import Processes
from cefito.training.settings import TrainingConfig
from cefito.training.trainer import Loss, TrainingResult, train

__all__ = ["TrainingContext"]


@dataclass(frozen=True, kw_only=True)
class TrainingContext:
    """Where and how a planner trains, apart from its settings.

    Attributes:
        device: Where the networks run.
        folder: Where checkpoints and metrics of the trainings go; None keeps none.
        name: Folder below it for this training; several trainings of one planner have one each.
        shared: Whether other planners train there too: folders then bear a digest of all that
            determines the result, so that equal trainings are done once and different ones keep
            apart.
        key: What else determines the result (the data set's fingerprint); guards checkpoints.
        progress: Shows progress.
        group: The processes that train together.
        tracker: Who shows the metrics that are kept, as in `cefito.training.tracking.TRACKERS`.
    """

    device: torch.device | str = "cpu"
    folder: Path | None = None
    name: str = ""
    shared: bool = False
    key: str = ""
    progress: Progress = silent
    group: Processes = field(default_factory=Processes)
    tracker: str = "tensorboard"

    def part(self, name: str) -> Self:
        """The same for one of a planner's networks."""
        return replace(self, name=name)

    def train(
        self, name: str, loss: Loss, training: TrainingConfig, *, seed: int, settings: Any
    ) -> TrainingResult:
        """Train a loss's network in place.

        Args:
            name: Name of the network, shown in the progress.
            loss: What to train.
            training: How.
            seed: Seed of batches and all that is drawn.
            settings: All else that determines the result, for JSON; a checkpoint made with others
                is refused.

        Raises:
            RunError: The checkpoint in the folder cannot be used or written, or the training
                diverged.
        """
        precision = resolve(training.precision, self.device)
        key = json.dumps([name, self.key, seed, determining(settings), *self._other(precision)])
        return train(
            loss,
            optimiser=training.optimiser,
            ema=training.ema,
            stopping=training.stopping,
            seed=seed,
            folder=self._place(key),
            label=name,
            key=key,
            precision=precision,
            progress=self.progress,
            group=self.group,
            tracker=self.tracker,
        )

    def _other(self, precision: Resolved) -> list[str]:
        """What a key says of the precision: nothing where checkpoints of before are meant.

        These are of float32 on a CPU and of bfloat16 on a GPU, where results differ from one device
        to the next anyway.
        """
        return [precision] if precision == "bfloat16" and str(self.device) == "cpu" else []

    def _place(self, key: str) -> Path | None:
        if self.folder is None:
            return None
        digest = f"-{sha256(key.encode()).hexdigest()[:12]}" if self.shared else ""
        place = self.folder / f"{self.name}{digest}" if self.name else self.folder
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise RunError(f"{place}: cannot be made ({problem.strerror}).") from problem
        return place
