"""A copy of a data set with other text embeddings of its actions' names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.data.prepared import PreparedDataset, video_folder_entry, write_dataset
from cefito.files import check_new

__all__ = ["Embed", "with_action_text"]

Embed = Callable[[Sequence[str]], tuple[NDArray[np.float32], Mapping[str, Any]]]
"""Maps names of actions to their embeddings [K, W] and a record of the model that made them."""


def with_action_text(source: PreparedDataset, target: Path, embed: Embed) -> PreparedDataset:
    """Write a copy of a data set with other action text, named after its model and layer."""
    check_new(target)
    text, made_with = embed([action.name for action in source.taxonomy.actions])
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
