"""Charts of reports: SVG by matplotlib, in the colours of the page; equal input, equal text."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from cefito.evaluation.records import Calibration
from cefito.report.schema import Confusion
from cefito.study.figures import COLORS, plain_log_scale, plot_coverage, plot_reliability

_EDGE = "#d0d7de"
_LABEL = 100  # pixels that the label of an axis may take
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "cefito",
    "font.size": 11,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": _EDGE,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _EDGE,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.8,
    **{f"{axis}tick.{kind}.size": 0 for axis in "xy" for kind in ("major", "minor")},
}


def line_chart(
    lines: Sequence[Sequence[tuple[float, float]]],
    *,
    label: str,
    x: str,
    y: str,
    logarithmic: bool = False,
) -> Markup:
    """Lines over two axes, or dots for single points; `label` is for screen readers."""
    kept = [[point for point in line if not logarithmic or point[1] > 0] for line in lines]
    if not any(kept):
        return Markup("")

    def plot(axis: Any) -> None:
        for line, color in zip(kept, _colors(len(kept)), strict=True):
            places, values = ([point[side] for point in line] for side in (0, 1))
            axis.plot(places, values, color=color, marker="o" if len(line) == 1 else "")
        axis.set(xlabel=x, ylabel=y)
        if logarithmic:
            plain_log_scale(axis)
        else:
            axis.set_ylim(bottom=min(0, axis.get_ylim()[0]))
            axis.set_ylim(top=axis.get_ylim()[1] + 0.05 * np.ptp(axis.get_ylim()))
        axis.xaxis.get_major_locator().set_params(integer=True)

    return _chart(label, plot)


def reliability_chart(calibration: Calibration, name: str = "") -> Markup:
    """Success rate against probability, in bins of windows."""
    label = "Success rate against the mean probability of the best plan, in bins of windows"
    return _chart(f"{label} {name}".strip(), lambda axis: plot_reliability(axis, calibration))


def coverage_chart(calibrations: Sequence[Calibration], name: str = "") -> Markup:
    """Success rate among the most probable windows against their share."""
    label = "Success rate among the windows answered against the share of windows answered"
    return _chart(f"{label} {name}".strip(), lambda axis: plot_coverage(axis, calibrations))


def confusion_chart(confusion: Confusion) -> Markup:
    """Share of each annotated task's windows that were planned for each task, by their ids."""
    from matplotlib.patches import Rectangle

    places = {task: place for place, task in enumerate(confusion.tasks)}
    totals = confusion.totals()
    size = max(6.0, min(26.0, 380 / len(places)))
    step = -(-12 // int(size))

    def plot(axis: Any) -> None:
        for true, planned, windows in confusion.pairs:
            color = COLORS["blue" if true == planned else "red"]
            place = (places[planned] - 0.45, places[true] - 0.45)
            alpha = 0.12 + 0.88 * windows / totals[true]
            axis.add_patch(Rectangle(place, 0.9, 0.9, color=color, alpha=alpha, linewidth=0))
        ids = [str(task) for task in places]
        axis.set_xticks(range(0, len(ids), step), ids[::step])
        axis.set_yticks(range(0, len(ids), step), ids[::step])
        axis.set_aspect("equal", anchor="W")
        axis.set(xlim=(-0.5, len(ids) - 0.5), ylim=(len(ids) - 0.5, -0.5))
        axis.set(xlabel="planned task", ylabel="annotated task")
        axis.grid(visible=False)

    label = "Share of the windows of each annotated task that were planned for each task"
    side = max(size * len(places), _LABEL)
    return _chart(label, plot, 80 + side, 54 + side)


def _colors(count: int) -> list[str]:
    return [list(COLORS.values())[number % len(COLORS)] for number in range(count)]


def _chart(
    label: str, plot: Callable[[Any], None], width: float = 420, height: float = 230
) -> Markup:
    """Plot on an axis of this size in pixels."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width / 72, height / 72), layout="constrained")
        axis = figure.subplots()
        plot(axis)
        svg = io.StringIO()
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(svg, metadata={"Date": None})  # savefig of a figure draws it twice
    text = svg.getvalue()
    text = text[text.index('<g id="figure_1"') :]
    prefix = "c" + hashlib.sha256(label.encode()).hexdigest()[:8]  # makes ids unique in the page
    for pattern, replacement in (
        (r"<clipPath.*?</clipPath>", ""),
        (r' clip-path="[^"]*"', ""),
        (r' id="(?!m[0-9a-f]{10}")[^"]*"', ""),
        (r'(id="|href="#)(m[0-9a-f]{10})', rf"\1{prefix}\2"),
        (r'font-family: [^;"]*;? ?', ""),
        (r' transform="rotate\(-0 [^"]*"', ""),
        (r"\s*\n\s*", "\n"),
        (_EDGE, "var(--edge)"),
        *((color, f"var(--{name})") for name, color in COLORS.items()),
    ):
        text = re.sub(pattern, replacement, text, flags=re.DOTALL)
    return Markup(
        f'<svg class="chart" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{escape(label)}" '
        f'style="--wide:{width:g}px;max-width:{1.3 * width:g}px">\n{text}'
    )
