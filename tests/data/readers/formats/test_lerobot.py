"""A LeRobotDataset v3 with subtasks, written by the test as the documentation describes it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cefito.data.readers.formats import Choices
from cefito.data.readers.step_source import read_steps
from cefito.errors import DataError

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

FPS = 10
STEPS = ["reach", "grasp", "lift"]
TASKS = ["pick the cube", "pick the ball"]
# subtasks of each episode: index and number of frames; None and -1 for none
EPISODES = [
    (0, [(0, 10), (1, 5), (2, 15)]),
    (1, [(-1, 5), (0, 10), (None, 5), (2, 10)]),
    (0, [(0, 5), (1, 20), (2, 5), (1, 5)]),
    (1, [(0, 10), (1, 10), (2, 10)]),
]


def frames():
    """Columns of all frames."""
    rows = []
    for episode, (task, parts) in enumerate(EPISODES):
        subtasks = [index for index, count in parts for _ in range(count)]
        rows += [
            (episode, frame, frame / FPS, task, subtask) for frame, subtask in enumerate(subtasks)
        ]
    names = ("episode_index", "frame_index", "timestamp", "task_index", "subtask_index")
    table = pyarrow.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    place = table.column_names.index("timestamp")
    return table.set_column(place, "timestamp", table["timestamp"].cast(pyarrow.float32()))


@pytest.fixture
def made(tmp_path):
    """A data set of four episodes, two in each file."""
    folder = tmp_path / "robot"
    for part in ("meta", "data/chunk-000", "data/chunk-001"):
        (folder / part).mkdir(parents=True)
    info = {"codebase_version": "v3.0", "fps": FPS, "splits": {"train": "0:4"}, "features": {}}
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    subtasks = pyarrow.table({"subtask_index": range(3), "__index_level_0__": STEPS})
    parquet.write_table(subtasks, folder / "meta" / "subtasks.parquet")
    tasks = pyarrow.table({"task_index": range(2), "task": TASKS})
    parquet.write_table(tasks, folder / "meta" / "tasks.parquet")
    table = frames()
    for chunk, episodes in enumerate(([0, 1], [2, 3])):
        chosen = np.isin(table["episode_index"].to_numpy(), episodes)
        # frames in another order, as nothing promises theirs
        part = table.filter(pyarrow.array(chosen)).sort_by([("timestamp", "descending")])
        parquet.write_table(part, folder / f"data/chunk-{chunk:03d}" / "file-000.parquet")
    return folder


def steps_of(source):
    taxonomy = source.annotations.taxonomy
    return {
        video.video_id: (
            taxonomy.tasks[video.task].name,
            [(taxonomy.actions[s.action].name, s.start, s.end) for s in video.steps],
        )
        for video in source.annotations.videos
    }


def test_subtasks_are_steps(made):
    source = read_steps(made / "meta" / "info.json")
    assert source.form == "LeRobotDataset"
    found = steps_of(source)
    for number, (task, parts) in enumerate(EPISODES):
        name, steps = found[f"episode_{number:06d}"]
        assert name == TASKS[task]
        expected, at = [], 0.0
        for index, count in parts:
            if index is not None and index >= 0:
                expected.append((STEPS[index], at, at + count / FPS))
            at += count / FPS
        assert [step[0] for step in steps] == [step[0] for step in expected]
        times = [[step[1:] for step in listed] for listed in (steps, expected)]
        np.testing.assert_allclose(*times, atol=1e-5)


def test_splits_of_episodes(made):
    path = made / "meta" / "info.json"
    info = json.loads(path.read_text())
    splits = {"train": "0:3", "test": "3:4", "validation": "9:3000000000"}
    path.write_text(json.dumps(info | {"splits": splits}))
    videos = read_steps(path).annotations.videos
    assert [video.split for video in videos] == ["train"] * 3 + ["test"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"codebase_version": "v2.1"}, "has version v2.1; v3 is read"),
        ({"fps": 0}, r"is not as LeRobotDataset writes it \(fps"),
        ({"splits": {"test": "all"}}, "its split 'test' is 'all'; expected one as 0:50"),
        ({"splits": {"test": "1_0:2"}}, "its split 'test' is '1_0:2'"),
        ({"splits": {"train": "0:3", "test": "2:4"}}, "splits 'train' and 'test' share episodes"),
        ({"fps": True}, r"is not as LeRobotDataset writes it \(fps"),
    ],
)
def test_other_information(made, change, message):
    path = made / "meta" / "info.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=rf"info\.json \(LeRobotDataset\).*{message}"):
        read_steps(path)


@pytest.mark.parametrize("file", ["meta/subtasks.parquet", "data/chunk-000/file-000.parquet"])
@pytest.mark.parametrize("content", [None, b"PAR1 is all"])
def test_files_that_are_missing_or_damaged(made, file, content):
    (made / file).unlink()
    if content is not None:
        (made / file).write_bytes(content)
    elif file.startswith("data"):
        (made / "data/chunk-001/file-000.parquet").unlink()
    with pytest.raises(DataError) as caught:
        read_steps(made / "meta" / "info.json")
    assert "Annotate" in str(caught.value)
    assert "\n" not in str(caught.value)


FRAMES, NAMES = "data/chunk-000/file-000.parquet", "meta/subtasks.parquet"


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (
            FRAMES,
            lambda table: table.drop_columns(["subtask_index"]),
            "has no column 'subtask_index' or 'language_persistent', only episode_index, frame_i",
        ),
        (FRAMES, lambda table: table.drop_columns(["timestamp"]), "has no column 'timestamp', o"),
        (NAMES, lambda table: table.slice(0, 2), "has no name for the subtask_index 2 of frames i"),
        (
            NAMES,
            lambda table: table.drop_columns(["subtask_index"]),
            "has no column 'subtask_index', only __index_level_0__",
        ),
        (
            NAMES,
            lambda table: table.select(["subtask_index"]),
            "has 'subtask_index' and no other column; expected one of names",
        ),
        ("meta/tasks.parquet", lambda table: table.slice(1), "has no name for the task_index 0 o"),
    ],
)
def test_missing_columns_and_names_are_named(made, file, change, message):
    parquet.write_table(change(parquet.read_table(made / file)), made / file)
    with pytest.raises(DataError, match=f"{made / file}: {message}.*Annotate the episodes"):
        read_steps(made / "meta" / "info.json")


def entry(time, content, style="subtask"):
    """A persistent annotation, as every frame of its episode repeats it."""
    more = {"role": "assistant", "camera": None, "tool_calls": None}
    return {"content": content, "style": style, "timestamp": time, **more}


def with_language(made, entries, *, keeps=False):
    """Give each episode's frames the same annotations, in place of indices of subtasks."""
    for path in made.glob("data/*/*.parquet"):
        table = parquet.read_table(path)
        table = table if keeps else table.drop_columns(["subtask_index"])
        column = pyarrow.array([entries] * len(table))
        parquet.write_table(table.append_column("language_persistent", column), path)


