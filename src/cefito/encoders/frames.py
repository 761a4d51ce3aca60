"""Pictures of a video at given times, read with PyAV: upright, whole or cut to a square.

Frames are chosen by their presentation time, not by their number, so variable frame rates need no
special handling. Second 0 is the start of the file's own clock.
"""

from __future__ import annotations

import io
import logging
import math
import struct
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import dropwhile, takewhile
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.encoders.images import check_pixels
from cefito.errors import ConfigError, DataError, explained, install_command
from cefito.files import check_binary

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

_ALLOWED_LOSS = 2.0, 0.01  # seconds, and share of the announced length, that may be missing
_LONGEST_GAP = 3600.0  # seconds; a longer gap in all streams is a fault of the timestamps
_LONGEST_GAP_STREAMED = 10.0  # the same in formats whose clocks may restart, such as .ts
_BACKWARDS = 0.5  # seconds by which timestamps may run backwards
_CAMERAS = {"linux": "v4l2", "darwin": "avfoundation", "win32": "dshow"}  # of FFmpeg
_ROUNDING = 1e-6  # seconds
_DEFAULT_RATE = 25  # frames a second of files that tell neither times nor rate, by FFmpeg
_APART = 1e-3  # seconds by which the borders of a part may miss a picture's time
_SHORT = 0.5  # seconds by which a file may end before a part of it
_REACH = 10  # requested seconds at most this far apart are decoded in one go
_REMEDY = "Download or convert it again, or leave it out."
_JOINED = "Write it anew, as by ffmpeg -i OLD NEW.mp4, and annotate that film."

