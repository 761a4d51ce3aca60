"""Arrays of strangers: what their headers announce is believed only where it is there."""

import os
import threading
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cefito.arrays import load_npy, load_npz, observed_rows
from cefito.errors import DataError
from cefito.files import ALIGNMENT, aligned, load_tensors, read_json, write_tensors
from traps import npy_bytes


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
    for found in (load_npy(tmp_path / "x.npy"), load_npz(tmp_path / "x.npz", ("one",))["one"]):
        assert found.dtype == np.asarray(array).dtype
        np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (header("(1000000000000,)"), "announces (1000000000000,): 4,000,000,000,000 bytes"),
        (header("(1000000000,)"), "4,000,000,000 bytes; there are 0"),
        (header("(" + "9" * 40 + ",)"), "announces"),
        (header("(-8,)") + bytes(32), "announces (-8,)"),
        (npy_bytes(np.ones(3)) + b"x", "24 bytes; there are 25"),
        (npy_bytes(np.ones(3))[:-1], "24 bytes; there are 23"),
        (b"hello", "cannot be read as NumPy arrays"),
        (header("(1,)").replace(b"Y\x01", b"Y\x03"), "format version 3.0"),
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
        archive.writestr("one.npy", header("(16,)") + bytes(16 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="64 bytes; there are 16,777,216"):
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
    with pytest.raises(DataError, match="is encrypted"):
        load_npz(path, ("one",))
    os.mkfifo(tmp_path / "pipe")
    for read in (load_npy, lambda place: load_npz(place, ("one",)), lambda p: read_json(p, "")):
        with pytest.raises(DataError, match=r"pipe: cannot be read .*device"):
            read(tmp_path / "pipe")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"not valid JSON .(maximum recursion|Stack overflow)"):
        read_json(tmp_path / "deep.json", "")


@pytest.mark.parametrize("shape", [(1,), (5, 7), (2, 3, 4)])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_aligned_arrays_begin_at_cache_lines_and_hold_the_same(shape, kind):
    array = np.random.default_rng(0).random(shape).astype(kind)
    buffer = np.zeros(array.nbytes + 2 * ALIGNMENT, np.uint8)
    for offset in range(0, ALIGNMENT, array.itemsize):
        beside = buffer[offset : offset + array.nbytes].view(kind).reshape(shape)
        beside[...] = array
        found = aligned(beside)
        assert found.ctypes.data % ALIGNMENT == 0
        assert found.dtype == kind
        np.testing.assert_array_equal(found, array)
    assert aligned(found) is found
    assert aligned(array.T).flags.c_contiguous


def test_loaded_tensors_are_aligned(tmp_path):
    tensors = {"one": torch.ones(1), "two": torch.ones(3, 5), "half": torch.ones(3).half()}
    write_tensors(tmp_path / "x.safetensors", tensors)
    for framework in ("np", "pt"):
        loaded, _ = load_tensors(tmp_path / "x.safetensors", framework, "")
        for tensor in loaded.values():
            first = tensor.ctypes.data if framework == "np" else tensor.data_ptr()
            assert first % ALIGNMENT == 0


HALVES = st.integers(-10, 120).map(lambda number: number / 2)


@given(
    st.lists(st.floats(-5, 60) | HALVES, max_size=6), st.integers(1, 50), st.sampled_from([1, 3, 5])
)
def test_rows_against_a_loop(times, rows, seconds):
    around = range(-(seconds // 2), seconds // 2 + 1)
    expected = [
        [min(max(round(time) + offset, 0), rows - 1) for offset in around] for time in times
    ]
    assert observed_rows(times, rows=rows, seconds=seconds).tolist() == expected


@pytest.mark.parametrize("seconds", [1, 3, 5])
@pytest.mark.parametrize("rows", [1, 2, 9])
def test_the_last_row_there_is_is_repeated_as_by_the_loader(rows, seconds):
    for time in range(rows):
        around = range(time - seconds // 2, time + seconds // 2 + 1)
        inside = [row for row in around if 0 <= row < rows]
        (found,) = observed_rows([time], rows=rows, seconds=seconds, border="last").tolist()
        assert found == inside + inside[-1:] * (seconds - len(inside))
    assert observed_rows([0.0], rows=3, seconds=3, border="last").tolist() == [[0, 1, 1]]


def test_threads_parse_one_header_at_a_time(tmp_path, monkeypatch):
    """Python before 3.11.8 counts the depth of syntax trees for all threads together."""
    np.save(tmp_path / "x.npy", np.arange(6.0))
    parsing, parse = threading.Lock(), np.lib.format.read_array_header_1_0

    def alone(stream):
        assert parsing.acquire(blocking=False)
        threading.Event().wait(0.01)
        parsing.release()
        return parse(stream)

    monkeypatch.setattr(np.lib.format, "read_array_header_1_0", alone)
    with ThreadPoolExecutor(4) as pool:
        assert [array.sum() for array in pool.map(load_npy, [tmp_path / "x.npy"] * 8)] == [15.0] * 8
