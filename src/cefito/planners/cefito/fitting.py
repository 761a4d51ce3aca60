"""Fitting the weights of the objective on validation windows.

The calibrated chain has weight 1. The prior, and then the energy, are added only if they improve
plans of held-out videos; the score is then divided by a temperature that calibrates probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.data.windows import Windows, video_folds
from cefito.planners.base import Evidence, Queries
from cefito.planners.cefito.hypotheses import NoField
from cefito.planners.cefito.logistic import Comparison, choose_terms, fit_weights
from cefito.planners.cefito.objective import (
    OBJECTIVES,
    UNFITTED,
    ObjectiveFit,
    Weights,
)
from cefito.planners.chain.model import ChainModel
from cefito.planners.shared.task_model import confident_temperature
from cefito.progress import Advance, Progress, silent
from cefito.search.base import Field
from cefito.search.prior import NGramPrior

CANDIDATES = 64
"""Number of candidates of a window: its likeliest sequences under the chain, over all tasks."""
MOST_TASKS = 5
"""Upper bound of the number of tasks to search."""
_NO_ENERGY = 1e6  # replaces the infinite energies of a diverged field
_BATCH = 1024  # sequences whose energies are computed at once, within the caches of a CPU
_JOINT, _PRIOR, _ENERGY = 0, 1, 2  # columns of the features
_FOLDS = 5
_ROUNDING = 1e-9


@dataclass(frozen=True)
class _Candidates:
    """The candidates of N windows."""

    # log q(task, sequence) under the chain, log p(sequence) under the prior, and −energy, [N, n, 3]
    features: NDArray[np.float64]
    log_task: NDArray[np.float64]  # log-probability of each candidate's task [N, n]
    correct: NDArray[np.float64]  # share of correct actions, 0 under a wrong task, [N, n]
    possible: NDArray[np.bool_]  # which candidates are possible sequences [N, n]
    rank: NDArray[np.int64]  # rank of each candidate's task among the window's likeliest [N, n]
    truth: NDArray[np.int64]  # candidate that is the true sequence, −1 if there is none [N]
    videos: NDArray[np.int64]  # video of each window [N]

    def subset(self, rows: NDArray[np.bool_]) -> _Candidates:
        """Return the candidates of some windows."""
        return _Candidates(**{name: value[rows] for name, value in vars(self).items()})

    def offsets(self) -> list[NDArray[np.float64]]:
        """Return log q of each window's possible candidates."""
        return [column[:, 0] for column in self.columns([_JOINT])]

    def fit(self, chosen: Sequence[int]) -> NDArray[np.float64]:
        """Fit the weights of some features; the chain has weight 1."""
        if not chosen:
            return np.zeros(0)
        features, truth = self.columns(chosen), self.truth.tolist()
        return fit_weights(features, truth, offsets=self.offsets()).weights

    def held_out(self, chosen: Sequence[int]) -> NDArray[np.float64]:
        """Return scores under weights fitted on other videos, −∞ if impossible, [N, n]."""
        folds = video_folds(self.videos, _FOLDS)
        values = np.full(self.possible.shape, -np.inf)
        for fold in range(_FOLDS):
            held = folds == fold
            part, weights = self.features[held], self.subset(~held).fit(chosen)
            values[held] = part[:, :, _JOINT] + part[:, :, list(chosen)] @ weights
        return np.where(self.possible, values, -np.inf)

    def correct_at(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the share of correct actions of one candidate of each window [N]."""
        return np.take_along_axis(self.correct, places[:, None], axis=1)[:, 0]

    def columns(self, chosen: Sequence[int]) -> list[NDArray[np.float64]]:
        """Return some features of each window's possible candidates."""
        return [
            row[possible][:, list(chosen)]
            for row, possible in zip(self.features, self.possible, strict=True)
        ]


def fit_objective(
    chain: ChainModel,
    field: Field | NoField,
    prior: NGramPrior,
    val: Windows,
    *,
    windows: int,  # size of the sample of validation windows; 0 for all
    progress: Progress = silent,
) -> ObjectiveFit:
    """Fit the weights of all objectives, and choose the number of tasks.

    The candidates of a window are the likeliest sequences under the chain over all tasks. The
    weights are fitted by a conditional logistic model of the truth among them; windows without the
    truth are ignored. The number of tasks maximises the success rate.
    """
    sample = val.sample(windows or None, seed=0)
    with progress("fitting the objective", total=len(sample)) as advance:
        candidates = _candidates(chain, field, prior, sample, advance)
        return _fit_to(candidates, energy=not isinstance(field, NoField))


def _fit_to(candidates: _Candidates, *, energy: bool) -> ObjectiveFit:
    """Fit the weights and the number of tasks on windows' candidates."""
    truth, videos = candidates.truth.tolist(), candidates.videos.tolist()
    offsets = candidates.offsets()
    prior_alone = choose_terms(
        candidates.columns([_PRIOR]), truth, videos=videos, earn=[0], offsets=offsets
    )
    base = [_PRIOR] if _earned(candidates, prior_alone, [], [_PRIOR]) else []
    guide = _fitted(candidates, base)
    if not energy:
        weights = dict.fromkeys(OBJECTIVES, Weights()) | {"fitted": guide}
        return ObjectiveFit(weights=weights, guide=guide, tasks=_best_tasks(candidates, guide))
    full = choose_terms(
        candidates.columns([*base, _ENERGY]),
        truth,
        videos=videos,
        earn=[len(base)],
        offsets=offsets,
    )
    kept = _earned(candidates, full, base, [_ENERGY])
    chosen = [*base, _ENERGY] if kept else base
    fitted = _fitted(candidates, chosen)
    return ObjectiveFit(
        weights={
            "energy": _energy_alone(candidates, [_ENERGY]),
            "prior": _energy_alone(candidates, [_ENERGY, _PRIOR]),
            "fitted": fitted,
        },
        guide=guide,
        tasks=_best_tasks(candidates, fitted),
        evidence=_evidence(full, place=len(base), kept=kept),
    )


def _fitted(candidates: _Candidates, columns: Sequence[int]) -> Weights:
    """Fit the weights of some features on all windows; the chain has weight 1."""
    if not columns:
        return UNFITTED.guide
    found = dict(zip(columns, candidates.fit(columns).tolist(), strict=True))
    weights = replace(UNFITTED.guide, energy=found.get(_ENERGY, 0.0), prior=found.get(_PRIOR, 0.0))
    return weights.heated(_temperature(candidates, columns))


def _temperature(candidates: _Candidates, columns: Sequence[int]) -> float:
    """Return the temperature that calibrates the probabilities of the best candidates."""
    candidates = candidates.subset(np.asarray(candidates.possible.any(axis=1)))
    scores = candidates.held_out(columns)
    best = scores.argmax(axis=1)[:, None]
    joint = np.where(candidates.possible, candidates.features[:, :, _JOINT], -np.inf)
    log_mass = np.minimum(np.logaddexp.reduce(joint, axis=1), 0.0)

    def sure(temperature: float) -> NDArray[np.float64]:
        heated = scores / temperature  # p(best) = M · exp(s / τ) / Σ exp(s / τ), [N]
        top = np.take_along_axis(heated, best, axis=1)[:, 0]
        return np.asarray(np.exp(log_mass + top - np.logaddexp.reduce(heated, axis=1)))

    return confident_temperature(
        sure, candidates.correct_at(best[:, 0]) == 1, videos=len(np.unique(candidates.videos))
    )


def _earned(
    candidates: _Candidates, comparison: Comparison, simple: Sequence[int], more: Sequence[int]
) -> bool:
    """Whether further terms improve held-out windows.

    The likelihood of the truth must rise by more than its error, and the success rate or the mean
    accuracy of the best candidate must rise while neither falls: the likelihood alone can also rise
    by lower confidence.
    """
    if not comparison.kept.all():
        return False
    simple_share, rich_share = (
        candidates.correct_at(candidates.held_out(columns).argmax(axis=1))
        for columns in (simple, [*simple, *more])
    )
    success = int((rich_share == 1).sum()) - int((simple_share == 1).sum())
    accuracy = float((rich_share - simple_share).sum())
    return bool(min(success, accuracy) >= -_ROUNDING and max(success, accuracy) > _ROUNDING)


def _candidates(
    chain: ChainModel,
    field: Field | NoField,
    prior: NGramPrior,
    sample: Windows,
    advance: Advance,
) -> _Candidates:
    scores = chain.scores(Queries.from_windows(sample))
    states = scores.states
    best, values = scores.best(CANDIDATES)
    joint = (values - scores.log_partition()[:, None]).double().cpu().numpy()
    actions = states.actions[best].cpu().numpy()
    tasks = states.tasks[best[:, :, 0]].cpu().numpy()
    log_tasks = scores.log_tasks().double().cpu().numpy()
    ranks = np.argsort(np.argsort(-log_tasks, axis=1, kind="stable"), axis=1)
    possible = np.isfinite(joint)
    correct = (actions == sample.actions[:, None]).mean(axis=2)
    correct = np.where(tasks == sample.tasks[:, None], correct, 0.0) * possible
    hit = correct == 1
    flat = actions.reshape(-1, actions.shape[2])
    log_prior = prior.log_probability(flat, tasks.ravel()).reshape(tasks.shape)
    energies = np.zeros(actions.shape[:2])
    if not isinstance(field, NoField):
        energies = _energies(field, sample, actions, advance)
    features = np.stack([joint, log_prior, -energies], axis=2)
    return _Candidates(
        features=np.where(possible[:, :, None], features, 0.0),
        log_task=np.take_along_axis(log_tasks, tasks, axis=1),
        correct=correct,
        possible=possible,
        rank=np.take_along_axis(ranks, tasks, axis=1),
        truth=np.where(hit.any(axis=1), hit.argmax(axis=1), -1),
        videos=sample.video,
    )


def _energies(
    field: Field, sample: Windows, actions: NDArray[np.int64], advance: Advance
) -> NDArray[np.float64]:
    """Return the energies [N, n] of the candidates [N, n, T] of windows."""
    count = actions.shape[1]
    together = max(1, _BATCH // max(count, 1))  # windows
    energies = np.empty(actions.shape[:2])
    with torch.inference_mode():
        for first in range(0, len(sample), together):
            rows = slice(first, first + together)
            sequences = actions[rows].reshape(-1, actions.shape[2])
            ends = (np.repeat(part[rows], count, axis=0) for part in (sample.initial, sample.goal))
            tensors = (torch.from_numpy(part).to(field.device) for part in (*ends, sequences))
            found = field.energy(*tensors).double().cpu().numpy()
            energies[rows] = found.reshape(-1, count)
            advance(len(found) / max(count, 1))
    return np.where(np.isfinite(energies), energies, _NO_ENERGY)


def _energy_alone(candidates: _Candidates, columns: Sequence[int]) -> Weights:
    """Fit weights of the energy, perhaps of the prior, and of the task, in units of the energy."""
    features = [
        np.concatenate([row, log_task[possible][:, None]], axis=1)
        for row, log_task, possible in zip(
            candidates.columns(columns), candidates.log_task, candidates.possible, strict=True
        )
    ]
    values = fit_weights(features, candidates.truth.tolist()).weights
    if not values[0] > 0:
        return Weights()
    scaled = (values / values[0]).tolist()
    return Weights(energy=1.0, prior=scaled[1] if len(scaled) > 2 else 0.0, task=scaled[-1])


def _best_tasks(candidates: _Candidates, weights: Weights) -> int:
    """Return the number of tasks of the highest success rate, then of the highest accuracy."""
    vector = np.zeros(3)
    vector[[_JOINT, _PRIOR, _ENERGY]] = weights.chain, weights.prior, weights.energy
    scores = np.where(candidates.possible, candidates.features @ vector, -np.inf)
    outcomes = []
    for tasks in range(1, MOST_TASKS + 1):
        best = np.where(candidates.rank < tasks, scores, -np.inf).argmax(axis=1)
        chosen = candidates.correct_at(best)
        outcomes.append((float((chosen == 1).mean()), float(chosen.mean())))
    return 1 + max(range(MOST_TASKS), key=lambda index: outcomes[index])


def _evidence(comparison: Comparison, *, place: int, kept: bool) -> Evidence | None:
    """Return the evidence for a term; None if too few videos have a true candidate."""
    if not np.isfinite(comparison.error):
        return None
    coefficient = comparison.full.coefficients[place]
    return Evidence(
        coefficient=coefficient.value,
        low=_known(coefficient.low),
        high=_known(coefficient.high),
        gain=comparison.gain,
        error=_known(comparison.error),
        kept=kept,
        windows=comparison.full.queries,
    )


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
