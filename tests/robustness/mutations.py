"""Change stored files at random and judge what happens when they are used.

A subject is a folder and a way to use it. Each mutation copies a subject, changes one file and uses
the copy. An outcome is

- refused: a `CefitoError` in one line, which for a `stored` subject names the file or the query;
- same: the result without the mutation, or, if an input was changed, that of new work on it;
- reported: another result, with a warning, a note or a bad row that says so;
- UNNAMED: refused, and nothing says which file is at fault;
- SILENT: another result, and nothing says so;
- TRACEBACK: another exception, or a bad row that is called a defect;
- HANG: no outcome in time.
"""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import os
import random
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cefito.errors import CefitoError
from cefito.files import load_tensors, write_tensors

SECONDS = 60  # time limit of an answer
BAD = ("UNNAMED", "SILENT", "TRACEBACK", "HANG")
Remarks = list[str]
Answer = Callable[[Path, Remarks], str]
"""Use a folder; return a digest of the result and append what the user is told."""


class Hang(BaseException):
    """An answer took too long; not an `Exception`, so that nothing else catches it."""


@dataclass(frozen=True)
class Subject:
    """A folder to mutate."""

    name: str
    folder: Path
    files: tuple[str, ...]  # patterns of the files to mutate
    answer: Answer
    anew: Answer | None = None  # new work on changed inputs; None if the result may not change
    stored: bool = (
        False  # cefito wrote all files, so a refusal names one and a difference is a fault
    )


@dataclass(frozen=True)
class Outcome:
    """The outcome of a mutation."""

    number: int
    subject: str
    change: str
    ended: str
    detail: str


def digest(*parts: Any) -> str:
    """A digest of arrays and plain values."""
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            found.update(f"{part.dtype}{part.shape}".encode() + part.tobytes())
        else:
            found.update(repr(part).encode())
    return found.hexdigest()


@contextmanager
def heard(remarks: Remarks) -> Iterator[None]:
    """Append the warnings of the library to remarks."""
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: remarks.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("cefito")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


# Each of these functions makes one change to a file and returns its description.


def in_bytes(path: Path, draw: random.Random, other: Path) -> str:
    """Change bits and bytes."""
    data = bytearray(path.read_bytes())
    place = draw.randrange(max(1, len(data)))
    kind = draw.choice(("flip", "truncate", "append", "zero", "insert", "empty", "double"))
    if kind == "flip" and data:
        data[place] ^= 1 << draw.randrange(8)
    elif kind == "truncate":
        del data[place:]
    elif kind == "append":
        data += draw.randbytes(draw.randrange(1, 64))
    elif kind == "zero":
        data[place : place + 64] = bytes(len(data[place : place + 64]))
    elif kind == "insert":
        data[place:place] = draw.randbytes(1)
    elif kind == "double":
        data += bytes(data)
    else:
        data.clear()
    path.write_bytes(data)
    return f"{kind} at byte {place}"


def in_files(path: Path, draw: random.Random, other: Path) -> str:
    """Remove or replace the file."""
    kind = draw.choice(("remove", "folder", "other", "swap"))
    if kind == "swap":
        ours, theirs = path.read_bytes(), other.read_bytes()
        path.write_bytes(theirs)
        other.write_bytes(ours)
        return f"swapped with {other.name}"
    if kind == "other":
        shutil.copy(other, path)
        return f"replaced by {other.name}"
    path.unlink()
    if kind == "folder":
        path.mkdir()
    return kind


ODD = (None, True, False, "", "nonsense", [], {}, 0, 1, -1, 1.5, 1e308, -1e308, 2**31, 10**30, 99)


def in_json(path: Path, draw: random.Random, other: Path) -> str:
    """Change an entry of JSON, or of one line of JSON."""
    lines = path.suffix == ".jsonl"
    texts = path.read_text().splitlines() if lines else [path.read_text()]
    row = draw.randrange(len(texts))
    value = json.loads(texts[row])
    said = changed_entry(value, draw)
    texts[row] = json.dumps(value)
    path.write_text("\n".join(texts) + "\n")
    return said


def changed_entry(value: Any, draw: random.Random) -> str:
    """Change one entry of a JSON value in place and return a description."""
    entries = list(_entries(value, ""))
    holder, key, place = draw.choice(entries) if entries else (value, None, "")
    if key is None or draw.random() < 0.1:
        odd = draw.choice(ODD)
        holder.update(added=odd) if isinstance(holder, dict) else holder.append(odd)
        return f"added an entry beside {place}"
    old = copy.deepcopy(holder[key])
    kind = draw.choice(("odd", "near", "remove", "text", "rename"))
    if kind == "remove":
        del holder[key]
    elif kind == "rename" and isinstance(holder, dict):
        holder[f"{key}x"] = holder.pop(key)
    elif kind == "near" and type(old) in (int, float):
        holder[key] = draw.choice((old + 1, old - 1, -old, old * 10, old + 0.5, float(old)))
    else:
        holder[key] = f"{old}" if kind == "text" else draw.choice(ODD)
    return f"{kind} {place}, which was {str(old)[:40]!r}"


