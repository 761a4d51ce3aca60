"""Sets of plans with a guarantee: how often they hold the annotated plan, and how large they are.

Scores the sets of a calibrated run (cefito calibrate RUN) on the windows of a split, each video as
one unit: coverage is the mean over videos of the share of a video's windows whose set holds the
truth, with an interval by resampling videos. Sizes are of a fixed sample of windows. With
--compare, also the sizes of sets by other conformal scores, on validation windows.

    python benchmarks/coverage.py DATA RUN --out FILE
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import common
from cefito.cli.console import progress
from cefito.data import Windows, cut_windows, open_dataset
from cefito.evaluation.conformal import conditions, planner_for, sampled, window_scores, windows_for
from cefito.evaluation.statistics import video_interval
from cefito.files import write_json
from cefito.inference.sets import LARGEST_SET, first_steps, set_places
from cefito.parts.coverage import Condition, quantiles
from cefito.planners.base import Queries
from cefito.runs.run import Run, open_run

LEVELS = (0.5, 0.8, 0.9, 0.95)
PARTS = ("plans", "next_step", "next_two")
COMPARED = 500  # plans that are listed to compare scores
Truth = NDArray[np.bool_]


def coverage(covered: Truth, videos: NDArray[np.int64]) -> dict[str, Any]:
    """Mean coverage over videos in per cent, with its 90 % interval."""
    names, place, counts = np.unique(videos, return_inverse=True, return_counts=True)
    of_videos = np.bincount(place, weights=covered) / counts
    low, high = video_interval(100 * of_videos, np.ones(len(names)))
    return {
        "coverage": 100 * float(of_videos.mean()),
        "interval": [low, high],
        "videos": len(names),
        "windows": len(covered),
    }


def grouped(covered: Truth, windows: Windows, groups: NDArray[np.int64]) -> dict[str, float]:
    """Coverage of each group of windows."""
    return {
        str(group): coverage(covered[groups == group], windows.video[groups == group])["coverage"]
        for group in np.unique(groups)
    }


def asked(windows: Windows, condition: Condition) -> Queries:
    return Queries.from_windows(windows, **dict(condition.given))


def set_sizes(run: Run, windows: Windows, condition: Condition, found: Any) -> dict[str, Any]:
    """Sizes of the sets of a sample of windows, by level."""
    planner, queries = planner_for(run.planner, condition), asked(windows, condition)
    levels = [table_level(found, level) for level in LEVELS]
    sizes: dict[str, list[list[int]]] = {part: [] for part in PARTS}
    for row, plans in enumerate(planner.plan(queries, LARGEST_SET + 1)):
        query = queries.subset([row])
        steps, pairs = first_steps(planner, query)
        shares: tuple[tuple[str, Any], ...] = (
            ("plans", plans.probabilities),
            ("next_step", None if steps is None else steps[0]),
            ("next_two", None if pairs is None else pairs.ravel()),
        )
        for part, values in shares:
            thresholds = getattr(found, part)
            if values is not None and thresholds is not None:
                sizes[part].append(
                    [
                        0 if place is None else size_of(part, values, thresholds[place])
                        for place in levels
                    ]
                )
    report = {}
    for part, rows in sizes.items():
        for level, place, column in zip(LEVELS, levels, np.array(rows).T, strict=False):
            if place is not None:
                report[f"{part} {level:g}"] = {
                    "median": float(np.median(column)),
                    "mean_up_to_largest": float(column.clip(max=LARGEST_SET).mean()),
                    "larger": 100 * float((column > LARGEST_SET).mean()),
                }
    return report


def size_of(part: str, values: NDArray[np.float64], threshold: float | None) -> int:
    """Size of a set; one more than the largest if it holds plans without limit."""
    if part == "plans" and threshold is None:
        return LARGEST_SET + 1
    return len(set_places(values, threshold))


def table_level(found: Any, level: float) -> int | None:
    """Place of a level among the thresholds; None if there are too few videos."""
    return round(100 * level) - 50 if found.reaches(level) else None


def score_condition(
    run: Run, windows: Windows, found: Any, *, most: int | None, sample: int
) -> tuple[dict[str, Any], dict[str, tuple[Truth, NDArray[np.int64]]]]:
    condition = found.condition
    part = windows_for(windows, condition)
    if most is not None:
        part = sampled(part, most)
    scores = window_scores(run.planner, part, condition)
    row: dict[str, Any] = {"windows": len(part), "calibrated_on": found.videos}
    truths = {}
    for name in PARTS:
        values, thresholds = getattr(scores, name), getattr(found, name)
        if values is None or thresholds is None:
            continue
        for level in LEVELS:
            if (place := table_level(found, level)) is None:
                continue
            limit = np.inf if thresholds[place] is None else thresholds[place]
            covered = values <= limit
            truths[f"{name} {level:g}"] = covered, part.video
            entry = coverage(covered, part.video)
            entry["threshold"] = None if thresholds[place] is None else float(np.exp(-limit))
            if level == 0.9 and name != "next_two":
                entry["by_task"] = grouped(covered, part, part.tasks)
                if condition.steps is None:
                    entry["by_length"] = grouped(covered, part, part.lengths)
            row[f"{name} {level:g}"] = entry
    row["sizes"] = set_sizes(run, part.sample(sample, 0), condition, found)
    return row, truths


def compare(run: Run, windows: Windows, sample: int) -> dict[str, Any]:
    """Mean sizes, up to COMPARED, of sets of plans by conformal scores, calibrated on the same."""
    report: dict[str, Any] = {}
    for condition in (
        *(Condition(steps=steps) for steps in (1, 2, 3)),
        *(Condition(steps=steps, goal=False, done=True) for steps in (1, 2, 3)),
    ):
        part = windows_for(windows, condition).sample(sample, 0)
        listed = planner_for(run.planner, condition).plan(asked(part, condition), COMPARED)
        values = np.zeros((len(part), COMPARED))
        place = np.full(len(part), COMPARED)
        for row, plans in enumerate(listed):
            assert plans.probabilities is not None
            values[row, : len(plans)] = plans.probabilities
            right = np.flatnonzero((plans.actions == part.actions[row]).all(axis=1))
            place[row] = right[0] if len(right) else COMPARED
        with np.errstate(divide="ignore"):
            logs = -np.log(values)
        above = values.cumsum(axis=1) - values
        ranks = np.broadcast_to(np.arange(float(COMPARED)), values.shape)
        scores = {
            "probability": np.where(ranks == 0, 0, logs),  # LAC, with the likeliest always inside
            "probability against the likeliest": logs - logs[:, :1],
            "mass of likelier plans": above,  # APS
            "mass up to the plan": above + values,  # APS
            "rank": ranks,
        }
        for name, matrix in scores.items():
            padded = np.pad(matrix, ((0, 0), (0, 1)), constant_values=np.inf)
            truth = padded[np.arange(len(part)), place]
            for level in (0.5, 0.8, 0.9):
                (limit,) = quantiles(truth, part.video, [level])
                sizes = ((matrix <= limit) & (values > 0)).sum(axis=1)
                report.setdefault(f"{condition}", {}).setdefault(f"{level:g}", {})[name] = float(
                    sizes.mean()
                )
    return report


def main() -> None:
    parser = common.parser(__doc__, data="one")
    parser.add_argument("run", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--sample", type=int, default=200, help="windows of which sizes are shown")
    parser.add_argument("--windows", type=int, help="of a video at most; by default all")
    parser.add_argument("--compare", action="store_true")
    given = parser.parse_args()
    run, data = open_run(given.run), open_dataset(given.data)
    table = run.calibrated()

    def cut(split: str) -> Windows:
        return cut_windows(data, horizon=run.horizon, shortest=run.shortest, split=split)

    windows, rows = cut(given.split), {}
    every: dict[str, list[tuple[Truth, NDArray[np.int64]]]] = {}
    with progress("conditions", total=len(conditions(run.planner))) as advance:
        for found in table.thresholds:
            row, truths = score_condition(
                run, windows, found, most=given.windows, sample=given.sample
            )
            rows[str(found.condition)] = row
            for name, covered in truths.items():
                every.setdefault(name, []).append(covered)
            advance()
    report = {
        "command": f"python benchmarks/coverage.py DATA RUN --split {given.split}"
        + (f" --windows {given.windows}" if given.windows else ""),
        "dataset": data.name,
        "split": given.split,
        "method": run.method,
        "steps": run.steps,
        "folds": table.folds,
        "largest_set": LARGEST_SET,
        "sampled_for_sizes": given.sample,
        "all": {
            name: coverage(*map(np.concatenate, zip(*parts, strict=True)))
            for name, parts in every.items()
        },
        "conditions": rows,
    }
    if given.compare:
        report["sizes_by_score_on_validation"] = compare(run, cut("val"), 400)
    if given.out is not None:
        write_json(given.out, report)
    for name, entry in report["all"].items():
        low, high = entry["interval"]
        print(f"{name}: {entry['coverage']:.1f} % ({low:.1f} to {high:.1f})")


if __name__ == "__main__":
    main()
