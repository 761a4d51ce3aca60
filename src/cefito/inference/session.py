"""Live sessions: guidance while a procedure goes on, from observations and from steps done.

A session is the list of its events. An observation shows where the procedure stands; the steps that
were done since the one before are inferred, unless they were reported. The distribution of the next
step is carried on from event to event, as a filter does. Rows of a whole video, with their times,
need no such boundaries: the run's recogniser finds the steps in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch.nn import functional as F

from cefito.data.vocabulary import find_done, find_task
from cefito.errors import ConfigError
from cefito.inference.answer import PlannedSequence, planned_sequences
from cefito.inference.following import FINDING, Followed, Likely, RowFollower
from cefito.inference.observer import Observation
from cefito.inference.query import check_width
from cefito.planners.any_length.guidance import Encoded, SequencePosterior, SessionModel, Update
from cefito.planners.checks import check_queries
from cefito.planners.queries import Queries
from cefito.runs.run import Run
from cefito.runtime import full_precision
from cefito.settings import Record

OWN = 0.4
"""Weight of the network in the geometric mean of two predictions of the next step: the network's,
from the last observation and the steps done, and the filter's, from all events."""
STAY = 0.2
"""Probability that no step was done since the observation before, before both are compared."""
STILL, STEP = 0.05, 0.28
"""Scales of the difference of two observations: without a step between, if the scene stays (mean of
an exponential distribution), and with one (of a gamma distribution of shape 2)."""
STIRRED = 0.3
"""Probability that a scene without a step changes as much as with one."""
DOUBT, GOAL_DOUBT = 0.01, 0.1
"""Probability that all events together, and that the goal, say nothing of the next step."""
SURE = 0.5
"""Probability from which a step is inferred."""
EVIDENCE = 1.5
"""Factor by which observations of a step must raise its odds, so that it counts as done."""
PROMPT = 0.98
"""Probability that nothing was done between a step that is reported and the next event."""
OPEN = 0.5
"""The same before it is judged which steps are usual there; these do not change the next step."""
REPEATED = 1e-3
"""Relative distance of two observations up to which they are the same one."""
UNEXPECTED = 0.01
"""Probability below which a step done is reported as unexpected."""


class DoneStep(Likely):
    """A step that is believed to be done, and its likeliest action."""

    reported: bool = Field(description="Or inferred from observations.")


class Belief(Record):
    """All that a session believes."""

    tasks: list[Likely] = Field(description="Likeliest first.")
    done: list[DoneStep] = Field(description="Reported, or shown by observations; oldest first.")
    unseen: list[DoneStep] = Field(
        description="Usual there, but neither reported nor shown: done, or left out."
    )
    remaining: dict[int, float] = Field(
        description="Probability of each number of steps that remain; without a goal, of steps to "
        "the end, and the largest stands for that number or more."
    )


@dataclass(frozen=True)
class _Done:
    weights: torch.Tensor  # probabilities of actions [K]; one-hot if it was reported
    reported: bool = False
    shown: bool = False  # whether observations of the step itself raised its odds


@dataclass(frozen=True)
class _State:
    """All that is known after some events."""

    done: tuple[_Done, ...] = ()
    features: NDArray[np.float32] | None = None  # the latest observation [E]
    initial: Encoded | None = None  # the same encoded; None after a step was done since
    expected: torch.Tensor | None = None  # log p(next state | all events) [S]; None if unknown
    usual: torch.Tensor | None = None  # the same without the observations of that state [S]
    going: int | None = None  # action of the step that goes on, by rows
    notes: tuple[str, ...] = ()


def check_sessions(run: Run) -> None:
    """Refuse runs that cannot have sessions (ConfigError)."""
    if not run.planner.abilities.any_length:
        problem = f"needs a run of the method any-length; this one is of '{run.method}'"
        raise ConfigError(f"{run.place}: a session {problem}. Train one for several lengths.")


