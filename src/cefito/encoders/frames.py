"""Pictures of a video at given times, read with PyAV.

They are what a viewer would see then: upright, whole or cut to a square.

Frames are chosen by their presentation time, not by their number, so a variable frame rate needs no
care. Second 0 is where the file's own clock starts.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from cefito.errors import ConfigError, DataError

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

__all__ = ["Sampling", "VideoInfo", "clips", "glance", "probe"]

_ALLOWED_LOSS = 2.0, 0.01
"""Most seconds, and most of the announced length, that a file which is not truncated may lack."""
_LONGEST_FRAME = 3600.0
"""Seconds; a longer gap between two frames is a fault of the timestamps."""
_REACH = 10
"""Rows; needed seconds that lie no further apart are decoded in one go."""
_AGAIN = "Download or convert it again, or leave it out."

Frame = TypeVar("Frame")


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the clip of a second is made.

    The clip of second s has `frames` frames, `rate` of them a second, in the middle of [s, s + 1).
    With `rate` = `frames` it covers just this second; with a lower rate it reaches into its
    neighbours. How the published features were sampled is not documented, save that they are one
    vector a second of clips of 32 (or 16) frames.

    Attributes:
        frames: Frames a clip; one for encoders of pictures, which see the middle of each second.
        rate: Frames a second; without meaning where a clip has one frame.
        size: Height and width in pixels: the short side is scaled to it, the long one cut about the
            middle. None leaves pictures whole, at the size that they have, for clips of one frame.
    """

    frames: int = 32
    rate: float = 32.0
    size: int | None = 224

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            ConfigError: A number is out of range.
        """
        if not 1 <= self.frames <= 256:
            raise ConfigError(
                f"{self.frames} frames a clip: expected a number from 1 to 256, such as 32."
            )
        if not 0.1 <= self.rate <= 1000:
            raise ConfigError(
                f"{self.rate} frames a second: expected a number from 0.1 to 1000, such as 32."
            )
        if self.size is None and self.frames > 1:
            raise ConfigError(
                f"{self.frames} frames a clip: they must be of one size; give one, such as 224."
            )
        if self.size is not None and not 16 <= self.size <= 1024:
            raise ConfigError(
                f"pictures of {self.size} pixels: expected a number from 16 to 1024, such as 224."
            )

    def times(self, second: int) -> list[float]:
        """Seconds at which the `frames` pictures of a second's clip are taken, ascending."""
        return [
            second + 0.5 + (place + 0.5 - self.frames / 2) / self.rate
            for place in range(self.frames)
        ]


@dataclass(frozen=True, kw_only=True)
class VideoInfo:
    """What is known of a video before any of it is decoded.

    Attributes:
        path: The file.
        origin: What the file's clock shows at second 0.
        duration: Second at which the last frame ends.
        aspect: Width of a pixel over its height.
        timed: Whether its packets bear times; without, frames are counted, and all is decoded from
            the start.
    """

    path: Path
    origin: float
    duration: float
    aspect: float
    timed: bool

    @property
    def seconds(self) -> int:
        """Number of seconds whose middle lies in the video, at least 1."""
        return max(1, math.ceil(self.duration - 0.5))


def probe(path: Path) -> VideoInfo:
    """Read through a video without decoding it.

    Raises:
        ConfigError: PyAV is not installed.
        DataError: The file is missing, no video, has no pictures, or ends long before the length
            that it announces.
    """
    with _opened(path) as (container, stream):
        # FFmpeg counts microseconds here; PyAV says None where the format has no clock
        origin = (container.start_time or 0) / 1e6
        announced = (container.duration or 0) / 1e6
        step, counted, timed = _step(stream), 0, True
        reached = end = origin
        with _faults(path, lambda: f"cannot be read behind second {reached - origin:.1f}"):
            for packet in container.demux():
                stamp = packet.dts if packet.pts is None else packet.pts
                length = float((packet.duration or 0) * (packet.time_base or 0))
                if stamp is not None:
                    time = float(stamp * packet.time_base)
                    reached = max(reached, time + length)
                if packet.stream_index != stream.index or not packet.size:
                    continue
                if stamp is None:
                    timed, time = False, origin + counted * step
                if counted and time - end > _LONGEST_FRAME:
                    raise DataError(
                        f"{path}: its timestamps jump from second {end - origin:.1f} to second "
                        f"{time - origin:.1f}. {_AGAIN}"
                    )
                end, counted = max(end, time + (length or step)), counted + 1
        if not counted:
            raise DataError(f"{path}: its video stream is empty. {_AGAIN}")
        missing = announced - (max(reached, end) - origin)
        if missing > max(_ALLOWED_LOSS[0], _ALLOWED_LOSS[1] * announced):
            raise DataError(
                f"{path}: is truncated: it ends at second {announced - missing:.1f}, but announces "
                f"{announced:.1f} seconds. {_AGAIN}"
            )
        aspect = float(stream.sample_aspect_ratio or 1)
        return VideoInfo(
            path=path, origin=origin, duration=end - origin, aspect=aspect, timed=timed
        )


def glance(path: Path) -> VideoInfo:
    """What a video says of itself, without reading through it.

    That is enough to show pictures of it. Where it does not say how long it is, it is read through.

    Raises:
        ConfigError: PyAV is not installed.
        DataError: The file is missing, no video, or has no pictures.
    """
    with _opened(path) as (container, stream):
        if container.duration:
            return VideoInfo(
                path=path,
                origin=(container.start_time or 0) / 1e6,
                duration=container.duration / 1e6,
                aspect=float(stream.sample_aspect_ratio or 1),
                timed=True,
            )
    return probe(path)


