"""`cefito data steps`, and the preparation of what it writes."""

from pathlib import Path

import numpy as np
import pytest

from cefito.data import open_dataset
from tracks.formats.test_elan import write_eaf

EXPORTED = Path(__file__).resolve().parents[1] / "tracks" / "exported"
EXPORT = EXPORTED / "label_studio.json"
TEA = ("--task", "make tea", "--frame-rate", "4")


@pytest.fixture
def features(tmp_path):
    folder = tmp_path / "features"
    folder.mkdir()
    for number in range(1, 6):
        rows = np.random.default_rng(number).standard_normal((14, 3), dtype=np.float32)
        np.save(folder / f"tea_0{number}.npy", rows)
    return folder


def test_converted_and_prepared_alike(tmp_path, features, ran):
    table = tmp_path / "STEPS.csv"
    out, err = ran("data", "steps", EXPORT, "--out", table, *TEA)
    became = "label_studio.json: Label Studio; each region of the control tag 'steps'"
    assert became in err
    assert err.endswith(f"wrote {table}\n")
    rows = [line.split() for line in out.splitlines()[2:]]
    assert rows == [["tasks", "1"], ["actions", "5"], ["videos", "5"], ["steps", "20"]]
    lines = table.read_text().splitlines()
    assert lines[:2] == ["video,task,step,start,end", "tea_01,make tea,Fill kettle,1.0,3.5"]
    halves = [tmp_path / f"{number}.csv" for number in range(2)]
    for path, half in zip(halves, (lines[1:9], lines[9:]), strict=True):
        path.write_text("\n".join([lines[0], *half]))
    for name, files in (("direct", (EXPORT, *TEA)), ("one", (table,)), ("two", halves)):
        argv = ("data", "prepare", "custom", *files, tmp_path / name, "--features", features)
        _, err = ran(*argv, "--name", "tea")
        assert (became in err) == (name == "direct")
    direct, *converted = (open_dataset(tmp_path / name) for name in ("direct", "one", "two"))
    for one in converted:
        assert direct.annotations.videos == one.annotations.videos
        assert np.array_equal(direct.start, one.start)


def test_what_is_missing_is_asked_for_by_its_option(tmp_path, refused):
    steps = ("data", "steps", EXPORT, "--out", tmp_path / "STEPS.csv")
    (tmp_path / "videos.csv").write_text("video,task,split\ntea_01,tea,dev\n")
    table = ("--video-table", tmp_path / "videos.csv")
    for argv, message in (
        (
            (*steps, *TEA[:2]),
            "Give the frameRate of the Video tag; it is 24 if the tag has none. (--frame-rate)",
        ),
        ((*steps, *TEA[2:]), "holds no task. Give one for all videos, a pattern that finds it in"),
        ((*steps, *TEA[2:]), "(--task, --task-pattern, --video-table)"),
        ((*steps, *TEA, "--tier", "x"), "has no control tag 'x', only 'steps' (20). (--tier)"),
        ((*steps, *TEA[:2], "--frame-rate", "0"), "expected more than 0 (got 0.0). (--frame-rate)"),
        ((*steps, *TEA, *table), "split is 'dev'; expected one of train, val, test. (--video-t"),
        ((*steps, *TEA, "--encoding", "no"), "'no' is not an encoding of text. Expected one"),
        ((*steps[:2], *steps[3:]), "no file is given. Give the files of annotated steps."),
        ((*steps[:-1], tmp_path / "STEPS.xyz"), "expected a file that ends in .csv, .eaf,"),
        ((*steps[:-1], tmp_path / "videos.csv"), "videos.csv: exists already. Remove it first."),
    ):
        assert message in refused(*argv)


def test_a_name_of_a_column_that_one_table_lacks(tmp_path, ran, refused):
    tables = tmp_path / "a.csv", tmp_path / "b.csv"
    tables[0].write_text("video,task,step,start,end\na,tea,boil,0,4\n")
    tables[1].write_text("video,Model,step,start,end\nb,toast,cut,0,4\n")
    given = ("data", "steps", *tables, "--out", tmp_path / "STEPS.csv", "--column")
    _, err = ran(*given, "task=Model")
    assert err.startswith("note: a.csv: has no column 'Model', which another table has.\n")
    assert "b.csv" not in err
    rows = (tmp_path / "STEPS.csv").read_text().splitlines()[1:]
    assert rows == ["a,tea,boil,0.0,4.0", "b,toast,cut,0.0,4.0"]
    assert "a.csv: has no column 'modell', only" in refused(
        *given[:-2], tmp_path / "2.csv", "--column", "task=Modell"
    )


def test_the_task_of_files_without_one_beside_a_table_with_tasks(tmp_path, ran, refused):
    """As a table of one procedure and ELAN files of another are joined."""
    (tmp_path / "toast.csv").write_text("Film;Arbeit;Schritt;Von;Bis\nf1;toast;cut;0:00;0:04\n")
    write_eaf(tmp_path / "f2.eaf", {"Steps": [("boil", 0, 3000)]}, media="f2.mp4")
    names = {"video": "Film", "task": "Arbeit", "step": "Schritt", "start": "Von", "end": "Bis"}
    columns = [part for name in names.items() for part in ("--column", "=".join(name))]
    given = ("--task", "make tea", *columns, "--out", tmp_path / "STEPS.csv")
    _, err = ran("data", "steps", tmp_path / "toast.csv", tmp_path / "f2.eaf", *given)
    assert "has no column" not in err  # it is no table
    rows = (tmp_path / "STEPS.csv").read_text().splitlines()[1:]
    assert rows == ["f1,toast,cut,0.0,4.0", "f2,make tea,boil,0.0,3.0"]
    problem = refused("data", "steps", tmp_path / "toast.csv", *given[:-1], tmp_path / "2.csv")
    assert "line 2: holds the task 'toast', not 'make tea'. Leave that out. (--task)" in problem
