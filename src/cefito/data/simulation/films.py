"""Drawn films: four tasks of the embedded world as videos, to try everything on pixels.

A hand comes at each step, and the drawing is another one when it goes. Films differ in the light,
which drifts, the place of the camera, which shakes, objects that lie about, and noise.
"""

from __future__ import annotations

import io
import tomllib
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.data.simulation.world import WorldKnobs, make_world
from cefito.errors import ConfigError, explained, install_command
from cefito.files import write_bytes, write_text
from cefito.markup import csv_text
from cefito.progress import Progress, silent
from cefito.runtime import SimulationStream

Scene = dict[str, list[list[Any]]]
"""Shapes that stand there "at first", and those that each step draws over them, by its name."""

FILMS = WorldKnobs(train=40, val=8, test=16, pace=0.3)
"""Numbers of films, and steps that last three seconds on average."""
_RATE = 2  # pictures a second
_SIZE = 352, 264  # pixels of a drawing
_MARGIN = 16  # pixels of its borders, of which the camera sees some
_REPEATED = 11  # pixels from the drawing of a step to that of its repetition
_NOISE = 2.5  # standard deviation of grey levels, of 255


def write_films(
    folder: Path | str, *, seed: int = 0, knobs: WorldKnobs = FILMS, progress: Progress = silent
) -> Path:
    """Write drawn films, `videos/NAME.mp4`, and their steps, `steps.csv`, as a data set to prepare.

    Args:
        folder: Folder to write. Films that are there already are kept.
        seed: Seed of steps and drawings.
        knobs: Numbers of films, and how their steps vary.
        progress: Shows progress in films.

    Returns:
        The table's path; columns video, task, step, start and end in seconds, split.

    Raises:
        ConfigError: PyAV is not installed.
    """
    folder, rows = Path(folder), list[tuple[object, ...]]()
    made = make_world(seed=seed, knobs=knobs, tasks=tuple(_scenes()))
    (folder / "videos").mkdir(parents=True, exist_ok=True)
    with progress("drawing films", total=len(made.videos)) as advance:
        for number, video in enumerate(made.videos):
            task = made.taxonomy.tasks[video.task].name
            path = folder / "videos" / f"{video.video_id}.mp4"
            steps = [
                (made.taxonomy.actions[step.action].name, step.start, step.end)
                for step in video.steps
            ]
            rows.extend((video.video_id, task, *step, video.split) for step in steps)
            if not path.exists():
                generator = np.random.default_rng([seed, SimulationStream.FILMS, number])
                write_bytes(path, film(_scenes()[task], steps, generator))
            advance(1)
    heads = ("video", "task", "step", "start", "end", "split")
    write_text(folder / "steps.csv", csv_text([heads, *rows]))
    return folder / "steps.csv"


def film(
    scene: Scene, steps: Sequence[tuple[str, float, float]], generator: np.random.Generator
) -> bytes:
    """Return an MP4 of steps that are drawn (ConfigError without PyAV).

    Args:
        scene: What is drawn at first, and by each step.
        steps: Name, start and end in seconds of each step.
        generator: Draws light, camera, objects and noise.
    """
    return _encoded(_pictures(scene, steps, generator))


@cache
def _scenes() -> dict[str, Scene]:
    """What is drawn by task, at first and for each action."""
    text = files("cefito.data.simulation").joinpath("scenes.toml").read_text("utf-8")
    return tomllib.loads(text)


