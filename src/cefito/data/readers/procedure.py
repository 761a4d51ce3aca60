"""A written work instruction as tasks, actions and their order, before any video is annotated.

    # Make tea
    1. boil water
    2. warm the pot (optional)
    3. add green tea | add black tea
    4. fetch a cup
    4. fetch sugar (optional)
    5. pour
    6. lay the table (after 4)
    7. open the window (at any time)

A line that begins with # names a task. Steps are numbered: those of a lower number come before
those of a higher one; steps of one number may come in any order. A step that names numbers in
brackets comes after the steps of these alone, or at any time. Alternatives, with a bar between,
count as optional.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from cefito.data.vocabulary import Taxonomy, nfc
from cefito.errors import DataError
from cefito.files import read_text

_END = re.compile(r"\r\n?|\n")  # of a line; others may be within a name
_STEP = re.compile(r"(\d+)\s*[.):](?!\d)\s*(.+)")
_OPTIONAL = re.compile(r"\s*[(\[]\s*optional\s*[)\]][.,;]?\s*", re.IGNORECASE)
_AFTER = re.compile(
    r"\s*[(\[]\s*(?:after\s+(\d+(?:\s*(?:,|and)\s*\d+)*)|at any time)\s*[)\]][.,;]?\s*",
    re.IGNORECASE,
)
_EXPECTED = "Expected '# name of the task' and numbered steps, as in '1. boil water (optional)'."


@dataclass(frozen=True)
class WrittenStep:
    """A step of a task."""

    number: int
    names: tuple[str, ...]  # alternatives
    optional: bool = False
    after: tuple[int, ...] | None = None  # numbers that come before it; None for all lower ones


@dataclass(frozen=True)
class Procedure:
    """The steps of a task as they are written."""

    task: str
    steps: tuple[WrittenStep, ...]

    def edges(self) -> Iterator[tuple[str, str]]:
        """Yield pairs of names (a, b), a before b; further orders follow from these."""
        for step in self.steps:
            for before in self._before(step):
                yield from product(before.names, step.names)

    def _before(self, step: WrittenStep) -> Iterator[WrittenStep]:
        """Yield the steps that come before one."""
        if step.after is not None:
            yield from (other for other in self.steps if other.number in step.after)
            return
        numbers = sorted({other.number for other in self.steps if other.number < step.number})
        for number in reversed(numbers):
            steps = [other for other in self.steps if other.number == number]
            yield from steps
            if all(other.after is None for other in steps):
                return  # those that come before these follow

    @property
    def names(self) -> list[str]:
        """All names of steps, each once."""
        return list(dict.fromkeys(name for step in self.steps for name in step.names))

    @property
    def optional(self) -> list[str]:
        """Names of the steps that may be left out, alternatives among them."""
        free = (step.names for step in self.steps if step.optional or len(step.names) > 1)
        return [name for names in free for name in names]


def read_procedures(path: Path) -> list[Procedure]:
    """Read the tasks of a text.

    Raises:
        DataError: A line of another form, a task without steps, a step named twice, or one that
            comes after a number that is not lower.
    """
    tasks: list[tuple[str, list[WrittenStep]]] = []
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
        said, plain = _AFTER.search(match[2]), _AFTER.sub(" ", match[2])
        after = said and tuple(map(int, re.findall(r"\d+", said[1] or "")))
        plain, free = _OPTIONAL.subn(" ", plain)
        names = tuple(name.strip() for name in plain.split("|"))
        listed = [name for step in tasks[-1][1] for name in step.names]
        if not all(names):
            raise DataError(f"{place}: a step has no name. {_EXPECTED}")
        if len({*listed, *names}) < len(listed) + len(names):
            raise DataError(f"{place}: the step is in the task already. Name each step once.")
        step = WrittenStep(int(match[1]), names, bool(free), after)
        known = {other.number for other in tasks[-1][1] if other.number < step.number}
        if after and not known.issuperset(after):
            problem = f"comes after {', '.join(map(str, sorted({*after} - known)))}"
            raise DataError(f"{place}: {problem}, no step above of a lower number.")
        tasks[-1][1].append(step)
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


def orders_value(procedures: Iterable[Procedure]) -> dict[str, Any]:
    """Return the orders of procedures, for a file as `cefito.verification.order` reads them."""
    return {
        procedure.task: {"edges": [*map(list, procedure.edges())], "optional": procedure.optional}
        for procedure in procedures
    }
