"""What a session knows from its begin, and what follows steps that were done.

Both kinds of sessions use it: those of observations at the borders of steps (`StepSession`), and
those of the rows of a video (`FilmSession`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.errors import ConfigError
from cefito.inference.observer import Observation
from cefito.inference.query import check_width
from cefito.parts.opened import OpenedRun
from cefito.planners.any_length.guidance import (
    Encoded,
    SequencePosterior,
    SessionModel,
    SessionPlanner,
    guides_sessions,
)
from cefito.planners.chain.states import TaskStates
from cefito.planners.queries import Queries
from cefito.settings import Record

OWN = 0.4
"""Weight of the network in the geometric mean of two predictions of the next step: the network's,
from the last observation and the steps done, and the filter's, from all events."""
DOUBT, GOAL_DOUBT = 0.01, 0.1
"""Probability that all events together, and that the goal, say nothing of the next step."""


class Likely(Record):
    """A task or an action and its probability."""

    id: int
    name: str
    probability: float


def check_sessions(run: OpenedRun) -> SessionPlanner:
    """Return the planner of a run that can have sessions; refuse another one (ConfigError)."""
    if not guides_sessions(run.planner):
        problem = f"needs a run of the method any-length; this one is of '{run.method}'"
        raise ConfigError(f"{run.place}: a session {problem}. Train one for several lengths.")
    return run.planner


@dataclass(frozen=True)
class BelievedStep:
    """A step that is believed to be done."""

    weights: torch.Tensor  # probabilities of actions [K]; one-hot if it was reported
    reported: bool = False
    shown: bool = False  # whether observations of the step itself raised its odds


@dataclass(frozen=True, eq=False)
class Begin:
    """What a session knows before its first event."""

    run: OpenedRun  # of the method any-length, whose planner is opened when it is used
    task: int | None  # id; None to have it inferred
    goal_features: NDArray[np.float32] | None  # after the last step [E]; None if unknown
    done: tuple[BelievedStep, ...] | None  # steps done before; None if they are not known
    # makes features [E] of the name of an observation and itself; None if all are features
    read: Callable[[str, Observation], NDArray[np.floating[Any]]] | None

    @cached_property
    def model(self) -> SessionModel:
        """The model of the run's planner (`check_sessions`)."""
        planner = check_sessions(self.run)
        return SessionModel(planner.model, planner.lengths)

    @cached_property
    def goal(self) -> Encoded | None:
        """Observation after the last step, encoded; None if it is unknown."""
        return None if self.goal_features is None else self.encoded(self.goal_features)

    @property
    def states(self) -> TaskStates:
        """Pairs of a task and an action of it."""
        return self.model.model.states

    def posterior(
        self, initial: Encoded | None, steps: Sequence[BelievedStep], *, goal: Encoded | None
    ) -> SequencePosterior:
        """Return the network's distribution of what follows steps done, of all tasks."""
        weights = [step.weights for step in steps if step.reported or step.shown]
        if weights:
            return self.model.posterior(initial, goal, torch.stack(weights))
        none = None if self.done is None else torch.zeros(0, self.states.lookup.shape[1])
        return self.model.posterior(initial, goal, none)

    def outlook(self, initial: Encoded | None, steps: Sequence[BelievedStep]) -> SequencePosterior:
        """Return the same of the task and to the goal, if they are known."""
        posterior = self.posterior(initial, steps, goal=self.goal)
        if self.task is None:
            return posterior
        with torch.inference_mode():
            return posterior.weighed(torch.where(self.states.tasks == self.task, 0.0, -torch.inf))

    def features(self, name: str, observation: Observation) -> NDArray[np.float32]:
        """Return checked features [E] of an observation, which messages call `name`."""
        row = np.asarray(observation if self.read is None else self.read(name, observation))
        check_width(self.run, row.shape[-1] if row.ndim else 1, f"{name}: the observation has")
        return np.asarray(Queries.partial(size=row.shape[-1], initial=row).initial[0])

    def encoded(self, features: NDArray[np.float32]) -> Encoded:
        """Encode features [E]."""
        return self.model.encode(torch.from_numpy(features))

    def certain(self, action: int) -> BelievedStep:
        """Return a step that was reported."""
        weights = torch.nn.functional.one_hot(torch.tensor(action), len(self.run.taxonomy.actions))
        return BelievedStep(weights.float(), reported=True)


def change(outlook: SequencePosterior, expected: torch.Tensor) -> torch.Tensor:
    """Return log p(next state | all events) − log p(next state | outlook) [S]."""
    likely = outlook.log_first
    return (expected - likely).masked_fill(likely == -torch.inf, 0.0)


def doubted(log_shares: torch.Tensor, doubt: float) -> torch.Tensor:
    """Return the mixture of a distribution [S] and an even one."""
    return torch.logaddexp(log_shares, torch.tensor(math.log(doubt / len(log_shares))))
