import hashlib
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from cefito.data.annotations import Step, Video
from cefito.data.downloads import download, find_places
from cefito.data.readers.captaincook4d import (
    downloaded_files,
    prepare_captaincook4d,
    read_captaincook4d,
)
from cefito.data.readers.custom import prepare_custom
from cefito.data.source import read_common
from cefito.errors import DataError
from cooking import (
    FILES,
    KITCHEN,
    ROWS,
    accept_features,
    cook_values,
    serve_cook_files,
    write_cook_files,
)
from traps import Trap


@pytest.fixture
def cook(tmp_path):
    def step(number, start, end, errors=False):
        value = {"step_id": number, "description": f"step {number}", "has_errors": errors}
        return value | {"start_time": start, "end_time": end}

    value = {
        "1_7": {
            "activity_id": 1,
            "activity_name": "Sandwich",
            "steps": [step(9, 7.0, 9.5), step(4, 1.25, 3.0, True), step(8, -1.0, -1.0)],
        },
        "2_1": {"activity_id": 2, "activity_name": "Soup", "steps": [step(2, 0, 5)]},
        "2_2": {"activity_id": 2, "activity_name": "Soup", "steps": [step(2, 0, 5)]},
    }
    split = {"train": ["1_7", "9_9"], "val": [], "test": ["2_1"]}

    def write(value=value, split=split, names=None):
        contents = {"annotations": value, "split": split, "names": {} if names is None else names}
        for name, content in contents.items():
            downloaded_files(tmp_path)[name].write_text(json.dumps(content))
        return tmp_path

    return write, value, split


def test_captaincook4d(cook):
    write, _, split = cook
    whole = read_captaincook4d(write(split=split | {"val": ["2_2"]}))
    assert [video.split for video in whole.annotations.videos] == ["train", "test", "val"]
    found = read_captaincook4d(write())
    names = found.annotations.taxonomy.names([0, 1, 2])
    assert names == ["step 2", "step 4", "step 9"]
    assert [task.actions for task in found.annotations.taxonomy.tasks] == [(1, 2), (0,)]
    assert found.annotations.videos == (
        Video("1_7", "train", 0, (Step(1.25, 3.0, 1), Step(7.0, 9.5, 2))),
        Video("2_1", "test", 1, (Step(0, 5, 0),)),
    )
    expected = ("1 steps have negative", "1 recordings are in no split", "Errors of steps are not")
    for note, begins in zip(found.notes, expected, strict=True):
        assert note.startswith(begins)


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda v, _: v["1_7"].pop("steps"), "recording '1_7': not a recording"),
        *(
            (lambda v, _, t=time: v["1_7"]["steps"][0].update(end_time=t), "not a recording")
            for time in ("x", 1e999)
        ),
        (lambda v, _: v["1_7"]["steps"].append(v["1_7"]["steps"][0]), "are identical"),
        (lambda _, s: s["test"].append("1_7"), "'1_7' is in train and in test"),
        (lambda _, s: s.__setitem__("test", "2_1"), "not a split of recordings"),
        (lambda _, s: s.clear(), "names no recording of"),
        (lambda _, s: (s.clear(), s.update(train=["x"])), "names no recording of"),
        (lambda v, _: v.clear(), "not CaptainCook4D's step annotations"),
    ],
)
def test_captaincook4d_that_is_malformed(cook, edit, match):
    write, value, split = cook
    edit(value, split)
    with pytest.raises(DataError, match=match):
        read_captaincook4d(write(value, split))


def test_steps_without_duration_are_left_out_and_counted(cook):
    write, value, _ = cook
    value["1_7"]["steps"][0]["end_time"] = 2
    value["1_7"]["steps"][2]["end_time"] = 2
    found = read_captaincook4d(write(value))
    assert found.annotations.videos[0].steps == (Step(1.25, 3.0, 1),)
    assert found.notes[0].startswith("2 steps have negative times or no duration: not performed")


@pytest.fixture
def kitchen(tmp_path, monkeypatch):
    """Files of a made-up kitchen; the content may be changed before they are written."""
    values = cook_values(KITCHEN, ROWS)

    def write():
        folder = write_cook_files(tmp_path / "download", values)
        accept_features(monkeypatch, folder / FILES["features"])
        return folder

    return write, values


def errors_of(annotations):
    return [[step.errors for step in video.steps] for video in annotations.videos]


def test_downloaded_files_of_a_made_up_kitchen(kitchen, tmp_path, monkeypatch):
    write, _ = kitchen
    with serve_cook_files(monkeypatch, write()):
        for place in find_places("captaincook4d"):
            done = download(place.name, tmp_path / "mine")
            assert done.checked == (place.file == FILES["features"])
    made = prepare_captaincook4d(tmp_path / "mine", tmp_path / "data")
    assert made.annotations == KITCHEN
    assert errors_of(made.annotations) == errors_of(KITCHEN)
    assert made.start.tobytes() == made.end.tobytes() == ROWS.tobytes()
    assert [note[:17] for note in made.provenance["notes"]] == [
        "5 steps have nega",
        "1 recordings have",
    ]
    assert made.provenance["notes"][1].endswith("have no features and are left out: 1_999.")
    assert set(made.provenance["source"]["files"]) == {*FILES.values()} - {FILES["features"]}


