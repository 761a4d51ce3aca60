"""Change stored files at random and judge what happens when they are used.

A subject is a folder and a way to use it. Each mutation copies a subject, changes one file and uses
the copy. An outcome is

- refused: a `CefitoError` in one line, which names the file or the query;
- same: the result without the mutation;
- UNNAMED: refused, and nothing says which file is at fault;
- SILENT: another result;
- TRACEBACK: another exception;
- HANG: no outcome in time.
"""

from __future__ import annotations

import copy
import hashlib
import json
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
Answer = Callable[[Path], str]
"""Use a folder; return a digest of the result."""


class Hang(BaseException):
    """An answer took too long; not an `Exception`, so that nothing else catches it."""


@dataclass(frozen=True)
class Subject:
    """A folder to mutate, all of whose files cefito wrote."""

    name: str
    folder: Path
    files: tuple[str, ...]  # patterns of the files to mutate
    answer: Answer


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


def mutated(subject: Subject, folder: Path, draw: random.Random) -> str:
    """Make one change in a copy of a subject and return its description."""
    found = {path for pattern in subject.files for path in folder.glob(pattern) if path.is_file()}
    paths = sorted(found)
    path = draw.choice(paths)
    other = draw.choice([one for one in paths if one != path] or [path])
    ways = [in_bytes, in_files]
    if path.suffix in (".json", ".jsonl"):
        ways += [in_json] * 4
    elif path.suffix == ".safetensors":
        ways += [in_tensors] * 4
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


def used(answer: Answer, folder: Path) -> tuple[str, str]:
    """Use a folder; return how it ended, with the result or the reason."""
    try:
        with limited(SECONDS), np.errstate(all="ignore"):
            return "done", answer(folder)
    except CefitoError as problem:
        return ("TRACEBACK" if "\n" in str(problem) else "refused"), str(problem)
    except Hang:
        return "HANG", ""
    except Exception:
        return "TRACEBACK", traceback.format_exc()


def tried(subject: Subject, expected: str, number: int, seed: int) -> Outcome:
    """Mutate a copy of a subject and return the outcome."""
    draw = random.Random(f"{seed}/{number}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(shutil.copytree(subject.folder, Path(place) / "copy"))
        change = mutated(subject, folder, draw)
        ended, detail = used(subject.answer, folder)
        if ended == "done":
            ended = "same" if detail == expected else "SILENT"
        elif ended == "refused":
            named = str(folder) in detail or detail.startswith("query ")
            ended = "refused" if named else "UNNAMED"
    return Outcome(number, subject.name, change, ended, detail)


def run(subjects: list[Subject], numbers: range, seed: int) -> Iterator[Outcome]:
    """Yield the outcomes of mutations of all subjects in turn."""
    expected = []
    for subject in subjects:
        with tempfile.TemporaryDirectory() as place:
            copy = Path(shutil.copytree(subject.folder, Path(place) / "copy"))
            ended, result = used(subject.answer, copy)
            assert ended == "done", (subject.name, result)
            expected.append(result)
    for number in numbers:
        which = number % len(subjects)
        yield tried(subjects[which], expected[which], number, seed)