Frame = TypeVar("Frame")


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the clip of a second is made; numbers out of range raise ConfigError.

    The clip of second s has `frames` frames, `rate` per second, in the middle of [s, s + 1). With
    `rate` = `frames` it covers exactly this second; with a lower rate it reaches into its
    neighbours. Of the published features, it is only known that they have one vector per second.
    """

    frames: int = 32  # one for image encoders, which see the middle of each second
    rate: float = 32.0  # frames per second; without meaning for clips of one frame
    # the short side is scaled to it, the long one cut about the middle; None leaves pictures whole
    size: int | None = 224

    def __post_init__(self) -> None:
        if not 1 <= self.frames <= 256:
            problem = f"{self.frames} frames a clip: expected a number from 1 to 256, such as 32."
        elif not 0.1 <= self.rate <= 1000:
            problem = f"{self.rate} frames a second: expected 0.1 to 1000, such as 32."
        elif self.size is None and self.frames > 1:
            problem = f"{self.frames} frames a clip: give them one size, such as 224."
        elif self.size is not None and not 16 <= self.size <= 1024:
            problem = f"pictures of {self.size} pixels: expected 16 to 1024, such as 224."
        else:
            return
        raise ConfigError(problem)

    def times(self, second: int) -> list[float]:
        """Return the times, in seconds, of the pictures of a second's clip, ascending.

        Picture i of F is taken at second + 1/2 + (i + 1/2 − F/2) / rate.
        """
        return [
            second + 0.5 + (place + 0.5 - self.frames / 2) / self.rate
            for place in range(self.frames)
        ]


@dataclass(frozen=True, kw_only=True)
class VideoInfo:
    """Properties of a video that are known before decoding."""

    path: Path
    origin: float  # time of the file's clock at second 0
    duration: float  # second at which the last frame ends
    aspect: float  # width of a pixel over its height
    timed: bool  # packets have times; otherwise frames are counted, decoded from the start
    # whether it is a part of the file, whose other pictures are not seen
    part: bool = False

    @property
    def seconds(self) -> int:
        """Number of seconds whose middle is within the video, at least 1."""
        return max(1, math.ceil(self.duration - 0.5))


_Clocks = dict[tuple[int, bool], float]
"""Latest time of each stream, by its number and whether it tells no decoding times."""


def _check_clock(
    path: Path, packet: Packet[Any], clocks: _Clocks, longest: float, origin: float
) -> None:
    """Refuse a stream that goes back in time, and a gap that no stream fills (DataError).

    A gap is longer than `longest` where a recording may begin, and else than `_LONGEST_GAP`.
    """
    stamp = packet.pts if packet.dts is None else packet.dts
    if stamp is None or packet.stream.type not in ("video", "audio"):
        return
    time, clock = float(stamp * (packet.time_base or 0)), (packet.stream_index, packet.dts is None)
    before, newest = clocks.get(clock, time), max(clocks.values(), default=time)
    if before - time > _BACKWARDS and packet.dts is not None:  # shown in another order
        begin = before
    elif time - newest > (longest if packet.is_keyframe else _LONGEST_GAP):
        begin = newest
    else:
        clocks[clock] = max(time, before)
        return
    jump = f"its timestamps jump from second {begin - origin:.1f} to {time - origin:.1f}"
    raise DataError(f"{path}: {jump}, as in joined or damaged recordings. {_JOINED}")


def probe(path: Path) -> VideoInfo:
    """Read through a video without decoding it (DataError if damaged or much too short)."""
    with opened_video(path) as (container, stream):
        # FFmpeg counts microseconds here; PyAV says None where the format has no clock
        origin = (container.start_time or 0) / 1e6
        announced = _duration(container)
        if _has(container, "no_timestamps") and not stream.codec_context.framerate:
            counted_at = f"its pictures are counted at {1 / _step(stream):g} a second"
            remedy = "If it has another rate: ffmpeg -framerate RATE -i OLD -c copy NEW.mkv"
            logging.getLogger(__name__).warning(
                "%s: has no times; %s. %s", path, counted_at, remedy
            )
        gap = _LONGEST_GAP_STREAMED if _has(container, "ts_discont") else _LONGEST_GAP
        step, counted, timed, ordered, whole = _step(stream), 0, True, True, 0.0
        reached, clocks = origin, _Clocks()
        first, (last, length) = math.inf, (-math.inf, 0.0)
        with _faults(path, lambda: f"cannot be read behind second {reached - origin:.1f}"):
            for packet in container.demux():
                stamp = packet.dts if packet.pts is None else packet.pts
                lasting = float((packet.duration or 0) * (packet.time_base or 0))
                if stamp is not None:
                    time = float(stamp * packet.time_base)
                    reached = max(reached, time + lasting)
                _check_clock(path, packet, clocks, gap, origin)
                if packet.stream_index != stream.index or not packet.size:
                    continue
                if stamp is None:
                    timed, time = False, origin + counted * step
                counted, whole, first = counted + 1, whole + (lasting or step), min(first, time)
                if time < last:
                    ordered = False
                else:
                    last, length = time, lasting or step
        if not counted:
            raise DataError(f"{path}: its video stream is empty. {_REMEDY}")
        if not ordered:  # a packet lasts until the next in decoding order; together, all pictures
            length = min(length, max(first + whole - last, step))
        end = last + length
        missing = announced - (max(reached, end) - origin)
        if missing > max(_ALLOWED_LOSS[0], _ALLOWED_LOSS[1] * announced):
            both = f"{announced - missing:.1f}, but announces {announced:.1f} seconds"
            raise DataError(f"{path}: is truncated: it ends at second {both}. {_REMEDY}")
        duration, aspect = end - origin, _aspect(stream)
        return VideoInfo(path=path, origin=origin, duration=duration, aspect=aspect, timed=timed)


def part_of(video: VideoInfo, start: float, end: float) -> VideoInfo:
    """Return a part of a video, whose second 0 is its start; pictures outside are not seen.

    Args:
        video: The whole video.
        start: Time of the file's clock at which the part begins, in seconds.
        end: Time at which it ends.

    Raises:
        DataError: The file tells no times, or ends before.
    """
    last = video.origin + video.duration
    if not video.timed or end > last + _SHORT:
        lack = f"ends at second {last:.1f}" if video.timed else "tells no times"
        raise DataError(f"{video.path}: {lack}, so it lacks {start:.1f} to {end:.1f}. {_REMEDY}")
    return replace(video, origin=start, duration=end - start, part=True)


def clips(video: VideoInfo, seconds: Sequence[int], sampling: Sampling) -> Iterator[Tensor]:
    """Yield the clips of some ascending seconds of a video; only their frames are held.

    A clip is uint8 [3, frames, size, size], RGB; of the video's height and width if `size` is None.
    Before the start and after the end of the video, the first or last picture is repeated.

    Args:
        video: Video, as `probe` describes it.
        seconds: Seconds, ascending.
        sampling: Frames, rate and size of a clip.
    """
    groups: list[list[int]] = []
    for second in seconds:
        if groups and second - groups[-1][-1] <= _REACH:
            groups[-1].append(second)
        else:
            groups.append([second])
    for group in groups:
        with closing(_frames(video, sampling.times(group[0])[0])) as frames:
            missing = len(group)
            for pictures in gather(
                frames, group, sampling, lambda frame: _picture(frame, sampling.size, video)
            ):
                yield torch.stack(pictures, dim=1)
                missing -= 1
        if missing:
            raise DataError(f"{video.path}: none of its pictures can be decoded. {_REMEDY}")


def camera_clips(device: str, sampling: Sampling) -> Iterator[tuple[float, Tensor]]:
    """Yield the time, in seconds, and the picture of each second of a camera until it ends.

    Args:
        device: Name of the device, as FFmpeg takes it, address of a stream, or a file.
        sampling: That of an encoder of single pictures.

    Raises:
        ConfigError: An encoder of clips, or PyAV is not installed.
        DataError: The camera cannot be opened, has no pictures, or was unplugged.
    """
    if sampling.frames != 1:
        problem = "a camera gives one picture a second, and the encoder takes clips"
        raise ConfigError(f"{problem}. Take an encoder of pictures.", setting="camera")
    path = Path(device)
    if path.is_file():
        video = probe(path)
        pictures = ((at, frame, video) for at, frame in _frames(video, 0.0))
    else:
        pictures = _live(device)
    shown = -1
    with closing(pictures):
        for at, frame, video in pictures:
            if math.floor(at + _ROUNDING) > shown:
                shown = math.floor(at + _ROUNDING)
                yield at, _picture(frame, sampling.size, video)[:, None]


def _live(device: str) -> Generator[tuple[float, VideoFrame, VideoInfo], None, None]:
    """Yield the pictures of a device or a stream and their times, the first at 0.

    Times are those of the stream's clock. The wall clock tells how long it took from one picture to
    the next if the stream has no clock, or if its clock jumps, as after a new connection.
    """
    install = f"Run: {install_command('video')}"
    with explained("cameras", "need PyAV", install, ImportError, error=ConfigError):
        import av
    kind = None if "://" in device else _CAMERAS.get(sys.platform)
    at, last, seen = 0.0, None, None
    try:
        # without a clock, frames need not be read ahead to measure their rate
        with av.open(device, format=kind, options={"fpsprobesize": "0"}) as container:
            stream = _stream(container, device)
            timed = kind is None and not _has(container, "no_timestamps")
            video = VideoInfo(
                path=Path(device), origin=0, duration=0, aspect=_aspect(stream), timed=timed
            )
            for frame in container.decode(stream):
                now, time = monotonic(), frame.time if timed else None
                if seen is not None:
                    passed = now - seen if time is None or last is None else time - last
                    steady = -_BACKWARDS <= passed <= _LONGEST_GAP_STREAMED
                    at += passed if steady else now - seen
                last, seen = time, now
                yield at, frame, video
    except av.error.FFmpegError as problem:
        if seen is None:
            remedy = "Is it plugged in, and free? Give its number or device."
            raise DataError(
                f"{device}: gives no pictures ({problem.strerror}). {remedy}"
            ) from problem
        ended = f"{device}: ended at second {at:.1f} ({problem.strerror})"
        if kind is not None:
            raise DataError(f"{ended}. Is it still plugged in?") from problem
        logging.getLogger(__name__).warning("%s", ended)


def gather(
    frames: Iterable[tuple[float, Frame]],
    seconds: Iterable[int],
    sampling: Sampling,
    picture: Callable[[Frame], Tensor],
) -> Iterator[list[Tensor]]:
    """Yield the `sampling.frames` pictures of each second's clip; times and seconds ascend.

    The picture at a time is the last frame that has begun by then. `picture` converts a frame; it
    is called at most once per frame, and only for frames in a clip.

    Args:
        frames: Times in seconds and frames, ascending.
        seconds: Seconds, ascending.
        sampling: Frames and rate of a clip.
        picture: Converts a frame to a picture [3, H, W].
    """
    waiting = deque((sampling.times(second), list[Tensor]()) for second in seconds)
    shown: Frame | None = None

    def fill(until: float) -> Iterator[list[Tensor]]:
        made: Tensor | None = None
        for times, pictures in waiting:
            if times[0] >= until:
                break
            while len(pictures) < len(times) and times[len(pictures)] < until:
                if made is None:
                    assert shown is not None
                    made = picture(shown)
                pictures.append(made)
        while waiting and len(waiting[0][1]) == sampling.frames:
            yield waiting.popleft()[1]

    for time, frame in frames:
        if shown is not None:
            yield from fill(time)
        if not waiting:
            return
        shown = frame
    if shown is not None:
        yield from fill(math.inf)


def _frames(video: VideoInfo, start: float) -> Generator[tuple[float, VideoFrame], None, None]:
    """Yield (second, frame) in the order of presentation, from the frame shown at `start`."""
    if video.part:
        last = video.duration - _APART
        inside = dropwhile(lambda one: one[0] < -_APART, _from(video, max(start, 0)))
        yield from takewhile(lambda one: one[0] < last, inside)
    else:
        yield from _from(video, start)


def _from(video: VideoInfo, start: float) -> Generator[tuple[float, VideoFrame], None, None]:
    """Yield (second, frame) of the whole file, from the frame shown at `start`."""
    if (start > 0 or video.part) and video.timed:
        reader = decoded(video, start)
        first = None
        # seeking may fail for files that can be decoded from the start
        with suppress(DataError):
            first = next(reader, None)
        if first is not None and first[0] <= start + _APART * video.part:
            yield first
            yield from reader
            return
        reader.close()
    yield from decoded(video, None)


def decoded(
    video: VideoInfo, start: float | None
) -> Generator[tuple[float, VideoFrame], None, None]:
    """Yield the pictures of a video, from a second on if one is given, with their times."""
    with opened_video(video.path) as (container, stream):
        step, time = _step(stream), -math.inf
        place = 0.0
        stream.thread_type = "AUTO"
        with _faults(video.path, lambda: f"cannot be decoded at second {max(place, 0):.1f}"):
            if start is not None:
                # one second earlier: some formats seek by decoding time, which runs ahead
                ticks = (start - 1 + video.origin) / float(stream.time_base or Fraction(1))
                container.seek(math.floor(ticks), stream=stream)
            for packet in container.demux(stream):
                stamp = packet.dts if packet.pts is None else packet.pts
                if stamp is not None:
                    place = float(stamp * packet.time_base) - video.origin
                for frame in packet.decode():
                    stamp = frame.dts if frame.pts is None else frame.pts
                    if video.timed and stamp is not None and frame.time_base is not None:
                        # broken times that run backwards are shown at once
                        time = max(round(float(stamp * frame.time_base) - video.origin, 6), time)
                    else:
                        time = time + step if time > -math.inf else 0.0
                    if frame.is_corrupt:
                        fault = f"{video.path}: is damaged at second {max(time, 0):.1f}"
                        raise DataError(f"{fault}. {_REMEDY}")
                    yield time, frame


def _has(container: InputContainer, flag: str) -> bool:
    """Whether the format of a file has a flag of FFmpeg's."""
    from av.format import Flags

    kinds: Any = Flags
    return bool(container.format.flags & kinds[flag].value)