def test_features_pickled_by_either_numpy(kitchen, tmp_path, monkeypatch):
    write, _ = kitchen
    folder = write()
    path = folder / FILES["features"]
    data, names = path.read_bytes(), (b"numpy._core.multiarray", b"numpy.core.multiarray")
    own = next(name for name in names if name in data)
    for name in names:
        changed = data.replace(bytes([0x8C, len(own)]) + own, bytes([0x8C, len(name)]) + name)
        assert changed[2:3] == b"\x95"  # the length of the first frame follows, in eight bytes
        length = int.from_bytes(changed[3:11], "little") + len(name) - len(own)
        path.write_bytes(changed[:3] + length.to_bytes(8, "little") + changed[11:])
        assert name in path.read_bytes()
        accept_features(monkeypatch, path)
        made = prepare_captaincook4d(folder, tmp_path / name.decode())
        assert made.start.tobytes() == ROWS.tobytes()


def entry(values, recording="1_7"):
    return values["features"]["data"][recording]


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda v: v["annotations"]["1_7"]["steps"].pop(), "features of 8 steps, but 7 are anno"),
        (lambda v: entry(v)["step_info"].pop(), r"'1_7': has shape \[8, 256\]; expected \[7, 256"),
        (
            lambda v: entry(v).update(
                step_info=entry(v)["step_info"][:-1], step_embeddings=ROWS[:7].copy()
            ),
            "recording '1_7': has no features of step 8 from 14 s to 15.5 s. Download",
        ),
        (
            lambda v: entry(v).update(
                step_info=entry(v)["step_info"] * 2, step_embeddings=ROWS[:16].copy()
            ),
            "recording '1_7': has features of 16 steps, but 8 are annotated",
        ),
        (
            lambda v: entry(v)["step_info"][2].update(start_time=1.0),
            "recording '1_7': has no features of step 3 from 4 s to 5.5 s",
        ),
        (
            lambda v: entry(v).update(step_embeddings=np.zeros((8, 256))),
            r"recording '1_7': not features of steps \(numbers of type float64\). Expected",
        ),
        (
            lambda v: entry(v).update(step_embeddings=np.full((8, 256), np.nan, np.float16)),
            "8 rows hold NaN or infinity",
        ),
        (lambda v: entry(v).pop("step_info"), "recording '1_7': not features of steps"),
        (lambda v: v["features"].pop("data"), r"step_embeddings_gt.pkl: not features of steps"),
    ],
)
def test_files_that_do_not_fit(kitchen, tmp_path, edit, match):
    write, values = kitchen
    edit(values)
    with pytest.raises(DataError, match=match):
        prepare_captaincook4d(write(), tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_file_of_another_hash_is_not_unpickled(kitchen, flag, tmp_path):
    write, _ = kitchen
    folder = write()
    path = folder / FILES["features"]
    path.write_bytes(pickle.dumps(Trap(flag), protocol=4))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(DataError, match=f"{path.name}: SHA-256 {digest}; expected "):
        prepare_captaincook4d(folder, tmp_path / "data")


def test_damaged_and_missing_files(kitchen, tmp_path, monkeypatch):
    write, _ = kitchen
    whole = write()
    data = (whole / FILES["features"]).read_bytes()
    for size in (0, 1, 100, len(data) // 2, len(data) - 1):
        (whole / FILES["features"]).write_bytes(data[:size])
        accept_features(monkeypatch, whole / FILES["features"])
        with pytest.raises(DataError, match="its pickle does not end"):
            prepare_captaincook4d(whole, tmp_path / "data")
    write()
    for file in FILES.values():
        folder = shutil.copytree(whole, tmp_path / file)
        (folder / file).unlink()
        if file == FILES["errors"]:
            made = prepare_captaincook4d(folder, tmp_path / "without errors")
            assert "Errors of steps are not known" in made.provenance["notes"][-1]
            continue
        with pytest.raises(DataError, match=f"{file}: no such file"):
            prepare_captaincook4d(folder, tmp_path / "data")


def test_the_published_data_set(shared_data, tmp_path, monkeypatch):
    real = shared_data / "captaincook4d"
    with np.load(real / "features.npz") as arrays:
        rows = arrays["start"]
    values = cook_values(read_common(real).annotations, rows)
    served = write_cook_files(tmp_path / "served", values)
    with serve_cook_files(monkeypatch, served):
        for place in find_places("captaincook4d"):
            download(place.name, tmp_path / "mine")
    made = prepare_captaincook4d(tmp_path / "mine", tmp_path / "data")
    own = prepare_custom(real, tmp_path / "own")
    taxonomy = json.loads((made.folder / "taxonomy.json").read_text())
    assert taxonomy == json.loads((real / "taxonomy.json").read_text())
    splits, readme = [video.split for video in made.videos], Path(__file__).parents[3] / "README.md"
    told = f"{splits.count('train')} training videos of {len(taxonomy['tasks'])} recipes"
    assert len(splits) == 383
    lines = (made.folder / "videos.jsonl").read_text()
    assert lines == (own.folder / "videos.jsonl").read_text()
    wrong = sum("errors" in line or "missing" in line for line in lines.splitlines())
    for words in (told, f"{wrong} of 383 recordings hold mistakes", "on 383 real kitchen videos"):
        assert words in readme.read_text("utf-8")
    expected = (real / "videos.jsonl").read_text().splitlines()
    for line, whole in zip(lines.splitlines(), map(json.loads, expected), strict=True):
        assert json.loads(line).items() >= whole.items()
    assert made.start.dtype == np.float16
    assert made.start.tobytes() == made.end.tobytes() == rows.tobytes()
    digest = hashlib.sha256(made.start.tobytes()).hexdigest()
    assert digest == "4f00f3ddff70eea3c4b8b6769fd0b427655d0932b7157b320e8204c78c476f60"
    assert made.fingerprint == own.fingerprint
