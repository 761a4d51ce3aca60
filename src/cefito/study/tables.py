"""Tables of a study's results: scores with published rows below a rule, and differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cefito.evaluation.calibration import calibration_heads
from cefito.evaluation.metrics import metric_heads
from cefito.evaluation.records import ScoredCell
from cefito.evaluation.replies import replies_title
from cefito.evaluation.statistics import Interval, bootstrap_width, paired_difference, seed_interval
from cefito.evaluation.table import NONE, Entry, Table, signed
from cefito.study.energy_table import energy_table
from cefito.study.published_lines import published_lines
from cefito.study.results import Results
from cefito.study.variants import PlannerVariant

__all__ = ["Entry", "Table", "difference_table", "metric_interval", "result_tables", "score_table"]

_UNITS = (
    "Per cent; ± half the 90 % interval of the mean by Student's t over seeds. SR bootstrap width: "
    "full width (5th to 95th percentile) of the bootstrap over seeds, as published tables print it."
)
_CALIBRATION = (
    "ECE: expected calibration error of the best plan's probability, lower is better. SR at 50 %: "
    "success rate among the half of the windows whose best plans are most probable."
)
_LOW = ("expected_calibration_error",)  # of which less is better


def result_tables(
    results: Results, *, against: str | None = None, published: str = "main"
) -> list[Table]:
    """All tables of a study: scores and differences for each horizon, and what the energy adds.

    Args:
        results: As `gather` gives them.
        against: Name of the row that the others are compared with; the first by default.
        published: The published table whose rows are shown, as in `published_rows`; empty for none.
    """
    tables = []
    for horizon in results.horizons:
        tables.append(score_table(results, horizon, published=published))
        differences = difference_table(results, horizon, against=against)
        if differences.lines:
            tables.append(differences)
    energy = energy_table(results)
    return [*tables, energy] if energy.lines else tables


def score_table(results: Results, horizon: int, *, published: str = "main") -> Table:
    """Scores of all rows at one horizon: mean over seeds and half the 90 % interval.

    The best and second best of each column are ranked, but not among rows that were given the true
    task or the true ends or were scored on a sample of the windows.

    Args:
        results: As `gather` gives them.
        horizon: T.
        published: As in `result_tables`.
    """
    metrics = metric_heads() | {
        name: head
        for name, head in calibration_heads().items()
        if any(cell.percent(name) is not None for cell in results.scored(horizon))
    }
    heads = (
        "planner",
        *metrics.values(),
        "SR bootstrap width",
        "s/query",
        "tokens/query",
        "parameters",
        "seeds",
    )
    full = len(results.windows_of(horizon).video)
    notes, lines, ranked = [_UNITS], [], []
    if set(metrics) & set(calibration_heads()):
        notes.append(_CALIBRATION)
    if results.settings:
        changed = ", ".join(f"{key} = {value}" for key, value in results.settings.items())
        notes.append(f"Changed settings: {changed}.")
    for row in results.rows:
        notes += [
            f"{row.name}, seed {cell.seed}: {cell.error}"
            for cell in results.failed(horizon, row.name)
        ]
        cells = results.scored(horizon, row.name)
        if cells:
            lines.append(_score_line(row, cells, metrics, sampled=cells[0].windows < full))
            ranked.append(not row.oracle and cells[0].windows == full)
    means = [
        [None if interval is None else interval.mean for interval in line.intervals]
        for line in lines
    ]
    ranks = [
        _ranks(
            [line[column] if counts else None for line, counts in zip(means, ranked, strict=True)],
            lowest=name in _LOW,
        )
        for column, name in enumerate(metrics)
    ]
    entries = [
        (
            Entry(line.title),
            *(
                Entry(_shown(interval), ranks[column][number])
                for column, interval in enumerate(line.intervals)
            ),
            *map(Entry, line.rest),
        )
        for number, line in enumerate(lines)
    ]
    below, more = published_lines(
        results.dataset.name, horizon, published, metrics, columns=len(heads)
    )
    return Table(
        title=_title(results, horizon),
        heads=heads,
        lines=(*entries, *below),
        below=len(below),
        notes=(*notes, *more),
    )


def difference_table(results: Results, horizon: int, *, against: str | None = None) -> Table:
    """Success rate of every row less that of one row, over the seeds and windows of both.

    The interval is that of a paired bootstrap that resamples videos, since windows of one video
    overlap.

    Args:
        results: As `gather` gives them.
        horizon: T.
        against: As in `result_tables`.
    """
    base = against or results.rows[0].name
    base_title = next((row.title for row in results.rows if row.name == base), base)
    base_cells = results.scored(horizon, base)
    lines = []
    for row in results.rows:
        cells = results.scored(horizon, row.name)
        if row.name != base and cells and base_cells:
            pair = _paired(cells, base_cells, results.windows_of(horizon).video)
            if len(pair.video):
                lines.append((Entry(row.title), *map(Entry, _difference(pair))))
    return Table(
        title=f"{_title(results, horizon)}: success rate less that of {base_title}",
        heads=("planner", "difference", "90 % interval, videos resampled", "over seeds", "windows"),
        lines=tuple(lines),
    )


def metric_interval(cells: Sequence[ScoredCell], metric: str) -> Interval | None:
    """Mean and interval of a metric over seeds; None where a cell has no such score."""
    values = [value for cell in cells if (value := cell.percent(metric)) is not None]
    return seed_interval(values) if len(values) == len(cells) else None


@dataclass(frozen=True)
class _ScoreLine:
    """A line of a score table: its title, an interval for each metric, and other columns."""

    title: str
    intervals: list[Interval | None]
    rest: list[str]


def _score_line(
    row: PlannerVariant, cells: Sequence[ScoredCell], metrics: Mapping[str, str], *, sampled: bool
) -> _ScoreLine:
    width = NONE
    if len(cells) > 1:
        width = f"{bootstrap_width([cell.success_rate for cell in cells]):.2f}"
    return _ScoreLine(
        title=row.title
        + replies_title([cell.replies for cell in cells])
        + (f" ({cells[0].windows} windows)" if sampled else ""),
        intervals=[metric_interval(cells, name) for name in metrics],
        rest=[
            width,
            f"{np.mean([cell.seconds_per_query for cell in cells]):.3g}",
            f"{np.mean([cell.token_forwards_per_query for cell in cells]):,.0f}",
            _millions(cells[0].parameters),
            str(len(cells)),
        ],
    )


def _ranks(values: Sequence[float | None], *, lowest: bool = False) -> list[int]:
    """1 for the highest (or lowest) and 2 for the second, where there are two or more.

    Values that are printed alike share a rank.
    """
    printed = [None if value is None else round(value, 2) for value in values]
    known = [value for value in printed if value is not None]
    if len(known) < 2:
        return [0] * len(values)
    best = sorted(set(known), reverse=not lowest)[:2]
    return [1 + best.index(value) if value in best else 0 for value in printed]


@dataclass(frozen=True)
class _Pair:
    """Success of two rows on the windows that both were scored on.

    Attributes:
        first: Of the one row [S, N].
        second: Of the other row [S', N].
        video: Video of each window [N].
        same_seeds: Whether the seeds are the same, in the same order.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    video: NDArray[np.int64]
    same_seeds: bool


def _paired(
    first: Sequence[ScoredCell], second: Sequence[ScoredCell], video: Sequence[int]
) -> _Pair:
    """Two rows over the seeds that both have; where there are none, over all that each has."""
    common = {cell.seed for cell in first} & {cell.seed for cell in second}
    success, places = [], []
    for row in (first, second):
        cells = [cell for cell in row if cell.seed in common] or list(row)
        scored = cells[0].scored
        places.append(list(range(len(video))) if scored is None else scored)
        success.append(np.array([[int(digit) for digit in cell.success] for cell in cells]))
    both, left, right = np.intersect1d(places[0], places[1], return_indices=True)
    return _Pair(
        first=success[0][:, left],
        second=success[1][:, right],
        video=np.array(video)[both],
        same_seeds=bool(common),
    )


def _difference(pair: _Pair) -> tuple[str, str, str, str]:
    difference = paired_difference(pair.first, pair.second, pair.video)
    over_seeds = difference.seeds if pair.same_seeds else None
    half_width = None if over_seeds is None else over_seeds.half_width
    return (
        signed(difference.mean),
        f"{signed(difference.low)} to {signed(difference.high)}",
        NONE if half_width is None else f"±{half_width:.2f}",
        f"{len(pair.video):,}",
    )


def _title(results: Results, horizon: int) -> str:
    count = len(results.windows_of(horizon).video)
    whole = max((cell.sampled_from for cell in results.scored(horizon)), default=count)
    windows = (
        f"{count:,} test windows" if whole == count else f"{count:,} of {whole:,} test windows"
    )
    chosen = "" if results.selection == "held-out" else ", chosen on TEST"
    preset = Path(results.preset).stem
    return f"{results.dataset.name}, T = {horizon}, {windows}, preset {preset}{chosen}"


def _shown(interval: Interval | None) -> str:
    if interval is None:
        return NONE
    half = "" if interval.half_width is None else f" ± {interval.half_width:.2f}"
    return f"{interval.mean:.2f}{half}"


def _millions(parameters: Mapping[str, int]) -> str:
    total = sum(parameters.values())
    return NONE if not total else f"{total / 1e6:.2f} M"
