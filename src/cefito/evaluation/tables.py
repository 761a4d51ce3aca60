"""Tables of a study's results: for the console, Markdown, LaTeX and CSV.

With published rows below a rule.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cefito.evaluation.published import PublishedRow, PublishedScore, published_rows
from cefito.evaluation.results import Results
from cefito.evaluation.statistics import Interval, bootstrap_width, paired_difference, seed_interval

__all__ = [
    "Entry",
    "Table",
    "difference_table",
    "latex",
    "markdown",
    "position_table",
    "result_tables",
    "score_table",
    "to_csv",
]

METRICS = {
    "success_rate": "SR",
    "mean_accuracy": "mAcc",
    "mean_iou": "mIoU",
    "mean_iou_bitwise": "bitwise mIoU",
    "top_5_success_rate": "top-5 SR",
    "task_accuracy": "task",
}
"""Metrics of a score table, and their heads; all in per cent, more is better."""
_COSTS = {"seconds_per_query": "s/query", "token_forwards_per_query": "tokens/query"}
_NONE = "–"
_ESCAPES = str.maketrans(
    {
        **{sign: "\\" + sign for sign in "&%#_${}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "±": r"$\pm$",
        "–": "--",
        "—": "---",
        "…": r"\ldots{}",
        "τ": r"$\tau$",
        "\n": " ",
    }
)


@dataclass(frozen=True)
class Entry:
    """A cell of a table.

    Attributes:
        text: What stands there.
        rank: 1 for the best of its column, 2 for the second best, else 0.
    """

    text: str
    rank: int = 0


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        title: What stands above it.
        heads: Heads of the columns.
        lines: Its lines.
        below: How many of the lines stand below the rule.
        notes: What stands below it.
    """

    title: str
    heads: tuple[str, ...]
    lines: tuple[tuple[Entry, ...], ...]
    below: int = 0
    notes: tuple[str, ...] = ()


def result_tables(
    results: Results, *, against: str | None = None, published: str = "main"
) -> list[Table]:
    """All tables of a study: scores and differences for each horizon.

    Args:
        results: As `gather` gives them.
        against: Name of the row that the others are compared with; the first by default.
        published: The published table whose rows are shown, as in `published_rows`; empty for none.
    """
    tables = []
    for horizon in results["horizons"]:
        tables.append(score_table(results, horizon, published=published))
        differences = difference_table(results, horizon, against=against)
        if differences.lines:
            tables.append(differences)
    return tables


def score_table(results: Results, horizon: int, *, published: str = "main") -> Table:
    """Scores of all rows at one horizon.

    Mean over seeds and half the 90 % interval, best and second best ranked.

    Rows that were given the true task, and rows that were scored on a sample of the windows, are
    not ranked.
    """
    notes, lines, values = [], [], []
    full = len(_windows(results, horizon)["video"])
    for row in results["rows"]:
        cells, failed = _cells(results, row["name"], horizon)
        notes += failed
        if not cells:
            continue
        sampled = cells[0]["windows"] < full
        title = row["title"] + (f" ({cells[0]['windows']} windows)" if sampled else "")
        intervals = [_interval(cells, name) for name in METRICS]
        width = (
            bootstrap_width([cell["metrics"]["success_rate"] for cell in cells])
            if len(cells) > 1
            else None
        )
        costs = [
            f"{np.mean([cell[name] for cell in cells]):.3g}"
            if name == "seconds_per_query"
            else f"{np.mean([cell[name] for cell in cells]):,.0f}"
            for name in _COSTS
        ]
        lines.append(
            [
                title,
                *[_shown(one) for one in intervals],
                _NONE if width is None else f"{width:.2f}",
                *costs,
                _millions(cells[0]["parameters"]),
                str(len(cells)),
            ]
        )
        values.append(
            [None if sampled or row["true_task"] or one is None else one.mean for one in intervals]
        )
    heads = (
        "planner",
        *METRICS.values(),
        "SR bootstrap width",
        *_COSTS.values(),
        "parameters",
        "seeds",
    )
    ranks = [_ranked([own[column] for own in values]) for column in range(len(METRICS))]
    entries = [
        tuple(
            Entry(text, ranks[column - 1][number] if 0 < column <= len(METRICS) else 0)
            for column, text in enumerate(line)
        )
        for number, line in enumerate(lines)
    ]
    theirs = published_rows(results["dataset"]["name"], horizon, published) if published else []
    below = [_published(row, len(heads)) for row in theirs]
    if below:
        notes.append(
            "Below the rule: published rows (± is there the full width of a percentile bootstrap "
            "over seeds; epochs "
            "were chosen on test; those of an own protocol have other windows and metrics)."
            + (
                " They are of real features, the rows above of simulated ones: not comparable."
                if "simulated" in results["dataset"]["name"]
                else ""
            )
        )
    if results["settings"]:
        changed = ", ".join(f"{key} = {value}" for key, value in results["settings"].items())
        notes.insert(0, f"Changed settings: {changed}.")
    notes.insert(
        0,
        "Per cent; ± half the 90 % interval of the mean by Student's t over seeds. SR bootstrap "
        "width: full width "
        "(5th to 95th percentile) of the bootstrap over seeds, as published tables print it.",
    )
    return Table(
        title=_title(results, horizon),
        heads=heads,
        lines=(*entries, *below),
        below=len(below),
        notes=tuple(notes),
    )


