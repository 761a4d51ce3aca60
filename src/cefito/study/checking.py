"""Verification of a data set, a run or a study on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cefito.data.prepared import open_dataset
from cefito.errors import CefitoError, RunError
from cefito.files import file_digest, read_json
from cefito.runs.folder import MANIFEST, RUN_FILE, horizons_in
from cefito.runs.run import Run, open_run
from cefito.study.results import RESULTS, Results
from cefito.study.trials import ScoredTrial, TrialFile, parse_trial
from cefito.training.log import incomplete, read_metrics


@dataclass(frozen=True)
class Checked:
    """Result of a check without errors."""

    kind: str  # "data set", "run", "runs" (of several horizons) or "study"
    name: str
    files: dict[str, str]  # SHA-256 of each file that was compared or read
    facts: dict[str, str | int]
    notes: tuple[str, ...] = ()  # parts that could not be verified, and why

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"ok": True, **asdict(self), "notes": list(self.notes)}


def check(path: Path | str) -> Checked:
    """Verify a data set, a run or a study completely."""
    path = Path(path)
    if (path / "dataset.json").exists():
        return _dataset(path)
    if path.is_dir() and list(path.glob("T*/seed*/trials")):
        return _study(path)
    if several := horizons_in(path):
        return _runs(path, several)
    if (path / RUN_FILE).exists() or (path / MANIFEST).exists() or not path.is_dir():
        return _run(path)
    raise RunError(
        f"{path}: is not a data set (dataset.json), a run ({RUN_FILE}) or a study "
        "(T3/seed0/trials). Name a folder that cefito made."
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
    files = dict(run.files)
    folder = run.folder
    files |= _metrics(folder, "*")
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
    notes = (*_curve_notes(folder, "*"), *_data_notes(run))
    return Checked("run", description.name, files, facts, notes)


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


def _metrics(folder: Path, pattern: str) -> dict[str, str]:
    """Read the metrics of the trainings in folders; return the SHA-256 of each file."""
    files = {}
    for metrics in sorted(folder.glob(f"{pattern}/metrics.jsonl")):
        read_metrics(metrics)
        files[str(metrics.relative_to(folder))] = file_digest(metrics)
    return files


def _curve_notes(folder: Path, pattern: str) -> list[str]:
    """Which metrics of trainings lack epochs."""
    return [
        f"{place.relative_to(folder)}/metrics.jsonl {found}; its curves are incomplete"
        for place in sorted(folder.glob(pattern))
        if (found := incomplete(place))
    ]


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


def _study(path: Path) -> Checked:
    files: dict[str, str] = {}
    scores: dict[Any, Any] = {}  # of each scored trial
    trials = sorted(path.glob("T*/seed*/trials/*.json"))
    for place in trials:
        record = parse_trial(read_json(place, TrialFile.remedy, RunError), place)
        if isinstance(record, TrialFile):
            scores[record.row, record.steps, record.seed] = record.metrics
        if f"T{record.steps}/seed{record.seed}/trials/{record.row}.json" != "/".join(
            place.parts[-4:]
        ):
            raise RunError(
                f"{place}: is the trial of {record.row}, T = {record.steps}, seed {record.seed}. "
                f"{TrialFile.remedy}"
            )
        files[str(place.relative_to(path))] = file_digest(place)
    for place in sorted(path.glob("T*/seed*/runs/*")):
        open_run(place)
    trainings = "T*/seed*/trainings/*"
    files |= _metrics(path, trainings)
    if (path / RESULTS).exists():
        for trial in Results.read(path / RESULTS).trials:
            kept = scores.get((trial.row, trial.steps, trial.seed))
            if isinstance(trial, ScoredTrial) and trial.metrics != kept:
                raise RunError(
                    f"{path / RESULTS}: the scores of {trial.row}, T = {trial.steps}, seed "
                    f"{trial.seed} are not those of its trial. {Results.remedy}"
                )
        files[RESULTS] = file_digest(path / RESULTS)
    facts: dict[str, str | int] = {
        "trials with scores": len(scores),
        "trials with an error": len(trials) - len(scores),
    }
    return Checked("study", path.name, files, facts, tuple(_curve_notes(path, trainings)))
