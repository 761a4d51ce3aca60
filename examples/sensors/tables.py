"""Draw SIMULATED sensors of three people who make tea and coffee, and the steps that they do.

Each video has a folder with two tables: `watch.csv`, an acceleration ten times a second with gaps,
and `bench.csv`, a temperature and a current every second, some of which are missing. People wear
the watch in different ways, and are of different speed.

    python examples/sensors/tables.py KITCHEN
    cefito data prepare custom KITCHEN/steps.csv DATA --sensors KITCHEN/sensors
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

PEOPLE = ("anna", "ben", "chris")
VIDEOS = 4  # of each task and person
TASKS = {
    "make tea": ("boil water", "put leaves in pot", "pour water", "stir"),
    "make coffee": ("boil water", "grind beans", "pour water", "froth milk"),
}
# by action: mean acceleration, strength and frequency of the movement, temperature, current
LOOKS = {
    "": (0.0, 0.1, 0.5, 0.0, 0.0),
    "boil water": (0.2, 0.2, 0.7, 3.0, 8.0),
    "put leaves in pot": (1.0, 0.5, 1.5, 0.0, 0.0),
    "pour water": (-1.0, 0.2, 0.4, 1.0, 0.0),
    "stir": (0.3, 1.2, 2.0, 0.5, 0.0),
    "grind beans": (0.6, 1.0, 3.0, 0.0, 0.0),
    "froth milk": (-0.4, 0.6, 2.5, 1.5, 2.0),
}


def main(target: Path) -> None:
    """Write steps.csv and the folder sensors into `target`."""
    target.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    lines = []
    for number, person in enumerate(PEOPLE):
        offset, pace = generator.normal(0, 0.15), 1 + 0.15 * (number - 1)
        for task, actions in TASKS.items():
            for repeat in range(VIDEOS):
                video = f"{person}/{task.split()[1]}-{repeat + 1}"
                spans, seconds = _steps(generator, actions, pace)
                lines += [
                    (video, task, action, f"{start:.1f}", f"{end:.1f}", person, "train")
                    for action, start, end in spans
                ]
                _tables(target / "sensors" / video, generator, spans, seconds, offset)
    heads = ("video", "task", "step", "start", "end", "group", "split")
    _write(target / "steps.csv", [heads, *lines])


def _steps(
    generator: np.random.Generator, actions: tuple[str, ...], pace: float
) -> tuple[list[tuple[str, float, float]], float]:
    """Draw start and end of each step, with pauses between, and the end of the video."""
    spans, at = [], 0.0
    for action in actions:
        start = at + pace * generator.uniform(2, 5)
        at = start + pace * generator.uniform(7, 14)
        spans.append((action, start, at))
    return spans, at + 4


def _tables(
    folder: Path,
    generator: np.random.Generator,
    spans: list[tuple[str, float, float]],
    seconds: float,
    offset: float,
) -> None:
    """Draw the two tables of a video."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {"watch": ("time", "x", "y"), "bench": ("time", "temperature", "current")}
    for name, rate in (("watch", 10), ("bench", 1)):
        rows: list[tuple[str, ...]] = [names[name]]
        for time in np.arange(0, seconds, 1 / rate):
            action = next((a for a, start, end in spans if start <= time < end), "")
            mean, strength, pitch, heat, current = LOOKS[action]
            noise, moved = generator.normal(0, 0.3, 2), strength * np.sin(6.283 * pitch * time)
            values = (mean + offset + moved + noise[0], moved - mean + noise[1])
            if name == "bench":
                values = (20 + heat + noise[0], current + abs(noise[1]))
            lost = generator.random() < 0.05
            cells = ("" if lost and name == "bench" else f"{value:.3f}" for value in values)
            if not (lost and name == "watch"):
                rows.append((f"{time:.2f}", *cells))
        _write(folder / f"{name}.csv", rows)


def _write(path: Path, rows: list[tuple[str, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
