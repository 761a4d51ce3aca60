"""A picture of recognised steps, SVG: a strip a video, below the annotated one if it is known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import pairwise
from statistics import mean
from typing import Any

from cefito.data.vocabulary import Taxonomy
from cefito.markup import plain, shortened
from cefito.tracks import TimedStep, Track
from cefito.verification.order import Edges, TaskOrder

_WIDTH, _LEFT, _RIGHT = 960, 110, 20  # pixels
_STRIP, _GAP, _LINE = 22, 6, 18  # heights
_COLUMNS, _IN_LEGEND = 4, 28  # of the legend, and letters of a name in it
_LETTER, _LEAST_LETTERS = 7, 4  # pixels of a letter, and letters of a name in a bar
_ACROSS, _IN_BOX = 220, 28  # pixels from one column of a graph to the next, letters in a box
_TICKS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400)  # seconds
_GOLDEN = 137.508  # degrees between colours, so that any number of them differs
_FAINTEST = 0.15  # opacity of a step of the probability 0


def timeline_picture(videos: Sequence[Track]) -> str:
    """Draw the steps of videos over one axis of time; their opacity is their probability."""
    longest = max(video.seconds for video in videos)
    scale = (_WIDTH - _LEFT - _RIGHT) / max(longest, 1e-9)
    every = [
        *(step for video in videos for step in video.annotated or ()),
        *(step for video in videos for step in video.steps),
    ]
    names = list(dict.fromkeys(step.name for step in sorted(every, key=lambda step: step.start)))
    colours = {
        name: f"hsl({place * _GOLDEN % 360:.0f} 60% {45 + place % 3 * 10}%)"
        for place, name in enumerate(names)
    }
    parts, top = [], _GAP
    for video in videos:
        sure = f"{video.video}: {video.task} ({video.task_probability:.0%})"
        parts.append(_text(_LEFT, top + 13, sure, "font-weight='bold'"))
        top += _LINE
        for title, steps in (("annotated", video.annotated), ("recognised", video.steps)):
            if steps is None:
                continue
            parts.append(_text(_LEFT - 8, top + 15, title, "text-anchor='end'"))
            parts.append(_box(_LEFT, top, video.seconds * scale, "#eee"))
            for step in steps:
                said, opacity = _said(step), ""
                if title == "recognised":
                    said, opacity = f"{said}, {step.probability:.0%}", _opacity(step.probability)
                left, width = _LEFT + step.start * scale, (step.end - step.start) * scale
                parts.append(_box(left, top, width, colours[step.name], said, opacity))
            top += _STRIP + _GAP
    parts += _axis(longest, scale, top)
    top += _LINE + _GAP
    column = (_WIDTH - _LEFT - _RIGHT) / _COLUMNS
    for place, name in enumerate(names):
        left, line = _LEFT + place % _COLUMNS * column, top + place // _COLUMNS * _LINE
        swatch = f"<rect x='{left:.1f}' y='{line}' width='12' height='12' fill='{colours[name]}'/>"
        parts += [swatch, _text(left + 17, line + 11, shortened(name, _IN_LEGEND)) + "\n"]
    height = top + -(-len(names) // _COLUMNS) * _LINE + _GAP
    return "\n".join(_document(parts, height)) + "\n"


def verified_picture(
    seconds: float,
    steps: Sequence[TimedStep],
    wrong: Mapping[int, tuple[str, float]],
    film: str | None = None,
) -> str:
    """Draw the steps of a video over time, with their names, or their numbers where these fit not.

    Args:
        seconds: Length of the video.
        steps: Its steps.
        wrong: By the number of a step, what was found in words, and its probability; they are red.
        film: Address of the film, to which steps link.
    """
    scale = (_WIDTH - _LEFT - _RIGHT) / max(seconds, 1e-9)
    parts = [_text(_LEFT - 8, 21, "steps", "text-anchor='end'")]
    parts.append(_box(_LEFT, _GAP, seconds * scale, "#eee"))
    for number, step in enumerate(steps, 1):
        said, sure = wrong.get(number, ("", 0.0))
        title = f"{_said(step)}{said and f': {said}'}"
        width = max((step.end - step.start) * scale - 1, 1)
        fill = "#e06c5f" if said else "#9fb8c9"
        left = _LEFT + step.start * scale
        box = _box(left, _GAP, width, fill, title, _opacity(sure) if said else "")
        letters = int((width - 6) / _LETTER)
        text = shortened(step.name, letters) if letters >= _LEAST_LETTERS else str(number)
        if len(text) * _LETTER <= width:
            box += _text(left + 3, _GAP + 15, text, "pointer-events='none'")
        if film is not None:
            box = f"<a href='{escape(film)}#t={step.start:g}'>{box}</a>"
        parts.append(box)
    parts += _axis(seconds, scale, _GAP + _STRIP)
    role = "img" if film is None else "group"  # a picture has no links
    return "\n".join(_document(parts, 2 * _GAP + _STRIP + _LINE, "Steps of a video", role=role))


def graph_picture(orders: Mapping[int, TaskOrder], taxonomy: Taxonomy) -> str:
    """Draw the graph of each task: an action to the right of all before it, dashed if optional."""
    parts, top, width = [], _GAP, _WIDTH
    for task, order in orders.items():
        title = taxonomy.tasks[task].name + " (dashed: optional)" * bool(order.optional)
        parts.append(_text(_GAP, top + 13, title, "font-weight='bold'"))
        top += _LINE + _GAP
        actions = taxonomy.tasks[task].actions
        ways, columns = _columns(order.edges, actions)
        places = {
            place: (_GAP + at * _ACROSS, top + row * (_STRIP + 2 * _GAP))
            for at, members in enumerate(columns)
            for row, place in enumerate(members)
        }
        for way in ways:
            curve = ""
            for here, there in pairwise(way):
                (x, y), (right, down) = places[here], places[there]
                x, middle = x + _ACROSS - 4 * _GAP, (x + _ACROSS - 4 * _GAP + right) / 2
                y, down = y + _STRIP // 2, down + _STRIP // 2
                curve += f"{'L' if curve else 'M'}{x} {y}"
                curve += f"C{middle} {y} {middle} {down} {right} {down}"
            parts.append(f"<path d='{curve}' fill='none' stroke='#888' marker-end='url(#to)'/>")
        for action in actions:
            (x, y), name = places[action], taxonomy.actions[action].name
            dashed = "stroke='#555' stroke-dasharray='4 3'" * (action in order.optional)
            parts.append(_box(x, y, _ACROSS - 4 * _GAP, "#dfe8ee", name, dashed))
            parts.append(_text(x + 4, y + 15, shortened(name, _IN_BOX)))
        top += max(map(len, columns)) * (_STRIP + 2 * _GAP) + _LINE
        width = max(width, len(columns) * _ACROSS)
    arrow = "<marker id='to' viewBox='0 0 8 8' refX='8' refY='4' markerWidth='7' "
    arrow += "markerHeight='7' orient='auto'><path d='M0 0L8 4L0 8z' fill='#888'/></marker>"
    return "\n".join(_document([arrow, *parts], top, "Orders of steps", width)) + "\n"


def _columns(edges: Edges, actions: Sequence[int]) -> tuple[list[list[Any]], list[list[Any]]]:
    """Return the places of each edge and column: actions, and (a, b, n) where (a, b) passes n."""
    column = dict.fromkeys(actions, 0)
    for _ in column:  # the longest way to each action
        for a, b in edges:
            column[b] = max(column[b], column[a] + 1)
    ways: list[list[Any]] = [
        [a, *((a, b, n) for n in range(column[a] + 1, column[b])), b] for a, b in edges
    ]
    passed = [place for way in ways for place in way[1:-1]]
    columns: list[list[Any]] = [
        [*(a for a in actions if column[a] == n), *(place for place in passed if place[2] == n)]
        for n in range(max(column.values()) + 1)
    ]
    rows, pairs = dict[Any, int](), [pair for way in ways for pair in pairwise(way)]
    for members in columns:  # as high as what comes before, on average
        members.sort(key=lambda place: mean([rows[a] for a, b in pairs if b == place] or [0]))
        rows |= {place: row for row, place in enumerate(members)}
    return ways, columns


def _axis(seconds: float, scale: float, top: int) -> Iterable[str]:
    """Return the labels of an axis of time."""
    tick = next((each for each in _TICKS if seconds / each <= 10), 0.0)
    tick = tick or 10.0 ** math.ceil(math.log10(seconds) - 1)  # for 10 labels at most
    for number in range(int(seconds / tick) + 1):
        middle = "text-anchor='middle' fill='#555'"
        yield _text(_LEFT + number * tick * scale, top + 12, clock(number * tick), middle)


def _document(
    parts: Iterable[str],
    height: int,
    title: str = "Recognised steps over time",
    width: int = _WIDTH,
    *,
    role: str = "img",
) -> Iterable[str]:
    size = f"width='{width}' height='{height}' viewBox='0 0 {width} {height}'"
    font = "font-family='sans-serif' font-size='12'"
    yield f"<svg xmlns='http://www.w3.org/2000/svg' {size} {font} role='{role}'>"
    yield f"<title>{title}</title>"
    yield f"<rect width='{width}' height='{height}' fill='white'/>"
    yield from parts
    yield "</svg>"


def _said(step: TimedStep) -> str:
    return f"{step.name}, {clock(step.start)}–{clock(step.end)}"


def _box(left: float, top: int, width: float, fill: str, said: str = "", more: str = "") -> str:
    place = f"x='{left:.1f}' y='{top}' width='{max(width, 0.5):.1f}' height='{_STRIP}'"
    title = f"<title>{escape(plain(said))}</title>" if said else ""
    return f"<rect {place} fill='{fill}' {more}>{title}</rect>"


def _opacity(share: float) -> str:
    return f"fill-opacity='{_FAINTEST + (1 - _FAINTEST) * share:.2f}'"


def _text(left: float, line: int, text: str, more: str = "") -> str:
    return f"<text x='{left:.1f}' y='{line}' {more}>{escape(plain(text))}</text>"


def clock(seconds: float) -> str:
    """Return a time as minutes and seconds, with hours if there are any."""
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
