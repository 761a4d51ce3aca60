"""Text embeddings of the names of actions: read from a file, put into a copy of a data set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.arrays import is_pickled, load_npy
from cefito.data.pickles import load_pickled
from cefito.data.prepared import (
    PreparedDataset,
    check_action_text,
    video_folder_entry,
    write_dataset,
)
from cefito.data.vocabulary import Taxonomy
from cefito.errors import DataError
from cefito.files import check_array, read_bytes

_MOST = 1 << 28  # bytes of a pickle
_FILE = "action_text_features.npy"
_REMEDY = "Save [K, W] with numpy.save, row = action id, or remove the file."
_SHAPE = (
    "Expected a .npy file of the actions' text embeddings: numbers [K, W], row = action id, or a "
    "pickled dictionary of id and vector, as the paper's authors write it."
)


def read_action_text(path: Path, taxonomy: Taxonomy) -> NDArray[np.float32]:
    """Read text embeddings of the actions of a taxonomy, [K, W], row = action id.

    Raises:
        DataError: The file holds another kind of content, or the embeddings of other actions.
    """
    data = read_bytes(path, _SHAPE, most=_MOST)
    if is_pickled(data):
        value = load_pickled(data, path, "embeddings of actions", _SHAPE)
        array = _rows(value, path, taxonomy)
    else:
        array = load_npy(path, _SHAPE)
    check_array(array, shape=(len(taxonomy.actions), None), place=str(path), rows="action")
    with np.errstate(over="ignore"):  # overflows become infinite, which the next line refuses
        single = array.astype(np.float32)
    return check_array(single, shape=single.shape, place=str(path), rows="action")


def _rows(value: Any, path: Path, taxonomy: Taxonomy) -> NDArray[Any]:
    """Vectors of a dictionary in the order of ids; zeros for ids that no task has."""
    if not isinstance(value, dict) or not value:
        raise DataError(f"{path}: holds a {type(value).__name__}. {_SHAPE}")
    vectors: dict[int, NDArray[Any]] = {}
    for key, vector in value.items():
        array = np.atleast_1d(np.asarray(vector).squeeze())
        if not re.fullmatch(r"[0-9]{1,9}", str(key)) or array.dtype.kind != "f" or array.ndim > 1:
            fault = f"{array.dtype} {list(array.shape)} under {key!r:.40}"
            raise DataError(f"{path}: holds {fault}. {_SHAPE}")
        vectors[int(key)] = array
    used = {action for task in taxonomy.tasks for action in task.actions}
    ids, widths = range(len(taxonomy.actions)), {len(vector) for vector in vectors.values()}
    missing, unknown = sorted(used - set(vectors)), sorted(set(vectors) - set(ids))
    if missing or unknown or len(widths) > 1:
        wrong = [f"has no vector of action {missing[0]}"] if missing else []
        wrong += [f"has a vector of action {unknown[0]}"] if unknown else []
        wrong += [f"has vectors of {sorted(widths)[:3]} numbers"] if len(widths) > 1 else []
        remedy = f"Give the file of the taxonomy with {len(ids)} actions."
        raise DataError(f"{path}: {' and '.join(wrong)}. {remedy}")
    (width,) = widths
    return np.stack([vectors.get(action, np.zeros(width, np.float32)) for action in ids])


def with_action_text(
    source: PreparedDataset, target: Path, text: NDArray[Any], made_with: Mapping[str, Any]
) -> PreparedDataset:
    """Write a copy of a data set with other action text [K, W], named after its model and layer.

    Args:
        source: Data set to copy.
        target: New folder.
        text: Vectors of the actions [K, W].
        made_with: What made them, for the provenance.
    """
    suffix = "-" + made_with["model"].rsplit("/", 1)[-1]
    if made_with["layer"] != "as given":
        suffix += f"-{made_with['layer']}"
    before = source.provenance.get("action_text")
    name = source.name
    if isinstance(before, dict):
        name = name.removesuffix(before.get("suffix", ""))
    record = {**made_with, "suffix": suffix, "dataset": source.name}
    record |= {"fingerprint": source.fingerprint, "cefito": version("cefito")}
    return write_dataset(
        target,
        name=name + suffix,
        annotations=source.annotations,
        start=source.start,
        end=source.end,
        action_text=text,
        provenance={
            **source.provenance,
            **video_folder_entry(source.video_folder, target),
            "action_text": record,
        },
    )


def read_folder_text(folder: Path, taxonomy: Taxonomy) -> NDArray[Any] | None:
    """Read the text embeddings of actions [K, W] in a folder of annotations; None without any."""
    path = folder / _FILE
    if not path.exists():
        return None
    text = single(load_npy(path, _REMEDY))
    check_action_text(text, taxonomy, place=str(path), remedy=_REMEDY)
    return text


def single(array: NDArray[Any]) -> NDArray[Any]:
    """The array as float16 or float32; numbers that do not fit become infinite."""
    if array.dtype.kind != "f":
        return array
    with np.errstate(over="ignore"):
        return array.astype(np.float16 if array.dtype.itemsize == 2 else np.float32, copy=False)
