"""Mutate stored files at random and judge each outcome; to be run nightly.

The subjects are a tiny data set, runs of several methods, a killed training's checkpoint and the
trials of a study. Each mutation copies a subject, changes a bit, a field, a tensor or a file, and
uses the copy. It must be refused with a `CefitoError` that names the file or the query, or make no
difference:

    python tests/robustness/mutations.py --count 2000

prints the number of each outcome and all faults; `--only NUMBER` repeats one mutation.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import random
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cefito.data.prepared import open_dataset
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.data.windows import cut_windows
from cefito.errors import CefitoError
from cefito.files import load_tensors, write_tensors
from cefito.planners.methods import load_config
from cefito.planners.queries import Queries
from cefito.runs.run import open_run
from cefito.runs.train import train_run
from cefito.study.results import gather
from cefito.study.running import run_study
from cefito.study.study import Study
from cefito.study.trials import find_rows
from cefito.training import trainer

METHODS = ("cefito", "frequent", "nearest", "chain", "pkg", "viterbi", "pdpp", "kepp", "schema")
_EIGHT = "field.action_dim chain.hidden chain.width chain.emission viterbi.hidden viterbi.width"
_EIGHT += " schema_model.hidden schema_model.width"
_ONCE = "training chain_training pkg.training viterbi.training schema_model.training pdpp.training"
_ONCE += " kepp.step.training kepp.plan.training classifier_training"
SMALL: dict[str, Any] = {
    **dict.fromkeys(_EIGHT.split(), 8),
    **{f"{part}.optimiser.epochs": 1 for part in _ONCE.split()},
    "field.width": 16,
    "field.depth": 1,
    "field.heads": 2,
    "training.negatives.count": 4,
    "training.stopping.windows": 5,
    "training.stopping.candidates": 20,
    "classifier.hidden": [8, 8, 8],
    "classifier_training.optimiser.epochs": 3,
    "chain.members": 2,
    "search.fitting_windows": 5,
    "search.task_model": "classifier",
    "pkg.network.hidden": [8, 8],
    "schema_model.heads": 2,
    "pdpp.widths": [8, 16, 32],
    "kepp.folds": 2,
    **{key: [8] for key in ("kepp.step.widths", "kepp.plan.widths")},
    **dict.fromkeys(("pdpp.sampling", "kepp.step.sampling", "kepp.plan.sampling"), 2),
}
SECONDS = 60  # time limit of an answer
BAD = ("unnamed", "different", "broken", "hung")


class Hang(BaseException):
    """An answer took too long; not an `Exception`, so that nothing else catches it."""


@dataclass(frozen=True)
class Subject:
    """A folder to mutate."""

    name: str
    folder: Path
    files: tuple[str, ...]  # to mutate, below the folder
    answer: Callable[[Path], str]  # uses a folder and returns a digest of the result
    expected: str  # the digest without a mutation


@dataclass(frozen=True)
class Outcome:
    """The outcome of a mutation."""

    number: int
    subject: str
    change: str
    ended: str  # refused, same, reported, or a fault
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


def of_dataset(folder: Path) -> str:
    """Digest the windows, name and fingerprint of a data set."""
    data = open_dataset(folder)
    test = cut_windows(data, horizon=3, split="test")
    parts = (test.initial, test.goal, test.actions, test.tasks, test.video)
    return digest(data.name, data.fingerprint, data.provenance, data.taxonomy, *parts)


def of_run(queries: Queries) -> Callable[[Path], str]:
    """Digest the plans and the description of a run."""

    def answer(folder: Path) -> str:
        run = open_run(folder)
        parts: list[Any] = []
        for plans in run.planner.plan(queries, 3):
            names = [run.taxonomy.names(row) for row in plans.actions]
            parts += [plans.actions, plans.energies, plans.scores, plans.exact, names]
        return digest(run.horizon, run.method, run.info.dataset.name, *parts)

    return answer


def of_training(dataset: Any) -> Callable[[Path], str]:
    """Digest the weights of a killed training after it is continued."""

    def answer(folder: Path) -> str:
        train_run(dataset, folder, config=config("frequent"), horizon=3, seed=0)
        return digest((folder / "classifier.safetensors").read_bytes())

    return answer


def of_study(study: Study) -> Callable[[Path], str]:
    """Digest the results of a study."""

    def answer(folder: Path) -> str:
        results = gather(replace(study, out=folder))
        for trial in results.trials:
            if (error := getattr(trial, "error", None)) is not None:
                raise CefitoError(f"{folder}: {error}")
        return digest(results.to_dict())

    return answer


def config(method: str) -> Any:
    """Settings of the smallest networks."""
    return load_config("small", method=method, overrides=SMALL, shared=True)


class KilledError(Exception):
    """Stops a training."""


@contextmanager
def killed_after(steps: int) -> Iterator[None]:
    """Stop trainings after some steps."""
    whole, left = trainer._Training._step, [steps]

    def step(self: Any, *rest: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise KilledError
        return whole(self, *rest)

    trainer._Training._step = step  # type: ignore[method-assign]
    try:
        yield
    except KilledError:
        pass
    finally:
        trainer._Training._step = whole  # type: ignore[method-assign]


def make(root: Path, methods: tuple[str, ...] = METHODS) -> list[Subject]:
    """Make all subjects below a folder."""
    data = write_world(root / "data", knobs=WorldKnobs(train=24, val=12, test=12, dim=8))
    queries = Queries.from_windows(cut_windows(data, horizon=3, split="test")).subset(range(4))
    subjects = [
        _subject("data set", data.folder, sorted(p.name for p in data.folder.iterdir()), of_dataset)
    ]
    for method in methods:
        run = train_run(data, root / method, config=config(method), horizon=3, seed=0)
        names = sorted(path.name for path in run.folder.iterdir() if path.is_file())
        subjects.append(_subject(f"run of {method}", run.folder, names, of_run(queries)))
    killed = root / "killed"
    with killed_after(5):
        train_run(data, killed, config=config("frequent"), horizon=3, seed=0)
    files = ["classifier/checkpoint.safetensors", "classifier/metrics.jsonl"]
    subjects.append(_subject("checkpoint", killed, files, of_training(data)))
    rows = find_rows(["nearest", "frequent"])
    study = Study(
        dataset=data, out=root / "study", rows=rows, horizons=(2, 3), seeds=(0,), settings=SMALL
    )
    problems = run_study(study)
    assert not problems, problems
    found = study.out.glob("T*/seed*/trials/*.json")
    trials = sorted(str(path.relative_to(study.out)) for path in found)
    subjects.append(_subject("trials", study.out, trials, of_study(study)))
    return subjects


def _subject(name: str, folder: Path, files: list[str], answer: Callable[[Path], str]) -> Subject:
    with tempfile.TemporaryDirectory() as place:  # an answer may change the folder
        expected = answer(Path(shutil.copytree(folder, Path(place) / "copy")))
    return Subject(name, folder, tuple(files), answer, expected)


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
    name = draw.choice(subject.files)
    path = folder / name
    others = [folder / other for other in subject.files if other != name]
    others = [other for other in others if other.exists()] or [path]
    ways = [in_bytes, in_files]
    if path.suffix in (".json", ".jsonl"):
        ways += [in_json] * 4
    if path.suffix == ".safetensors":
        ways += [in_tensors] * 4
    return f"{name}: {draw.choice(ways)(path, draw, draw.choice(others))}"


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


def tried(subject: Subject, number: int, seed: int) -> Outcome:
    """Mutate a copy of a subject and return the outcome."""
    draw = random.Random(f"{seed}/{number}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(shutil.copytree(subject.folder, Path(place) / "copy"))
        change = mutated(subject, folder, draw)
        ended, detail = "same", ""
        try:
            with limited(SECONDS), np.errstate(all="ignore"):
                found = subject.answer(folder)
            if found != subject.expected:
                ended = "different"
        except CefitoError as problem:
            named = str(folder) in str(problem) or str(problem).startswith("query ")
            ended = "refused" if named else "unnamed"
            detail = str(problem).replace(str(folder), "")
            if "\n" in detail:
                ended = "broken"
        except Hang:
            ended = "hung"
        except Exception:
            ended, detail = "broken", traceback.format_exc()
    return Outcome(number, subject.name, change, ended, detail)


def run(subjects: list[Subject], numbers: range, seed: int) -> Iterator[Outcome]:
    """Yield the outcomes of mutations of all subjects in turn."""
    for number in numbers:
        yield tried(subjects[number % len(subjects)], number, seed)


def report(
    about: str,
    make: Callable[[Path], list[Any]],
    run: Callable[[list[Any], range, int], Iterator[Outcome]],
    bad: Sequence[str],
) -> int:
    """Mutate as the command line says; print faults and the number of each outcome.

    The exit code is 1 if there was a fault.
    """
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="number of the one mutation to repeat")
    given = parser.parse_args()
    torch.set_num_threads(1)
    alone = given.only is not None
    numbers = range(given.only, given.only + 1) if alone else range(given.count)
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as place:
        for outcome in run(make(Path(place)), numbers, given.seed):
            counts[outcome.subject, outcome.ended] += 1
            if alone or outcome.ended in bad:
                detail = outcome.detail if alone else outcome.detail[-500:]
                said = f"{outcome.number} {outcome.subject}: {outcome.ended}: {outcome.change}"
                sys.stdout.write(f"{said}\n{detail}\n")
                sys.stdout.flush()
    for (subject, ended), count in sorted(counts.items()):
        sys.stdout.write(f"{subject:28} {ended:10} {count}\n")
    faults = sum(count for (_, ended), count in counts.items() if ended in bad)
    sys.stdout.write(f"{sum(counts.values())} mutations, {faults} faults\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(report(__doc__ or "", make, run, BAD))
