"""`cefito train`: from a prepared data set to a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cefito.cli.console import log_warnings, progress, talk
from cefito.cli.options import Settings, horizons, settings
from cefito.data.windows import Selection
from cefito.precision import Precision

if TYPE_CHECKING:
    from cefito.runs.run import Run

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
    tracker: str = "tensorboard",
    precision: Precision | None = None,
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
        method: cefito, its chain alone (chain), or a baseline: viterbi, pdpp, mtid, kepp, schema,
            planllm, planllm-leaky (an oracle), p3iv, pkg, pkg-beam, nearest, frequent; or a
            language model, named by --set llm.model=NAME, that is told the likeliest ends
            (llm-ends) or several of them (llm-ranked).
        preset: paper, released, small, or the path of a .toml file of the same form.
        seed: Seed of weights, batches and negatives.
        device: auto, cpu or cuda.
        selection: Where epochs and weights are chosen: held-out (validation split), or published
            (on test, as published work does; scores are then too good).
        tracker: Who shows the metrics of the trainings: tensorboard (where it is installed), wandb,
            trackio, or none.
        precision: What all trainings compute products in, instead of what the preset says: auto
            (bfloat16 where the processor multiplies it natively), float32 or bfloat16.
        set_: Change a setting of the preset, as in --set training.optimiser.epochs=20; may be
            repeated.
    """
    from cefito.data.prepared import name_and_fingerprint, open_dataset
    from cefito.data.taxonomy import Taxonomy
    from cefito.planners.settings import load_config, precisions
    from cefito.progress import silent
    from cefito.runs.folders import folders_for
    from cefito.runs.multi_horizon import train_runs
    from cefito.runs.train import finished_run
    from cefito.runtime import pick_device
    from cefito.training.distributed import processes

    chosen, fingerprint = horizons(horizon), name_and_fingerprint(dataset)[1]
    name = Taxonomy.read(dataset / "taxonomy.json").dataset
    overrides = {**(precisions(precision, method) if precision else {}), **settings(set_)}
    configs = {
        length: load_config(
            preset, method=method, dataset=name, horizon=length, overrides=overrides
        )
        for length in chosen
    }
    with processes(pick_device(device)) as (group, place), log_warnings():
        each = _say if group.first else None
        finished = [
            finished_run(
                folder,
                fingerprint=fingerprint,
                config=configs[length],
                horizon=length,
                seed=seed,
                selection=selection,
            )
            for length, folder in folders_for(out, configs).items()
        ]
        if all(finished):  # then the arrays of the data set need not be read
            for run in finished:
                if each is not None and run is not None:
                    each(run, False)
        else:
            train_runs(
                open_dataset(dataset),
                out,
                configs=configs,
                seed=seed,
                selection=selection,
                device=place,
                progress=progress if group.first else silent,
                group=group,
                each=each,
                tracker=tracker,
            )
        if group.first and len(configs) > 1:
            talk(f"{out}: plan with one of them by cefito plan {out} --horizon {chosen[0]}")


def _say(run: Run, trained: bool) -> None:
    """What came of the training of a run: of each network the kept epoch and its scores by name."""
    if not trained:
        talk(f"{run.folder} is finished already and nothing was done")
        return
    chosen = "test" if run.info.selection == "published" else "validation"
    for name, result in run.info.training.items():
        names = result.metrics or [""] * len(result.scores)
        scores = ", ".join(
            f"{metric.replace('_', ' ')} {value:.2f}".strip()
            for metric, value in zip(names, result.scores, strict=True)
        )
        talk(f"{name}: best epoch {result.best_epoch} of {result.epochs}, {chosen} {scores}")
    talk(f"wrote {run.folder}; score it with: cefito evaluate {run.folder}")
