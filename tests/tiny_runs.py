"""Settings of trainings that take a second, and runs made with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cefito.data import PreparedDataset
from cefito.data.timeline import row_labels

if TYPE_CHECKING:
    from cefito.runs.run import Run

TINY_RUN: dict[str, Any] = {
    "field.width": 16,
    "field.depth": 1,
    "field.heads": 2,
    "field.action_dim": 8,
    "training.optimiser.epochs": 1,
    "training.negatives.count": 4,
    "training.stopping.windows": 10,
    "training.stopping.candidates": 30,
    "chain.hidden": 16,
    "chain.width": 16,
    "chain.emission": 16,
    "chain_training.optimiser.epochs": 2,
    "classifier.hidden": [8, 16, 8],
    "classifier_training.optimiser.epochs": 2,
    "classifier_training.optimiser.learning_rate": 0.02,
}
"""Of any preset; a CEFITO that has learned hardly anything."""


TINY_LENGTHS: dict[str, Any] = {
    "any_length.hidden": 16,
    "any_length.width": 16,
    "any_length.emission": 16,
    "any_length.members": 1,
    "any_length_training.optimiser.epochs": 2,
    "any_length_training.all_videos": 0.0,  # so that validation videos calibrate its sets
    "coverage.windows": 4,  # to calibrate it sooner
}
"""Of the method any-length."""

TINY_ROWS: dict[str, Any] = {
    "recogniser.members": 1,
    "recogniser.width": 16,
    "recogniser.training_steps": 40,
    "recogniser.folds": 2,
    "recogniser.temporal_steps": 5,
    "recogniser.temporal_passes": 1,
    "recogniser.attention_layers": 0,
}
"""Of the recogniser."""


NARROW = {
    "field.width": 16,
    "pdpp.widths": [8],
    "mtid.widths": [8],
    "kepp.step.widths": [8],
    "kepp.plan.widths": [8],
    "p3iv.width": 16,
    "p3iv.noise": 2,
    "p3iv.samples": 3,
    "chain.members": 1,
    "viterbi.members": 1,
    "viterbi.hidden": 16,
    "schema_model.width": 16,
    "planllm.width": 16,
}
"""Networks of every method that are narrow."""


def small_run(
    dataset: PreparedDataset,
    folder: Path,
    method: str = "nearest",
    *,
    overrides: Mapping[str, Any] | None = None,
    shared: bool = False,
    **given: Any,
) -> Run:
    """Train a run of the preset small, T = 3, by default of a method that learns nothing."""
    from cefito.planners.methods import load_config
    from cefito.runs.train import train_run

    config = load_config("small", method=method, overrides=overrides or {}, shared=shared)
    return train_run(dataset, folder, config=config, **{"horizon": 3, "seed": 0} | given)


def often_or_nightly(name: str) -> Any:
    """One method of each kind of planner is tested by every run of the tests."""
    often = ("cefito", "any-length", "viterbi", "pdpp", "schema", "nearest")
    return pytest.param(name, marks=() if name in often else pytest.mark.nightly)


def as_arguments(settings: Mapping[str, Any]) -> list[str]:
    """Settings as the command line takes them."""
    texts = {key: str(one).lower() if one is True else one for key, one in settings.items()}
    return [part for key, text in texts.items() for part in ("--set", f"{key}={text}")]


def stopping_after(steps: int) -> Callable[..., Any]:
    """A progress that interrupts the work after so many reports."""
    left = steps

    @contextmanager
    def progress(description: str, *, total: int | None = None) -> Iterator[Callable[..., None]]:
        def advance(count: float = 1, *, note: str = "") -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt

        yield advance

    return progress


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Time and content of every file below a folder, by its path in it."""
    return {
        name: ((folder / name).stat().st_mtime_ns, data) for name, data in contents(folder).items()
    }


def contents(folder: Path) -> dict[str, bytes]:
    """Content of every file below a folder, by its path in it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def rows_of(dataset: PreparedDataset, video: int, seed: int = 0) -> NDArray[np.float32]:
    """Rows [n, 24] of a video, one a second: a direction for each action, and noise."""
    steps, count = dataset.videos[video].steps, len(dataset.taxonomy.actions)
    labels = row_labels(steps, int(steps[-1].end) + 4, 1.0, count)
    directions = np.random.default_rng(0).normal(size=(count + 1, 24))
    noise = np.random.default_rng([seed, video]).normal(size=(len(labels), 24))
    return (3 * directions[labels] + noise).astype(np.float32)


def next_actions(session, top_k: int) -> list[tuple[int, float]]:
    """Ids and probabilities of the likeliest next steps of a session."""
    return [(one.id, one.probability) for one in session.likely_next(top_k)]


def described(run: Run, **observed: Any) -> Run:
    """The run as if its data set said only this of its observations."""
    reference = run.info.dataset.model_copy(update={"observed": observed or None})
    return replace(run, info=run.info.model_copy(update={"dataset": reference}))
