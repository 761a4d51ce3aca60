"""`cefito train` and `cefito finetune`: from data sets to run folders."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from cefito.cli.console import log_warnings, progress, talk, word
from cefito.cli.options import (
    DataFolder,
    Device,
    Settings,
    check_one,
    horizons,
    known_settings,
    settings,
    with_options,
)
from cefito.cli.values import said_as_json
from cefito.data.prepared import open_dataset
from cefito.data.vocabulary import Taxonomy
from cefito.executors.processes import cores
from cefito.inference.question import steps_range
from cefito.markup import counted
from cefito.planners.methods import load_config, precisions
from cefito.runs.options import PartName, TrainOptions
from cefito.runtime import Precision, pick_device
from cefito.settings import changed

if TYPE_CHECKING:
    from cefito.data.prepared import PreparedDataset
    from cefito.runs.run import Run

_RECOGNISER = """Train a recogniser of steps, too, for a run of several lengths, if the data set
has the rows of whole videos."""


@with_options(TrainOptions.of_commands())
@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of commands that train runs; `TrainOptions` says what they are."""

    __doc__ = TrainOptions.__doc__
    out: Annotated[Path, Parameter(help="Run folder to write.")]
    device: Device = "auto"
    recogniser: Annotated[bool, Parameter(help=_RECOGNISER)] = True

    def options(self) -> TrainOptions:
        """Return options of functions that train."""
        import torch

        both: tuple[PartName, ...] = ("recogniser", "verifier")
        return TrainOptions(
            **{name: getattr(self, name) for name, _, _ in TrainOptions.of_commands()},
            device=pick_device(self.device),
            progress=progress,
            workers=max(1, cores() // torch.get_num_threads()),
            parts=both if self.recogniser else both[1:],
        )


@said_as_json
def train(
    dataset: DataFolder,
    /,
    *,
    horizon: str | None = None,
    steps: str | None = None,
    method: str | None = None,
    preset: str = "small",
    precision: Precision | None = None,
    training: TrainingOptions,
    set_: Settings = (),
) -> dict[str, Any]:
    """Train a planner on a prepared data set.

    Args:
        horizon: Number of actions of a plan, T; with several (3,4,5) each gets a run of its own,
            in T3, T4, … of the folder, and finished runs are left unchanged.
        steps: Range of numbers of actions instead, as in 1-6: one run plans any of them, and
            predicts which, also without a goal and after steps done before.
        method: Name of a method, as listed by cefito planners: cefito (the paper's), chain,
            cefito+chain, viterbi, …; by default the one that plans best by measurement: chain, and
            any-length for several numbers of steps.
        preset: paper, released, small, proposal (few networks, for steps to correct), or the path
            of a .toml file of the same form.
        precision: What all trainings compute products in, instead of the preset's: auto (bfloat16
            if the processor multiplies it natively), float32 or bfloat16.
    """
    check_one(horizon, steps)
    shortest = None
    if steps is not None:
        shortest, longest = steps_range(steps)
        chosen: tuple[int, ...] = (longest,)
    else:
        chosen = horizons(horizon or "")
    best = "chain" if steps is None else "any-length"
    asked, method = method, method or best
    name = Taxonomy.read(dataset / "taxonomy.json").dataset
    precise = precisions(precision, method) if precision else {}
    overrides = {**precise, **settings(set_)}
    configs = {
        length: load_config(
            preset, method=method, dataset=name, horizon=length, overrides=overrides
        )
        for length in chosen
    }
    from cefito.runs.train import train_runs

    options, out = training.options(), training.out
    with log_warnings():
        data = open_dataset(dataset)
        runs: list[dict[str, Any]] = []
        each = lambda run, trained: runs.append(_report(run, trained, data))  # noqa: E731
        train_runs(data, out, configs=configs, shortest=shortest, each=each, options=options)
        if asked is None:
            talk(f"{best} plans best by measurement; --method cefito trains the paper's method")
        if len(configs) > 1:
            talk(f"{out}: plan with one of them by cefito plan {word(out)} --horizon {chosen[0]}")
    return {"out": str(out), "runs": runs}


_CHANGES = """Change a setting of a training or of the search, as in
--set any_length_training.optimiser.learning_rate=3e-4 of a run of several lengths; may be repeated.
"""


@said_as_json
def finetune(
    run: Path,
    dataset: Path,
    /,
    *,
    epochs: int | None = None,
    horizon: int | None = None,
    training: TrainingOptions,
    set_: Annotated[Settings, Parameter(help=_CHANGES)] = (),
) -> dict[str, Any]:
    """Train a run further on a data set: new videos, and tasks and actions that are new to it.

    Args:
        run: Run folder to start from, of the method cefito, chain, cefito+chain or any-length.
        dataset: Folder of a prepared data set, with observations made like the run's.
        epochs: Epochs of each training of the planner; by default a quarter of the run's. The
            recogniser is trained anew; --set recogniser.temporal_passes=5 --set
            recogniser.temporal_steps=20 shortens that.
        horizon: Number of actions, if the folder has runs of several.
    """
    changes = known_settings(set_)
    from cefito.runs.finetune import finetune as finetuned
    from cefito.runs.run import open_run

    opened, options = open_dataset(dataset), training.options()
    with log_warnings():
        start = open_run(run, device=options.device, horizon=horizon)
        if start.info.shortest is not None and opened.rows_digest and training.recogniser:
            config = changed(start.config.sections, changes).get("recogniser", {})
            names = (
                ("epochs=5",) if "epochs" in config else ("temporal_passes=5", "temporal_steps=20")
            )
            shorter = " ".join(f"--set recogniser.{name}" for name in names)
            talk(
                f"the recogniser is trained anew, which --epochs does not shorten: {shorter} does, "
                "and --no-recogniser leaves it out"
            )
        made = finetuned(
            start, opened, training.out, epochs=epochs, settings=changes, options=options
        )
    if (added := made.info.started_from) is not None:
        talk(
            f"learned from the training split of '{opened.name}'; new are "
            f"{counted(added.new_tasks, 'task')} and {counted(added.new_actions, 'action')}"
        )
    if made.verifier is not None:
        what = "verifier" if made.recogniser is None else "recogniser and verifier"
        talk(f"{what}: trained anew, on '{opened.name}' alone; orders of its other tasks are kept")
    new = {} if added is None else {"tasks": added.new_tasks, "actions": added.new_actions}
    return {**_report(made, True, opened), "new": new}


def _report(run: Run, trained: bool, data: PreparedDataset) -> dict[str, Any]:
    """Say, and return, the result of a training: the kept epoch of each network and its scores."""
    from cefito.inference.whole_videos import among_right, limits_of_films

    result: dict[str, Any] = {"run": str(run.folder), "trained": trained}
    result |= {"selection": run.info.selection, "recogniser": run.recogniser is not None}
    result["training"] = {name: asdict(one) for name, one in run.info.training.items()}
    if not trained:
        talk(f"{run.folder} is finished already and nothing was done")
        return result
    chosen = "test" if run.info.selection == "published" else "validation"
    for name, kept in run.info.training.items():
        names = kept.metrics or [""] * len(kept.scores)
        scores = ", ".join(
            f"{metric.replace('_', ' ')} {value:z.2f}".strip()
            for metric, value in zip(names, kept.scores, strict=True)
        )
        talk(f"{name}: best epoch {kept.best_epoch} of {kept.epochs}, {chosen} {scores}")
    if run.verifier is not None:
        for note in among_right(run.verifier, data.videos):
            talk(f"note: {note}")
    if run.recogniser is not None:
        talk(f"a recogniser of steps was trained, too: cefito recognise {word(run.folder)} VIDEO")
        if (held_out := run.recogniser.held_out) is not None:
            remedy = "" if held_out.enough else f"; {held_out.remedy}"
            talk(f"recogniser: {held_out.words}{remedy}")
        for limit in limits_of_films(run):
            talk(f"note: {limit}")
    elif run.info.shortest is not None and data.rows_digest is None:
        talk(
            "no recogniser of steps was trained, since the data set has no rows of whole videos; "
            "prepare it with --features or --videos to have them"
        )
    described = run.planner.describe()
    if "energy field" in described.parameters and (described.weights or {}).get("energy") == 0:
        talk(
            "the energy is left out of the plans (weight 0): it does not make the true plans of "
            "validation windows likelier; cefito plan --objective energy uses it"
        )
    judge, info = f"cefito evaluate {word(run.folder)}", run.info
    if all(video.split != "test" for video in data.videos):
        lengths = f"--horizon {info.horizon}"
        if info.shortest is not None:
            lengths = f"--steps {info.shortest}-{info.horizon}"
        judge = f"cefito cross-validate {word(data.folder)} --method {info.method} {lengths}"
    talk(f"wrote {run.folder}; score it with: {judge}")
    return result
