"""Metrics of trainings for programs that draw them: TensorBoard, and Weights & Biases.

They get the numbers of `metrics.jsonl`, and write beside it, without a network unless asked to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from cefito.errors import ConfigError, explained, install_command

TrackerName = Literal["tensorboard", "wandb"]
"""Name of a program, which is that of its package and of the extra."""


@dataclass(frozen=True)
class Tracker:
    """What takes the metrics of one training."""

    write: Callable[[Mapping[str, float]], None]  # of an epoch or step, by name
    close: Callable[[], None]


def check_tracker(name: TrackerName | None) -> None:
    """Refuse a program that is not installed (ConfigError)."""
    if name is not None:
        remedy = f"Run: {install_command(name)}"
        how: dict[str, Any] = {"error": ConfigError, "setting": "track"}
        with explained(name, "is not installed", remedy, PackageNotFoundError, **how):
            version(name)


def open_tracker(
    name: TrackerName, folder: Path, lines: Iterable[Mapping[str, float]], network: str, about: str
) -> Tracker:
    """Open what takes the metrics of a training, and give it those of earlier epochs.

    Args:
        name: The program.
        folder: Folder of `metrics.jsonl`.
        lines: Metrics of the epochs before.
        network: Name of a part's network; it then has a folder of its own below the part's.
        about: Data, seed and settings of the training, shown beside the metrics.
    """
    place = folder / network
    tracker = _wandb(place, folder.parent, about) if name == "wandb" else _tensorboard(place, about)
    for values in lines:
        tracker.write(values)
    return tracker


def _tensorboard(folder: Path, about: str) -> Tracker:
    from torch.utils.tensorboard import SummaryWriter

    writer: Any = SummaryWriter(folder, purge_step=0)  # what an earlier call wrote is not shown
    writer.add_text("training", f"    {about}")  # as code, not as Markdown

    def write(values: Mapping[str, float]) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, _count(values))
        writer.flush()

    return Tracker(write, writer.close)


def _wandb(folder: Path, run_folder: Path, about: str) -> Tracker:
    import wandb

    folder.mkdir(parents=True, exist_ok=True)

    mode: Any = os.environ.get("WANDB_MODE", "offline")
    name = folder.relative_to(run_folder).as_posix()
    names = {"project": "cefito", "group": run_folder.name, "name": name}
    quiet = wandb.Settings(silent=True, console="off")
    run = wandb.init(dir=folder, mode=mode, settings=quiet, config={"training": about}, **names)
    return Tracker(lambda values: run.log({**values}, step=_count(values)), run.finish)


def _count(values: Mapping[str, float]) -> int:
    """Return the epoch that numbers are of, or the step where there are no epochs."""
    return int(values["epoch" if "epoch" in values else "step"])
