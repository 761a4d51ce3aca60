"""A run folder: a trained planner with all that is needed to repeat it.

run.json                  `RunInfo`: method, data set, settings, versions, how trainings went
taxonomy.json             tasks and actions
videos.json               ids of the videos that it was trained on, and that epochs were chosen on
*.safetensors, *.json     what the planner saves
manifest.json             SHA-256 of all these, compared on opening
classifier/, field/, …    metrics.jsonl, TensorBoard events and checkpoint of each training
evaluation-*.json         scores, as `cefito evaluate` writes them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from cefito.data.prepared import PreparedDataset, open_dataset
from cefito.data.taxonomy import Taxonomy
from cefito.errors import CefitoError, DataError, RunError
from cefito.files import read_json, write_json
from cefito.notebook import Folded, card
from cefito.planners.base import Planner
from cefito.planners.context import TrainingContext
from cefito.planners.registry import find_method
from cefito.planners.settings import run_config
from cefito.runs.bundle import local_folder
from cefito.runs.consistency import check_fit
from cefito.runs.folders import chosen_run, horizons_in
from cefito.runs.info import RUN_FILE, RunInfo
from cefito.runs.manifest import check_manifest, recorded
from cefito.runs.trained_videos import TrainedVideos
from cefito.search.settings import SearchConfig
from cefito.settings import Settings, flattened, validated

__all__ = [
    "Run",
    "method_settings",
    "open_run",
    "taxonomy_of_run",
    "write_run",
]

_TAXONOMY = "taxonomy.json"


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        folder: Where it lies.
        planner: The trained planner.
        info: Content of `run.json`.
        taxonomy: Tasks and actions that it knows.
    """

    folder: Path
    planner: Planner
    info: RunInfo
    taxonomy: Taxonomy

    def __repr__(self) -> str:
        return (
            f"Run({self.method!r}, T = {self.horizon}, data set {self.info.dataset.name!r}, in "
            f"{str(self.folder)!r})"
        )

    def _repr_html_(self) -> str:
        info = self.info
        return card(
            f"Run of {self.planner.name}, T = {self.horizon}",
            {
                "method": self.method,
                "data set": info.dataset.name,
                "fingerprint": info.dataset.fingerprint or "imported weights",
                "preset": info.preset,
                "seed": "none" if info.seed is None else info.seed,
                "epochs and weights chosen on": info.selection or "not told",
                "learned numbers": sum(self.planner.describe().parameters.values()),
                "folder": self.folder,
            },
            [
                Folded(
                    "Settings",
                    ("setting", "value"),
                    list(flattened(method_settings(info) or info.config).items()),
                )
            ],
        )

    @property
    def method(self) -> str:
        """Name of the planner's method."""
        return self.info.method

    @property
    def horizon(self) -> int:
        """T that it was trained for."""
        return self.info.horizon

    @property
    def settings(self) -> Settings:
        """All settings that its method reads, of the method's own class of settings.

        Raises:
            RunError: They are not those of this version.
        """
        found = _settings(self.info)
        if found is None:
            raise RunError(
                f"{self.folder / RUN_FILE}: its settings are not those of this version. Train it "
                "again."
            )
        return found

    @property
    def trained_search(self) -> SearchConfig | None:
        """Settings of the search that it was trained with; None where its method has no search."""
        if not self.planner.abilities.search:
            return None
        return validated(SearchConfig, self.info.config.get("search", {}), place=str(self.folder))

    def with_search(self, settings: SearchConfig) -> Run:
        """The run with a planner that searches in another way; this one stays as it is.

        Raises:
            ConfigError: Its planner has no search to choose.
        """
        return replace(self, planner=self.planner.with_search(settings))

    def dataset(self, path: Path | str | None = None) -> PreparedDataset:
        """The data set the run was trained on, from where it lay then, or any other at `path`.

        Whether the run can be used on it, `cefito.runs.matching.match_dataset` says.

        Raises:
            RunError: No path is given, and it is not there any more or has changed since; or the
                weights are imported and have none.
            DataError: It cannot be opened.
        """
        trained = self.info.dataset
        if path is not None:
            return open_dataset(path)
        if not trained.fingerprint:
            raise RunError(
                f"{self.folder}: was imported and has no data set of its own. Name one of the same "
                "tasks and actions.",
                setting="dataset",
            )
        place = Path(trained.path)
        if not (trained.path and place.exists()):
            raise RunError(
                f"{self.folder}: its data set is no longer at {trained.path or 'hand'}. Say where "
                "it is.",
                setting="dataset",
            )
        dataset = open_dataset(place)
        if dataset.fingerprint != trained.fingerprint:
            raise RunError(
                f"{self.folder}: was trained on another data set than the one that is at {place} "
                f"now ('{dataset.name}', fingerprint {dataset.fingerprint[:12]}…; the run has "
                f"{trained.fingerprint[:12]}…). Name the one that is meant, this one or another.",
                setting="dataset",
            )
        return dataset


