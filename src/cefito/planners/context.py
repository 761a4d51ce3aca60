"""Context of a training: device, folder and all else beside its settings."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import torch

from cefito.errors import RunError
from cefito.progress import Progress, silent
from cefito.runtime import Processes, determining, resolve
from cefito.training.settings import TrainingConfig
from cefito.training.trainer import Loss, TrainingResult, train

__all__ = ["TrainingContext"]


@dataclass(frozen=True, kw_only=True)
class TrainingContext:
    """Where and how a planner trains, apart from its settings."""

    device: torch.device | str = "cpu"
    folder: Path | None = None  # of checkpoints and metrics; None keeps none
    name: str = ""  # folder below it, one for each network
    shared: bool = False  # equal trainings are done once, in folders named by a digest
    key: str = ""  # digest of data that determine the result; guards checkpoints
    progress: Progress = silent
    group: Processes = field(default_factory=Processes)
    tracker: str = "tensorboard"

    def part(self, name: str) -> Self:
        """Return the context for one of a planner's networks."""
        return replace(self, name=name)

    def train(
        self, name: str, loss: Loss, training: TrainingConfig, *, seed: int, settings: Any
    ) -> TrainingResult:
        """Train a loss's network in place."""
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
