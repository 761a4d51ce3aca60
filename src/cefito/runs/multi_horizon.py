"""Training for several horizons by one call, each into a run of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import torch

from cefito.data.prepared import PreparedDataset
from cefito.data.windows import Selection, fitting_windows
from cefito.errors import ConfigError
from cefito.planners.methods import RunConfig
from cefito.progress import Advance, Progress, silent
from cefito.runs.folders import folders_for
from cefito.runs.info import RUN_FILE, RunInfo
from cefito.runs.run import Run
from cefito.runs.train import check_run_folder, new_info, train_run
from cefito.runtime import Processes, check_seed

__all__ = ["train_runs"]


def train_runs(
    dataset: PreparedDataset,
    folder: Path | str,
    *,
    configs: Mapping[int, RunConfig],
    seed: int,
    selection: Selection = "held-out",
    device: torch.device | None = None,
    progress: Progress = silent,
    group: Processes | None = None,
    each: Callable[[Run, bool], None] | None = None,
    tracker: str = "tensorboard",
) -> dict[int, Run]:
    """Train planners for several horizons, or resume where a killed training stopped.

    Several runs are written to T3, T4, … of the folder, a single one to the folder itself. Among
    several, finished runs are opened and not trained again. Arguments are checked before the first
    training begins.

    Args:
        dataset: The data set.
        folder: Folder of the runs.
        configs: Settings of each horizon, by T, all of one method.
        seed: Seed of everything drawn, the same for all.
        selection: As in `train_run`.
        device: As in `train_run`.
        progress: As in `train_run`.
        group: As in `train_run`.
        each: Called with every run as soon as it is finished, and whether it was trained now.
        tracker: As in `train_run`.

    Returns:
        The runs, by T.

    Raises:
        ConfigError: No horizon, or as `train_run`.
        DataError: A split gives no windows.
        RunError: A folder holds something else, or a run with another data set, settings or seed.
    """
    folder = Path(folder)
    if not configs:
        raise ConfigError("no horizon to train; expected one or more.", setting="horizon")
    folders = folders_for(folder, configs)
    several = folders != dict.fromkeys(configs, folder)
    if several:
        check_seed(seed)
        for horizon in {min(configs), max(configs)}:
            fitting_windows(dataset, horizon=horizon, selection=selection)
        for horizon, place in folders.items():
            info = new_info(
                dataset,
                config=configs[horizon],
                horizon=horizon,
                seed=seed,
                selection=selection,
            )
            check_run_folder(place, info)
    runs = {}
    for horizon, place in folders.items():
        finished = several and (place / RUN_FILE).exists() and RunInfo.read(place).finished
        runs[horizon] = train_run(
            dataset,
            place,
            config=configs[horizon],
            horizon=horizon,
            seed=seed,
            selection=selection,
            device=device,
            progress=_named(progress, horizon) if several else progress,
            group=group,
            reuse=several,
            tracker=tracker,
        )
        if each is not None:
            each(runs[horizon], not finished)
    return runs


def _named(progress: Progress, horizon: int) -> Progress:
    """Progress whose descriptions name the horizon."""

    def named(description: str, *, total: int | None = None) -> AbstractContextManager[Advance]:
        return progress(f"T = {horizon}: {description}", total=total)

    return named
