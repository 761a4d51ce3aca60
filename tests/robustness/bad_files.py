"""Malformed files; each is made by a function of the path to write."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Maker = Callable[[Path], object]
fifo: Maker = os.mkfifo  # a pipe without a writer
folder: Maker = Path.mkdir  # in the place of the file


def raw(data: bytes | str) -> Maker:
    """A file of these bytes."""
    content = data.encode() if isinstance(data, str) else data
    return lambda path: path.write_bytes(content)


def _saved(array: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def _header(text: str, version: int = 1, body: bytes = b"") -> bytes:
    """A .npy file whose header is any text."""
    data = text.encode("latin1") + b"\n"
    size = struct.pack("<H" if version == 1 else "<I", len(data))
    return b"\x93NUMPY" + bytes([version, 0]) + size + data + body


def _described(shape: str, descr: str = "'<f4'") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"


def _zip(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def _encrypted(data: bytes) -> bytes:
    """A zip whose members claim to be encrypted."""
    changed = bytearray(data)
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.find(mark)
        while at >= 0:
            changed[at + place] |= 1
            at = data.find(mark, at + 1)
    return bytes(changed)


def _bomb(path: Path) -> None:
    """A few hundred kB that say that they are an array of 40 GiB, most of it there."""
    header = _header(_described("(10000000000,)"))
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("start.npy", "w", force_zip64=True) as member,
    ):
        member.write(header)
        for _ in range(300):
            member.write(bytes(1 << 20))


def loop(path: Path) -> None:
    """A link to itself."""
    path.symlink_to(path.name)


def to(target: str) -> Maker:
    """A link to somewhere."""
    return lambda path: path.symlink_to(target)


def sparse(path: Path) -> None:
    """A file of 6 GiB that takes no room."""
    with path.open("wb") as file:
        file.truncate(6 << 30)


GOOD_ROW = np.linspace(0, 1, 24, dtype="float32")
_OBJECTS = np.array([{"a": 1}, None], dtype=object)

ARRAYS: dict[str, Maker] = {
    "empty": raw(b""),
    "text": raw("1.0, 2.0, 3.0\n"),
    "pickled objects": raw(_saved(_OBJECTS, allow_pickle=True)),
    "bare pickle": raw(pickle.dumps({"a": 1})),
    "huge shape": raw(_header(_described("(1000000000000,)"))),
    "absurd shape": raw(_header(_described("(" + "9" * 40 + ",)"))),
    "negative shape": raw(_header(_described("(-8,)"), body=bytes(32))),
    "header cut by zeros": raw(_saved(GOOD_ROW)[:49] + bytes(64) + _saved(GOOD_ROW)[113:]),
    "header code": raw(_header("__import__('os').abort()")),
    "header deep": raw(_header("(" * 3000 + ")" * 3000)),
    "dtype recursion": raw(_header(_described("(8,)", "[" * 500 + "]" * 500))),
    "integers": raw(_saved(np.arange(8))),
    "strings": raw(_saved(np.array(["a"] * 8))),
    "NaN": raw(_saved(np.full(24, np.nan, dtype="float32"))),
    "too large for float32": raw(_saved(np.full(24, 1e300))),
    "1e30": raw(_saved(np.full(24, 1e30, dtype="float32"))),
    "other width": raw(_saved(np.ones(7, dtype="float32"))),
    "three axes": raw(_saved(np.ones((2, 2, 2), dtype="float32"))),
    "zip cut": raw(_zip({"start.npy": _saved(GOOD_ROW)})[:-30]),
    "zip encrypted": raw(_encrypted(_zip({"start.npy": _saved(GOOD_ROW)}))),
    "zip lzma": raw(_zip({"start.npy": _saved(GOOD_ROW)}, zipfile.ZIP_LZMA)[:-60]),
    "zip pickled": raw(_zip({"start.npy": _saved(_OBJECTS, allow_pickle=True)})),
    "zip bad checksum": raw(
        _zip({"start.npy": _saved(GOOD_ROW)}, 0).replace(b"\x93NUMPY", b"\x93NUMPZ")
    ),
    "zip bomb": _bomb,
    "zip huge shape": raw(_zip({"start.npy": _header(_described("(1000000000000,)"))})),
    "zip unknown method": raw(
        _zip({"start.npy": _saved(GOOD_ROW)}).replace(b"\x08\x00", b"\x63\x00")
    ),
    "safetensors": raw(struct.pack("<Q", 2) + b"{}"),
    "6 GiB of nothing": sparse,
    "folder": folder,
    "pipe": fifo,
    "endless device": to("/dev/zero"),
    "link to itself": loop,
    "link to nowhere": to("nowhere"),
    "process memory": to("/proc/self/mem"),
}

_DEEP = 100_000
TEXTS: dict[str, Maker] = {
    "empty": raw(b""),
    "blank": raw(b" \n\n"),
    "null": raw("null"),
    "number": raw("1"),
    "list": raw("[]"),
    "object": raw("{}"),
    "string": raw('"a"'),
    "true": raw("true"),
    "not JSON": raw("{a: 1"),
    "deep list": raw("[" * _DEEP + "]" * _DEEP),
    "deep object": raw('{"a":' * _DEEP + "1" + "}" * _DEEP),
    "long number": raw("9" * 5000),
    "NaN": raw("NaN"),
    "NUL": raw(b"\x00" * 50),
    "UTF-16": raw("{}".encode("utf-16")),
    "latin1": raw("\xe9\xe8".encode("latin1")),
    "lone surrogate": raw('{"name": "\\ud800"}'),
    "picture": raw(b"\x89PNG\r\n\x1a\n" + bytes(range(256))),
    "pickle": raw(pickle.dumps([1])),
    "zip": raw(_zip({"a": b"b"})),
    "folder": folder,
    "pipe": fifo,
    "endless device": to("/dev/zero"),
    "link to itself": loop,
    "link to nowhere": to("nowhere"),
}

_COLUMNS = "video,task,step,start,end\n"
_LINE = "a,tea,boil,0,1\n"
TABLES: dict[str, Maker] = {
    "no head": raw(_LINE),
    "infinite time": raw(_COLUMNS + "a,tea,boil,0,inf\n"),
    "huge time": raw(_COLUMNS + "a,tea,boil,0,1e308\n"),
    "long time": raw(_COLUMNS + f"a,tea,boil,0,{'9' * 5000}\n"),
    "open quote": raw(_COLUMNS + '"a,tea,boil,0,1\n'),
    "long field": raw(_COLUMNS + "a,tea," + "b" * 200_000 + ",0,1\n"),
    "NUL in it": raw(_COLUMNS + "a\x00,tea,boil,0,1\n"),
    "escape in it": raw(_COLUMNS + "a,tea,\x1b[31mboil,0,x\n"),
    "UTF-16": raw((_COLUMNS + _LINE).encode("utf-16")),
    "name with path": raw(_COLUMNS + "../../etc/passwd,tea,boil,0,1\n"),
    "name with newline": raw(_COLUMNS + '"a\nb",tea,boil,0,1\n'),
    "name of 300 letters": raw(_COLUMNS + "a" * 300 + ",tea,boil,0,1\n"),
}


PRESETS: dict[str, Maker] = {
    "wrong base": raw('base = "nowhere"'),
    "own base": raw('base = "x.toml"'),
    "base a number": raw("base = 5"),
    "variant a number": raw("variant = 5"),
    "variant data set a number": raw("[[variant]]\ndataset = 5"),
    "section a number": raw("field = 5"),
    "deep key": raw(".".join("a" * 5000) + " = 1"),
    "deep list": raw("a = " + "[" * 50_000),
    "long number": raw("seed = " + "9" * 5000),
    "date": raw("[field]\nwidth = 2020-01-01"),
    "escape": raw('"\\u001b[31m" = 1'),
    "twice": raw("[field]\nwidth = 8\nwidth = 8"),
    "infinite": raw("[field]\nmlp_ratio = inf"),
    "name of preset": raw('preset = "x"'),
}


def annotated(features: Maker) -> Maker:
    """A folder of annotations of one video, with a file of features."""
    taxonomy = {
        "dataset": "odd",
        "tasks": [{"id": 0, "name": "tea", "actions": [0, 1]}],
        "actions": [{"id": 0, "name": "boil"}, {"id": 1, "name": "pour"}],
    }
    video = {"video_id": "a", "split": "train", "task_id": 0, "steps": [[0, 1, 0], [1, 2, 1]]}

    def make(path: Path) -> None:
        path.mkdir()
        (path / "taxonomy.json").write_text(json.dumps(taxonomy))
        (path / "videos.jsonl").write_text(json.dumps(video))
        features(path / "features.npz")

    return make
