"""A picture of recognised steps, SVG: a strip a video, below the annotated one if it is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from cefito.timeline.formats import RecognisedVideo, TimedAction, plain
from cefito.timeline.recogniser import RecognisedStep

_WIDTH, _LEFT, _RIGHT = 960, 110, 20  # pixels
_STRIP, _GAP, _LINE = 22, 6, 18  # heights
_COLUMNS = 4  # of the legend
_TICKS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400)  # seconds
_GOLDEN = 137.508  # degrees between colours, so that any number of them differs
_FAINTEST = 0.15  # opacity of a step of the probability 0


def timeline_picture(videos: Sequence[RecognisedVideo]) -> str:
    """Draw the steps of videos over one axis of time; their opacity is their probability."""
    longest = max(video.seconds for video in videos)
    scale = (_WIDTH - _LEFT - _RIGHT) / max(longest, 1e-9)
    spans = [(step.name, step.start) for video in videos for step in video.annotated or ()]
    spans += [(step.name, step.start) for video in videos for step in video.steps]
    names = list(dict.fromkeys(name for name, _ in sorted(spans, key=lambda span: span[1])))
    colours = {
        name: f"hsl({place * _GOLDEN % 360:.0f} 60% {45 + place % 3 * 10}%)"
        for place, name in enumerate(names)
    }
    parts, top = [], _GAP
    for video in videos:
        sure = f"{video.video}: {video.task} ({video.task_probability:.0%})"
        parts.append(_text(_LEFT, top + 13, sure, "font-weight='bold'"))
        top += _LINE
        strips = [("recognised", [_span(one, one.probability) for one in video.steps])]
        if video.annotated is not None:
            strips.insert(0, ("annotated", [_span(one) for one in video.annotated]))
        for title, steps in strips:
            parts.append(_text(_LEFT - 8, top + 15, title, "text-anchor='end'"))
            parts.append(_box(_LEFT, top, video.seconds * scale, "#eee"))
            for name, start, end, probability in steps:
                said = f"{name}, {_clock(start)}–{_clock(end)}"
                opacity = 1.0
                if probability is not None:
                    said += f", {probability:.0%}"
                    opacity = _FAINTEST + (1 - _FAINTEST) * probability
                left, width = _LEFT + start * scale, (end - start) * scale
                parts.append(_box(left, top, width, colours[name], said, opacity))
            top += _STRIP + _GAP
    tick = next((each for each in _TICKS if longest / each <= 10), _TICKS[-1])
    for number in range(int(longest / tick) + 1):
        middle = "text-anchor='middle' fill='#555'"
        parts.append(_text(_LEFT + number * tick * scale, top + 12, _clock(number * tick), middle))
    top += _LINE + _GAP
    column = (_WIDTH - _LEFT - _RIGHT) / _COLUMNS
    for place, name in enumerate(names):
        left, line = _LEFT + place % _COLUMNS * column, top + place // _COLUMNS * _LINE
        parts.append(f"<rect x='{left:.1f}' y='{line}' width='12' height='12' ")
        parts[-1] += f"fill='{colours[name]}'/>"
        parts.append(_text(left + 17, line + 11, _shortened(name)) + "\n")
    height = top + -(-len(names) // _COLUMNS) * _LINE + _GAP
    return "\n".join(_document(parts, height)) + "\n"


def _document(parts: Iterable[str], height: int) -> Iterable[str]:
    size = f"width='{_WIDTH}' height='{height}' viewBox='0 0 {_WIDTH} {height}'"
    font = "font-family='sans-serif' font-size='12'"
    yield f"<svg xmlns='http://www.w3.org/2000/svg' {size} {font} role='img'>"
    yield "<title>Recognised steps over time</title>"
    yield f"<rect width='{_WIDTH}' height='{height}' fill='white'/>"
    yield from parts
    yield "</svg>"


def _span(
    step: RecognisedStep | TimedAction, probability: float | None = None
) -> tuple[str, float, float, float | None]:
    return step.name, step.start, step.end, probability


def _box(
    left: float, top: int, width: float, fill: str, said: str = "", opacity: float = 1.0
) -> str:
    place = f"x='{left:.1f}' y='{top}' width='{max(width, 0.5):.1f}' height='{_STRIP}'"
    title = f"<title>{escape(plain(said))}</title>" if said else ""
    return f"<rect {place} fill='{fill}' fill-opacity='{opacity:.2f}'>{title}</rect>"


def _text(left: float, line: int, text: str, more: str = "") -> str:
    return f"<text x='{left:.1f}' y='{line}' {more}>{escape(plain(text))}</text>"


def _shortened(name: str) -> str:
    return name if len(name) <= 28 else f"{name[:27]}…"


def _clock(seconds: float) -> str:
    """Return a time as minutes and seconds, with hours if there are any."""
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
