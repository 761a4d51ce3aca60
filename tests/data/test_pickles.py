"""Pickles give arrays and plain values, and nothing that they name is run."""

import io
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import cefito
from cefito.arrays import is_pickled
from cefito.data.pickles import load_pickled
from cefito.errors import DataError
from refusals import refusal

CONTENT = {
    3: np.arange(6, dtype=np.float32).reshape(2, 3),
    np.int64(1): np.asfortranarray(np.ones((2, 3), np.float16)),
    "text": [1, 2.5, None, True, (b"x", "é"), {"a": np.array(2.0)}],
    4: np.array([np.zeros(2), "b"], dtype=object),
    5: np.arange(3, dtype=">i4"),  # becomes native
}


def load(data):
    return load_pickled(data, Path("file.npy"), "plain", "Save it again.")


def same(found, expected):
    assert list(found) == list(expected)
    for key, value in expected.items():
        if key != "text":
            assert found[key].dtype.newbyteorder("=") == value.dtype.newbyteorder("=")
            assert [np.asarray(x).tolist() for x in found[key]] == [
                np.asarray(x).tolist() for x in value
            ]
    assert found["text"][:-1] == expected["text"][:-1]


@pytest.mark.parametrize("protocol", range(6))
def test_pickles_of_every_protocol(protocol):
    data = pickle.dumps(CONTENT, protocol=protocol)
    assert is_pickled(data) == (protocol > 1)
    same(load(data), CONTENT)


def test_dictionaries_in_npy_files():
    buffer = io.BytesIO()
    np.save(buffer, np.array(CONTENT), allow_pickle=True)
    assert is_pickled(buffer.getvalue())
    same(load(buffer.getvalue()), CONTENT)
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    assert not is_pickled(buffer.getvalue())


class Calls:
    def __init__(self, function, *arguments):
        self.made = function, arguments

    def __reduce__(self):
        return self.made


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (pickle.dumps(Calls(Path.touch, Path("ran"))), "it names pathlib"),
        (pickle.dumps(Calls(np.load, "x")), "it names numpy.load, which no array needs"),
        (pickle.dumps(np.array(["a"])), "an array of type 'U1'"),
        (pickle.dumps(np.zeros(2, [("a", "f4")])), "an array of type 'V4'"),
        (pickle.dumps(np.zeros(5), protocol=4).replace(b"K\x05", b"K\x06"), "has 40 bytes"),
        (b"\x80\x02cnumpy\ndtype\n}X\x01\x00\x00\x00aK\x01sb.", "it changes an object"),
        # C's unpickler would reserve 32 GiB for these entries
        (b"\x80\x02K\x01r\xff\xff\xff\xff.", None),
        (b"\x80\x04\x95" + b"\xff" * 8, "is truncated"),
        (b"", "is truncated"),
        (b"\x93NUMPY\x01\x00", "is truncated"),
        (pickle.dumps(CONTENT)[:200], "is truncated"),
    ],
)
def test_other_pickles_are_refused(data, match, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if match is None:
        assert load(data) == 1
        return
    refusal(DataError, load, data, match=match)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
def test_damaged_pickles_are_refused_or_plain():
    data = pickle.dumps(CONTENT, protocol=4)
    generator = np.random.default_rng(0)
    for _ in range(20_000):
        changed = bytearray(data)
        for place in generator.integers(len(data), size=generator.integers(1, 4)):
            changed[place] = generator.integers(256)
        try:
            load(bytes(changed[: generator.integers(1, len(data) + 1)]))
        except (DataError, MemoryError):  # a damaged length may be of more memory than there is
            continue


def test_two_kinds_of_files_alone_are_read_as_pickles():
    sources = {
        path.stem: path.read_text("utf-8") for path in Path(cefito.__file__).parent.rglob("*.py")
    }
    readers = {name for name, text in sources.items() if "load_pickled(" in text}
    assert readers == {"pickles", "captaincook4d", "action_text"}
    of_bytes = {name for name, text in sources.items() if "pickle.loads(" in text}
    assert of_bytes == {"labels", "ray", "processes"}  # of their own processes
    assert not any(re.search(r"\b(pickle|joblib)\.load\(", text) for text in sources.values())
    loads = [call for text in sources.values() for call in re.findall(r"torch\.load\(.*", text)]
    assert loads
    assert all("weights_only=True" in call for call in loads)
    assert not any("allow_pickle=True" in text for text in sources.values())
