"""The report of a comparison: its tables, and what its results file says beside them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cefito.evaluation.records import ScoredCell
from cefito.evaluation.statistics import video_interval
from cefito.evaluation.table import Table
from cefito.report.curves import loss_curves
from cefito.report.schema import (
    ComparisonReport,
    CostRow,
    Fact,
    Group,
    HorizonResults,
    PositionRow,
    RowCalibration,
    TableRow,
    TextTable,
)
from cefito.study.results import DatasetName, Results, read_results
from cefito.study.tables import metric_interval, result_tables
from cefito.study.variants import PlannerVariant

__all__ = ["RESULTS", "report_comparison"]

RESULTS = "results.json"


def report_comparison(folder: Path | str) -> ComparisonReport:
    """Everything that there is to show of a comparison; nothing is planned or scored.

    Args:
        folder: The folder, as `cefito compare` makes it.

    Raises:
        RunError: The folder holds no results, or its files are damaged.
    """
    folder = Path(folder)
    results = read_results(folder / RESULTS)
    tables = result_tables(results)
    files = {
        f"{path.parent.parent.parent.parent.name}, {path.parent.parent.parent.name}, "
        f"{path.parent.name}": path
        for path in folder.glob("T*/seed*/trainings/*/metrics.jsonl")
    }
    notes = [
        "Plans of single windows are not kept by a comparison: per-task accuracy, confusion of "
        "tasks, gaps of energy and the gallery are in the reports of its runs "
        "(T3/seed0/runs/… in its folder)."
    ]
    if not files:
        notes.append("The folder holds no metrics of trainings: there are no loss curves.")
    return ComparisonReport(
        title=f"{results.dataset.name}: {len(results.rows)} planners",
        simulated="simulated" in results.dataset.name.lower(),
        commands=[_command(results), _report_command(folder)],
        versions=dict(sorted(results.versions.items())),
        curves=loss_curves(files),
        notes=notes,
        dataset=DatasetName(name=results.dataset.name, fingerprint=results.dataset.fingerprint),
        facts=_facts(results),
        tables=[_text(table) for table in tables],
        horizons=[_horizon(results, horizon) for horizon in results.horizons],
        costs=[cost for row in results.rows if (cost := _cost(results, row)) is not None],
        settings=dict(results.settings),
    )


def _facts(results: Results) -> list[Fact]:
    scored = sum(isinstance(cell, ScoredCell) for cell in results.cells)
    chosen = "validation split"
    if results.selection != "held-out":
        chosen = "TEST split, as published work does"
    facts = {
        "preset": Path(results.preset).name,
        "horizons": ", ".join(f"T = {horizon}" for horizon in results.horizons),
        "seeds": ", ".join(map(str, results.seeds)),
        "epochs and weights chosen on": chosen,
        "test windows": ", ".join(
            f"T = {horizon}: {len(results.windows_of(horizon).video):,}"
            for horizon in results.horizons
        )
        + ("" if results.sample is None else f" (a sample of {results.sample:,})"),
        "cells": f"{scored} scored, {len(results.cells) - scored} failed",
    }
    return [Fact(name=name, value=value) for name, value in facts.items()]


def _text(table: Table) -> TextTable:
    return TextTable(
        title=table.title,
        heads=list(table.heads),
        rows=[
            TableRow(
                cells=[entry.text for entry in line] + [""] * (len(table.heads) - len(line)),
                ranks=[entry.rank for entry in line] + [0] * (len(table.heads) - len(line)),
            )
            for line in table.lines
        ],
        below=table.below,
        notes=list(table.notes),
    )


def _horizon(results: Results, horizon: int) -> HorizonResults:
    success, positions, calibrations = [], [], []
    video = results.windows_of(horizon).video
    for row in results.rows:
        cells = results.scored(horizon, row.name)
        if not cells:
            continue
        success.append(_success(row, cells, video))
        accuracy = np.mean([cell.position_accuracy for cell in cells], axis=0)
        positions.append(PositionRow(row=row.title, accuracy=accuracy.tolist()))
        if cells[0].calibration is not None:
            calibrations.append(
                RowCalibration(row=row.title, seed=cells[0].seed, calibration=cells[0].calibration)
            )
    return HorizonResults(
        horizon=horizon, success=success, positions=positions, calibrations=calibrations
    )


def _success(row: PlannerVariant, cells: Sequence[ScoredCell], video: Sequence[int]) -> Group:
    """Success rate of a row over its seeds, and how sure it is with videos resampled."""
    scored = cells[0].scored
    of = np.array(video)[np.arange(len(video)) if scored is None else np.array(scored)]
    right = np.mean([[int(digit) for digit in cell.success] for cell in cells], axis=0)
    _, group = np.unique(of, return_inverse=True)
    counts = np.bincount(group)
    low = high = None
    if len(counts) > 1:
        low, high = video_interval(100 * np.bincount(group, right), counts)
    listed = metric_interval(cells, "top_5_success_rate")
    return Group(
        name=row.title,
        windows=len(of),
        videos=len(counts),
        success_rate=float(100 * right.mean()),
        low=low,
        high=high,
        listed=0.0 if listed is None else listed.mean,
    )


def _cost(results: Results, row: PlannerVariant) -> CostRow | None:
    """What a query costs at each horizon that the row was scored at."""
    found = {horizon: results.scored(horizon, row.name) for horizon in results.horizons}
    found = {horizon: cells for horizon, cells in found.items() if cells}
    if not found:
        return None

    def means(name: str) -> list[float]:
        return [float(np.mean([getattr(cell, name) for cell in cells])) for cells in found.values()]

    return CostRow(
        row=row.title,
        horizons=list(found),
        seconds=means("seconds_per_query"),
        token_forwards=means("token_forwards_per_query"),
        leaves=means("leaves_per_query"),
    )


def _command(results: Results) -> str:
    """The command that makes the comparison again, wherever its data set lies."""
    parts = ["cefito", "compare", "DATASET", "--planners"]
    parts.append(",".join(_with_seeds(results, row) for row in results.rows))
    parts += ["--horizons", ",".join(map(str, results.horizons))]
    parts += ["--seeds", str(len(results.seeds)), "--preset", results.preset]
    if results.selection != "held-out":
        parts += ["--selection", results.selection]
    if results.sample is not None:
        parts += ["--sample", str(results.sample)]
    for name, value in results.settings.items():
        parts += ["--set", f"{name}={value}"]
    return shlex.join([*parts, "--out", "COMPARISON"])


def _with_seeds(results: Results, row: PlannerVariant) -> str:
    """A row as --planners takes it, with how many of the seeds it has where these are fewer."""
    scored = {
        results.seeds.index(cell.seed)
        for horizon in results.horizons
        for cell in results.scored(horizon, row.name)
    }
    count = max(scored, default=-1) + 1
    return f"{row.name}:{count}" if 0 < count < len(results.seeds) else row.name


def _report_command(folder: Path) -> str:
    return shlex.join(["cefito", "report", folder.name or "COMPARISON", "--out", "report.html"])
