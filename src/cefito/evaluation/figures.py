"""Pictures of a run: how training went, and what the energies of a query's candidates look like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.training.log import read_metrics

__all__ = ["EnergyCurve", "draw_energies", "draw_training"]

_BLUE, _RED, _GREY = "#2f6db3", "#c8443a", "#888888"


@dataclass(frozen=True)
class EnergyCurve:
    """The energies of all candidates of one query, ascending, and where the annotated sequence stands among them.

    Attributes:
        title: What the query is.
        energies: Ascending [M].
        truth_rank: Place of the annotated sequence, from 0; None where it is no candidate.
    """

    title: str
    energies: NDArray[np.float64]
    truth_rank: int | None


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "cefito"
    from matplotlib import pyplot

    return pyplot


def draw_training(run: Path, target: Path) -> None:
    """Draw losses and validation scores of both trainings of a run folder against epochs.

    Args:
        run: Run folder.
        target: Picture to write; its ending says the format.
    """
    pyplot = _pyplot()
    parts = [(name, read_metrics(run / folder / "metrics.jsonl"), score, label) for name, folder, score, label in (
        ("task classifier", "classifier", "val_task_accuracy", "task accuracy, validation (%)"),
        ("energy field", "field", "val_success_rate", "success rate, validation (%)"))]
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for axis, (title, lines, score, label) in zip(axes, parts, strict=True):
        axis.plot([line["epoch"] for line in lines], [line["loss"] for line in lines], color=_BLUE, marker=".", markersize=4)
        axis.set(title=title, xlabel="epoch", ylabel="training loss", ylim=(0, None))
        axis.yaxis.label.set_color(_BLUE)
        scored = [line for line in lines if score in line]
        other = axis.twinx()
        other.plot([line["epoch"] for line in scored], [line[score] for line in scored], color=_RED, marker=".",
                   markersize=4)
        other.set_ylabel(label, color=_RED)
        other.set_ylim(0, 100)
        axis.grid(color="#dddddd", linewidth=0.5)
    figure.savefig(target, dpi=150)
    pyplot.close(figure)


def draw_energies(curves: Sequence[EnergyCurve], target: Path) -> None:
    """Draw the energies of all candidates of some queries by rank, the annotated sequence marked.

    Args:
        curves: One panel each.
        target: Picture to write; its ending says the format.
    """
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(1, len(curves), figsize=(3.4 * len(curves), 3.2), layout="constrained", squeeze=False)
    for axis, curve in zip(axes[0], curves, strict=True):
        ranks = np.arange(1, len(curve.energies) + 1)
        axis.plot(ranks, curve.energies, color=_BLUE, label="candidates")
        axis.plot(ranks[:1], curve.energies[:1], "o", color=_GREY, label="plan")
        if curve.truth_rank is not None:
            axis.plot(ranks[curve.truth_rank], curve.energies[curve.truth_rank], "*", color=_RED, markersize=11,
                      label=f"annotated (rank {curve.truth_rank + 1})")
        axis.set(title=curve.title, xlabel="rank among candidates", ylabel="energy", xscale="log")
        axis.title.set_fontsize(9)
        axis.grid(color="#dddddd", linewidth=0.5)
        axis.legend(fontsize=7, loc="lower right")
    figure.savefig(target, dpi=150)
    pyplot.close(figure)
