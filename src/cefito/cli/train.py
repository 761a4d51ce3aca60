"""`cefito train`: from a prepared data set to a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cefito.cli.console import log_warnings, progress, talk
from cefito.cli.options import Settings, settings
from cefito.data.windows import Selection

if TYPE_CHECKING:
    from cefito.planners.run import Run

__all__ = ["train"]


def train(
    dataset: Path,
    /,
    *,
    horizon: int,
    out: Path,
    method: str = "cefito",
    preset: str = "small",
    seed: int = 0,
    device: str = "auto",
    selection: Selection = "held-out",
    tracker: str = "tensorboard",
    set_: Settings = (),
) -> None:
    """Train a planner on a prepared data set.

    That of CEFITO is a chain, an energy field and, where settings ask for one, a task classifier.

    Repeat the command to go on after an interruption. Start it by torchrun to use several
    processes.

    Args:
        dataset: Folder of a prepared data set.
        horizon: Number of actions of a plan, T.
        out: Run folder to write.
        method: cefito, its chain alone (chain), or a baseline: viterbi, pdpp, pkg, pkg-beam,
            nearest, frequent.
        preset: paper, released, small, or the path of a .toml file of the same form.
        seed: Seed of weights, batches and negatives.
        device: auto, cpu or cuda.
        selection: Where epochs and weights are chosen: held-out (validation split), or published
            (on test, as published work does; scores are then too good).
        tracker: Who shows the metrics of the trainings: tensorboard (where it is installed), wandb,
            trackio, or none.
        set_: Change a setting of the preset, as in --set training.optimiser.epochs=20; may be
            repeated.
    """
    from cefito.data.prepared import dataset_fingerprint, open_dataset
    from cefito.data.taxonomy import Taxonomy
    from cefito.planners.run import finished_run, train_run
    from cefito.planners.settings import load_config
    from cefito.progress import silent
    from cefito.runtime import pick_device
    from cefito.training.distributed import processes

    fingerprint = dataset_fingerprint(dataset)
    config = load_config(
        preset,
        dataset=Taxonomy.read(dataset / "taxonomy.json").dataset,
        horizon=horizon,
        overrides=settings(set_),
    )
    with processes(pick_device(device)) as (group, place), log_warnings():
        finished = finished_run(
            out,
            fingerprint=fingerprint,
            config=config,
            horizon=horizon,
            seed=seed,
            method=method,
            selection=selection,
        )
        if finished is not None:
            if group.first:
                _summarise(finished, selection)
                talk(
                    f"{out} is finished already and nothing was done; score it with: cefito "
                    f"evaluate {out}"
                )
            return
        opened = open_dataset(dataset)
        run = train_run(
            opened,
            out,
            config=config,
            horizon=horizon,
            seed=seed,
            method=method,
            selection=selection,
            device=place,
            progress=progress if group.first else silent,
            group=group,
            tracker=tracker,
        )
        if not group.first:
            return
    _summarise(run, selection)
    talk(f"wrote {out}; score it with: cefito evaluate {out}")


def _summarise(run: Run, selection: Selection) -> None:
    """A line for each network: the epoch that was kept, and its scores by name."""
    chosen = "validation" if selection == "held-out" else "test"
    for name, result in run.info.training.items():
        names = result.get("metrics") or [""] * len(result["scores"])
        scores = ", ".join(
            f"{metric.replace('_', ' ')} {value:.2f}".strip()
            for metric, value in zip(names, result["scores"], strict=True)
        )
        talk(f"{name}: best epoch {result['best_epoch']} of {result['epochs']}, {chosen} {scores}")
