"""A data set written anew with other text embeddings of its actions' names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.data.prepared import PreparedDataset, write_dataset
from cefito.data.video_folder import video_folder, video_folder_entry
from cefito.errors import DataError

__all__ = ["Embed", "with_action_text"]

Embed = Callable[[Sequence[str]], tuple[NDArray[np.float32], Mapping[str, Any]]]
"""Gives names of actions their embeddings [K, W], and says what these were made with."""


def with_action_text(source: PreparedDataset, target: Path, embed: Embed) -> PreparedDataset:
    """Write a data set with other action text.

    Its name tells model and layer of the text, instead of those it had before.

    Args:
        source: The data set.
        target: Folder to write, which must not hold anything yet.
        embed: What embeds the names of all actions, such as `cefito.encoders.embed_actions`; not
            called where the folder is taken.

    Raises:
        DataError: The folder is taken, the embeddings do not fit, or the disk is full.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DataError(f"{target}: exists already. Choose another folder or remove it first.")
    text, made_with = embed([action.name for action in source.taxonomy.actions])
    suffix = "-" + made_with["model"].rsplit("/", 1)[-1]
    if made_with["layer"] != "as given":
        suffix += f"-{made_with['layer']}"
    before = source.provenance.get("action_text")
    name = source.name
    if isinstance(before, dict):
        name = name.removesuffix(before.get("suffix", ""))
    record = {
        **made_with,
        "suffix": suffix,
        "dataset": source.name,
        "fingerprint": source.fingerprint,
        "cefito": version("cefito"),
    }
    return write_dataset(
        target,
        name=name + suffix,
        annotations=source.annotations,
        start=source.start,
        end=source.end,
        action_text=text,
        provenance={
            **source.provenance,
            **video_folder_entry(video_folder(source), target),
            "action_text": record,
        },
    )
