import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cefito import files
from cefito.errors import CefitoError
from cefito.files import file_digest, unsealed, value_sealed
from cefito.training.checkpoint import read_metrics

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(), part, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def reads(monkeypatch):
    """Names of the files that are read."""
    seen, real = [], Path.open

    def opened(path, mode="r", *args, **options):
        seen.extend([path.name] * ("r" in mode))
        return real(path, mode, *args, **options)

    monkeypatch.setattr(Path, "open", opened)
    return seen


def old(path, content):
    path.write_bytes(content)
    os.utime(path, (1, 1))
    return path


def test_a_settled_file_is_hashed_once_and_a_changed_one_again(tmp_path, reads, monkeypatch):
    path = old(tmp_path / "a", b"one")
    monkeypatch.setattr(files, "SETTLED", -3600)  # as if it had lain there for an hour
    first = hashlib.sha256(b"one").hexdigest()
    assert [file_digest(path), file_digest(path)] == [first] * 2
    assert reads == ["a"]
    old(tmp_path / "b", b"two").replace(path)  # the same size and times
    assert file_digest(path) == hashlib.sha256(b"two").hexdigest()


def test_a_fresh_file_is_never_taken_for_unchanged(tmp_path, reads):
    path = tmp_path / "a"
    for content in (b"one", b"two"):  # perhaps within one tick of the clock
        path.write_bytes(content)
        assert file_digest(path) == hashlib.sha256(content).hexdigest()


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_what_was_sealed_is_whole_in_any_order(value):
    sealed = value_sealed(value)
    entries, whole = unsealed(dict(reversed(sealed.items())))
    assert whole
    assert entries == {name: part for name, part in value.items() if name != files.SEAL}


def test_a_change_breaks_the_seal():
    sealed = value_sealed({"a": 1, "b": [1.5, None]})
    assert not unsealed(sealed | {"a": 2})[1]
    assert not unsealed(sealed | {"a": True})[1]
    assert not unsealed(sealed | {"c": 0})[1]
    assert not unsealed(sealed | {files.SEAL: 0})[1]
    assert not unsealed({"a": 1, "b": [1.5, None]})[1]  # the seal itself is gone


def pipe(path):
    os.mkfifo(path)


def sparse(path):
    with path.open("wb") as file:
        file.truncate(20 << 30)  # takes no room


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (pipe, "it is a pipe or device, not a file"),
        (lambda path: path.symlink_to("/dev/zero"), "it is a pipe or device, not a file"),
        (sparse, r"has 20,480 MiB; at most [\d,]+ are read\. Remove "),
    ],
)
@pytest.mark.parametrize(
    "read", [files.read_json, files.read_text, lambda path, _: read_metrics(path)]
)
def test_reading_is_bounded(make, message, read, tmp_path):
    make(tmp_path / "file")
    with pytest.raises(CefitoError, match=message):
        read(tmp_path / "file", "Remove it.")


def test_lines_are_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_JSON", 5)
    path = tmp_path / "table.jsonl"
    path.write_bytes(b"1234\n123456\n1\n")
    with path.open("rb") as file:
        lines = files.lines_of(file, path, "Split it.")
        assert next(lines) == b"1234\n"
        with pytest.raises(CefitoError, match=r"line 2: has more than 0 MiB"):
            next(lines)
