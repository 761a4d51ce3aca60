"""Annotations as one table."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cefito.data import cut_windows
from cefito.data.sources import prepare, read_table
from cefito.data.sources.table import near_duplicates
from cefito.data.videos import Step, Video
from cefito.errors import DataError

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "table"
TABLE = """video,task,step,start,end,split
clips/one.mp4,tea,pour,5,6.5,train
clips/one.mp4,tea,boil  water,1,4,train
two,toast,"cut, thin",0,2,test
two,toast,pour,2,3,test
"""
EXPECTED = (
    Video(video_id="clips/one.mp4", split="train", task=0, steps=(Step(1, 4, 1), Step(5, 6.5, 0))),
    Video(video_id="two", split="test", task=1, steps=(Step(0, 2, 2), Step(2, 3, 0))),
)


@pytest.fixture
def write(tmp_path):
    def make(text, name="mine.csv", encoding="utf-8"):
        path = tmp_path / name
        path.write_text(text, encoding=encoding)
        return path

    return make


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize(
    "change",
    [
        lambda text: text,
        lambda text: text.replace("video,task", " Video , TASK"),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace(", thin", "¤").replace(",", ";").replace("¤", ", thin"),
        lambda text: text.replace(", thin", "¤").replace(",", "\t").replace("¤", ", thin"),
    ],
)
def test_csv(write, change, encoding):
    found = read_table(write(change(TABLE), encoding=encoding))
    taxonomy = found.annotations.taxonomy
    assert taxonomy.dataset == "mine"
    assert taxonomy.names([0, 1, 2]) == ["pour", "boil water", "cut, thin"]
    assert [(task.name, task.actions) for task in taxonomy.tasks] == [
        ("tea", (0, 1)),
        ("toast", (0, 2)),
    ]
    assert found.annotations.videos == EXPECTED
    assert found.names["clips/one.mp4"] == ("clips/one.mp4", "one")
    assert found.notes == ()


def write_parquet(path, columns):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(columns), path)
    return path


COLUMNS = {
    "Video": ["clips/one.mp4", "clips/one.mp4", "two", "two"],
    "task": ["tea", "tea", "toast", "toast"],
    "step": ["pour", "boil water", "cut, thin", "pour"],
    "start": [5.0, 1.0, 0.0, 2.0],
    "end": [6.5, 4.0, 2.0, 3.0],
    "split": ["train", "train", "test", "test"],
}


def test_parquet(tmp_path):
    found = read_table(write_parquet(tmp_path / "mine.parquet", COLUMNS))
    assert found.annotations.videos == EXPECTED
    holes = write_parquet(tmp_path / "holes.parquet", COLUMNS | {"step": ["pour", None, "x", "y"]})
    with pytest.raises(DataError, match=r"row 1 \(counted from 0\): 'step' is empty"):
        read_table(holes)
    (tmp_path / "broken.parquet").write_text("no parquet")
    with pytest.raises(DataError, match=r"broken.parquet: cannot be read as Parquet"):
        read_table(tmp_path / "broken.parquet")


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr("cefito.data.sources.table.import_module", absent)
    with pytest.raises(
        DataError, match=r"needs pyarrow, which is not installed. Run pip install cefito\[table\]"
    ):
        read_table(tmp_path / "mine.parquet")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "mine.csv: holds no steps"),
        (
            "video,task,step,start,end\n",
            "holds no steps. Expected the columns video, task, step, start, end",
        ),
        ("video,task,step,begin,end\na,b,c,1,2\n", "has no column 'start'"),
        (TABLE + "two,toast,pour,,3,test\n", "mine.csv, line 6: 'start' is empty"),
        (TABLE + "two,toast,pour\n", "mine.csv, line 6: 'start' is empty"),
        (
            TABLE + "two,toast,pour,1,2,test,9\n",
            "mine.csv, line 6: has more cells than the first line",
        ),
        (
            TABLE + "two,toast,pour,soon,3,test\n",
            "mine.csv, line 6: runs from 'soon' to '3'; expected seconds",
        ),
        (
            TABLE + "two,toast,pour,nan,3,test\n",
            "mine.csv, line 6: runs from nan s to 3 s; expected 0 ≤ start ≤ end",
        ),
        (TABLE + "two,toast,pour,4,3,test\n", "mine.csv, line 6: runs from 4 s to 3 s"),
        (
            TABLE + "two,toast,pour,1,3,dev\n",
            "mine.csv, line 6: split is 'dev'; expected one of train, val, test",
        ),
        (
            TABLE + "two,tea,pour,1,3,test\n",
            "mine.csv, line 6: video 'two' has task 'tea', split 'test' here, but task 'toast'",
        ),
        (
            TABLE + "two,toast,pour,1,3,train\n",
            "split 'train' here, but task 'toast', split 'test' before",
        ),
        (TABLE + 'two,"toast,pour\n', "cannot be read as a table"),
    ],
)
def test_tables_that_are_malformed(write, text, match):
    path = write(text)
    with pytest.raises(DataError, match=match) as caught:
        read_table(path)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(path))


def test_not_a_table(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "x.csv", tmp_path):
        with pytest.raises(DataError, match="cannot be read"):
            read_table(path)


@pytest.mark.parametrize(
    ("one", "other", "near"),
    [
        ("pour water", "Pour  water", True),
        ("pour water", "pour-water", True),
        ("pour water", "pour_water.", True),
        ("tighten the nuts", "tighten the nut", True),
        ("add 1 egg", "add 2 eggs", False),
        ("jack up", "jack down", False),
        ("ｐour", "pour", True),
        ("cut", "put", False),
        ("wait 5 min", "wait 10 min", False),
        ("", "", True),
    ],
)
def test_names_that_differ_by_little(one, other, near):
    assert near_duplicates([one, other]) == ([(one, other)] if near else [])


@given(st.lists(st.text(max_size=8), max_size=6, unique=True))
def test_pairs_are_of_the_given_names(names):
    found = near_duplicates(names)
    assert len(set(found)) == len(found)
    assert all(names.index(one) < names.index(other) for one, other in found)


def test_notes_of_names(write):
    found = read_table(
        write(
            "video,task,step,start,end\n"
            "a,Tea,boil,0,1\n"
            "b,tea,Boil,0,1\n"
            "b,tea,tighten the nuts,1,2\n"
            "b,tea,tighten the nut,2,3\n"
            "c,other,pour milk,0,1\n"
        )
    )
    assert found.notes == (
        "task names that differ by little: 'Tea' and 'tea'. If they mean the same, write them "
        "alike.",
        "step names that differ by little: 'tighten the nuts' and 'tighten the nut'. If they mean "
        "the same, write them alike.",
        "step names that differ by little: 'boil' and 'Boil'. If they mean the same, write them "
        "alike.",
        "The table has no split: 30 % of the videos of each task were drawn for test.",
    )


def test_the_example(tmp_path):
    runpy.run_path(str(EXAMPLE / "features.py"))["main"](tmp_path / "features")
    found = read_table(EXAMPLE / "steps.csv")
    dataset = prepare(found, tmp_path / "features", tmp_path / "out", seconds=1)
    told = dataset.provenance["preparation"]
    assert told["videos"] == {"annotated": 20, "prepared": 20}
    assert told["left_out"] == []
    assert told["notes"] == [
        "step names that differ by little: 'boil water' and 'Boil water'. If they mean the same, "
        "write them alike.",
        "The table has no split: 30 % of the videos of each task were drawn for test.",
    ]
    assert sum(video.split == "test" for video in dataset.videos) == 6
    test, train = (cut_windows(dataset, horizon=3, split=split) for split in ("test", "train"))
    nearest = [int(np.argmin(((train.initial - look) ** 2).sum(1))) for look in test.initial]
    assert np.mean(train.tasks[nearest] == test.tasks) > 0.9  # the features tell the steps apart
    assert read_table(EXAMPLE / "steps.csv") == found