def _entries(value: Any, place: str) -> Iterator[tuple[Any, Any, str]]:
    """Yield the holder, key and place of all entries of a JSON value, at all depths."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key, f"{place}/{key}"
            yield from _entries(value[key], f"{place}/{key}")


def _spot(number: float) -> Callable[[torch.Tensor, int], torch.Tensor]:
    """Put a number at one place of a tensor; whole numbers become one larger."""

    def change(tensor: torch.Tensor, place: int) -> torch.Tensor:
        flat = tensor.reshape(-1)
        old = flat[place % len(flat)]
        flat[place % len(flat)] = number if tensor.is_floating_point() else old + 1
        return tensor

    return change


TENSORS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    **{name: _spot(float(name)) for name in ("nan", "inf", "1e30", "0.1")},
    "zero": lambda tensor, _: tensor.zero_(),
    "double": lambda tensor, _: tensor.double(),
    "half": lambda tensor, _: tensor.half(),
    "whole": lambda tensor, _: tensor.int(),
    "shape": lambda tensor, _: tensor[None],
    "cut": lambda tensor, _: tensor[:-1].clone() if tensor.ndim else tensor,
}


def in_tensors(path: Path, draw: random.Random, other: Path) -> str:
    """Change a tensor of a safetensors file, or its metadata."""
    tensors, metadata = load_tensors(path, "pt", "")
    name, second = draw.choice(sorted(tensors)), draw.choice(sorted(tensors))
    kind = draw.choice((*TENSORS, "drop", "extra", "rename", "exchange", "metadata"))
    if kind in TENSORS and tensors[name].numel():
        place = draw.randrange(tensors[name].numel())
        tensors[name] = TENSORS[kind](tensors[name].clone(), place)
    elif kind == "extra":
        tensors[f"{name}.more"] = tensors[name].clone()
    elif kind in ("drop", "rename"):
        tensor = tensors.pop(name)
        tensors |= {f"{name}x": tensor} if kind == "rename" else {}
    elif kind == "exchange":
        tensors[name], tensors[second] = tensors[second], tensors[name]
    elif kind == "metadata":
        name = draw.choice([*sorted(metadata), "added"])
        metadata[name] = draw.choice(("", "0", "-1", "nan", "3", "9" * 20, "{}", "null"))
    write_tensors(path, tensors, metadata)
    return f"{kind}: {name}"


def in_text(path: Path, draw: random.Random, other: Path) -> str:
    """Change a digit, or exchange, repeat or drop a line."""
    lines = path.read_bytes().splitlines(keepends=True)
    if not lines:
        return in_bytes(path, draw, other)
    place, kind = draw.randrange(len(lines)), draw.choice(("digit", "drop", "repeat", "exchange"))
    digits = [at for at, byte in enumerate(lines[place]) if chr(byte).isdigit()]
    if kind == "digit" and digits:
        at, line = draw.choice(digits), bytearray(lines[place])
        line[at] = ord(draw.choice([sign for sign in "0123456789" if ord(sign) != line[at]]))
        lines[place] = bytes(line)
    elif kind == "drop":
        del lines[place]
    elif kind == "repeat":
        lines.insert(place, lines[place])
    else:
        second = draw.randrange(len(lines))
        lines[place], lines[second] = lines[second], lines[place]
    path.write_bytes(b"".join(lines))
    return f"{kind} in line {place + 1}"


def in_array(path: Path, draw: random.Random, other: Path) -> str:
    """Replace an array by another one, in a file of the same time."""
    before, array = path.stat(), np.load(path)
    if not isinstance(array, np.ndarray):
        return in_bytes(path, draw, other)
    flat, kind = array.reshape(-1), draw.choice(("number", "nan", "order", "cut", "type", "huge"))
    place = draw.randrange(flat.size)
    if kind in ("number", "nan", "huge"):
        flat[place] = {"number": flat[place] + 1, "nan": np.nan, "huge": 1e38}[kind]
    elif kind == "order":
        array = array[::-1].copy()
    elif kind == "cut":
        array = array[:-1]
    else:
        array = array.astype(draw.choice(("int64", "float64", "float16", "complex64", "U8")))
    np.save(path, array)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return f"{kind} at {place}"


def in_kind(path: Path, draw: random.Random, other: Path) -> str:
    """Replace a file by what is no regular file, or by a huge one."""
    path.unlink()
    kind = draw.choice(("pipe", "device", "sparse", "loop", "nowhere"))
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "sparse":
        with path.open("wb") as file:
            file.truncate(20 << 30)
    else:
        path.symlink_to({"device": "/dev/zero", "loop": path.name, "nowhere": "nothing"}[kind])
    return kind


def mutated(subject: Subject, folder: Path, draw: random.Random) -> str:
    """Make one change in a copy of a subject and return its description."""
    found = {path for pattern in subject.files for path in folder.glob(pattern) if path.is_file()}
    paths = sorted(found)
    path = draw.choice(paths)
    other = draw.choice([one for one in paths if one != path] or [path])
    ways = [in_bytes, in_files, *[in_kind] * (not subject.stored)]
    if path.suffix in (".json", ".jsonl") and (subject.stored or path.name != "metrics.jsonl"):
        ways += [in_json] * 4 if subject.stored else [in_json, in_text] * 2
    elif path.suffix == ".safetensors" and subject.stored:
        ways += [in_tensors] * 4
    elif path.suffix in (".csv", ".shard"):
        ways += [in_text] * 4
    elif path.suffix == ".npy":
        ways += [in_array] * 4
    elif path.name == "metrics.jsonl":  # its numbers are not sealed
        path.write_text("\n".join(path.read_text().splitlines()[: draw.randrange(2)]))
        return f"{path.relative_to(folder)}: shortened"
    return f"{path.relative_to(folder)}: {draw.choice(ways)(path, draw, other)}"


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise `Hang` after some seconds."""

    def stop(*_: object) -> None:
        raise Hang

    old = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def used(answer: Answer, folder: Path) -> tuple[str, str, Remarks]:
    """Use a folder; return how it ended, with the result or the reason, and the remarks."""
    remarks: Remarks = []
    try:
        with limited(SECONDS), np.errstate(all="ignore"), heard(remarks):
            result = answer(folder, remarks)
    except CefitoError as problem:
        return ("TRACEBACK" if "\n" in str(problem) else "refused"), str(problem), remarks
    except Hang:
        return "HANG", "", remarks
    except Exception:
        return "TRACEBACK", traceback.format_exc(), remarks
    if wrong := [remark for remark in remarks if "defect of the program" in remark]:
        return "TRACEBACK", wrong[0], remarks
    return "done", result, remarks


