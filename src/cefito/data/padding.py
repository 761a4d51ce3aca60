"""Padding as in PDPP, KEPP and MTID: short videos begin with copies of their first step.

The unified protocol drops these videos, so success rates on both are not comparable.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from cefito.data.prepared import PreparedDataset, video_folder_entry, write_dataset
from cefito.errors import DataError


def pad_dataset(dataset: PreparedDataset, target: Path, *, horizon: int) -> PreparedDataset:
    """Write a data set in which every video with steps has at least `horizon` ≥ 1 of them."""
    if horizon < 1:
        raise DataError(f"horizon {horizon}: expected a positive number of actions.")
    videos, rows = [], []
    for video, first in zip(dataset.videos, dataset.first_row.tolist(), strict=True):
        missing = max(0, horizon - len(video.steps)) if video.steps else 0
        steps = (*video.steps[:1] * missing, *video.steps)
        videos.append(replace(video, steps=steps, predicted={} if missing else video.predicted))
        rows += [first] * missing + list(range(first, first + len(video.steps)))
    index = np.array(rows, dtype=np.int64)
    return write_dataset(
        target,
        name=f"{dataset.name}-padded{horizon}",
        annotations=replace(dataset.annotations, videos=tuple(videos)),
        start=dataset.start[index],
        end=dataset.end[index],
        action_text=dataset.action_text,
        provenance={
            "padded_from": dataset.name,
            "fingerprint": dataset.fingerprint,
            "horizon": horizon,
            **{key: dataset.provenance[key] for key in ("observed",) if key in dataset.provenance},
            **video_folder_entry(dataset.video_folder, target),
        },
    )
