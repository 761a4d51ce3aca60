"""The page: one HTML file without network requests, rendered from a report's record.

Its charts are SVG by matplotlib, in the colours of the page; equal input, equal text. Its first
sentences say in plain words how good, how sure, and who is ahead.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from cefito.evaluation.metrics import metric_heads, metric_meanings
from cefito.evaluation.records import Calibration, RunEvaluation, unsure_intervals
from cefito.files import check_target, write_text
from cefito.markup import counted, shortened
from cefito.report.breakdowns import KINDS
from cefito.report.picture import timeline_picture
from cefito.report.schema import ComparisonReport, GalleryQuery, LossCurve, RunReport
from cefito.study.figures import COLORS, plot_coverage, plot_missed, plot_reliability
from cefito.study.rendering import explained

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
    """A line over two axes, or a dot for a single point.

    Args:
        points: Points (x, y) of the line.
        label: Says to screen readers what it shows.
        x: Title of the horizontal axis.
        y: Title of the vertical axis.
    """

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


def missed_chart(points: Sequence[tuple[float, float]]) -> Markup:
    """Mistakes missed against false alarms an hour."""
    label = "Mistakes missed against false alarms an hour"
    return _chart(label, lambda axis: plot_missed(axis, {"": points}))


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


# letters of an action's name in a plan, so that a large gallery stays small; truth is never cut
_LONGEST = 60
_WORST = 25  # confused pairs shown
# forbidden in a page: control characters, halves of surrogate pairs, noncharacters
UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def save_report(report: RunReport | ComparisonReport, path: Path | str) -> None:
    """Write a report as one HTML file; an existing file is replaced."""
    path = Path(path)
    check_target(path, (".html",), "target")
    write_text(path, rendered(report))


def rendered(report: RunReport | ComparisonReport) -> str:
    """A report as HTML; equal reports give equal text."""
    if isinstance(report, RunReport):
        scores = report.scores
        context: dict[str, Any] = {
            "headline": scores.headline() if scores else [],
            "heads": _task_heads(scores) if scores else {},
            "legend": explained(metric_meanings(scores.metrics)) if scores else "",
            "lead": run_lead(report),
            "examples": _examples(report.gallery),
            "confusion": _confusion(report),
            "kinds": KINDS,
            "strips": timeline_picture(report.recognised) if report.recognised else "",
        }
    else:
        context = {"lead": comparison_lead(report)}
    template = environment().get_template(f"{report.kind}.html.j2")
    page = template.render(
        report=report, curves=[_curve(curve) for curve in report.curves], **context
    )
    return UNFIT.sub("\ufffd", page)


def _examples(queries: Sequence[GalleryQuery]) -> list[GalleryQuery]:
    """The first query of each outcome, of different tasks if there are any."""
    examples: list[GalleryQuery] = []
    for outcome in ("right", "listed", "wrong"):
        of = [query for query in queries if query.outcome == outcome]
        tasks = {query.true_task for query in examples}
        examples += [query for query in of if query.true_task not in tasks][:1] or of[:1]
    return examples


def _task_heads(scores: RunEvaluation) -> dict[str, str]:
    names = {**metric_heads(brief=True), "task_accuracy": "task right"}
    return {
        name: head
        for name, head in names.items()
        if name in scores.metrics and name != "success_rate"
    }


def _confusion(report: RunReport) -> dict[str, Any] | None:
    """The pairs that are most often confused."""
    if report.confusion is None:
        return None
    tasks, totals = report.confusion.tasks, Counter[int]()  # windows of each annotated task
    for true, _, windows in report.confusion.pairs:
        totals[true] += windows
    wrong = sorted(
        (pair for pair in report.confusion.pairs if pair[0] != pair[1]),
        key=lambda pair: (-pair[2], pair),
    )
    return {
        "wrong": [
            (tasks[true], tasks[predicted], count, totals[true])
            for true, predicted, count in wrong[:_WORST]
        ],
        "more": max(0, len(wrong) - _WORST),
    }


def _curve(curve: LossCurve) -> dict[str, Any]:
    """Charts of one training: its loss, and each validation score."""
    lines = {"training loss": list(zip(curve.epochs, curve.loss, strict=True))}
    lines |= {_words(name): points for name, points in curve.scores.items() if len(points) > 1}
    return {
        "name": curve.name,
        "drawings": [
            line_chart(
                points, label=f"{name} of {curve.name} against {curve.unit}s", x=curve.unit, y=name
            )
            for name, points in lines.items()
        ],
        "once": [
            f"{_words(name)} {_number(value, 4)} at {curve.unit} {epoch}"
            for name, points in curve.scores.items()
            if len(points) == 1
            for epoch, value in points
        ],
        "first": curve.loss[0],
        "last": curve.loss[-1],
        "length": counted(curve.epochs[-1], curve.unit),
    }


def _words(name: str) -> str:
    return name.replace("val_", "validation ", 1).replace("_", " ")


def _number(value: float | None, digits: int = 2) -> str:
    """A number with a minus sign instead of a hyphen; a dash for None."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{round(value, digits) + 0.0:,.{digits}f}".replace("-", "−")


