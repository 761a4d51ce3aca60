"""Videos that are drawn: every second has a grey of its own."""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

RATE = 4  # frames a second
LEVELS = tuple(range(30, 250, 20))
"""Grey of each second; longer videos repeat them."""


def draw_greys(path: Path, seconds: int, *, side: tuple[int, int] = (64, 48), first: int = 0):
    """Write an MP4 of width and height `side`, whose second s has the grey of `grey_of(s)`."""
    draw_levels(path, [grey_of(second, first) for second in range(seconds)], side=side)


def draw_levels(path: Path, levels: Sequence[int], *, side: tuple[int, int] = (64, 48)):
    """Write a film of width and height `side` with a grey for each second."""
    import av

    codec = "libvpx" if path.suffix == ".webm" else "libx264"
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(codec, rate=RATE)
        stream.width, stream.height = side
        stream.pix_fmt, stream.options = "yuv420p", {"preset": "ultrafast"}
        for number, level in enumerate(np.repeat(levels, RATE)):
            frame = av.VideoFrame.from_ndarray(
                np.full((side[1], side[0], 3), level, np.uint8), "rgb24"
            )
            frame.pts, frame.time_base = number, Fraction(1, RATE)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def grey_of(second: int, first: int = 0) -> int:
    """The grey of a second of a video whose second 0 has the grey number `first`."""
    return LEVELS[(first + second) % len(LEVELS)]


def picture_of(grey: int, size: tuple[int, int] = (40, 32), form: str = "JPEG") -> bytes:
    """A picture of one grey."""
    file = io.BytesIO()
    pytest.importorskip("PIL.Image").new("RGB", size, (grey,) * 3).save(file, form)
    return file.getvalue()


jpeg = picture_of


def read_grey(data: bytes) -> tuple[tuple[int, int], float]:
    """Size and mean grey of a JPEG."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as opened:
        assert opened.format == "JPEG"
        return opened.size, float(np.asarray(opened.convert("L")).mean())
