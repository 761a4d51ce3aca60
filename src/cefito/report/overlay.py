"""Films with their steps drawn in: the present step, its probability, and what was wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cefito.data.readers.feature_files import is_features
from cefito.encoders.frames import VideoInfo, decoded, opened_video, probe, upright
from cefito.errors import ConfigError, DataError, explained
from cefito.files import check_target, file_names, write_atomic
from cefito.markup import percent, plain, shortened
from cefito.progress import Progress, silent
from cefito.tracks import Track
from cefito.tracks.writing import is_folder
from cefito.verification.findings import Deviation

if TYPE_CHECKING:
    from av.container import InputContainer, OutputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

FORMS = {".mp4": "mp4", ".mkv": "matroska"}
"""Formats of films by their endings."""
_MOST = 4  # findings at a time
_HOW = {"crf": "20", "preset": "veryfast", "bf": "0"}  # the last packet is the last picture
_LETTERS = 9, 44  # pixels of their height, at least and at most
_ROWS = 18  # rows of letters that a picture has room for
_BEHIND = 0.65  # opacity of the box behind letters

Lines = tuple[tuple[str, str], ...]
"""Lines of text, each with its colour."""


def check_overlay(out: Path, films: Sequence[str]) -> None:
    """Check that films can be drawn into, before any work.

    Args:
        out: File of `FORMS`, or folder, which several films need.
        films: The video files.

    Raises:
        ConfigError: Another ending, a file for several films, one that is the film itself, or what
            is no video file.
    """
    for film in films:
        if not Path(film).is_file() or is_features(Path(film)):
            problem = f"'{film}' is no video file. Leave it out"
            raise ConfigError(f"{out}: {problem}.", setting="overlay")
        if (out.exists() and out.samefile(film)) or (
            out.is_dir() and out.samefile(Path(film).parent)
        ):
            problem = "would replace the film. Name another file or folder"
            raise ConfigError(f"{out}: {problem}.", setting="overlay")
    if not is_folder(out):
        if len(films) > 1:
            raise ConfigError(f"{out}: holds one film, not {len(films)}.", setting="overlay")
        check_target(out, tuple(FORMS), "overlay")


def overlay_targets(out: Path, names: Sequence[str]) -> list[Path]:
    """Return the file to write for each film: one, or those of a folder, which is made."""
    if not is_folder(out):
        return [out]
    out.mkdir(parents=True, exist_ok=True)
    safe = file_names(names)
    return [out / f"{safe[name]}.mp4" for name in names]


def overlay_film(
    film: Path,
    out: Path,
    track: Track,
    findings: Sequence[Deviation] = (),
    *,
    progress: Progress = silent,
) -> str:
    """Write a film with the present step, its probability and findings drawn in.

    Pictures are upright and keep their times; the last row or column is repeated where their sides
    are odd. Packets of sound are copied.

    Args:
        film: The video file.
        out: File to write, of `FORMS`.
        track: Its steps.
        findings: What was wrong; those without a time are shown in the whole film.
        progress: Shows progress in seconds of the film.

    Returns:
        The letters that no font has, for which "?" was drawn.

    Raises:
        DataError: The film cannot be read, has no video, or its sound does not fit in the format;
            the file cannot be written.
        ConfigError: PyAV is not installed.
    """
    info, drawing = probe(film), _Drawing(track, findings)
    from av.error import FFmpegError  # after `probe`, which says if PyAV is not installed

    with (
        progress(f"drawing into {film.name}", total=info.seconds) as advance,
        explained(out, "cannot be written", "Name another file.", FFmpegError),
    ):
        write_atomic(
            out, lambda path: _write(info, path, FORMS[out.suffix], drawing, advance), DataError
        )
    return drawing.strange


def _write(
    info: VideoInfo, path: Path, form: str, drawing: _Drawing, advance: Callable[[int], object]
) -> None:
    """Write the pictures of a film, drawn into, and its sound."""
    import av

    with opened_video(info.path) as (source, shown), av.open(str(path), "w", form) as target:
        stream: Any = target.add_stream("libx264", shown.guessed_rate or 25, _HOW)
        sound = _Sound(source, target, info)
        tick, end, seconds = None, 1, 0
        for time, frame in decoded(info, None):
            picture = drawing.onto(frame, info.aspect, time)
            if tick is None:
                _begin(stream, shown, picture, drawing.aspect)
                remedy = "Name a file that ends in .mkv."
                with explained(info.path, "has sound that does not fit", remedy, *_faults()):
                    target.start_encoding()
            sound.copy(time)
            clock = stream.codec_context.time_base
            place = round(Fraction(time + info.origin) / clock)
            # broken times that do not grow are moved by a tick
            tick = place if tick is None else max(place, tick + 1)
            picture.pts, picture.time_base = tick, clock
            end = max(1, round((info.duration - time) / clock))
            target.mux(stream.encode(picture))
            advance(max(int(time) - seconds, 0))
            seconds = max(int(time), seconds)
        for packet in stream.encode():
            if packet.pts == tick:
                packet.duration = end
            target.mux(packet)
        sound.copy(math.inf)


def _faults() -> tuple[type[Exception], ...]:
    from av.error import FFmpegError

    return FFmpegError, ValueError


def _begin(stream: Any, shown: VideoStream, picture: VideoFrame, aspect: float) -> None:
    """Give an encoder the size, the clock, the colours and the shape of pixels of a film."""
    context, before = stream.codec_context, shown.codec_context
    stream.width, stream.height, stream.pix_fmt = picture.width, picture.height, "yuv420p"
    context.time_base = shown.time_base
    context.sample_aspect_ratio = Fraction(aspect).limit_denominator(1000)
    if before.format is not None and not before.format.is_rgb:
        for name in ("color_range", "colorspace", "color_primaries", "color_trc"):
            setattr(context, name, getattr(before, name))


class _Sound:
    """Packets of sound, copied from a film to another one in step with its pictures."""

    def __init__(self, source: InputContainer, target: OutputContainer, info: VideoInfo) -> None:
        remedy = "Name a file that ends in .mkv."
        self._target, self._info = target, info
        with explained(info.path, "has sound that does not fit", remedy, *_faults()):
            self._streams = {
                sound.index: target.add_stream_from_template(sound)
                for sound in source.streams.audio
            }
        self._packets = self._timed(source)
        self._next = next(self._packets, None)

    def _timed(self, source: InputContainer) -> Iterator[tuple[float, Packet[Any]]]:
        time = -math.inf
        for packet in source.demux(*source.streams.audio) if self._streams else ():
            stamp = packet.dts if packet.pts is None else packet.pts
            if stamp is not None:
                time = float(stamp * packet.time_base) - self._info.origin
            if packet.size:
                yield time, packet

    def copy(self, until: float) -> None:
        """Copy the packets up to a second."""
        while self._next is not None and self._next[0] <= until:
            _, packet = self._next
            packet.stream = self._streams[packet.stream_index]
            self._target.mux(packet)
            self._next = next(self._packets, None)


class _Drawing:
    """Draws steps and findings into pictures; a text is drawn once as long as it stays."""

    def __init__(self, track: Track, findings: Sequence[Deviation]) -> None:
        self._track, self._findings = track, findings
        self.strange = ""  # letters that no font has
        self.aspect = 1.0  # width of a pixel over its height, upright
        self._label: tuple[Any, list[NDArray[np.uint8]]] = (None, [])

    def _lines(self, time: float) -> Lines:
        steps = [
            (f"{number}. {step.name} ({percent(step.probability)})", "white")
            for number, step in enumerate(self._track.steps, 1)
            if step.start <= time < step.end
        ]
        wrong = [
            (f"{finding.name}: {finding.words} ({percent(finding.probability)})", "#ff9090")
            for finding in self._findings
            if finding.start is None or finding.end is None or finding.start <= time < finding.end
        ]
        more = [(f"and {len(wrong) - _MOST} more", "#ff9090")] if len(wrong) > _MOST else []
        return (*steps, *wrong[:_MOST], *more)

    def onto(self, frame: VideoFrame, aspect: float, time: float) -> VideoFrame:
        """Return an upright picture, YUV 4:2:0, with what is there at a second drawn in.

        Args:
            frame: The frame.
            aspect: Width of its pixels over their height.
            time: Second of the film.
        """
        from av.video.frame import VideoFrame

        if frame.format.name not in ("yuv420p", "yuvj420p"):
            frame = frame.reformat(format="yuv420p")
        planes = [upright(frame, _pixels(plane)) for plane in frame.planes]
        turned = upright(frame, np.empty((2, 1), np.uint8)).shape == (1, 2)
        self.aspect = 1 / aspect if turned else aspect
        height, width = (2 * side for side in planes[1].shape)
        luma = np.pad(
            planes[0],
            ((0, height - planes[0].shape[0]), (0, width - planes[0].shape[1])),
            mode="edge",
        )
        planes = [luma, planes[1].copy(), planes[2].copy()]
        if lines := self._lines(time):
            key = lines, height, width
            if key != self._label[0]:
                self._label = key, self._bitmap(lines, height, width)
            *inks, opacity = self._label[1]
            for plane, ink in zip(planes, inks, strict=True):
                share = opacity if plane is luma else opacity[::2, ::2]
                place = plane[plane.shape[0] - ink.shape[0] :, : ink.shape[1]]
                place[:] = place + (ink.astype(np.float32) - place) * (share / np.float32(255))
        packed = np.concatenate([plane.reshape(-1) for plane in planes])
        return VideoFrame.from_ndarray(packed.reshape(-1, width), "yuv420p")

    def _bitmap(self, lines: Lines, height: int, width: int) -> list[NDArray[np.uint8]]:
        """Draw lines into a box that fits in a picture: Y, U, V and opacity."""
        from av.video.frame import VideoFrame
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        size = min(max(height / _ROWS, _LETTERS[0]), _LETTERS[1])
        room = max(round(width * self.aspect), 2)
        row = max(round(1.5 * size), 1)
        box = len(lines) * row
        figure = Figure((room / 100, box / 100), 100, facecolor=(0, 0, 0, _BEHIND))
        canvas: Any = FigureCanvasAgg(figure)
        right = 0.0
        for number, (words, colour) in enumerate(lines):
            words = plain(words)
            fonts, strange = fonts_for(words)
            for letter in strange:
                words = words.replace(letter, "?")
            self.strange += "".join(letter for letter in strange if letter not in self.strange)
            place = size / 2 / room, 1 - (number + 0.5) * row / box
            text = figure.text(
                *place, words, color=colour, family=fonts, fontsize=0.72 * size, va="center"
            )
            text.set_parse_math(False)
            text.set_in_layout(False)
            while (end := text.get_window_extent(canvas.get_renderer()).x1) > room - size / 2:
                if len(words) < 3:
                    break
                words = shortened(words, max(min(int(len(words) * room / end), len(words) - 1), 2))
                text.set_text(words)
            right = max(right, end + size / 2)
        canvas.draw()
        drawn = np.asarray(canvas.buffer_rgba())[-height:, : max(math.ceil(right), 2)]
        wide = min(2 * math.ceil(drawn.shape[1] / self.aspect / 2), width)
        tall = min(2 * math.ceil(drawn.shape[0] / 2), height)
        frame = VideoFrame.from_ndarray(np.ascontiguousarray(drawn), "rgba")
        scaled = frame.reformat(width=wide, height=tall, format="yuva420p")
        return [_pixels(plane).copy() for plane in scaled.planes]


def _pixels(plane: Any) -> NDArray[np.uint8]:
    """Return the numbers of a plane of a frame [H, W]."""
    rows = np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)
    return rows[:, : plane.width]


@cache
def fonts_for(text: str) -> tuple[list[str], str]:
    """Return fonts that together have the letters of a text, and the letters that none has."""
    from matplotlib.font_manager import findfont, fontManager

    families = ["DejaVu Sans"]
    lacking = {letter for letter in text if not letter.isspace()} - _letters(findfont(families[0]))
    # the last resort of matplotlib has a box for each letter
    fonts = (font for font in fontManager.ttflist if "Last Resort" not in font.name)
    for font in sorted(fonts, key=lambda font: font.style != "normal"):
        if lacking and (has := lacking & _letters(font.fname)):
            families.append(font.name)
            lacking -= has
    return families, "".join(sorted(lacking))


@cache
def _letters(file: str) -> frozenset[str]:
    """Return the letters that a font has; none if it cannot be read."""
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(map(chr, FT2Font(file).get_charmap()))
    except (RuntimeError, OSError):
        return frozenset()
