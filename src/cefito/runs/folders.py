"""Where runs lie: one in a folder, or one for each of several horizons in T3, T4, … of a folder."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from cefito.errors import RunError
from cefito.runs.info import RUN_FILE

__all__ = ["chosen_run", "folders_for", "horizons_in"]

_NAME = re.compile(r"T([1-9][0-9]{0,3})")


def horizons_in(folder: Path) -> dict[int, Path]:
    """The runs of several horizons that a folder holds, by ascending horizons.

    Empty where the folder holds a run itself, or none at all.
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
    """The run that is meant by a folder: itself, or that of a horizon in it.

    Args:
        folder: A run folder, or one that holds runs of several horizons.
        horizon: T; may be left out where there is one run only.

    Raises:
        RunError: The folder holds several runs and no horizon is given, or none of this horizon.
    """
    found = horizons_in(folder)
    if not found:
        return folder
    listed = ", ".join(map(str, found))
    if horizon is None and len(found) > 1:
        raise RunError(
            f"{folder}: holds runs of the horizons {listed}. Say which one.", setting="horizon"
        )
    if horizon is not None and horizon not in found:
        raise RunError(
            f"{folder}: holds no run of horizon {horizon}; there are {listed}. Choose one of them "
            "or train it.",
            setting="horizon",
        )
    return next(iter(found.values())) if horizon is None else found[horizon]


def folders_for(folder: Path, horizons: Collection[int]) -> dict[int, Path]:
    """Where runs of these horizons are written.

    One horizon takes the folder itself, several take T3, T4, … in it; so does one more for a folder
    that holds several already.

    Raises:
        RunError: Several are to be written into a folder that is the run of one.
    """
    if len(horizons) == 1 and not horizons_in(folder):
        return dict.fromkeys(horizons, folder)
    if (folder / RUN_FILE).exists():
        raise RunError(
            f"{folder}: is the run of one horizon. Choose another folder for several.",
            setting="folder",
        )
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder}: is no folder. Choose another one.", setting="folder")
    return {horizon: folder / f"T{horizon}" for horizon in horizons}
