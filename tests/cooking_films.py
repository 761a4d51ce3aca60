"""A tiny data set with the rows of whole videos, and a run that recognises its steps."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cefito.cli import main
from cefito.recognition.segmental import SegmentalRecogniser
from cefito.recognition.settings import RecogniserConfig
from cefito.runs.run import Run, open_run
from cefito.verification.verifier import Verifier
from tiny_runs import TINY_LENGTHS, as_arguments

PLANS = {"tea": ["boil", "pour", "wait"], "toast": ["cut", "heat", "spread"]}
NAMES = [name for plan in PLANS.values() for name in plan]
WIDTH = 8
TIER = "Schritte & <mehr>"
"""Tier of the labels that the run has learned from."""


def film(rng: np.random.Generator, plan: list[str]) -> tuple[NDArray[np.float32], list[tuple]]:
    """Rows of 8 numbers, each action in its own direction, and its steps: name, start, end."""
    parts, steps, at = [], [], 0
    for name in [None, *(each for step in plan for each in (step, None))]:
        count = int(rng.integers(5, 9) if name is None else rng.integers(12, 20))
        mean = np.zeros(WIDTH) if name is None else np.eye(WIDTH)[NAMES.index(name)]
        parts.append(3 * mean + 0.6 * rng.standard_normal((count, WIDTH)))
        steps += [] if name is None else [(name, at, at + count)]
        at += count
    return np.concatenate(parts).astype(np.float32), steps


def make_films(folder: Path) -> None:
    """Write FEATURES of 14 videos and the table of their steps into a folder."""
    rng = np.random.default_rng(0)
    (folder / "FEATURES").mkdir()
    with (folder / "STEPS.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["video", "task", "step", "start", "end", "split"])
        for number in range(14):
            task = list(PLANS)[number % 2]
            rows, steps = film(rng, PLANS[task])
            np.save(folder / "FEATURES" / f"v{number}.npy", rows)
            split = "test" if number >= 10 else "train"
            for name, start, end in steps:
                table.writerow([f"v{number}", task, name, start, end, split])


def make_run(folder: Path) -> Run:
    """Train a run of the films; it is in RUN of the folder, and the data set in DATA."""
    make_films(folder)
    labels = folder / "labels" / "STEPS.csv"
    labels.parent.mkdir()
    head, *lines = (folder / "STEPS.csv").read_text().splitlines()
    labels.write_text("\n".join([f"{head},tier", *(f"{line},{TIER}" for line in lines)]) + "\n")
    prepare = ["data", "prepare", "custom", labels, folder / "DATA"]
    prepare += ["--column", "tier=tier", "--features", folder / "FEATURES"]
    assert main([str(part) for part in prepare]) == 0
    train = ["train", folder / "DATA", "--steps", "1-3", "--out", folder / "RUN"]
    train += ["--no-recogniser", *as_arguments(TINY_LENGTHS)]
    assert main([str(part) for part in train]) == 0
    run = open_run(folder / "RUN")
    assert run.recogniser is None
    config = RecogniserConfig(
        members=1, width=16, training_steps=60, folds=2, temporal_steps=60, temporal_passes=20
    )
    data = run.dataset()
    own = SegmentalRecogniser.fit(data, range(10), config=config, seed=0)
    films = {data.videos[place].video_id: film for place, film in own.films.items()}
    verifier = Verifier.fit(data.videos[:10], data.taxonomy, films=films)
    return replace(run, recogniser=own, verifier=verifier).written()
