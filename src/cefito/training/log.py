"""What happened in training: a JSON line an epoch, and a tracker that shows the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cefito.errors import RunError
from cefito.files import write_text
from cefito.training.tracking import open_tracker

__all__ = ["MetricsLog", "read_metrics"]


class MetricsLog:
    """Writes `metrics.jsonl` of a training, and tells a tracker of the same.

    Args:
        folder: Folder of the training.
        epoch: Finished epochs; lines beyond them, left by a killed process, are dropped.
        tracker: Name of the tracker.

    Raises:
        ConfigError: No such tracker, or it is not installed.
        RunError: It cannot begin.
    """

    def __init__(self, folder: Path, epoch: int, *, tracker: str = "tensorboard") -> None:
        self.path = folder / "metrics.jsonl"
        kept = (
            [line for line in read_metrics(self.path) if line["epoch"] <= epoch]
            if self.path.exists()
            else []
        )
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in kept))
        self._tracker = open_tracker(tracker, folder, epoch=epoch)

    def write(self, values: dict[str, Any]) -> None:
        """Append one epoch; `values` holds "epoch" and flat numbers."""
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(values) + "\n")
        except OSError as problem:
            raise RunError(
                f"{self.path}: could not be written ({problem.strerror}). Free some disk space and "
                "resume."
            ) from problem
        if self._tracker is not None:
            shown = {name: value for name, value in values.items() if name != "epoch"}
            self._tracker.log(shown, step=values["epoch"])

    def close(self) -> None:
        """Nothing more will come."""
        if self._tracker is not None:
            self._tracker.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a `metrics.jsonl`; a last line cut short by a kill is left out."""
    lines: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return lines