def _pictures(
    scene: Scene, steps: Sequence[tuple[str, float, float]], generator: np.random.Generator
) -> Iterator[NDArray[np.uint8]]:
    """Yield the pictures of a film, uint8 [H, W, 3], until a second and a half after its end."""
    last = steps[-1][2] + 1.5
    light, drift = generator.uniform(0.7, 1.1), generator.uniform(-0.15, 0.15)
    camera = generator.uniform(_MARGIN / 2, 3 * _MARGIN / 2, 2)  # right and down
    about = []  # objects, and when each is put down
    for came in (0.0, 0.0, generator.uniform(0, last)):
        x, y, colour = generator.integers((0, 200, 0x404040), (312, 240, 0xD0D0D0)).tolist()
        width, height = generator.integers(12, 34, 2).tolist()
        kind = ("ellipse", "rectangle")[generator.integers(2)]
        about.append((came, [kind, f"#{colour:06x}", x, y, x + width, y + height]))
    for now in np.arange(0, last, 1 / _RATE):
        done = [name for name, start, end in steps if start + 0.6 * (end - start) <= now]
        shapes = [shape for came, shape in about if came <= now]
        acting = next(
            (
                (name, (now - start) / (end - start))
                for name, start, end in steps
                if start <= now < end
            ),
            None,
        )
        pixels = _drawn(scene, shapes, done, acting)
        camera = np.clip(camera + generator.normal(0, 1, 2), 0, 2 * _MARGIN)
        left, top = camera.round().astype(int)
        seen = pixels[top:, left:][: _SIZE[1] - 2 * _MARGIN, : _SIZE[0] - 2 * _MARGIN]
        seen = seen * (light + drift * now / last)
        seen += generator.normal(0, _NOISE, (*seen.shape[:2], 1)).astype(np.float32)
        yield seen.clip(0, 255).astype(np.uint8)


def _drawn(
    scene: Scene, about: list[list[Any]], done: list[str], acting: tuple[str, float] | None
) -> NDArray[np.float32]:
    """Draw a scene after the steps `done`, with a hand at one and the share of it that is over."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", _SIZE, "#e9e2d4")
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 176, *_SIZE), fill="#bc966c")
    for shape in (*about, *scene["at first"]):
        _draw(draw, shape)
    for place, name in enumerate(done):
        for shape in scene[name]:
            _draw(draw, shape, done[:place].count(name) * _REPEATED)
    if acting is not None:
        _, _, left, top, right, bottom, *_ = scene[acting[0]][0]
        away = 40 * abs(2 * acting[1] - 1)
        x, y = (left + right) / 2 + away, (top + bottom) / 2 + away
        draw.line((x + 12, y + 16, x + 70, _SIZE[1] + 40), fill="#46618c", width=34)
        draw.ellipse((x - 20, y - 14, x + 30, y + 32), fill="#d9a888")
    return np.asarray(image, np.float32)


def _draw(draw: Any, shape: list[Any], right: int = 0) -> None:
    """Draw a shape, moved to the right by pixels."""
    kind, colour, *corners = shape
    box = [number + right * (1 - place % 2) for place, number in enumerate(corners)]
    if kind == "dots":  # nine in the box
        (left, top), (width, height) = box[:2], np.subtract(box[2:], box[:2])
        for dot in range(9):
            x, y = left + dot * 37 % 97 * width / 97, top + dot * 53 % 89 * height / 89
            draw.ellipse((x, y, x + 6, y + 6), fill=colour)
    elif kind == "line":
        draw.line(box, fill=colour, width=5)
    elif kind in ("arc", "chord"):
        draw.arc(box, 20, 320, colour, 5) if kind == "arc" else draw.chord(box, 0, 180, colour)
    else:
        getattr(draw, kind)(box, fill=colour)


def _encoded(pictures: Iterator[NDArray[np.uint8]]) -> bytes:
    """Return an MP4 of pictures, uint8 [H, W, 3]."""
    remedy = f"Run: {install_command('video')}"
    with explained("drawn films", "need PyAV", remedy, ImportError, error=ConfigError):
        import av
    target = io.BytesIO()
    with av.open(target, "w", format="mp4") as container:
        how = {"crf": "24", "preset": "ultrafast"}
        stream: Any = container.add_stream("libx264", rate=_RATE, options=how)
        stream.width, stream.height = (side - 2 * _MARGIN for side in _SIZE)
        stream.pix_fmt = "yuv420p"
        for number, pixels in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, _RATE)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return target.getvalue()
