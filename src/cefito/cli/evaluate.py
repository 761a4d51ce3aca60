"""`cefito evaluate`: score a run on a split."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cefito.cli.console import log_warnings, print_json, progress, table, talk
from cefito.cli.options import Flag
from cefito.cli.plan_options import AS_TRAINED, SearchOptions, option_of
from cefito.cli.scores import score_table, task_table
from cefito.errors import ConfigError
from cefito.files import check_target
from cefito.markup import counted

if TYPE_CHECKING:
    from cefito.evaluation.records import Answered, RunEvaluation

__all__ = ["evaluate"]

_PICTURES = (".png", ".svg", ".pdf")


def evaluate(
    run: Path,
    /,
    *,
    split: str = "test",
    oracle_task: Flag = False,
    oracle_ends: Flag = False,
    without_goal: Flag = False,
    after_done: Flag = False,
    with_elapsed: Flag = False,
    sample: int | None = None,
    min_probability: float | None = None,
    reliability: Path | None = None,
    save_plans: Path | None = None,
    per_task: Flag = False,
    options: SearchOptions = AS_TRAINED,
    dataset: Path | None = None,
    horizon: int | None = None,
    steps: str | None = None,
    device: str = "auto",
    json: Flag = False,
) -> int:
    """Score a run: success rate, accuracies, IoU, edit similarity, calibration, cost.

    The table includes 90 % intervals with videos resampled. The scores are also kept in the run
    folder, with the scores of each task; another search has its own file.

    Args:
        run: Run folder, as cefito train makes it.
        split: train, val or test.
        oracle_task: Plan with the true task of each window.
        oracle_ends: Plan with the true first and last action of each window; only for pkg,
            pkg-beam, llm-ends and llm-ranked.
        without_goal: Plan without the goal, by a run of several lengths.
        after_done: Tell the planner which steps of the video were done before each window,
            likewise.
        with_elapsed: Tell the planner the seconds between the observations, likewise.
        sample: Score a fixed random sample of this many windows.
        min_probability: From 0 to 1: also show the share of windows whose best plan has at least
            this probability, and the success rate among them.
        reliability: Picture to draw: success against probability, and against coverage.
        save_plans: File for the plans and the true sequence of every window: .jsonl (a line each)
            or .parquet.
        per_task: Also show the scores of each task.
        options: Settings of the search.
        dataset: The data set to score it on, if not its own: any with observations made in the same
            way; tasks and actions are matched by name.
        horizon: Number of actions, for a folder with runs of several.
        steps: Numbers of steps of the plans, for a run of several lengths: one (3) or a range
            (2-4); all by default.
        device: auto, cpu or cuda.
        json: Print JSON instead of a table.
    """
    from cefito.data.annotations import SPLITS
    from cefito.evaluation.runs import changed_search, evaluate_run
    from cefito.inference.steps import open_planning
    from cefito.planners.base import check_probabilities
    from cefito.runtime import pick_device

    if split not in SPLITS:
        raise ConfigError(f"--split {split}: expected one of {', '.join(SPLITS)}.")
    if reliability is not None:
        check_target(reliability, _PICTURES, "reliability")
    with log_warnings():
        opened = options.applied(
            open_planning(run, horizon=horizon, steps=steps, device=pick_device(device))
        )
        if reliability is not None:
            check_probabilities(opened.planner, "reliability")
        try:
            scores, path = evaluate_run(
                opened,
                split=split,
                oracle_task=oracle_task,
                oracle_ends=oracle_ends,
                goal=not without_goal,
                done=after_done,
                elapsed=with_elapsed,
                sample=sample,
                min_probability=min_probability,
                dataset=dataset,
                plans_file=save_plans,
                progress=progress,
            )
        except KeyboardInterrupt:
            talk("error: interrupted; no scores were kept", urgent=True)
            return 130
    if reliability is not None and scores.calibration is not None:
        from cefito.study.figures import draw_reliability

        with log_warnings():
            draw_reliability(scores.calibration, reliability, title=_title(scores))
    if json:
        print_json(scores.to_dict())
    else:
        _show(scores, changed_search(opened), path, per_task=per_task)
    if save_plans is not None:
        talk(f"wrote the plans of {counted(scores.windows, 'window')} into {save_plans}")
    return 0


def _show(
    scores: RunEvaluation, changed: Mapping[str, object], path: Path, *, per_task: bool
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
    if scores.answered is not None:
        talk(_answered(scores.answered))
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
    talk(
        f"{scores.seconds_per_query:.3f} s and {scores.token_forwards_per_query:,.0f} token "
        f"forwards a query, {learned:,} parameters; {exact}; kept in {path}"
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


def _answered(answered: Answered) -> str:
    rate = answered.success_rate
    success = "" if rate is None else f"; SR among them {rate:.2f}"
    return (
        f"answered with a probability of at least {100 * answered.min_probability:g} %: "
        f"{counted(answered.windows, 'window')}, {answered.coverage:.1f} %{success}"
    )
