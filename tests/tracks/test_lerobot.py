"""Subtasks of LeRobot data sets: read as steps, and steps written as subtasks."""

from __future__ import annotations

import hashlib
import json

import pytest

from cefito.cli import main
from cefito.data.prepared import open_dataset
from cefito.data.readers.step_source import read_steps
from cefito.data.robots import open_robot
from cefito.errors import ConfigError, DataError
from cefito.parts.folder import DatasetReference
from cefito.tracks import TimedStep, Track
from cefito.tracks.document import Choices
from cefito.tracks.reading import read
from cefito.tracks.subtasks import write_subtasks
from robot_sets import CUBE, DRAWER, GRIP, PLANS, PUSH, REACH, write_robot

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
FIRST = "data/chunk-000/file-000.parquet"


def spans(robot, **choices):
    """Task and steps of each episode."""
    tracks = read([robot], Choices(**choices)).tracks
    return {
        track.video: (track.task, [(step.name, step.start, step.end) for step in track.steps])
        for track in tracks
    }


def track(number, *steps, task=CUBE):
    timed = tuple(TimedStep(name=name, start=start, end=end) for name, start, end in steps)
    return Track(video=f"episode_{number:06d}", task=task, seconds=9.0, steps=timed)


def files(folder):
    """Digest of each file."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def labels(robot, number):
    """The subtask of each frame of an episode, as the package looks it up: by place."""
    names = parquet.read_table(robot / "meta/subtasks.parquet").column("subtask").to_pylist()
    return [
        names[row["subtask_index"]]
        for path in sorted(robot.glob("data/*/*.parquet"))
        for row in parquet.read_table(path).to_pylist()
        if row["episode_index"] == number
    ]


@pytest.fixture
def robot(tmp_path):
    return write_robot(tmp_path / "robot")


def test_runs_of_frames_are_steps(robot):
    expected = {
        f"episode_{number:06d}": (task, steps) for number, (task, steps, _) in enumerate(PLANS[:3])
    }
    assert spans(robot) == spans(robot / "meta" / "info.json") == expected
    found = read([robot], Choices())
    assert (found.name, found.form) == ("robot", "LeRobot")
    assert "LeRobot: left out 4 runs of 'background'." in found.notes
    assert spans(robot, background="push, bg")["episode_000000"][1][1:] == [
        ("background", 1.0, 1.5),
        (GRIP, 1.5, 2.5),
        ("background", 2.5, 3.0),
    ]


def test_the_splits_are_those_of_the_set(tmp_path):
    splits = {"train": "0:2", "test": "2:4"}
    robot = write_robot(tmp_path / "robot", change=lambda info: info.update(splits=splits))
    videos = read_steps(robot).annotations.videos
    assert [video.split for video in videos] == ["train", "train", "test"]


def test_episodes_of_two_sets_have_names_of_their_own(robot, tmp_path):
    other = write_robot(tmp_path / "other")
    names = [one.video for one in read([robot, other], Choices()).tracks]
    assert names == [f"{name}/episode_00000{n}" for name in ("robot", "other") for n in range(3)]


def test_frames_in_another_order_and_without_a_number(robot):
    path = robot / FIRST
    table = parquet.read_table(path)
    numbers = [
        None if row["subtask_index"] == 3 else -1 if row["episode_index"] == 1 else 1
        for row in table.to_pylist()
    ]
    place = table.column_names.index("subtask_index")
    table = table.set_column(place, "subtask_index", pyarrow.array(numbers, pyarrow.int64()))
    tasks = [row["task_index"] ^ (row["timestamp"] > 1) for row in table.to_pylist()]  # several
    place = table.column_names.index("task_index")
    table = table.set_column(place, "task_index", pyarrow.array(tasks, pyarrow.int64()))
    parquet.write_table(table.sort_by([("timestamp", "descending")]), path)
    assert spans(robot) == {
        "episode_000000": (CUBE, [(GRIP, 0.0, 1.0), (GRIP, 1.5, 2.5)]),
        "episode_000002": (CUBE, [(GRIP, 0.0, 4.0)]),
    }
    assert "episodes without subtasks" in " ".join(read([robot], Choices()).notes)


def test_a_set_without_subtasks_has_no_steps(tmp_path):
    bare = write_robot(tmp_path / "bare", labelled=[False] * 4)
    with pytest.raises(DataError, match=r"no subtask.*4 episodes without"):
        read([bare], Choices())


@pytest.mark.parametrize("file", ["meta/subtasks.parquet", "meta/tasks.parquet"])
def test_names_that_are_missing_are_refused(robot, file):
    parquet.write_table(parquet.read_table(robot / file).slice(1), robot / file)
    with pytest.raises(DataError, match=r"(sub)?task_index 0, which has no"):
        read([robot], Choices())


def entry(time, content, style="subtask"):
    """A persistent annotation, as all frames of its episode repeat it."""
    more = {"role": "assistant", "camera": None, "tool_calls": None}
    return {"content": content, "style": style, "timestamp": time, **more}


def with_language(robot, entries):
    for path in robot.glob("data/*/*.parquet"):
        table = parquet.read_table(path)
        column = pyarrow.array([entries] * len(table))
        parquet.write_table(table.append_column("language_persistent", column), path)


def test_persistent_annotations_hold_until_the_next(tmp_path):
    robot = write_robot(tmp_path / "robot", labelled=[False] * 4)
    entries = [entry(0.5, "grasp"), entry(0.0, "reach"), entry(0.0, "Pick it.", "plan")]
    with_language(robot, [*entries, entry(1.0, None), entry(1.5, "lift"), entry(9.0, "late")])
    steps = [("reach", 0.0, 0.5), ("grasp", 0.5, 1.0), ("lift", 1.5, 2.0)]
    assert spans(robot)["episode_000001"] == (DRAWER, steps)
    assert len(spans(robot)) == 4


def test_one_of_two_kinds_of_subtasks_is_chosen(robot):
    with_language(robot, [entry(0.0, "reach")])
    with pytest.raises(DataError, match="has 2 columns") as caught:
        read([robot], Choices())
    assert caught.value.setting == "tier"
    assert spans(robot, tier="language_persistent")["episode_000001"][1] == [("reach", 0.0, 2.0)]
    with_language(write_robot(robot.parent / "both"), [entry(0.0, "a"), entry(0.0, "b")])
    with pytest.raises(DataError, match="episode 0: has two subtasks"):
        read([robot.parent / "both"], Choices())


def test_steps_are_written_into_a_copy(robot, tmp_path):
    before, out = files(robot), tmp_path / "out"
    steps = [(PUSH, 0.5, 1.0), ("turn", 1.0, 3.5)]
    written = write_subtasks([track(3, *steps, task=DRAWER)], robot, out)
    assert files(robot) == before
    assert spans(out) == {**spans(robot), "episode_000003": (DRAWER, steps)}
    names = (REACH, GRIP, PUSH, "background", "turn")
    assert (written.episodes, written.frames, written.names) == (1, 30, names)
    assert labels(out, 3) == ["background"] * 5 + [PUSH] * 5 + ["turn"] * 25
    changed = {name for name, digest in files(out).items() if before.get(name) != digest}
    assert changed == {"meta/subtasks.parquet", "data/chunk-000/file-001.parquet"}
    whole = {name: parquet.read_table(at / name) for at in (robot,) for name in [FIRST]}
    assert parquet.read_table(out / FIRST).equals(whole[FIRST])
    with pytest.raises(DataError, match="exists already"):
        write_subtasks([track(3, *steps)], robot, out)
    with pytest.raises(ConfigError, match="is within"):
        write_subtasks([track(3, *steps)], robot, robot / "copy")


def test_steps_are_written_in_place_only_if_that_is_asked(tmp_path):
    bare = write_robot(tmp_path / "bare", labelled=[False] * 4)
    films = {name: digest for name, digest in files(bare).items() if name.startswith("videos")}
    old = parquet.read_table(bare / FIRST)
    write_subtasks([track(0, (REACH, 0.0, 1.0)), track(2, (GRIP, 1.0, 4.0))], bare)
    assert spans(bare) == {
        "episode_000000": (CUBE, [(REACH, 0.0, 1.0)]),
        "episode_000002": (CUBE, [(GRIP, 1.0, 4.0)]),
    }
    new = parquet.read_table(bare / FIRST)
    assert new.column_names == [*old.column_names, "subtask_index"]
    assert new.drop_columns(["subtask_index"]).equals(old)
    info = json.loads((bare / "meta/info.json").read_text())
    feature = {"dtype": "int64", "shape": [1], "names": None}
    assert info["features"]["subtask_index"] == feature
    assert labels(bare, 3) == ["background"] * 35
    names, frames = (bare / path for path in ("meta/subtasks.parquet", FIRST))
    assert names.stat().st_mtime_ns <= frames.stat().st_mtime_ns  # names first
    assert films.items() <= files(bare).items()
    write_subtasks([track(0, (GRIP, 0.0, 1.0))], bare)
    assert spans(bare)["episode_000000"] == (CUBE, [(GRIP, 0.0, 1.0)])
    assert [*open_robot(bare).names("subtask_index").values()] == [REACH, GRIP, "background"]


def test_what_was_ended_in_place_is_gone_on_with(tmp_path):
    """Names and one of two tables were written: other steps then keep the numbers of the names."""
    bare, second = (
        write_robot(tmp_path / "bare", labelled=[False] * 4),
        "chunk-000/file-001.parquet",
    )
    kept = {path: path.read_bytes() for path in (bare / "meta/info.json", bare / "data" / second)}
    write_subtasks([track(0, (REACH, 0.0, 1.0)), track(2, (GRIP, 0.0, 4.0))], bare)
    for path, data in kept.items():
        path.write_bytes(data)
    assert spans(bare)["episode_000002"][1] == [(GRIP, 0.0, 4.0)]
    write_subtasks([track(0, (PUSH, 0.0, 1.0))], bare)
    assert spans(bare) == {
        "episode_000000": (CUBE, [(PUSH, 0.0, 1.0)]),
        "episode_000002": (CUBE, [(GRIP, 0.0, 4.0)]),
    }
    assert labels(bare, 3) == ["background"] * 35


def test_pandas_reads_the_names_as_the_documentation_has_them(robot):
    pandas = pytest.importorskip("pandas")
    write_subtasks([track(3, (PUSH, 0.0, 3.5))], robot)
    table = pandas.read_parquet(robot / "meta/subtasks.parquet")
    assert [*table.index] == [REACH, GRIP, PUSH, "background"]
    assert table.index.name == "subtask"
    assert table["subtask_index"].tolist() == [0, 1, 2, 3]


def test_what_a_table_says_about_its_columns_is_kept(robot):
    path = robot / FIRST
    table = parquet.read_table(path)
    listed = {"info": {"features": {"index": {"dtype": "int64", "_type": "Value"}}}}
    table = table.drop_columns(["subtask_index"]).replace_schema_metadata(
        {"huggingface": json.dumps(listed), "own": "1"}
    )
    parquet.write_table(table, path, row_group_size=20, compression="none")
    write_subtasks([track(1, (PUSH, 0.0, 2.0))], robot)
    with parquet.ParquetFile(path) as file:
        metadata, groups = file.schema_arrow.metadata, file.metadata.num_row_groups
        assert file.metadata.row_group(0).column(0).compression == "UNCOMPRESSED"
    assert (groups, metadata[b"own"]) == (5, b"1")
    features = json.loads(metadata[b"huggingface"])["info"]["features"]
    assert features == dict.fromkeys(features, listed["info"]["features"]["index"])
    assert [*features] == ["index", "subtask_index"]
    assert labels(robot, 1) == [PUSH] * 20
    assert labels(robot, 0) == ["background"] * 30  # of which no steps were left


def test_short_and_equal_steps(robot):
    written = write_subtasks(
        [track(1, (PUSH, 0.0, 0.5), (PUSH, 0.5, 1), ("blink", 1.06, 1.14), (PUSH, 1.2, 2))], robot
    )
    assert written.unseen == ("episode 1: blink",)
    assert spans(robot)["episode_000001"][1] == [(PUSH, 0.0, 1.0), (PUSH, 1.2, 2.0)]


@pytest.mark.parametrize(
    ("tracks", "message"),
    [
        ([track(9, (PUSH, 0.0, 1.0))], "has no episode for 'episode_000009'"),
        ([track(1, (PUSH, 0.0, 1.0))] * 2, "episode 1: its steps are given twice"),
        ([track(1, (PUSH, 0.0, 1.0), (GRIP, 0.9, 2.0))], "'close the gripper' and another step"),
    ],
)
def test_steps_that_cannot_be_written_change_nothing(robot, tracks, message):
    before = files(robot)
    with pytest.raises((DataError, ConfigError), match=message):
        write_subtasks(tracks, robot)
    assert files(robot) == before


def test_names_that_are_not_numbered_by_place_are_refused(robot):
    path = robot / "meta/subtasks.parquet"
    parquet.write_table(parquet.read_table(path).slice(1), path)
    with pytest.raises(DataError, match="does not number its subtasks"):
        write_subtasks([track(1, (PUSH, 0.0, 1.0))], robot)


def test_the_command(robot, tmp_path, capsys):
    table = tmp_path / "steps.csv"
    lines = f"episode_000003,{PUSH},1.0,3.0\nepisode_000003,blink,0.06,0.14\n"
    table.write_text(f"video,step,start,end\n{lines}")
    call = ["data", "subtasks", str(table), str(robot)]
    assert main(call) == 2
    assert "--in-place" in capsys.readouterr().err
    assert main([*call, "--out", str(tmp_path / "out"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["episodes"], said["frames"], said["others"]) == (1, 20, 30)
    assert spans(tmp_path / "out")["episode_000003"] == (DRAWER, [(PUSH, 1.0, 3.0)])
    assert "episode_000003" not in spans(robot)
    assert main([*call, "--in-place"]) == 0
    said = capsys.readouterr().err
    assert "20 frames of 1 episode have a step" in said
    assert "shorter than a frame, so left out: episode 3: blink" in said
    assert spans(robot) == spans(tmp_path / "out")
    assert main(["data", "steps", str(robot), "--out", str(tmp_path / "all.csv")]) == 0
    assert spans(tmp_path / "all.csv") == spans(robot)


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        ([], {}, "has the cameras observation.images.front, observation.images.wrist. Name one"),
        (["--camera", "side"], {}, "camera 'side': has the cameras"),
        (["--camera", "front"], {"codebase_version": "v2.1"}, "is of version v2.1; v3.0 is read"),
        (["--sensors", "{robot}", "--camera", "front"], {}, "Leave --videos and encoders out"),
        (["--sensors", "{robot}", "--channels", "gripper"], {}, "has no channel"),
    ],
)
def test_preparations_that_are_refused(tmp_path, capsys, options, change, message):
    robot = write_robot(tmp_path / "robot", change=lambda info: info.update(change))
    options = [option.format(robot=robot) for option in options]
    assert main(["data", "prepare", "custom", str(robot), str(tmp_path / "D"), *options]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("error:") == 1
    assert not (tmp_path / "D").exists()


def test_a_set_without_cameras_is_one_of_sensors(tmp_path):
    robot = write_robot(tmp_path / "robot", cameras=[])
    assert main(["data", "prepare", "custom", str(robot), str(tmp_path / "DATA")]) == 0
    dataset = open_dataset(tmp_path / "DATA")
    assert [video.video_id for video in dataset.videos] == [
        f"episode_00000{number}" for number in range(3)
    ]
    recipe = DatasetReference.of(dataset).recipe
    assert recipe is not None
    assert [*recipe.channels] == [*open_robot(robot).channels]
    assert recipe.reads(robot / "episode_000003")
    assert recipe.rows(robot / "episode_000003").shape == (4, 18)


def test_a_camera_is_of_a_robot_alone(tmp_path, capsys):
    (tmp_path / "films").mkdir()
    call = ["extract", str(tmp_path / "films"), "--out", str(tmp_path / "F"), "--camera", "front"]
    assert main(call) == 2
    assert "a camera is of a LeRobot data set" in capsys.readouterr().err
