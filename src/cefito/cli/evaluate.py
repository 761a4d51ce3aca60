"""`cefito evaluate`, `cross-validate`, `calibrate`: scores of runs and methods, sets of plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from cefito.cli.console import (
    log_warnings,
    passing_progress,
    print_json,
    progress,
    table,
    talk,
    word,
)
from cefito.cli.options import (
    DataFolder,
    Device,
    RunFolder,
    Settings,
    check_one,
    check_split,
    given_options,
    settings,
)
from cefito.cli.plan_options import AS_TRAINED, SearchOptions, option_of
from cefito.cli.values import Flag, Json, said_as_json
from cefito.data.folds import By
from cefito.data.prepared import open_dataset
from cefito.inference.question import steps_range
from cefito.markup import counted
from cefito.parts.coverage import COVERAGE_FILE
from cefito.planners.given import Given
from cefito.planners.methods import load_config
from cefito.runtime import pick_device

if TYPE_CHECKING:
    from cefito.evaluation.records import Evaluation, RunEvaluation


def metric_columns(evaluations: Sequence[Evaluation]) -> dict[str, str]:
    """Heads of a few metrics that an evaluation has, by their names."""
    from cefito.evaluation.metrics import metric_heads
    from cefito.evaluation.records import CALIBRATION_HEADS

    heads = metric_heads(brief=True) | CALIBRATION_HEADS
    return {
        name: head
        for name, head in heads.items()
        if any(evaluation.percent(name) is not None for evaluation in evaluations)
    }


def metric_cells(evaluation: Evaluation, columns: Iterable[str]) -> list[str]:
    """Cells of one row under the columns of these names."""
    return [_number(evaluation.percent(name)) for name in columns]


def score_table(scores: RunEvaluation) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: every metric and the accuracy of each step, with intervals if known."""
    lines, intervals = scores.headline(), scores.intervals
    for step, value in enumerate(scores.position_accuracy):
        ends: tuple[Any, ...] = (None, None)
        if intervals is not None:
            ends = tuple(
                part["position_accuracy"][step]  # type: ignore[index]
                for part in (intervals.low, intervals.high)
            )
        lines.append((f"right action at step {step + 1}", value, *ends))
    heads = ["per cent", scores.planner]
    if intervals is not None:
        heads.append(f"{100 * intervals.level:g} % interval, {intervals.resampled} resampled")
    rows = [
        [head, _number(value), "–" if low is None else f"{_number(low)} to {_number(high)}"]
        for head, value, low, high in lines
    ]
    return heads, [row[: len(heads)] for row in rows]


def task_table(scores: RunEvaluation) -> tuple[list[str], list[list[object]]]:
    """Heads and rows of a few metrics of each task."""
    columns = {
        name: head for name, head in metric_columns([scores]).items() if name in scores.metrics
    }
    rows: list[list[object]] = []
    for part in scores.per_task:
        numbers = [_number(part.metrics.get(name)) for name in columns]
        rows.append([part.name, part.task, part.windows, part.videos, *numbers])
    heads = columns | {"task_accuracy": "task right"} if "task_accuracy" in columns else columns
    return ["task", "id", "windows", "videos", *heads.values()], rows


