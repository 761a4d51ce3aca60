"""A written work instruction as tasks, actions and their order, before any video is annotated.

    # Make tea
    1. boil water
    2. warm the pot (optional)
    3. add green tea | add black tea
    4. fetch a cup
    4. fetch sugar (optional)
    5. pour

A line that begins with # names a task. Steps are numbered: those of a lower number come before
those of a higher one; steps of one number may come in any order. Alternatives, with a bar between,
count as optional.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from cefito.data.annotations import Taxonomy, nfc
from cefito.errors import DataError
from cefito.files import read_text

_END = re.compile(r"\r\n?|\n")  # of a line; others may be within a name
_STEP = re.compile(r"(\d+)\s*[.):](?!\d)\s*(.+)")
_OPTIONAL = re.compile(r"\s*[(\[]\s*optional\s*[)\]][.,;]?\s*", re.IGNORECASE)
_EXPECTED = "Expected '# name of the task' and numbered steps, as in '1. boil water (optional)'."


@dataclass(frozen=True)
class Procedure:
    """The steps of a task as they are written."""

    task: str
    steps: tuple[tuple[int, tuple[str, ...], bool], ...]  # number, alternatives, whether optional

    def edges(self) -> Iterator[tuple[str, str]]:
        """Yield pairs of names (a, b), a right before b."""
        numbers = sorted({number for number, _, _ in self.steps})
        names = {
            number: [
                n for step_number, names, _ in self.steps if step_number == number for n in names
            ]
            for number in numbers
        }
        for number, following in pairwise(numbers):
            yield from ((a, b) for a in names[number] for b in names[following])

    @property
    def names(self) -> list[str]:
        """All names of steps, each once."""
        return list(dict.fromkeys(name for _, names, _ in self.steps for name in names))

    @property
    def optional(self) -> list[str]:
        """Names of the steps that may be left out, alternatives among them."""
        return [name for _, names, free in self.steps if free or len(names) > 1 for name in names]


def read_procedures(path: Path) -> list[Procedure]:
    """Read the tasks of a text.

    Raises:
        DataError: A line of another form, a task without steps, or a step named twice.
    """
    tasks: list[tuple[str, list[tuple[int, tuple[str, ...], bool]]]] = []
    lines = _END.split(nfc(read_text(path, _EXPECTED)).removeprefix("\ufeff"))
    for number, line in enumerate(lines, 1):
        text = " ".join(line.split())
        if not text:
            continue
        place = f"{path}, line {number}"
        if text.startswith("#"):
            tasks.append((text.lstrip("# "), []))
            continue
        match = _STEP.fullmatch(text)
        if match is None or not tasks:
            raise DataError(f"{place}: {text[:60]!r} is not a step of a task. {_EXPECTED}")
        plain, free = _OPTIONAL.subn(" ", match[2])
        names = tuple(name.strip() for name in plain.split("|"))
        listed = [name for _, step_names, _ in tasks[-1][1] for name in step_names]
        if not all(names):
            raise DataError(f"{place}: a step has no name. {_EXPECTED}")
        if len({*listed, *names}) < len(listed) + len(names):
            raise DataError(f"{place}: the step is in the task already. Name each step once.")
        tasks[-1][1].append((int(match[1]), names, bool(free)))
    if not tasks or not all(name and steps for name, steps in tasks):
        raise DataError(f"{path}: holds no task, or one without a name or steps. {_EXPECTED}")
    if len({name for name, _ in tasks}) < len(tasks):
        raise DataError(f"{path}: two tasks have one name. Rename one of them.")
    return [Procedure(task, tuple(steps)) for task, steps in tasks]


def taxonomy_of(procedures: list[Procedure], dataset: str) -> Taxonomy:
    """Return the tasks and actions of procedures; equal names are one action."""
    ids = {name: None for procedure in procedures for name in procedure.names}
    place = {name: number for number, name in enumerate(ids)}
    tasks = [
        (procedure.task, [place[name] for name in procedure.names]) for procedure in procedures
    ]
    return Taxonomy.from_names(dataset, tasks, ids)
