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
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from cefito.data.prepared import PreparedDataset, open_dataset
from cefito.data.taxonomy import Taxonomy
from cefito.data.windows import (
    Selection,
    Windows,
    check_selection,
    fitting_windows,
    with_between,
)
from cefito.errors import CefitoError, DataError, RunError
from cefito.files import read_json, write_json
from cefito.locks import LOCK_FILE, is_leftover, locked
from cefito.notebook import Folded, card
from cefito.planners.base import Fitted, Planner
from cefito.planners.networks import TrainingContext
from cefito.planners.registry import find_method
from cefito.planners.runs.bundle import local_folder
from cefito.planners.runs.fit_check import check_fit
from cefito.planners.runs.folders import chosen_run, horizons_in
from cefito.planners.runs.info import RUN_FILE, DatasetReference, RunInfo, versions
from cefito.planners.runs.manifest import check_manifest, recorded
from cefito.planners.runs.trained_videos import TrainedVideos
from cefito.planners.settings import RunConfig, run_config
from cefito.precision import with_precision
from cefito.progress import Progress, silent
from cefito.runtime import check_seed
from cefito.search.settings import SearchConfig
from cefito.settings import Frozen, flattened, validated
from cefito.training.distributed import Processes
from cefito.training.tracking import check_tracker

if TYPE_CHECKING:
    from cefito.planners.runs.finetune import Start

