"""Loss curves, from the metrics that trainings leave."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cefito.report.schema import LossCurve
from cefito.training.log import read_metrics

__all__ = ["loss_curves"]


def loss_curves(files: Mapping[str, Path]) -> list[LossCurve]:
    """The curves of trainings, by the order of their names; those without an epoch are left out.

    Args:
        files: The `metrics.jsonl` of each training, by what it is called.

    Raises:
        RunError: A file is damaged.
    """
    curves = []
    for name in sorted(files):
        lines = [line for line in read_metrics(files[name]) if "loss" in line]
        if not lines:
            continue
        found = {key for line in lines for key in line if key.startswith("val_")}
        scores = sorted(key for key in found if not key.endswith("_seconds"))
        curves.append(
            LossCurve(
                name=name,
                epochs=[int(line["epoch"]) for line in lines],
                loss=[float(line["loss"]) for line in lines],
                scores={
                    key: [(int(line["epoch"]), float(line[key])) for line in lines if key in line]
                    for key in scores
                },
            )
        )
    return curves
