"""The results file of a study: everything its tables are made from, in one JSON file."""

from __future__ import annotations

from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cefito.data.prepared import open_dataset
from cefito.errors import RunError
from cefito.evaluation.study import Study, read_cell
from cefito.files import read_json, write_json

__all__ = ["Results", "gather", "read_results", "write_results"]

FORMAT_VERSION = 1
Results = dict[str, Any]
"""{"format_version", "dataset": {"name", "fingerprint"}, "selection", "preset", "settings".

"sample", "horizons", "seeds",
"versions", "rows": [as `Row`], "windows": {T: {"video", "start"}} of all scored test windows,
"cells": [{"row", "horizon", "seed", "metrics", "success", "windows", "scored", …} or {"row",
"horizon", "seed", "error"}]}; `success` has a digit for each window, 1 where the whole sequence was
right; `scored` are the numbers of these windows, null for all of them."""


def gather(study: Study) -> Results:
    """All scores of a study, read from its cells; cells without scores have an entry that says why.

    Raises:
        DataError: The data set cannot be opened.
    """
    dataset = open_dataset(study.dataset)
    cells: list[dict[str, Any]] = []
    windows: dict[str, Any] = {}
    for cell in study.cells():
        place = {"row": cell.row.name, "horizon": cell.horizon, "seed": cell.seed}
        try:
            value = read_cell(study, cell, dataset)
        except RunError as problem:
            value = {"error": str(problem)}
        if value is None:
            value = {"error": "not scored yet. Repeat the command."}
        value = {name: part for name, part in value.items() if name not in ("key", "traceback")}
        if "videos" in value:
            videos, starts = value.pop("videos"), value.pop("starts")
            kept = windows.setdefault(str(cell.horizon), {"video": videos, "start": starts})
            if len(kept["video"]) < len(videos):
                windows[str(cell.horizon)] = {"video": videos, "start": starts}
            value["scored"] = [videos, starts]
        cells.append({**place, **value})
    for value in cells:  # which of the horizon's windows each was scored on
        if "scored" in value:
            value["scored"] = _rows(value["scored"], windows[str(value["horizon"])])
    return {
        "format_version": FORMAT_VERSION,
        "dataset": {"name": dataset.name, "fingerprint": dataset.fingerprint},
        "selection": study.selection,
        "preset": study.preset,
        "settings": dict(study.settings),
        "sample": study.sample,
        "horizons": list(study.horizons),
        "seeds": list(study.seeds),
        "versions": {
            "cefito": version("cefito"),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "rows": [asdict(row) for row in study.rows],
        "windows": windows,
        "cells": cells,
    }


def _rows(scored: list[list[int]], windows: dict[str, list[int]]) -> list[int] | None:
    """Numbers of the windows among all, None for all of them."""
    if len(scored[0]) == len(windows["video"]):
        return None
    place = {
        key: row for row, key in enumerate(zip(windows["video"], windows["start"], strict=True))
    }
    return [place[key] for key in zip(*scored, strict=True)]


def write_results(results: Results, path: Path) -> None:
    """Write a results file."""
    write_json(path, results)


def read_results(path: Path) -> Results:
    """Read a results file.

    Raises:
        RunError: Missing, damaged, or of another version.
    """
    value = read_json(path, "Make it again with cefito compare.", RunError)
    if (
        not isinstance(value, dict)
        or value.get("format_version") != FORMAT_VERSION
        or not isinstance(value.get("cells"), list)
    ):
        raise RunError(
            f"{path}: not a results file of this version. Make it again with cefito compare."
        )
    return value
