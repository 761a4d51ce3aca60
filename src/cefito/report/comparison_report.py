"""The report of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cefito.evaluation.statistics import LEVEL, video_interval
from cefito.planners.methods import PlannerVariant
from cefito.report.breakdowns import loss_curves
from cefito.report.schema import CHOSEN_ON, ComparisonReport, Group, Lead, RowResults, command
from cefito.study.results import RESULTS, Results
from cefito.study.tables import metric_interval, paired_rows, result_tables
from cefito.study.trials import ScoredTrial


def report_comparison(folder: Path | str) -> ComparisonReport:
    """Make the report of a comparison from its folder, without planning or scoring anything."""
    folder = Path(folder)
    results = Results.read(folder / RESULTS)
    curves, incomplete = loss_curves(
        {
            ", ".join(path.parts[place] for place in (-4, -3, -1)): path
            for path in folder.glob("T*/seed*/trainings/*/")
        }
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
            command("report", folder.name or "COMPARISON", out="report.html"),
        ],
        versions=dict(sorted(results.versions.items())),
        curves=curves,
        notes=notes,
        dataset=results.dataset,
        facts=_facts(results),
        leads=[
            lead for horizon in results.horizons if (lead := _lead(results, horizon)) is not None
        ],
        tables=result_tables(results),
        steps={horizon: results.steps(horizon) for horizon in results.horizons},
        rows={
            horizon: sorted(
                (
                    _row(horizon, row, trials, np.array(results.windows_of(horizon).video))
                    for row in results.rows
                    if (trials := results.scored(horizon, row.name))
                ),
                key=lambda row: -row.success.success_rate,
            )
            for horizon in results.horizons
        },
        settings=dict(results.settings),
    )


def _lengths(results: Results) -> dict[str, str]:
    """The option of `cefito compare` that says the lengths of windows."""
    steps = ",".join(map(results.steps, results.horizons))
    return {"horizons" if results.shortest is None else "steps": steps}


def _facts(results: Results) -> dict[str, str]:
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


def _row(
    horizon: int, row: PlannerVariant, trials: Sequence[ScoredTrial], video: NDArray[np.int64]
) -> RowResults:
    scored = trials[0].scored
    of = video if scored is None else video[np.array(scored)]  # video of each scored window [N]
    right = np.mean([[int(digit) for digit in trial.success] for trial in trials], axis=0)  # [N]
    _, group = np.unique(of, return_inverse=True)
    counts = np.bincount(group)
    low = high = None
    if len(counts) > 1:
        low, high = video_interval(100 * np.bincount(group, right), counts)
    listed = metric_interval(trials, "top_5_success_rate")
    costs = ("seconds_per_query", "token_forwards_per_query", "leaves_per_query")
    return RowResults(
        horizon=horizon,
        success=Group(
            name=row.title,
            windows=len(of),
            videos=len(counts),
            success_rate=float(100 * right.mean()),
            low=low,
            high=high,
            listed=0.0 if listed is None else listed.mean,
        ),
        position_accuracy=np.mean([trial.position_accuracy for trial in trials], axis=0).tolist(),
        **{cost: float(np.mean([getattr(trial, cost) for trial in trials])) for cost in costs},
        seed=trials[0].seed,
        calibration=trials[0].calibration,
    )


def _lead(results: Results, horizon: int) -> Lead | None:
    """The best row at one horizon against the next best; None without scores of any row."""
    video = np.array(results.windows_of(horizon).video)
    scored = [
        (row.title, trials)
        for row in results.rows
        if not row.oracle and (trials := results.scored(horizon, row.name))
    ]
    scored.sort(key=lambda one: -np.mean([trial.success_rate for trial in one[1]]))
    if not scored:
        return None
    ahead, best = scored[0]
    of = video if best[0].scored is None else video[np.array(best[0].scored)]
    found = paired_rows(best, scored[1][1], video) if len(scored) > 1 else None
    difference = None if found is None else found[0]
    return Lead(
        horizon=horizon,
        ahead=ahead,
        success_rate=float(np.mean([trial.success_rate for trial in best])),
        behind=None if difference is None else scored[1][0],
        difference=None if difference is None else difference.mean,
        low=None if difference is None else difference.low,
        high=None if difference is None else difference.high,
        level=LEVEL,
        windows=len(of) if found is None else found[1],
        videos=len(np.unique(of)),
    )