def _duration(container: InputContainer) -> float:
    """Return the seconds that a file announces, at least; Matroska's count from its clock's 0."""
    counted = container.duration or 0
    if "matroska" in container.format.name:
        counted -= container.start_time or 0
    return counted / 1e6


@contextmanager
def opened_video(path: Path) -> Iterator[tuple[InputContainer, VideoStream]]:
    """Open a file and its first video stream."""
    install = f"Run: {install_command('video')}"
    with explained("videos", "need PyAV", install, ImportError, error=ConfigError):
        import av
    check_binary(path, "Give a video.")
    fault = "cannot be opened as a video; it is truncated, damaged or of another kind"
    with _faults(path, lambda: fault):
        # absolute: a colon in the name is not a protocol; tags may be in any encoding
        container = av.open(str(path.absolute()), metadata_errors="replace")
    with container:
        yield container, _stream(container, path)


def _stream(container: InputContainer, place: object) -> VideoStream:
    """Return the first video stream that is no cover picture (DataError if there is none)."""
    from av.stream import Disposition

    for stream in container.streams.video:
        if not stream.disposition & Disposition.attached_pic:
            return stream
    kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "none"
    raise DataError(f"{place}: has no video stream (streams found: {kinds}). Give a video.")


@contextmanager
def _faults(path: Path, what: Callable[[], str]) -> Iterator[None]:
    from av.error import FFmpegError

    try:
        yield
    except FFmpegError as problem:
        raise DataError(f"{path}: {what()} ({problem.strerror}). {_REMEDY}") from problem


