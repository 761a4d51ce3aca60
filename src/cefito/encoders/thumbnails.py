"""Thumbnails of moments of videos: JPEG files of limited size."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from torch import Tensor

from cefito.encoders.frames import Sampling, clips, glance
from cefito.errors import ConfigError, explained

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
    """
    info = glance(video)
    last = info.seconds - 1
    rows = sorted({min(round(time), last) for time in times})
    found = {
        row: thumbnail(clip[:, 0], most=most, side=side)
        for row, clip in zip(rows, clips(info, rows, _MIDDLE), strict=True)
    }
    for time in sorted(times):
        yield time, found[min(round(time), last)]


def thumbnail(picture: Tensor, *, most: int, side: int = SIDE) -> bytes:
    """Encode a picture, uint8 [3, H, W], RGB, as a small JPEG; equal pictures give equal bytes.

    The quality, then the size are lowered until it has at most `most` bytes.
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
