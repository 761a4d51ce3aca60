"""The results file of a study: everything its tables are made from, in one JSON file."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Discriminator, Tag

from cefito.data.windows import Selection
from cefito.errors import RunError
from cefito.evaluation.records import CellFile, FailedCell, FailureFile, FileRecord, ScoredCell
from cefito.study.study import Study
from cefito.study.trials import Trial, read_cell
from cefito.study.variants import PlannerVariant

__all__ = ["DatasetName", "Results", "WindowList", "gather", "read_results", "write_results"]


class DatasetName(FileRecord):
    """Which data set it is.

    Attributes:
        name: Its name.
        fingerprint: Its fingerprint.
    """

    name: str
    fingerprint: str


class WindowList(FileRecord):
    """All scored test windows of a horizon.

    Attributes:
        video: Video of each, as its number in the data set.
        start: Number of each one's first step in its video.
    """

    video: tuple[int, ...] = ()
    start: tuple[int, ...] = ()


def _kind(cell: Any) -> str:
    failed = "error" in cell if isinstance(cell, dict) else hasattr(cell, "error")
    return "failed" if failed else "scored"


class Results(FileRecord):
    """Content of a results.json.

    Attributes:
        format_version: 1.
        dataset: The data set.
        selection: Where epochs and weights were chosen.
        preset: Preset of the settings.
        settings: Settings changed in all rows, dotted keys.
        sample: Size of the sample of test windows; None where all were scored.
        horizons: All T.
        seeds: Seeds of the trainings.
        versions: Of what it was made with.
        rows: The lines of tables.
        windows: All scored test windows of each horizon.
        cells: The scores of each row, horizon and seed, or why there are none.
    """

    what: ClassVar[str] = "results file"
    remedy: ClassVar[str] = "Make it again with cefito compare."

    format_version: Literal[1] = 1
    dataset: DatasetName
    selection: Selection
    preset: str
    settings: dict[str, Any]
    sample: int | None
    horizons: list[int]
    seeds: list[int]
    versions: dict[str, str]
    rows: list[PlannerVariant]
    windows: dict[int, WindowList]
    cells: list[
        Annotated[
            Annotated[ScoredCell, Tag("scored")] | Annotated[FailedCell, Tag("failed")],
            Discriminator(_kind),
        ]
    ]

    def scored(self, horizon: int, row: str | None = None) -> list[ScoredCell]:
        """Cells with scores at a horizon, by ascending seeds; of all rows by default."""
        cells = [
            cell
            for cell in self.cells
            if isinstance(cell, ScoredCell) and cell.horizon == horizon and row in (None, cell.row)
        ]
        return sorted(cells, key=lambda cell: cell.seed)

    def failed(self, horizon: int, row: str) -> list[FailedCell]:
        """Cells of a row without scores, by ascending seeds."""
        cells = [
            cell
            for cell in self.cells
            if isinstance(cell, FailedCell) and (cell.horizon, cell.row) == (horizon, row)
        ]
        return sorted(cells, key=lambda cell: cell.seed)

    def windows_of(self, horizon: int) -> WindowList:
        """All scored test windows of a horizon."""
        return self.windows.get(horizon, WindowList())


def gather(study: Study) -> Results:
    """All scores of a study, read from its cells; cells without scores say why."""
    records = [_read(study, cell) for cell in study.cells()]
    windows: dict[int, WindowList] = {}
    for record in records:
        if isinstance(record, CellFile):
            known = windows.get(record.horizon, WindowList())
            if record.horizon not in windows or len(known.video) < len(record.videos):
                windows[record.horizon] = WindowList(
                    video=tuple(record.videos), start=tuple(record.starts)
                )
    return Results(
        dataset=DatasetName(name=study.dataset.name, fingerprint=study.dataset.fingerprint),
        selection=study.selection,
        preset=study.preset,
        settings=dict(study.settings),
        sample=study.sample,
        horizons=list(study.horizons),
        seeds=list(study.seeds),
        versions={
            "cefito": version("cefito"),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        rows=[_titled(row, records) for row in study.rows],
        windows=windows,
        cells=[
            _placed(record, windows[record.horizon]) if isinstance(record, CellFile) else record
            for record in records
        ],
    )


def _titled(row: PlannerVariant, records: Sequence[CellFile | FailedCell]) -> PlannerVariant:
    """A row with its title settled: the name of its planner, if it is to have that and is known."""
    if not row.own_name:
        return row
    names = (
        record.planner
        for record in records
        if isinstance(record, CellFile) and record.row == row.name
    )
    return row.model_copy(update={"title": next(names, row.title), "own_name": False})


def _read(study: Study, cell: Trial) -> CellFile | FailedCell:
    """What there is of a cell, or why there is nothing."""
    error = "not scored yet. Repeat the command."
    try:
        record = read_cell(study, cell)
        if isinstance(record, CellFile):
            return record
        if isinstance(record, FailureFile):
            error = record.error
    except RunError as problem:
        error = str(problem)
    return FailedCell(row=cell.row.name, horizon=cell.horizon, seed=cell.seed, error=error)


def _placed(record: CellFile, windows: WindowList) -> ScoredCell:
    """A cell with the numbers of its windows among all of the horizon; None for all of them."""
    scored = None
    if len(record.videos) < len(windows.video):
        pairs = zip(windows.video, windows.start, strict=True)
        number = {pair: place for place, pair in enumerate(pairs)}
        scored = [number[pair] for pair in zip(record.videos, record.starts, strict=True)]
    values = {name: value for name, value in record if name not in ("key", "videos", "starts")}
    return ScoredCell(**values, scored=scored)


def write_results(results: Results, path: Path) -> None:
    """Write a results file.

    Raises:
        RunError: The file cannot be written.
    """
    results.write(path)


def read_results(path: Path) -> Results:
    """Read a results file.

    Raises:
        RunError: Missing, damaged, or of another version.
    """
    return Results.read(path)
