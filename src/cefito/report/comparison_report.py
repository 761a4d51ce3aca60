"""The report of a comparison."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cefito.evaluation.statistics import LEVEL
from cefito.planners.methods import PlannerVariant
from cefito.report.breakdowns import loss_curves
from cefito.report.schema import CHOSEN_ON, ComparisonReport, Lead, RowResults, command
from cefito.study.results import RESULTS, Results
from cefito.study.tables import paired_rows, result_tables
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
        rows={horizon: _rows(results, horizon) for horizon in results.horizons},
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
    video = np.array(results.windows_of(horizon).video)
    ranked = _ranked(results, horizon)
    scored = [(row.title, trials) for row, trials in ranked if not row.oracle]
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
