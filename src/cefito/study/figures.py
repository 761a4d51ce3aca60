"""Pictures of a run: how training went, and what the energies of a query's candidates look like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.evaluation.calibration import Calibration
from cefito.evaluation.statistics import seed_interval
from cefito.study.fonts import readable
from cefito.training.log import read_metrics

__all__ = [
    "Curve",
    "EnergyCurve",
    "Line",
    "PlanPanel",
    "draw_curves",
    "draw_energies",
    "draw_plans",
    "draw_reliability",
    "draw_training",
]

_BLUE, _RED, _GREY, _DARK = "#2f6db3", "#c8443a", "#888888", "#444444"
_HEAD = 0.55  # width of what stands before a plan, in widths of an action


@dataclass(frozen=True)
class EnergyCurve:
    """The energies of all candidates of one query, and where the annotated sequence stands.

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


def _save(figure: Any, target: Path) -> None:
    """Write a figure, names in any script, and forget it."""
    from matplotlib import pyplot

    with readable(figure):
        figure.savefig(target, dpi=150)
    pyplot.close(figure)


def draw_training(run: Path, target: Path) -> None:
    """Draw losses and validation scores of both trainings of a run folder against epochs.

    Args:
        run: Run folder.
        target: Picture to write; its ending says the format.
    """
    pyplot = _pyplot()
    parts = [
        (name, read_metrics(run / folder / "metrics.jsonl"), score, label)
        for name, folder, score, label in (
            ("task classifier", "classifier", "val_task_accuracy", "task accuracy, validation (%)"),
            ("energy field", "field", "val_success_rate", "success rate, validation (%)"),
        )
    ]
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for axis, (title, lines, score, label) in zip(axes, parts, strict=True):
        axis.plot(
            [line["epoch"] for line in lines],
            [line["loss"] for line in lines],
            color=_BLUE,
            marker=".",
            markersize=4,
        )
        axis.set(title=title, xlabel="epoch", ylabel="training loss", ylim=(0, None))
        axis.yaxis.label.set_color(_BLUE)
        scored = [line for line in lines if score in line]
        other = axis.twinx()
        other.plot(
            [line["epoch"] for line in scored],
            [line[score] for line in scored],
            color=_RED,
            marker=".",
            markersize=4,
        )
        other.set_ylabel(label, color=_RED)
        other.set_ylim(0, 100)
        axis.grid(color="#dddddd", linewidth=0.5)
    _save(figure, target)


def draw_energies(curves: Sequence[EnergyCurve], target: Path) -> None:
    """Draw the energies of all candidates of some queries by rank, the annotated sequence marked.

    Args:
        curves: One panel each.
        target: Picture to write; its ending says the format.
    """
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(
        1, len(curves), figsize=(3.4 * len(curves), 3.2), layout="constrained", squeeze=False
    )
    for axis, curve in zip(axes[0], curves, strict=True):
        ranks = np.arange(1, len(curve.energies) + 1)
        axis.plot(ranks, curve.energies, color=_BLUE, label="candidates")
        axis.plot(ranks[:1], curve.energies[:1], "o", color=_GREY, label="plan")
        if curve.truth_rank is not None:
            axis.plot(
                ranks[curve.truth_rank],
                curve.energies[curve.truth_rank],
                "*",
                color=_RED,
                markersize=11,
                label=f"annotated (rank {curve.truth_rank + 1})",
            )
        axis.set(title=_literal(curve.title), xlabel="rank among candidates", ylabel="energy")
        axis.set_xscale("log")
        axis.title.set_fontsize(9)
        axis.grid(color="#dddddd", linewidth=0.5)
        axis.legend(fontsize=7, loc="lower right")
    _save(figure, target)


def draw_reliability(calibration: Calibration, target: Path, *, title: str = "") -> None:
    """Draw success against probability, and success among the surest windows against coverage.

    Args:
        calibration: Of a planner on some windows.
        target: Picture to write; its ending says the format.
        title: Title of the whole.
    """
    pyplot = _pyplot()
    bins, curve = calibration.reliability, calibration.risk_coverage
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(7.4, 3.6), layout="constrained")
    top = 1.05 * max(1.0, *bins.probability, *bins.success)
    left.plot([0, top], [0, top], color=_GREY, linewidth=1, linestyle="--")
    left.plot(bins.probability, bins.success, color=_BLUE, marker="o", markersize=4)
    left.set(
        title=f"ECE {calibration.expected_calibration_error:.1f}",
        xlabel="probability of the best plan (%)",
        ylabel="success rate (%)",
        xlim=(0, top),
        ylim=(0, top),
    )
    right.plot(curve.coverage, curve.success, color=_BLUE, marker="o", markersize=4)
    right.set(
        title=f"SR at 50 % coverage {calibration.success_at_half_coverage:.1f}",
        xlabel="windows answered, surest first (%)",
        ylabel="success rate among them (%)",
        xlim=(0, 100),
        ylim=(0, 100),
    )
    for axis in (left, right):
        axis.grid(color="#dddddd", linewidth=0.5)
        axis.title.set_fontsize(9)
    figure.suptitle(_literal(title), fontsize=10)
    _save(figure, target)


