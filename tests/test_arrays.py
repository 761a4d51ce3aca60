"""Arrays of strangers: what their headers announce is believed only where it is there."""

import io
import os
import tracemalloc
import zipfile

import numpy as np
import pytest

from cefito.arrays import load_npy, load_npz
from cefito.errors import DataError
from cefito.files import read_json


def saved(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def header(shape, descr="<f4"):
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype="float32").reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(3, dtype=">f8"),
        np.float16(2),
        np.zeros((0, 4)),
        np.array(["a", "bc"]),
    ],
)
def test_arrays_come_back(array, tmp_path):
    np.save(tmp_path / "x.npy", array)
    np.savez_compressed(tmp_path / "x.npz", one=array, other=np.ones(2))
    for found in (
        load_npy(tmp_path / "x.npy"),
        load_npz(tmp_path / "x.npz", ("one",))["one"],
    ):
        assert found.dtype == np.asarray(array).dtype
        np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (header("(1000000000000,)"), "announces 3.73e+03 GiB; at most 64 GiB are read"),
        (header("(1000000000,)"), "announces 4,000,000,000 bytes, there are 0"),
        (header("(" + "9" * 40 + ",)"), "announces"),
        (header("(True, 8)") + bytes(32), "announces the shape"),
        (header("(-8,)") + bytes(32), "announces the shape"),
        (saved(np.ones(3)) + b"x", "announces 24 bytes, there are 25"),
        (saved(np.ones(3))[:-1], "announces 24 bytes, there are 23"),
        (b"", "truncated or not a NumPy file"),
        (b"hello", "no NumPy file at all"),
    ],
)
def test_headers_are_compared_before_memory_is_taken(data, message, tmp_path):
    (tmp_path / "x.npy").write_bytes(data)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("one.npy", data)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"x\.npy: ") as caught:
            load_npy(tmp_path / "x.npy")
        with pytest.raises(DataError, match=r"x\.npz: "):
            load_npz(tmp_path / "x.npz", ("one",))
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()
    assert message in str(caught.value)


def test_an_archive_that_unpacks_to_more_than_it_says(tmp_path):
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("one.npy", header("(16,)") + bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="announces 64 bytes, there are 67,108,864"):
            load_npz(path, ("one",))
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


def test_encrypted_members_and_pipes(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, one=np.ones(3))
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.find(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(bytes(data))
    with pytest.raises(DataError, match=r"'one\.npy' is encrypted. Save it without a password"):
        load_npz(path, ("one",))
    os.mkfifo(tmp_path / "pipe")
    for read in (load_npy, lambda place: load_npz(place, ("one",)), lambda p: read_json(p, "")):
        with pytest.raises(DataError, match=r"pipe: cannot be read .it is a pipe or device"):
            read(tmp_path / "pipe")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match="nested too deeply"):
        read_json(tmp_path / "deep.json", "")
