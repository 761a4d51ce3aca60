"""A run folder: a trained planner with all that is needed to repeat it.

run.json                  method, data set (name, place, fingerprint), horizon, seed, selection,
                          settings, versions, how the trainings went
planner.json              of CEFITO: settings, action space, taxonomy, weights of the objectives
*.safetensors, *.json     what the planner saves: of CEFITO field.safetensors (the energy field),
                          classifier.safetensors, proposal.safetensors, and prior.safetensors
                          (counts of the prior over sequences)
classifier/, field/, …    metrics.jsonl, TensorBoard events and checkpoint of each training
evaluation-*.json         scores, as `cefito evaluate` writes them
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, overload

import numpy as np
import torch

from cefito.data.prepared import PreparedDataset, open_dataset
from cefito.data.taxonomy import Taxonomy
from cefito.data.windows import Selection, check_selection, fitting_windows
from cefito.errors import ConfigError, DataError, RunError
from cefito.files import read_json, write_json
from cefito.planners.base import Planner
from cefito.planners.cefito.planner import CefitoPlanner
from cefito.planners.networks import TrainingContext
from cefito.planners.registry import find_method, make_planner
from cefito.planners.settings import RunConfig
from cefito.progress import Progress, silent
from cefito.runtime import check_seed
from cefito.training.distributed import Processes

__all__ = ["Run", "open_run", "pick_device", "train_run"]

_FILE = "run.json"


AnyPlanner = TypeVar("AnyPlanner")


@dataclass(frozen=True)
class Run(Generic[AnyPlanner]):
    """A finished run.

    Attributes:
        folder: Where it lies.
        planner: The trained planner; a `CefitoPlanner` unless the run is of another method.
        info: Content of `run.json`.
    """

    folder: Path
    planner: AnyPlanner
    info: dict[str, Any]

    @property
    def method(self) -> str:
        """Name of the planner's method."""
        return str(self.info.get("method", "cefito"))

    @property
    def horizon(self) -> int:
        """T that it was trained for."""
        return int(self.info["horizon"])

    def dataset(self, path: Path | None = None) -> PreparedDataset:
        """The data set the run was trained on, from where it lay then or from `path`.

        Imported weights have none of their own: they take any at `path` that names tasks and
        actions as they do.

        Raises:
            RunError: It is not there any more, or it is another one; or none is named for imported
                weights.
            DataError: It cannot be opened.
        """
        if not self.info["dataset"]["fingerprint"]:
            return self._other_dataset(path)
        place = path or Path(self.info["dataset"]["path"])
        if path is None and not place.exists():
            raise RunError(
                f"{self.folder}: its data set is no longer at {place}. Say where it is with "
                "--dataset."
            )
        dataset = open_dataset(place)
        if dataset.fingerprint != self.info["dataset"]["fingerprint"]:
            raise RunError(
                f"{self.folder}: was made with another data set than {place} ('{dataset.name}', "
                "fingerprint "
                f"{dataset.fingerprint[:12]}…; the run has "
                f"{self.info['dataset']['fingerprint'][:12]}…). "
                "Give the one it was trained on, or train a new run."
            )
        return dataset

    def _other_dataset(self, path: Path | None) -> PreparedDataset:
        """A data set for imported weights, whose ids mean what those of the run mean."""
        if path is None:
            raise RunError(
                f"{self.folder}: was imported and has no data set of its own. Name one of the "
                "same tasks and "
                "actions with --dataset."
            )
        planner, dataset = self.planner, open_dataset(path)
        assert isinstance(planner, CefitoPlanner)
        assert planner.taxonomy is not None
        for own, other in zip_longest(
            _named(planner.taxonomy), _named(dataset.taxonomy), fillvalue="nothing"
        ):
            if own != other:
                raise RunError(
                    f"{path}: its tasks and actions are not those that {self.folder} was imported "
                    f"with: {other} "
                    f"instead of {own}. Give another data set, or import with the taxonomy.json "
                    "of this one."
                )
        return dataset


def _named(taxonomy: Taxonomy) -> list[str]:
    """All tasks and actions, with their ids."""
    return [
        *(f"task {task.id} '{task.name}'" for task in taxonomy.tasks),
        *(f"action {action.id} '{action.name}'" for action in taxonomy.actions),
    ]


