"""Verification of a data set or a run on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cefito.data.prepared import open_dataset
from cefito.errors import CefitoError, RunError
from cefito.files import file_digest
from cefito.runs.folder import MANIFEST, RUN_FILE, horizons_in
from cefito.runs.run import Run, open_run
from cefito.training.log import incomplete, read_metrics


@dataclass(frozen=True)
class Checked:
    """Result of a check without errors."""

    kind: str  # "data set", "run" or "runs" (of several horizons)
    name: str
    files: dict[str, str]  # SHA-256 of each file that was compared or read
    facts: dict[str, str | int]
    notes: tuple[str, ...] = ()  # parts that could not be verified, and why

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"ok": True, **asdict(self), "notes": list(self.notes)}


def check(path: Path | str) -> Checked:
    """Verify a data set or a run completely."""
    path = Path(path)
    if (path / "dataset.json").exists():
        return _dataset(path)
    if several := horizons_in(path):
        return _runs(path, several)
    if (path / RUN_FILE).exists() or (path / MANIFEST).exists() or not path.is_dir():
        return _run(path)
    raise RunError(
        f"{path}: is neither a data set (dataset.json) nor a run ({RUN_FILE}). Name one."
    )


def _dataset(path: Path) -> Checked:
    dataset = open_dataset(path, verify=True)
    facts: dict[str, str | int] = {
        "fingerprint": dataset.fingerprint,
        "tasks": len(dataset.taxonomy.tasks),
        "actions": len(dataset.taxonomy.actions),
        "videos": len(dataset.videos),
        "observation size": dataset.observation_dim,
    }
    return Checked("data set", dataset.name, dict(dataset.hashes), facts)


def _run(path: Path) -> Checked:
    run = open_run(path)
    folder, files = run.folder, dict(run.files)
    for metrics in sorted(folder.glob("*/metrics.jsonl")):
        read_metrics(metrics)
        files[str(metrics.relative_to(folder))] = file_digest(metrics)
    description = run.planner.describe()
    facts: dict[str, str | int] = {
        "method": run.method,
        "horizon": run.horizon if run.shortest is None else run.steps,
        "data set": run.info.dataset.name,
        "tasks": len(run.taxonomy.tasks),
        "actions": len(run.taxonomy.actions),
        "observation size": run.planner.observation_dim,
        "parameters": sum(description.parameters.values()),
    }
    curves = (
        f"{place.name}/metrics.jsonl {found}; its curves are incomplete"
        for place in sorted(folder.glob("*"))
        if (found := incomplete(place))
    )
    return Checked("run", description.name, files, facts, (*curves, *_data_notes(run)))


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


def _data_notes(run: Run) -> list[str]:
    """Why the data set that a run was trained on could not be verified; perhaps nothing."""
    trained = run.info.dataset
    if not trained.fingerprint:
        return ["its weights were imported, so it has no data set of its own"]
    if not trained.path:
        return ["it was shared; its data set was left out"]
    if not Path(trained.path).exists():
        return [f"its data set is no longer at {trained.path}"]
    try:
        there = open_dataset(trained.path, verify=True)
    except CefitoError as problem:
        return [f"its data set cannot be opened: {problem}"]
    if there.fingerprint != trained.fingerprint:
        return [f"another data set is at {trained.path} now (fingerprint {there.fingerprint})"]
    return []
