"""LeRobot data sets that tests make, by the example's writer."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

CUBE, DRAWER = "put the cube into the box", "close the drawer"
REACH, GRIP, PUSH = "reach for the cube", "close the gripper", "push"
FRONT, WRIST = "observation.images.front", "observation.images.wrist"
PLANS = [  # task, steps and seconds of four episodes, of which three are in the first film
    (CUBE, [(REACH, 0.0, 1.0), (GRIP, 1.5, 2.5)], 3.0),
    (DRAWER, [(PUSH, 0.5, 2.0)], 2.0),
    (CUBE, [(REACH, 0.0, 2.0), (GRIP, 2.0, 4.0)], 4.0),
    (DRAWER, [(PUSH, 1.0, 3.0)], 3.5),
]


def example() -> dict[str, Any]:
    """The names of the example that writes a data set."""
    for module in ("av", "pyarrow"):
        pytest.importorskip(module)
    path = Path(__file__).parents[1] / "examples" / "robots" / "episodes.py"
    return runpy.run_path(str(path))


def write_robot(
    folder: Path,
    plans: Sequence[tuple[str, list[Any], float]] = PLANS,
    *,
    labelled: Sequence[bool] = (True, True, True, False),
    cameras: Sequence[str] | None = None,
    change: Callable[[dict[str, Any]], None] | None = None,
) -> Path:
    """Write a data set of a few episodes.

    Args:
        folder: New folder.
        plans: Task, steps (name, start and end in seconds) and seconds of each episode.
        labelled: Whether each has subtasks; if none has, there is no such column.
        cameras: Keys of the cameras; the two of the example by default.
        change: Changes `meta/info.json`.
    """
    names = example()
    episodes = [names["Episode"](*plan, has) for plan, has in zip(plans, labelled, strict=True)]
    names["write_dataset"](folder, episodes, **({} if cameras is None else {"cameras": cameras}))
    if change is not None:
        path = folder / "meta" / "info.json"
        info = json.loads(path.read_text())
        change(info)
        path.write_text(json.dumps(info))
    return folder
