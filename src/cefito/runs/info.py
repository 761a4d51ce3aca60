"""Content of `run.json`: a typed record, read and written here alone."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, ValidationError

from cefito.data.prepared import PreparedDataset
from cefito.data.windows import Selection
from cefito.errors import RunError
from cefito.files import read_json, write_json
from cefito.settings import Record
from cefito.training.trainer import TrainingResult

__all__ = ["RUN_FILE", "DatasetReference", "RunInfo", "StartReference", "observed_as", "versions"]

RUN_FILE = "run.json"


class DatasetReference(Record):
    """The data set of a run.

    Attributes:
        name: Its name.
        path: Its folder in training; empty for imported weights.
        fingerprint: Its fingerprint; empty for imported weights.
        observed: How its observations were made, if known.
        simulation: How they were simulated, if they were.
    """

    name: str
    path: str
    fingerprint: str
    observed: dict[str, Any] | None = None
    simulation: dict[str, Any] | None = None

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
    """The run that a finetuned one began with.

    Attributes:
        folder: Its folder.
        dataset: Data set that it was trained on.
        seed: Seed of its training; None for imported weights.
        weights: SHA-256 over the files of its planner.
        replay: Data set whose windows were mixed in, if any.
        new_tasks: Tasks that were added to its vocabulary.
        new_actions: Actions that were added.
    """

    folder: str
    dataset: DatasetReference
    seed: int | None
    weights: str
    replay: DatasetReference | None = None
    new_tasks: int = 0
    new_actions: int = 0


class RunInfo(Record):
    """Content of `run.json`; entries that were never set are left out.

    Attributes:
        format_version: 1.
        method: Name of the method.
        dataset: Data set that it was trained on.
        horizon: T.
        seed: Seed of everything drawn; None for imported weights.
        selection: Where epochs and weights were chosen; None for imported weights.
        preset: Name of the preset.
        config: Sections of settings that its method reads.
        versions: Versions of the software that it was made with.
        finished: Whether the training has ended.
        windows: Number of windows of each split that was used.
        parameters: Number of parameters of each network, by its name.
        training: Result of the training of each network, by its name.
        tasks_without_training: Tasks without training windows, for planners that keep to the
            actions of a task.
        imported: Files that weights were imported from.
        started_from: The run that it began with, if it was finetuned.
    """

    format_version: Literal[1] = 1
    method: str = "cefito"
    dataset: DatasetReference
    horizon: int
    seed: int | None
    selection: Selection | None = "held-out"
    preset: str
    config: dict[str, Any]
    versions: dict[str, str] = Field(default_factory=dict)
    finished: bool = False
    windows: dict[str, int] = Field(default_factory=dict)
    parameters: dict[str, int] = Field(default_factory=dict)
    training: dict[str, TrainingResult] = Field(default_factory=dict)
    tasks_without_training: tuple[int, ...] = ()
    imported: dict[str, Any] | None = None
    started_from: StartReference | None = None

    @classmethod
    def read(cls, folder: Path) -> RunInfo:
        """Read it from a run folder.

        Raises:
            RunError: Missing, damaged, or of another version.
        """
        path = folder / RUN_FILE
        value = read_json(path, "Expected a run folder as cefito train makes it.", RunError)
        newer = value.get("format_version") if isinstance(value, dict) else None
        if type(newer) is int and newer > 1:
            raise RunError(
                f"{path}: format_version {newer} was written by a newer cefito; this one reads 1. "
                "Update cefito."
            )
        try:
            # as JSON: a list is a tuple, but 3.0 and "3" are not whole numbers
            return cls.model_validate_json(json.dumps(value), strict=True)
        except ValidationError as problem:
            first = problem.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "the whole"
            raise RunError(
                f"{path}: not a run of this version ({place}: {first['msg']}). Train it again."
            ) from problem

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
