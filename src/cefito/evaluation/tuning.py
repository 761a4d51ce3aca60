"""Choose a method's few settings within a time budget, by folds over videos that are not test.

The preset is scored first, then single changes of it in the order that the method declares, then
combinations of those that helped. All are compared on the same windows, paired by video.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.data.folds import fold_view, known_videos, split_folds
from cefito.data.prepared import PreparedDataset
from cefito.data.windows import cut_windows, fitting_windows
from cefito.errors import CefitoError, ConfigError, RunError
from cefito.evaluation.records import ABSENT
from cefito.evaluation.score import successes
from cefito.files import FileRecord, read_json, value_digest, write_json
from cefito.locks import locked
from cefito.planners.base import Queries
from cefito.planners.methods import RunConfig, find_method
from cefito.progress import Progress, prefixed, silent
from cefito.runs.folder import TUNING_FILE, TUNING_FOLDER, WindowSizes, window_sizes
from cefito.settings import Times, changed, flattened, validated
from cefito.training.trainer import TrainingContext

logger = logging.getLogger(__name__)

FOLDS = 3
_LEAST = float(np.log(1e-4))  # log-probability that less likely truths count as

Reals = NDArray[np.float64]


class TunedChange(FileRecord):
    """A change of the preset that was tried; differences from the preset on the same windows."""

    settings: dict[str, Any]  # dotted keys
    folds: int  # that were scored
    score: float  # mean over their windows, in the unit of `Tuning.score`
    success_rate: float  # per cent
    gain: float  # mean difference of the score
    error: float | None  # its standard error, with videos as units; None for a single video
    success_gain: float  # percentage points
    success_error: float | None
    stopped: Literal["worse", "budget"] | None = ABSENT  # before the last fold
    seconds: float  # processor time


class Tuning(FileRecord):
    """Content of a tuning.json: what was tried and chosen."""

    what: ClassVar[str] = "tuning"
    remedy: ClassVar[str] = "Remove it to tune again."
    sealed: ClassVar[bool] = True

    key: str  # digest of all that decides besides the time
    method: str  # trained in the folds
    budget: float  # seconds of processor time
    seconds: float  # of these, used
    folds: int
    videos: int
    windows: int  # of the folds that the preset was scored on
    score: Literal["log-likelihood", "success rate"]
    threshold: float  # standard errors by which a change must win
    chosen: dict[str, Any]  # changes of the preset; empty if it stays
    reason: str
    preset: TunedChange | None  # None if there was no time for any fold
    tried: list[TunedChange]


class _Fold(NamedTuple):
    """Scores of the windows of one fold."""

    video: NDArray[np.int64]  # [N]
    score: Reals  # [N]
    success: Reals  # [N]
    likelihood: bool  # whether the score is a log-likelihood
    seconds: float


@dataclass
class _Candidate:
    """A change of the preset, and the folds that it was scored on."""

    settings: dict[str, Any]
    folds: list[_Fold] = field(default_factory=list)
    stopped: Literal["worse", "budget"] | None = None

    def difference(self, other: _Candidate, name: str = "score") -> tuple[float, float | None]:
        """Return the mean over windows of the difference on common folds, and its error."""
        pairs = list(zip(self.folds, other.folds, strict=False))
        video = np.concatenate([ours.video for ours, _ in pairs])
        gains = np.concatenate([getattr(ours, name) - getattr(its, name) for ours, its in pairs])
        return _mean_and_error(gains, video)

    @property
    def likely(self) -> bool:
        """Whether its score is a log-likelihood."""
        return any(fold.likelihood for fold in self.folds)

    def mean(self, name: str) -> float:
        """Return the mean over all windows."""
        return float(np.concatenate([getattr(fold, name) for fold in self.folds]).mean())

    def record(self, preset: _Candidate) -> TunedChange:
        """Return its record."""
        gain, error = self.difference(preset)
        success, success_error = self.difference(preset, "success")
        return TunedChange(
            settings=self.settings,
            folds=len(self.folds),
            score=self.mean("score"),
            success_rate=100 * self.mean("success"),
            gain=gain,
            error=error,
            success_gain=100 * success,
            success_error=None if success_error is None else 100 * success_error,
            stopped=self.stopped,
            seconds=sum(fold.seconds for fold in self.folds),
        )


def tune(
    dataset: PreparedDataset,
    folder: Path | str,
    *,
    config: RunConfig,
    horizon: int,
    budget: float,
    shortest: int | None = None,
    folds: int = FOLDS,
    seed: int = 0,
    device: torch.device | str | None = None,
    progress: Progress = silent,
    clock: Callable[[], float] = time.process_time,
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
        folder: Folder that keeps the result (tuning.json) and, until then, scored folds, so that an
            interrupted tuning continues.
        config: The method and its preset.
        horizon: T.
        budget: Seconds of processor time; no training of a fold begins that would exceed it.
        shortest: As in `cefito.runs.train.train_run`.
        folds: Number of folds.
        seed: Seed of folds and trainings.
        device: Where to train.
        progress: Shows progress.
        clock: Time used so far, in seconds.

    Raises:
        ConfigError: The method declares nothing to tune, or the folds are not possible.
        DataError: The videos give no windows.
    """
    method = find_method(config.method)
    kind = find_method(method.tuned_by or method.name)
    own = {name: config.sections[name] for name in kind.settings.model_fields}
    base = RunConfig(kind.name, config.preset, validated(kind.settings, own, place="tuning"))
    changes = single_changes(base)
    if not changes:
        raise ConfigError(
            f"{config.method} declares no settings to tune. Train it as it is.", setting="tune"
        )
    videos = known_videos(dataset)
    search = _Search(
        base=base,
        views=[
            fold_view(dataset, train=sorted(set(videos) - set(held)), held=held)
            for held in split_folds(dataset, videos, folds, seed=seed)
        ],
        folder=Path(folder) / TUNING_FOLDER,
        sizes=window_sizes(kind.planner, horizon, shortest),
        seed=seed,
        device=device or "cpu",
        budget=budget,
        progress=progress,
        clock=clock,
    )
    with locked(search.folder, "a tuning"):
        preset, tried, chosen = search.run([_Candidate(settings) for settings in changes])
        threshold = 1 + luck(len(tried))
        result = Tuning(
            key=tuning_key(
                dataset.fingerprint,
                config,
                horizon=horizon,
                budget=budget,
                shortest=shortest,
                seed=seed,
            ),
            method=base.method,
            budget=budget,
            seconds=sum(search.spent),
            folds=len(search.views),
            videos=len(videos),
            windows=sum(len(fold.video) for fold in preset.folds),
            score="log-likelihood" if preset.likely else "success rate",
            threshold=threshold,
            chosen=chosen.settings,
            reason=_reason(preset, len(search.views), chosen, threshold),
            preset=preset.record(preset) if preset.folds else None,
            tried=[one.record(preset) for one in tried],
        )
        result.write(Path(folder) / TUNING_FILE)
    shutil.rmtree(search.folder, ignore_errors=True)
    return result


