"""Annotations as their authors release them."""

import json

import numpy as np
import pytest

from cefito.data.annotations import Step, Video
from cefito.data.readers.benchmarks import read_benchmark
from cefito.data.readers.feature_files import FileFolder
from cefito.data.source import UNPUBLISHED
from cefito.errors import ConfigError, DataError

TASKS = """23521
Make Jello Shots
https://www.example.org/1
3
pour water,pour juice,stir

59684
Build Shelves
https://www.example.org/2
2
cut shelve, pour water
"""


@pytest.fixture
def release(tmp_path):
    folder = tmp_path / "crosstask_release"
    (folder / "annotations").mkdir(parents=True)
    (folder / "tasks_primary.txt").write_text(TASKS)
    (folder / "tasks_related.txt").write_text("1\nMake\nhttps://x\n1\nx\n")
    (folder / "videos_val.csv").write_text("23521,b_-d,https://y\n59684,e,https://y\n")
    for name, text in {
        "23521_a": "1,1.5,3.25\n3,4,5.5\n2,5,6\n",
        "23521_b_-d": "2,1,2\n",
        "59684_e": "2,0,1\n1,3,4\n\n",
        "11111_f": "1,1,2\n",
    }.items():
        (folder / "annotations" / f"{name}.csv").write_text(text)
    return folder


def test_release(release):
    for place in (release, release.parent):
        found = read_benchmark("crosstask", place)
        taxonomy = found.annotations.taxonomy
        assert [(task.name, task.actions) for task in taxonomy.tasks] == [
            ("Make Jello Shots", (0, 1, 2)),
            ("Build Shelves", (3, 4)),
        ]
        assert taxonomy.names([3, 4]) == ["cut shelve", "pour water"]
        assert taxonomy.to_shared == (0, 1, 2, 3, 0)
        assert found.annotations.videos == (
            Video("a", "train", 0, (Step(1.5, 3.25, 0), Step(4, 5.5, 2), Step(5, 6, 1))),
            Video("b_-d", "test", 0, (Step(1, 2, 1),)),
            Video("e", "test", 1, (Step(0, 1, 4), Step(3, 4, 3))),
        )
        assert found.names["b_-d"] == ("23521_b_-d", "b_-d")
        assert found.notes == (UNPUBLISHED,)


def test_release_with_a_video_of_two_tasks(release):
    (release / "annotations" / "59684_a.csv").write_text("1,1,2\n")
    (release / "videos_val.csv").write_text("59684,a,https://y\n")
    found = read_benchmark("crosstask", release)
    videos = found.annotations.videos
    assert [video.video_id for video in videos] == ["23521_a", "b_-d", "59684_a", "e"]
    assert [video.split for video in videos] == ["train", "train", "test", "train"]
    assert [(video.task, len(video.steps)) for video in videos] == [(0, 3), (0, 1), (1, 1), (1, 2)]
    assert found.names["59684_a"] == ("59684_a", "a")


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("tasks_primary.txt", TASKS.replace("\n3\n", "\n4\n"), "line 1: not a task"),
        ("tasks_primary.txt", TASKS.replace("59684", "23521"), "line 7: not a task, or a repea"),
        ("tasks_primary.txt", "\n", "holds no tasks"),
        ("annotations/59684_e.csv", "3,1,2\n", r"59684_e.csv, line 1: expected step,start,end"),
        ("annotations/59684_e.csv", "1,2\n", "line 1: expected step,start,end"),
        ("annotations/59684_e.csv", "1,9,2\n", "line 1: the step runs from '9' to '2'"),
        ("videos_val.csv", "23521\n", "videos_val.csv, line 1: expected"),
    ],
)
def test_release_that_is_malformed(release, wrong, name, text, match):
    (release / name).write_text(text)
    wrong("crosstask", release, match)


def test_release_without_annotations_of_its_tasks(release, wrong):
    for path in (release / "annotations").glob("[!1]*.csv"):
        path.unlink()
    wrong("crosstask", release, r"annotations: no TASK_VIDEO\.csv of a task in tasks_primary\.txt")


@pytest.fixture
def database():
    steps = [
        {"id": "3", "segment": [1.0, 4.0], "label": "boil "},
        {"id": "1", "segment": [5.0, 6.5], "label": "pour"},
        {"id": "5", "segment": [0.0, 2.0], "label": "beat"},
    ]
    tea = {"class": "Tea", "recipe_type": 1, "subset": "training", "annotation": steps[:2]}
    rug = {"class": "Rug", "recipe_type": 2, "subset": "testing", "annotation": steps[2:]}
    return {"database": {"aa": tea, "bb": rug}}


