"""`cefito finetune`: from a run and another data set to a run that knows both their tasks."""

from __future__ import annotations

from pathlib import Path

from cefito.cli.console import log_warnings, progress, talk
from cefito.cli.options import Settings, settings
from cefito.data.windows import Selection

__all__ = ["finetune"]


def finetune(
    run: Path,
    dataset: Path,
    /,
    *,
    out: Path,
    epochs: int | None = None,
    horizon: int | None = None,
    replay: Path | None = None,
    seed: int = 0,
    device: str = "auto",
    selection: Selection = "held-out",
    set_: Settings = (),
) -> None:
    """Train a run further on a data set: new videos, and tasks and actions that are new to it.

    Tasks and actions are found by name; new ones are added behind those of the run, whose ids stay.
    Only the training split of the data set is learned: other tasks fade unless --replay mixes the
    old windows in. The run itself stays as it is.

    Repeat the command to go on after an interruption. Start it by torchrun to use several
    processes.

    Args:
        run: Run folder to begin with, of the method cefito or chain.
        dataset: Folder of a prepared data set, its observations made as those of the run were.
        out: Run folder to write.
        epochs: Epochs of each training; by default a quarter of those that the run was trained for.
        horizon: Number of actions, of a folder that holds runs of several.
        replay: Data set whose windows are mixed in, usually that of the run.
        seed: Seed of new weights, batches and negatives.
        device: auto, cpu or cuda.
        selection: Where epochs and weights are chosen: held-out (validation split), or published
            (on test, as published work does; scores are then too good).
        set_: Change a setting of a training or of the search, as in
            --set chain_training.optimiser.learning_rate=3e-4; may be repeated.
    """
    from cefito.data.prepared import open_dataset
    from cefito.progress import silent
    from cefito.runs.finetune import finetune as finetuned
    from cefito.runs.run import open_run
    from cefito.runtime import pick_device
    from cefito.training.distributed import processes

    opened = open_dataset(dataset)
    with processes(pick_device(device)) as (group, place), log_warnings():
        made = finetuned(
            open_run(run, device=place, horizon=horizon),
            opened,
            out,
            epochs=epochs,
            settings=settings(set_),
            replay=None if replay is None else open_dataset(replay),
            seed=seed,
            selection=selection,
            device=place,
            progress=progress if group.first else silent,
            group=group,
        )
        if not group.first:
            return
    begun = made.info.started_from
    if begun is not None:
        talk(
            f"learned from the training split of '{opened.name}'"
            f"{'' if begun.replay is None else f' and of {begun.replay.name!r}'}; "
            f"{begun.new_tasks} tasks and {begun.new_actions} actions are new"
        )
    chosen = "validation" if selection == "held-out" else "test"
    for name, result in made.info.training.items():
        scores = ", ".join(f"{value:.2f}" for value in result.scores)
        talk(f"{name}: best epoch {result.best_epoch} of {result.epochs}, {chosen} {scores}")
    talk(f"wrote {out}; score it with: cefito evaluate {out}")