def _number(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else "–"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Scoring(given_options(*Given.model_fields)):  # type: ignore[misc]
    """Options of commands that score plans of windows.

    Attributes:
        sample: Score a fixed random sample of this many windows.
        save_plans: .jsonl file for the plans and the true sequence of every window, a line each.
        per_task: Also show the scores of each task.
    """

    sample: int | None = None
    save_plans: Path | None = None
    per_task: Flag = False
    device: Device = "auto"
    json: Json = False

    def settings(self) -> dict[str, Any]:
        """Return arguments of functions that score."""
        asked = {"sample": self.sample, "plans_file": self.save_plans, "progress": progress}
        return {**asked, **self.given()}


_ALL = Scoring()


def evaluate(
    run: RunFolder,
    /,
    *,
    split: str = "test",
    scoring: Scoring = _ALL,
    options: SearchOptions = AS_TRAINED,
    dataset: Path | None = None,
    order: Path | None = None,
    horizon: int | None = None,
    steps: str | None = None,
) -> None:
    """Score a run: success rate, accuracies, IoU, edit similarity, calibration, cost.

    Args:
        split: train, val or test.
        dataset: The data set to score it on, if not its own: any with observations made in the same
            way; tasks and actions are matched by name.
        order: File of orders of steps, as cefito graph writes it, for the order-tolerant success
            rate (order SR); by default the orders that all training videos keep.
        horizon: Number of actions, for a folder with runs of several.
        steps: Numbers of steps of the plans, for a run of several lengths: one (3) or a range
            (2-4); all by default.
    """
    from cefito.evaluation.runs import changed_search, evaluate_run
    from cefito.runs.run import run_for_steps

    check_split(split)
    with log_warnings():
        opened = options.applied(
            run_for_steps(run, horizon=horizon, steps=steps, device=pick_device(scoring.device))
        )
        scores, path = evaluate_run(
            opened, split=split, dataset=dataset, order=order, **scoring.settings()
        )
    _report(scores, changed_search(opened), path, scoring)


def cross_validate(
    dataset: DataFolder,
    /,
    *,
    folds: int | None = None,
    by: By | None = None,
    all_videos: Flag = False,
    horizon: int | None = None,
    steps: str | None = None,
    method: str | None = None,
    preset: str = "small",
    seed: int = 0,
    set_: Settings = (),
    out: Path | None = None,
    scoring: Scoring = _ALL,
) -> None:
    """Score a method on the videos of training and validation, each by a run that never saw it.

    Args:
        folds: Number of parts of the videos: each is scored by a run trained on the others; 5 by
            default, or as many as there are groups.
        by: What parts keep together: group (the default if videos have groups; leaves one group out
            if no number of parts is given), or video.
        all_videos: Also use the videos of the test split.
        horizon: Number of actions of a plan.
        steps: Range of numbers of actions instead, as in cefito train.
        method: Name of the method, as in cefito train.
        preset: As in cefito train.
        seed: Seed of the folds and of the trainings.
        out: Folder that keeps the runs and the scores (folds.json); repeat the command to resume.
    """
    from cefito.evaluation.runs import cross_validate
    from cefito.runs.options import TrainOptions

    check_one(horizon, steps)
    shortest, longest = steps_range(horizon or steps or "")
    several, given = shortest < longest, scoring.settings()
    with log_warnings():
        data = open_dataset(dataset)
        scores = cross_validate(
            data,
            config=load_config(
                preset,
                method=method or ("any-length" if several else "chain"),
                dataset=data.taxonomy.dataset,
                horizon=longest,
                overrides=settings(set_),
            ),
            horizon=longest,
            shortest=shortest if several else None,
            folds=folds,
            by=by,
            all_videos=all_videos,
            out=out,
            options=TrainOptions(
                seed=seed, device=pick_device(scoring.device), progress=given.pop("progress")
            ),
            **given,
        )
    path = None if out is None else out / "folds.json"
    _report(scores, {}, path, scoring)


def _report(
    scores: RunEvaluation, changed: Mapping[str, object], path: Path | None, shown: Scoring
) -> None:
    """Print scores, with changed settings of the search and the file that keeps them."""
    if shown.save_plans is not None:
        talk(f"wrote the plans of {counted(scores.windows, 'window')} into {shown.save_plans}")
    if shown.json:
        print_json(scores.to_dict())
        return
    sampled = f" of {scores.sampled_from:,}" * (scores.windows != scores.sampled_from)
    how = [
        *(scores.dataset, scores.split, f"T = {scores.steps}"),
        f"{scores.windows:,}{sampled} windows",
        scores.conditions,
    ]
    for name, value in changed.items():
        text = f"{value:g}" if isinstance(value, float) else value
        how.append(f"{option_of(name).removeprefix('--')} {text}")
    table(", ".join(how), *score_table(scores))
    if shown.per_task:
        table("", *task_table(scores))
    elif len(parts := scores.per_task) > 1:
        ends = (end(parts, key=lambda part: part.success_rate) for end in (min, max))
        low, high = (f"{part.success_rate:.2f} ({part.name})" for part in ends)
        talk(f"SR of {len(parts)} tasks: {low} to {high}; --per-task shows all")
    if scores.clean is not None and scores.wrong is not None:
        apart = {"without an error": scores.clean, "with a step done wrongly": scores.wrong}
        for name, part in apart.items():
            rates = [part.metrics[metric] for metric in ("success_rate", "mean_accuracy")]
            both = " and mAcc ".join(f"{rate:.2f}" for rate in rates)
            talk(f"{counted(part.windows, 'window')} {name}: SR {both}")
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
    kept = "nothing was kept" if path is None else f"kept in {path}"
    if scores.folds is not None:
        videos = sum(len(fold.videos) for fold in scores.folds)
        listed = ", ".join(
            f"{' + '.join(fold.groups or ())} {fold.metrics['success_rate']:.2f}".strip()
            for fold in scores.folds
        )
        talk(f"{counted(videos, 'video')}, each held out once; SR of the folds: {listed}")
        kept += " (--out keeps the runs)" * (path is None)
    talk(
        f"{scores.seconds_per_query:.3f} s and {scores.token_forwards_per_query:,.0f} token "
        f"forwards a query, {learned:,} parameters; {exact}; {kept}"
    )


@said_as_json
def calibrate(
    run: RunFolder,
    /,
    *,
    folds: int | None = None,
    dataset: Path | None = None,
    horizon: int | None = None,
    device: Device = "auto",
) -> dict[str, Any]:
    """Calibrate the sets of plans of a run, for cefito plan --coverage.

    Args:
        folds: Number of parts of the training videos, which keep groups together; 0 to use the
            validation videos. By default as its setting coverage.folds says: unless it is changed,
            0 if there are at least 50 of these and the run was not trained on them, else 10, or as
            many as there are groups.
        dataset: The run's data set, if it has moved; with --folds 0 any data set with validation
            videos and observations made in the same way.
        horizon: Number of actions, if the folder holds runs of several.
    """
    from cefito.evaluation.conformal import calibrate_run
    from cefito.runs.run import open_run

    with log_warnings():
        chosen = pick_device(device)
        opened = open_run(run, horizon=horizon, device=chosen)
        table = calibrate_run(
            opened, folds=folds, dataset=dataset, device=chosen, progress=passing_progress
        )
    videos = max(one.videos for one in table.thresholds)
    how = f"{table.folds} folds of training videos" if table.folds else "validation videos"
    most, file = min(table.levels[-1], videos / (videos + 1)), opened.folder / COVERAGE_FILE
    talk(
        f"calibrated on {counted(videos, 'video')} ({how}), for a coverage of at most "
        f"{most:.3f}; kept in {file}"
    )
    talk(f"ask with: cefito plan {word(run)} … --coverage 0.9")
    return {"file": str(file), "videos": videos, "folds": table.folds, "most_coverage": most}
