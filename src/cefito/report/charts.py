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
from cefito.study.figures import COLORS, plot_coverage, plot_reliability

_EDGE = "#d0d7de"
_WIDTH, _HEIGHT = 420, 230  # pixels
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


def line_chart(points: Sequence[tuple[float, float]], *, label: str, x: str, y: str) -> Markup:
    """A line over two axes, or a dot for a single point; `label` is for screen readers."""

    def plot(axis: Any) -> None:
        places, values = zip(*points, strict=True)
        marker = "o" if len(points) == 1 else ""
        axis.plot(places, values, color=next(iter(COLORS.values())), marker=marker)
        axis.set(xlabel=x, ylabel=y)
        axis.set_ylim(bottom=min(0, axis.get_ylim()[0]))
        axis.set_ylim(top=axis.get_ylim()[1] + 0.05 * np.ptp(axis.get_ylim()))
        axis.xaxis.get_major_locator().set_params(integer=True)

    return _chart(label, plot)


def reliability_chart(calibration: Calibration) -> Markup:
    """Success rate against probability, in bins of windows."""
    label = "Success rate against the mean probability of the best plan, in bins of windows"
    return _chart(label, lambda axis: plot_reliability(axis, calibration))


def coverage_chart(calibrations: Sequence[Calibration], name: str = "") -> Markup:
    """Success rate among the most probable windows against their share."""
    label = "Success rate among the windows answered against the share of windows answered"
    return _chart(f"{label} {name}".strip(), lambda axis: plot_coverage(axis, calibrations))


def _chart(label: str, plot: Callable[[Any], None]) -> Markup:
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH / 72, _HEIGHT / 72), layout="constrained")
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
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(label)}" '
        f'style="--wide:{_WIDTH}px;max-width:{1.3 * _WIDTH:g}px">\n{text}'
    )
