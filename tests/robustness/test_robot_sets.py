"""Random LeRobot data sets: written steps are read back, and damage is said in one line."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from cefito.data.robots import open_robot
from cefito.errors import CefitoError
from cefito.tracks import TimedStep, Track
from cefito.tracks.document import Choices
from cefito.tracks.reading import read
from cefito.tracks.subtasks import write_subtasks

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
SETS = 2_000
NAMES = ["reach", "close; grip", "こぼす", "it's 50 %", "x" * 90, "A|b", "=1+1", "-1", "NULL"]
RATES = [1, 5, 10, 15, 29.97, 30, 50, 100]


def write_set(folder: Path, draw: random.Random) -> None:
    """Write one to six episodes in one to three tables, whose lines may be in any order."""
    rate, count = draw.choice(RATES), draw.randint(1, 6)
    tasks = draw.sample(NAMES, 2)
    frames: dict[str, list] = {}
    for number in range(count):
        place = f"chunk-00{number // 4}/file-00{number // 2 % 2}.parquet"
        rows = frames.setdefault(place, [])
        rows += [
            {
                **{"episode_index": number, "frame_index": frame, "timestamp": frame / rate},
                **{"task_index": number % 2, "observation.state": [draw.random()] * 2},
            }
            for frame in range(draw.randint(1, 200))
        ]
    vector = pyarrow.list_(pyarrow.float32())
    kinds = {"timestamp": pyarrow.float32(), "observation.state": vector}
    for place, rows in frames.items():
        draw.shuffle(rows)
        path = folder / "data" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        schema = pyarrow.schema([(name, kinds.get(name, pyarrow.int64())) for name in rows[0]])
        size = draw.choice([7, 50, 1000])
        table = pyarrow.Table.from_pylist(rows, schema)
        parquet.write_table(
            table, path, row_group_size=size, compression=draw.choice(["none", "snappy", "zstd"])
        )
    episodes = [
        {"episode_index": n, "data/chunk_index": n // 4, "data/file_index": n // 2 % 2}
        for n in range(count)
    ]
    (folder / "meta/episodes/chunk-000").mkdir(parents=True)
    table = pyarrow.Table.from_pylist(episodes)
    parquet.write_table(table, folder / "meta/episodes/chunk-000/file-000.parquet")
    named = pyarrow.table({"task_index": [0, 1], draw.choice(["task", "__index_level_0__"]): tasks})
    parquet.write_table(named, folder / "meta/tasks.parquet")
    features = {"observation.state": {"dtype": "float32", "shape": [2], "names": None}}
    info = {"codebase_version": "v3.0", "fps": rate, "features": features}
    (folder / "meta/info.json").write_text(json.dumps(info))


def drawn(folder: Path, draw: random.Random) -> list[Track]:
    """Steps of some episodes, which begin and end between frames, and touch or leave gaps."""
    robot, tracks = open_robot(folder), []
    for number in robot.episodes:
        times, _ = robot.values(number, ["observation.state.0"])
        if draw.random() < 0.3:
            continue
        borders = sorted(
            draw.sample(range(len(times) + 1), min(draw.randint(2, 8), len(times) + 1))
        )
        steps, before = [], ""
        for start, end in pairwise(borders):
            name = draw.choice([name for name in NAMES if name != before])
            before = "" if draw.random() < 0.3 else name
            if before:
                span = {"start": start / robot.info.fps, "end": end / robot.info.fps}
                steps.append(TimedStep(name=name, **span))
        video = {
            "video": f"episode_{number:06d}",
            "task": "any",
            "seconds": len(times) / robot.info.fps,
        }
        tracks.append(Track(steps=tuple(steps), **video))
    return tracks


def spans(tracks, rate: float) -> Counter:
    """Name, first frame and the frame behind each step."""
    return Counter(
        (track.video, step.name, round(step.start * rate), round(step.end * rate))
        for track in tracks
        for step in track.steps
    )


def damaged(draw: random.Random, data: bytes) -> bytes:
    """A file that is cut, or has other bytes somewhere."""
    place = draw.randrange(len(data))
    change = bytes([draw.randrange(256)]) * draw.choice([1, 1, 4])
    return draw.choice([data[:place], data[:place] + change + data[place + len(change) :]])


def outcomes(seed: str, count: int, folder: Path) -> Counter:
    """Write, label, read back and damage that many sets; the counts of what came out."""
    draw, counts = random.Random(seed), Counter()
    for _ in range(count):
        robot = folder / "robot"
        shutil.rmtree(robot, ignore_errors=True)
        write_set(robot, draw)
        tracks = drawn(robot, draw)
        write_subtasks(tracks, robot)
        rate = open_robot(robot).info.fps
        wanted = spans(tracks, rate)
        if wanted:
            assert spans(read([robot], Choices()).tracks, rate) == wanted, tracks
            counts["read back"] += 1
        path = draw.choice(sorted(path for path in robot.rglob("*") if path.is_file()))
        path.write_bytes(damaged(draw, path.read_bytes()))
        said = ""
        try:
            same = spans(read([robot], Choices()).tracks, rate) == wanted
            opened = open_robot(robot)
            for number in opened.episodes:
                opened.values(number, [*opened.channels])
            write_subtasks(tracks, robot)
        except CefitoError as problem:
            said = str(problem)
        assert "\n" not in said
        counts["refused" if said else "same" if same else "other"] += 1
    return counts


def test_random_sets_are_read_back(tmp_path):
    counts = outcomes("robots-0", 30, tmp_path)
    assert counts["refused"] > counts["other"]


@pytest.mark.nightly
def test_two_thousand_sets(tmp_path):
    counts = outcomes("robots-1", SETS, tmp_path)
    assert counts["read back"] > SETS / 2
