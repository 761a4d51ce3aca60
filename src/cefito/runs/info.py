"""Content of `run.json`: a typed record, read and written here alone."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field

from cefito.data.prepared import PreparedDataset
from cefito.data.windows import Selection
from cefito.errors import RunError
from cefito.files import read_json, write_json
from cefito.settings import Record, read_record
from cefito.training.trainer import TrainingResult

__all__ = ["RUN_FILE", "DatasetReference", "RunInfo", "StartReference", "observed_as", "versions"]

RUN_FILE = "run.json"
_REMEDY = "Remove the folder and train it again."


class DatasetReference(Record):
    """The data set of a run."""

    name: str
    path: str  # empty for imported weights
    fingerprint: str  # empty for imported weights
    observed: dict[str, Any] | None = None  # how its observations were made, if known
    simulation: dict[str, Any] | None = None  # how they were simulated, if they were

    @classmethod
    def of(cls, dataset: PreparedDataset) -> DatasetReference:
        """Describe an opened data set."""
        simulation = observed_as(dataset).get("simulation")
        return cls(
            name=dataset.name,
            path=str(dataset.folder.resolve()),
            fingerprint=dataset.fingerprint,
            observed=dataset.provenance.get("observed"),
            **({} if simulation is None else {"simulation": simulation}),
        )

    def made(self) -> dict[str, Any]:
        """Return how its observations were made, in the form of `observed_as`."""
        simulated = {} if self.simulation is None else {"simulation": self.simulation}
        return {**(self.observed or {}), **simulated}


class StartReference(Record):
    """The run that a finetuned one began with."""

    folder: str
    dataset: DatasetReference  # data set that it was trained on
    seed: int | None  # None for imported weights
    weights: str  # SHA-256 over the files of its planner
    replay: DatasetReference | None = None  # data set whose windows were mixed in, if any
    new_tasks: int = 0  # added to its vocabulary
    new_actions: int = 0


class RunInfo(Record):
    """Content of `run.json`; entries that were never set are left out."""

    format_version: Literal[1] = 1
    method: str = "cefito"
    dataset: DatasetReference  # data set that it was trained on
    horizon: int
    seed: int | None  # None for imported weights, as the selection
    selection: Selection | None = "held-out"
    preset: str
    config: dict[str, Any]  # sections of settings that its method reads
    versions: dict[str, str] = Field(default_factory=dict)
    finished: bool = False
    windows: dict[str, int] = Field(default_factory=dict)  # by split
    parameters: dict[str, int] = Field(default_factory=dict)  # by network
    training: dict[str, TrainingResult] = Field(default_factory=dict)  # by network
    tasks_without_training: tuple[int, ...] = ()  # if plans keep to the actions of a task
    imported: dict[str, Any] | None = None  # files that weights were imported from
    started_from: StartReference | None = None  # if it was finetuned

    @classmethod
    def read(cls, folder: Path) -> RunInfo:
        """Read it from a run folder."""
        path = folder / RUN_FILE
        value = read_json(path, "Expected a run folder as cefito train makes it.", RunError)
        newer = value.get("format_version") if isinstance(value, dict) else None
        if type(newer) is int and newer > 1:
            said = f"format_version {newer} was written by a newer cefito; this one reads 1"
            raise RunError(f"{path}: {said}. Update cefito.")
        return read_record(cls, value, f"{path}: not a run of this version", _REMEDY)

    def write(self, folder: Path) -> None:
        """Write it into a run folder."""
        write_json(folder / RUN_FILE, self.model_dump(mode="json", exclude_unset=True))


def observed_as(dataset: PreparedDataset) -> dict[str, Any]:
    """Return how the observations of a data set were made; empty if unknown.

    `seconds` and `features` if made from videos, `simulation` if simulated: all that decides how an
    action looks, apart from the choice of videos.
    """
    made = dict(dataset.provenance.get("observed") or {})
    if dataset.provenance.get("observations") == "simulated":
        knobs = dataset.provenance.get("knobs") or {}
        made["simulation"] = {
            "seed": dataset.provenance.get("seed"),
            "knobs": knobs.get("observations", knobs) if isinstance(knobs, dict) else knobs,
        }
    return made


def versions() -> dict[str, str]:
    """Return the versions of the software that a run is made with."""
    return {
        "cefito": version("cefito"),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
