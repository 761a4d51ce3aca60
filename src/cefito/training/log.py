"""The log of a training: metrics of every epoch in a file, and shown by a tracker."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from cefito.errors import ConfigError, RunError, explained
from cefito.files import read_text, write_text
from cefito.training.checkpoint import checkpoint_epoch

__all__ = [
    "TRACKERS",
    "MetricsLog",
    "Tracker",
    "check_tracker",
    "incomplete",
    "open_tracker",
    "read_metrics",
]


class MetricsLog:
    """Writes `metrics.jsonl` of a training, and passes the values to a tracker."""

    def __init__(self, folder: Path, epoch: int, *, tracker: str = "tensorboard") -> None:
        self.path = folder / "metrics.jsonl"
        kept = (
            [line for line in read_metrics(self.path) if line["epoch"] <= epoch]
            if self.path.exists()
            else []
        )
        if kept and kept[-1]["epoch"] < epoch:
            raise RunError(
                f"{self.path}: ends with epoch {kept[-1]['epoch']}, but the checkpoint beside it "
                f"is of epoch {epoch}. Remove the file to go on without its earlier lines."
            )
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))
        self._tracker = open_tracker(tracker, folder, epoch=epoch)

    def write(self, values: dict[str, Any]) -> None:
        """Append one epoch; `values` holds "epoch" and flat numbers."""
        failures = explained(
            self.path, "could not be written", "", OSError, error=RunError, writes=True
        )
        with failures, self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")
        if self._tracker is not None:
            shown = {name: value for name, value in values.items() if name != "epoch"}
            self._tracker.log(shown, step=values["epoch"])

    def close(self) -> None:
        """Close the tracker."""
        if self._tracker is not None:
            self._tracker.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a `metrics.jsonl`, without a last line cut short by a kill."""
    remedy = "Remove the file to go on without its earlier lines."
    texts = read_text(path, remedy, RunError).split("\n")
    lines: list[dict[str, Any]] = []
    for number, text in enumerate(texts, 1):
        place = f"{path}, line {number}"
        if not text and number == len(texts):
            break
        try:
            line = json.loads(text)
        except (ValueError, RecursionError) as problem:
            if number == len(texts):  # no end of line: the process was killed while it wrote
                break
            raise RunError(f"{place}: not valid JSON. {remedy}") from problem
        if not isinstance(line, dict) or not all(map(_is_number, line.values())):
            raise RunError(f"{place}: expected an object of finite numbers. {remedy}")
        due = lines[-1]["epoch"] + 1 if lines else max(1, int(line.get("epoch", 1)))
        if type(line.get("epoch")) is not int or line["epoch"] != due:
            raise RunError(f"{place}: is of epoch {line.get('epoch')!r}; expected {due}. {remedy}")
        lines.append(line)
    return lines


def incomplete(folder: Path) -> str:
    """Return how many epochs the metrics of a training have, if their checkpoint has more."""
    metrics, checkpoint = folder / "metrics.jsonl", folder / "checkpoint.safetensors"
    if not checkpoint.exists():
        return ""
    there = len(read_metrics(metrics)) if metrics.exists() else 0
    epochs = checkpoint_epoch(checkpoint)
    return f"has {there} of {epochs} epochs" if there < epochs else ""


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


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