__all__ = [
    "Run",
    "check_run_folder",
    "finished_run",
    "new_info",
    "open_run",
    "taxonomy_of_run",
    "train_run",
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
    def settings(self) -> Frozen:
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

        Whether the run can be used on it, `cefito.planners.runs.matching.match_dataset` says.

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


def train_run(
    dataset: PreparedDataset,
    folder: Path | str,
    *,
    config: RunConfig,
    horizon: int,
    seed: int,
    method: str = "cefito",
    selection: Selection = "held-out",
    device: torch.device | None = None,
    progress: Progress = silent,
    group: Processes | None = None,
    trainings: Path | str | None = None,
    reuse: bool = False,
    tracker: str = "tensorboard",
    start: Start | None = None,
) -> Run:
    """Train a planner into a run folder, or go on where a killed training stopped.

    Args:
        dataset: The data set.
        folder: The run folder; made where absent.
        config: All settings; the planner uses those of its method.
        horizon: T.
        seed: Seed of everything drawn.
        method: Name of the method, as in `cefito.planners.registry`.
        selection: Where epochs and weights are chosen: on the validation split, or on test as
            published work does.
        device: Where to train.
        progress: Shows progress.
        group: The processes that train together; the first one writes.
        trainings: Where checkpoints and metrics go, shared with other runs so that equal trainings
            are done once; the run folder by default.
        reuse: Open a finished run of the same settings that lies there, instead of repeating the
            end of its training.
        tracker: Who shows the metrics of the trainings: tensorboard, where it is installed, wandb,
            trackio, or none.
        start: What a finetuning begins with; see `cefito.planners.runs.finetune.finetune`.

    Raises:
        ConfigError: A seed that the generators cannot take, or no such method or tracker.
        DataError: A split gives no windows.
        RunError: The folder holds something else, or a run with another data set, settings or seed,
            or another training works there.
    """
    check_seed(seed)
    folder, trainings = Path(folder), None if trainings is None else Path(trainings)
    check_tracker(tracker)
    group, entry = group or Processes(), find_method(method)
    info = new_info(
        dataset, config=config, horizon=horizon, seed=seed, method=method, selection=selection
    )
    if start is not None:
        info = info.model_copy(update={"started_from": start.reference()})
    cut = fitting_windows if start is None else start.windows
    train, val = cut(dataset, horizon=horizon, selection=selection)
    check_selection(train, val, selection)
    if entry.planner.abilities.true_between:
        train, val = with_between(dataset, train), with_between(dataset, val)
    with locked(folder, "a training") if group.first else nullcontext():
        check_run_folder(folder, info)
        if reuse and (folder / RUN_FILE).exists() and RunInfo.read(folder).finished:
            return open_run(folder, device=device)
        group.wait()
        fresh = group.first and not (folder / RUN_FILE).exists()  # a finished one stays
        if fresh:
            info.write(folder)
        context = TrainingContext(
            device=device or torch.device("cpu"),
            folder=trainings or folder,
            shared=trainings is not None,
            key=dataset.fingerprint + ("" if selection == "held-out" else selection) + _begun(info),
            progress=progress,
            group=group,
            tracker=tracker,
        )
        settings = config.settings(entry.settings)
        fit = entry.planner.fit if start is None else start.run.planner.refit
        try:
            fitted = fit(train, val, settings=settings, seed=seed, context=context)
        except CefitoError:
            if fresh:
                _withdraw(folder)
            raise
        run = Run(
            folder=folder,
            planner=fitted.planner,
            info=_finished(info, fitted, train, val),
            taxonomy=train.taxonomy,
        )
        if group.first:
            seen = TrainedVideos.of if start is None else start.videos
            write_run(run, seen(dataset, train, val))
        group.wait()
        return run


def _withdraw(folder: Path) -> None:
    """Remove what a training has written that was refused before it learned anything."""
    inside = sorted(folder.rglob("*"), reverse=True)
    if any(path.is_file() and path.name not in (RUN_FILE, LOCK_FILE) for path in inside):
        return
    (folder / RUN_FILE).unlink(missing_ok=True)
    for path in inside:
        if path.is_dir():
            path.rmdir()


def finished_run(
    folder: Path,
    *,
    fingerprint: str,
    config: RunConfig,
    horizon: int,
    seed: int,
    method: str = "cefito",
    selection: Selection = "held-out",
) -> Run | None:
    """The run of these very settings that lies in a folder; None where there is no whole one.

    Args:
        folder: The run folder.
        fingerprint: Of the data set.
        config: All settings.
        horizon: T.
        seed: Seed of everything drawn.
        method: Name of the method.
        selection: Where epochs and weights were chosen.
    """
    if not (folder / RUN_FILE).exists():
        return None
    try:
        info = RunInfo.read(folder)
        if not info.finished or info.started_from is not None:
            return None
        asked = info.model_copy(update={"config": config.model_dump(mode="json")})
        info = _as_asked(info, asked)
        same = (info.method, info.dataset.fingerprint, info.horizon, info.seed, info.selection) == (
            method,
            fingerprint,
            horizon,
            seed,
            selection,
        ) and method_settings(asked) == method_settings(info)
        return open_run(folder) if same else None
    except CefitoError:  # whoever trains into the folder is told, or mends it
        return None


def _begun(info: RunInfo) -> str:
    """What a run began with, as far as it determines its weights; nothing of a fresh one."""
    begun = info.started_from
    if begun is None:
        return ""
    return begun.weights + ("" if begun.replay is None else begun.replay.fingerprint)


def new_info(
    dataset: PreparedDataset,
    *,
    config: RunConfig,
    horizon: int,
    seed: int,
    method: str,
    selection: Selection,
) -> RunInfo:
    """What is known of a run before its training begins; arguments as in `train_run`."""
    return RunInfo(
        format_version=1,
        method=method,
        dataset=DatasetReference.of(dataset),
        horizon=horizon,
        seed=seed,
        selection=selection,
        preset=config.preset,
        config=config.model_dump(mode="json"),
        versions=versions(),
        finished=False,
    )


def _finished(info: RunInfo, fitted: Fitted[Planner], train: Windows, val: Windows) -> RunInfo:
    """What is known of a run once its training has ended."""
    description = fitted.planner.describe()
    entries: dict[str, Any] = {
        "finished": True,
        "windows": {"train": len(train), "val": len(val)},
        "parameters": description.parameters,
        "training": dict(fitted.trainings),
    }
    if description.actions_from is not None:
        entries["tasks_without_training"] = description.tasks_without_training
    return info.model_copy(update=entries)


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


def check_run_folder(folder: Path | str, info: RunInfo) -> None:
    """See that a training may write into a folder, without writing.

    Args:
        folder: The run folder.
        info: What is known of the run before it is trained.

    Raises:
        RunError: The folder holds something else, or a run of other settings.
    """
    folder = Path(folder)
    path = folder / RUN_FILE
    if path.exists():
        try:
            old = RunInfo.read(folder)
        except RunError as problem:
            raise RunError(
                f"{path}: not a run of this version. Remove the folder to train anew."
            ) from problem
        for key, ours, theirs in (
            ("method", info.method, old.method),
            ("dataset", info.dataset.fingerprint, old.dataset.fingerprint),
            ("horizon", info.horizon, old.horizon),
            ("seed", info.seed, old.seed),
            ("selection", info.selection, old.selection),
            ("start", _begun(info), _begun(old)),
            ("config", method_settings(info), method_settings(_as_asked(old, info))),
        ):
            if ours != theirs:
                raise RunError(
                    f"{folder}: holds a run with another {key}, which cannot be resumed with this "
                    "one. Choose another folder or remove it."
                )
        return
    if folder.is_dir() and not all(map(is_leftover, folder.iterdir())):
        raise RunError(f"{folder}: is not empty and holds no run. Choose another folder.")


def _as_asked(old: RunInfo, asked: RunInfo) -> RunInfo:
    """What is known of a run, where it says no precision with those that are asked for."""
    return old.model_copy(update={"config": with_precision(old.config, asked.config)})


def method_settings(info: RunInfo) -> Mapping[str, Any] | None:
    """The settings that a run's method reads; None where they are not those of this version."""
    found = _settings(info)
    return None if found is None else found.model_dump(mode="json")


def _settings(info: RunInfo) -> Frozen | None:
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