@dataclass(frozen=True)
class Curve:
    """A curve with intervals over seeds.

    Attributes:
        label: Its name.
        points: Places and the values of all seeds there.
    """

    label: str
    points: list[tuple[float, list[float]]]


def draw_curves(
    panels: Sequence[Sequence[Curve]],
    target: Path,
    *,
    titles: Sequence[str],
    labels: Sequence[str],
    values: Sequence[str],
    logarithmic: Sequence[bool],
    log_values: bool = False,
    title: str = "",
) -> None:
    """Draw panels of curves: means over seeds, with 90 % intervals where there are several.

    Args:
        panels: Curves of each panel.
        target: Picture to write; its ending says the format.
        titles: Title of each panel.
        labels: What each panel's horizontal axis shows.
        values: What each panel's vertical axis shows.
        logarithmic: Whether each horizontal axis is.
        log_values: Whether the vertical axes are.
        title: Title of the whole.
    """
    pyplot = _pyplot()
    from matplotlib import ticker

    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(4.5 * len(panels), 3.6), layout="constrained", squeeze=False
    )
    for axis, curves, name, label, value, log in zip(
        axes[0], panels, titles, labels, values, logarithmic, strict=True
    ):
        for curve in curves:
            places = [place for place, _ in curve.points]
            intervals = [seed_interval(values) for _, values in curve.points]
            axis.errorbar(
                places,
                [interval.mean for interval in intervals],
                yerr=[interval.half_width or 0.0 for interval in intervals],
                marker="o",
                markersize=4,
                capsize=2,
                label=_literal(curve.label),
            )
        ticks = sorted({place for curve in curves for place, _ in curve.points})
        axis.set(title=name, xlabel=label, ylabel=value)
        if log:
            axis.set_xscale("log")
        if log_values:
            axis.set_yscale("log")
            low, high = axis.get_ylim()
            axis.yaxis.set_major_locator(
                ticker.LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,))
            )
            axis.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axis.minorticks_off()
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.grid(color="#dddddd", linewidth=0.5)
        if curves:
            axis.legend(fontsize=7)
    figure.suptitle(_literal(title))
    _save(figure, target)


@dataclass(frozen=True, kw_only=True)
class Line:
    """A plan as it is shown.

    Attributes:
        score: Its score; lower is better.
        actions: Names of its actions.
        right: Which of them are the annotated ones; names do not tell, since two actions may have
            the same.
    """

    score: float
    actions: list[str]
    right: list[bool]


@dataclass(frozen=True)
class PlanPanel:
    """The best plans of one query.

    Attributes:
        title: What the query is.
        truth: Names of the annotated actions.
        plans: The plans, best first.
    """

    title: str
    truth: list[str]
    plans: list[Line]


def draw_plans(panels: Sequence[PlanPanel], target: Path, *, title: str) -> None:
    """Draw the annotated sequence and the best plans of some queries as text.

    Right steps stand in blue, wrong ones in red.

    Args:
        panels: The queries, one below the other.
        target: Picture to write; its ending says the format.
        title: Title of the whole.
    """
    pyplot = _pyplot()
    heights = [len(panel.plans) + 2.2 for panel in panels]
    width = max(_HEAD + len(panel.truth) for panel in panels)
    figure, axes = pyplot.subplots(
        len(panels),
        1,
        figsize=(2.6 * width, 0.27 * sum(heights) + 0.4),
        layout="constrained",
        squeeze=False,
        gridspec_kw={"height_ratios": heights},
    )
    for (axis,), panel, height in zip(axes, panels, heights, strict=True):
        axis.set(xlim=(0, width), ylim=(height, 0))
        axis.axis("off")
        axis.text(0, 0.5, _literal(panel.title), fontsize=9, weight="bold", va="center")
        lines = [("annotated", panel.truth, ["black"] * len(panel.truth))]
        lines += [
            (
                f"{rank}. score {plan.score:.3f}" + (" ✓" if all(plan.right) else ""),
                plan.actions,
                [_BLUE if right else _RED for right in plan.right],
            )
            for rank, plan in enumerate(panel.plans, start=1)
        ]
        for number, (head, names, colours) in enumerate(lines):
            y = number + 1.5
            if number == 1:
                axis.axhspan(y - 0.5, y + 0.5, color="#fbe7a3", linewidth=0)
            axis.text(0, y, head, fontsize=8, va="center", color=_DARK)
            for step, (name, colour) in enumerate(zip(names, colours, strict=True)):
                axis.text(
                    _HEAD + step,
                    y,
                    _literal(_shortened(name)),
                    fontsize=8,
                    va="center",
                    color=colour,
                )
    figure.suptitle(_literal(title), fontsize=10)
    figure.supxlabel("blue: the annotated step, red: another one", fontsize=8, color=_DARK)
    _save(figure, target)


def _shortened(name: str, most: int = 34) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _literal(text: str) -> str:
    """Text whose dollar signs are not taken for formulas."""
    return text.replace("$", r"\$")
