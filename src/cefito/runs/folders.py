"""Folders of runs: one run, or one for each of several horizons in T3, T4, … of a folder."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from cefito.errors import RunError
from cefito.runs.info import RUN_FILE

__all__ = ["chosen_run", "folders_for", "horizons_in"]

_NAME = re.compile(r"T([1-9][0-9]{0,3})")


def horizons_in(folder: Path) -> dict[int, Path]:
    """Return the runs of several horizons in a folder, by ascending horizons.

    Empty if the folder is a run itself, or has none.
    """
    if not folder.is_dir() or (folder / RUN_FILE).exists():
        return {}
    found = {
        int(name[1]): path
        for path in folder.iterdir()
        if (name := _NAME.fullmatch(path.name)) and (path / RUN_FILE).is_file()
    }
    return dict(sorted(found.items()))


def chosen_run(folder: Path, horizon: int | None = None) -> Path:
    """Return the run folder in a folder: itself, or the run of a horizon (or the only one)."""
    found = horizons_in(folder)
    if not found:
        return folder
    if horizon is None and len(found) == 1:
        return next(iter(found.values()))
    if horizon is None or horizon not in found:
        listed = ", ".join(map(str, found))
        lacks = "" if horizon is None else f", not of {horizon}"
        raise RunError(
            f"{folder}: holds runs of the horizons {listed}{lacks}. Give one of them.",
            setting="horizon",
        )
    return found[horizon]


def folders_for(folder: Path, horizons: Collection[int]) -> dict[int, Path]:
    """Return the folders that runs of these horizons are written to.

    One horizon takes the folder itself, several take T3, T4, … in it; so does one more for a folder
    that has several already.
    """
    if len(horizons) == 1 and not horizons_in(folder):
        return dict.fromkeys(horizons, folder)
    if folder.exists() and (not folder.is_dir() or (folder / RUN_FILE).exists()):
        what = "the run of one horizon" if folder.is_dir() else "not a folder"
        raise RunError(f"{folder}: is {what}. Choose another for several.", setting="folder")
    return {horizon: folder / f"T{horizon}" for horizon in horizons}
