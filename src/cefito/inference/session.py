"""Live sessions: guidance while a procedure goes on, from observations and from steps done.

A session begins with steps (`StepSession`); the first row of a video makes it one of rows
(`FilmSession`), which needs no borders of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from cefito.data.vocabulary import find_done, find_task
from cefito.errors import ConfigError
from cefito.inference.answer import PlannedSequence, planned_sequences
from cefito.inference.following import FINDING, LONGEST_LAG, Followed
from cefito.inference.observer import Observation
from cefito.inference.outlook import Begin, BelievedStep, Likely, check_sessions
from cefito.inference.step_session import StepSession
from cefito.parts.opened import OpenedRun
from cefito.planners.any_length.guidance import SequencePosterior
from cefito.planners.base_planner import check_queries
from cefito.planners.methods import find_method
from cefito.planners.queries import Queries
from cefito.runtime import full_precision
from cefito.settings import Record


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
    finished: float = Field(
        description="Probability that nothing is left to do; 0 to a goal, and 1 once the film is "
        "over. All below is of the rest."
    )
    remaining: dict[int, float] = Field(
        description="Probability of each number of steps that remain; without a goal, of steps to "
        "the end, and the largest stands for that number or more."
    )


class Events(Protocol):
    """What a session was told, and what follows from it."""

    @property
    def follows_rows(self) -> bool:
        """Whether the events are rows of a video."""

    @property
    def seconds(self) -> float:
        """Time up to which rows were observed, or lost."""

    @property
    def events(self) -> int:
        """Number of events that `undo` can take back."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on steps that were not expected, oldest first."""

    @property
    def steps(self) -> tuple[BelievedStep, ...]:
        """Steps that are believed to be done, oldest first."""

    @property
    def outlook(self) -> SequencePosterior:
        """Distribution of what follows."""

    @property
    def next_actions(self) -> torch.Tensor:
        """Probability that each action is the next step [K]."""

    @property
    def tasks(self) -> torch.Tensor:
        """Probability of each task [C]."""

    @property
    def finished(self) -> float:
        """Probability that nothing is left to do."""

    def copy(self) -> Self:
        """Return the same events, which go on by themselves."""

    def taking(self, at: float | None) -> Events:
        """Return the events to which an observation at a time is added (else ConfigError)."""

    def observe(self, observation: Observation | None, at: float | None) -> bool:
        """Add an observation, and return whether it was new."""

    def done(self, action: int) -> None:
        """Add a step that was done."""

    def undo(self) -> None:
        """Take back the last event."""

    def finish(self) -> None:
        """Tell that no row follows, until one does (ConfigError without rows)."""

    def followed(self, ahead: Sequence[Likely], least: float, lag: float) -> Followed:
        """Return what was recognised in rows, with the next steps; arguments of a `Session`."""


