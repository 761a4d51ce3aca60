"""Draw SIMULATED episodes of a robot as a LeRobot data set of version 3.

An arm puts a cube into a box, or closes a drawer, before two cameras. The first episodes have
subtasks, the last ones have none.

    python examples/robots/episodes.py ROBOT
    cefito data prepare custom ROBOT DATA --camera front
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
import pyarrow
from pyarrow import parquet

FPS = 10
EPISODES, LABELLED = 20, 14
CAMERAS = ("observation.images.front", "observation.images.wrist")
SIDES = 112, 84  # pixels
PER_FILE, PER_CHUNK = 3, 2  # episodes a file, files a chunk
PLANS = {
    "put the cube into the box": ("reach for the cube", "close the gripper", "carry", "let go"),
    "close the drawer": ("reach for the drawer", "push", "draw back"),
}
# by subtask: where the arm is at its end (right, down, open), and the colour of a lamp
LOOKS = {
    "reach for the cube": (0.2, 0.8, 1.0, (200, 40, 40)),
    "close the gripper": (0.2, 0.8, 0.0, (40, 180, 40)),
    "carry": (0.8, 0.3, 0.0, (40, 60, 200)),
    "let go": (0.8, 0.6, 1.0, (210, 190, 40)),
    "reach for the drawer": (0.5, 0.5, 1.0, (150, 40, 180)),
    "push": (0.9, 0.9, 1.0, (30, 180, 180)),
    "draw back": (0.1, 0.1, 0.5, (240, 120, 30)),
}
REST = (0.1, 0.1, 0.5, (128, 128, 128))
LABELS = ("right", "down", "open")


class Episode(NamedTuple):
    """What a robot does in an episode."""

    task: str
    steps: Sequence[tuple[str, float, float]]  # subtask, start and end in seconds
    seconds: float
    labelled: bool = True


def drawn(count: int = EPISODES, labelled: int = LABELLED, seed: int = 0) -> list[Episode]:
    """Draw the times of the steps of some episodes, of which the first are labelled."""
    generator, episodes = np.random.default_rng(seed), list[Episode]()
    for number in range(count):
        task = [*PLANS][number % len(PLANS)]
        now, steps = 1.0, list[tuple[str, float, float]]()
        for name in PLANS[task]:
            end = now + int(generator.integers(20, 40)) / FPS
            steps.append((name, round(now, 1), round(end, 1)))
            now = end
        episodes.append(Episode(task, steps, round(now + 1, 1), number < labelled))
    return episodes


def write_dataset(
    folder: Path, episodes: Sequence[Episode], *, cameras: Sequence[str] = CAMERAS, seed: int = 0
) -> None:
    """Write a data set; one without labelled episodes has no subtasks at all."""
    tasks = [*dict.fromkeys(episode.task for episode in episodes)]
    named = dict.fromkeys(step[0] for one in episodes if one.labelled for step in one.steps)
    subtasks = [*named, "background"] if named else []
    rows, index = list[dict[str, Any]](), 0
    for first in range(0, len(episodes), PER_FILE):
        together = range(first, min(first + PER_FILE, len(episodes)))
        chunk, file = divmod(first // PER_FILE, PER_CHUNK)
        at, frames, films = f"chunk-{chunk:03d}/file-{file:03d}", list[Any](), list[Any]()
        begin = 0.0
        for number in together:
            episode = episodes[number]
            states = _states(episode, np.random.default_rng([seed, number]))
            labels = _labels(episode)
            places = {f"videos/{key}/{name}": value for key in cameras for name, value in (
                ("chunk_index", chunk), ("file_index", file), ("from_timestamp", begin),
                ("to_timestamp", begin + len(states) / FPS))}  # fmt: skip
            rows.append({
                **{"episode_index": number, "tasks": [episode.task], "length": len(states)},
                **{"data/chunk_index": chunk, "data/file_index": file},
                **{"dataset_from_index": index, "dataset_to_index": index + len(states)},
                **places, "meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0,
            })  # fmt: skip
            for frame, (state, label) in enumerate(zip(states, labels, strict=True)):
                frames.append({
                    "observation.state": state[:3].tolist(), "action": state[3:6].tolist(),
                    **{"timestamp": frame / FPS, "frame_index": frame, "episode_index": number},
                    **{"index": index + frame, "task_index": tasks.index(episode.task)},
                    "subtask_index": subtasks.index(label if episode.labelled else "background")
                    if subtasks else -1,
                })  # fmt: skip
            films += [*zip(states, labels, strict=True)]
            index, begin = index + len(states), begin + len(states) / FPS
        _write_frames(folder / "data" / f"{at}.parquet", frames, subtasks=bool(subtasks))
        for place, key in enumerate(cameras):
            path = folder / "videos" / key / f"{at}.mp4"
            _write_film(path, (_picture(*pair, view=place) for pair in films))
    (folder / "meta" / "episodes" / "chunk-000").mkdir(parents=True)
    table = pyarrow.Table.from_pylist(rows)
    parquet.write_table(table, folder / "meta/episodes/chunk-000/file-000.parquet")
    _write_names(folder / "meta" / "tasks.parquet", "task", tasks)
    if subtasks:
        _write_names(folder / "meta" / "subtasks.parquet", "subtask", subtasks)
    info = _info(cameras, subtasks=bool(subtasks))
    info |= {"total_episodes": len(rows), "total_frames": index, "total_tasks": len(tasks)}
    info |= {"splits": {"train": f"0:{len(rows)}"}}
    (folder / "meta" / "info.json").write_text(json.dumps(info, indent=4), "utf-8")


def _info(cameras: Iterable[str], *, subtasks: bool) -> dict[str, Any]:
    """Describe the columns and the films."""
    numbers = {"dtype": "int64", "shape": [1], "names": None}
    vector = {"dtype": "float32", "shape": [3], "names": [*LABELS]}
    film = {"dtype": "video", "shape": [SIDES[1], SIDES[0], 3]}
    film |= {"names": ["height", "width", "channels"], "info": {"video.fps": FPS}}
    features: dict[str, Any] = {"observation.state": vector, "action": vector}
    features |= dict.fromkeys(cameras, film) | {"timestamp": {**numbers, "dtype": "float32"}}
    indices = ["frame_index", "episode_index", "index", "task_index"]
    features |= dict.fromkeys([*indices, *["subtask_index"] * subtasks], numbers)
    at = "chunk-{chunk_index:03d}/file-{file_index:03d}"
    return {
        **{"codebase_version": "v3.0", "robot_type": "drawn", "fps": FPS, "features": features},
        **{"chunks_size": PER_CHUNK, "data_files_size_in_mb": 100, "video_files_size_in_mb": 200},
        **{"data_path": f"data/{at}.parquet", "video_path": f"videos/{{video_key}}/{at}.mp4"},
    }


def _labels(episode: Episode) -> list[str]:
    """Return the subtask of each frame."""
    middles = (np.arange(round(episode.seconds * FPS)) + 0.5) / FPS
    return [
        next((name for name, start, end in episode.steps if start <= time < end), "background")
        for time in middles
    ]


def _states(episode: Episode, generator: np.random.Generator) -> np.ndarray[Any, Any]:
    """Draw where the arm is in each frame, and where it is sent [n, 6]."""
    goals = np.array([LOOKS.get(name, REST)[:3] for name in _labels(episode)])
    places, place = list[Any](), np.array(REST[:3])
    for goal in goals:
        place = place + 0.12 * (goal - place)
        places.append(place)
    noise = generator.normal(0, 0.01, (len(goals), 6))
    return np.concatenate([places, goals], axis=1) + noise


def _picture(state: np.ndarray[Any, Any], name: str, view: int) -> np.ndarray[Any, Any]:
    """Draw what a camera sees: a hand on a table, and a lamp."""
    width, height = SIDES
    pixels = np.full((height, width, 3), (225, 215, 200) if view == 0 else (60, 70, 80), np.uint8)
    pixels[:24, :] = LOOKS.get(name, REST)[3]
    left, top = int(state[0] * (width - 30)), int(24 + state[1] * (height - 54))
    pixels[top : top + 30, left : left + 30] = (30, 30, 30) if state[2] < 0.5 else (250, 250, 250)
    return pixels


def _write_frames(
    path: Path, frames: Sequence[Mapping[str, Any]], *, subtasks: bool, kind: str = "snappy"
) -> None:
    """Write a table of frames."""
    path.parent.mkdir(parents=True, exist_ok=True)
    vector = pyarrow.list_(pyarrow.float32())
    kinds = {"observation.state": vector, "action": vector, "timestamp": pyarrow.float32()}
    names = [name for name in frames[0] if subtasks or name != "subtask_index"]
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.int64())) for name in names])
    rows = [{name: frame[name] for name in names} for frame in frames]
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema), path, compression=kind)


def _write_names(path: Path, kind: str, names: Sequence[str]) -> None:
    """Write names by number; the names are the index of a table of pandas."""
    numbers = {f"{kind}_index": pyarrow.array(range(len(names)), pyarrow.int64())}
    table = pyarrow.table({**numbers, kind: [*names]})
    columns = [
        {"name": name, "field_name": name, "pandas_type": held, "numpy_type": own, "metadata": None}
        for name, held, own in ((f"{kind}_index", "int64", "int64"), (kind, "unicode", "object"))
    ]
    pandas = {"index_columns": [kind], "column_indexes": [], "columns": columns}
    parquet.write_table(table.replace_schema_metadata({"pandas": json.dumps(pandas)}), path)


def _write_film(path: Path, pictures: Iterable[np.ndarray[Any, Any]]) -> None:
    """Write a film of pictures, uint8 [H, W, 3]."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        how = {"crf": "22", "preset": "ultrafast", "g": "2"}
        stream: Any = container.add_stream("libx264", rate=FPS, options=how)
        (stream.width, stream.height), stream.pix_fmt = SIDES, "yuv420p"
        for number, pixels in enumerate(pictures):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, FPS)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def main(folder: Path) -> None:
    """Write the data set."""
    write_dataset(folder, drawn())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
