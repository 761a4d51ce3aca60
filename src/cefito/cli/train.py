"""`cefito train`: from a prepared data set to a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cefito.cli.console import log_warnings, progress, talk
from cefito.cli.options import Settings, horizons, settings
from cefito.data.windows import Selection

if TYPE_CHECKING:
    from cefito.planners.run import Run

__all__ = ["train"]


def train(
    dataset: Path,
    /,
    *,
    horizon: str,
    out: Path,
    method: str = "cefito",
    preset: str = "small",
    seed: int = 0,
    device: str = "auto",
    selection: Selection = "held-out",
    set_: Settings = (),
) -> None:
    """Train a planner on a prepared data set.

    That of CEFITO is a chain, an energy field and, where settings ask for one, a task classifier.

    Repeat the command to go on after an interruption. Start it by torchrun to use several
    processes.

    Args:
        dataset: Folder of a prepared data set.
        horizon: Number of actions of a plan, T; with several (3,4,5) each gets a run of its own,
            in T3, T4, … of the folder, and those that are finished are left as they are.
        out: Run folder to write.
        method: cefito, its chain alone (chain), or a baseline: viterbi, pdpp, pkg, pkg-beam,
            nearest, frequent.
        preset: paper, released, small, or the path of a .toml file of the same form.
        seed: Seed of weights, batches and negatives.
        device: auto, cpu or cuda.
        selection: Where epochs and weights are chosen: held-out (validation split), or published
            (on test, as published work does; scores are then too good).
        set_: Change a setting of the preset, as in --set training.optimiser.epochs=20; may be
            repeated.
    """
    from cefito.data.prepared import open_dataset
    from cefito.planners.settings import load_config
    from cefito.planners.several import train_runs
    from cefito.progress import silent
    from cefito.runtime import pick_device
    from cefito.training.distributed import processes

    chosen = horizons(horizon)
    opened = open_dataset(dataset)
    configs = {
        length: load_config(
            preset, dataset=opened.taxonomy.dataset, horizon=length, overrides=settings(set_)
        )
        for length in chosen
    }
    with processes(pick_device(device)) as (group, place), log_warnings():
        runs = train_runs(
            opened,
            out,
            configs=configs,
            seed=seed,
            method=method,
            selection=selection,
            device=place,
            progress=progress if group.first else silent,
            group=group,
            each=_say if group.first else None,
        )
        if group.first and len(runs) > 1:
            talk(f"{out}: plan with one of them by cefito plan {out} --horizon {chosen[0]}")


def _say(run: Run, trained: bool) -> None:
    """What came of the training of a run."""
    if not trained:
        talk(f"{run.folder} is finished already and nothing was done")
        return
    chosen = "test" if run.info.selection == "published" else "validation"
    for name, result in run.info.training.items():
        scores = ", ".join(f"{value:.2f}" for value in result["scores"])
        talk(f"{name}: best epoch {result['best_epoch']} of {result['epochs']}, {chosen} {scores}")
    talk(f"wrote {run.folder}; score it with: cefito evaluate {run.folder}")
