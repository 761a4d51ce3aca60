"""The paper's figures, drawn from the results of a study and from its runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cefito.data.windows import Windows
from cefito.evaluation.records import ScoredCell
from cefito.evaluation.score import evaluate_planner, successes
from cefito.runs.run import open_run
from cefito.runtime import pick_device
from cefito.search.problem import Plans
from cefito.study.experiment_variants import COUNTS, SHARES
from cefito.study.figures import Curve, Line, PlanPanel, draw_curves, draw_plans
from cefito.study.results import Results
from cefito.study.study import Study
from cefito.study.trials import Trial, scored_windows

__all__ = ["draw_negatives", "draw_qualitative", "draw_runtime"]

logger = logging.getLogger(__name__)

_MOST_WINDOWS = 400  # that successes and failures are looked for among
_SHOWN = 4  # successes and failures each


def draw_negatives(study: Study, results: Results, out: Path) -> list[Path]:
    """Success rate against the number of negatives and the share of hard ones."""
    rates: dict[str, list[float]] = {}
    for cell in results.scored(study.horizons[0]):
        rates.setdefault(cell.row, []).append(cell.success_rate)
    if "N-50" in rates:  # the same training, in both panels
        rates["r-0.8"] = rates["N-50"]
    panels = []
    for letter, places, label in (("N", COUNTS, "r = 0.8"), ("r", SHARES, "N = 50")):
        points = [
            (float(place), rates[f"{letter}-{place}"])
            for place in places
            if f"{letter}-{place}" in rates
        ]
        panels.append([Curve(label=label, points=points)] if points else [])
    target = out / "negatives.png"
    draw_curves(
        panels,
        target,
        titles=("negatives N", "share of hard negatives r"),
        labels=("N", "r"),
        values=(f"success rate, T = {study.horizons[0]} (%)",) * 2,
        logarithmic=(True, False),
        title=_title(results),
    )
    return [target]


def draw_runtime(study: Study, results: Results, out: Path) -> list[Path]:
    """Seconds and token forwards a query against the horizon; nothing at a single horizon."""
    target = out / "runtime.png"
    if len(study.horizons) < 2:
        logger.warning(
            "%s is not drawn: it shows costs against the horizon, and there is one alone (T = %s). "
            "The table has the numbers.",
            target.name,
            study.horizons[0],
        )
        return []
    draw_curves(
        [
            _cost_curves(results, lambda cell: cell.seconds_per_query),
            _cost_curves(results, lambda cell: cell.token_forwards_per_query),
        ],
        target,
        titles=("runtime", "token forwards"),
        labels=("horizon T", "horizon T"),
        values=("seconds a query", "token forwards a query"),
        logarithmic=(False, False),
        log_values=True,
        title=_title(results),
    )
    return [target]


def _cost_curves(results: Results, cost: Callable[[ScoredCell], float]) -> list[Curve]:
    """A curve for each row that has such a cost."""
    curves = []
    for row in results.rows:
        costs = {
            horizon: [cost(cell) for cell in results.scored(horizon, row.name)]
            for horizon in results.horizons
        }
        points = [(float(horizon), part) for horizon, part in costs.items() if any(part)]
        if points:
            curves.append(Curve(label=row.title, points=points))
    return curves


def draw_qualitative(study: Study, results: Results, out: Path) -> list[Path]:
    """The five best plans of some test windows, four successes and four failures.

    They are of different tasks where possible.

    Raises:
        RunError: A run that is drawn from has not finished.
    """
    row, written = study.rows[0], []
    for horizon in study.horizons:
        folder = Trial(row=row, horizon=horizon, seed=study.seeds[0]).run_folder(study)
        planner = row.apply(open_run(folder, device=pick_device(study.device)).planner)
        windows = scored_windows(study, row, horizon)[0].sample(_MOST_WINDOWS, seed=0)
        _, plans = evaluate_planner(planner, windows)
        right = successes(plans, windows)
        for name, rows in (
            ("successes", np.flatnonzero(right)),
            ("failures", np.flatnonzero(~right)),
        ):
            _, first = np.unique(windows.tasks[rows], return_index=True)
            by_task = [*rows[np.sort(first)], *np.delete(rows, first)]  # each task's first before
            panels = [
                _panel(study, windows, int(index), plans[index]) for index in by_task[:_SHOWN]
            ]
            if panels:
                target = out / f"qualitative-T{horizon}-{name}.png"
                draw_plans(panels, target, title=f"{_title(results)}, T = {horizon}: {name}")
                written.append(target)
    return written


def _panel(study: Study, windows: Windows, index: int, plans: Plans) -> PlanPanel:
    taxonomy, actual = study.dataset.taxonomy, windows.actions[index]
    task = taxonomy.tasks[windows.tasks[index]].name
    video = study.dataset.videos[windows.video[index]].video_id
    return PlanPanel(
        title=f"{task} ({video})",
        truth=taxonomy.names(actual),
        plans=[
            Line(
                score=float(score),
                actions=taxonomy.names(actions),
                right=(actions == actual).tolist(),
            )
            for score, actions in zip(plans.scores, plans.actions, strict=True)
        ],
    )


def _title(results: Results) -> str:
    chosen = "" if results.selection == "held-out" else ", chosen on TEST"
    return results.dataset.name + chosen
