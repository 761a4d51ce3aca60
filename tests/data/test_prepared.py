import errno
import json
from pathlib import Path

import numpy as np
import pytest

from cefito.data import open_dataset, write_dataset
from cefito.errors import DataError, RunError
from cefito.files import load_tensors, write_json, write_tensors

FILES = ["taxonomy.json", "videos.jsonl", "features.safetensors", "action_text.safetensors"]
ONES = np.ones((35, 4), np.float32)
CHANGED = r"dataset\.json: has changed since the data set was"


def test_round_trip(tiny_dataset):
    again = open_dataset(str(tiny_dataset.folder))
    assert again.annotations == tiny_dataset.annotations
    assert again.hashes == tiny_dataset.hashes
    assert set(again.hashes) == set(FILES)
    np.testing.assert_array_equal(again.start, tiny_dataset.start)
    np.testing.assert_array_equal(again.end, tiny_dataset.end)
    assert again.fingerprint == tiny_dataset.fingerprint
    assert again.observation_dim == 4
    assert sorted(path.name for path in again.folder.iterdir()) == sorted(
        [*again.hashes, "dataset.json"]
    )


@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_is_found(tiny_dataset, name):
    path = tiny_dataset.folder / name
    data = bytearray(path.read_bytes())
    text = {"taxonomy.json": b"tea", "videos.jsonl": b'a", "split'}.get(name)
    data[-2 if text is None else data.index(text)] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=f"{name}: has changed"):
        open_dataset(tiny_dataset.folder)  # still well formed


@pytest.mark.parametrize("name", FILES)
def test_missing_file(tiny_dataset, name):
    (tiny_dataset.folder / name).unlink()
    with pytest.raises(DataError, match=f"{name}: no such file. "):
        open_dataset(tiny_dataset.folder)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        *((key, value, CHANGED) for key, value in (("name", "real"), ("provenance", {}))),
        ("hashes", {}, CHANGED),
        ("format_version", 99, "format_version: expected 1"),
        ("observation_dim", 5, "observations have 4 features, not the 5 of dataset.json"),
        ("provenance", [], "provenance: expected an object"),
    ],
)
def test_bad_header(tiny_dataset, key, value, message):
    path = tiny_dataset.folder / "dataset.json"
    header = json.loads(path.read_text())
    path.write_text(json.dumps(header | {key: value}))
    with pytest.raises(DataError, match=message) as caught:
        open_dataset(tiny_dataset.folder)
    assert str(caught.value).startswith(str(tiny_dataset.folder))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"start": ONES}, r"has no tensor \('end'\)"),
        ({"start": ONES[1:], "end": ONES}, r"'start': has shape \[34, 4\].* 35 steps"),
        ({"start": ONES * np.nan, "end": ONES}, "row 0 .* 'a', step 1"),
    ],
)
def test_features_that_do_not_fit(tiny_dataset, tensors, message):
    write_tensors(tiny_dataset.folder / "features.safetensors", tensors)
    with pytest.raises(DataError, match=message) as caught:
        open_dataset(tiny_dataset.folder)
    assert str(caught.value).startswith(str(tiny_dataset.folder / "features.safetensors"))


@pytest.mark.parametrize("name", ["features.safetensors", "action_text.safetensors"])
def test_truncated_tensors(tiny_dataset, name):
    path = tiny_dataset.folder / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=f"{name}: truncated"):
        open_dataset(tiny_dataset.folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start": np.ones((3, 4), np.float32)}, r"out, observations, 'start': has shape \[3"),
        ({"action_text": np.ones((3, 4), np.float32)}, r"out, action_text: has shape \[3, 4\]"),
    ],
)
def test_write_refuses_what_does_not_fit(tiny_dataset, tmp_path, change, message):
    arguments = {"start": tiny_dataset.start, "end": tiny_dataset.end} | change
    arguments |= {"annotations": tiny_dataset.annotations, "provenance": {}}
    with pytest.raises(DataError, match=message):
        write_dataset(tmp_path / "out", name="x", **arguments)
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def test_write_reads_back_before_it_shows(tiny_dataset, tmp_path):
    """Annotations made by hand can be wrong too; the message names the place that was asked for."""
    videos = (tiny_dataset.videos[0], tiny_dataset.videos[0], *tiny_dataset.videos[2:])
    broken = type(tiny_dataset.annotations)(taxonomy=tiny_dataset.taxonomy, videos=videos)
    rows = tiny_dataset.start[: broken.step_count]
    given = {"name": "x", "annotations": broken, "start": rows, "end": rows, "provenance": {}}
    with pytest.raises(DataError, match=r"line 2: repeats .*'a' of line 1") as caught:
        write_dataset(tmp_path / "out", **given)
    assert str(caught.value).startswith(str(tmp_path / "out" / "videos.jsonl"))
    assert not (tmp_path / "out").exists()


def test_writers_keep_the_old_file_on_a_full_disk(tmp_path, monkeypatch):
    path = tmp_path / "value.json"
    write_json(path, {"old": 1})

    def full(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(RunError, match=r"value\.json: .*No space"):
        write_json(path, {"new": 2})
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(path, float("nan"))
    assert json.loads(path.read_text()) == {"old": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["value.json"]


def test_bfloat16_is_refused_for_numpy(tmp_path):
    path = tmp_path / "x.safetensors"
    header = json.dumps({"x": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0")
    with pytest.raises(DataError, match=r"x.safetensors"):
        load_tensors(path, "np", "Make it again.")


def test_observations_may_be_left_behind(tiny_dataset):
    bare = tiny_dataset.without_observations()
    assert (bare.start.size, bare.end.size) == (0, 0)
    assert (bare.start.base, bare.end.base) == (None, None)
    assert bare.videos == tiny_dataset.videos
    assert bare.fingerprint == tiny_dataset.fingerprint
    assert bare.observation_dim == tiny_dataset.observation_dim
