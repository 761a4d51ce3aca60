"""Match a run with any data set: check that they fit, and translate windows to the run's ids.

Tasks and actions are found by name (`cefito.data.vocabulary`). Observations must have as many
features as the run was trained on, made in the same way as far as both records say.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cefito.data.prepared import PreparedDataset, name_and_fingerprint
from cefito.data.vocabulary import LeftOut, VocabularyMatch, match_vocabulary
from cefito.data.windows import Windows, cut_windows
from cefito.errors import RunError
from cefito.markup import counted, listed, shortened
from cefito.parts.folder import DatasetReference, window_sizes
from cefito.parts.opened import OpenedRun
from cefito.settings import Record

logger = logging.getLogger(__name__)

_few = partial(listed, most=3)
_KNOWN = "%s was trained on videos of this split, too; scores on them are too good"
_UNKNOWN = (
    "%s does not say which videos it was trained on; if these are among them, scores are too good"
)
# Entries of an encoder's record that determine the features; its name may be a folder.
DECIDING = ("weights", "layer", "frames", "rate", "size", "sensors")


class DatasetName(Record):
    """Identity of a data set."""

    name: str
    fingerprint: str

    @classmethod
    def of(cls, dataset: PreparedDataset | DatasetReference) -> DatasetName:
        """Identify a data set."""
        return cls(name=dataset.name, fingerprint=dataset.fingerprint)


class OtherDataset(Record):
    """Facts for scores on a data set that the run was not trained on."""

    dataset: DatasetName
    trained_on: DatasetName | None  # None for imported weights
    new_task: int  # windows left out because their task is new to the run
    new_action: int  # windows left out because an action is new to their known task
    tasks: tuple[str, ...]  # names of the data set's tasks that are new to the run
    actions: tuple[str, ...]  # actions of known tasks that are new to the run, as "task: action"
    known_videos: int | None  # scored videos that the run was trained or chosen on; None if unknown
    known_windows: int | None


@dataclass(frozen=True)
class DatasetMatch:
    """A run and a data set with observations of the same kind."""

    run: OpenedRun
    dataset: PreparedDataset
    vocabulary: VocabularyMatch  # its tasks and actions in the run's ids

    @property
    def own(self) -> bool:
        """Whether the run was trained on this data set."""
        return self.dataset.fingerprint == self.run.info.dataset.fingerprint

    def windows(self, split: str) -> tuple[Windows, OtherDataset | None]:
        """Return the windows of a split in the run's ids, and facts about another data set.

        Windows with tasks or actions that are new to the run are left out. The facts are also
        logged as warnings; they are None for the run's own data set.
        """
        run, left_out = self.run, None
        sizes = window_sizes(run.planner, run.horizon, run.shortest)
        windows = cut_windows(self.dataset, **sizes, split=split)
        if not self.vocabulary.same:
            windows, left_out = self.vocabulary.translated(windows)
        if not len(windows):
            raise RunError(
                f"{self.dataset.folder}: {self.run.place} knows none of the windows of split "
                f"'{split}'{_unknown(self.vocabulary)}. Give another data set, or teach the run "
                "this one by cefito finetune."
            )
        if self.own:
            learned = split != "train" and run.trained_on(self.dataset, windows.video)
            if learned is not False:
                logger.warning(_KNOWN if learned else _UNKNOWN, run.place)
            return windows, None
        other = self._other(windows, left_out or LeftOut())
        self._warn(other, len(windows), split)
        return windows, other

    def _other(self, windows: Windows, left_out: LeftOut) -> OtherDataset:
        run = self.run
        trained, is_known = run.info.dataset, None
        videos, counts = np.unique(windows.video, return_counts=True)
        if run.videos is not None:
            is_known = run.videos.known(self.dataset.videos[video].video_id for video in videos)
        return OtherDataset(
            dataset=DatasetName.of(self.dataset),
            trained_on=DatasetName.of(trained) if trained.fingerprint else None,
            new_task=left_out.new_task,
            new_action=left_out.new_action,
            tasks=tuple(task.name for task in self.vocabulary.new_tasks),
            actions=tuple(
                f"{task.name}: {action.name}" for task, action in self.vocabulary.new_actions
            ),
            known_videos=None if is_known is None else int(is_known.sum()),
            known_windows=None if is_known is None else int(counts[is_known].sum()),
        )

    def _warn(self, other: OtherDataset, count: int, split: str) -> None:
        place = self.dataset.folder
        if other.trained_on is not None:
            logger.warning(
                "%s ('%s', fingerprint %s) is not the data set that %s was trained on ('%s', %s)",
                place,
                other.dataset.name,
                other.dataset.fingerprint[:12],
                self.run.place,
                other.trained_on.name,
                other.trained_on.fingerprint[:12],
            )
        left_out = other.new_task + other.new_action
        if left_out:
            logger.warning(
                "%s: %d of %d windows of split '%s' are left out, %d of tasks and %d with actions "
                "that the run does not know%s",
                place,
                left_out,
                count + left_out,
                split,
                other.new_task,
                other.new_action,
                _unknown(self.vocabulary),
            )
        if other.known_videos is None:
            logger.warning(_UNKNOWN, self.run.place)
        elif other.known_videos:
            logger.warning(
                "%s: the run has seen %d of the videos scored in its training (%d of %d windows), "
                "so that scores are too good",
                place,
                other.known_videos,
                other.known_windows,
                count,
            )


def match_dataset(run: OpenedRun, dataset: PreparedDataset) -> DatasetMatch:
    """Match a run with a data set; a RunError lists all differences if it cannot be used on it."""
    vocabulary = match_vocabulary(run.taxonomy, dataset.taxonomy)
    check_observed(run, dataset, vocabulary)
    if len(vocabulary.new_tasks) == len(dataset.taxonomy.tasks):
        raise RunError(
            f"{dataset.folder}: does not agree with what {run.place} was trained on"
            f"{_unknown(vocabulary)}. Give another data set, or teach the run this one by cefito "
            "finetune.",
            setting="dataset",
        )
    return DatasetMatch(run=run, dataset=dataset, vocabulary=vocabulary)


def named_dataset(run: OpenedRun, path: Path | None) -> DatasetName | None:
    """Identify the data set at a path; None if it is the run's own, or no path is given."""
    if path is None:
        return None
    name, fingerprint = name_and_fingerprint(path)
    if fingerprint == run.info.dataset.fingerprint:
        return None
    return DatasetName(name=name, fingerprint=fingerprint)


