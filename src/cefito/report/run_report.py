"""The reports of a run and of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from cefito.data.windows import NoVideosError, Windows, fitting_windows, steps_text
from cefito.errors import CefitoError, ConfigError, RunError
from cefito.evaluation.records import RunEvaluation, WindowPlans, read_plans
from cefito.evaluation.runs import evaluate_run, scores_name
from cefito.evaluation.statistics import LEVEL
from cefito.files import file_digest
from cefito.inference.recordings import open_recordings
from cefito.markup import counted
from cefito.parts.folder import RunInfo
from cefito.parts.matching import DatasetName, match_dataset
from cefito.planners.given import Given
from cefito.planners.methods import PlannerVariant
from cefito.progress import Progress, silent
from cefito.report.breakdowns import (
    by_seen,
    confusion,
    gallery,
    loss_curves,
    surest,
    training_title,
)
from cefito.report.frames import find_video_files, with_frames
from cefito.report.picture import graph_picture
from cefito.report.schema import CHOSEN_ON, ComparisonReport, Lead, RowResults, RunReport, command
from cefito.runs.run import Run
from cefito.runs.settings_export import SettingDifference, changes_of_preset
from cefito.settings import flattened
from cefito.study.promises import VerifiedSplit, verified_split
from cefito.study.results import RESULTS, Results, other_features
from cefito.study.tables import paired_rows, published_table, result_tables
from cefito.study.trials import ScoredTrial
from cefito.tracks import Track
from cefito.verification.verifier import Verifier

GALLERY = 300
"""Default number of queries in the gallery."""
_WHOLE = 4  # videos whose recognised steps are drawn


def report_run(
    run: Run,
    *,
    split: str = "test",
    sample: int | None = None,
    dataset: Path | str | None = None,
    queries: int = GALLERY,
    videos: Path | str | None = None,
    frames: bool = True,
    progress: Progress = silent,
    **given: bool,
) -> RunReport:
    """Make the report of a run.

    If the run folder has scores and plans of this split (`evaluation-test.json`,
    `plans-test.jsonl`), these are shown; otherwise it is scored, and both are kept there. If no
    video was kept for test, the report has no scores.

    Args:
        run: An opened run.
        split: "train", "val" or "test".
        sample: Show a fixed random sample of this many windows.
        dataset: Any data set of the same kind of observations, by default the run's own.
        queries: Maximum number of queries in the gallery.
        videos: Folder of the videos, by default the one that the data set names.
        frames: Whether to show frames.
        progress: Shows progress.
        given: What the planner is given, by fields of `Given`.

    Raises:
        ConfigError: A sample below 1, a negative number of queries, a folder without videos, or a
            run that cannot plan without goals or after steps done.
        RunError: The data set is gone, the run cannot be used on it, or its files are damaged.
        DataError: The videos of the split have no windows.
    """
    if queries < 0:
        raise ConfigError(f"a gallery of {queries} queries; expected 0 or more.", setting="queries")
    curves, notes = loss_curves({path.name: path for path in run.folder.glob("*/")})
    files = None
    if frames and queries:
        folder = None if videos is None else Path(videos)
        files = find_video_files(run.dataset(dataset), folder)
    scores, windows = None, list[WindowPlans]()
    try:
        scores, windows = _scored(run, dataset, progress, split=split, sample=sample, given=given)
    except NoVideosError as problem:
        notes.append(f"Plans have no scores: {problem}")
    train = _training(run)
    if train is None:
        notes.append(
            "The data set that the run was trained on is not available, so success is not grouped "
            "by whether the sequence occurs in training."
        )
    if not curves:
        notes.append(
            "The run folder has no metrics of its trainings, so there are no loss curves. "
            "Runs of a comparison keep them beside the run: see the report of the comparison."
        )
    tasks = confusion(windows) if windows else None
    if windows and tasks is None:
        notes.append("The planner has no notion of tasks: there is no confusion of them.")
    shown = gallery(windows, queries)
    if files is not None:
        try:
            shown, note = with_frames(shown, files, progress=progress)
        except ConfigError as problem:  # a library is missing
            if videos is not None:
                raise
            note = f"Frames are not shown: {problem}"
        notes += [note] if note else []
    changes = changes_of_preset(run)
    planner = run.planner.name if scores is None else scores.planner
    data = run.info.dataset.name if scores is None else scores.dataset
    verifier = run.verifier
    return RunReport(
        title=f"{planner} on {data}, T = {run.steps}",
        simulated="simulated" in data.lower() or run.info.dataset.simulation is not None,
        commands=[
            *_training_command(run, changes),
            command(
                "report",
                Path(run.place),
                split=split,
                steps=None if run.chosen_steps is None else run.steps,
                **given,
                sample=sample,
                dataset=None if dataset is None else Path(dataset),
                queries=None if queries == GALLERY else queries,
                videos=None if videos is None else Path(videos),
                without_frames=not frames,
                out="report.html",
            ),
        ],
        versions=dict(sorted(run.info.versions.items())),
        curves=curves,
        notes=notes,
        dataset=DatasetName(
            name=run.info.dataset.name, fingerprint=run.info.dataset.fingerprint or "none"
        ),
        facts=_facts(run, planner),
        scores=scores,
        sure=surest(windows) if windows else None,
        published=None
        if scores is None
        else published_table(
            scores, other_features(run.info.dataset.observed, run.planner.observation_dim)
        ),
        confusion=tasks,
        by_seen=None if train is None or not windows else by_seen(windows, train),
        energies=scores is not None and bool((scores.weights or {}).get("energy")),
        settings=flattened(run.config.sections),
        changes=changes or [],
        gallery_of=len(windows),
        gallery=shown,
        recognised=_recognised(run, dataset, list(dict.fromkeys(one.video for one in windows))),
        verified=_verified(run, dataset, split) if windows else None,
        graph=None if verifier is None else _graph(verifier),
        held_out=_held_out(run),
    )


def _graph(verifier: Verifier) -> str | None:
    """The picture of the orders of the tasks that videos kept; None without any."""
    orders = {task: order for task, order in enumerate(verifier.orders) if order.edges}
    return graph_picture(orders, verifier.taxonomy) if orders else None


def _held_out(run: Run) -> list[str] | None:
    """How steps and mistakes were recognised in training videos that were held out in turn."""
    if run.recogniser is None or run.recogniser.held_out is None:
        return None
    seen = zip(run.taxonomy.tasks, run.recogniser.seen or (), strict=False)
    names = [action.name for action in run.taxonomy.actions]
    tried = [f"{task.name}: {mistakes.words(names)}." for task, mistakes in seen if mistakes.right]
    words = run.recogniser.held_out.words
    return [f"{words[:1].upper()}{words[1:]}.", *tried]


def _verified(run: Run, dataset: Path | str | None, split: str) -> VerifiedSplit | None:
    """The annotated steps of a split, verified; None without a verifier, or of another taxonomy."""
    data = run.dataset(dataset)
    if run.verifier is None or data.taxonomy != run.taxonomy:
        return None
    videos = [video for video in data.videos if video.split == split]
    return verified_split(run.verifier, videos)


def _recognised(run: Run, dataset: Path | str | None, videos: list[str]) -> list[Track]:
    """Steps recognised in the first videos; none without a recogniser or rows of whole videos."""
    data = run.dataset(dataset)
    if run.recogniser is None or data.timeline is None:
        return []
    shown = open_recordings(run, videos[:_WHOLE], dataset=data.folder)
    return [one.recognised(run) for one in shown]


def _scored(
    run: Run,
    dataset: Path | str | None,
    progress: Progress,
    *,
    split: str,
    sample: int | None,
    given: Mapping[str, Any],
) -> tuple[RunEvaluation, list[WindowPlans]]:
    """Scores and plans from the run folder, or new ones."""
    opened = run.dataset(dataset)
    windows, other = match_dataset(run, opened).windows(split)
    name = scores_name(
        run,
        split=split,
        given=Given.of(**given),
        sampled=sample if sample is not None and sample < len(windows) else None,
        other=None if other is None else opened.fingerprint,
    )
    plans = run.folder / name.replace("evaluation", "plans", 1).replace(".json", ".jsonl")
    with suppress(RunError):  # missing, or of another version
        scores, found = RunEvaluation.read(run.folder / name), read_plans(plans)
        shown = scores.fingerprint, scores.plans_sha256
        if shown == (opened.fingerprint, file_digest(plans)) and scores.is_of(run.files):
            return scores, found
    with TemporaryDirectory() as temporary:
        plans = Path(temporary) / plans.name if run.copy_of else plans
        scores, _ = evaluate_run(
            run,
            split=split,
            sample=sample,
            dataset=dataset,
            plans_file=plans,
            progress=progress,
            **given,
        )
        return scores, read_plans(plans)


def _training(run: Run) -> Windows | None:
    """The windows that a run was trained on; None if its data set is not in its place."""
    if run.info.selection is None:
        return None
    try:
        return fitting_windows(
            run.dataset(),
            horizon=run.horizon,
            shortest=run.shortest,
            selection=run.info.selection,
            errors=run.info.errors,
        )[0]
    except CefitoError:
        return None


def _facts(run: Run, planner: str) -> dict[str, str]:
    info = run.info
    windows = ", ".join(f"{name} {count:,}" for name, count in info.windows.items())
    learned = run.planner.describe().parameters or {}
    parameters = ", ".join(f"{name} {count:,}" for name, count in learned.items())
    trainings = ", ".join(
        f"{name}: epoch {result.best_epoch} of {result.epochs}"
        for name, result in info.training.items()
    )
    facts = {
        "method": f"{planner} ({info.method})",
        "preset": Path(info.preset).name,
        "seed": "none" if info.seed is None else str(info.seed),
        "epochs and weights chosen on": CHOSEN_ON[info.selection],
        "windows of training": windows or "unknown",
        "vocabulary": f"{counted(len(run.taxonomy.tasks), 'task')}, "
        f"{counted(len(run.taxonomy.actions), 'action')}",
        "parameters": parameters or "none",
        "epochs kept": trainings or "none",
    }
    if info.imported:
        facts["weights"] = "imported"
    if info.started_from is not None:
        facts["finetuned from"] = f"a run on {info.started_from.dataset.name}"
    return facts


def _training_command(run: Run, changes: list[SettingDifference] | None) -> list[str]:
    """The command that trains it again; none if a single command cannot."""
    info = RunInfo.read(run.folder)  # its steps are all that it was trained for
    if info.imported or info.started_from or info.seed is None or changes is None:
        return []
    values = {
        change.setting: str(change.ours).lower() if isinstance(change.ours, bool) else change.ours
        for change in changes
    }
    return [
        command(
            "train",
            info.dataset.path or "DATASET",
            horizon=info.horizon if info.shortest is None else None,
            steps=None if info.shortest is None else steps_text(info.horizon, info.shortest),
            method=info.method,
            preset=info.preset,
            seed=info.seed,
            selection="published" if info.selection == "published" else None,
            set=tuple(f"{name}={value}" for name, value in values.items()),
            out="RUN",
        )
    ]


def report_comparison(folder: Path | str) -> ComparisonReport:
    """Make the report of a comparison from its folder, without planning or scoring anything."""
    folder = Path(folder)
    results = Results.read(folder / RESULTS)
    curves, incomplete = loss_curves(
        {training_title(path, results): path for path in folder.glob("T*/seed*/trainings/*/")}
    )
    notes = [
        *incomplete,
        "A comparison does not keep the plans of single windows: accuracy of each task, confusion "
        "of tasks, energy gaps and the gallery are in the reports of its runs "
        "(T3/seed0/runs/… in its folder).",
    ]
    if not curves:
        notes.append("The folder has no metrics of trainings: there are no loss curves.")
    return ComparisonReport(
        title=f"{results.dataset.name}: {len(results.rows)} planners",
        simulated="simulated" in results.dataset.name.lower(),
        commands=[
            command(
                "compare",
                "DATASET",
                planners=",".join(row.name for row in results.rows),
                **_lengths(results),
                seeds=len(results.seeds),
                preset=results.preset,
                selection=None if results.selection == "held-out" else results.selection,
                sample=results.sample,
                set=tuple(f"{name}={value}" for name, value in results.settings.items()),
                out="COMPARISON",
            ),
            command("report", folder, out="report.html"),
        ],
        versions=dict(sorted(results.versions.items())),
        curves=curves,
        notes=notes,
        dataset=results.dataset,
        facts=_comparison_facts(results),
        leads=[
            lead for horizon in results.horizons if (lead := _lead(results, horizon)) is not None
        ],
        tables=result_tables(results),
        steps={horizon: results.steps(horizon) for horizon in results.horizons},
        rows={horizon: _rows(results, horizon) for horizon in results.horizons},
        settings=dict(results.settings),
    )


def _lengths(results: Results) -> dict[str, str]:
    """The option of `cefito compare` that says the lengths of windows."""
    steps = ",".join(map(results.steps, results.horizons))
    return {"horizons" if results.shortest is None else "steps": steps}


def _comparison_facts(results: Results) -> dict[str, str]:
    scored = sum(isinstance(cell, ScoredTrial) for cell in results.trials)
    return {
        "preset": Path(results.preset).name,
        "horizons": ", ".join(f"T = {results.steps(horizon)}" for horizon in results.horizons),
        "seeds": ", ".join(map(str, results.seeds)),
        "epochs and weights chosen on": CHOSEN_ON[results.selection],
        "test windows": ", ".join(
            f"T = {results.steps(horizon)}: {len(results.windows_of(horizon).video):,}"
            for horizon in results.horizons
        )
        + ("" if results.sample is None else f" (a sample of {results.sample:,})"),
        "trials": f"{scored} scored, {len(results.trials) - scored} failed",
    }


def _rows(results: Results, horizon: int) -> list[RowResults]:
    return [
        RowResults(
            name=row.title,
            position_accuracy=np.mean([one.position_accuracy for one in trials], axis=0).tolist(),
            seed=trials[0].seed,
            calibration=trials[0].calibration,
        )
        for row, trials in _ranked(results, horizon)
    ]


def _ranked(results: Results, horizon: int) -> list[tuple[PlannerVariant, list[ScoredTrial]]]:
    """Rows with scores and their trials at one horizon, by descending success rate."""
    scored = [
        (row, trials) for row in results.rows if (trials := results.scored(horizon, row.name))
    ]
    return sorted(scored, key=lambda one: -np.mean([trial.success_rate for trial in one[1]]))


def _lead(results: Results, horizon: int) -> Lead | None:
    """The best row at one horizon against the next best; None without scores of any row."""
    listed = results.windows_of(horizon)
    video = np.array(listed.units)
    ranked = _ranked(results, horizon)
    scored = [(row.title, trials) for row, trials in ranked if not row.true_task]
    if not scored:
        return None
    ahead, best = scored[0]
    of = video if best[0].scored is None else video[np.array(best[0].scored)]
    found = paired_rows(best, scored[1][1], video) if len(scored) > 1 else None
    gain, windows = found or (None, len(of))
    return Lead(
        horizon=horizon,
        ahead=ahead,
        success_rate=float(np.mean([trial.success_rate for trial in best])),
        behind=gain and scored[1][0],
        difference=gain and gain.mean,
        low=gain and gain.low,
        high=gain and gain.high,
        level=LEVEL,
        windows=windows,
        videos=len(np.unique(of)),
        kind=listed.kind,
    )
