"""Published results as data, and as lines of tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from string import ascii_lowercase
from typing import Any

from cefito.errors import ConfigError
from cefito.study.rendering import NONE, Entry

_PUBLISHED = (
    "Published rows: ± is the full width of a percentile bootstrap over seeds; epochs were chosen "
    "on test; mIoU is bitwise on action ids, and no set IoU; rows of an own protocol have other "
    "windows and metrics."
)
_SIMULATED = " They are of real features, the others of simulated ones: not comparable."


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
    Data sets match by the beginning of their names: "crosstask-simulated" gives "crosstask".
    """
    rows = _all_rows()
    tables = sorted({row.table for row in rows})
    if table not in tables:
        raise ConfigError(f"no published table '{table}'; there are {', '.join(tables)}.")
    found = [
        row
        for row in rows
        if row.table == table and row.horizon == horizon and dataset.startswith(row.dataset)
    ]
    if table == "main":
        found.sort(key=lambda row: -row.success_rate.value if row.success_rate else 0)
    return found


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
    rows: Sequence[PublishedRow], metrics: Iterable[str], *, columns: int, simulated: bool
) -> tuple[list[tuple[Entry, ...]], list[str]]:
    """Lines of published rows beside those of real or simulated data, and notes."""
    if not rows:
        return [], []
    footnotes = dict.fromkeys(note for row in rows for note in row.notes)  # in order, once each
    marks = {note: ascii_lowercase[place] for place, note in enumerate(footnotes)}
    lines = []
    for row in rows:
        marked = ", ".join(marks[note] for note in row.notes)
        name = row.method + ", own protocol" * (row.protocol == "own")
        texts = [f"{name} [{marked}]" if marked else name]
        texts += [_score(getattr(row, metric, None)) for metric in metrics]
        texts += [NONE] * (columns - len(texts))
        lines.append(tuple(Entry(text=text) for text in texts))
    notes = [_PUBLISHED + _SIMULATED * simulated]
    return lines, notes + [f"[{mark}] {note}" for note, mark in marks.items()]


def _score(score: PublishedScore | None) -> str:
    if score is None:
        return NONE
    return f"{score.value:.2f}" + ("" if score.width is None else f" ± {score.width:.2f}")