class Session:
    """Guidance for one person who does one procedure.

    It is changed by `observe`, `done` and `undo` alone and is not safe to be changed by several
    threads at once. Until something was observed, its next steps are those of a plan of one step
    after the same steps done.

    Args:
        run: A run of the method any-length.
        goal: Observation after the last step; None if it is unknown, so that plans lead to the end
            of the procedure.
        task: Id or name of the task; None to have it inferred.
        done: Ids or names of the actions done before, oldest first; None if they are not known,
            which holds until a step is done.
        read: Makes the features [E] of an observation, which it is given with its name for
            messages; None if all observations are features.

    Raises:
        ConfigError: A run of another method, or an unknown task.
        RunError: A goal of another width.
    """

    def __init__(
        self,
        run: Run,
        *,
        goal: Observation | None = None,
        task: int | str | None = None,
        done: Sequence[int | str] | None = (),
        read: Callable[[str, Observation], NDArray[np.floating[Any]]] | None = None,
    ) -> None:
        check_sessions(run)
        planner: Any = run.planner
        self.run, self._read = run, read
        self._guide = SessionModel(planner.model, planner.lengths)
        self.task = None if task is None else find_task(run.taxonomy, task)
        self._goal = None if goal is None else self._encoded(self._features("goal", goal))
        self._begun, self._rows = done is not None, cast(RowFollower | None, None)
        self._stale = False  # whether rows came since the steps done were taken from them
        if isinstance(done, str):
            raise ConfigError(f"done is {done!r}; expected a list of actions.", setting="done")
        before = [find_done(run.taxonomy, action, task=self.task) for action in done or ()]
        self._states = [_State(done=tuple(self._certain(action) for action in before))]

    def copy(self) -> Self:
        """Return a session of the same events, which goes on by itself."""
        other = copy(self)
        other._states = [*self._states]
        other._rows = None if self._rows is None else self._rows.copy()
        return other

    @property
    def events(self) -> int:
        """Number of events that `undo` can take back."""
        return len(self._states) - 1

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on steps that were not expected, oldest first."""
        return self._states[-1].notes

    @full_precision()
    def observe(self, observation: Observation | None, at: float | None = None) -> bool:
        """Add an observation of the present scene, best one at the start of a step.

        Return whether it was new: a row that is not after the last one in time changes nothing.

        Args:
            observation: The observation; with `at`, a row as the run's recogniser reads it, or None
                if it was lost.
            at: Time of a row in seconds. Rows may come at any time and show anything; those before
                the last one in time are passed over.

        Raises:
            RunError: A row, and the run has no recogniser.
            ConfigError: Rows beside observations of boundaries.
        """
        if at is not None:
            return self._observe_row(observation, at)
        if self._rows is not None or observation is None:
            raise ConfigError("the session follows rows of a video. Give the time of each.")
        features = self._features("observation", observation)
        state = self._states[-1]
        last = None if state.initial is None else state.features
        if last is not None and np.linalg.norm(features - last) <= REPEATED * np.linalg.norm(last):
            self._push(state)
            return True
        encoded = self._encoded(features)
        log_ratios = self._guide.log_ratios(encoded)
        before, usual = self._outlook, state.usual
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

    def _observe_row(self, row: Observation | None, at: float) -> bool:
        if self._rows is None:
            if self.events:
                problem = "the session has events without times, and rows of a video come first"
                raise ConfigError(f"{problem}. Begin another session.")
            self._rows = RowFollower(self.run, self.task)
        width = self.run.own_recogniser.width
        if self._read is not None and isinstance(row, str | Path | tuple):
            row = self._read("row", row)[-width:]  # without those that are joined with it
        new = self._rows.stream.observe(None if row is None else np.asarray(row), at)
        if new:
            self._stale = True
            self._forget()
        return new

    def _catch_up(self, rows: RowFollower) -> None:
        """Take the steps that were recognised as those done, if rows came since."""
        if not self._stale:
            return
        count, steps, seen = len(self.run.taxonomy.actions), rows.stream.steps(), rows.observation()
        done = tuple(
            _Done(
                F.one_hot(torch.tensor(step.action), count) * step.probability,
                reported=step.start in rows.told,
                shown=True,
            )
            for step in steps
        )
        self._stale = False
        self._states[-1] = replace(
            self._states[-1],
            done=done,
            initial=None if seen is None else self._encoded(seen),
            expected=rows.log_expected(self._guide.model.states),
            going=steps[-1].action if rows.goes_on(steps) else None,
        )

    @property
    def follows_rows(self) -> bool:
        """Whether rows of a video were observed."""
        return self._rows is not None

    @property
    def seconds(self) -> float:
        """Time up to which rows of a video were observed, or lost."""
        return 0.0 if self._rows is None else self._rows.stream.seconds

    def followed(self, top_k: int = 5, *, least: float = FINDING) -> Followed:
        """Return what was recognised in the rows so far, and findings from a probability on.

        Raises:
            ConfigError: No row was observed.
        """
        if self._rows is None:
            raise ConfigError("no row of a video was observed yet.")
        return self._rows.followed(self.likely_next(top_k), least)

    def _inferred_steps(self, update: Update, *, looking: bool) -> tuple[_Done, ...]:
        """Return the steps done before an event; the first may be what was seen before it."""
        rows = [row for row in update.steps.cpu() if float(row.sum()) >= SURE]
        shown = [False] * len(rows)
        usual = self._states[-1].usual
        if rows and looking and usual is not None:
            action = int(rows[0].argmax())
            with torch.inference_mode():
                own = self._guide.model.states.actions == action
                odds = [
                    float(torch.logit(logs[own].exp().sum(), eps=1e-6))
                    for logs in (self._outlook.log_first, usual)
                ]
            shown[0] = odds[0] - odds[1] >= math.log(EVIDENCE)
        return tuple(_Done(row, shown=one) for row, one in zip(rows, shown, strict=True))

    @full_precision()
    def done(self, action: int | str) -> None:
        """Add a step that was done, by its id or name: of the likeliest task, else of any task.

        If the step has been inferred from the latest observations, and is likelier to be meant than
        another step of the same action, then it becomes certain.
        """
        state, taxonomy = self._states[-1], self.run.taxonomy
        task = int(self._outlook.log_tasks.argmax())
        found = find_done(taxonomy, action, task=task)
        if self._rows is not None:
            self._rows.correct(found)
            self._stale = True
            self._forget()
            return
        probability = float(self._next[found])
        certain = self._certain(found)
        place = self._inferred(found)
        if place is not None and float(state.done[place].weights[found]) > probability:
            done = (*state.done[:place], certain, *state.done[place + 1 :])
            self._push(replace(state, done=done))
            return
        notes, name = state.notes, taxonomy.actions[found].name
        if found not in self._guide.model.states.by_task()[task]:
            notes += (f"'{name}' is not among the steps of '{taxonomy.tasks[task].name}'",)
        elif probability < UNEXPECTED:
            notes += (f"unexpected: '{name}' had the probability {100 * probability:.2g} %",)
        before, states = self._outlook, self._guide.model.states
        with torch.inference_mode():
            told = torch.where(states.actions == found, 0.0, -torch.inf)
            between: tuple[_Done, ...] = ()
            if bool((before.log_first + told).isfinite().any()):
                update = before.seen_later(told, OPEN)
                between = self._inferred_steps(update, looking=state.initial is not None)
        self._push(
            replace(
                state,
                done=(*state.done, *between, certain),
                initial=None,
                expected=None if state.features is None else before.after(found),
                usual=None,
                notes=notes,
            )
        )

    def undo(self) -> None:
        """Take back the last observation or step done.

        Raises:
            ConfigError: There is none.
        """
        if self._rows is not None:
            raise ConfigError("rows of a video stay. Report the step that goes on instead.")
        if not self.events:
            raise ConfigError("nothing to undo: the session has no observation and no step done.")
        self._states.pop()
        self._forget()

    @full_precision()
    def next_steps(self, top_k: int = 5) -> list[tuple[str, float]]:
        """Return the names of the likeliest next steps and their probabilities, likeliest first."""
        return [(one.name, one.probability) for one in self.likely_next(top_k)]

    @full_precision()
    def likely_next(self, top_k: int = 5) -> list[Likely]:
        """Return the likeliest next steps, likeliest first."""
        if top_k < 1:
            raise ConfigError(f"top_k {top_k}: expected at least 1.", setting="top_k")
        names, shares = self.run.taxonomy.actions, self._next
        order = shares.argsort(descending=True, stable=True)[:top_k].tolist()
        found = (Likely(id=a, name=names[a].name, probability=float(shares[a])) for a in order)
        return [one for one in found if one.probability > 0]

    @torch.inference_mode()
    @full_precision()
    def plans(self, top_k: int = 5, steps: int | None = None) -> list[PlannedSequence]:
        """Return the likeliest plans of the steps that follow, best first.

        Args:
            top_k: Number of plans.
            steps: Their length; None for all lengths of the run, in one ranking.

        Raises:
            ConfigError: A length that the run does not plan.
        """
        if (top_k, steps) in self._plans:
            return [*self._plans[top_k, steps]]
        run = self.run if steps is None else self.run.with_steps(steps, steps)
        planner: Any = run.planner
        query = Queries.partial(size=planner.observation_dim)
        check_queries(planner, query, top_k)
        outlook = self._outlook
        kept = [self._guide.lengths.index(length) for length in planner.lengths]
        scores = [outlook.scores[place] for place in kept]
        log_tasks = torch.stack([each.log_tasks()[0] for each in scores])
        log_lengths = outlook.log_lengths[kept].log_softmax(dim=0)
        (ranked,) = planner.ranked(query, scores, log_lengths[None], log_tasks[None], top_k)
        plans = planned_sequences(ranked, ranked.tasks.tolist(), run.taxonomy)
        self._plans[top_k, steps] = plans
        return [*plans]

    @full_precision()
    def belief(self) -> Belief:
        """Return what is believed of the task, of the steps done and of those that remain."""
        outlook, taxonomy = self._outlook, self.run.taxonomy
        tasks = outlook.log_tasks.exp().clamp(max=1.0)
        order = tasks.argsort(descending=True, stable=True).tolist()
        done: list[DoneStep] = []
        unseen: list[DoneStep] = []
        for step in self._states[-1].done:
            action = int(step.weights.argmax())
            (done if step.reported or step.shown else unseen).append(
                DoneStep(
                    id=action,
                    name=taxonomy.actions[action].name,
                    probability=float(step.weights[action]),
                    reported=step.reported,
                )
            )
        lengths = outlook.log_lengths.exp().tolist()
        return Belief(
            tasks=[
                Likely(id=task, name=taxonomy.tasks[task].name, probability=float(tasks[task]))
                for task in order
            ],
            done=done,
            unseen=unseen,
            remaining=dict(zip(self._guide.lengths, lengths, strict=True)),
        )

    def _certain(self, action: int) -> _Done:
        weights = torch.nn.functional.one_hot(torch.tensor(action), len(self.run.taxonomy.actions))
        return _Done(weights.float(), reported=True)

    def _push(self, state: _State) -> None:
        self._states.append(state)
        self._forget()

    def _forget(self) -> None:
        for name in ("_outlook", "_next", "_plans"):
            vars(self).pop(name, None)

    @cached_property
    def _plans(self) -> dict[tuple[int, int | None], list[PlannedSequence]]:
        """Plans after the latest state, by their number and length."""
        return {}

    @cached_property
    def _outlook(self) -> SequencePosterior:
        """Predict what follows the latest state; the next step is inferred from all events."""
        if self._rows is not None:
            self._catch_up(self._rows)
        state = self._states[-1]
        count = self._guide.model.states.lookup.shape[1]
        rows = [step.weights for step in state.done if step.reported or step.shown]
        done = torch.stack(rows) if rows else torch.zeros(0, count) if self._begun else None
        outlook = self._guide.posterior(state.initial, self._goal, done)
        states = self._guide.model.states
        with torch.inference_mode():
            if self.task is not None:
                outlook = outlook.weighed(torch.where(states.tasks == self.task, 0.0, -torch.inf))
            if state.expected is not None:
                expected, own = _doubted(state.expected, DOUBT), outlook.log_first
                if self._rows is not None and self._goal is not None:
                    # the recogniser knows no goal: p(a | rows) √(p(a | goal) / p(a))
                    without = self._guide.posterior(state.initial, None, done).log_first
                    ratio = _doubted(own, GOAL_DOUBT) - _doubted(without, GOAL_DOUBT)
                    expected = expected + ratio / 2
                change = (expected - own).masked_fill(own == -torch.inf, 0.0)
                factors = (1 - OWN) * change
                if state.going is not None:  # it is seen, so the network does not expect it again
                    again = states.actions == state.going
                    factors = torch.where(again, torch.minimum(change, factors), factors)
                outlook = outlook.weighed(factors)
        return outlook

    @cached_property
    def _next(self) -> torch.Tensor:
        if self._rows is not None:
            return torch.from_numpy(self._rows.stream.next_actions)
        with torch.inference_mode():
            return self._outlook.next_actions().cpu()

    def _stay(self, features: NDArray[np.float32]) -> tuple[float, float]:
        """Return the probability that no step was done since the latest observation.

        And the probability that both then show the same. By their difference
        d = |a − b|² / (|a − m|² + |b − m|²), where m is the mean observation of training windows:
        near 0 for the same scene, 1 for scenes that are unrelated.
        """
        before, mean = self._states[-1].features, self.run.planner.mean_observation
        if before is None or mean is None:
            return STAY, 0.0
        rest = float(np.square(features - mean).sum() + np.square(before - mean).sum())
        change = float(np.square(features - before).sum()) / max(rest, 1e-30)
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
        return max(places, key=lambda one: float(done[one].weights[action]), default=None)

    def _features(self, name: str, given: Observation) -> NDArray[np.float32]:
        """Return checked features [E] of an observation."""
        row = np.asarray(given if self._read is None else self._read(name, given))
        check_width(self.run, row.shape[-1] if row.ndim else 1, f"{name}: the observation has")
        return np.asarray(Queries.partial(size=row.shape[-1], initial=row).initial[0])

    def _encoded(self, features: NDArray[np.float32]) -> Encoded:
        return self._guide.encode(torch.from_numpy(features))


def _doubted(log_shares: torch.Tensor, doubt: float) -> torch.Tensor:
    """Return the mixture of a distribution [S] and an even one."""
    return torch.logaddexp(log_shares, torch.tensor(math.log(doubt / len(log_shares))))
