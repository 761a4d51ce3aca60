"""The library once, in minutes: train, plan, compare.

The whole method on a small simulated world, or its chain on real videos of a kitchen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from cefito.data.downloads import download, find_places
from cefito.data.prepared import PreparedDataset, open_dataset
from cefito.data.readers.captaincook4d import prepare_captaincook4d
from cefito.data.simulation.world import write_world
from cefito.data.windows import Windows, cut_windows
from cefito.errors import DataError, RunError
from cefito.evaluation.plan_files import WindowPlans, window_plans
from cefito.evaluation.records import Evaluation
from cefito.evaluation.score import evaluate_planner
from cefito.planners.methods import RunConfig, find_method, load_config, method_settings
from cefito.progress import Progress, silent
from cefito.runs.run import Run
from cefito.runs.train import train_run
from cefito.training.trainer import TrainingContext

HORIZON = 3
EXAMPLES = 3
REAL = "captaincook4d"
"""Download of the real videos."""
SIMPLE = ("nearest", "frequent")  # methods that are compared with


@dataclass(frozen=True)
class Quickstart:
    """Results of the quickstart."""

    folder: Path
    run: Run
    evaluations: list[Evaluation]  # of the run, the run with the true task, and `SIMPLE`
    examples: list[WindowPlans]


def run_quickstart(
    folder: Path, *, seed: int = 0, config: RunConfig | None = None, progress: Progress = silent
) -> Quickstart:
    """Make the simulated world, train on it, plan its test videos, compare with simple planners.

    One that was stopped goes on when it is repeated, here and with real videos.
    """
    config = config or load_config("quickstart", method="cefito+chain")
    return _tour(
        _made(folder, "world", partial(write_world, seed=seed)), folder, config, seed, progress
    )


def run_real_quickstart(
    folder: Path,
    *,
    downloads: Path,
    seed: int = 0,
    config: RunConfig | None = None,
    progress: Progress = silent,
) -> Quickstart:
    """Download features of real videos, train the chain, plan the test videos, compare.

    The downloaded files are kept in the folder `downloads`. Of the settings of CEFITO in `config`,
    by default those of the preset `quickstart`, the sections of the chain are used.

    Raises:
        DataError: A file cannot be downloaded, or is not the published one.
        RunError: The folder holds something.
    """
    _download(downloads, progress)
    dataset = _made(folder, "data", partial(prepare_captaincook4d, downloads))
    config = config or load_config("quickstart", dataset=dataset.name)
    chain = method_settings("chain", config.sections, place="quickstart")
    own = RunConfig("chain", config.preset, chain)
    return _tour(dataset, folder, own, seed, progress, simple=config)


def _made(folder: Path, name: str, make: Callable[[Path], PreparedDataset]) -> PreparedDataset:
    """Return the data set of a folder, which holds nothing else when it is made."""
    if (folder / name).exists():
        return open_dataset(folder / name)
    if folder.exists() and (not folder.is_dir() or any(folder.glob("[!.]*"))):
        raise RunError(
            f"{folder}: exists already. Choose another folder, or remove it.", setting="out"
        )
    return make(folder / name)


def _download(folder: Path, progress: Progress) -> None:
    """Download the files of real videos; if that fails, the message lists all of them."""
    places = find_places(REAL)
    for place in places:
        try:
            download(place.name, folder, progress=progress)
        except DataError as problem:
            if (folder / place.file).exists():
                raise
            complaint = str(problem).partition(". ")[0]
            files = ", ".join(f"{at.file} from {at.address}" for at in places)
            remedy = f"Without a network, save these files in {folder} and repeat the command"
            raise DataError(f"{complaint}. {remedy}: {files}.") from problem


def _tour(
    dataset: PreparedDataset,
    folder: Path,
    config: RunConfig,
    seed: int,
    progress: Progress,
    *,
    simple: RunConfig | None = None,
) -> Quickstart:
    """Train, plan the test windows, compare.

    The simple methods have the run's settings and task classifier, or those of `simple`.
    """
    run = train_run(
        dataset,
        folder / "run",
        config=config,
        horizon=HORIZON,
        seed=seed,
        progress=progress,
        reuse=True,
    )
    train, val, test = (
        cut_windows(dataset, horizon=HORIZON, split=split) for split in ("train", "val", "test")
    )
    evaluation, plans = evaluate_planner(run.planner, test)
    evaluations = [evaluation, evaluate_planner(run.planner, test, oracle_task=True)[0]]
    context = TrainingContext(
        folder=run.folder if simple is None else folder / "simple", key=dataset.fingerprint
    )
    for name in SIMPLE:
        settings = method_settings(name, (simple or config).sections, place="quickstart")
        fit = find_method(name).planner.fit
        planner = fit(train, val, settings=settings, seed=seed, context=context).planner
        evaluations.append(evaluate_planner(planner, test)[0])
    rows = _example_rows(test)
    chosen = [plans[row] for row in rows]
    tasks = np.array([plan.tasks[0] for plan in chosen if plan.tasks is not None])
    examples = window_plans(dataset, test.subset(rows), chosen, tasks=tasks)
    return Quickstart(folder=folder, run=run, evaluations=evaluations, examples=examples)


def _example_rows(test: Windows) -> list[int]:
    """The middle window of each of a few tasks, spread over the tasks."""
    tasks = np.unique(test.tasks)
    chosen = tasks[np.linspace(0, len(tasks) - 1, min(EXAMPLES, len(tasks))).round().astype(int)]
    rows = (np.flatnonzero(test.tasks == task) for task in chosen)
    return [int(own[len(own) // 2]) for own in rows]
