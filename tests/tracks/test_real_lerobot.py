"""lerobot opens what is written into its data sets, and what it writes is read."""

from __future__ import annotations

import json
import os
import shlex
import subprocess

import numpy as np
import pytest

from cefito.cli import main
from cefito.data.robots import open_robot
from cefito.tracks.document import Choices
from cefito.tracks.reading import read

pytest.importorskip("pyarrow")
pytest.importorskip("av")
pytestmark = [pytest.mark.nightly, pytest.mark.slow]

COMMAND = os.environ.get("CEFITO_LEROBOT", "")
OPEN = """
import json, sys
import numpy as np
from lerobot.datasets.dataset_tools import add_features, split_dataset
from lerobot.datasets.lerobot_dataset import LeRobotDataset

def opened(folder):
    return LeRobotDataset("local/set", root=folder, video_backend="pyav")

def facts(folder, pictures):
    data = opened(folder)
    items = [data[place] for place in range(len(data))] if pictures else data.hf_dataset
    rows = [
        {
            "episode": int(item["episode_index"]),
            "time": float(item["timestamp"]),
            "state": item["observation.state"].tolist(),
            "number": int(item["subtask_index"]) if "subtask_index" in item else None,
            "subtask": item.get("subtask"),
            "task": item.get("task"),
            **({"grey": float(item["observation.images.front"].mean())} if pictures else {}),
        }
        for item in items
    ]
    names = None if data.meta.subtasks is None else [*data.meta.subtasks.index]
    return {"rows": rows, "names": names, "features": [*data.features]}
"""
WRITE = """
film = {"dtype": "video", "shape": (64, 96, 3), "names": ["height", "width", "channels"]}
features = {
    "observation.state": {"dtype": "float32", "shape": (2,), "names": ["x", "y"]},
    "action": {"dtype": "float32", "shape": (2,), "names": ["x", "y"]},
    "observation.images.front": film,
    "observation.images.wrist": film,
}
data = LeRobotDataset.create("local/set", 10, features, root=sys.argv[1], use_videos=True)
for episode in range(5):
    for frame in range(40 + 10 * episode):
        level = 30 + 20 * (frame // 10) + 5 * episode
        pictures = {key: np.full((64, 96, 3), level + place, np.uint8)
                    for place, key in enumerate(features) if "images" in key}
        state = np.array([episode, frame], np.float32)
        data.add_frame({"observation.state": state, "action": state, **pictures,
                        "task": "pick" if episode % 2 else "place"})
    data.save_episode()
data.finalize()
print("FACTS" + json.dumps(facts(sys.argv[1], True)))
"""
READ = """
print("FACTS" + json.dumps(facts(sys.argv[1], True)))
"""
ADD = """
data = opened(sys.argv[1])
numbers = np.array(json.loads(sys.argv[3]))
feature = {"dtype": "int64", "shape": (1,), "names": None}
add_features(data, {"subtask_index": (numbers, feature)}, sys.argv[2], "local/added")
print("FACTS" + json.dumps(facts(sys.argv[2], False)))
"""
SPLIT = """
import lerobot.datasets.dataset_tools as tools
parts = split_dataset(opened(sys.argv[1]), {"half": [1, 2]}, sys.argv[2])
data = parts["half"]
print("FACTS" + json.dumps({
    "names": None if data.meta.subtasks is None else [*data.meta.subtasks.index],
    "numbers": [int(item["subtask_index"]) for item in data.hf_dataset],
}))
"""


def said(code, *arguments):
    """What a program says that runs where lerobot is."""
    if not COMMAND:
        pytest.skip("CEFITO_LEROBOT names no interpreter that has lerobot")
    command = [*shlex.split(COMMAND), "-c", OPEN + code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.rpartition("FACTS")[2])


STEPS = [  # episode, name, start, end
    (0, "reach", 0.0, 1.5),
    (0, "grasp", 1.5, 4.0),
    (1, "reach", 0.5, 2.0),
    (2, "grasp", 1.0, 3.0),
    (2, "reach", 3.0, 6.0),
]


def expected(episode, time):
    return next(
        (name for number, name, *span in STEPS if number == episode and span[0] <= time < span[1]),
        "background",
    )


def test_lerobot_opens_what_was_written_and_what_it_writes_is_read(tmp_path):
    robot, out = tmp_path / "robot", tmp_path / "out"
    before = said(WRITE, robot)
    assert before["names"] is None
    table = tmp_path / "steps.csv"
    lines = [f"episode_00000{number},{name},{start},{end}\n" for number, name, start, end in STEPS]
    table.write_text("video,step,start,end\n" + "".join(lines))
    assert main(["data", "subtasks", str(table), str(robot), "--out", str(out)]) == 0

    after = said(READ, out)
    assert after["names"] == ["reach", "grasp", "background"]
    assert after["features"] == [*before["features"], "subtask_index"]
    for row, old in zip(after["rows"], before["rows"], strict=True):
        assert row["subtask"] == expected(row["episode"], round(row["time"], 3))
        assert row["number"] == after["names"].index(row["subtask"])
        assert {**old, "number": None, "subtask": None} == {**row, "number": None, "subtask": None}

    tracks = read([out], Choices()).tracks
    steps = [
        (int(track.video[-6:]), step.name, step.start, step.end)
        for track in tracks
        for step in track.steps
    ]
    assert steps == STEPS
    assert [track.task for track in tracks] == ["place", "pick", "place"]

    data = tmp_path / "DATA"
    prepare = ["data", "prepare", "custom", str(out), str(data)]
    assert main([*prepare, "--camera", "front"]) == 0
    features = np.load(tmp_path / "DATA-features" / "episode_000002.npy")
    assert features.shape == (6, 1280)

    opened = open_robot(out)
    times, values = opened.values(3, ["observation.state.x", "observation.state.y"])
    rows = [row for row in after["rows"] if row["episode"] == 3]
    np.testing.assert_array_equal(values, [row["state"] for row in rows])
    np.testing.assert_allclose(times, [row["time"] for row in rows], atol=1e-6)

    from cefito.encoders.frames import Sampling, clips, part_of, probe

    sampling = Sampling(frames=1, rate=1, size=None)
    for number in opened.episodes:
        film = opened.film(number, "front")
        assert film.part is not None
        part = part_of(probe(film.path), *film.part)
        own = {
            round(row["time"], 3): row["grey"] for row in after["rows"] if row["episode"] == number
        }
        assert part.seconds == len(own) // 10
        for second, clip in enumerate(clips(part, range(part.seconds), sampling)):
            assert abs(clip.float().mean() / 255 - own[second + 0.5]) < 0.01

    numbers = json.dumps([row["number"] for row in after["rows"]])
    added = said(ADD, robot, tmp_path / "added", numbers)
    assert [row["number"] for row in added["rows"]] == json.loads(numbers)
    assert added["features"] == after["features"]
    parts = said(SPLIT, out, tmp_path / "parts")
    assert parts["numbers"] == [row["number"] for row in after["rows"] if row["episode"] in (1, 2)]
