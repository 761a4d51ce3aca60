"""The log of a training: metrics of every epoch in a file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from cefito.errors import RunError, explained
from cefito.files import read_text, write_text
from cefito.training.checkpoint import checkpoint_epoch


class MetricsLog:
    """Writes `metrics.jsonl` of a training, whose lines after `epoch` are dropped."""

    def __init__(self, folder: Path, epoch: int) -> None:
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

    def write(self, values: dict[str, Any]) -> None:
        """Append one epoch; `values` holds "epoch" and flat numbers."""
        failures = explained(
            self.path, "could not be written", "", OSError, error=RunError, writes=True
        )
        with failures, self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")


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