def read_tuning(folder: Path | str, key: str | None = None) -> Tuning | None:
    """Return the tuning that a folder keeps; None if there is none, or only of another key."""
    path = Path(folder) / TUNING_FILE
    if not path.exists():
        return None
    found = Tuning.read(path)
    return found if key in (None, found.key) else None


def tuning_key(
    fingerprint: str,
    config: RunConfig,
    *,
    horizon: int,
    budget: float,
    shortest: int | None = None,
    seed: int = 0,
) -> str:
    """Return the digest of the arguments of a tuning; see `Tuning.key`."""
    return value_digest(
        [fingerprint, config.method, config.sections, horizon, shortest, seed, budget]
    )


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
    folder: Path
    sizes: WindowSizes
    seed: int
    device: torch.device | str
    budget: float
    progress: Progress
    clock: Callable[[], float]
    spent: list[float] = field(default_factory=list)  # seconds of each fold that was scored

    def run(self, singles: Sequence[_Candidate]) -> tuple[_Candidate, list[_Candidate], _Candidate]:
        """Score candidates until all are compared or the budget is used.

        Returns:
            The preset, what was tried besides, and the best of all.
        """
        preset = _Candidate({})
        self._score(preset, None)
        tried: list[_Candidate] = []
        if preset.stopped is None:
            tried = [one for one in singles if self._score(one, preset)]
            helped = [one for one in tried if one.stopped is None and _wins(one, preset, 1.0)]
            helped.sort(key=lambda one: -one.difference(preset)[0])
            best = helped[0] if helped else preset
            for other in helped[1:]:
                if set(other.settings) & set(best.settings):
                    continue
                both = _Candidate({**best.settings, **other.settings})
                if self._score(both, best):
                    tried.append(both)
                    best = both if both.stopped is None and _wins(both, best, 1.0) else best
        threshold = 1 + luck(len(tried))
        able = [one for one in tried if one.stopped is None and _wins(one, preset, threshold)]
        return preset, tried, max(able, key=lambda one: one.difference(preset)[0], default=preset)

    def _score(self, candidate: _Candidate, reference: _Candidate | None) -> bool:
        """Score a candidate fold by fold; return whether any fold was scored."""
        config = tuned_config(self.base, candidate.settings)
        said = settings_text(candidate.settings)
        for fold, view in enumerate(self.views):
            if sum(self.spent) + self._expected(candidate, reference) > self.budget:
                candidate.stopped = "budget"
                break
            name = f"tuning ({said}), fold {fold + 1} of {len(self.views)}"
            try:
                found = self._fold(config, view, prefixed(self.progress, name))
            except CefitoError as problem:
                if reference is None:
                    raise
                logger.warning("%s cannot be trained: %s", said, problem)
                candidate.folds.clear()
                break
            if found is None:
                continue
            candidate.folds.append(found)
            self.spent.append(found.seconds)
            if reference is not None and fold + 1 < len(self.views):
                gain, error = candidate.difference(reference)
                if error is not None and gain < -error:
                    candidate.stopped = "worse"
                    break
        return bool(candidate.folds)

    def _expected(self, candidate: _Candidate, reference: _Candidate | None) -> float:
        """Return the seconds that the next fold will take; of the preset, all that remain."""
        known = candidate.folds or ([] if reference is None else reference.folds)
        mean = sum(fold.seconds for fold in known) / max(1, len(known))
        return mean * (len(self.views) - len(candidate.folds) if reference is None else 1)

    def _fold(self, config: RunConfig, view: PreparedDataset, progress: Progress) -> _Fold | None:
        """Return the scores of a fold, of its file if there is one; None without windows."""
        method, sizes = find_method(config.method), self.sizes
        held = [view.videos[index] for index in known_videos(view, test=True)]
        if not any(
            video.split == "test" and len(video.steps) >= (sizes["shortest"] or sizes["horizon"])
            for video in held
        ):
            return None
        key = value_digest(
            [view.fingerprint, config.method, config.sections, *sizes.values(), self.seed]
        )
        path = self.folder / f"{key[:24]}.json"
        if path.exists():
            return _Fold(*_read(path))
        started = self.clock()
        train, val = fitting_windows(view, **sizes)
        windows = cut_windows(view, **sizes, split="test")
        context = TrainingContext(device=self.device, key=view.fingerprint, progress=progress)
        with torch.random.fork_rng(devices=[]):
            planner = method.planner.fit(
                train, val, settings=config.settings, seed=self.seed, context=context
            ).planner
        queries = Queries.from_windows(windows)
        success = successes(planner.plan(queries, 1), windows).astype(np.float64)
        logs = planner.log_probabilities(queries, windows.actions)
        found = _Fold(
            video=windows.video,
            score=success if logs is None else np.maximum(logs, _LEAST),
            success=success,
            likelihood=logs is not None,
            seconds=self.clock() - started,
        )
        arrays = (found.video, found.score, found.success)
        write_json(path, [*(part.tolist() for part in arrays), *found[3:]])
        return found


