"""Tables, and their forms: Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Self

from pydantic import Field

from cefito.errors import ConfigError
from cefito.evaluation.records import ABSENT, unsure_intervals
from cefito.files import FileRecord
from cefito.markup import counted, in_markdown, markdown_table

NONE = "–"
"""Text of an empty cell."""
DIFFERENCE = "90 % intervals, for which both rows are scored on the same draws."
"""Legend of a table of differences."""
_SEEDS = 3  # fewer say little
_IN_LATEX = str.maketrans(
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
        "−": "$-$",
        "|": r"\textbar{}",
        "…": r"\ldots{}",
        "τ": r"$\tau$",
        "\n": " ",
    }
)


class Entry(FileRecord):
    """A cell of a table."""

    text: str
    rank: int = 0  # 1 for the best of its column, 2 for the second best, else 0


class Table(FileRecord):
    """A table."""

    title: str
    heads: tuple[str, ...]
    lines: tuple[tuple[Entry, ...], ...]
    below: int = 0  # number of lines below the rule
    own: int | None = ABSENT  # the line that the table is about
    legend: str = ""  # of all columns
    meanings: dict[str, str] = Field(default_factory=dict)  # what columns are, by head
    notes: tuple[str, ...] = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is said below it: its legend, which explains the columns that it has, and notes."""
        shown = {head: self.meanings[head] for head in self.heads if head in self.meanings}
        legend = f"{self.legend} {explained(shown)}".strip()
        return (legend, *self.notes) if legend else self.notes

    def of_columns(self, heads: Collection[str] | None) -> Self:
        """Return it with its first column and these heads, or those not empty; whole without."""
        columns = zip(self.heads, *self.lines, strict=True)
        chosen = heads or [head for head, *cells in columns if {c.text for c in cells} != {NONE}]
        kept = [place for place, head in enumerate(self.heads) if head in chosen or not place]
        if len(kept) == 1:
            return self
        lines = tuple(tuple(line[place] for place in kept) for line in self.lines)
        return self.model_copy(
            update={"heads": tuple(self.heads[place] for place in kept), "lines": lines}
        )


def check_columns(columns: Collection[str] | None, heads: Sequence[str]) -> None:
    """Refuse columns that are not among the heads of a table (ConfigError)."""
    if unknown := [column for column in columns or () if column not in heads]:
        problem = f"no column '{unknown[0]}'; there are {', '.join(heads)}"
        raise ConfigError(f"{problem}.", setting="columns")


def explained(meanings: Mapping[str, str]) -> str:
    """Return what columns are, by head, as sentences of a legend."""
    return " ".join(f"{head}: {meaning}." for head, meaning in meanings.items())


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign, to some digits."""
    return f"{round(value, digits) + 0.0:+.{digits}f}"  # never -0.00


def signed_interval(low: float, high: float, digits: int = 2) -> str:
    """Two ends with their signs; one below zero is never shown as +0.00.

    Args:
        low: The lower end.
        high: The upper end.
        digits: Number of digits.
    """
    return " to ".join(f"{end + 0.0:+.{digits}f}" for end in (low, high))


def resampled_text(score: Mapping[str, Any], digits: int) -> str:
    """A mean and its interval; alone without it. From ten on, its ends have a digit less."""
    text, ends = f"{score['mean']:.{digits}f}", (score.get("low"), score.get("high"))
    fewer = digits - 1 or int(abs(score["mean"]) < 10)
    return text if None in ends else f"{text} ({'–'.join(f'{end:.{fewer}f}' for end in ends)})"


def resampled_legend(count: int, kind: str) -> str:
    """What is said of such scores; so many videos or groups are resampled."""
    unsure = unsure_intervals(count, kind)
    what = counted(count, kind) if unsure else f"{kind}s"
    return f"Per cent unless said, 90 % intervals ({what} resampled).{unsure}"


def study_notes(settings: Mapping[str, Any], seeds: Mapping[str, int | None]) -> list[str]:
    """Return what is said of changed settings, and a warning of rows with few seeds.

    Args:
        settings: Settings that were changed in all rows, by dotted keys.
        seeds: Number of seeds by row; None needs no seed.
    """
    changed = ", ".join(f"{key} = {value}" for key, value in settings.items())
    notes = [f"Changed settings: {changed}."] if changed else []
    if few := [row for row, count in seeds.items() if count is not None and count < _SEEDS]:
        rows = "all rows" if len(few) == len(seeds) else ", ".join(few)
        notes.append(f"Warning: fewer than three seeds ({rows}); another seed may turn the order.")
    return notes


def markdown(table: Table) -> str:
    """A Markdown table; the best is bold, the second best italic."""
    marks: dict[int, Callable[[str], str]] = {0: str, 1: "**{}**".format, 2: "*{}*".format}
    rows = [[marks[entry.rank](in_markdown(entry.text)) for entry in line] for line in table.lines]
    if table.below:
        rows.insert(len(rows) - table.below, ["*published*", *[""] * (len(table.heads) - 1)])
    lines = [
        f"**{in_markdown(table.title)}**",
        "",
        markdown_table([*map(in_markdown, table.heads)], rows, numbers=True),
    ]
    for note in [*_marked(table, "italic"), *table.remarks]:
        lines += ["", in_markdown(note)]
    return "\n".join(lines) + "\n"


def _marked(table: Table, second: str) -> list[str]:
    """Return what marks of a table mean, if it has some."""
    marked = any(entry.rank for line in table.lines for entry in line)
    return [f"Bold: the best of a column; {second}: the second best."] if marked else []


def latex(table: Table) -> str:
    """A LaTeX table, of the width of the line at most; the best bold, the second underlined.

    Its label is `tab:` and the words of its title. It takes the packages `booktabs`,
    `threeparttable` and `adjustbox`.
    """
    marks = "{}", r"\textbf{{{}}}", r"\underline{{{}}}"  # by rank
    body = [
        " & ".join(marks[entry.rank].format(_in_latex(entry.text)) for entry in line) + r" \\"
        for line in table.lines
    ]
    if table.below:
        body.insert(len(body) - table.below, r"\midrule")
    remarks = [*_marked(table, "underlined"), *table.remarks]
    notes = [rf"\item {_in_latex(note)}" for note in remarks]
    label = re.sub(r"[\W_]+", "-", table.title.lower()).strip("-")
    lines = [
        r"\begin{table}",
        r"\centering",
        r"\begin{adjustbox}{max width=\linewidth}",
        r"\begin{threeparttable}",
        rf"\caption{{{_in_latex(table.title)}.}}",
        rf"\label{{tab:{label}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(table.heads) - 1)}}}",
        r"\toprule",
        " & ".join(map(_in_latex, table.heads)) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        *([r"\begin{tablenotes}\footnotesize", *notes, r"\end{tablenotes}"] if notes else []),
        r"\end{threeparttable}",
        r"\end{adjustbox}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _in_latex(text: str) -> str:
    # a minus sign is longer than a hyphen and no part of a dash (--); [ and * at the start of a
    # line belong to its \\
    text = re.sub(r"(?<![\w-])-(?=\d)", "$-$", text.translate(_IN_LATEX))
    return f"{{}}{text}" if text.startswith(("[", "*")) else text
