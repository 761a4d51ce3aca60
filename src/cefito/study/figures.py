"""Figures of runs and studies, drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cefito.evaluation.records import Calibration, WindowPlans
from cefito.evaluation.statistics import seed_interval
from cefito.files import write_atomic
from cefito.markup import shortened

COLORS = {
    "blue": "#1f5fa8",
    "red": "#b3261e",
    "green": "#1a6e37",
    "amber": "#7a4d00",
    "violet": "#6b3fa0",
    "soft": "#57606a",
    "teal": "#0b8484",
    "pink": "#c2408f",
}
"""Colours of lines, by their names in the style sheet of reports."""
_BLUE, _RED, _SOFT = COLORS["blue"], COLORS["red"], COLORS["soft"]
_GRID: Any = {"color": "#dddddd", "linewidth": 0.5}
_LEAD = 0.55  # width of the text before a plan, in widths of an action


@dataclass(frozen=True)
class Curve:
    """A curve with intervals over seeds."""

    label: str
    points: list[tuple[float, list[float]]]  # places, each with the values of all seeds


def _figure(rows: int, columns: int, width: float, height: float, **options: Any) -> Any:
    """A figure and its axes [rows, columns]; names in other scripts use Noto fonts if installed."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.font_manager import fontManager

    matplotlib.rcParams["svg.hashsalt"] = "cefito"
    noto = sorted({font.name for font in fontManager.ttflist if font.name.startswith("Noto Sans")})
    matplotlib.rcParams["font.family"] = ["DejaVu Sans", *noto]
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def plot_reliability(axis: Any, calibration: Calibration) -> None:
    """Plot success rate against probability, in bins of windows, with the diagonal."""
    bins = calibration.reliability
    top = 1.05 * max(1.0, *bins.probability, *bins.success)
    axis.plot([0, top], [0, top], color=_SOFT, linewidth=1, linestyle="--")
    axis.plot(bins.probability, bins.success, color=_BLUE, marker="o", markersize=4)
    axis.set(
        xlabel="probability of the best plan (%)",
        ylabel="success rate (%)",
        xlim=(0, top),
        ylim=(0, top),
    )


def plot_coverage(axis: Any, calibrations: Sequence[Calibration]) -> None:
    """Plot success rate among the most probable windows against their share, a line each."""
    for number, calibration in enumerate(calibrations):
        curve = calibration.risk_coverage
        color = list(COLORS.values())[number % len(COLORS)]
        axis.plot(curve.coverage, curve.success, color=color)
    axis.set(
        xlabel="windows answered, most probable first (%)",
        ylabel="success rate among them (%)",
        xlim=(0, 100),
        ylim=(0, 100),
    )


def plot_missed(axis: Any, curves: Mapping[str, Sequence[Sequence[float]]]) -> None:
    """Plot mistakes missed, per cent, against false alarms an hour, a line for each label."""
    for number, (label, points) in enumerate(curves.items()):
        places, values = zip(*points, strict=True)
        color = list(COLORS.values())[number % len(COLORS)]
        axis.step(places, values, where="post", color=color, label=literal(label))
    axis.set(
        xlabel="false alarms an hour", ylabel="mistakes missed (%)", xlim=(0, None), ylim=(0, 103)
    )


def draw_missed(curves: Mapping[str, Sequence[Sequence[float]]], target: Path) -> None:
    """Draw `plot_missed` of several lines into a file."""
    figure, ((axis,),) = _figure(1, 1, 6.0, 4.0)
    plot_missed(axis, curves)
    axis.grid(**_GRID)
    axis.legend(fontsize=7)
    write_atomic(target, lambda place: figure.savefig(place, format="svg", metadata={"Date": None}))


def plain_log_scale(axis: Any) -> None:
    """Make the values of an axis logarithmic, with ticks at plain numbers."""
    from matplotlib import ticker

    axis.set_yscale("log")
    low, high = axis.get_ylim()
    axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,)))
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axis.yaxis.set_minor_locator(ticker.NullLocator())


