"""Finetuning: a run goes on learning from another data set, into a run folder of its own.

Tasks and actions that the run does not know get ids behind those that it has (by name,
`cefito.data.vocabulary`), and its networks rows for them, drawn as in a fresh training. Training
begins with the learned weights and a new optimiser. The prior's counts go on; temperature and
weights of the objective are fitted on the new validation windows alone.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256 as digest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cefito.data.prepared import PreparedDataset
from cefito.data.taxonomy import Taxonomy
from cefito.data.vocabulary import extended_taxonomy, match_vocabulary
from cefito.data.windows import (
    Selection,
    Windows,
    fitting_windows,
    joined_windows,
    split_videos,
)
from cefito.errors import ConfigError, DataError
from cefito.files import sha256
from cefito.planners.base import check_finetuning
from cefito.planners.registry import find_method
from cefito.planners.runs.info import DatasetReference, StartReference
from cefito.planners.runs.matching import check_observed
from cefito.planners.runs.trained_videos import TrainedVideos, trained_videos
from cefito.planners.settings import RunConfig, precisions, run_config
from cefito.precision import with_precision
from cefito.progress import Progress, silent
from cefito.search.settings import SearchConfig
from cefito.settings import changed
from cefito.training.distributed import Processes
from cefito.training.settings import TrainingConfig

if TYPE_CHECKING:
    from cefito.planners.runs.run import Run

__all__ = ["Start", "finetune", "finetuning_config"]

logger = logging.getLogger(__name__)

_SHARE = 4  # of the epochs of a training, that a finetuning takes by default


def finetune(
    run: Run,
    dataset: PreparedDataset,
    out: Path,
    *,
    epochs: int | None = None,
    settings: Mapping[str, Any] | None = None,
    replay: PreparedDataset | None = None,
    seed: int = 0,
    selection: Selection = "held-out",
    device: torch.device | None = None,
    progress: Progress = silent,
    group: Processes | None = None,
) -> Run:
    """Train a run further on a data set, or go on where a killed finetuning stopped.

    It learns the training split of the data set alone: what the run knew of other tasks fades,
    unless their windows are mixed in by `replay`. The run itself stays as it is.

    Args:
        run: The run to begin with, of a method that can be finetuned.
        dataset: Its training windows are learned; weights and epochs are chosen on its validation
            windows. Where it has no validation split, videos that the run has seen keep their part.
        out: The new run folder.
        epochs: Epochs of each of its trainings; by default a quarter of those that the run was
            trained for, and as many as before where it was finetuned itself.
        settings: Settings of trainings and search to change, dotted keys.
        replay: A data set whose training and validation windows are mixed in: that of the run, so
            that it does not forget. Its videos that the other one holds as well are left out.
        seed: Seed of everything drawn.
        selection: Where epochs and weights are chosen.
        device: Where to train.
        progress: Shows progress.
        group: The processes that train together.

    Raises:
        ConfigError: The run's method cannot be finetuned, or settings that cannot be, or that would
            change its networks.
        DataError: A split gives no windows, or actions cannot be told apart by their names.
        RunError: Observations are not what the run learned from, or the folder holds something
            else.
    """
    from cefito.planners.runs.run import train_run

    check_finetuning(run.planner)
    config = finetuning_config(run, epochs=epochs, settings=settings or {})
    return train_run(
        dataset,
        out,
        config=config,
        horizon=run.horizon,
        seed=seed,
        method=run.method,
        selection=selection,
        device=device,
        progress=progress,
        group=group,
        start=Start.make(run, dataset, replay),
    )


def finetuning_config(run: Run, *, epochs: int | None, settings: Mapping[str, Any]) -> RunConfig:
    """The settings of a run, with the epochs of a finetuning and further changes.

    Args:
        run: The run.
        epochs: Epochs of each training; None for those by default, as `finetune` says.
        settings: Settings to change, dotted keys.

    Raises:
        ConfigError: Settings that cannot be, or that would change the run's networks.
    """
    if epochs is not None and epochs < 1:
        raise ConfigError(f"{epochs} epochs: expected at least 1.", setting="epochs")
    kind = find_method(run.method).settings
    # runs of before precisions could be chosen were trained in float32, on a CPU
    plain = changed(run_config({"preset": ""}, place="").model_dump(), precisions("float32"))
    old = run_config(with_precision(run.info.config, plain), place=str(run.folder))
    share = _SHARE if run.info.started_from is None else 1
    given = {
        key: epochs or max(1, math.ceil(value / share))
        for key, value in _flat(old.settings(kind).model_dump(mode="json"))
        if key.endswith(".optimiser.epochs")
    }
    values = changed(old.model_dump(mode="json"), {**given, **settings})
    config = run_config(values, place="settings of the finetuning")
    for name in kind.model_fields:
        section = getattr(config, name)
        if isinstance(section, TrainingConfig | SearchConfig):
            continue
        new = dict(_flat(section.model_dump(mode="json"), name))
        for key, value in _flat(getattr(old, name).model_dump(mode="json"), name):
            if new[key] != value:
                raise ConfigError(
                    f"setting '{key}': a finetuned run has the networks of the run that it begins "
                    f"with ({value!r} there). Change settings of trainings and search alone.",
                    setting=key,
                )
    return config


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        key = f"{prefix}.{name}" if prefix else name
        if isinstance(value, Mapping):
            yield from _flat(value, key)
        else:
            yield key, value


@dataclass(frozen=True)
class Start:
    """What a finetuning begins with.

    Attributes:
        run: The run.
        taxonomy: Its vocabulary with what the data set adds.
        replay: A data set whose windows are mixed in.
        seen: Videos that the run has seen; None where it does not say.
    """

    run: Run
    taxonomy: Taxonomy
    replay: PreparedDataset | None
    seen: TrainedVideos | None

    @classmethod
    def make(cls, run: Run, dataset: PreparedDataset, replay: PreparedDataset | None) -> Start:
        """See that a run can go on with a data set.

        Raises:
            DataError: Actions cannot be told apart by their names.
            RunError: Observations are not what the run learned from.
        """
        taxonomy = run.taxonomy
        for given in (dataset, replay):
            if given is not None:
                check_observed(run, given)
                taxonomy = extended_taxonomy(taxonomy, given.taxonomy)
        return cls(run=run, taxonomy=taxonomy, replay=replay, seen=trained_videos(run))

    def reference(self) -> StartReference:
        """For the record of the new run."""
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
        """The windows to train on and to choose on, in the ids of the new run.

        Videos of a replayed data set are numbered behind those of the data set.

        Raises:
            DataError: There are none of either.
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
        for own, part in zip(
            (train, val),
            fitting_windows(self.replay, horizon=horizon, selection=selection),
            strict=True,
        ):
            kept = part.subset(np.flatnonzero(np.array(fresh)[part.video]))
            further = replace(self._translated(self.replay, kept), action_text=None)
            further = replace(further, video=further.video + len(dataset.videos))
            parts.append(joined_windows(own, further))
        return parts[0], parts[1]

    def videos(self, dataset: PreparedDataset, train: Windows, val: Windows) -> TrainedVideos:
        """All videos that the new run has seen, with those of the run that it began with."""
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
        return found if self.seen is None else found.with_more(self.seen)

    def _translated(self, dataset: PreparedDataset, windows: Windows) -> Windows:
        match = match_vocabulary(self.taxonomy, dataset.taxonomy)
        found, left_out = match.translated(windows)
        if left_out:
            raise DataError(
                f"{dataset.folder}: {left_out.new_task + left_out.new_action} windows have actions "
                "that cannot be told apart by their names within a task. Rename them."
            )
        text = dataset.action_text
        return found if text is None else replace(found, action_text=match.rows(text))

    def _roles(
        self, dataset: PreparedDataset, train: Windows, val: Windows
    ) -> tuple[Windows, Windows]:
        """Videos that the run was trained on are not chosen on.

        Where validation videos are held out from training, those that the run has seen keep their
        part, and others are held out among the new ones alone. Annotated ones are left out.
        """
        if self.seen is None or val.split != "val":
            return train, val
        known = {*self.seen.train, *self.seen.val}
        learned = np.array([video.video_id in self.seen.train for video in dataset.videos])
        if not learned[val.video].any():
            return train, val
        annotated = any(video.split == "val" and video.in_protocol for video in dataset.videos)
        if annotated:
            chosen = ~learned[val.video]
            parts = train, _of(val, chosen)
        else:
            new = [
                number for number, video in enumerate(dataset.videos) if video.video_id not in known
            ]
            held = {new[place] for place in split_videos([dataset.videos[n] for n in new])["val"]}
            held |= {
                number
                for number, video in enumerate(dataset.videos)
                if video.video_id in self.seen.val
            }
            both = joined_windows(train, val)
            chosen = np.isin(both.video, sorted(held))
            parts = _of(both, ~chosen), replace(_of(both, chosen), split="val")
        if len(parts[0]) and len(parts[1]):
            return parts
        logger.warning(
            "%s: all its validation videos are such that the run was trained on; what is chosen on "
            "them is chosen too well",
            dataset.folder,
        )
        return train, val


def _of(windows: Windows, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> Windows:
    return windows.subset(np.flatnonzero(chosen))