def check_lag(lag: float) -> None:
    """Refuse seconds that are out of the range of `Session.followed` (ConfigError)."""
    if not 0 <= lag <= LONGEST_LAG:
        problem = f"lag {lag:g}: expected 0 to {LONGEST_LAG:g} seconds"
        raise ConfigError(f"{problem}.", setting="lag")


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
        ConfigError: A run whose planner guides no sessions, or an unknown task.
        RunError: A goal of another width.
    """

    def __init__(
        self,
        run: OpenedRun,
        *,
        goal: Observation | None = None,
        task: int | str | None = None,
        done: Sequence[int | str] | None = (),
        read: Callable[[str, Observation], NDArray[np.floating[Any]]] | None = None,
    ) -> None:
        self.run = run
        self.task = None if task is None else find_task(run.taxonomy, task)
        if isinstance(done, str):
            raise ConfigError(f"done is {done!r}; expected a list of actions.", setting="done")
        begin = Begin(run, self.task, None, None, read)
        if not hasattr(find_method(run.method).planner, "ranked"):
            check_sessions(run)  # refuses it; the planner of another one is opened when it is used
        if goal is not None:
            begin = replace(begin, goal_features=begin.features("goal", goal))
        if done is not None:
            actions = [find_done(run.taxonomy, action, task=self.task) for action in done]
            begin = replace(begin, done=tuple(map(begin.certain, actions)))
        self._begin = begin
        self._events: Events = StepSession(begin)
        # after these events
        self._plans = dict[tuple[int, int | None, int | None], list[PlannedSequence]]()

    def copy(self) -> Self:
        """Return a session of the same events, which goes on by itself."""
        other = copy(self)
        other._events = self._events.copy()
        return other

    @property
    def events(self) -> int:
        """Number of events that `undo` can take back."""
        return self._events.events

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on steps that were not expected, oldest first."""
        return self._events.notes

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
        events = self._events.taking(at)
        new = events.observe(observation, at)
        self._events = events
        if new:
            self._plans = {}
        return new

    @property
    def follows_rows(self) -> bool:
        """Whether rows of a video were observed."""
        return self._events.follows_rows

    @property
    def seconds(self) -> float:
        """Time up to which rows of a video were observed, or lost."""
        return self._events.seconds

    @property
    def outlook(self) -> SequencePosterior:
        """Distribution of the sequences that may follow."""
        return self._events.outlook

    def followed(self, top_k: int = 5, *, least: float = FINDING, lag: float = 0.0) -> Followed:
        """Return what was recognised in the rows so far, and what was wrong.

        Args:
            top_k: Number of next steps.
            least: Least probability of a finding.
            lag: Tell which step went on so many seconds ago, which later rows make surer.

        Raises:
            ConfigError: No row was observed, or a lag that is out of range.
        """
        check_lag(lag)
        return self._events.followed(self.likely_next(top_k), least, lag)

    @full_precision()
    def done(self, action: int | str) -> None:
        """Add a step that was done, by its id or name: of the likeliest task, else of any task.

        A step that was inferred becomes certain, if it is the one that is likelier meant. While
        rows of a video are followed, it is the step that goes on.
        """
        task = int(self.outlook.log_tasks.argmax())
        self._events.done(find_done(self.run.taxonomy, action, task=task))
        self._plans = {}

    def undo(self) -> None:
        """Take back the last observation or step done.

        Raises:
            ConfigError: There is none.
        """
        self._events.undo()
        self._plans = {}

    def finish(self) -> None:
        """Tell that the film is over, until a further row comes: no step goes on.

        Steps that did not come count as missing, and all rows are judged as a whole video.

        Raises:
            ConfigError: No row was observed.
        """
        self._events.finish()
        self._plans = {}

    @full_precision()
    def next_steps(self, top_k: int = 5) -> list[tuple[str, float]]:
        """Return the names of the likeliest next steps and their probabilities, likeliest first."""
        return [(step.name, step.probability) for step in self.likely_next(top_k)]

    @full_precision()
    def likely_next(self, top_k: int = 5) -> list[Likely]:
        """Return the likeliest next steps, likeliest first."""
        if top_k < 1:
            raise ConfigError(f"top_k {top_k}: expected at least 1.", setting="top_k")
        names, shares = self.run.taxonomy.actions, self._events.next_actions
        order = shares.argsort(descending=True, stable=True)[:top_k].tolist()
        ranked = (Likely(id=a, name=names[a].name, probability=float(shares[a])) for a in order)
        return [step for step in ranked if step.probability > 0]

    @torch.inference_mode()
    @full_precision()
    def plans(
        self, top_k: int = 5, steps: int | None = None, *, first: int | None = None
    ) -> list[PlannedSequence]:
        """Return the likeliest plans of the steps that follow, best first.

        Args:
            top_k: Number of plans.
            steps: Their length; None for all lengths of the run, in one ranking.
            first: Id of the action that they begin with; any by default.

        Raises:
            ConfigError: A length that the run does not plan.
        """
        if (top_k, steps, first) in self._plans:
            return [*self._plans[top_k, steps, first]]
        run = self.run if steps is None else self.run.with_steps(steps, steps)
        planner, lengths = check_sessions(run), self._begin.model.lengths
        query = Queries.partial(size=planner.observation_dim)
        check_queries(planner, query, top_k)
        outlook = self.outlook
        if first is not None:
            begins = self._begin.states.actions == first
            outlook = outlook.weighed(torch.where(begins, 0.0, -torch.inf))
        kept = [lengths.index(length) for length in planner.lengths]
        scores = [outlook.scores[place] for place in kept]
        log_tasks = torch.stack([length_scores.log_tasks()[0] for length_scores in scores])
        log_lengths = outlook.log_lengths[kept].log_softmax(dim=0)
        (ranked,) = planner.ranked(query, scores, log_lengths[None], log_tasks[None], top_k)
        assert ranked.tasks is not None  # of `ranked`
        plans = planned_sequences(ranked, ranked.tasks.tolist(), run.taxonomy)
        self._plans[top_k, steps, first] = plans
        return [*plans]

    @full_precision()
    def plans_by_next(self, top_k: int = 5, steps: int | None = None) -> list[PlannedSequence]:
        """Return the plans that begin with the likeliest next step first, then the others.

        Args:
            top_k: Number of plans.
            steps: Their length, as in `plans`.

        Raises:
            ConfigError: A length that the run does not plan.
        """
        plans = self.plans(top_k, steps)
        likely = [step.id for step in self.likely_next(top_k)]
        ranks = {action: rank for rank, action in enumerate(likely)}
        plans.sort(key=lambda plan: ranks.get(plan.actions[0], len(ranks)))  # stable
        share = float(self.outlook.next_actions()[likely[0]]) if likely else 0.0
        if plans and share > 0 and plans[0].actions[0] != likely[0]:
            (best,) = self.plans(1, steps, first=likely[0])
            joint = {"probability": share * (best.probability or 0.0)}
            plans = [best.model_copy(update=joint), *plans][:top_k]
        return plans

    @full_precision()
    def belief(self) -> Belief:
        """Return what is believed of the task, of the steps done and of those that remain."""
        outlook, taxonomy = self.outlook, self.run.taxonomy
        tasks = self._events.tasks.clamp(max=1.0)
        order = tasks.argsort(descending=True, stable=True).tolist()
        done: list[DoneStep] = []
        unseen: list[DoneStep] = []
        for step in self._events.steps:
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
            finished=self._events.finished,
            remaining=dict(zip(self._begin.model.lengths, lengths, strict=True)),
        )