def write_run(run: Run, videos: TrainedVideos | None = None) -> None:
    """Write all files of a run into its folder, which exists, and their manifest.

    Args:
        run: The run.
        videos: What it was trained on; None where that is not known.
    """
    with recorded(run.folder):
        if videos is not None:
            videos.write(run.folder)
        run.planner.save(run.folder)
        write_json(run.folder / _TAXONOMY, run.taxonomy.to_dict())
        run.info.write(run.folder)


def method_settings(info: RunInfo) -> Mapping[str, Any] | None:
    """The settings that a run's method reads; None where they are not those of this version."""
    found = _settings(info)
    return None if found is None else found.model_dump(mode="json")


def _settings(info: RunInfo) -> Settings | None:
    try:
        return run_config(info.config, place=RUN_FILE).settings(find_method(info.method).settings)
    except CefitoError:
        return None


def open_run(
    folder: Path | str, *, horizon: int | None = None, device: torch.device | None = None
) -> Run:
    """Open a finished run: a run folder, a zip archive of one, or `hub:USER/NAME`.

    Args:
        folder: A run folder, or one that holds runs of several horizons (`train_runs`).
        horizon: T of the run; may be left out where there is one run only.
        device: Where it plans; the CPU by default.

    Raises:
        RunError: No run, none of this horizon, several and no horizon, an unfinished one, damaged
            files, or files that have changed since they were written or do not fit each other.
    """
    folder = chosen_run(local_folder(folder), horizon)
    check_manifest(folder, (RUN_FILE, _TAXONOMY))
    info = RunInfo.read(folder)
    if horizon not in (None, info.horizon):
        raise RunError(
            f"{folder}: plans {info.horizon} actions, not {horizon}. Leave the horizon out, or "
            "train a run of this one.",
            setting="horizon",
        )
    if not info.finished:
        raise RunError(
            f"{folder}: its training has not finished. Go on with it by the same cefito train "
            "command."
        )
    try:
        entry = find_method(info.method)
        settings = run_config(info.config, place="config").settings(entry.settings)
    except CefitoError as problem:
        raise RunError(
            f"{folder / RUN_FILE}: not a run of this version ({str(problem).rstrip('.')}). Train "
            "it again."
        ) from problem
    context = TrainingContext(device=device or torch.device("cpu"))
    planner = entry.planner.load(folder, settings=settings, context=context)
    taxonomy = _taxonomy(folder, info)
    check_fit(planner, info, taxonomy, folder=folder)
    return Run(folder=folder, planner=planner, info=info, taxonomy=taxonomy)


def _taxonomy(folder: Path, info: RunInfo) -> Taxonomy:
    """The taxonomy of a run; of runs of earlier versions, which hold none, that of the data set."""
    path, planner = folder / _TAXONOMY, folder / "planner.json"
    if not path.exists() and planner.exists():  # an earlier run of CEFITO
        value = read_json(planner, "Train the run again.", RunError)
        return Taxonomy.from_dict(value.get("taxonomy"), place=str(planner))
    if not path.exists() and info.dataset.path:
        path = Path(info.dataset.path) / _TAXONOMY
    try:
        return Taxonomy.read(path)
    except DataError as problem:
        raise RunError(
            f"{problem} The run {folder} needs it: copy the taxonomy.json of its data set there, "
            "or train it again."
        ) from problem


def taxonomy_of_run(folder: Path | str) -> Taxonomy:
    """Tasks and actions of a run, or of runs of several horizons, without loading weights.

    Raises:
        RunError: No run, or it has no taxonomy.
    """
    folder = Path(folder)
    folder = next(iter(horizons_in(folder).values()), folder)
    return _taxonomy(folder, RunInfo.read(folder))