def draw_curves(
    panels: Mapping[str, Sequence[Curve]],
    target: Path,
    *,
    labels: Sequence[str],
    values: Sequence[str],
    log_places: Sequence[bool] = (),
    log_values: bool = False,
    title: str = "",
) -> list[Path]:
    """Draw panels of curves by title: means over seeds, with 90 % intervals if there are several.

    Args:
        panels: Curves of each panel by its title.
        target: File of the figure, beside which it is written as PDF.
        labels: Names of the horizontal axes, one a panel.
        values: Names of the vertical axes, one a panel.
        log_places: Whether each horizontal axis is logarithmic.
        log_values: Whether the vertical axes are logarithmic.
        title: Title of the figure.
    """
    figure, (axes,) = _figure(1, len(panels), 4.5 * len(panels), 3.6)
    for number, (axis, (name, curves)) in enumerate(zip(axes, panels.items(), strict=True)):
        for curve in curves:
            intervals = [seed_interval(values) for _, values in curve.points]
            axis.errorbar(
                [place for place, _ in curve.points],
                [interval.mean for interval in intervals],
                yerr=[interval.half_width or 0.0 for interval in intervals],
                marker="o",
                markersize=4,
                capsize=2,
                label=literal(curve.label),
            )
        axis.set(title=name, xlabel=labels[number], ylabel=values[number])
        if any(log_places[number : number + 1]):
            axis.set_xscale("log")
        if log_values:
            plain_log_scale(axis)
        axis.minorticks_off()
        ticks = sorted({place for curve in curves for place, _ in curve.points})
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.grid(**_GRID)
        if curves:
            axis.legend(fontsize=7)
    figure.suptitle(literal(title))
    return _saved(figure, target)


def draw_plans(windows: Sequence[WindowPlans], target: Path, *, title: str) -> list[Path]:
    """Draw the annotated sequences and the best plans of some windows as text.

    Args:
        windows: Windows with their plans.
        target: File of the figure, beside which it is written as PDF.
        title: Title of the figure.
    """
    heights = [len(window.plans) + 2.2 for window in windows]
    width = max(_LEAD + len(window.true_names) for window in windows)
    figure, axes = _figure(
        len(windows), 1, 2.6 * width, 0.27 * sum(heights) + 0.4, height_ratios=heights
    )
    for (axis,), window, height in zip(axes, windows, heights, strict=True):
        axis.set(xlim=(0, width), ylim=(height, 0))
        axis.axis("off")
        name = literal(f"{window.true_task_name} ({window.video})")
        axis.text(0, 0.5, name, fontsize=9, weight="bold", va="center")
        lines = [("annotated", window.true_names, ["black"] * len(window.true_names))]
        for rank, plan in enumerate(window.plans, start=1):
            pairs = zip(plan.actions, window.true_actions, strict=True)
            colors = [_BLUE if action == true else _RED for action, true in pairs]
            check = " ✓" if rank == window.rank else ""
            lines.append((f"{rank}. score {plan.score:.3f}{check}", plan.names, colors))
        for y, (lead, names, colors) in enumerate(lines, start=1):
            if y == 2:
                axis.axhspan(y, y + 1, color="#fbe7a3", linewidth=0)
            axis.text(0, y + 0.5, lead, fontsize=8, va="center", color=_SOFT)
            for step, (name, color) in enumerate(zip(names, colors, strict=True)):
                short = literal(shortened(name, 34))
                axis.text(_LEAD + step, y + 0.5, short, fontsize=8, va="center", color=color)
    figure.suptitle(literal(title), fontsize=10)
    figure.supxlabel("blue: the annotated step, red: another one", fontsize=8, color=_SOFT)
    return _saved(figure, target)


def _saved(figure: Any, target: Path) -> list[Path]:
    """Write a figure, and beside it as PDF for papers; return both files."""
    figure.savefig(target, dpi=150)
    figure.savefig(target.with_suffix(".pdf"), metadata={"CreationDate": None})
    return [target, target.with_suffix(".pdf")]


def literal(text: str) -> str:
    """Text whose dollar signs do not begin formulas."""
    return text.replace("$", r"\$")
