"""The page: one HTML file that asks nothing of a network, rendered from a report's record."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from cefito.errors import ConfigError
from cefito.evaluation.calibration import Calibration, calibration_heads
from cefito.evaluation.metrics import metric_heads
from cefito.evaluation.records import RunEvaluation
from cefito.files import write_text
from cefito.report import charts
from cefito.report.mistakes import KINDS
from cefito.report.schema import ComparisonReport, CostRow, LossCurve, RunReport

__all__ = ["check_target", "rendered", "save_report"]

_LONGEST, _SHORTEST = 90, 24
"""Bytes of an action's name in a plan; longer ones end in an ellipsis, but not in the truth."""
_ROOM, _MARKUP, _FRAME = 900_000, 18, 900
"""Bytes that a gallery should take, those of a step's markup, and those around a query's steps."""
_WIDEST = 60
"""Tasks that the drawing of the confusion has room for."""
_WORST = 25
# what a page may not hold: control characters, halves of surrogate pairs, noncharacters
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def check_target(path: Path) -> None:
    """See that a report can be written to a file, before any work.

    Raises:
        ConfigError: Another ending than .html, no such folder, or a folder in its place.
    """
    if path.suffix != ".html":
        raise ConfigError(f"{path}: expected a file that ends in .html.", setting="target")
    if not path.resolve().parent.is_dir():
        raise ConfigError(f"{path}: there is no such folder to write it into.", setting="target")
    if path.is_dir():
        raise ConfigError(f"{path}: is a folder. Choose another name.", setting="target")


def save_report(report: RunReport | ComparisonReport, path: Path | str) -> None:
    """Write a report as one HTML file; one that is there is replaced.

    Raises:
        ConfigError: As `check_target`.
        RunError: The file cannot be written.
    """
    path = Path(path)
    check_target(path)
    write_text(path, rendered(report))


def rendered(report: RunReport | ComparisonReport) -> str:
    """A report as HTML; equal reports give equal text."""
    if isinstance(report, RunReport):
        own: dict[str, Any] = {
            "headline": headline(report.scores),
            "heads": _task_heads(report.scores),
            "confusion": _confusion(report),
            "kinds": KINDS,
            "room": _room(report),
        }
    else:
        own = {"costs": [_cost_chart(report.costs, name) for name in ("seconds", "token_forwards")]}
    template = _environment().get_template(f"{report.kind}.html.j2")
    return template.render(
        report=report,
        curves=[_curve(curve) for curve in report.curves],
        **own,
    )


def headline(scores: RunEvaluation) -> list[tuple[str, float, float | None, float | None]]:
    """Every metric that is one number: head, value, and both ends of its interval."""
    lines = []
    for name, head in (metric_heads() | calibration_heads()).items():
        value = scores.percent(name)
        if value is None:
            continue
        low = high = None
        if scores.intervals is not None:
            ends = scores.intervals.low.get(name), scores.intervals.high.get(name)
            low, high = (end if isinstance(end, float) else None for end in ends)
        lines.append((head, value, low, high))
    return lines


def _task_heads(scores: RunEvaluation) -> dict[str, str]:
    names = {**metric_heads(), "task_accuracy": "task right"}
    return {
        name: head
        for name, head in names.items()
        if name in scores.metrics and name not in ("success_rate", "mean_iou_bitwise")
    }


def _confusion(report: RunReport) -> dict[str, Any] | None:
    """The drawing, and the pairs most often confused."""
    if report.confusion is None:
        return None
    tasks, pairs = report.confusion.tasks, report.confusion.pairs
    totals: dict[int, int] = dict.fromkeys(tasks, 0)
    for pair in pairs:
        totals[pair.true] += pair.windows
    wrong = sorted(
        (pair for pair in pairs if pair.true != pair.predicted),
        key=lambda pair: (-pair.windows, pair.true, pair.predicted),
    )
    drawing = Markup("")
    if 1 < len(tasks) <= _WIDEST:
        places = {task: place for place, task in enumerate(tasks)}
        shares = [[0.0] * len(tasks) for _ in tasks]
        for pair in pairs:
            shares[places[pair.true]][places[pair.predicted]] = pair.windows / totals[pair.true]
        drawing = charts.heat_map(
            [str(task) for task in tasks],
            shares,
            label="Share of the windows of each annotated task that were planned for each task",
            rows="annotated task",
            columns="planned task",
        )
    return {
        "drawing": drawing,
        "wrong": [
            (tasks[pair.true], tasks[pair.predicted], pair.windows, totals[pair.true])
            for pair in wrong[:_WORST]
        ],
        "more": max(0, len(wrong) - _WORST),
        "tasks": tasks,
    }


