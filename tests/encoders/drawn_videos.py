"""Videos that are drawn frame by frame."""

from fractions import Fraction

import numpy as np
import pytest

av = pytest.importorskip("av")
CLOCK = Fraction(1, 1000)


def grey(number):
    """Brightness that distinguishes a frame from its neighbours."""
    return 16 + number * 37 % 200


def write_video(
    path, times, *, picture=None, width=48, height=32, options=None, aspect=None, audio=None, crf=10
):
    """A video whose frames begin at `times`: of one grey, or `picture(n)` [height, width, 3]."""
    with av.open(str(path), "w", options=options or {}) as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height = width, height
        stream.pix_fmt = "yuv444p" if crf < 10 else "yuv420p"
        stream.codec_context.gop_size, stream.codec_context.time_base = 10, CLOCK
        stream.options = {"crf": str(crf), "preset": "ultrafast", "bf": "2"}
        if aspect:
            stream.codec_context.sample_aspect_ratio = Fraction(aspect)
        sound = container.add_stream("aac", rate=8000, layout="mono") if audio else None
        plain = np.ones((height, width, 3), np.uint8)
        for number, time in enumerate(times):
            pixels = picture(number) if picture else plain * np.uint8(grey(number))
            frame = av.VideoFrame.from_ndarray(pixels, "rgb24")
            frame.time_base, frame.pts = CLOCK, round(time / CLOCK)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
        if sound:
            mux_silence(container, sound, audio)
    return path


def mux_silence(container, stream, seconds):
    for place in range(0, int(seconds * 8000), 1024):
        frame = av.AudioFrame.from_ndarray(
            np.zeros((1, 1024), np.float32), format="fltp", layout="mono"
        )
        frame.sample_rate, frame.pts, frame.time_base = 8000, place, Fraction(1, 8000)
        container.mux(stream.encode(frame))
    container.mux(stream.encode())


def steady(seconds, rate=25):
    return [number / rate for number in range(round(seconds * rate))]
