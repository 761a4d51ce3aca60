"""Tables of a study's results: scores and differences, beside published results."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np

from cefito.errors import ConfigError
from cefito.evaluation.metrics import metric_heads, metric_meanings
from cefito.evaluation.records import CALIBRATION_HEADS, RunEvaluation
from cefito.evaluation.statistics import (
    Difference,
    Interval,
    bootstrap_width,
    paired_difference,
    seed_interval,
)
from cefito.settings import is_called
from cefito.study.rendering import (
    DIFFERENCE,
    NONE,
    Entry,
    Table,
    resampled_legend,
    resampled_text,
    signed,
    signed_interval,
    study_notes,
)
from cefito.study.results import Results
from cefito.study.trials import ScoredTrial

_BY_SEED = (
    "Per cent; ± half the 90 % interval of the mean by Student's t over seeds, since these scores "
    "were stored without sums by video, which could be resampled."
)
_MEANINGS = {
    "SR over seeds": "half the 90 % interval of the mean by Student's t over seeds, which covers "
    "the randomness of training",
    "SR bootstrap width": "full width (5th to 95th percentile) of the bootstrap over seeds, as "
    "published tables print it",
    "ECE": "expected calibration error of the best plan's probability, lower is better",
    "ECE by chance": "mean of the ECE if probabilities are right",
    "SR at 50 %": "success rate among the half of the windows whose best plans are most probable",
}
_UNKNOWN_LENGTH = (
    "Windows have different numbers of steps, which planners are not told. Predicted length: each "
    "window is planned by a run of the number that the any-length chain of the seed predicts."
)
_OTHERS = ("SR over seeds", "SR bootstrap width", "s/query", "tokens/query", "parameters", "seeds")
_LOW = ("expected_calibration_error",)  # lower is better
_UNRANKED = ("chance_calibration_error",)  # neither is better


def score_heads() -> tuple[str, ...]:
    """Return the heads that columns of tables of scores can have, but the first."""
    return (*metric_heads().values(), *CALIBRATION_HEADS.values(), *_OTHERS)


def result_tables(
    results: Results, *, against: str | None = None, published: str = "main", ordered: bool = False
) -> list[Table]:
    """Tables of scores and differences at each horizon.

    Args:
        results: Scores of a study.
        against: Row that others are compared with; by default the first.
        published: Table as in `published_rows`; empty for none.
        ordered: Leave rows in the order of the study, not by success rate.
    """
    tables = []
    for horizon in results.horizons:
        tables.append(score_table(results, horizon, published=published, ordered=ordered))
        differences = difference_table(results, horizon, against=against, ordered=ordered)
        tables += [differences] if differences.lines else []
    return tables


def score_table(
    results: Results, horizon: int, *, published: str = "main", ordered: bool = False
) -> Table:
    """Scores of all rows at one horizon, by success rate: mean over seeds, and 90 % interval.

    Videos are resampled, or seeds for results of an earlier version without intervals.
    The two best of each column are ranked, without rows given a task or scored on a sample.
    Arguments beside the horizon are as of `result_tables`.
    """
    told = results.shortest is None  # published planners are told the length
    below = published_rows(results.dataset.name, horizon, published) if published and told else []
    metrics = {
        name: head
        for name, head in (metric_heads() | CALIBRATION_HEADS).items()
        if any(trial.percent(name) is not None for trial in results.scored(horizon))
        or any(getattr(row, name, None) is not None for row in below)
    }
    by_seed = results.intervals is None
    others = _OTHERS[by_seed:]  # columns of intervals over seeds, unless all are
    heads = ("planner", *metrics.values(), *others)
    notes = [_UNKNOWN_LENGTH] * (results.shortest is not None)
    full = len(results.windows_of(horizon).video)
    resampled = (results.intervals or {}).get(horizon, {})
    # of each row with scores: means, whether it is ranked, and texts
    scored: list[tuple[list[float | None], bool, list[str]]] = []
    seeds_of = dict[str, int | None]()
    for row in results.rows:
        failed: defaultdict[str, list[str]] = defaultdict(list)
        for trial in results.failed(horizon, row.name):
            failed[trial.error].append(str(trial.seed))
        notes += [
            f"{row.name}, seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}: {error}"
            for error, seeds in failed.items()
        ]
        if trials := results.scored(horizon, row.name):
            sampled = trials[0].windows < full
            intervals = {name: metric_interval(trials, name) for name in metrics}
            cells = [
                _shown(interval, None if by_seed else resampled.get(row.name, {}).get(name, {}))
                for name, interval in intervals.items()
            ]
            title = row.title + f" ({trials[0].windows} windows)" * sampled
            ranked = not (row.true_task or row.stored_task or sampled)
            means = [None if interval is None else interval.mean for interval in intervals.values()]
            scored.append((means, ranked, [title, *cells, *_costs(trials)[by_seed:]]))
            notes += [
                f"{row.name}: {head} is missing of seeds {', '.join(lacking)}, scored without it. "
                "Remove their files in trials and repeat the command."
                for name, head in metrics.items()
                if name not in CALIBRATION_HEADS
                and 0
                < len(lacking := [str(t.seed) for t in trials if t.percent(name) is None])
                < len(trials)
            ]
            notes += [
                f"{row.name}, seed {trial.seed}: {trial.replies.in_words()}."
                for trial in trials
                if trial.replies is not None
            ]
            seeds_of[row.title] = len(trials)
    if not ordered:
        scored.sort(key=lambda line: -line[0][0] if line[0] and line[0][0] is not None else 0)
    notes += study_notes(results.settings, seeds_of)
    ranks = [
        [0] * len(scored)
        if name in _UNRANKED
        else _ranks(
            [means[column] if ranked else None for means, ranked, _ in scored], name in _LOW
        )
        for column, name in enumerate(metrics)
    ]
    nothing = [[0] * len(scored)]
    of_rows = zip(*nothing, *ranks, *nothing * len(others), strict=True)
    entries = [
        tuple(Entry(text=text, rank=rank) for text, rank in zip(texts, places, strict=True))
        for (*_, texts), places in zip(scored, of_rows, strict=True)
    ]
    listed = results.windows_of(horizon)
    features = "simulated ones" if "simulated" in results.dataset.name else results.features
    last, more = published_lines(below, metrics, columns=len(heads), others=features)
    return Table(
        title=_title(results, horizon),
        heads=heads,
        lines=(*entries, *last),
        below=len(last),
        legend=_BY_SEED if by_seed else resampled_legend(len({*listed.units}), listed.kind),
        meanings=metric_meanings(metrics) | _MEANINGS,
        notes=(*notes, *more),
    )


def score_lines(results: Results) -> list[list[Any]]:
    """Return every score of every trial, a line each, below the names of the columns."""
    scored = [
        trial
        for horizon in results.horizons
        for row in results.rows
        for trial in results.scored(horizon, row.name)
    ]
    names = [*metric_heads(), *CALIBRATION_HEADS]
    names = [name for name in names if any(trial.percent(name) is not None for trial in scored)]
    costs = ("seconds_per_query", "token_forwards_per_query")
    return [
        ["row", "steps", "seed", "windows", *names, *costs],
        *(
            [
                *(trial.row, results.steps(trial.horizon), trial.seed, trial.windows),
                *map(trial.percent, names),
                *(getattr(trial, cost) for cost in costs),
            ]
            for trial in scored
        ),
    ]


def _costs(trials: Sequence[ScoredTrial]) -> list[str]:
    """The columns that are not metrics."""
    rates = [trial.success_rate for trial in trials]
    half_width, parameters = seed_interval(rates).half_width, sum(trials[0].parameters.values())
    return [
        NONE if half_width is None else f"±{half_width:.2f}",
        f"{bootstrap_width(rates):.2f}" if len(rates) > 1 else NONE,
        f"{np.mean([trial.seconds_per_query for trial in trials]):.3g}",
        f"{np.mean([trial.token_forwards_per_query for trial in trials]):,.0f}",
        f"{parameters / 1e6:.2f} M" if parameters else NONE,
        str(len(trials)),
    ]


def metric_interval(trials: Sequence[ScoredTrial], metric: str) -> Interval | None:
    """Mean and interval of a metric over seeds; None if a trial has no such score."""
    values = [value for trial in trials if (value := trial.percent(metric)) is not None]
    return seed_interval(values) if len(values) == len(trials) else None


def _ranks(values: Sequence[float | None], lowest: bool) -> list[int]:
    """1 for the best and 2 for the second of different values; 0 for others. Ties share one."""
    printed = [None if value is None else round(value, 2) for value in values]
    best = sorted({value for value in printed if value is not None}, reverse=not lowest)[:2]
    if len(best) < 2:
        return [0] * len(values)
    return [1 + best.index(value) if value in best else 0 for value in printed]


def _title(results: Results, horizon: int) -> str:
    count = len(results.windows_of(horizon).video)
    whole = max((trial.sampled_from for trial in results.scored(horizon)), default=count)
    sampled = "" if whole == count else f" of {whole:,}"
    chosen = "" if results.selection == "held-out" else ", chosen on TEST"
    preset = Path(results.preset).stem
    steps = results.steps(horizon)
    windows = f"{count:,}{sampled} test windows"
    return f"{results.dataset.name}, T = {steps}, {windows}, preset {preset}{chosen}"


def _shown(interval: Interval | None, resampled: Mapping[str, float | None] | None) -> str:
    """A mean with the interval over videos, or over seeds if there is None."""
    if interval is None:
        return NONE
    if resampled is None and interval.half_width is not None:
        return f"{interval.mean:.2f} ± {interval.half_width:.2f}"
    return resampled_text({**(resampled or {}), "mean": interval.mean}, 2)


def published_table(scores: RunEvaluation, features: str | None = None) -> Table | None:
    """A run among published rows of its data set and horizon, by success rate; None without any.

    `features` says what its features are, if they are not those of published results.
    """
    comparable = scores.shortest is None and scores.split == "test"
    rows = published_rows(scores.dataset, scores.horizon) if comparable else []
    if not rows:
        return None
    metrics = {
        name: head
        for name, head in metric_heads().items()
        if any(getattr(row, name, None) is not None for row in rows)
    }
    others = "simulated ones" if "simulated" in scores.dataset.lower() else features
    lines, notes = published_lines(rows, metrics, columns=len(metrics) + 1, others=others)
    rates = sorted((row.success_rate.value for row in rows if row.success_rate), reverse=True)
    place = sum(rate > scores.success_rate for rate in rates)
    ours = [Entry(text=f"{scores.planner} (this run)")]
    for name in metrics:
        value = scores.percent(name)
        ours.append(Entry(text=NONE if value is None else f"{value:.2f}"))
    return Table(
        title="This run among published results",
        heads=("planner", *metrics.values()),
        lines=(*lines[:place], tuple(ours), *lines[place:]),
        own=place,
        notes=tuple(notes),
    )


def difference_table(
    results: Results, horizon: int, *, against: str | None = None, ordered: bool = False
) -> Table:
    """Success rate of every row less that of one row, over common seeds and windows, best first.

    Arguments beside the horizon are as of `result_tables`.
    """
    base = against or results.rows[0].name
    base_title = next((row.title for row in results.rows if row.name == base), base)
    base_trials = results.scored(horizon, base)
    windows_of = results.windows_of(horizon)
    units = np.array(windows_of.units)
    lines: list[tuple[float, tuple[Entry, ...]]] = []  # each behind its difference
    seeds = {row.title: len(results.scored(horizon, row.name)) or None for row in results.rows}
    for row in results.rows:
        trials = results.scored(horizon, row.name)
        if row.name == base or not trials or not base_trials:
            continue
        paired = paired_rows(trials, base_trials, units)
        if paired is not None:
            difference, windows = paired
            half_width = None if difference.seeds is None else difference.seeds.half_width
            texts = (
                row.title,
                signed(difference.mean),
                signed_interval(difference.low, difference.high),
                NONE if half_width is None else f"±{half_width:.2f}",
                f"{windows:,}",
            )
            lines.append((difference.mean, tuple(Entry(text=text) for text in texts)))
    if not ordered:
        lines.sort(key=lambda line: -line[0])
    return Table(
        title=f"{_title(results, horizon)}: success rate less that of {base_title}",
        heads=(
            *("planner", "difference", f"90 % interval, {windows_of.kind}s resampled"),
            *("over seeds", "windows"),
        ),
        lines=tuple(line for _, line in lines),
        legend=DIFFERENCE,
        notes=tuple(study_notes(results.settings, seeds)),
    )


def paired_rows(
    first: Sequence[ScoredTrial], second: Sequence[ScoredTrial], units: np.ndarray[Any, Any]
) -> tuple[Difference, int] | None:
    """Difference of two rows on common windows, and the number of windows; None without any.

    Over common seeds; without any, over all seeds of each, with no interval over seeds.

    Args:
        first: Trials of a row.
        second: Trials of another row.
        units: Video of each window, or its group [N].
    """
    common = {trial.seed for trial in first} & {trial.seed for trial in second}
    success, places = [], []
    for row in (first, second):
        trials = [trial for trial in row if trial.seed in common] or list(row)
        scored = trials[0].scored
        places.append(np.arange(len(units)) if scored is None else np.array(scored))
        success.append(np.array([[int(digit) for digit in trial.success] for trial in trials]))
    both, left, right = np.intersect1d(places[0], places[1], return_indices=True)
    if not len(both):
        return None
    ours, theirs = success[0][:, left], success[1][:, right]  # [S, N] and [S', N]
    difference = paired_difference(ours, theirs, units[both])
    return difference if common else replace(difference, seeds=None), len(both)


_PUBLISHED = (
    "Published rows: ± is the full width of a percentile bootstrap over seeds; epochs were chosen "
    "on test; rows of an own protocol have other windows and metrics."
)
_OF_OTHERS = " They are of real features (S3D), the others of {}: not comparable."


@dataclass(frozen=True)
class PublishedScore:
    """A published number, in per cent."""

    value: float
    width: float | None = None  # printed after ±; as by `bootstrap_width` in the unified protocol


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """One method on one data set and horizon, in one table; scores are None if not given."""

    table: str  # "main", "ablation", "text-encoder", "task-classifier", "oracle" or "reproduction"
    dataset: str  # "crosstask", "coin" or "niv"; always the real one
    horizon: int
    method: str  # its name as printed
    source: str  # paper and table, or repository
    protocol: str  # "unified", or "own" of rows that are not comparable; the file describes both
    notes: tuple[str, ...] = ()  # caveats of its numbers
    success_rate: PublishedScore | None = None
    mean_accuracy: PublishedScore | None = None
    mean_iou_bitwise: PublishedScore | None = None  # on action ids, see `mean_iou_bitwise`
    mean_iou_own: PublishedScore | None = None  # of any definition
    task_accuracy: PublishedScore | None = None


def published_rows(dataset: str, horizon: int, table: str = "main") -> list[PublishedRow]:
    """Published rows for one data set and horizon; perhaps none.

    Those of the main table by descending success rate, others in the order of the tables.
    Data sets match as in `is_called`: "crosstask-simulated" gives "crosstask".

    Args:
        dataset: Name of the data set.
        horizon: T.
        table: Name of the published table.
    """
    rows = _all_rows()
    tables = sorted({row.table for row in rows})
    if table not in tables:
        raise ConfigError(f"no published table '{table}'; there are {', '.join(tables)}.")
    chosen = [
        row
        for row in rows
        if row.table == table and row.horizon == horizon and is_called(dataset, row.dataset)
    ]
    if table == "main":
        chosen.sort(key=lambda row: -row.success_rate.value if row.success_rate else 0)
    return chosen


@cache
def _all_rows() -> tuple[PublishedRow, ...]:
    text = (resources.files("cefito.study") / "published.json").read_text(encoding="utf-8")
    value = json.loads(text)
    return tuple(
        row
        for table in value["tables"]
        for entry in table["rows"]
        for row in _rows(table, entry, value["footnotes"])
    )


def _rows(
    table: dict[str, Any], entry: dict[str, Any], footnotes: list[dict[str, Any]]
) -> Iterator[PublishedRow]:
    """One row for each horizon of an entry."""
    for horizon, numbers in entry["scores"].items():
        scores = {
            metric: PublishedScore(*pair)
            for metric, pair in zip(table["metrics"], numbers, strict=True)
        }
        notes = [entry["note"]] if "note" in entry else []
        notes += [
            note["text"]
            for note in footnotes
            if entry["method"] in note["methods"]
            and entry["protocol"] == note["protocol"]
            and table["dataset"] in note.get("datasets", [table["dataset"]])
            and table["table"] in note.get("tables", [table["table"]])
            and int(horizon) in note.get("horizons", [int(horizon)])
        ]
        yield PublishedRow(
            table=table["table"],
            dataset=table["dataset"],
            horizon=int(horizon),
            method=entry["method"],
            source=table["source"],
            protocol=entry["protocol"],
            notes=tuple(notes),
            **scores,
        )


def published_lines(
    rows: Sequence[PublishedRow], metrics: Iterable[str], *, columns: int, others: str | None
) -> tuple[list[tuple[Entry, ...]], list[str]]:
    """Lines of published rows, and notes.

    Args:
        rows: Published rows.
        metrics: Names of the metrics of the columns.
        columns: Number of columns.
        others: What the lines beside them are of, if not of the published features.
    """
    if not rows:
        return [], []
    footnotes = dict.fromkeys(note for row in rows for note in row.notes)  # in order, once each
    marks = {note: ascii_lowercase[place] for place, note in enumerate(footnotes)}
    lines = []
    for row in rows:
        marked = ", ".join(marks[note] for note in row.notes)
        name = row.method + ", own protocol" * (row.protocol == "own")
        texts = [f"{name} [{marked}]" if marked else name]
        for score in (getattr(row, metric, None) for metric in metrics):
            width = "" if score is None or score.width is None else f" ± {score.width:.2f}"
            texts.append(NONE if score is None else f"{score.value:.2f}{width}")
        texts += [NONE] * (columns - len(texts))
        lines.append(tuple(Entry(text=text) for text in texts))
    notes = [_PUBLISHED + ("" if others is None else _OF_OTHERS.format(others))]
    return lines, notes + [f"[{mark}] {note}" for note, mark in marks.items()]
