"""Start of a finetuning: a run, and the windows of other data sets in its ids."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from hashlib import sha256 as digest
from typing import Any

import numpy as np

from cefito.data.annotations import Taxonomy
from cefito.data.prepared import PreparedDataset
from cefito.data.vocabulary import extended_taxonomy, match_vocabulary
from cefito.data.windows import Selection, Windows, fitting_windows, joined_windows, split_videos
from cefito.errors import DataError
from cefito.files import sha256
from cefito.runs.folder import DatasetReference, StartReference, TrainedVideos
from cefito.runs.matching import check_observed
from cefito.runs.run import Run

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Start:
    """Start of a finetuning."""

    run: Run
    taxonomy: Taxonomy  # its vocabulary with the data set's new tasks and actions
    replay: PreparedDataset | None  # a data set whose windows are mixed in
    seen: TrainedVideos | None  # by the run; None if unknown

    @classmethod
    def make(cls, run: Run, dataset: PreparedDataset, replay: PreparedDataset | None) -> Start:
        """Check that a run can be finetuned on a data set."""
        taxonomy = run.taxonomy
        for given in (dataset, replay):
            if given is not None:
                check_observed(run, given)
                taxonomy = extended_taxonomy(taxonomy, given.taxonomy)
        return cls(run=run, taxonomy=taxonomy, replay=replay, seen=run.videos)

    def reference(self) -> StartReference:
        """Return the entry in the record of the new run."""
        known, files = self.run.taxonomy, sorted(self.run.folder.glob("*.safetensors"))
        hashes = "".join(f"{path.name} {sha256(path)}\n" for path in files)
        return StartReference(
            folder=str(self.run.folder.resolve()),
            dataset=self.run.info.dataset,
            seed=self.run.info.seed,
            weights=digest(hashes.encode()).hexdigest(),
            replay=None if self.replay is None else DatasetReference.of(self.replay),
            new_tasks=len(self.taxonomy.tasks) - len(known.tasks),
            new_actions=len(self.taxonomy.actions) - len(known.actions),
        )

    def windows(
        self, dataset: PreparedDataset, *, horizon: int, selection: Selection
    ) -> tuple[Windows, Windows]:
        """Return the windows to train on and to choose on, in the ids of the new run.

        Videos of a replayed data set are numbered after the data set's own.
        """
        train, val = self._roles(
            dataset, *fitting_windows(dataset, horizon=horizon, selection=selection)
        )
        train, val = self._translated(dataset, train), self._translated(dataset, val)
        if self.replay is None:
            return train, val
        here = {video.video_id for video in dataset.videos}
        fresh = [video.video_id not in here for video in self.replay.videos]
        parts = []
        more, choice = fitting_windows(self.replay, horizon=horizon, selection=selection)
        if self.seen is not None:  # nothing is chosen on videos that the run was trained on
            names = self.seen.learned(video.video_id for video in self.replay.videos)
            learned = names[choice.video]
            more, choice = joined_windows(more, _of(choice, learned)), _of(choice, ~learned)
        for own, part in ((train, more), (val, choice)):
            kept = part.subset(np.flatnonzero(np.array(fresh)[part.video]))
            further = replace(self._translated(self.replay, kept), action_text=None)
            further = replace(further, video=further.video + len(dataset.videos))
            parts.append(joined_windows(own, further))
        return parts[0], parts[1]

    def videos(
        self, dataset: PreparedDataset, train: Windows, val: Windows
    ) -> TrainedVideos | None:
        """Return all videos that the new run has seen, also before; None if those are unknown."""
        if self.seen is None:
            return None
        count = len(dataset.videos)
        found = TrainedVideos.of(
            dataset, _of(train, train.video < count), _of(val, val.video < count)
        )
        if self.replay is not None:
            parts = [
                replace(part, video=part.video - count)
                for part in (_of(train, train.video >= count), _of(val, val.video >= count))
            ]
            found = found.with_more(TrainedVideos.of(self.replay, *parts))
        return found.with_more(self.seen)

    def _translated(self, dataset: PreparedDataset, windows: Windows) -> Windows:
        match = match_vocabulary(self.taxonomy, dataset.taxonomy)
        found, left_out = match.translated(windows)
        if left_out:
            count = left_out.new_task + left_out.new_action
            raise DataError(
                f"{dataset.folder}: {count} windows have tasks, or actions within a task, whose "
                "names are ambiguous. Rename them."
            )
        text = dataset.action_text
        return found if text is None else replace(found, action_text=match.rows(text))

    def _roles(
        self, dataset: PreparedDataset, train: Windows, val: Windows
    ) -> tuple[Windows, Windows]:
        """Return windows to train and to choose on; the run was not trained on the latter.

        If the data set marks validation videos, those that the run was trained on are left out. If
        it does not, videos that the run knows keep their role, and a share of the new videos is
        held out for validation.
        """
        if self.seen is None or val.split != "val":
            return train, val
        ids = [video.video_id for video in dataset.videos]
        learned, known = self.seen.learned(ids), self.seen.known(ids)
        if not learned[val.video].any():
            return train, val
        annotated = any(video.split == "val" and video.in_protocol for video in dataset.videos)
        if annotated:
            chosen = ~learned[val.video]
            parts = train, _of(val, chosen)
        else:
            new = np.flatnonzero(~known).tolist()
            held = {new[place] for place in split_videos([dataset.videos[n] for n in new])["val"]}
            held |= set(np.flatnonzero(known & ~learned).tolist())
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
