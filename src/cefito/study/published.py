"""Published results as data, to stand beside one's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from cefito.errors import ConfigError

__all__ = ["PublishedProtocol", "PublishedRow", "PublishedScore", "published_rows"]


@dataclass(frozen=True)
class PublishedScore:
    """A published number, in per cent.

    Attributes:
        value: The number; a mean over seeds where a method was trained on several.
        width: What is printed after ±; None where nothing is. In rows of the unified protocol it is
            the *full* width of a 90 % interval, as `cefito.evaluation.statistics.bootstrap_width`
            gives it, unless the row's notes say otherwise.
    """

    value: float
    width: float | None = None


@dataclass(frozen=True)
class PublishedProtocol:
    """How numbers came about.

    Attributes:
        name: Its name in tables.
        description: Windows, choice of weights, seeds, intervals, metrics.
    """

    name: str
    description: str


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """One method on one data set and horizon, of one table.

    Attributes:
        table: "main", "ablation", "text-encoder", "task-classifier", "oracle" or "reproduction".
        dataset: "crosstask", "coin" or "niv"; always the real one.
        horizon: T.
        method: Its name as printed.
        source: Paper and table, or repository.
        protocol: How the numbers came about.
        unified: Whether that is the unified protocol; rows of others are not comparable.
        notes: What else must be known of it to read its numbers.
        success_rate: SR. Like all scores below, None where it is not given.
        mean_accuracy: mAcc.
        mean_iou_bitwise: mIoU of the unified protocol, bitwise on action ids; see
            `cefito.evaluation.mean_iou_bitwise`.
        mean_iou_own: mIoU of a protocol of the method's own, of whichever definition.
        task_accuracy: Accuracy of the task classifier.
    """

    table: str
    dataset: str
    horizon: int
    method: str
    source: str
    protocol: PublishedProtocol
    unified: bool
    notes: tuple[str, ...] = ()
    success_rate: PublishedScore | None = None
    mean_accuracy: PublishedScore | None = None
    mean_iou_bitwise: PublishedScore | None = None
    mean_iou_own: PublishedScore | None = None
    task_accuracy: PublishedScore | None = None


def published_rows(dataset: str, horizon: int, table: str = "main") -> list[PublishedRow]:
    """Published rows for one data set and horizon, in the order of the tables.

    Args:
        dataset: Name of a data set. It is matched by its beginning: "crosstask-simulated" gives the
            rows of "crosstask", whose `dataset` says so. Scores on other observations than the
            published ones are not comparable; whoever shows them side by side must say what was
            simulated.
        horizon: T.
        table: "main", "ablation", "text-encoder", "task-classifier", "oracle" or "reproduction".

    Returns:
        The rows; none where nothing is published.

    Raises:
        ConfigError: There is no such table.
    """
    rows = _all_rows()
    tables = sorted({row.table for row in rows})
    if table not in tables:
        raise ConfigError(f"no published table '{table}'; there are {', '.join(tables)}.")
    return [
        row
        for row in rows
        if row.table == table and row.horizon == horizon and dataset.startswith(row.dataset)
    ]


@cache
def _all_rows() -> tuple[PublishedRow, ...]:
    text = (resources.files("cefito.study") / "published.json").read_text(encoding="utf-8")
    value = json.loads(text)
    protocols = {key: PublishedProtocol(**protocol) for key, protocol in value["protocols"].items()}
    return tuple(
        row
        for table in value["tables"]
        for entry in table["rows"]
        for row in _rows(table, entry, protocols, value["footnotes"])
    )


def _rows(
    table: dict[str, Any],
    entry: dict[str, Any],
    protocols: dict[str, PublishedProtocol],
    footnotes: list[dict[str, Any]],
) -> Iterator[PublishedRow]:
    """One row for each horizon of an entry."""
    for horizon, numbers in entry["scores"].items():
        scores = {
            metric: PublishedScore(*pair)
            for metric, pair in zip(table["metrics"], numbers, strict=True)
        }
        yield PublishedRow(
            table=table["table"],
            dataset=table["dataset"],
            horizon=int(horizon),
            method=entry["method"],
            source=table["source"],
            protocol=protocols[entry["protocol"]],
            unified=entry["protocol"] == "unified",
            notes=(
                *([entry["note"]] if "note" in entry else []),
                *(
                    note["text"]
                    for note in footnotes
                    if entry["method"] in note["methods"]
                    and entry["protocol"] == note["protocol"]
                    and table["dataset"] in note.get("datasets", [table["dataset"]])
                    and table["table"] in note.get("tables", [table["table"]])
                    and int(horizon) in note.get("horizons", [int(horizon)])
                ),
            ),
            **scores,
        )
