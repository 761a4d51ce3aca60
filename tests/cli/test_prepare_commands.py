"""`cefito data prepare` of benchmarks and tables.

`custom` is tested with the other commands of `cefito data`.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from cefito.data import open_dataset
from cooking import FILES, KITCHEN, ROWS, accept_features, cook_values, write_cook_files


@pytest.fixture
def feature_folder(tmp_path):
    """Features of all tiny videos that have steps, but of c.

    Those of i end before its last two steps.
    """
    folder = tmp_path / "features"
    folder.mkdir()
    generator = np.random.default_rng(1)
    for name in "abdefhij":
        seconds = 5 if name == "i" else 14
        features = generator.standard_normal((seconds, 4), dtype=np.float32)
        np.savez(folder / f"{name}.npz", frames_features=features)
    return folder


def test_prepare_a_benchmark_train_and_plan(make_source, feature_folder, tmp_path, ran):
    source, target = make_source(features=None), tmp_path / "out"
    argv = ("niv", "--annotations", source, "--features", feature_folder, "--out", target)
    captured = ran("data", "prepare", *argv)
    dataset = open_dataset(target)
    assert dataset.timeline is None  # of a benchmark
    note, late, wrote = captured.err.splitlines()
    assert late.startswith("note: left out, beyond the features: 'i' ends at ")
    assert note.startswith("note: the features have 0.667 to 2.55 rows for each second until")
    assert wrote == f"wrote {target}: tiny, fingerprint {dataset.fingerprint[:12]}"
    lines = [re.split(r"\s\s+", line) for line in captured.out.splitlines()]
    assert lines[0] == ["tiny: 3 s around each start and end, 12 numbers, float16"]
    assert lines[1] == ["what", "videos", "steps", "example"]
    assert lines[2:4] == [
        ["prepared", "8", "29"],
        ["steps beyond the features, dropped", "1", "2", "i"],
    ]
    assert lines[4][:3] == ["left out: no features", "1", "4"]
    assert [line[:3] for line in lines[5:]] == [["left out: no steps", "1", "0"]]
    train = ("train", target, "--horizon", 3, "--out", tmp_path / "run", "--method", "nearest")
    ran(*train, "--selection", "published")
    said = ran("plan", tmp_path / "run", "--video", "e", "--from-step", 1)
    assert "annotated: cut → heat → heat" in said.err


def test_prepare_options(make_source, feature_folder, tmp_path, ran, refused):
    target, prepare = tmp_path / "out", ("data", "prepare", "coin")
    given = ("--annotations", make_source(features=None), "--features", feature_folder)
    options = ("--beyond", "rewrite", "--seconds", "1", "--precision", "float32", "--json")
    value = json.loads(ran(*prepare, *given, "--out", target, "--name", "Mine", *options).out)
    assert value["beyond"] == {"policy": "rewrite", "steps": 2, "videos": ["i"]}
    assert value["videos"] == {"annotated": 10, "prepared": 8}
    left_out = {part["reason"]: part["videos"] for part in value["left_out"]}
    assert left_out == {"no features": ["c"], "no steps": ["g"]}
    dataset = open_dataset(target)
    assert (dataset.name, dataset.observation_dim) == ("Mine", 4)
    assert dataset.start.dtype == np.float32
    for benchmark in ("crosstask", "coin", "niv"):
        kept = ("data", "prepare", benchmark, *given, "--timeline", "--out", tmp_path / benchmark)
        ran(*kept)
        assert open_dataset(tmp_path / benchmark).timeline.rate == 1
    again = (*prepare, *given, "--out", tmp_path / "other", "--beyond", "error")
    assert "Leave such steps out" in refused(*again)


def test_options_of_files_are_refused_with_a_folder(make_source, tmp_path, refused):
    prepare = ("data", "prepare", "custom", make_source(), tmp_path / "out")
    assert "--column applies to files only" in refused(*prepare, "--column", "step=x")


@pytest.fixture
def kitchen(tmp_path, monkeypatch):
    """A folder of downloaded files, and one of features, a row a second, of its recordings."""
    folder = write_cook_files(tmp_path / "download", cook_values(KITCHEN, ROWS))
    accept_features(monkeypatch, folder / FILES["features"])
    (tmp_path / "features").mkdir()
    for video in KITCHEN.videos:
        np.save(tmp_path / "features" / f"{video.video_id}.npy", np.ones((40, 4), np.float32))
    return folder


def test_prepare_a_download_of_captaincook4d(kitchen, tmp_path, ran):
    captured = ran(
        "data", "prepare", "captaincook4d", kitchen, tmp_path / "out", "--name", "kitchen"
    )
    dataset = open_dataset(tmp_path / "out")
    assert (dataset.name, dataset.annotations) == ("kitchen", KITCHEN)
    skipped, missing, wrote = captured.err.splitlines()
    assert skipped.startswith("note: 5 steps have negative times")
    assert missing == "note: 1 recordings have no features and are left out: 1_999."
    assert dataset.timeline is None
    films = ("--features", kitchen.parent / "features", "--timeline")
    ran("data", "prepare", "captaincook4d", kitchen, tmp_path / "films", *films)
    assert open_dataset(tmp_path / "films").timeline.rate == 1
    assert wrote == f"wrote {tmp_path / 'out'}: kitchen, fingerprint {dataset.fingerprint[:12]}"


def test_wrong_calls_for_captaincook4d(kitchen, tmp_path, refused):
    argv = ("data", "prepare", "captaincook4d")
    out = tmp_path / "out"
    for given, message in (
        ((kitchen, out, "--seconds", "5"), "features of steps take --name only"),
        ((tmp_path, out), "step_embeddings_gt.pkl: no such file. Download it: cefito data"),
    ):
        assert message in refused(*argv, *given)


@pytest.mark.parametrize(
    ("argv", "match"),
    [
        ("niv --annotations features --features features", "features: the annotations have no kn"),
        ("coin --annotations source --features features --beyond cut", "cut"),
        ("custom steps.csv", "give --features, a folder with one file a video"),
        ("niv --annotations source", "give --features, a folder with one"),
        ("custom steps.csv --features features --weights s3d.pth", "apply to --videos only"),
        ("custom steps.csv --videos features --weights gone.pth", "gone.pth: no such file"),
        (
            "crosstask --annotations source --videos features --weights gone.pth",
            "gone.pth: no such file",
        ),
        ("custom gone.csv --features features", "gone.csv: no such file"),
        ("custom gone.csv --videos features", "gone.csv: no such file"),
        ("custom source", "or simulate them: cefito data simulate."),
        ("custom nowhere", "nowhere: no such folder or table. Give a folder with"),
    ],
)
def test_preparations_that_fail(argv, match, make_source, feature_folder, refused, monkeypatch):
    monkeypatch.chdir(make_source(features=None).parent)
    Path("steps.csv").write_text("video,task,step,start,end\na,tea,boil,0,1\n")
    kind, *rest = argv.split()
    rest.insert(*((1, "out") if kind == "custom" else (0, "--out=out")))
    assert match in refused("data", "prepare", kind, *rest)


CROSSTASK = {"tasks_primary.txt": "1\nTea\nhttp://x\n2\nboil,pour\n", "videos_val.csv": ""}
COIN = '{"database": {"v": {"recipe_type": 1, "class": "Tea", "subset": "training"}}}'
WINDOWS = '[{"id": {"legal_range": [[0, 1, 2]]}}]'


@pytest.mark.parametrize(
    ("files", "given", "benchmark"),
    [
        (CROSSTASK, "", "crosstask"),
        (CROSSTASK | {"annotations/1_v.csv": "1,0.0,2.0\n"}, "annotations/1_v.csv", "crosstask"),
        ({"COIN.json": COIN}, "COIN.json", "coin"),
        ({"NIV/train70.json": WINDOWS}, "NIV/train70.json", "niv"),
        ({"authors/dataset/NIV/train70.json": WINDOWS}, "authors", "niv"),
        ({"windows/train70.json": WINDOWS}, "windows", "crosstask|coin|niv"),
    ],
)
def test_files_of_a_benchmark_name_its_command(refused, tmp_path, files, given, benchmark):
    for name, text in files.items():
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    place = tmp_path / "in" / given
    said = refused("data", "prepare", "custom", place, tmp_path / "out", "--features", tmp_path)
    assert f"Use cefito data prepare {benchmark} --annotations {place} --out FOLDER." in said
    (tmp_path / "in" / "own.csv").write_text("a,b\n1,2\n")
    if benchmark != "crosstask":  # the file of another kind keeps its own refusal
        own = refused("data", "prepare", "custom", tmp_path / "in" / "own.csv", tmp_path / "out")
        assert "--annotations" not in own
