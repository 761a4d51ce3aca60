"""LeRobot data sets: what is in them, and what is refused by its name."""

from __future__ import annotations

import json
import os
import re

import numpy as np
import pytest

from cefito.data.robots import Film, all_episodes, find_episode, open_robot
from cefito.data.sensors import read_tables
from cefito.errors import DataError
from robot_sets import FRONT, WRIST, write_robot

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def robot(tmp_path):
    return write_robot(tmp_path / "robot")


def test_episodes_are_parts_of_films(robot):
    opened = open_robot(robot)
    assert opened.cameras == [FRONT, WRIST]
    films = [opened.film(number, "wrist") for number in opened.episodes]
    first, second = (
        robot / "videos" / WRIST / "chunk-000" / f"file-00{file}.mp4" for file in (0, 1)
    )
    parts = [(0.0, 3.0), (3.0, 5.0), (5.0, 9.0), (0.0, 3.5)]
    assert films == [Film(first if part != parts[3] else second, part) for part in parts]
    assert all(film.path.is_file() for film in films)


def test_paths_stand_for_episodes(robot):
    episode = find_episode(robot / "episode_000002")
    assert episode is not None
    assert (episode[0].folder, episode[1]) == (robot, 2)
    assert find_episode(robot / "meta") is None
    assert find_episode(robot.parent / "episode_000002") is None
    paths = [str(robot / f"episode_00000{number}") for number in range(4)]
    assert [*all_episodes(["a.npy", str(robot)], None)] == ["a.npy", *paths]
    assert [*all_episodes(["3", "episode_000001", paths[0]], robot)] == [
        paths[place] for place in (3, 1, 0)
    ]
    with pytest.raises(DataError, match="no episode 4, only 4"):
        find_episode(robot / "episode_000004")
    with pytest.raises(DataError, match="'front' is no episode"):
        [*all_episodes(["front"], robot)]


def test_a_set_that_changed_is_read_again(robot):
    assert open_robot(robot) is open_robot(robot)
    before, path = open_robot(robot), robot / "meta" / "info.json"
    path.write_text(path.read_text().replace('"fps": 10', '"fps": 5'))
    os.utime(path, ns=(1, 1))
    assert (before.info.fps, open_robot(robot).info.fps) == (10, 5)


def test_a_camera_is_named_if_there_are_several(robot, tmp_path):
    opened = open_robot(robot)
    assert opened.camera("front") == opened.camera(FRONT) == FRONT
    with pytest.raises(DataError, match=f"{FRONT}, {WRIST}. Name one") as caught:
        opened.camera(None)
    assert caught.value.setting == "camera"
    with pytest.raises(DataError, match="camera 'side'"):
        opened.camera("side")
    single = open_robot(write_robot(tmp_path / "single", cameras=[WRIST]))
    assert single.camera(None) == WRIST

    def with_pictures(info):
        info["features"][WRIST]["dtype"] = "image"

    pictures = write_robot(tmp_path / "pictures", cameras=[WRIST], change=with_pictures)
    with pytest.raises(DataError, match=r"pictures in its tables.*convert_image_to_video"):
        open_robot(pictures).camera(None)


def test_values_are_those_of_the_frames(robot):
    opened, names = open_robot(robot), ["action.down", "observation.state.right"]
    assert [*opened.channels][:4] == [
        *(f"observation.state.{name}" for name in ("right", "down", "open")),
        "action.right",
    ]
    times, values = opened.values(2, names)
    np.testing.assert_array_equal(times, np.arange(40) / 10)
    rows = parquet.read_table(robot / "data/chunk-000/file-000.parquet").to_pylist()
    own = [row for row in rows if row["episode_index"] == 2]
    expected = [[row["action"][1], row["observation.state"][0]] for row in own]
    np.testing.assert_array_equal(values, expected)
    (table,) = read_tables(robot / "episode_000002", names)
    assert table.channels == (names[1], names[0])
    np.testing.assert_array_equal(table.values, values[:, ::-1])
    with pytest.raises(DataError, match="has no channel"):
        read_tables(robot / "episode_000002", ["wrist"])