def clips(video: VideoInfo, seconds: Sequence[int], sampling: Sampling) -> Iterator[Tensor]:
    """The clips of some seconds of a video, one by one; only what they need is decoded and held.

    Args:
        video: From `probe`.
        seconds: Ascending, without repeats, below `video.seconds`.
        sampling: How a clip is made. Where it begins before the video or ends behind it, the first
            or last picture is repeated.

    Yields:
        uint8 [3, frames, size, size], RGB; of other height and width where `size` is None.

    Raises:
        DataError: The video cannot be decoded; the message names the second.
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
            raise DataError(f"{video.path}: none of its pictures can be decoded. {_AGAIN}")


def gather(
    frames: Iterable[tuple[float, Frame]],
    seconds: Iterable[int],
    sampling: Sampling,
    picture: Callable[[Frame], Tensor],
) -> Iterator[list[Tensor]]:
    """For each second what is shown at the times of its clip.

    That is the last frame that has begun by then.

    Args:
        frames: (time, frame), times ascending.
        seconds: Ascending.
        sampling: How a clip is made.
        picture: Makes a picture of a frame; called once a frame, and only for frames that are
            needed.

    Yields:
        `sampling.frames` pictures.
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
    """(second, frame) of a video in the order of presentation.

    They begin no later than with what is shown at `start`.
    """
    if start > 0 and video.timed:
        reader = _decoded(video, start)
        first = None
        # a leap into the middle may fail where decoding from the start does not
        with suppress(DataError):
            first = next(reader, None)
        if first is not None and first[0] <= start:
            yield first
            yield from reader
            return
        reader.close()
    yield from _decoded(video, None)


def _decoded(
    video: VideoInfo, start: float | None
) -> Generator[tuple[float, VideoFrame], None, None]:
    with _opened(video.path) as (container, stream):
        step, time = _step(stream), -math.inf
        place = 0.0
        stream.thread_type = "AUTO"
        with _faults(video.path, lambda: f"cannot be decoded at second {max(place, 0):.1f}"):
            if start is not None:
                # a second earlier: some formats seek by decoding time, which runs ahead
                ticks = (start - 1 + video.origin) / float(stream.time_base or Fraction(1))
                container.seek(math.floor(ticks), stream=stream)
            for packet in container.demux(stream):
                stamp = packet.dts if packet.pts is None else packet.pts
                if stamp is not None:
                    place = float(stamp * packet.time_base) - video.origin
                for frame in packet.decode():
                    stamp = frame.dts if frame.pts is None else frame.pts
                    if video.timed and stamp is not None and frame.time_base is not None:
                        # broken times that run backwards: shown at once
                        time = max(round(float(stamp * frame.time_base) - video.origin, 6), time)
                    else:
                        time = time + step if time > -math.inf else 0.0
                    if frame.is_corrupt:
                        raise DataError(
                            f"{video.path}: is damaged at second {max(time, 0):.1f}. {_AGAIN}"
                        )
                    yield time, frame


@contextmanager
def _opened(path: Path) -> Iterator[tuple[InputContainer, VideoStream]]:
    """A file and its first stream of moving pictures."""
    try:
        import av
        from av.stream import Disposition
    except ImportError as problem:
        raise ConfigError(
            "reading videos needs PyAV, which is not installed here. Run: pip install "
            "'cefito[video]'"
        ) from problem
    if not path.is_file():
        raise DataError(f"{path}: no such file. Give the path of a video.")
    with _faults(
        path, lambda: "cannot be opened as a video; it is truncated, damaged or of another kind"
    ):
        # absolute, so that a colon in the name is not taken for a protocol; tags may be in any
        # encoding
        container = av.open(str(path.absolute()), metadata_errors="replace")
    with container:
        streams = [
            stream
            for stream in container.streams.video
            if not stream.disposition & Disposition.attached_pic
        ]
        if not streams:
            kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "none"
            raise DataError(
                f"{path}: has no video stream (streams found: {kinds}). Give a file with moving "
                "pictures."
            )
        yield container, streams[0]


@contextmanager
def _faults(path: Path, what: Callable[[], str]) -> Iterator[None]:
    from av.error import FFmpegError

    try:
        yield
    except FFmpegError as problem:
        raise DataError(f"{path}: {what()} ({problem.strerror}). {_AGAIN}") from problem


def _step(stream: VideoStream) -> float:
    """Seconds that a frame lasts, where the file does not say."""
    return 1 / float(stream.average_rate or stream.guessed_rate or 25)


def _picture(frame: VideoFrame, size: int | None, video: VideoInfo) -> Tensor:
    """A frame upright with square pixels, uint8 [3, H, W].

    It is whole, or its short side is scaled to `size` and the middle cut.
    """
    shown_width, height = frame.width * video.aspect, frame.height
    width = max(1, round(shown_width))
    if size is not None:
        scale = size / min(shown_width, height)
        width, height = max(size, round(shown_width * scale)), max(size, round(height * scale))
    with _faults(video.path, lambda: "has pictures that cannot be converted to RGB"):
        rgb = frame.reformat(
            width=width, height=height, format="rgb24", interpolation="BILINEAR"
        ).to_ndarray()
    if size is not None:
        top, left = (height - size) // 2, (width - size) // 2
        rgb = rgb[top : top + size, left : left + size]
    turned = np.rot90(rgb, round(frame.rotation / 90) % 4)  # both count anticlockwise
    return torch.from_numpy(np.ascontiguousarray(turned.transpose(2, 0, 1)))
