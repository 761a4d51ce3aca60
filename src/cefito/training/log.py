"""Metrics of a training: a JSON line per epoch, and a tracker that shows the same."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from cefito.errors import RunError
from cefito.files import write_text
from cefito.training.tracking import open_tracker

__all__ = ["MetricsLog", "read_metrics"]


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
        """Close the tracker."""
        if self._tracker is not None:
            self._tracker.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a `metrics.jsonl`, without a last line cut short by a kill."""
    remedy = "Remove the file to go on without its earlier lines."
    try:
        texts = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as problem:
        raise RunError(f"{path}: cannot be read ({problem}). {remedy}") from problem
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


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
