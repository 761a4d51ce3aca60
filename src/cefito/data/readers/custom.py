"""Your own annotated videos with features extracted by any model.

The source folder holds `taxonomy.json`, `videos.jsonl`, `features.npz` with `start` and `end` [S,
E] (one row a step, in the order of videos.jsonl and of its steps), and optionally
`action_text_features.npy` [K, W] (one row an action).
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.data.prepared import (
    PreparedDataset,
    check_action_text,
    check_observations,
    write_dataset,
)
from cefito.data.readers.merges import Merges
from cefito.data.readers.source import read_folder
from cefito.errors import DataError
from cefito.files import load_npy, load_npz

__all__ = ["ACTION_TEXT_FILE", "FEATURES_FILE", "prepare_custom"]

FEATURES_FILE = "features.npz"
ACTION_TEXT_FILE = "action_text_features.npy"
_FEATURES_REMEDY = (
    "Save `start` and `end` [S, E] with numpy.savez, one row a step, in the order of videos.jsonl "
    "and of its steps."
)
_TEXT_REMEDY = "Save [K, W] with numpy.save, row = action id, or remove the file."


def prepare_custom(
    source: Path | str, target: Path | str, *, name: str | None = None, merges: Merges | None = None
) -> PreparedDataset:
    """Turn a folder of annotations and features into a prepared data set.

    Half and single precision are kept as they are; double precision is stored as single. The same
    input gives the same fingerprint.

    Args:
        source: Folder with taxonomy.json, videos.jsonl, features.npz and optionally
            action_text_features.npy.
        target: Folder to write, which must not hold anything yet.
        name: Name shown in tables; by default the one in taxonomy.json.
        merges: Names to be replaced; where actions become one, the embedding of the one that had
            the name before stays.

    Returns:
        The data set; `provenance["notes"]` says what a user should know, where there is something.

    Raises:
        DataError: Something in the source is missing, malformed or inconsistent, or the target
            cannot be written; nothing is written then.
    """
    target = Path(target)
    source = Path(source)
    if not source.is_dir():
        raise DataError(
            f"{source}: no such folder or table. Give the folder that holds taxonomy.json, "
            f"videos.jsonl and {FEATURES_FILE}, or a table of steps."
        )
    if name is not None and not name.strip():
        raise DataError("name: is empty. Give the data set a name or leave it out.", setting="name")
    found = read_folder(source, merges=merges)
    arrays = {
        key: _single(array)
        for key, array in load_npz(
            source / FEATURES_FILE, ("start", "end"), _FEATURES_REMEDY
        ).items()
    }
    check_observations(
        found.written,
        start=arrays["start"],
        end=arrays["end"],
        place=str(source / FEATURES_FILE),
        remedy=_FEATURES_REMEDY,
    )
    text = None
    if (source / ACTION_TEXT_FILE).exists():
        text = _single(load_npy(source / ACTION_TEXT_FILE, _TEXT_REMEDY))
        check_action_text(
            found.written, text, place=str(source / ACTION_TEXT_FILE), remedy=_TEXT_REMEDY
        )
        text = text[list(found.kept)]
    return write_dataset(
        target,
        name=name or found.annotations.taxonomy.dataset,
        annotations=found.annotations,
        start=arrays["start"],
        end=arrays["end"],
        action_text=text,
        provenance={
            "observations": "as given",
            "source": {"kind": "custom", "folder": source.resolve().name},
            **({"notes": list(found.notes)} if found.notes else {}),
            "cefito": version("cefito"),
        },
    )


def _single(array: NDArray[Any]) -> NDArray[Any]:
    """The array in float16 or float32, native byte order.

    What does not fit becomes infinite and is refused later.
    """
    if array.dtype.kind != "f":
        return array
    with np.errstate(over="ignore"):
        return array.astype(np.float16 if array.dtype.itemsize == 2 else np.float32, copy=False)