def pick_device(name: str = "auto") -> torch.device:
    """A device by its name; "auto" takes CUDA where there is one.

    Raises:
        RunError: CUDA is asked for and absent, or the name is unknown.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as problem:
        raise RunError(f"unknown device '{name}'; expected auto, cpu or cuda.") from problem
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RunError(
            "device 'cuda' was asked for, but PyTorch sees no GPU here. Use --device cpu."
        )
    return device


@overload
def train_run(
    dataset: PreparedDataset,
    folder: Path,
    *,
    config: RunConfig,
    horizon: int,
    seed: int,
    method: Literal["cefito"] = "cefito",
    selection: Selection = "held-out",
    device: torch.device | None = None,
    progress: Progress = silent,
    group: Processes | None = None,
    trainings: Path | None = None,
    reuse: bool = False,
) -> Run[CefitoPlanner]: ...


@overload
def train_run(
    dataset: PreparedDataset,
    folder: Path,
    *,
    config: RunConfig,
    horizon: int,
    seed: int,
    method: str,
    selection: Selection = "held-out",
    device: torch.device | None = None,
    progress: Progress = silent,
    group: Processes | None = None,
    trainings: Path | None = None,
    reuse: bool = False,
) -> Run[Planner]: ...


def train_run(
    dataset: PreparedDataset,
    folder: Path,
    *,
    config: RunConfig,
    horizon: int,
    seed: int,
    method: str = "cefito",
    selection: Selection = "held-out",
    device: torch.device | None = None,
    progress: Progress = silent,
    group: Processes | None = None,
    trainings: Path | None = None,
    reuse: bool = False,
) -> Run[Any]:
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

    Raises:
        ConfigError: A seed that the generators cannot take, or no such method.
        DataError: A split gives no windows.
        RunError: The folder holds something else, or a run with another data set, settings or seed.
    """
    check_seed(seed)
    group, found = group or Processes(), find_method(method)
    info: dict[str, Any] = {
        "format_version": 1,
        "method": method,
        "dataset": {
            "name": dataset.name,
            "path": str(dataset.folder.resolve()),
            "fingerprint": dataset.fingerprint,
            "observed": dataset.provenance.get("observed"),
        },
        "horizon": horizon,
        "seed": seed,
        "selection": selection,
        "preset": config.preset,
        "config": config.model_dump(mode="json"),
        "versions": {
            "cefito": version("cefito"),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }
    train, val = fitting_windows(dataset, horizon=horizon, selection=selection)
    check_selection(train, val, selection)
    _claim(folder, {**info, "config": found.settings(config)})
    if reuse and _finished(folder):
        return open_run(folder, device=device, progress=progress)
    group.wait()
    if (
        group.first and not (folder / _FILE).exists()
    ):  # a finished run stays one until its files are replaced
        write_json(folder / _FILE, {**info, "finished": False})
    planner = make_planner(
        method,
        config=config,
        context=TrainingContext(
            device=device or torch.device("cpu"),
            folder=trainings or folder,
            shared=trainings is not None,
            key=dataset.fingerprint + ("" if selection == "held-out" else selection),
            progress=progress,
            group=group,
        ),
    )
    planner.fit(train, val, seed=seed)
    info |= {
        "finished": True,
        "windows": {"train": len(train), "val": len(val)},
        "parameters": dict(planner.parameters),
        "training": {name: vars(result) for name, result in planner.results.items()},
    }
    if isinstance(planner, CefitoPlanner):
        assert planner.space is not None
        info |= {"tasks_without_training": list(planner.space.fallback)}
    if group.first:
        planner.save(folder)
        write_json(folder / _FILE, info)
    group.wait()
    return Run(folder=folder, planner=planner, info=info)


def _claim(folder: Path, info: dict[str, Any]) -> None:
    """Make the folder, or see that it holds a run of the very same settings."""
    path = folder / _FILE
    if path.exists():
        old = read_json(path, "Remove the folder to train anew.", RunError)
        if not isinstance(old, dict):
            raise RunError(f"{path}: not a run of this version. Remove the folder to train anew.")
        old = {"method": "cefito", "selection": "held-out", **old}
        for key in ("method", "dataset", "horizon", "seed", "selection", "config"):
            ours, theirs = info[key], old.get(key)
            if key == "dataset" and isinstance(theirs, dict):
                ours, theirs = ours["fingerprint"], theirs.get("fingerprint")
            if key == "config":
                theirs = _settings(theirs, old["method"])
            if ours != theirs:
                raise RunError(
                    f"{folder}: holds a run with another {key}, which cannot be resumed with this "
                    "one. Choose "
                    "another folder or remove it."
                )
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder}: is not empty and holds no run. Choose another folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise RunError(f"{folder}: cannot be made ({problem.strerror}).") from problem


def _finished(folder: Path) -> bool:
    return (folder / _FILE).exists() and bool(
        read_json(folder / _FILE, "", RunError).get("finished")
    )


def _settings(value: Any, method: str) -> dict[str, Any] | None:
    """The settings that a run of some method depends on.

    None where they are not those of this version.
    """
    try:
        return find_method(method).settings(RunConfig.model_validate(value))
    except ValueError:
        return None


def open_run(
    folder: Path | str, *, device: torch.device | None = None, progress: Progress = silent
) -> Run[Any]:
    """Open a finished run.

    Raises:
        RunError: No run, an unfinished one, or damaged files.
    """
    folder = Path(folder)
    info = read_json(folder / _FILE, "Expected a run folder as cefito train makes it.", RunError)
    if not isinstance(info, dict) or not info.get("finished"):
        raise RunError(
            f"{folder}: its training has not finished. Go on with it by the same cefito train "
            "command."
        )
    try:
        config = RunConfig.model_validate(info["config"])
        info["dataset"]["fingerprint"], info["dataset"]["path"], info["seed"], info["preset"]
    except (KeyError, TypeError, ValueError, DataError) as problem:
        raise RunError(
            f"{folder / _FILE}: not a run of this version ({problem!r}). Train it again."
        ) from problem
    try:
        planner = make_planner(
            info.get("method", "cefito"),
            config=config,
            context=TrainingContext(device=device or torch.device("cpu"), progress=progress),
        )
    except ConfigError as problem:
        raise RunError(
            f"{folder / _FILE}: not a run of this version ({problem}). Train it again."
        ) from problem
    planner.load(folder)
    return Run(folder=folder, planner=planner, info=info)