def test_persistent_annotations_hold_until_the_next(made):
    entries = [entry(0.5, "grasp"), entry(0, "reach"), entry(0, "Pick it.", "plan")]
    with_language(made, [*entries, entry(1, None), entry(2, "lift"), entry(9, "late")])
    (made / "meta" / "subtasks.parquet").unlink()
    source = read_steps(made / "meta" / "info.json")
    task, steps = steps_of(source)["episode_000000"]
    assert task == TASKS[0]
    assert [step[0] for step in steps] == ["reach", "grasp", "lift"]
    np.testing.assert_allclose([s[1:] for s in steps], [[0, 0.5], [0.5, 1], [2, 3]], atol=1e-6)
    assert len(source.annotations.videos) == 4
    assert source.notes[0].endswith("each subtask of the column 'language_persistent' is a step.")
    for left_out in ("4 subtasks without a label", "4 persistent annotations of the style 'plan'"):
        assert left_out in source.notes[1]
    assert "of the style 'subtask' behind the end" in source.notes[1]


def test_subtasks_in_both_columns(made):
    with_language(made, [entry(0, "reach")], keeps=True)
    path = made / "meta" / "info.json"
    with pytest.raises(DataError, match="has 2 columns: 'subtask_index'") as caught:
        read_steps(path)
    assert caught.value.setting == "tier"
    found = read_steps(path, choices=Choices(tier="language_persistent"))
    assert found.annotations.step_count == 4


def test_two_persistent_subtasks_at_one_time(made):
    with_language(made, [entry(0.0, "reach"), entry(0.0, "lift")])
    with pytest.raises(DataError, match="episode 0: has two subtasks at one time"):
        read_steps(made / "meta" / "info.json")