def _aspect(stream: VideoStream) -> float:
    """Return the width of a pixel over its height."""
    return float(stream.sample_aspect_ratio or 1)


def _step(stream: VideoStream) -> float:
    """Return the seconds per frame, for files without times; the average may be a mere default."""
    return 1 / float(stream.guessed_rate or _DEFAULT_RATE)


def _picture(frame: VideoFrame, size: int | None, video: VideoInfo) -> Tensor:
    """Convert a frame to an upright picture with square pixels, uint8 [3, H, W].

    If `size` is given, the short side is scaled to it and the middle is cut.
    """
    shown_width, height = frame.width * video.aspect, frame.height
    width = max(1, round(shown_width))
    if size is not None:
        scale = size / min(shown_width, height)
        width, height = max(size, round(shown_width * scale)), max(size, round(height * scale))
    check_pixels(f"{video.path}: a frame", (frame.height, frame.width), (height, width))
    with _faults(video.path, lambda: "has pictures that cannot be converted to RGB"):
        rgb = frame.reformat(
            width=width, height=height, format="rgb24", interpolation="BILINEAR"
        ).to_ndarray()
    if size is not None:
        top, left = (height - size) // 2, (width - size) // 2
        rgb = rgb[top : top + size, left : left + size]
    picture = upright(frame, rgb.astype(np.uint8, copy=False))
    return torch.from_numpy(np.ascontiguousarray(picture.transpose(2, 0, 1)))


