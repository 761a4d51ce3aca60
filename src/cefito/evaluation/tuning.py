"""Choose a method's few settings within a time budget, by folds over videos that are not test.

The preset is scored first, then single changes of it in the order that the method declares, then
combinations of those that helped. All are compared on the same windows, paired by video.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import process_time
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.data.folds import fold_view, known_videos, split_folds
from cefito.data.prepared import PreparedDataset
from cefito.data.windows import cut_windows, fitting_windows
from cefito.errors import CefitoError, ConfigError
from cefito.evaluation.records import ABSENT
from cefito.evaluation.score import successes
from cefito.files import FileRecord, value_digest
from cefito.locks import locked
from cefito.planners.base import Queries
from cefito.planners.methods import RunConfig, find_method
from cefito.progress import Progress, prefixed, silent
from cefito.runs.folder import TUNING_FILE, WindowSizes, window_sizes
from cefito.settings import Times, changed, flattened, validated
from cefito.training.trainer import TrainingContext

logger = logging.getLogger(__name__)

FOLDS = 3
_LEAST = float(np.log(1e-4))  # log-probability that less likely truths count as


class TunedChange(FileRecord):
    """A change of the preset that was tried; differences from the preset on the same windows."""

    settings: dict[str, Any]  # dotted keys
    folds: int  # that were scored
    score: float  # mean over their windows, in the unit of `Tuning.score`
    gain: float  # mean difference of the score
    error: float | None  # its standard error, with videos as units; None for a single video
    success_gain: float  # mean difference of the success rate, from 0 to 1
    stopped: Literal["worse", "budget"] | None = ABSENT  # before the last fold


class Tuning(FileRecord):
    """Content of a tuning.json: what was tried and chosen."""

    what: ClassVar[str] = "tuning"
    remedy: ClassVar[str] = "Remove it to tune again."
    sealed: ClassVar[bool] = True

    key: str  # digest of all that decides
    method: str  # trained in the folds
    seconds: float  # of processor time, used
    folds: int
    videos: int
    score: Literal["log-likelihood", "success rate"]
    chosen: dict[str, Any]  # changes of the preset; empty if it stays
    reason: str
    tried: list[TunedChange]  # the preset first


class _Fold(NamedTuple):
    """Scores of the windows of one fold."""

    video: NDArray[np.int64]  # [N]
    score: NDArray[np.float64]  # [N]
    success: NDArray[np.float64]  # 1 if the best plan is right, else 0 [N]
    likelihood: bool  # whether the score is a log-likelihood


@dataclass
class _Candidate:
    """A change of the preset, and the folds that it was scored on."""

    settings: dict[str, Any]
    folds: list[_Fold] = field(default_factory=list)
    stopped: Literal["worse", "budget"] | None = None

    def gain(self, other: _Candidate, name: str = "score") -> tuple[float, float | None]:
        """Return the mean difference over windows of common folds, and its standard error.

        Videos are the units: of a ratio of sums, √(V / (V − 1) Σ_v (s_v − mean n_v)²) / N. The
        error is None for a single video.
        """
        pairs = list(zip(self.folds, other.folds, strict=False))
        gains = np.concatenate([getattr(ours, name) - getattr(its, name) for ours, its in pairs])
        _, group = np.unique(np.concatenate([one.video for one, _ in pairs]), return_inverse=True)
        sums, counts = np.bincount(group, weights=gains), np.bincount(group)
        mean, videos = float(gains.mean()), len(sums)
        if videos < 2:
            return mean, None
        spread = ((sums - mean * counts) ** 2).sum() * videos / (videos - 1)
        return mean, float(np.sqrt(spread) / len(gains))

    def wins(self, other: _Candidate, errors: float = 1.0) -> bool:
        """Whether the score gains over `errors` standard errors, and success loses at most one."""
        gain, error = self.gain(other)
        success, success_error = self.gain(other, "success")
        if self.stopped is not None or error is None or success_error is None:
            return False
        return gain > errors * error and success >= -success_error

    def record(self, preset: _Candidate) -> TunedChange:
        """Return its record."""
        gain, error = self.gain(preset)
        return TunedChange(
            settings=self.settings,
            folds=len(self.folds),
            score=float(np.concatenate([fold.score for fold in self.folds]).mean()),
            gain=gain,
            error=error,
            success_gain=self.gain(preset, "success")[0],
            stopped=self.stopped,
        )


def tune(
    dataset: PreparedDataset,
    folder: Path | str,
    *,
    config: RunConfig,
    horizon: int,
    budget: float,
    shortest: int | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: Progress = silent,
) -> Tuning:
    """Choose settings of a method by folds over the videos of training and validation.

    The score of a window is log p(true sequence), at least log 10⁻⁴, or if the planner has no
    probabilities whether its best plan is right. A change wins if its mean gain over the preset
    exceeds (1 + z) standard errors, where z is the mean of the largest of as many standard normal
    numbers as changes were tried, and the success rate is not lower by more than one standard
    error. A change that is worse by more than one standard error is not scored on further folds. A
    combination must gain more than one standard error over what it extends. Networks have as many
    members as in the end: a change that only makes a single one steadier gains little by several.
    The time only decides how many folds are scored: the choice is a function of the scored ones.

    Args:
        dataset: An opened data set; its test videos are not used.
        folder: Folder that keeps the result (tuning.json), which is returned if it is of the same
            arguments.
        config: The method and its preset.
        horizon: T.
        budget: Seconds of processor time; no fold begins once they are used.
        shortest: As in `cefito.runs.train.train_run`.
        seed: Seed of folds and trainings.
        device: Where to train.
        progress: Shows progress.

    Raises:
        ConfigError: The method declares nothing to tune, or the folds are not possible.
        DataError: The videos give no windows.
    """
    key = value_digest(
        [dataset.fingerprint, config.method, config.sections, horizon, shortest, seed, budget]
    )
    if (kept := read_tuning(folder)) is not None and kept.key == key:
        return kept
    method = find_method(config.method)
    kind = find_method(method.tuned_by or method.name)
    own = {name: config.sections[name] for name in kind.settings.model_fields}
    base = RunConfig(kind.name, config.preset, validated(kind.settings, own, place="tuning"))
    changes = single_changes(base)
    if not changes:
        raise ConfigError(
            f"{config.method} declares no settings to tune. Train it as it is.", setting="tune"
        )
    videos, started = known_videos(dataset), process_time()
    sizes = window_sizes(kind.planner, horizon, shortest)
    every = cut_windows(fold_view(dataset, train=(), held=videos), **sizes, split="test").video
    search = _Search(
        base=base,
        views=[
            fold_view(dataset, train=sorted(set(videos) - set(held)), held=held)
            for held in split_folds(dataset, videos, FOLDS, seed=seed)
            if np.isin(every, held).any()
        ],
        sizes=sizes,
        seed=seed,
        device=device or "cpu",
        deadline=started + budget,
        progress=progress,
    )
    with locked(Path(folder), "a tuning"):
        preset, tried = search.run([_Candidate(settings) for settings in changes])
        threshold = 1 + luck(len(tried))
        able = [one for one in tried if one.wins(preset, threshold)]
        chosen = max(able, key=lambda one: one.gain(preset)[0], default=preset)
        likely = preset.folds[0].likelihood
        if preset.stopped is not None:
            done = f"{len(preset.folds)} of {len(search.views)} folds of the preset"
            reason = f"the time is enough only for {done}, so the preset stays"
        elif chosen is preset:
            reason = f"no change gains more than {threshold:.1f} standard errors, so the "
            reason += "preset stays"
        else:
            gain, error = chosen.gain(preset)
            unit = "log-likelihood a window" if likely else "success"
            reason = f"gains {gain:.3f} ± {error:.3f} {unit}, more than {threshold:.1f} standard "
            reason += "errors"
        result = Tuning(
            key=key,
            method=base.method,
            seconds=process_time() - started,
            folds=len(search.views),
            videos=len(videos),
            score="log-likelihood" if likely else "success rate",
            chosen=chosen.settings,
            reason=reason,
            tried=[one.record(preset) for one in (preset, *tried)],
        )
        result.write(Path(folder) / TUNING_FILE)
    return result


def read_tuning(folder: Path | str) -> Tuning | None:
    """Return the tuning that a folder keeps; None if there is none."""
    path = Path(folder) / TUNING_FILE
    return Tuning.read(path) if path.exists() else None


def tuned_config(config: RunConfig, chosen: Mapping[str, Any]) -> RunConfig:
    """Return a configuration with changed settings."""
    kind = type(config.settings)
    values = changed(config.sections, chosen)
    return replace(config, settings=validated(kind, values, place="tuning"))


@dataclass(frozen=True)
class _Search:
    """The search of a tuning."""

    base: RunConfig  # of the method that is trained
    views: Sequence[PreparedDataset]  # the data set as each fold sees it
    sizes: WindowSizes
    seed: int
    device: torch.device | str
    deadline: float  # of `process_time`
    progress: Progress

    def run(self, singles: Sequence[_Candidate]) -> tuple[_Candidate, list[_Candidate]]:
        """Score the preset and candidates until all are compared or the budget is used.

        Return the preset, and what was tried besides.
        """
        preset = _Candidate({})
        self._score(preset, None)
        if preset.stopped is not None:
            return preset, []
        tried = [one for one in singles if self._score(one, preset)]
        helped = [one for one in tried if one.wins(preset)]
        helped.sort(key=lambda one: -one.gain(preset)[0])
        best = preset
        for other in helped:
            both = _Candidate({**best.settings, **other.settings})
            if best is preset:
                best = other
            elif not set(other.settings) & set(best.settings) and self._score(both, best):
                tried.append(both)
                best = both if both.wins(best) else best
        return preset, tried

    def _score(self, candidate: _Candidate, reference: _Candidate | None) -> bool:
        """Score a candidate fold by fold; return whether any fold was scored."""
        config = tuned_config(self.base, candidate.settings)
        said = settings_text(candidate.settings)
        for number, view in enumerate(self.views, 1):
            if process_time() >= self.deadline:
                candidate.stopped = "budget"
                break
            name = f"tuning ({said}), fold {number} of {len(self.views)}"
            try:
                found = self._fold(config, view, prefixed(self.progress, name))
            except CefitoError as problem:
                if reference is None:
                    raise
                logger.warning("%s cannot be trained: %s", said, problem)
                return False
            candidate.folds.append(found)
            if reference is not None and number < len(self.views):
                gain, error = candidate.gain(reference)
                if error is not None and gain < -error:
                    candidate.stopped = "worse"
                    break
        return bool(candidate.folds)

    def _fold(self, config: RunConfig, view: PreparedDataset, progress: Progress) -> _Fold:
        """Return the scores of a fold."""
        train, val = fitting_windows(view, **self.sizes)
        windows = cut_windows(view, **self.sizes, split="test")
        context = TrainingContext(device=self.device, key=view.fingerprint, progress=progress)
        with torch.random.fork_rng(devices=[]):
            planner = (
                find_method(config.method)
                .planner.fit(train, val, settings=config.settings, seed=self.seed, context=context)
                .planner
            )
        queries = Queries.from_windows(windows)
        success = successes(planner.plan(queries, 1), windows).astype(np.float64)
        logs = planner.log_probabilities(queries, windows.actions)
        score = success if logs is None else np.maximum(logs, _LEAST)
        return _Fold(windows.video, score, success, likelihood=logs is not None)


def single_changes(config: RunConfig) -> list[dict[str, Any]]:
    """Return the single changes to try, without those that a configuration has already."""
    values = flattened(config.sections)
    found = []
    for key, value in type(config.settings).tunable:
        old = values[key]
        new = list(value) if isinstance(value, tuple) else value
        if isinstance(value, Times):
            new = old * float(value)
            new = max(1, round(new)) if isinstance(old, int) else new
        if new != old:
            found.append({key: new})
    return found


def settings_text(settings: Mapping[str, Any]) -> str:
    """Return changes in words, such as "chain.hidden = 512"."""
    return ", ".join(f"{key} = {value}" for key, value in settings.items()) or "preset"


def luck(count: int) -> float:
    """Return the mean of the largest of so many standard normal numbers (Blom, 1958)."""
    from scipy.special import ndtri

    return float(ndtri((count - 0.375) / (count + 0.25))) if count > 1 else 0.0
