"""Context of a training: device, folder and all else beside its settings."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import torch

from cefito.errors import RunError
from cefito.precision import determining, resolve
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
        folder: Folder of checkpoints and metrics of the trainings; None keeps none.
        name: Folder below it for this training; several trainings of one planner have one each.
        shared: Whether other planners train there too. Names of folders then end with a digest of
            all that determines the result, so that equal trainings are done once.
        key: Digest of data that determine the result; guards checkpoints.
        progress: Shows progress.
        group: The processes that train together.
        tracker: Tracker of the metrics, as in `cefito.training.tracking.TRACKERS`.
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
        """Return the context for one of a planner's networks."""
        return replace(self, name=name)

    def train(
        self, name: str, loss: Loss, training: TrainingConfig, *, seed: int, settings: Any
    ) -> TrainingResult:
        """Train a loss's network in place.

        Args:
            name: Name of the network, shown in the progress.
            loss: The loss.
            training: Settings of the training.
            seed: Seed of batches and all that is drawn.
            settings: All else that determines the result, for JSON; a checkpoint made with others
                is refused.

        Raises:
            RunError: The checkpoint in the folder cannot be used or written, or the training
                diverged.
        """
        precision = resolve(training.precision, self.device)
        # GPUs compute in bfloat16 and CPUs in float32 unless the key says otherwise
        other = [precision] if precision == "bfloat16" and str(self.device) == "cpu" else []
        key = json.dumps([name, self.key, seed, determining(settings), *other])
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