def difference_table(results: Results, horizon: int, *, against: str | None = None) -> Table:
    """Success rate of every row less that of one row, on the windows that both were scored on.

    With the seeds that both have.

    The interval is that of a paired bootstrap that resamples videos, since windows of one video
    overlap.
    """
    base = against or results["rows"][0]["name"]
    theirs, _ = _cells(results, base, horizon)
    title = next((row["title"] for row in results["rows"] if row["name"] == base), base)
    lines = []
    for row in results["rows"]:
        ours, _ = _cells(results, row["name"], horizon)
        if row["name"] == base or not ours or not theirs:
            continue
        one, other, video, same = _paired(ours, theirs, _windows(results, horizon))
        if not len(video):
            continue
        difference = paired_difference(one, other, video)
        over = difference.seeds if same else None
        lines.append(
            (
                Entry(row["title"]),
                Entry(_signed(difference.mean)),
                Entry(f"{_signed(difference.low)} to {_signed(difference.high)}"),
                Entry(
                    _NONE if over is None or over.half_width is None else f"±{over.half_width:.2f}"
                ),
                Entry(f"{len(video):,}"),
            )
        )
    return Table(
        title=f"{_title(results, horizon)}: success rate less that of {title}",
        heads=("planner", "difference", "90 % interval, videos resampled", "over seeds", "windows"),
        lines=tuple(lines),
    )


def position_table(results: Results, horizon: int) -> Table:
    """Accuracy of each step, mean over seeds."""
    lines = []
    for row in results["rows"]:
        cells, _ = _cells(results, row["name"], horizon)
        if cells:
            means = np.mean([cell["metrics"]["position_accuracy"] for cell in cells], axis=0)
            lines.append((Entry(row["title"]), *(Entry(f"{value:.2f}") for value in means)))
    return Table(
        title=f"{_title(results, horizon)}: accuracy of each step",
        heads=("planner", *(f"step {step + 1}" for step in range(horizon))),
        lines=tuple(lines),
    )


def markdown(table: Table) -> str:
    """A Markdown table; the best is bold, the second best italic."""
    marks: dict[int, Callable[[str], str]] = {0: str, 1: "**{}**".format, 2: "*{}*".format}
    rows = [
        [marks[entry.rank](entry.text.replace("|", "\\|")) for entry in line]
        for line in table.lines
    ]
    if table.below:
        rows.insert(len(rows) - table.below, ["*published*", *[""] * (len(table.heads) - 1)])
    lines = [
        f"**{table.title}**",
        "",
        _piped(table.heads),
        _piped(["---", *["---:"] * (len(table.heads) - 1)]),
        *map(_piped, rows),
    ]
    return "\n".join([*lines, *(part for note in table.notes for part in ("", note))]) + "\n"


def latex(table: Table) -> str:
    """A LaTeX table for `booktabs`; the best is bold, the second best underlined."""
    marks: dict[int, Callable[[str], str]] = {
        0: str,
        1: r"\textbf{{{}}}".format,
        2: r"\underline{{{}}}".format,
    }
    body = [
        " & ".join(marks[entry.rank](_escaped(entry.text)) for entry in line) + r" \\"
        for line in table.lines
    ]
    if table.below:
        body.insert(len(body) - table.below, r"\midrule")
    return (
        "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{_escaped(' '.join([table.title + '.', *table.notes]))}}}",
                rf"\begin{{tabular}}{{l{'r' * (len(table.heads) - 1)}}}",
                r"\toprule",
                " & ".join(map(_escaped, table.heads)) + r" \\",
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
            ]
        )
        + "\n"
    )


def to_csv(results: Results) -> str:
    """All scores as CSV, a line for each row and horizon.

    Half-widths and means of every metric and each step.
    """
    horizons = results["horizons"]
    heads = [
        "row",
        "planner",
        "dataset",
        "selection",
        "horizon",
        "seeds",
        "windows",
        "sampled_from",
        "exact",
    ]
    heads += [f"{name}{part}" for name in METRICS for part in ("", "_half_width_90")]
    heads += [
        "success_rate_bootstrap_width",
        *_COSTS,
        "parameters",
        *(f"accuracy_step_{step + 1}" for step in range(max(horizons))),
    ]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(heads)
    for horizon in horizons:
        for row in results["rows"]:
            cells, _ = _cells(results, row["name"], horizon)
            if not cells:
                continue
            line: list[Any] = [
                row["name"],
                row["title"],
                results["dataset"]["name"],
                results["selection"],
                horizon,
                len(cells),
                cells[0]["windows"],
                cells[0]["sampled_from"],
                all(cell["exact"] for cell in cells),
            ]
            for name in METRICS:
                one = _interval(cells, name)
                line += (
                    ["", ""]
                    if one is None
                    else [one.mean, "" if one.half_width is None else one.half_width]
                )
            rates = [cell["metrics"]["success_rate"] for cell in cells]
            line += [
                bootstrap_width(rates) if len(rates) > 1 else "",
                *(np.mean([cell[name] for cell in cells]) for name in _COSTS),
            ]
            steps = np.mean(
                [cell["metrics"]["position_accuracy"] for cell in cells], axis=0
            ).tolist()
            writer.writerow(
                [
                    *line,
                    sum(cells[0]["parameters"].values()),
                    *steps,
                    *[""] * (max(horizons) - horizon),
                ]
            )
    return stream.getvalue()


