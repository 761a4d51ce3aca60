"""Fitting the weight of the energy beside the chain on validation windows."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.data.windows import Windows
from cefito.planners.base import Queries
from cefito.planners.cefito.objective import CHAIN, Weights
from cefito.planners.chain.model import ChainModel
from cefito.planners.shared.task_model import confident_temperature
from cefito.progress import Advance, Progress, silent
from cefito.search.base import Field

CANDIDATES = 64
"""Number of candidates of a window: its likeliest sequences under the chain, over all tasks."""
_NO_ENERGY = 1e6  # replaces the infinite energies of a diverged field
_BATCH = 1024  # sequences whose energies are computed at once, within the caches of a CPU
_RIDGE = 1.0  # of the weight per standard deviation of the energies

Reals = NDArray[np.float64]


def fit_weights(
    chain: ChainModel,
    field: Field,
    val: Windows,
    *,
    windows: int,  # size of the sample of validation windows; 0 for all
    progress: Progress = silent,
) -> Weights:
    """Fit the weight of the energy beside the chain's.

    The candidates of a window are its likeliest sequences under the chain over all tasks. The
    weight w maximises the likelihood of the truth among them (`energy_weight`). The score
    w · E − log q is then divided by a temperature that calibrates the best candidate's probability.
    """
    if not len(val):
        return CHAIN
    sample = val.sample(windows or None, seed=0)
    with progress("fitting the objective", total=len(sample)) as advance:
        joint, actions, right = _candidates(chain, sample)
        energies = _energies(field, sample, actions, advance)
    weight = energy_weight(joint, energies, right)
    if weight == 0:
        return CHAIN
    temperature = _temperature(joint, joint - weight * energies, right, sample.video)
    return Weights(energy=weight / temperature, chain=1 / temperature)


def energy_weight(
    joint: Reals,  # log q(c, a) of each window's candidates, −∞ if there are fewer, [N, n]
    energies: Reals,  # their energies E, [N, n]
    right: NDArray[np.bool_],  # whether a candidate is the truth, at most one of a window, [N, n]
) -> float:
    """Return the weight w ≥ 0 of the energy under which the truth is likeliest.

    It maximises Σ_windows log p(truth) − (w σ)² / 2, p(i) = q_i exp(−w E_i) / Σ_j q_j exp(−w E_j),
    σ the standard deviation of the energies of a window's candidates. Windows without the truth
    among their candidates do not count. The sum is concave in w.
    """
    from scipy.optimize import brentq

    used = right.any(axis=1)
    joint, energies, right = joint[used], energies[used], right[used]
    possible = np.isfinite(joint)
    if not len(joint):
        return 0.0
    # E_j − E_truth, in units of σ, [N, n]
    excess = np.where(possible, energies - energies[right][:, None], 0.0)
    means = excess.sum(axis=1, keepdims=True) / possible.sum(axis=1, keepdims=True)
    deviation = float(np.sqrt(np.square(excess - means)[possible].mean()))
    if deviation < 1e-12:
        return 0.0
    excess /= deviation

    def slope(weight: float) -> float:
        # d/dw = Σ_windows Σ_j p_j (E_j − E_truth) − w, which decreases in w
        logits = joint - weight * excess
        shares = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
        return float((shares * excess).sum()) - _RIDGE * weight

    steepest = slope(0.0)
    if steepest <= 0:
        return 0.0
    return float(brentq(slope, 0.0, steepest / _RIDGE)) / deviation


def _temperature(
    joint: Reals, scores: Reals, right: NDArray[np.bool_], videos: NDArray[np.int64]
) -> float:
    """Return the temperature τ that calibrates the probabilities of the best candidates.

    p(best) = M · exp(s_best / τ) / Σ_j exp(s_j / τ), M = Σ_j q_j, of scores s [N, n].
    """
    some = np.isfinite(scores).any(axis=1)
    joint, scores, right = joint[some], scores[some], right[some]
    log_mass = np.minimum(np.logaddexp.reduce(joint, axis=1), 0.0)
    best = scores.argmax(axis=1)[:, None]

    def sure(temperature: float) -> Reals:
        heated = scores / temperature
        top = np.take_along_axis(heated, best, axis=1)[:, 0]
        return np.asarray(np.exp(log_mass + top - np.logaddexp.reduce(heated, axis=1)))

    correct = np.take_along_axis(right, best, axis=1)[:, 0]
    return confident_temperature(sure, correct, videos=len(np.unique(videos[some])))


def _candidates(
    chain: ChainModel, sample: Windows
) -> tuple[Reals, NDArray[np.int64], NDArray[np.bool_]]:
    """Return log q [N, n] of candidates, their actions [N, n, T], and which is right [N, n]."""
    scores = chain.scores(Queries.from_windows(sample))
    states = scores.states
    best, values = scores.best(CANDIDATES)
    joint = (values - scores.log_partition()[:, None]).double().cpu().numpy()
    actions = states.actions[best].cpu().numpy()
    tasks = states.tasks[best[:, :, 0]].cpu().numpy()
    right = (actions == sample.actions[:, None]).all(axis=2) & (tasks == sample.tasks[:, None])
    return joint, actions, right & np.isfinite(joint)


def _energies(field: Field, sample: Windows, actions: NDArray[np.int64], advance: Advance) -> Reals:
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
