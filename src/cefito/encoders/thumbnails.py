"""Small pictures of moments of videos, for people to look at: JPEG of at most so many bytes."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from torch import Tensor

from cefito.encoders.frames import Sampling, clips, glance
from cefito.errors import ConfigError

__all__ = ["SIDE", "thumbnail", "thumbnails"]

SIDE = 160
"""Pixels of a thumbnail's longer side at most."""
_QUALITIES = (75, 60, 45, 30, 20)
_SMALLEST = 16
_MIDDLE = Sampling(frames=1, rate=1, size=None)  # whole pictures, in the middle of their seconds


def thumbnails(
    video: Path, times: Sequence[float], *, most: int, side: int = SIDE
) -> Iterator[tuple[float, bytes]]:
    """A small picture of each moment of a video, in the order of time.

    It is what encoders of pictures see of an observation there: the frame in the middle of the
    second that the time is rounded to. Where the video has ended before, it is its last frame.

    Args:
        video: The file.
        times: Seconds, not negative.
        most: Bytes of a picture at most.
        side: Pixels of its longer side at most.

    Yields:
        A time, and the JPEG of its picture.

    Raises:
        ConfigError: PyAV or Pillow is not installed.
        DataError: The video cannot be read, or not at one of these moments.
    """
    info = glance(video)
    last = info.seconds - 1
    rows = sorted({min(round(time), last) for time in times})
    found: dict[int, bytes] = {}
    for row, clip in zip(rows, clips(info, rows, _MIDDLE), strict=True):
        found[row] = thumbnail(clip[:, 0], most=most, side=side)
    for time in sorted(times):
        yield time, found[min(round(time), last)]


def thumbnail(picture: Tensor, *, most: int, side: int = SIDE) -> bytes:
    """A picture as a small JPEG: equal pictures give equal bytes.

    Args:
        picture: uint8 [3, H, W], RGB.
        most: Bytes at most; quality, then size are lowered until it holds.
        side: Pixels of the longer side at most.

    Raises:
        ConfigError: Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError as problem:
        raise ConfigError(
            "small pictures need Pillow, which is not installed here. Run: pip install pillow"
        ) from problem
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
