"""Sharing a run: as a zip archive, or on a model hub."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from cefito.errors import RunError
from cefito.evaluation.model_card import kept_scores, model_card
from cefito.files import new_folder, write_text
from cefito.runs.bundle import pack
from cefito.runs.folder import MANIFEST, read_manifest
from cefito.runs.hub import CARD, fetched, push_folder, repository
from cefito.runs.run import Run, open_run, write_run

__all__ = ["export_run", "pull_run", "push_run"]


def export_run(run: Path | str, target: Path | str, *, license_name: str = "") -> Run:
    """Write the files that planning needs into a new zip archive, with a model card.

    Checkpoints, metrics and the place of the data set on this machine stay out. Equal runs give
    equal bytes. `license_name` is the SPDX identifier of the licence of the weights.
    """
    target = Path(target)
    if target.suffix != ".zip":
        raise RunError(f"{target}: expected the name of a zip file, such as run.zip.")
    if target.exists():
        raise RunError(f"{target}: exists already. Choose another name or remove it first.")
    if not target.parent.is_dir():
        raise RunError(f"{target.parent}: no such folder. Make it first, or choose another one.")
    opened = open_run(run)
    with _shared(opened, license_name) as folder:
        pack(folder, target)
    return opened


def push_run(run: Path | str, place: str, *, license_name: str = "", private: bool = False) -> str:
    """Push the same files to `hub:USER/NAME` and return their address."""
    repository(place)
    with _shared(open_run(run), license_name) as folder:
        return push_folder(folder, place, private=private)


def pull_run(place: str, target: Path | str) -> Run:
    """Fetch a run from `hub:USER/NAME`, perhaps with `@REVISION`, into a new folder."""
    source = fetched(place)
    with new_folder(Path(target)) as temporary:
        for name in [*read_manifest(source / MANIFEST).files, MANIFEST, CARD]:
            if (source / name).is_file():
                shutil.copyfile(source / name, temporary / name)
    return open_run(target)


@contextmanager
def _shared(run: Run, license_name: str) -> Iterator[Path]:
    """A temporary folder with the files that planning needs and a model card."""
    card = model_card(run, kept_scores(run.folder), license_name=license_name)
    info = run.info.model_copy(
        update={
            # paths on this machine stay out
            "dataset": run.info.dataset.model_copy(update={"path": ""}),
            "preset": Path(run.info.preset).name,
        }
    )
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_run(replace(run, folder=folder, info=info))
        write_text(folder / CARD, card)
        yield folder
