"""`cefito train`: from a prepared data set to a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from cefito.cli.console import log_warnings, progress, talk
from cefito.errors import ConfigError

__all__ = ["train"]


def train(dataset: Path, /, *, horizon: int, out: Path, preset: str = "small", seed: int = 0, device: str = "auto",
          set_: Annotated[tuple[str, ...], Parameter(name="--set", negative="", consume_multiple=False)] = ()) -> None:
    """Train task classifier, proposal network and energy field on a prepared data set.

    Repeat the command to go on after an interruption. Start it by torchrun to use several processes.

    Args:
        dataset: Folder of a prepared data set.
        horizon: Number of actions of a plan, T.
        out: Run folder to write.
        preset: paper, released, small, or the path of a .toml file of the same form.
        seed: Seed of weights, batches and negatives.
        device: auto, cpu or cuda.
        set_: Change a setting of the preset, as in --set training.optimiser.epochs=20; may be repeated.
    """
    from cefito.data.prepared import open_dataset
    from cefito.planners.run import pick_device, train_run
    from cefito.progress import silent
    from cefito.training.config import load_config
    from cefito.training.distributed import processes

    opened = open_dataset(dataset)
    config = load_config(preset, dataset=opened.taxonomy.dataset, horizon=horizon, overrides=_settings(set_))
    with processes(pick_device(device)) as (group, place), log_warnings():
        run = train_run(opened, out, config=config, horizon=horizon, seed=seed, device=place,
                        progress=progress if group.first else silent, group=group)
        if not group.first:
            return
    for name, scores in (("task classifier", run.planner.task_model.result), ("proposal network", run.planner.proposal.result),
                         ("energy field", run.planner.result)):
        if scores is not None:
            talk(f"{name}: best epoch {scores.best_epoch} of {scores.epochs}, validation "
                 + ", ".join(f"{value:.2f}" for value in scores.scores))
    talk(f"wrote {out}; score it with: cefito evaluate {out}")


def _settings(given: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for entry in given:
        key, sign, value = entry.partition("=")
        if not sign or not key.strip():
            raise ConfigError(f"--set {entry}: expected KEY=VALUE, as in --set training.optimiser.epochs=20.")
        settings[key.strip()] = value.strip()
    return settings