def _reliability(calibration: Calibration) -> Markup:
    """Success against probability."""
    bins = calibration.reliability
    return charts.line_chart(
        [
            charts.Series(
                "bins of windows",
                list(zip(bins.probability, bins.success, strict=True)),
                dots=True,
            )
        ],
        label="Success rate against the mean probability of the best plan, in bins of windows",
        x="probability of the best plan, per cent",
        y="success rate, per cent",
        x_ends=(0, 100),
        y_ends=(0, 100),
        diagonal=True,
    )


def _coverage(calibrations: Sequence[tuple[str, Calibration]]) -> Markup:
    """Success among the surest windows against their share."""
    return charts.line_chart(
        [
            charts.Series(
                name,
                list(zip(one.risk_coverage.coverage, one.risk_coverage.success, strict=True)),
            )
            for name, one in calibrations
        ],
        label="Success rate among the windows answered against the share of windows answered",
        x="windows answered, the surest first, per cent",
        y="success rate among them, per cent",
        x_ends=(0, 100),
        y_ends=(0, 100),
    )


def _curve(curve: LossCurve) -> dict[str, Any]:
    """Drawings of one training: its loss, and each validation score."""
    pairs = list(zip(curve.epochs, curve.loss, strict=True))
    drawings = [
        charts.line_chart(
            [charts.Series("training loss", pairs)],
            label=f"Training loss of {curve.name} against epochs",
            x="epoch",
            y="training loss",
        )
    ]
    drawings += [
        charts.line_chart(
            [charts.Series(_words(name), points)],
            label=f"{_words(name)} of {curve.name} against epochs",
            x="epoch",
            y=_words(name),
            x_ends=(min(curve.epochs), max(curve.epochs)),
        )
        for name, points in curve.scores.items()
        if len(points) > 1
    ]
    return {
        "name": curve.name,
        "drawings": drawings,
        "once": [
            f"{_words(name)} {_number(value, 4)} at epoch {epoch}"
            for name, points in curve.scores.items()
            if len(points) == 1
            for epoch, value in points
        ],
        "first": curve.loss[0],
        "last": curve.loss[-1],
        "epochs": curve.epochs[-1],
    }


def _cost_chart(costs: Sequence[CostRow], name: str) -> Markup:
    """Costs of all rows against the horizon."""
    return charts.line_chart(
        [
            charts.Series(
                cost.row,
                list(zip(map(float, cost.horizons), getattr(cost, name), strict=True)),
                dots=len(cost.horizons) == 1,
            )
            for cost in costs
        ],
        label=f"{_words(name)} a query against the horizon",
        x="horizon T",
        y=f"{_words(name)} a query",
        logarithmic=True,
    )


def _words(name: str) -> str:
    return name.replace("val_", "validation ", 1).replace("_", " ")


def _number(value: float | None, digits: int = 2) -> str:
    """A number with a minus sign, not a hyphen; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{round(value, digits) + 0.0:,.{digits}f}".replace("-", "−")


def _interval(low: float | None, high: float | None) -> str:
    return "–" if low is None or high is None else f"{_number(low)} to {_number(high)}"


def _room(report: RunReport) -> int:
    """Bytes of a name, so that long names in many plans of many steps do not make a page large."""
    truth = sum(
        len(report.actions[action].encode("utf-8", "replace")) + _MARKUP
        for query in report.gallery
        for action in query.truth
    )
    steps = sum(len(plan.actions) for query in report.gallery for plan in query.plans)
    left = _ROOM - truth - _FRAME * len(report.gallery)
    return max(_SHORTEST, min(_LONGEST, left // max(steps, 1) - _MARKUP))


def _brief(name: str, room: int) -> str:
    data = name.encode("utf-8", "replace")
    return name if len(data) <= room else data[:room].decode("utf-8", "ignore").rstrip() + "…"


def _fit(value: Any) -> Any:
    """Text without characters that no page may hold."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return _UNFIT.sub("\ufffd", value)
    return value


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("cefito.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_fit,
    )
    environment.filters |= {"number": _number, "brief": _brief}
    environment.globals |= {
        "bar": charts.bar,
        "histogram": charts.histogram,
        "interval": _interval,
        "reliability": _reliability,
        "coverage": _coverage,
    }
    return environment