def upright(frame: VideoFrame, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Turn and mirror a picture [H, W, …] as the display matrix of its frame says.

    The matrix [a b u; c d v; x y w] shows the place (x, y) at (a x + c y, b x + d y), y downwards.
    """
    side_data: Any = frame.side_data
    kinds = (data for data in side_data if data.type.name == "DISPLAYMATRIX")
    if (data := next(kinds, None)) is None:
        return picture
    a, b, _, c, d, *_ = struct.unpack("=9i", bytes(data))
    if abs(a) + abs(d) < abs(b) + abs(c):  # rows become columns
        picture, a, d = picture.swapaxes(0, 1), c, b
    return picture[:: -1 if d < 0 else 1, :: -1 if a < 0 else 1]


SIDE = 160
"""Maximum pixels of a thumbnail's longer side."""
_QUALITIES = (75, 60, 45, 30, 20)
_SMALLEST = 16
_MIDDLE = Sampling(frames=1, rate=1, size=None)  # whole frames, in the middle of their seconds


def thumbnails(
    video: Path, times: Sequence[float], *, most: int, side: int = SIDE
) -> Iterator[tuple[float, bytes]]:
    """Yield a time and its thumbnail, of at most `most` bytes, for each moment, in their order.

    The picture is the one that image encoders see: the middle frame of the second to which the time
    is rounded, or the last frame if the video has ended before.

    Args:
        video: File.
        times: Moments in seconds.
        most: Largest size of a thumbnail in bytes.
        side: Longest side in pixels.
    """
    info = probe(video)
    last = info.seconds - 1
    rows = sorted({min(round(time), last) for time in times})
    pictures = {
        row: thumbnail(clip[:, 0], most=most, side=side)
        for row, clip in zip(rows, clips(info, rows, _MIDDLE), strict=True)
    }
    for time in sorted(times):
        yield time, pictures[min(round(time), last)]


def thumbnail(picture: Tensor, *, most: int, side: int = SIDE) -> bytes:
    """Encode a picture, uint8 [3, H, W], RGB, as a small JPEG; equal pictures give equal bytes.

    The quality, then the size are lowered until it has at most `most` bytes.

    Args:
        picture: Picture, uint8 [3, H, W], RGB.
        most: Largest size in bytes.
        side: Longest side in pixels.
    """
    install = "Run: pip install pillow"
    with explained("thumbnails", "need Pillow", install, ImportError, error=ConfigError):
        from PIL import Image
    whole = Image.fromarray(picture.permute(1, 2, 0).numpy())
    while True:
        small = whole.copy()
        small.thumbnail((side, side))
        for quality in _QUALITIES:
            buffer = io.BytesIO()
            small.save(buffer, "JPEG", quality=quality, optimize=True)
            if buffer.tell() <= most or (side <= _SMALLEST and quality == _QUALITIES[-1]):
                return buffer.getvalue()
        side = side * 3 // 4
