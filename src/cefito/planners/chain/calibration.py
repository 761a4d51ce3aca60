"""Calibration of a chain's probabilities on windows that it was not trained on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from cefito.data.windows import Windows
from cefito.planners.chain.inference import SequenceScores
from cefito.planners.chain.states import TaskStates
from cefito.planners.shared.task_model import COLDEST, HOTTEST, confident_temperature


def known_states(states: TaskStates, windows: Windows, train: Windows) -> Tensor:
    """Return the true states of windows [N, T]; −1 for states without training windows.

    Args:
        states: States of all tasks.
        windows: N windows.
        train: Training windows.
    """

    def states_of(some: Windows) -> Tensor:
        parts = (torch.from_numpy(ids) for ids in (some.tasks, some.actions))
        return states.find(*(ids.to(states.actions.device) for ids in parts))

    true = states_of(windows)
    return true.masked_fill(~torch.isin(true, states_of(train)), -1)


def fit_temperature(chain: SequenceScores, states: Tensor) -> float:
    """Return the temperature that maximises the likelihood of true states [B, T].

    The negative log-likelihood is convex in 1 / temperature; golden-section search finds its
    minimum. Impossible sequences are ignored; without any others the temperature is 1.
    """
    possible = (states >= 0).all(dim=1)
    if not bool(possible.any()):
        return 1.0
    chain, states = chain.rows(possible), states[possible]

    def loss(inverse: float) -> float:
        return float(-chain.heated(1 / inverse).log_probabilities(states).double().mean())

    low, high, ratio = 1 / HOTTEST, 1 / COLDEST, (5**0.5 - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    values = loss(left), loss(right)
    for _ in range(40):
        if values[0] <= values[1]:
            high, right = right, left
            left = high - ratio * (high - low)
            values = loss(left), values[0]
        else:
            low, left = left, right
            right = low + ratio * (high - low)
            values = values[1], loss(right)
        if high - low < 1e-4:
            break
    return 2 / (low + high)


_SURER = math.exp(-0.2)  # of the temperature of the greatest likelihood; chosen by folds
_LEAST = -30.0  # log-probability that less likely tasks count as


def fit_confidence(
    chain: SequenceScores, states: Tensor, actions: Tensor, *, videos: int, task_power: float = 1.0
) -> float:
    """Return the temperature that calibrates the probability of the best sequence.

    The prior's centre is 0.82 times the temperature of `fit_temperature`. The latter alone makes
    the best sequence underconfident, as folds of three data sets showed.

    Args:
        chain: Scores of validation windows.
        states: True states [B, T].
        actions: True actions [B, T].
        videos: Number of videos, each of which counts as one observation.
        task_power: See `SequenceScores.weighing_tasks`.
    """
    best, _ = chain.best(1)
    likeliest = chain.states.actions[best[:, 0]]
    right = (likeliest == actions).all(dim=1)

    def sure(temperature: float) -> NDArray[np.float64]:
        heated = chain.heated(temperature).weighing_tasks(task_power)
        logs = heated.log_sequence_probabilities(likeliest)
        return np.asarray(logs.double().exp().cpu().numpy())

    return confident_temperature(
        sure, right.cpu().numpy(), videos=videos, centre=_SURER * fit_temperature(chain, states)
    )


def fit_task_power(chain: SequenceScores, states: Tensor, tasks: Tensor, *, videos: int) -> float:
    """Return the power of task probabilities under which true tasks [B] are likeliest.

    The logarithm of the power has a standard normal prior. Arguments are as of `fit_confidence`.
    """
    from scipy.optimize import minimize_scalar

    if not len(tasks):
        return 1.0
    logs = chain.heated(_SURER * fit_temperature(chain, states)).log_tasks().double()
    logs = logs.clamp_min(_LEAST)

    def loss(log_power: float) -> float:
        misfit = F.cross_entropy(math.exp(log_power) * logs, tasks)
        return videos * float(misfit) + log_power**2 / 2

    bounds = (-math.log(10), math.log(10))
    return math.exp(float(minimize_scalar(loss, bounds=bounds, method="bounded").x))


def fit_task_confidence(log_tasks: Tensor, tasks: Tensor, *, videos: int, centre: float) -> float:
    """Fit the power of task probabilities to how often the likeliest task is right.

    The logarithm of the power has the normal prior of `confident_temperature`.

    Args:
        log_tasks: log p(task | observations) [B, C].
        tasks: True tasks [B].
        videos: Number of videos, each of which counts as one observation.
        centre: Centre of the power's prior.
    """
    right = (log_tasks.argmax(dim=1) == tasks).cpu().numpy()

    def sure(inverse: float) -> NDArray[np.float64]:
        shares = (log_tasks.double() / inverse).softmax(dim=1)
        return np.asarray(shares.amax(dim=1).cpu().numpy())

    return 1 / confident_temperature(sure, right, videos=videos, centre=1 / centre)


class Confidence(NamedTuple):
    """Mean probability of best sequences, and the share of them that is right."""

    probability: float
    right: float

    @classmethod
    def of(cls, scores: SequenceScores, actions: Tensor) -> Confidence:
        """Return the confidence in the best sequences of B queries, of true actions [B, T]."""
        likeliest = scores.states.actions[scores.best(1)[0][:, 0]]
        probabilities = scores.log_sequence_probabilities(likeliest).double().exp()
        right = (likeliest == actions).all(dim=1).double()
        return cls(float(probabilities.mean()), float(right.mean()))


def kept_confidence(before: Confidence, after: Callable[[float], Confidence]) -> float:
    """Return the factor of the temperature after networks were trained further.

    Both arguments are of windows that the networks were trained on before as well; `after` is a
    function of the factor f. Further training makes networks surer of new windows by about as much
    as of these, so the factor, from 1/2 to 2, keeps the ratio of probability p and share r of
    these: p(f) / r = p_before / r_before.
    """
    from scipy.optimize import minimize_scalar

    if not before.right:
        return 1.0
    wanted = before.probability * after(1.0).right / before.right

    def miss(log_factor: float) -> float:
        return (after(math.exp(log_factor)).probability - wanted) ** 2

    bounds = (-math.log(2), math.log(2))
    optimum = minimize_scalar(miss, bounds=bounds, method="bounded", options={"xatol": 1e-3})
    return math.exp(float(optimum.x))