def test_numbers_without_names_are_counted(tmp_path):
    def unnamed(info):
        info["features"]["action"]["names"] = {"motors": ["a", "a", "b"]}
        info["features"]["observation.state"]["names"] = {"motors": ["A", "B", "C"]}

    channels = open_robot(write_robot(tmp_path / "robot", change=unnamed)).channels
    assert [*channels] == [
        *(f"observation.state.{name}" for name in "abc"),
        *(f"action.{place}" for place in range(3)),
    ]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"codebase_version": "v2.1"}, "is of version v2.1; v3.0 is read.*convert_dataset_v21"),
        ({"codebase_version": None}, "is of version None"),
        ({"fps": 0}, "damaged.*fps"),
        ({"fps": "10"}, "damaged.*fps"),
        ({"features": {"../x": {"dtype": "video"}}}, "damaged.*features"),
        ({"splits": {"test": "all"}}, "its split 'test' is 'all'"),
        ({"splits": {"train": "0:3", "test": "2:4"}}, "'train' and 'test' share episodes"),
    ],
)
def test_other_information_is_refused(tmp_path, entry, message):
    robot = write_robot(tmp_path / "robot", change=lambda info: info.update(entry))
    with pytest.raises(DataError, match=rf"info\.json.*{message}"):
        open_robot(robot).splits()


def test_splits_of_episodes(tmp_path):
    splits = {"train": "0:3", "test": "3:4", "other": "9:3000000"}
    robot = write_robot(tmp_path / "robot", change=lambda info: info.update(splits=splits))
    assert open_robot(robot).splits() == [("train", range(3)), ("test", range(3, 4))]
    assert open_robot(write_robot(tmp_path / "other")).splits() == []  # train alone


EPISODES = "meta/episodes/chunk-000/file-000.parquet"
FRAMES = "data/chunk-000/file-000.parquet"


@pytest.mark.parametrize("file", [EPISODES, FRAMES, "meta/tasks.parquet", "meta/info.json"])
@pytest.mark.parametrize("content", [None, b"", b"PAR1 is all", b"version https://git-lfs"])
def test_files_that_are_missing_or_damaged(robot, file, content):
    (robot / file).unlink()
    if content is not None:
        (robot / file).write_bytes(content)

    def read():
        opened = open_robot(robot)
        opened.film(0, FRONT)
        opened.names("task_index")
        opened.frames(robot / FRAMES, ["task_index"])

    with pytest.raises(DataError) as caught:
        read()
    assert str(robot) in str(caught.value)
    assert "\n" not in str(caught.value)


def nulled(table, name):
    place = table.column_names.index(name)
    return table.set_column(place, name, pyarrow.nulls(len(table), pyarrow.int64()))


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (EPISODES, lambda table: table.drop_columns(["length", "data/file_index"]), "no column"),
        (EPISODES, lambda table: nulled(table, "episode_index"), "damaged"),
        (EPISODES, lambda table: pyarrow.concat_tables([table, table]), "episode 0 is there twice"),
        (
            EPISODES,
            lambda table: nulled(table, f"videos/{FRONT}/chunk_index"),
            f"no film of episode 0 by {FRONT}",
        ),
        (FRAMES, lambda table: table.drop_columns(["timestamp"]), "has no column 'timestamp'"),
        (
            "meta/tasks.parquet",
            lambda table: table.select(["task_index"]),
            "'task_index' and no other column",
        ),
        (
            "meta/tasks.parquet",
            lambda table: table.select(["task"]),
            "no column 'task_index', only task",
        ),
    ],
)
def test_columns_that_are_missing_are_named(robot, file, change, message):
    parquet.write_table(change(parquet.read_table(robot / file)), robot / file)
    opened = open_robot(robot)
    with pytest.raises(DataError, match=f"{re.escape(str(robot))}.*{message}"):
        opened.film(0, FRONT), opened.frames(robot / FRAMES), opened.names("task_index")


def test_parts_outside_of_their_film(robot):
    table = parquet.read_table(robot / EPISODES)
    rows = table.to_pylist()
    rows[1][f"videos/{FRONT}/to_timestamp"] = 3.0
    parquet.write_table(pyarrow.Table.from_pylist(rows), robot / EPISODES)
    with pytest.raises(DataError, match="from second 3 to 3"):
        open_robot(robot).film(0, FRONT)
    assert json.loads((robot / "meta/info.json").read_text())["total_episodes"] == 4
