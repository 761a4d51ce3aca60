"""Sessions of observations at the borders of steps, and of steps that are reported.

An observation shows where the procedure stands; the steps that were done since the one before are
inferred, unless they were reported. The distribution of the next step is carried on from event to
event, as a filter does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.errors import ConfigError
from cefito.inference.following import FilmSession, Followed
from cefito.inference.observer import Observation
from cefito.inference.outlook import DOUBT, OWN, Begin, BelievedStep, Likely, change, doubted
from cefito.planners.any_length.guidance import Encoded, SequencePosterior, Update
from cefito.verification.findings import repair

STAY = 0.2
"""Probability that no step was done since the observation before, before both are compared."""
STILL, STEP = 0.05, 0.28
"""Scales of the difference of two observations: without a step between, if the scene stays (mean of
an exponential distribution), and with one (of a gamma distribution of shape 2)."""
STIRRED = 0.3
"""Probability that a scene without a step changes as much as with one."""
SURE = 0.5
"""Probability from which a step is inferred."""
EVIDENCE = 1.5
"""Factor by which observations of a step must raise its odds, so that it counts as done."""
PROMPT = 0.98
"""Probability that nothing was done between a step that is reported and the next event."""
OPEN = 0.5
"""Probability that no step was left unreported right before or after a reported one, or before the
first observation; used to infer such steps. Predictions of the next step use `PROMPT` instead."""
REPEATED = 1e-3
"""Relative distance of two observations up to which they are the same one."""
UNEXPECTED = 0.01
"""Probability below which a step done is reported as unexpected."""

_NO_ROW = "no row of a video was observed yet."


@dataclass(frozen=True)
class _State:
    """All that is known after some events."""

    done: tuple[BelievedStep, ...] = ()
    features: NDArray[np.float32] | None = None  # the latest observation [E]
    initial: Encoded | None = None  # the same encoded; None after a step was done since
    expected: torch.Tensor | None = None  # log p(next state | all events) [S]; None if unknown
    usual: torch.Tensor | None = None  # the same without the observations of that state [S]
    notes: tuple[str, ...] = ()


class StepSession:
    """Guidance by observations and steps done; the list of its states, of which the last holds."""

    follows_rows = False
    seconds = 0.0

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._states = [_State(done=begin.done or ())]

    def copy(self) -> Self:
        """Return a session of the same events, which goes on by itself."""
        other = copy(self)
        other._states = [*self._states]
        return other

    @property
    def events(self) -> int:
        """Number of events that `undo` can take back."""
        return len(self._states) - 1

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on steps that were not expected, oldest first."""
        return self._states[-1].notes

    @property
    def steps(self) -> tuple[BelievedStep, ...]:
        """Steps that are believed to be done, oldest first."""
        return self._states[-1].done

    @cached_property
    def outlook(self) -> SequencePosterior:
        """What follows; the next step is inferred from all events."""
        state = self._states[-1]
        outlook = self._begin.outlook(state.initial, state.done)
        with torch.inference_mode():
            if state.expected is not None:
                expected = doubted(state.expected, DOUBT)
                outlook = outlook.weighed((1 - OWN) * change(outlook, expected))
        return outlook

    @cached_property
    def next_actions(self) -> torch.Tensor:
        """Probability that each action is the next step [K]."""
        with torch.inference_mode():
            return self.outlook.next_actions().cpu()

    @property
    def tasks(self) -> torch.Tensor:
        """Probability of each task [C]."""
        return self.outlook.log_tasks.exp()

    @property
    def finished(self) -> float:
        """Probability that nothing is left to do; 0 to a goal, or if the run has no orders.

        Once all usual steps are done, it is the share of training videos that end after the last.
        """
        begin, task = self._begin, int(self.tasks.argmax())
        verifier, steps = begin.run.verifier, [int(step.weights.argmax()) for step in self.steps]
        if begin.goal is not None or verifier is None or not steps:
            return 0.0
        order = verifier.orders[task]
        place = order.index.get(steps[-1])
        if place is None or repair(order, steps, verifier.taxonomy):
            return 0.0
        return float(order.follows[place, -1] / max(order.follows[place].sum(), 1))

    def taking(self, at: float | None) -> StepSession | FilmSession:
        """Return the session that takes an observation at a time; one of rows has times."""
        if at is None:
            return self
        if self.events:
            problem = "the session has events without times, and rows of a video come first"
            raise ConfigError(f"{problem}. Begin another session.")
        return FilmSession(self._begin)

    def observe(self, observation: Observation | None, at: float | None) -> bool:  # noqa: ARG002
        """Add an observation, which is always new."""
        if observation is None:
            raise ConfigError("no observation is given. A lost row of a video has a time.")
        features = self._begin.features("observation", observation)
        state = self._states[-1]
        last = None if state.initial is None else state.features
        if last is not None and np.linalg.norm(features - last) <= REPEATED * np.linalg.norm(last):
            self._push(state)
            return True
        encoded = self._begin.encoded(features)
        log_ratios = self._begin.model.log_ratios(encoded)
        before, usual = self.outlook, state.usual
        looking = state.initial is not None  # no step was reported since the observation before
        stay = self._stay(features) if looking else (PROMPT, 0.0)
        with torch.inference_mode():
            update = before.seen_later(log_ratios, *stay)
            usual_steps = update if looking else before.seen_later(log_ratios, OPEN)
            if looking and usual is not None:
                stayed = min(max(update.stayed, 1e-9), 1 - 1e-9)
                usual = torch.logaddexp(
                    math.log(stayed) + usual, math.log1p(-stayed) + update.log_usual
                )
            else:
                usual = before.log_first
        first_seen = state.features is None
        self._push(
            replace(
                state,
                done=state.done + self._inferred_steps(usual_steps, looking=looking),
                features=features,
                initial=encoded,
                expected=None if first_seen else update.log_next,
                usual=usual,
            )
        )
        return True

    def _inferred_steps(self, update: Update, *, looking: bool) -> tuple[BelievedStep, ...]:
        """Return the steps done before an event; the first may be what was seen before it."""
        rows = [row for row in update.steps.cpu() if float(row.sum()) >= SURE]
        shown = [False] * len(rows)
        usual = self._states[-1].usual
        if rows and looking and usual is not None:
            action = int(rows[0].argmax())
            with torch.inference_mode():
                of_action = self._begin.states.actions == action
                odds = [
                    float(torch.logit(logs[of_action].exp().sum(), eps=1e-6))
                    for logs in (self.outlook.log_first, usual)
                ]
            shown[0] = odds[0] - odds[1] >= math.log(EVIDENCE)
        return tuple(
            BelievedStep(row, shown=is_shown) for row, is_shown in zip(rows, shown, strict=True)
        )

    def done(self, action: int) -> None:
        """Add a step that was done.

        If the step has been inferred from the latest observations, and is likelier to be meant than
        another step of the same action, then it becomes certain.
        """
        state, taxonomy = self._states[-1], self._begin.run.taxonomy
        probability = float(self.next_actions[action])
        certain = self._begin.certain(action)
        place = self._inferred(action)
        if place is not None and float(state.done[place].weights[action]) > probability:
            done = (*state.done[:place], certain, *state.done[place + 1 :])
            self._push(replace(state, done=done))
            return
        notes, name = state.notes, taxonomy.actions[action].name
        task, states = int(self.outlook.log_tasks.argmax()), self._begin.states
        if action not in states.by_task()[task]:
            notes += (f"'{name}' is not among the steps of '{taxonomy.tasks[task].name}'",)
        elif probability < UNEXPECTED:
            notes += (f"unexpected: '{name}' had the probability {100 * probability:.2g} %",)
        before = self.outlook
        with torch.inference_mode():
            told = torch.where(states.actions == action, 0.0, -torch.inf)
            between: tuple[BelievedStep, ...] = ()
            if bool((before.log_first + told).isfinite().any()):
                update = before.seen_later(told, OPEN)
                between = self._inferred_steps(update, looking=state.initial is not None)
        self._push(
            replace(
                state,
                done=(*state.done, *between, certain),
                initial=None,
                expected=None if state.features is None else before.after(action),
                usual=None,
                notes=notes,
            )
        )

    def undo(self) -> None:
        """Take back the last event (ConfigError if there is none)."""
        if not self.events:
            raise ConfigError("nothing to undo: the session has no observation and no step done.")
        self._states.pop()
        self._forget()

    def finish(self) -> None:
        """Refuse, since no row of a video was observed (ConfigError)."""
        raise ConfigError(_NO_ROW)

    def followed(
        self,
        ahead: Sequence[Likely],  # noqa: ARG002
        least: float,  # noqa: ARG002
        lag: float,  # noqa: ARG002
    ) -> Followed:
        """Refuse, since no row of a video was observed (ConfigError)."""
        raise ConfigError(_NO_ROW)

    def _push(self, state: _State) -> None:
        self._states.append(state)
        self._forget()

    def _forget(self) -> None:
        for name in ("outlook", "next_actions"):
            vars(self).pop(name, None)

    def _stay(self, features: NDArray[np.float32]) -> tuple[float, float]:
        """Return the probability that no step was done since the latest observation.

        And the probability that both then show the same. By their difference
        d = |a − b|² / (|a − m|² + |b − m|²), where m is the mean observation of training windows:
        near 0 for the same scene, 1 for scenes that are unrelated.
        """
        before, mean = self._states[-1].features, self._begin.run.planner.mean_observation
        if before is None or mean is None:
            return STAY, 0.0
        scale = float(np.square(features - mean).sum() + np.square(before - mean).sum())
        change = float(np.square(features - before).sum()) / max(scale, 1e-30)
        still = math.exp(-change / STILL) / STILL
        step = max(change, 1e-6) * math.exp(-change / STEP) / STEP**2
        same = (1 - STIRRED) * still / step
        odds = STAY / (1 - STAY) * (same + STIRRED)
        return odds / (1 + odds), same / (same + STIRRED)

    def _inferred(self, action: int) -> int | None:
        """Return the place of the step, inferred since the last reported one, that is likeliest."""
        places, done = [], self._states[-1].done
        for place in range(len(done) - 1, -1, -1):
            if done[place].reported:
                break
            places.append(place)
        return max(
            places, key=lambda place_done: float(done[place_done].weights[action]), default=None
        )