@pytest.fixture
def coin(tmp_path, database):
    def write(value=database):
        path = tmp_path / "COIN.json"
        path.write_text(json.dumps(value))
        return path

    return write


def test_coin(coin):
    found = read_benchmark("coin", coin())
    taxonomy = found.annotations.taxonomy
    assert taxonomy.names([*range(5)]) == ["pour", "action 1", "boil", "action 3", "beat"]
    assert [(task.name, task.actions) for task in taxonomy.tasks] == [
        ("task 0", ()),
        ("Tea", (0, 2)),
        ("Rug", (4,)),
    ]
    assert found.annotations.videos == (
        Video("aa", "train", 1, (Step(1, 4, 2), Step(5, 6.5, 0))),
        Video("bb", "test", 2, (Step(0, 2, 4),)),
    )
    assert read_benchmark("coin", coin().parent).annotations == found.annotations


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda v: v["aa"].pop("class"), "video 'aa': not a video of COIN"),
        (lambda v: v["aa"].__setitem__("subset", "tuning"), "video 'aa': not a video of COIN"),
        (lambda v: v["aa"]["annotation"][1].update(segment=[5]), r"'aa', step 2 \(counted from 1"),
        (lambda v: v["aa"]["annotation"][1].update(segment=[5, 4]), "the step runs from 5 to 4"),
        (lambda v: v["aa"]["annotation"][0].update(segment=[-1, 4]), "the step runs from -1"),
        (lambda v: v["aa"]["annotation"].append(v["aa"]["annotation"][0]), "are identical"),
        (lambda v: v["aa"]["annotation"][1].__setitem__("id", "x"), "not a video of COIN"),
        (lambda v: v["bb"]["annotation"][0].__setitem__("id", "3"), "is 'beat' here"),
        (lambda v: v["bb"].__setitem__("recipe_type", 1), "recipe_type 1 is 'Rug'"),
        (lambda v: v["bb"].__setitem__("recipe_type", 10**9), "task id 1000000000; expected 0 to"),
        (lambda v: v.clear(), "holds no annotated steps"),
    ],
)
def test_coin_that_is_malformed(coin, wrong, database, edit, match):
    edit(database["database"])
    wrong("coin", coin(database), match)


def test_coin_in_lists_of_splits(coin, database, wrong):
    folder, videos = coin().parent, database["database"]
    (folder / "COIN.json").unlink()
    for name, video in (("coin_train_70", "aa"), ("coin_test_30", "bb")):
        entry = videos[video] | {"subset": "training"}  # as in the lists of PDPP
        (folder / f"{name}.json").write_text(json.dumps([{video: entry}]))
    found = read_benchmark("coin", folder).annotations
    assert found.videos == (
        Video("bb", "test", 2, (Step(0, 2, 4),)),
        Video("aa", "train", 1, (Step(1, 4, 2), Step(5, 6.5, 0))),
    )
    (folder / "coin_test_30.json").write_text(json.dumps([{"aa": videos["aa"]}]))
    wrong("coin", folder, r"coin_train_70\.json: repeats video 'aa'")
    (folder / "coin_train_70.json").rename(folder / "coin.json")
    wrong("coin", folder, r"coin\.json: its name must contain exactly one of")


def test_other_forms_are_refused(release, coin, make_source, wrong, tmp_path):
    wrong("coin", release, "is of crosstask. Use cefito data")
    wrong("niv", coin(), "is of coin. Use cefito")
    wrong("crosstask", release, "has its own taxonomy", taxonomy=make_source(features=None))
    wrong("niv", tmp_path / "source", "has its own taxonomy", taxonomy=tmp_path / "source")
    wrong("coin", coin(), "has its own taxonomy", taxonomy=tmp_path / "source")
    wrong("niv", tmp_path / "nowhere.json", r"nowhere.json: no such file. Known forms: a folder")
    empty = tmp_path / "empty"
    empty.mkdir()
    wrong("niv", empty, "the annotations have no known form. Known forms")
    (empty / "a_train.json").write_text("[]")
    wrong("niv", empty / "a_train.json", "the annotations have no known form")
    with pytest.raises(ConfigError, match=r"benchmark 'ytb'.* crosstask, coin"):
        read_benchmark("ytb", empty)


def test_a_folder_of_far_too_many_files_is_not_walked(tmp_path, monkeypatch):
    for number in range(4):
        np.save(tmp_path / f"{number}.npy", np.zeros((1, 2)))
    monkeypatch.setattr("cefito.data.readers.feature_files.MOST_FILES", 4)
    assert FileFolder(tmp_path).find(["3"])[0].name == "3.npy"
    (tmp_path / "another.txt").touch()
    with pytest.raises(DataError, match="holds more than 4 files"):
        FileFolder(tmp_path)
