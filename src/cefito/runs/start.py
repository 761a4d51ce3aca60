"""Start of a finetuning: a run, and another data set in its ids."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from hashlib import sha256 as digest
from typing import Any

import numpy as np

from cefito.data.prepared import PreparedDataset
from cefito.data.windows import Windows, joined_windows, split_videos
from cefito.files import sha256
from cefito.parts.folder import StartReference, TrainedVideos
from cefito.parts.matching import check_observed, extended_taxonomy, match_vocabulary
from cefito.runs.run import Run

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Start:
    """Start of a finetuning."""

    run: Run
    dataset: PreparedDataset  # in the run's ids, behind which those of new tasks and actions follow

    @classmethod
    def make(cls, run: Run, dataset: PreparedDataset) -> Start:
        """Check that a run can be finetuned on a data set, whose names must not be ambiguous."""
        check_observed(run, dataset)
        taxonomy = extended_taxonomy(run.taxonomy, dataset.taxonomy)
        return cls(run, match_vocabulary(taxonomy, dataset.taxonomy).translated_dataset(dataset))

    def reference(self) -> StartReference:
        """Return the entry in the record of the new run."""
        taxonomy, files = self.run.taxonomy, sorted(self.run.folder.glob("*.safetensors"))
        hashes = "".join(f"{path.name} {sha256(path)}\n" for path in files)
        return StartReference(
            folder=str(self.run.folder.resolve()),
            dataset=self.run.info.dataset,
            seed=self.run.info.seed,
            weights=digest(hashes.encode()).hexdigest(),
            new_tasks=len(self.dataset.taxonomy.tasks) - len(taxonomy.tasks),
            new_actions=len(self.dataset.taxonomy.actions) - len(taxonomy.actions),
        )

    def videos(
        self, dataset: PreparedDataset, train: Windows, val: Windows
    ) -> TrainedVideos | None:
        """Return all videos that the new run has seen, also before; None if those are unknown.

        Args:
            dataset: Data set of the finetuning.
            train: Its training windows.
            val: Its validation windows.
        """
        seen = self.run.videos
        return None if seen is None else TrainedVideos.of(dataset, train, val).with_more(seen)

    def roles(self, train: Windows, val: Windows) -> tuple[Windows, Windows]:
        """Return windows to train on, and windows to choose epochs on that the run has not learned.

        If the data set marks validation videos, those that the run was trained on are left out. If
        it does not, videos that the run knows keep their role, and a share of the new videos is
        held out for validation.
        """
        seen, dataset = self.run.videos, self.dataset
        if seen is None or val.split != "val":
            return train, val
        ids = [video.video_id for video in dataset.videos]
        learned, is_known = seen.learned(ids), seen.known(ids)
        if not learned[val.video].any():
            return train, val
        annotated = any(video.split == "val" and video.in_protocol for video in dataset.videos)
        if annotated:
            chosen = ~learned[val.video]
            parts = train, _of(val, chosen)
        else:
            new = np.flatnonzero(~is_known).tolist()
            held = {new[place] for place in split_videos([dataset.videos[n] for n in new])["val"]}
            held |= set(np.flatnonzero(is_known & ~learned).tolist())
            both = joined_windows(train, val)
            chosen = np.isin(both.video, sorted(held))
            parts = _of(both, ~chosen), replace(_of(both, chosen), split="val")
        if len(parts[0]) and len(parts[1]):
            return parts
        logger.warning(
            "%s: the run was trained on all its validation videos; choices made on them are too "
            "optimistic",
            dataset.folder,
        )
        return train, val


def _of(windows: Windows, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> Windows:
    return windows.subset(np.flatnonzero(chosen))
