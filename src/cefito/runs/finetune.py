"""Finetuning: train a run further on another data set, into a run folder of its own.

New tasks and actions (by name, `cefito.data.vocabulary`) get ids after the run's own, and rows in
its networks, drawn as in a fresh training. Training starts from the run's weights with a new
optimiser. New counts of n-grams are added to the run's; temperatures, and weights of the objective
and of n-grams, are fitted on the new validation windows only. Recogniser and verifier are trained
on the new data alone; the verifier keeps the run's orders of tasks without a new video.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from cefito.data.prepared import PreparedDataset
from cefito.errors import ConfigError
from cefito.planners.base_planner import check_finetuning
from cefito.planners.methods import RunConfig, check_sections, run_config
from cefito.planners.shared.settings import PlanningConfig
from cefito.runs.options import TrainArguments, TrainOptions
from cefito.runs.run import Run
from cefito.runs.start import Start
from cefito.runs.train import train_run
from cefito.settings import changed, flattened
from cefito.training.settings import TrainingConfig

_SHARE = 4  # divides the epochs of a training, by default


def finetune(
    run: Run,
    dataset: PreparedDataset,
    out: Path,
    *,
    epochs: int | None = None,
    settings: Mapping[str, Any] | None = None,
    options: TrainOptions | None = None,
    **changes: Unpack[TrainArguments],
) -> Run:
    """Train a run further on a data set, or resume a killed finetuning.

    Only the training split of the data set is learned: other tasks are forgotten. The run itself
    stays unchanged.

    Args:
        run: The run to start from, of a method that can be finetuned.
        dataset: Its training windows are learned; weights and epochs are chosen on its validation
            windows. If it has no validation split, videos that the run has seen keep their part.
        out: The new run folder.
        epochs: Epochs of each of its trainings; by default a quarter of the run's, or as many if it
            was finetuned itself.
        settings: Settings of trainings and search to change, dotted keys.
        options: Seed, device and the rest; `TrainOptions` by default.
        changes: Fields of the options that differ.

    Raises:
        ConfigError: The run's method cannot be finetuned, it was opened for some of its lengths, or
            settings are invalid or would change its networks.
        DataError: A split gives no windows, or names of tasks or actions are ambiguous.
        RunError: Observations are of another kind, or the folder holds something else.
    """
    check_finetuning(run.planner)
    check_sections(settings or {}, [run.method])
    if epochs is not None and epochs < 1:
        raise ConfigError(f"{epochs} epochs: expected at least 1.", setting="epochs")
    if run.chosen_steps is not None:
        problem = "is finetuned for all numbers of steps that it plans. Leave the horizon out"
        raise ConfigError(f"{run.place}: {problem}.", setting="horizon")
    config = _config(run, epochs, settings or {})
    start = Start.make(run, dataset)
    return train_run(
        start.dataset,
        out,
        config=config,
        horizon=run.horizon,
        shortest=run.shortest,
        start=start,
        options=TrainOptions.of(options, changes),
    )


def _config(run: Run, epochs: int | None, settings: Mapping[str, Any]) -> RunConfig:
    """Return the settings of a run with the epochs of a finetuning and further changes."""
    place, named = "settings of the finetuning", (run.method, run.info.preset)
    old, share = run.config, _SHARE
    if run.info.started_from is not None:
        share = 1
    fewer = {
        key: epochs or max(1, math.ceil(value / share))
        for key, value in flattened(old.sections).items()
        if key.endswith(".optimiser.epochs")
    }
    new = run_config(*named, changed(old.sections, {**fewer, **settings}), place=place)
    for key in settings:
        section = key.partition(".")[0]
        trained = isinstance(getattr(old.settings, section, None), TrainingConfig | PlanningConfig)
        if not trained and section not in old.parts:
            raise ConfigError(
                f"setting '{key}': a finetuned run has the networks that it begins with. Change "
                "settings of trainings, search, recogniser and verifier only.",
                setting=key,
            )
    return new
