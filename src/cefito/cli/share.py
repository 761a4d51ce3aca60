"""`cefito export`, `push` and `pull`: runs as files and on a model hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from cefito.cli.console import log_warnings, talk
from cefito.cli.options import Flag

__all__ = ["export", "pull", "push"]

Licence = Annotated[str, Parameter(name="--license")]


def export(run: Path, file: Path, /, *, license_name: Licence = "") -> None:
    """Write the files for planning with a run into a zip file, with a model card.

    Checkpoints and the data set's path on this machine are left out. Every command that takes a run
    folder also takes the file.

    Args:
        run: Run folder, as cefito train makes it.
        file: Zip file to write.
        license_name: Licence of the weights, an SPDX identifier such as CC-BY-4.0, for the card.
    """
    from cefito.evaluation.sharing import export_run

    with log_warnings():
        export_run(run, file, license_name=license_name)
    talk(f"wrote {file}: {file.stat().st_size:,} bytes; plan with: cefito plan {file} …")


def push(run: Path, place: str, /, *, license_name: Licence = "", private: Flag = False) -> None:
    """Upload the files for planning with a run to a model hub, with a model card.

    Needs the extra hub, and to be logged in there: hf auth login.

    Args:
        run: Run folder, or a zip file of cefito export.
        place: hub:USER/NAME, the repository; made if absent.
        license_name: Licence of the weights, an SPDX identifier such as CC-BY-4.0, for the card.
        private: Make a new repository a private one.
    """
    from cefito.evaluation.sharing import push_run

    with log_warnings():
        pushed = push_run(run, place, license_name=license_name, private=private)
    talk(f"uploaded {run} to {pushed.address}; plan with: cefito plan {place} …")
    talk(f"commit {pushed.revision}, SHA-256 of manifest.json {pushed.sha256}")


def pull(place: str, folder: Path | None = None, /) -> None:
    """Make a run folder of a shared run.

    Args:
        place: hub:USER/NAME, hub:USER/NAME@REVISION, or a zip file of cefito export.
        folder: Run folder to make; by default the name.
    """
    from cefito.evaluation.sharing import pull_run
    from cefito.runs.hub import HUB

    if not (place.startswith(HUB) or Path(place).is_file()):
        place = HUB + place
    if folder is None:
        name = place.removeprefix(HUB).partition("@")[0].rpartition("/")[2]
        folder = Path(name.removesuffix(".zip"))
    with log_warnings():
        run = pull_run(place, folder)
    talk(f"wrote {folder}: {run.planner.name}, T = {run.steps}, of {run.info.dataset.name}")
