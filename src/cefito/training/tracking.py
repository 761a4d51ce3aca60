"""Trackers of trainings: TensorBoard, Weights & Biases, trackio; they receive copies only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from cefito.errors import ConfigError, RunError

__all__ = ["TRACKERS", "Tracker", "check_tracker", "open_tracker"]

_PROJECT = "cefito"


class Tracker(Protocol):
    """Shows numbers epoch by epoch."""

    def log(self, values: Mapping[str, float], *, step: int) -> None:
        """Show the numbers of an epoch."""

    def close(self) -> None:
        """Finish."""


class _TensorBoard:
    def __init__(self, folder: Path, epoch: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.events = SummaryWriter(str(folder / "tensorboard"), purge_step=epoch + 1)

    def log(self, values: Mapping[str, float], *, step: int) -> None:
        for name, value in values.items():
            self.events.add_scalar(name, value, step)

    def close(self) -> None:
        self.events.close()


class _Runs:
    """A module with `init`, `log` and `finish`, such as Weights & Biases."""

    def __init__(self, name: str, folder: Path, **options: Any) -> None:
        self.module = import_module(name)
        title = f"{folder.parent.name}/{folder.name}"
        self.module.init(project=_PROJECT, name=title, resume="allow", **options)

    def log(self, values: Mapping[str, float], *, step: int) -> None:
        self.module.log(dict(values), step=step)

    def close(self) -> None:
        self.module.finish()


def _wandb(folder: Path, epoch: int) -> Tracker:  # noqa: ARG001
    # runs are resumed by their id, so that the folder identifies the run
    place = sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    return _Runs("wandb", folder, id=place, dir=str(folder))


def _trackio(folder: Path, epoch: int) -> Tracker:  # noqa: ARG001
    return _Runs("trackio", folder)


TRACKERS: dict[str, Callable[[Path, int], Tracker]] = {
    "tensorboard": _TensorBoard,
    "wandb": _wandb,
    "trackio": _trackio,
}
"""All trackers by the names of their modules. New ones are added here only."""


def check_tracker(name: str) -> None:
    """Refuse an unknown or missing tracker; TensorBoard may be missing."""
    if name not in (*TRACKERS, "none"):
        raise ConfigError(
            f"no tracker '{name}'; there are {', '.join(TRACKERS)} and none.", setting="tracker"
        )
    if name not in ("tensorboard", "none") and find_spec(name) is None:
        raise ConfigError(
            f"tracker '{name}' is not installed. Install it: pip install 'cefito[{name}]'.",
            setting="tracker",
        )


def open_tracker(name: str, folder: Path, *, epoch: int) -> Tracker | None:
    """Return a tracker for a training; None for "none", or if TensorBoard is not installed."""
    check_tracker(name)
    if name == "none":
        return None
    try:
        return TRACKERS[name](folder, epoch)
    except ImportError as problem:
        if name == "tensorboard":  # the extra is not installed
            return None
        raise RunError(f"tracker '{name}': {problem}.", setting="tracker") from problem
    except Exception as problem:  # of the tracker: no account, no network, no right
        raise RunError(
            f"tracker '{name}' could not begin ({type(problem).__name__}: {problem}). Set it up, "
            "or train without.",
            setting="tracker",
        ) from problem
