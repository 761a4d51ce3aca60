"""Training into run folders, for one horizon or several; a killed training can be resumed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import torch

from cefito.data.prepared import PreparedDataset
from cefito.data.windows import Windows, fitting_windows, joined_windows
from cefito.errors import CefitoError, ConfigError, RunError
from cefito.locks import LOCK_FILE, is_leftover, locked
from cefito.parts.folder import (
    RUN_FILE,
    DatasetReference,
    RunInfo,
    TrainedVideos,
    check_manifest,
    folders_for,
    versions,
    window_sizes,
)
from cefito.planners.base import Fitted, Planner
from cefito.planners.methods import METHODS, RunConfig, default_parts, find_method, methods_with
from cefito.progress import prefixed
from cefito.recognition.methods import RECOGNISERS
from cefito.recognition.settings import RecogniserConfig
from cefito.runs.options import TrainArguments, TrainOptions
from cefito.runs.run import Run, open_run
from cefito.runs.start import Start
from cefito.runtime import check_seed, pick_device
from cefito.training.checkpoint import CHECKPOINT
from cefito.training.trackers import check_tracker
from cefito.training.trainer import TrainingContext
from cefito.verification.settings import VerifierConfig
from cefito.verification.verifier import Verifier


@torch.random.fork_rng(devices=[])  # networks that are built draw from the global generator
def train_run(
    dataset: PreparedDataset,
    folder: Path | str,
    *,
    config: RunConfig,
    horizon: int,
    shortest: int | None = None,
    start: Start | None = None,
    options: TrainOptions | None = None,
    **changes: Unpack[TrainArguments],
) -> Run:
    """Train a planner into a run folder, or resume where a killed training stopped.

    Args:
        dataset: The data set.
        folder: The run folder; made if absent.
        config: The method and its settings.
        horizon: T.
        shortest: Train one run for all lengths from this one to T; None for T alone.
        start: Start of a finetuning; see `cefito.runs.finetune.finetune`.
        options: Seed, device and the rest; `TrainOptions` by default.
        changes: Fields of the options that differ.

    Raises:
        ConfigError: A seed that the generators cannot take, no such method, or a tracker that is
            not installed.
        DataError: A split gives no windows.
        RunError: The folder holds something else, or a run with another data set, settings or seed,
            or another training works there.
    """
    options = TrainOptions.of(options, changes)
    seed, device = options.seed, pick_device(str(options.device or "cpu"))
    check_seed(seed)
    check_tracker(options.track)
    folder, shared = Path(folder), None if options.trainings is None else Path(options.trainings)
    planner = find_method(config.method).planner
    if shortest is not None and not planner.abilities.any_length:
        raise ConfigError(
            f"{config.method} plans one number of steps; of the methods only "
            f"{methods_with('any_length')} plans several.",
            setting="steps",
        )
    facts: dict[str, Any] = {"selection": options.selection, "errors": options.errors}
    info = new_info(dataset, config=config, horizon=horizon, shortest=shortest, options=options)
    parts = {*options.parts} if shortest is not None else set()
    if dataset.rows_digest is None:
        parts -= {"recogniser"}
    if "recogniser" in parts:
        rows = info.dataset.model_copy(update={"rows": dataset.rows_digest})
        info = info.model_copy(update={"dataset": rows})
    train, val = fitting_windows(dataset, **window_sizes(planner, horizon, shortest), **facts)
    if start is not None:
        info = info.model_copy(update={"started_from": start.reference()})
        train, val = start.roles(train, val)
    with locked(folder, "a training", wait=options.reuse):
        check_run_folder(folder, info)
        if options.reuse and (folder / RUN_FILE).exists() and RunInfo.read(folder).finished:
            kept = open_run(folder, device=device)
            if kept.recogniser is not None or "recogniser" not in parts:
                return kept
        fresh = not (folder / RUN_FILE).exists()  # a finished one stays
        if fresh:
            info.write(folder)
        unusual = "".join(one for one in facts.values() if one not in ("held-out", "keep"))
        unusual += "".join(f"{name}={value}" for name, value in info.options.items())
        context = TrainingContext(
            device=device,
            folder=shared or folder,
            shared=shared is not None,
            key=dataset.fingerprint + unusual + _begun(info) + METHODS.code(config.method),
            progress=options.progress,
            workers=options.workers if str(device) == "cpu" else 1,
            track=options.track,
        )
        fit = planner.fit if start is None else start.run.planner.refit
        try:
            fitted = fit(train, val, settings=config.settings, seed=seed, context=context)
        except CefitoError:
            if fresh:
                _withdraw(folder)
            raise
        others = _fit_parts(dataset, config, seed, context, parts)
        if "verifier" in others and start is not None and start.run.verifier is not None:
            others["verifier"] = others["verifier"].continued(start.run.verifier)
        seen = TrainedVideos.of if start is None else start.videos
        learned = joined_windows(train, val) if fitted.all_videos else train
        made = Run(
            folder=folder,
            planner=fitted.planner,
            info=_finished(info, fitted, train, val),
            config=config,
            taxonomy=train.taxonomy,
            videos=seen(dataset, learned, val),
            **others,
        )
        written = made.written()
        if not (shared or options.keep_checkpoints):
            _forget(folder)
        return written


def _forget(folder: Path) -> None:
    """Remove what killed trainings go on from."""
    for pattern in (f"*/{CHECKPOINT}", "recogniser/*.safetensors", "verifier/*.safetensors"):
        for path in folder.glob(pattern):
            path.unlink()


def _fit_parts(
    dataset: PreparedDataset,
    config: RunConfig,
    seed: int,
    context: TrainingContext,
    names: Collection[str],
) -> dict[str, Any]:
    """Train parts of a run beside its planner, by their names, on videos that are not test."""
    chosen = [place for place, video in enumerate(dataset.videos) if video.split != "test"]
    context = replace(context, key=context.key + (dataset.rows_digest or ""))
    parts: dict[str, Any] = {}
    if "recogniser" in names:
        settings = config.parts.get("recogniser") or RecogniserConfig()
        parts["recogniser"] = RECOGNISERS.named(settings.method).kind.fit(
            dataset, chosen, config=settings, seed=seed, context=context.part("recogniser")
        )
    if "verifier" in names:
        films = parts["recogniser"].films if "recogniser" in parts else {}
        parts["verifier"] = Verifier.fit(
            [dataset.videos[place] for place in chosen],
            dataset.taxonomy,
            config=config.parts.get("verifier") or VerifierConfig(),
            seed=seed,
            context=context.part("verifier"),
            films={dataset.videos[place].video_id: film for place, film in films.items()},
        )
    return parts


def _withdraw(folder: Path) -> None:
    """Remove the files of a training that was refused before its first step."""
    inside = sorted(folder.rglob("*"), reverse=True)
    if any(path.is_file() and path.name not in (RUN_FILE, LOCK_FILE) for path in inside):
        return
    (folder / RUN_FILE).unlink(missing_ok=True)
    for path in inside:
        if path.is_dir():
            path.rmdir()


def _whole(folder: Path) -> bool:
    """Whether a folder holds a finished run whose files are as they were written."""
    with suppress(RunError):
        return RunInfo.read(folder).finished and bool(check_manifest(folder, (RUN_FILE,)))
    return False


def _begun(info: RunInfo) -> str:
    """Digest of the weights that a run began with; empty for a fresh one."""
    return "" if info.started_from is None else info.started_from.weights


def new_info(
    dataset: PreparedDataset,
    *,
    config: RunConfig,
    horizon: int,
    options: TrainOptions,
    shortest: int | None = None,
) -> RunInfo:
    """Return the record of a run before its training; arguments as in `train_run`."""
    package = METHODS.package(config.method)
    name = None if package is None else package[0]
    entries = {"seed": options.seed, "selection": options.selection, **options.recorded}
    others = {name: entries.pop(name) for name in entries.keys() - RunInfo.model_fields.keys()}
    return RunInfo(
        format_version=1,
        method=config.method,
        **({} if name is None else {"package": name, "code": METHODS.code(config.method)}),
        dataset=DatasetReference.of(dataset),
        horizon=horizon,
        **({} if shortest is None else {"shortest": shortest}),
        **entries,
        **({"options": others} if others else {}),
        preset=config.preset,
        config=config.sections,
        versions=versions(name),
        finished=False,
    )


def _finished(info: RunInfo, fitted: Fitted[Planner], train: Windows, val: Windows) -> RunInfo:
    """The record of a run after its training."""
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


def check_run_folder(folder: Path | str, info: RunInfo) -> None:
    """Check that a training may write into a folder, without writing."""
    folder = Path(folder)
    if not (folder / RUN_FILE).exists():
        if folder.is_dir() and not all(map(is_leftover, folder.iterdir())):
            raise RunError(f"{folder}: is not empty and holds no run. Choose another folder.")
        return
    old = RunInfo.read(folder)
    for key, ours, theirs in (
        ("method", info.method, old.method),
        ("dataset", info.dataset.fingerprint, old.dataset.fingerprint),
        ("timeline", info.dataset.rows or old.dataset.rows, old.dataset.rows or info.dataset.rows),
        ("horizon", info.horizon, old.horizon),
        ("range of steps", info.shortest, old.shortest),
        ("seed", info.seed, old.seed),
        ("selection", info.selection, old.selection),
        ("choice of windows with errors", info.errors, old.errors),
        ("option of its training", info.options, old.options),
        ("start", _begun(info), _begun(old)),
        ("code of its package", old.code and info.code, old.code),
        ("config", info.config, {**_absent(info, old), **old.config}),
    ):
        if ours != theirs:
            raise RunError(
                f"{folder}: holds a run with another {key}, which cannot be resumed with this one. "
                "Choose another folder or remove it."
            )


def _absent(info: RunInfo, old: RunInfo) -> dict[str, Any]:
    """The default settings of parts that a run of an earlier version does not name."""
    absent = info.config.keys() - old.config.keys()
    return {name: values for name, values in default_parts(info.method).items() if name in absent}


def train_runs(
    dataset: PreparedDataset,
    folder: Path | str,
    *,
    configs: Mapping[int, RunConfig],
    shortest: int | None = None,
    each: Callable[[Run, bool], None] | None = None,
    options: TrainOptions | None = None,
    **changes: Unpack[TrainArguments],
) -> dict[int, Run]:
    """Train planners for several horizons, or resume where a killed training stopped.

    Several runs are written to T3, T4, … of the folder, a single one to the folder itself. Finished
    runs are opened and not trained again, unless their files were damaged. Arguments are checked
    before the first training begins; they are those of `train_run`, with the settings of each
    horizon, by T and all of one method, in `configs`. `each` is called with every run as soon as it
    is finished, and whether it was trained now. Return the runs, by T.

    Raises:
        ConfigError: No horizon, or as `train_run`.
        DataError: A split gives no windows.
        RunError: A folder holds something else, or a run with another data set, settings or seed.
    """
    folder, options = Path(folder), TrainOptions.of(options, changes)
    if not configs:
        raise ConfigError("no horizon to train; expected one or more.", setting="horizon")
    facts: dict[str, Any] = {"selection": options.selection, "errors": options.errors}
    folders = folders_for(folder, configs)
    several = folders != dict.fromkeys(configs, folder)
    if several:
        check_seed(options.seed)
        for horizon in {min(configs), max(configs)}:
            fitting_windows(dataset, horizon=horizon, **facts)
        for horizon, place in folders.items():
            config = configs[horizon]
            info = new_info(dataset, config=config, horizon=horizon, options=options)
            check_run_folder(place, info)
    runs, progress = {}, options.progress
    for horizon, place in folders.items():
        finished = _whole(place)
        runs[horizon] = train_run(
            dataset,
            place,
            config=configs[horizon],
            horizon=horizon,
            shortest=shortest,
            options=options,
            progress=prefixed(progress, f"T = {horizon}") if several else progress,
            reuse=finished,
        )
        if each is not None:
            each(runs[horizon], not finished)
    return runs