def _cells(results: Results, row: str, horizon: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Scored cells of a row by ascending seeds, and a note for each that is missing."""
    cells = [cell for cell in results["cells"] if cell["row"] == row and cell["horizon"] == horizon]
    cells.sort(key=lambda cell: int(cell["seed"]))
    return (
        [cell for cell in cells if "error" not in cell],
        [f"{row}, seed {cell['seed']}: {cell['error']}" for cell in cells if "error" in cell],
    )


def _interval(cells: Sequence[dict[str, Any]], metric: str) -> Interval | None:
    values = [cell["metrics"].get(metric) for cell in cells]
    return None if None in values else seed_interval(values)


def _shown(interval: Interval | None) -> str:
    if interval is None:
        return _NONE
    return f"{interval.mean:.2f}" + (
        "" if interval.half_width is None else f" ± {interval.half_width:.2f}"
    )


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}"  # never -0.00


def _ranked(values: Sequence[float | None]) -> list[int]:
    """1 for the highest, 2 for the second highest; equal ones share a rank.

    Nothing is ranked alone.
    """
    known = sorted({round(value, 2) for value in values if value is not None}, reverse=True)
    if sum(value is not None for value in values) < 2:
        return [0] * len(values)
    return [
        0 if value is None or round(value, 2) not in known[:2] else 1 + known.index(round(value, 2))
        for value in values
    ]


def _paired(
    ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]], windows: dict[str, list[int]]
) -> tuple[Any, Any, Any, bool]:
    """Success [S, N] of either row on the windows of both, videos [N].

    And whether the seeds are the same in the same order.

    They are those that both have; where there are none, all that each has.
    """
    common = {cell["seed"] for cell in ours} & {cell["seed"] for cell in theirs}
    everything = list(range(len(windows["video"])))
    parts, places = [], []
    for cells in (ours, theirs):
        cells = [cell for cell in cells if cell["seed"] in common] or list(cells)
        places.append(everything if cells[0]["scored"] is None else cells[0]["scored"])
        parts.append(np.array([[int(digit) for digit in cell["success"]] for cell in cells]))
    both, first, second = np.intersect1d(places[0], places[1], return_indices=True)
    return parts[0][:, first], parts[1][:, second], np.array(windows["video"])[both], bool(common)


def _windows(results: Results, horizon: int) -> dict[str, list[int]]:
    """All scored test windows of a horizon."""
    windows: dict[str, list[int]] = results["windows"].get(str(horizon), {"video": [], "start": []})
    return windows


def _published(row: PublishedRow, columns: int) -> tuple[Entry, ...]:
    shown = {
        "success_rate": row.success_rate,
        "mean_accuracy": row.mean_accuracy,
        "mean_iou_bitwise": row.mean_iou_bitwise,
        "task_accuracy": row.task_accuracy,
    }
    texts = [
        row.method + ("" if row.unified else ", own protocol"),
        *(_number(shown.get(name)) for name in METRICS),
    ]
    return tuple(Entry(text) for text in [*texts, *[_NONE] * (columns - len(texts))])


def _number(score: PublishedScore | None) -> str:
    if score is None:
        return _NONE
    return f"{score.value:.2f}" + ("" if score.width is None else f" ± {score.width:.2f}")


def _title(results: Results, horizon: int) -> str:
    count = len(_windows(results, horizon)["video"])
    whole = max(
        (
            cell["sampled_from"]
            for cell in results["cells"]
            if cell["horizon"] == horizon and "error" not in cell
        ),
        default=count,
    )
    windows = (
        f"{count:,} test windows" if whole == count else f"{count:,} of {whole:,} test windows"
    )
    chosen = "" if results["selection"] == "held-out" else ", chosen on TEST"
    return (
        f"{results['dataset']['name']}, T = {horizon}, {windows}, preset "
        f"{Path(results['preset']).stem}{chosen}"
    )


def _millions(parameters: dict[str, int]) -> str:
    total = sum(parameters.values())
    return _NONE if not total else f"{total / 1e6:.2f} M"


def _piped(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escaped(text: str) -> str:
    return re.sub(
        r"(?<!\w)-(?=\d)", "$-$", text.translate(_ESCAPES)
    )  # a minus is longer than a hyphen
