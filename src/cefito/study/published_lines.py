"""Published rows as lines of a table, with their footnotes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_lowercase

from cefito.evaluation.table import NONE, Entry
from cefito.study.published import PublishedRow, PublishedScore, published_rows

__all__ = ["published_lines"]

_PUBLISHED = (
    "Below the rule: published rows (± is there the full width of a percentile bootstrap over "
    "seeds; epochs were chosen on test; mIoU is bitwise on action ids, and no set IoU; those of an "
    "own protocol have other windows and metrics)."
)
_SIMULATED = " They are of real features, the rows above of simulated ones: not comparable."


def published_lines(
    dataset: str, horizon: int, table: str, metrics: Mapping[str, str], *, columns: int
) -> tuple[list[tuple[Entry, ...]], list[str]]:
    """Lines of the published rows for a data set and horizon, and notes.

    Args:
        dataset: Name of the data set, as in `published_rows`.
        horizon: T.
        table: The published table, as in `published_rows`; empty for none.
        metrics: Heads of the columns of scores, by the names of the metrics.
        columns: How many columns the table has, with that of the names.

    Returns:
        The lines, with letters for the footnotes of each behind its name; and what stands below the
        table: how the numbers came about, then the footnotes.
    """
    rows = published_rows(dataset, horizon, table) if table else []
    if not rows:
        return [], []
    marks = _marks(rows)
    lines = [_line(row, metrics, columns, marks) for row in rows]
    notes = [_PUBLISHED + (_SIMULATED if "simulated" in dataset else "")]
    return lines, notes + [f"[{mark}] {note}" for note, mark in marks.items()]


def _marks(rows: Sequence[PublishedRow]) -> dict[str, str]:
    """A letter for each footnote, in the order in which rows have them; rows may share one."""
    notes = dict.fromkeys(note for row in rows for note in row.notes)
    return {note: ascii_lowercase[place] for place, note in enumerate(notes)}


def _line(
    row: PublishedRow, metrics: Mapping[str, str], columns: int, marks: Mapping[str, str]
) -> tuple[Entry, ...]:
    scores = {
        "success_rate": row.success_rate,
        "mean_accuracy": row.mean_accuracy,
        "mean_iou_bitwise": row.mean_iou_bitwise,
        "task_accuracy": row.task_accuracy,
    }
    marked = ", ".join(marks[note] for note in row.notes)
    name = row.method + ("" if row.unified else ", own protocol")
    texts = [f"{name} [{marked}]" if marked else name]
    texts += [_score(scores.get(metric)) for metric in metrics]
    return tuple(Entry(text) for text in [*texts, *[NONE] * (columns - len(texts))])


def _score(score: PublishedScore | None) -> str:
    if score is None:
        return NONE
    return f"{score.value:.2f}" + ("" if score.width is None else f" ± {score.width:.2f}")
