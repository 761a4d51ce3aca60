"""`cefito evaluate`: score a run on a split, or a method by cross-validation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Group, Parameter

from cefito.cli.console import log_warnings, print_json, progress, table, talk
from cefito.cli.options import Flag, Settings, given_options, settings
from cefito.cli.plan_options import AS_TRAINED, SearchOptions, option_of
from cefito.cli.scores import score_table, task_table
from cefito.errors import ConfigError
from cefito.markup import counted
from cefito.planners.given import Given

if TYPE_CHECKING:
    from cefito.evaluation.records import RunEvaluation

__all__ = ["evaluate"]


@Parameter(name="*", group=Group("Cross-validation", sort_key=6))
@dataclass(frozen=True, kw_only=True)
class FoldOptions:
    """Cross-validation of a method on a data set, which is then given instead of a run.

    Attributes:
        folds: Number of parts of the videos of training and validation: each is scored by a run
            that is trained on the others.
        all_videos: Also use the videos of the test split.
        method: Name of the method, as in cefito train.
        preset: As in cefito train; small by default.
        seed: Seed of the folds and of the trainings.
        set_: Change a setting of the preset; may be repeated.
        out: Folder that keeps the runs and the scores (folds.json); repeat the command to resume.
    """

    folds: int | None = None
    all_videos: Flag = False
    method: str | None = None
    preset: str | None = None
    seed: int | None = None
    set_: Settings = ()
    out: Path | None = None


_NO_FOLDS = FoldOptions()
_Given = given_options(*(name for name in Given.model_fields if name != "oracle_between"))
_OBSERVATIONS = _Given()


def evaluate(
    run: Path,
    /,
    *,
    split: str = "test",
    given: _Given = _OBSERVATIONS,  # type: ignore[valid-type]
    sample: int | None = None,
    save_plans: Path | None = None,
    per_task: Flag = False,
    options: SearchOptions = AS_TRAINED,
    folds: FoldOptions = _NO_FOLDS,
    dataset: Path | None = None,
    horizon: int | None = None,
    steps: str | None = None,
    device: str = "auto",
    json: Flag = False,
) -> int:
    """Score a run: success rate, accuracies, IoU, edit similarity, calibration, cost.

    The table includes 90 % intervals with videos resampled. The scores are also kept in the run
    folder, with the scores of each task; another search has its own file.

    With --folds, score a method on all videos of training and validation by cross-validation.

    Args:
        run: Run folder, as cefito train makes it; with --folds the folder of a data set.
        split: train, val or test.
        given: What the planner is given.
        sample: Score a fixed random sample of this many windows.
        save_plans: File for the plans and the true sequence of every window: .jsonl (a line each)
            or .parquet.
        per_task: Also show the scores of each task.
        options: Settings of the search.
        folds: Cross-validation.
        dataset: The data set to score it on, if not its own: any with observations made in the same
            way; tasks and actions are matched by name.
        horizon: Number of actions, for a folder with runs of several; with --folds, of a plan.
        steps: Numbers of steps of the plans, for a run of several lengths: one (3) or a range
            (2-4); all by default. With --folds, as in cefito train.
        device: auto, cpu or cuda.
        json: Print JSON instead of a table.
    """
    from cefito.data.annotations import SPLITS
    from cefito.evaluation.runs import changed_search, evaluate_run
    from cefito.inference.steps import open_planning
    from cefito.runtime import pick_device

    if split not in SPLITS:
        raise ConfigError(f"--split {split}: expected one of {', '.join(SPLITS)}.")
    known = given.given()  # type: ignore[attr-defined]
    changed: Mapping[str, object] = {}
    with log_warnings():
        try:
            if folds.folds is not None:
                for option, alone in (
                    ("--split", split == "test"),
                    ("--dataset", dataset is None),
                    ("--search", not options.changes()),
                    ("--stored-task", "stored_task" not in known),
                ):
                    if not alone:
                        raise ConfigError(f"{option}: is for runs, not for --folds. Leave it out.")
                scores = _cross_validated(
                    run,
                    folds,
                    horizon=horizon,
                    steps=steps,
                    device=pick_device(device),
                    sample=sample,
                    plans_file=save_plans,
                    progress=progress,
                    **known,
                )
                path = None if folds.out is None else folds.out / "folds.json"
            elif folds != _NO_FOLDS:
                raise ConfigError(
                    "training a method to score it needs the number of folds.", setting="folds"
                )
            else:
                opened = options.applied(
                    open_planning(run, horizon=horizon, steps=steps, device=pick_device(device))
                )
                scores, path = evaluate_run(
                    opened,
                    split=split,
                    sample=sample,
                    dataset=dataset,
                    plans_file=save_plans,
                    progress=progress,
                    **known,
                )
                changed = changed_search(opened)
        except KeyboardInterrupt:
            talk("error: interrupted; no scores were kept", urgent=True)
            return 130
    if json:
        print_json(scores.to_dict())
    else:
        _show(scores, changed, path, per_task=per_task)
    if save_plans is not None:
        talk(f"wrote the plans of {counted(scores.windows, 'window')} into {save_plans}")
    return 0


def _cross_validated(
    dataset: Path, options: FoldOptions, *, horizon: int | None, steps: str | None, **rest: Any
) -> RunEvaluation:
    """Score a method by cross-validation."""
    from cefito.data.prepared import open_dataset
    from cefito.evaluation.runs import cross_validate
    from cefito.inference.steps import steps_range
    from cefito.planners.methods import load_config

    if (horizon is None) == (steps is None):
        raise ConfigError(
            "expected --horizon 3, the number of steps of every plan, or --steps 1-6, a range."
        )
    shortest, longest = steps_range(horizon or steps or "")
    several = shortest < longest
    data = open_dataset(dataset)
    config = load_config(
        options.preset or "small",
        method=options.method or ("any-length" if several else "cefito"),
        dataset=data.taxonomy.dataset,
        horizon=longest,
        overrides=settings(options.set_),
    )
    return cross_validate(
        data,
        config=config,
        horizon=longest,
        shortest=shortest if several else None,
        folds=options.folds or 0,
        seed=options.seed or 0,
        all_videos=options.all_videos,
        out=options.out,
        **rest,
    )


def _show(
    scores: RunEvaluation, changed: Mapping[str, object], path: Path | None, *, per_task: bool
) -> None:
    how = [scores.conditions]
    for name, value in changed.items():
        shown = f"{value:g}" if isinstance(value, float) else value
        how.append(f"{option_of(name).removeprefix('--')} {shown}")
    table(f"{_title(scores)}, {', '.join(how)}", *score_table(scores))
    if per_task:
        table("", *task_table(scores), stacked=True)
    else:
        _talk_of_tasks(scores)
    fallback = scores.tasks_without_training
    if fallback and fallback.tasks:
        talk(
            f"tasks without training windows: {len(fallback.tasks)}; windows of these tasks: "
            f"{fallback.windows}"
        )
    if scores.replies is not None:
        talk(scores.replies.in_words())
    learned = sum((scores.parameters or {}).values())
    exact = "every search was exact" if scores.exact else "not every search was exact"
    if scores.folds is not None:
        rates = [fold.metrics["success_rate"] for fold in scores.folds]
        videos = sum(len(fold.videos) for fold in scores.folds)
        shown = ", ".join(f"{rate:.2f}" for rate in rates)
        talk(f"{counted(videos, 'video')}, each held out once; SR of the folds: {shown}")
    unkept = "nothing was kept" + " (--out keeps the runs)" * (scores.folds is not None)
    kept = unkept if path is None else f"kept in {path}"
    talk(
        f"{scores.seconds_per_query:.3f} s and {scores.token_forwards_per_query:,.0f} token "
        f"forwards a query, {learned:,} parameters; {exact}; {kept}"
    )


def _talk_of_tasks(scores: RunEvaluation) -> None:
    """Show the range of the tasks' success rates in a line."""
    parts = scores.per_task
    if len(parts) > 1:
        ends = (end(parts, key=lambda part: part.success_rate) for end in (min, max))
        low, high = (f"{part.success_rate:.2f} ({part.name})" for part in ends)
        talk(f"SR of {len(parts)} tasks: {low} to {high}; --per-task shows all")


def _title(scores: RunEvaluation) -> str:
    sampled = scores.windows != scores.sampled_from
    windows = f"{scores.windows:,}" + (f" of {scores.sampled_from:,}" if sampled else "")
    return f"{scores.dataset}, {scores.split}, T = {scores.steps}, {windows} windows"
