"""A run folder: a trained planner with all that is needed to repeat it.

run.json                  data set (name, place, fingerprint), horizon, seed, versions, how the trainings went
planner.json              settings, action space, taxonomy, weights of the objectives
field.safetensors         weights of the energy field; classifier.safetensors of the task classifier, proposal.safetensors of
                          the proposal network
prior.safetensors         counts of the prior over sequences
classifier/, proposal/, field/   metrics.jsonl, TensorBoard events and checkpoint of each training
evaluation-*.json         scores, as `cefito evaluate` writes them
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cefito.data.observations import check_seed
from cefito.data.prepared import PreparedDataset, open_dataset
from cefito.data.windows import cut_windows
from cefito.errors import DataError, RunError
from cefito.files import read_json, write_json
from cefito.planners.cefito import CefitoPlanner
from cefito.progress import Progress, silent
from cefito.training.config import RunConfig
from cefito.training.distributed import Processes

__all__ = ["Run", "open_run", "pick_device", "train_run"]

_FILE = "run.json"


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        folder: Where it lies.
        planner: The trained planner.
        info: Content of `run.json`.
    """

    folder: Path
    planner: CefitoPlanner
    info: dict[str, Any]

    def dataset(self, path: Path | None = None) -> PreparedDataset:
        """The data set the run was trained on, from where it lay then or from `path`.

        Raises:
            RunError: It is not there any more, or it is another one.
            DataError: It cannot be opened.
        """
        place = path or Path(self.info["dataset"]["path"])
        if path is None and not place.exists():
            raise RunError(f"{self.folder}: its data set is no longer at {place}. Say where it is with --dataset.")
        dataset = open_dataset(place)
        if dataset.fingerprint != self.info["dataset"]["fingerprint"]:
            raise RunError(f"{self.folder}: was made with another data set than {place} ('{dataset.name}', fingerprint "
                           f"{dataset.fingerprint[:12]}…; the run has {self.info['dataset']['fingerprint'][:12]}…). "
                           "Give the one it was trained on, or train a new run.")
        return dataset


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
        raise RunError("device 'cuda' was asked for, but PyTorch sees no GPU here. Use --device cpu.")
    return device


def train_run(dataset: PreparedDataset, folder: Path, *, config: RunConfig, horizon: int, seed: int,
              device: torch.device | None = None, progress: Progress = silent, group: Processes | None = None) -> Run:
    """Train task classifier, proposal network and field into a run folder, or go on where a killed training stopped.

    Args:
        dataset: The data set; trained on its training split, chosen on its validation split.
        folder: The run folder; made where absent.
        config: All settings.
        horizon: T.
        seed: Seed of everything drawn.
        device: Where to train.
        progress: Shows progress.
        group: The processes that train together; the first one writes.

    Raises:
        ConfigError: A seed that the generators cannot take.
        DataError: A split gives no windows.
        RunError: The folder holds something else, or a run with another data set, settings or seed.
    """
    check_seed(seed)
    group = group or Processes()
    info: dict[str, Any] = {
        "format_version": 1,
        "dataset": {"name": dataset.name, "path": str(dataset.folder.resolve()), "fingerprint": dataset.fingerprint},
        "horizon": horizon, "seed": seed, "preset": config.preset, "config": config.model_dump(mode="json"),
        "versions": {"cefito": version("cefito"), "torch": torch.__version__, "numpy": np.__version__,
                     "python": platform.python_version()}}
    train = cut_windows(dataset, horizon=horizon, split="train")
    val = cut_windows(dataset, horizon=horizon, split="val")
    _claim(folder, info)
    group.wait()
    if group.first and not (folder / _FILE).exists():  # a finished run stays one until its files are replaced
        write_json(folder / _FILE, {**info, "finished": False})
    planner = CefitoPlanner(config=config, device=device or torch.device("cpu"), folder=folder, key=dataset.fingerprint,
                            progress=progress, group=group)
    planner.fit(train, val, seed=seed)
    assert planner.result is not None
    assert planner.task_model.result is not None
    assert planner.field is not None
    assert planner.space is not None
    assert planner.proposal.result is not None
    results = {"classifier": planner.task_model.result, "proposal": planner.proposal.result, "field": planner.result}
    info |= {
        "finished": True, "windows": {"train": len(train), "val": len(val)},
        "parameters": planner.field.predictor.parameter_count(), "tasks_without_training": list(planner.space.fallback),
        "training": {name: vars(result) for name, result in results.items()}}
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
        for key in ("dataset", "horizon", "seed", "config"):
            ours, theirs = info[key], old.get(key)
            if key == "dataset" and isinstance(theirs, dict):
                ours, theirs = ours["fingerprint"], theirs.get("fingerprint")
            if ours != theirs:
                raise RunError(f"{folder}: holds a run with another {key}, which cannot be resumed with this one. Choose "
                               "another folder or remove it.")
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder}: is not empty and holds no run. Choose another folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise RunError(f"{folder}: cannot be made ({problem.strerror}).") from problem


def open_run(folder: Path | str, *, device: torch.device | None = None, progress: Progress = silent) -> Run:
    """Open a finished run.

    Raises:
        RunError: No run, an unfinished one, or damaged files.
    """
    folder = Path(folder)
    info = read_json(folder / _FILE, "Expected a run folder as cefito train makes it.", RunError)
    if not isinstance(info, dict) or not info.get("finished"):
        raise RunError(f"{folder}: its training has not finished. Go on with it by the same cefito train command.")
    try:
        config = RunConfig.model_validate(info["config"])
        info["dataset"]["fingerprint"], info["dataset"]["path"], info["seed"], info["preset"]
    except (KeyError, TypeError, ValueError, DataError) as problem:
        raise RunError(f"{folder / _FILE}: not a run of this version ({problem!r}). Train it again.") from problem
    planner = CefitoPlanner(config=config, device=device or torch.device("cpu"), progress=progress)
    planner.load(folder)
    return Run(folder=folder, planner=planner, info=info)