def check_observed(
    run: OpenedRun, dataset: PreparedDataset, vocabulary: VocabularyMatch | None = None
) -> None:
    """Refuse observations of another kind (RunError); warn if unknown.

    Args:
        run: The run.
        dataset: The data set of the observations.
        vocabulary: Translation of its ids to those of the run, if they differ.
    """
    if dataset.fingerprint == run.info.dataset.fingerprint:
        return
    wrong = []
    width, expected = dataset.observation_dim, run.planner.observation_dim
    if width != expected:
        wrong.append(f"observations have {width} features; this run was trained on {expected}")
    trained, made = run.info.dataset.made(), DatasetReference.of(dataset).made()
    wrong += _differences(made, trained)
    if wrong:
        raise RunError(
            f"{dataset.folder}: does not agree with what {run.place} was trained on: "
            f"{'; '.join(wrong)}{'' if vocabulary is None else _unknown(vocabulary, start='; ')}. "
            "Prepare the data set like the run's.",
            setting="dataset",
        )
    if not made or not trained:
        logger.warning(
            "%s does not say how its observations were made; scores and plans make sense only if "
            "%s were made in the same way",
            dataset.folder if not made else run.place,
            "the run's" if not made else f"the observations of {dataset.folder}",
        )


def _differences(made: Mapping[str, Any], trained: Mapping[str, Any]) -> list[str]:
    """Differences between two records of how observations were made, as far as both say."""
    differences = []
    if made and trained and ("simulation" in made) != ("simulation" in trained):
        simulated, from_videos = ("simulated", "from videos")
        return [
            f"observations are {simulated if 'simulation' in made else from_videos} instead of "
            f"{from_videos if 'simulation' in made else simulated}"
        ]
    for section, what in (
        ("", ""),
        ("features", "features of "),
        ("simulation", "simulation with "),
    ):
        ours, theirs = (
            value if not section else value.get(section) or {} for value in (trained, made)
        )
        names = {"": ("seconds",), "features": DECIDING}.get(section, sorted({*ours, *theirs}))
        if not ours or not theirs:
            continue
        if section == "features" and ("weights" not in ours or "weights" not in theirs):
            names = ("model", *names)
        differences += [
            f"{what}{name} = {shortened(repr(theirs.get(name)), 40)} instead of "
            f"{shortened(repr(ours.get(name)), 40)}"
            for name in names
            if (name in ours or name in theirs) and ours.get(name) != theirs.get(name)
        ]
    return differences


def _unknown(vocabulary: VocabularyMatch, start: str = ": ") -> str:
    """Tasks and actions that are new to the run, a few by name; empty if there are none."""
    tasks, actions = vocabulary.new_tasks, vocabulary.new_actions
    parts = []
    if tasks:
        names = [f"'{task.name}'" for task in tasks]
        parts.append(
            f"new to the run: {len(tasks)} of its {counted(len(vocabulary.other.tasks), 'task')} "
            f"({_few(names)})"
        )
    if actions:
        names = [f"'{action.name}' of '{task.name}'" for task, action in actions]
        parts.append(f"new to their tasks: {counted(len(actions), 'action')} ({_few(names)})")
    return start + "; ".join(parts) if parts else ""