def _read(path: Path) -> tuple[Any, ...]:
    video, score, success, *rest = read_json(path, "Remove it and repeat the command.", RunError)
    return np.array(video, dtype=np.int64), np.array(score), np.array(success), *rest


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


def _wins(one: _Candidate, other: _Candidate, errors: float) -> bool:
    """Whether the score is higher by so many standard errors and success no lower by one."""
    gain, error = one.difference(other)
    success, its = one.difference(other, "success")
    return error is not None and its is not None and gain > errors * error and success >= -its


def _mean_and_error(values: Reals, video: NDArray[np.int64]) -> tuple[float, float | None]:
    """Return the mean over windows and its standard error, with videos as units."""
    _, group = np.unique(video, return_inverse=True)
    sums, counts = np.bincount(group, weights=values), np.bincount(group)
    mean, units = float(values.mean()), len(sums)
    if units < 2:
        return mean, None
    # of a ratio of sums: √(V / (V − 1) Σ_v (s_v − mean n_v)²) / N
    spread = ((sums - mean * counts) ** 2).sum() * units / (units - 1)
    return mean, float(np.sqrt(spread) / len(values))


def _reason(preset: _Candidate, folds: int, chosen: _Candidate, threshold: float) -> str:
    """Return why settings were chosen, in words."""
    if preset.stopped is not None:
        done = f"{len(preset.folds)} of {folds} folds of the preset"
        return f"the time is enough only for {done}, so the preset stays"
    if chosen is preset:
        return f"no change gains more than {threshold:.1f} standard errors, so the preset stays"
    unit = "log-likelihood a window" if preset.likely else "success"
    gain, error = chosen.difference(preset)
    return f"gains {gain:.3f} ± {error:.3f} {unit}, more than {threshold:.1f} standard errors"