def _interval(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{_number(low)} to {_number(high)}"


@cache
def environment() -> Environment:
    """Return the templates of all pages."""
    templates = Environment(
        loader=PackageLoader("cefito.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {"number": _number, "brief": partial(shortened, most=_LONGEST)}
    templates.globals |= {
        "interval": _interval,
        "reliability": reliability_chart,
        "coverage": coverage_chart,
        "missed": missed_chart,
        "colors": list(COLORS),
    }
    return templates


_KINDS = {"test": "new", "val": "validation", "train": "training"}
_LESS = "fewer than 1"
_WINDOW = (
    "A window is a stretch of a video. Its steps are planned from what is seen before and, with a "
    "goal, after them; the plan is right if every step is, in order."
)


def run_lead(report: RunReport) -> list[str]:
    """How many windows are planned right, overall and where the run is sure; number and intervals.

    The first sentence counts the windows themselves if they are fewer than 100. Without scores, say
    how training videos that were held out in turn fared.
    """
    scores, sure = report.scores, report.sure
    if scores is None:
        no_plans = "No video was kept for test, so plans have no scores; see what is left out."
        return [*(report.held_out or ())[:1], no_plans]
    by_hundred = scores.windows >= 100
    windows = "100" if by_hundred else f"{scores.windows}"
    conditions = "" if scores.conditions == "predicted task" else f" ({scores.conditions})"
    other = scores.other_dataset
    kind = "" if other and other.known_windows != 0 else f" {_KINDS[scores.split]}"
    first = (
        f"Of {windows}{kind}{' simulated' * report.simulated} windows of "
        f"{_steps(scores.steps)}{conditions}, "
    )
    done = _count(scores.success_rate, None if by_hundred else scores.windows)
    first += f"{done} {'is' if done in ('1', _LESS) else 'are'} planned right"
    second = f"Scored on {counted(scores.windows, 'window')}"
    ends = None if scores.intervals is None else scores.intervals.ends("success_rate")
    if scores.intervals is None or ends is None:
        second += " of one video, which says little of others"
    else:
        level = f"{100 * scores.intervals.level:g} % interval"
        second += f" of {scores.intervals.resampled}: {_span(*ends, level)}"
    if sure is not None:
        share = sure.windows / scores.windows
        fraction = "fifth" if sure.windows == -(-scores.windows // 5) else f"{100 * share:.0f} %"
        among = _count(sure.success_rate, None if by_hundred else sure.windows)
        first += f"; where the run is sure (the most certain {fraction}), {among}"
        first += "" if by_hundred else f" of {sure.windows}"
        if sure.low is not None and sure.high is not None:
            second += f"; for its most certain {sure.windows:,}, {_span(sure.low, sure.high)}"
    few = "" if scores.intervals is None else unsure_intervals(*scores.intervals.units)
    if other and other.known_windows:
        second += f". {counted(other.known_windows, 'window')} are of videos that it has learned"
    return [f"{first}.", f"{second}.{few} {_WINDOW}"]


def comparison_lead(report: ComparisonReport) -> list[str]:
    """Who is ahead of whom by how much, and whether that may be chance, a sentence a horizon."""
    said = []
    for lead in report.leads:
        windows = f"100 new{' simulated' * report.simulated} windows of "
        windows += _steps(report.steps[lead.horizon])
        if lead.difference is None or lead.low is None or lead.high is None:
            alone = f"Of {windows}, “{lead.ahead}” plans {lead.success_rate:.1f} right"
            said.append(f"{alone}; there is no other planner to compare it with.")
            continue
        span = _span(lead.low, lead.high, f"the {100 * lead.level:g} % interval,")
        excludes = "excludes 0" if lead.certain else "includes 0, so the order may be chance"
        said.append(
            f"“{lead.ahead}” is ahead of “{lead.behind}” by {lead.difference:.1f} of {windows} "
            f"({lead.success_rate:.1f} planned right); {span}, {excludes}."
        )
    if report.leads:
        windows = " and ".join(f"{lead.windows:,}" for lead in report.leads)
        units, kind = min((lead.videos, lead.kind) for lead in report.leads)
        said.append(
            f"Scored on {windows} windows of {counted(units, kind)}, which were resampled for "
            "the intervals; these do not cover the chance of training."
            f"{unsure_intervals(units, kind)} {_WINDOW}"
        )
    return said


def _steps(count: str) -> str:
    return f"{count} step{'s' * (count != '1')}"


def _count(rate: float, windows: int | None) -> str:
    """A success rate as a number of windows, of 100 if it is None."""
    count = round(rate if windows is None else rate * windows / 100)
    return _LESS if rate and not count else f"{count:,}"


def _span(low: float, high: float, lead: str = "") -> str:
    if low == high:
        return f"{lead} {low:.1f} in every video".strip()
    ends = (f"{round(end, 1) + 0.0:.1f}".replace("-", "−") for end in (low, high))
    return f"{lead} {' to '.join(ends)}".strip()
