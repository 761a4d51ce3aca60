"""The library once, in minutes: train, plan, compare.

The whole method on a small simulated world, or its chain on real videos of a kitchen, or on films
that are drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from cefito.data.downloads import download, find_places
from cefito.data.prepared import PreparedDataset, open_dataset
from cefito.data.readers.assemble import prepare
from cefito.data.readers.captaincook4d import prepare_captaincook4d
from cefito.data.readers.step_source import read_steps
from cefito.data.simulation.films import write_films
from cefito.data.simulation.world import write_world
from cefito.data.windows import Windows, cut_windows
from cefito.errors import DataError, RunError
from cefito.evaluation.records import Evaluation, WindowPlans
from cefito.evaluation.score import ScoredWindows, evaluate_planner
from cefito.files import write_bytes
from cefito.planners.methods import RunConfig, find_method, load_config, method_settings
from cefito.progress import Progress, silent
from cefito.runs.run import Run
from cefito.runs.train import train_run
from cefito.training.trainer import TrainingContext

HORIZON = 3
EXAMPLES = 3
REAL = "captaincook4d"
"""Download of the real videos."""
FILMS, DRAWN = "films", "drawn films"
"""Folder of drawn films, and the name of their data set."""
Kind = Literal["world", "pixels", "real"]
SIMPLE = ("nearest", "frequent")  # methods that are compared with


@dataclass(frozen=True)
class Quickstart:
    """Results of the quickstart."""

    folder: Path
    run: Run
    evaluations: list[Evaluation]  # of the run, the run with the true task, and `SIMPLE`
    examples: list[WindowPlans]


def run_quickstart(
    folder: Path,
    *,
    kind: Kind = "world",
    downloads: Path = Path("downloads"),
    seed: int = 0,
    config: RunConfig | None = None,
    progress: Progress = silent,
) -> Quickstart:
    """Make a data set, train on it, plan its test videos, compare with simple planners.

    One that was stopped goes on when it is repeated.

    Args:
        folder: Folder of data set and run.
        kind: The whole method on the simulated "world", or the chain alone: on "pixels" of drawn
            films, with one picture as an observation, or on features of "real" videos.
        downloads: Folder that keeps the files of real videos.
        seed: Seed of world and training.
        config: Settings of CEFITO, by default of the preset `quickstart`; the chain takes its own
            sections of them.
        progress: Shows progress.

    Raises:
        ConfigError: Films need the packages of the extra `video`.
        DataError: A file cannot be downloaded, or is not the published one.
        RunError: The folder holds something.
    """
    if kind == "real":
        _download(downloads, progress)
    make: dict[Kind, Callable[[Path], PreparedDataset]] = {
        "world": partial(write_world, seed=seed),
        "pixels": partial(of_films, seed=seed, progress=progress),
        "real": partial(prepare_captaincook4d, downloads),
    }
    dataset = _made(folder, "world" if kind == "world" else "data", make[kind])
    config = config or load_config("quickstart", method="cefito+chain", dataset=dataset.name)
    run_config = config
    if kind != "world":
        chain = method_settings("chain", config.sections, place="quickstart")
        run_config = RunConfig("chain", config.preset, chain)
    run = train_run(
        dataset,
        folder / "run",
        config=run_config,
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
    context = TrainingContext(folder=folder / "simple", key=dataset.fingerprint)
    for name in SIMPLE:
        settings = method_settings(name, config.sections, place="quickstart")
        fit = find_method(name).planner.fit
        planner = fit(train, val, settings=settings, seed=seed, context=context).planner
        evaluations.append(evaluate_planner(planner, test)[0])
    rows = _example_rows(test)
    chosen = [plans[row] for row in rows]
    tasks = np.array([plan.tasks[0] for plan in chosen if plan.tasks is not None])
    examples = ScoredWindows(chosen, test.subset(rows), tasks).window_plans(dataset)
    return Quickstart(folder=folder, run=run, evaluations=evaluations, examples=examples)


def write_pictures(made: Quickstart) -> tuple[Path, Path]:
    """Write the pictures between which the first example plans, from its film."""
    from cefito.encoders.frames import thumbnails

    dataset, example = made.run.dataset(), made.examples[0]
    steps = next(video.steps for video in dataset.videos if video.video_id == example.video)
    first = example.from_step - 1
    times = steps[first].start, steps[first + HORIZON - 1].end
    film = made.folder / FILMS / "videos" / f"{example.video}.mp4"
    before, after = made.folder / "before.jpg", made.folder / "after.jpg"
    for path, (_, picture) in zip(
        (before, after), thumbnails(film, times, most=1 << 20), strict=True
    ):
        write_bytes(path, picture)
    return before, after


def of_films(target: Path, *, seed: int, progress: Progress) -> PreparedDataset:
    """Draw films beside a new data set, extract their features, and prepare it.

    Args:
        target: New folder of the data set.
        seed: Seed of the films.
        progress: Shows progress.
    """
    from cefito.encoders.extraction import extract_videos
    from cefito.encoders.video import open_encoder

    videos, features = target.parent / FILMS / "videos", target.parent / FILMS / "features"
    table = write_films(target.parent / FILMS, seed=seed, progress=progress)
    extract_videos(videos, features, open_encoder(), progress=progress)
    source = read_steps([table])
    return prepare(source, features, target, name=DRAWN, seconds=1, timeline=True, videos=videos)


def _made(folder: Path, name: str, make: Callable[[Path], PreparedDataset]) -> PreparedDataset:
    """Return the data set of a folder, which holds at most drawn films when it is made."""
    if (folder / name).exists():
        return open_dataset(folder / name)
    if folder.is_file() or any(path.name != FILMS for path in folder.glob("[!.]*")):
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


def _example_rows(test: Windows) -> list[int]:
    """The middle window of each of a few tasks, spread over the tasks."""
    tasks = np.unique(test.tasks)
    chosen = tasks[np.linspace(0, len(tasks) - 1, min(EXAMPLES, len(tasks))).round().astype(int)]
    rows = (np.flatnonzero(test.tasks == task) for task in chosen)
    return [int(task_rows[len(task_rows) // 2]) for task_rows in rows]