def tried(subject: Subject, expected: str, number: int, seed: int) -> Outcome:
    """Mutate a copy of a subject and return the outcome."""
    draw = random.Random(f"{seed}/{number}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(shutil.copytree(subject.folder, Path(place) / "copy"))
        change = mutated(subject, folder, draw)
        if subject.anew is not None:
            work = Path(shutil.copytree(folder, Path(place) / "anew", symlinks=True, ignore=pipes))
            shutil.rmtree(work / "plans.jsonl.parts", ignore_errors=True)
            ended, expected, _ = used(subject.anew, work)
            if ended in BAD:
                return Outcome(number, subject.name, change, ended, expected)
        ended, detail, remarks = used(subject.answer, folder)
        if ended == "done":
            told = bool(remarks) and not subject.stored
            ended = "same" if detail == expected else "reported" if told else "SILENT"
            if subject.answer.__qualname__.startswith("of_inputs"):
                ended = "refused" if remarks else "same"
            detail = "; ".join(remarks)
        elif ended == "refused" and subject.stored:
            named = str(folder) in detail or detail.startswith("query ")
            ended = "refused" if named else "UNNAMED"
    return Outcome(number, subject.name, change, ended, detail)


def pipes(folder: str, names: list[str]) -> list[str]:
    """Names of pipes and large files, which are not copied."""
    paths = {name: Path(folder) / name for name in names}
    return [
        name
        for name, path in paths.items()
        if path.is_fifo() or (path.is_file() and path.stat().st_size > 1 << 30)
    ]


def run(subjects: list[Subject], numbers: range, seed: int) -> Iterator[Outcome]:
    """Yield the outcomes of mutations of all subjects in turn."""
    expected = []
    for subject in subjects:
        with tempfile.TemporaryDirectory() as place:
            copy = Path(shutil.copytree(subject.folder, Path(place) / "copy"))
            ended, result, remarks = used(subject.answer, copy)
            assert (ended, remarks) == ("done", []), (subject.name, result, remarks)
            expected.append(result)
    for number in numbers:
        which = number % len(subjects)
        yield tried(subjects[which], expected[which], number, seed)
