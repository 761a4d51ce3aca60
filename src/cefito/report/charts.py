"""Small drawings as inline SVG, whose classes take the colours of the page.

Every function gives markup that is safe to put into a page; equal input gives equal text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

__all__ = ["Series", "bar", "heat_map", "histogram", "line_chart"]

_WIDTH, _HEIGHT = 420, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 10, 10, 34
_HUES = 8
_DRAWN = 120  # points of a line at most


@dataclass(frozen=True)
class Series:
    """A line of a chart.

    Attributes:
        name: What it is, for its title.
        points: x and y of each point.
        dots: Draw points instead of a line.
    """

    name: str
    points: Sequence[tuple[float, float]]
    dots: bool = False


def bar(value: float, low: float | None = None, high: float | None = None) -> Markup:
    """A bar from 0 to 100 with a whisker; what it says stands in the table beside it."""
    parts = [
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="back" width="100" height="10"/>'
        f'<rect class="fill" width="{_short(value)}" height="10"/>'
    ]
    if low is not None and high is not None:
        parts.append(
            f'<rect class="whisker" x="{_short(low)}" y="4" width="{_short(high - low)}" '
            'height="2"/>'
        )
    return Markup("".join(parts) + "</svg>")


def line_chart(
    series: Sequence[Series],
    *,
    label: str,
    x: str,
    y: str,
    x_ends: tuple[float, float] | None = None,
    y_ends: tuple[float, float] | None = None,
    diagonal: bool = False,
    logarithmic: bool = False,
) -> Markup:
    """Lines over two axes.

    Args:
        series: The lines.
        label: What the drawing shows, for those who do not see it.
        x: Label of the horizontal axis.
        y: Label of the vertical axis.
        x_ends: Ends of the horizontal axis; those of the points by default.
        y_ends: Ends of the vertical axis; from 0 to the highest point by default.
        diagonal: Draw the line on which x and y are equal.
        logarithmic: A vertical axis of powers of ten; points at 0 and below are left out.
    """
    lines = [
        (number, one, _thinned([(a, b) for a, b in one.points if not logarithmic or b > 0]))
        for number, one in enumerate(series)
    ]
    points = [point for _, _, line in lines for point in line]
    if not points:
        return Markup("")
    xs, ys = [point[0] for point in points], [point[1] for point in points]
    left, right = x_ends or (min(xs), max(xs))
    if logarithmic:
        low = float(math.floor(math.log10(min(ys))))
        high = float(math.ceil(math.log10(max(ys))))
    else:
        low, high = y_ends or (min(0.0, min(ys)), max(ys))
    across = _scale(left, right, _LEFT, _WIDTH - _RIGHT)
    raw = _scale(low, high, _HEIGHT - _BOTTOM, _TOP)
    up = (lambda value: raw(math.log10(value))) if logarithmic else raw
    parts = [_axes(across, raw, (left, right), (low, high), x, y, powers=logarithmic)]
    if diagonal:
        parts.append(
            f'<path class="rule" d="M{_short(across(left))} {_short(up(left))}'
            f'L{_short(across(right))} {_short(up(right))}"/>'
        )
    for number, one, line in lines:
        parts.append(_line(one, line, number % _HUES, across, up))
    return _svg(label, "".join(parts))


def histogram(edges: Sequence[float], counts: Sequence[int], *, label: str, x: str) -> Markup:
    """Bars over bins, with a rule at 0.

    Args:
        edges: Edges of the bins [B + 1].
        counts: What each holds [B].
        label: What the drawing shows.
        x: Label of the horizontal axis.
    """
    across = _scale(edges[0], edges[-1], _LEFT, _WIDTH - _RIGHT)
    up = _scale(0, max(*counts, 1), _HEIGHT - _BOTTOM, _TOP)
    ends = (edges[0], edges[-1]), (0.0, float(max(*counts, 1)))
    parts = [_axes(across, up, *ends, x, "windows")]
    for left, right, count in zip(edges[:-1], edges[1:], counts, strict=True):
        kind = "fill" if left + right > 0 else "wrong"
        parts.append(
            f'<rect class="{kind}" x="{_short(across(left) + 0.5)}" y="{_short(up(count))}" '
            f'width="{_short(max(across(right) - across(left) - 1, 0.5))}" '
            f'height="{_short(up(0) - up(count))}"/>'
        )
    if edges[0] < 0 < edges[-1]:
        place = _short(across(0))
        parts.append(f'<path class="rule" d="M{place} {_TOP}V{_HEIGHT - _BOTTOM}"/>')
    return _svg(label, "".join(parts))


def heat_map(
    names: Sequence[str], shares: Sequence[Sequence[float]], *, label: str, rows: str, columns: str
) -> Markup:
    """A square of cells, dark where a share is large, with a title on each that is not empty.

    Args:
        names: Short names of rows and columns [K].
        shares: From 0 to 1 [K, K].
        label: What the drawing shows.
        rows: What the rows are.
        columns: What the columns are.
    """
    size = max(6.0, min(26.0, 380 / max(len(names), 1)))
    edge = size * len(names)
    parts = []
    for row, line in enumerate(shares):
        for column, share in enumerate(line):
            if share > 0:
                kind = "fill" if row == column else "wrong"
                parts.append(
                    f'<rect class="{kind}" x="{_short(30 + column * size)}" '
                    f'y="{_short(24 + row * size)}" width="{_short(size - 1)}" '
                    f'height="{_short(size - 1)}" opacity="{_short(0.12 + 0.88 * share)}">'
                    f"<title>{escape(names[row])} → {escape(names[column])}: "
                    f"{100 * share:.0f} %</title></rect>"
                )
    step = max(1, math.ceil(12 / size))
    for number, name in enumerate(names):
        if number % step == 0:
            middle = _short(number * size + size / 2)
            parts.append(
                f'<text x="26" y="{_short(27 + number * size + size / 2)}" text-anchor="end">'
                f'{escape(name)}</text><text x="{_short(30 + float(middle))}" y="20" '
                f'text-anchor="middle">{escape(name)}</text>'
            )
    parts.append(
        f'<rect class="frame" x="30" y="24" width="{_short(edge)}" height="{_short(edge)}"/>'
    )
    parts.append(
        f'<text x="30" y="9">{escape(columns)} →</text>'
        f'<text x="30" y="{_short(edge + 37)}">↑ {escape(rows)}</text>'
    )
    return _svg(label, "".join(parts), width=edge + 36, height=edge + 42)


def _svg(label: str, content: str, *, width: float = _WIDTH, height: float = _HEIGHT) -> Markup:
    return Markup(
        f'<svg class="chart" viewBox="0 0 {_short(width)} {_short(height)}" role="img" '
        f'aria-label="{escape(label)}" style="max-width:{_short(width * 1.3)}px">{content}</svg>'
    )


def _line(
    one: Series,
    points: Sequence[tuple[float, float]],
    hue: int,
    across: Callable[[float], float],
    up: Callable[[float], float],
) -> str:
    title = f"<title>{escape(one.name)}</title>"
    places = [(_short(across(a)), _short(up(b))) for a, b in points]
    if one.dots or len(points) == 1:
        dots = "".join(f'<circle cx="{a}" cy="{b}" r="3"/>' for a, b in places)
        return f'<g class="dots h{hue}">{title}{dots}</g>'
    path = "M" + "L".join(f"{a} {b}" for a, b in places)
    return f'<path class="line h{hue}" d="{path}">{title}</path>'


def _axes(
    across: Callable[[float], float],
    up: Callable[[float], float],
    x_ends: tuple[float, float],
    y_ends: tuple[float, float],
    x: str,
    y: str,
    *,
    powers: bool = False,
) -> str:
    """Grid, numbers and labels."""
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = []
    for value in _ticks(*y_ends) if not powers else range(int(y_ends[0]), int(y_ends[1]) + 1):
        place = _short(up(value))
        shown = _power(int(value)) if powers else _number(value)
        parts.append(
            f'<path class="grid" d="M{_LEFT} {place}H{right}"/>'
            f'<text x="{_LEFT - 4}" y="{_short(float(place) + 3.5)}" text-anchor="end">'
            f"{shown}</text>"
        )
    for value in _ticks(*x_ends):
        place = _short(across(value))
        parts.append(
            f'<path class="grid" d="M{place} {_TOP}V{bottom}"/>'
            f'<text x="{place}" y="{bottom + 13}" text-anchor="middle">{_number(value)}</text>'
        )
    parts.append(
        f'<text x="{_short((_LEFT + right) / 2)}" y="{_HEIGHT - 5}" text-anchor="middle">'
        f"{escape(x)}</text>"
        f'<text transform="translate(10 {_short((_TOP + bottom) / 2)}) rotate(-90)" '
        f'text-anchor="middle">{escape(y)}</text>'
    )
    return "".join(parts)


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Numbers from low to high, to places from start to end; all in the middle if they are one."""
    if high <= low:
        return lambda _: (start + end) / 2
    return lambda value: start + (end - start) * (value - low) / (high - low)


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers between two ends."""
    raw = (high - low) / 5
    if raw < 1e-300:  # the ends are one, or closer than round numbers can tell
        return [low]
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * unit for unit in (1, 2, 5, 10) if power * unit >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Evenly chosen points, the first and the last among them."""
    if len(points) <= _DRAWN:
        return list(points)
    step = (len(points) - 1) / (_DRAWN - 1)
    return [points[round(number * step)] for number in range(_DRAWN)]


def _power(exponent: int) -> str:
    return _number(10.0**exponent) if -2 <= exponent <= 4 else f"1e{exponent}".replace("-", "−")


def _number(value: float) -> str:
    return f"{round(value, 9) + 0.0:,.6g}".replace("-", "−")


def _short(value: float) -> str:
    """A coordinate with as few digits as are seen."""
    return f"{round(value, 1) + 0.0:g}" if abs(value) > 1 else f"{round(value, 2) + 0.0:g}"
