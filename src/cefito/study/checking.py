"""Checking what lies on a disk: a data set, a run or a study, whole and unchanged or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cefito.data.prepared import open_dataset
from cefito.errors import CefitoError, RunError
from cefito.evaluation.records import CellFile, FailureFile
from cefito.files import read_json
from cefito.hashes import file_digest
from cefito.runs.folders import horizons_in
from cefito.runs.info import RUN_FILE
from cefito.runs.manifest import MANIFEST, check_manifest
from cefito.runs.run import Run, open_run
from cefito.study.results import read_results
from cefito.training.log import read_metrics

__all__ = ["Checked", "check"]


@dataclass(frozen=True)
class Checked:
    """What was found whole.

    Attributes:
        kind: "data set", "run", "runs" (of several horizons) or "study".
        name: Its name.
        files: SHA-256 of each file that was compared or read, by its name in the folder.
        facts: What it says of itself, by name.
        notes: What could not be verified, and why.
    """

    kind: str
    name: str
    files: dict[str, str]
    facts: dict[str, str | int]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"ok": True, **asdict(self), "notes": list(self.notes)}


def check(path: Path | str) -> Checked:
    """Check a data set, a run or a study, whichever lies there: everything that can be, in full.

    Raises:
        DataError: A data set that is damaged or has changed.
        RunError: A run or a study that is damaged or has changed, or something else.
    """
    path = Path(path)
    if (path / "dataset.json").exists():
        return _dataset(path)
    if path.is_dir() and list(path.glob("T*/seed*/cells")):
        return _study(path)
    if several := horizons_in(path):
        return _runs(path, several)
    if (path / RUN_FILE).exists() or (path / MANIFEST).exists() or not path.is_dir():
        return _run(path)
    raise RunError(
        f"{path}: is no data set (dataset.json), no run ({RUN_FILE}) and no study "
        "(T3/seed0/cells). Name a folder that cefito made."
    )


def _dataset(path: Path) -> Checked:
    dataset = open_dataset(path, verify=True)
    notes = []
    if "sha256" not in read_json(path / "dataset.json", ""):
        notes.append(
            "dataset.json is of an earlier version and holds no hash of its own entries: name and "
            "provenance are believed"
        )
    facts: dict[str, str | int] = {
        "fingerprint": dataset.fingerprint,
        "tasks": len(dataset.taxonomy.tasks),
        "actions": len(dataset.taxonomy.actions),
        "videos": len(dataset.videos),
        "observation size": dataset.observation_dim,
    }
    return Checked("data set", dataset.name, dict(dataset.hashes), facts, tuple(notes))


def _run(path: Path) -> Checked:
    run = open_run(path)
    folder, notes = run.folder, []
    manifest = check_manifest(folder, (RUN_FILE,))
    if manifest is None:
        notes.append(
            f"the run is of an earlier version and has no {MANIFEST}: its files fit each other, "
            "but whether they have changed is not known"
        )
        names = (path.name for path in folder.iterdir() if path.is_file())
        files = {name: file_digest(folder / name) for name in sorted(names)}
    else:
        files = dict(manifest.files)
    for metrics in sorted(folder.glob("*/metrics.jsonl")):
        read_metrics(metrics)
        files[str(metrics.relative_to(folder))] = file_digest(metrics)
    notes += _of_its_data(run)
    description = run.planner.describe()
    facts: dict[str, str | int] = {
        "method": run.method,
        "horizon": run.horizon,
        "data set": run.info.dataset.name,
        "tasks": len(run.taxonomy.tasks),
        "actions": len(run.taxonomy.actions),
        "observation size": run.planner.observation_dim,
        "parameters": sum(description.parameters.values()),
    }
    return Checked("run", description.name, files, facts, tuple(notes))


def _runs(path: Path, several: Mapping[int, Path]) -> Checked:
    """The runs of several horizons in one folder."""
    found = {folder.name: _run(folder) for folder in several.values()}
    return Checked(
        "runs",
        path.name,
        {f"{name}/{file}": one.files[file] for name, one in found.items() for file in one.files},
        {f"{name}, {fact}": one.facts[fact] for name, one in found.items() for fact in one.facts},
        tuple(f"{name}: {note}" for name, one in found.items() for note in one.notes),
    )


def _of_its_data(run: Run) -> list[str]:
    """What is to be said of the data set that a run was trained on."""
    trained = run.info.dataset
    if not trained.fingerprint:
        return ["its weights were imported; it has no data set of its own"]
    if not trained.path:
        return ["it was shared; its data set was left out"]
    if not Path(trained.path).exists():
        return [f"its data set is no longer at {trained.path}"]
    try:
        there = open_dataset(trained.path, verify=True)
    except CefitoError as problem:
        return [f"its data set cannot be opened: {problem}"]
    if there.fingerprint != trained.fingerprint:
        return [f"another data set lies at {trained.path} now (fingerprint {there.fingerprint})"]
    return []


def _study(path: Path) -> Checked:
    files, scored, failed, notes = {}, 0, 0, []
    for place in sorted(path.glob("T*/seed*/cells/*.json")):
        value = read_json(place, CellFile.remedy, RunError)
        broken = isinstance(value, dict) and "error" in value
        record = (FailureFile if broken else CellFile).parse(value, place)
        if f"T{record.horizon}/seed{record.seed}/cells/{record.row}.json" != "/".join(
            place.parts[-4:]
        ):
            raise RunError(
                f"{place}: is the cell of {record.row}, T = {record.horizon}, seed {record.seed}. "
                f"{CellFile.remedy}"
            )
        scored, failed = scored + (not broken), failed + broken
        files[str(place.relative_to(path))] = file_digest(place)
        if "sha256" not in value:
            notes.append(f"{place.relative_to(path)} is of an earlier version and holds no hash")
    for place in sorted(path.glob("T*/seed*/runs/*")):
        open_run(place)
    if (path / "results.json").exists():
        read_results(path / "results.json")
        files["results.json"] = file_digest(path / "results.json")
    facts: dict[str, str | int] = {"cells with scores": scored, "cells with an error": failed}
    return Checked("study", path.name, files, facts, tuple(notes))
