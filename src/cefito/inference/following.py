"""Sessions that follow the rows of a whole video: steps done, next steps, findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch.nn import functional as F

from cefito.errors import ConfigError
from cefito.inference.observer import Observation
from cefito.inference.outlook import (
    DOUBT,
    GOAL_DOUBT,
    OWN,
    Begin,
    BelievedStep,
    Likely,
    change,
    doubted,
)
from cefito.inference.whole_videos import limits_of_film
from cefito.planners.any_length.guidance import SequencePosterior
from cefito.planners.chain.states import TaskStates
from cefito.recognition.stream import StepStream, step_stream
from cefito.settings import Record
from cefito.tracks import TimedStep
from cefito.tracks.track import stored
from cefito.verification.correction import corrected_steps
from cefito.verification.findings import Deviation, Findings, UnsureStep

FINDING = 0.6
"""Least probability of a mistake that is reported."""
LONGEST_LAG = 20.0
"""Seconds that the present step can be told later: rows are settled after more."""
_DRAWN = 16  # sequences of steps, while a film goes on
_SURE_END = 2.0  # seconds after which the end of a step seldom changes
_LONGER = 1.05  # times its last length, a film is judged again, so that a row's cost does not grow
_UNDONE = 20, 600  # most reports that can be taken back, and rows after the last of them


class Followed(Record):
    """What was recognised in the rows of a video so far."""

    seconds: float = Field(description="Time of the last row, and of the step after it.")
    now: TimedStep | None = Field(description="The step that goes on; null in a pause.")
    done: list[TimedStep] = Field(description="Steps before it, oldest first.")
    next: list[Likely] = Field(
        description="Next steps, likeliest first; none once all steps of the task were begun."
    )
    task: Likely = Field(description="The likeliest task.")
    ended: float = Field(description="Probability that the last step is over.")
    findings: list[Deviation] = Field(
        default=[], description="What was wrong in the steps done, likeliest first."
    )
    unsure: list[UnsureStep] = Field(
        default=[], description="What all rows leave open, once the film is over."
    )


@dataclass(frozen=True)
class _Report:
    """A step that was reported: what was recognised before, and the rows after it."""

    stream: StepStream
    told: frozenset[float]
    rows: tuple[tuple[NDArray[np.floating[Any]] | None, float], ...] = ()


class FilmSession:
    """Guidance by rows of a video, by the run's recogniser (RunError if there is none)."""

    follows_rows = True

    def __init__(self, begin: Begin) -> None:
        self._begin, self._run = begin, begin.run
        self.stream = step_stream(begin.run.own_recogniser, begin.task)
        if begin.run.verifier is not None:
            self.stream.doubted()
        self.told: frozenset[float] = frozenset()  # start times of the reported steps
        self._reports: tuple[_Report, ...] = ()  # those that `undo` can take back
        self._seen = False  # whether a row was new, or a step was reported
        self._over = False  # whether no row follows
        # two results, each stored with its key: findings in drawn sequences (key: task, whether the
        # film is over, number of steps done, rows), and deviations and doubts (key: these findings,
        # probability of the task, least probability, steps done)
        self._drawn: tuple[tuple[Any, ...], Findings]
        self._verified: tuple[tuple[Any, ...], list[Deviation], list[UnsureStep]]
        self._wait = 0.0  # second of the film from which sequences are drawn again
        self._judge_again()

    def copy(self) -> Self:
        """Return a session of the same rows, which goes on by itself."""
        other = copy(self)
        other.stream = self.stream.copy()
        return other

    @property
    def events(self) -> int:
        """Number of reported steps that `undo` can take back; rows stay."""
        return len(self._reports)

    @property
    def seconds(self) -> float:
        """Time up to which rows were observed, or lost."""
        return self.stream.seconds

    @cached_property
    def steps(self) -> tuple[BelievedStep, ...]:
        """Steps that were recognised, oldest first; those done before, until a row is new."""
        if not self._seen:
            return self._begin.done or ()
        return tuple(
            BelievedStep(
                F.one_hot(torch.tensor(step.action), len(self._run.taxonomy.actions))
                * step.probability,
                reported=step.start in self.told,
                shown=True,
            )
            for step in self._recognised
        )

    @cached_property
    def outlook(self) -> SequencePosterior:
        """What follows; the next step is inferred from all rows."""
        begin = self._begin
        if not self._seen:
            return begin.outlook(None, self.steps)
        shown, states = self.observation(), begin.states
        initial = None if shown is None else begin.encoded(shown)
        outlook = begin.outlook(initial, self.steps)
        with torch.inference_mode():
            expected = doubted(self.log_expected(states), DOUBT)
            if begin.goal is not None:
                # the recogniser knows no goal: p(a | rows) √(p(a | goal) / p(a))
                without = begin.posterior(initial, self.steps, goal=None).log_first
                ratio = doubted(outlook.log_first, GOAL_DOUBT) - doubted(without, GOAL_DOUBT)
                expected = expected + ratio / 2
            return led(outlook, expected, states.actions == self.going)

    @property
    def going(self) -> int:
        """Action of the step that lasts up to the last row; −1 in a pause."""
        steps = self._recognised
        return stored(steps[-1:])[0].action if self.goes_on(steps) else -1

    @property
    def next_actions(self) -> torch.Tensor:
        """Probability that each action is the next step [K]: another than the one that goes on."""
        to_goal = self._seen and self._begin.goal is not None
        told = None if to_goal else torch.from_numpy(self.stream.next_actions)
        shares = self.outlook.next_actions() if told is None else told.clone()
        going = self.going if self._seen else -1
        if going >= 0 and float(shares.sum() - shares[going]) > 0:
            shares[going] = 0
            shares /= shares.sum()
        shares[self._all_done()] = 0
        return shares

    @property
    def notes(self) -> tuple[str, ...]:
        """Why mistakes may go unseen, and the task is in doubt, once the film is over."""
        run, tasks = self._run, self.tasks
        if not self._over or run.verifier is None:
            return ()
        task = int(tasks.argmax())
        return limits_of_film(run, run.verifier, task, float(tasks[task]))

    @property
    def tasks(self) -> torch.Tensor:
        """Probability of each task [C]; half of it once the whole film shows none of them."""
        if self._seen and self._begin.goal is None:
            return self._known * torch.from_numpy(self.stream.tasks)
        return self._known * self.outlook.log_tasks.exp()

    @property
    def _known(self) -> float:
        return 0.5 if self._over and self.stream.strange else 1.0

    @property
    def ended(self) -> float:
        """Probability that the last step of the procedure is over; 0 before a step was seen."""
        return self.stream.ended if self._recognised else 0.0

    @property
    def finished(self) -> float:
        """Probability that the last step is over; 1 if no step is left, or the film is over."""
        if self._over:
            return 1.0
        if not self._seen or self.going >= 0:
            return 0.0
        left = self._begin.goal is not None or self.next_actions.any()
        return self.ended if left else 1.0

    def taking(self, at: float | None) -> Self:
        """Return this session; an observation without a time is refused (ConfigError)."""
        if at is None:
            raise ConfigError("the session follows rows of a video. Give the time of each.")
        return self

    def observe(self, row: Observation | None, at: float | None) -> bool:
        """Add a row at a time, None if it was lost; return whether it is after the last one."""
        assert at is not None  # by `taking`
        read, width = self._begin.read, self._run.own_recogniser.width
        if read is not None and isinstance(row, str | Path | tuple):
            row = read("row", row)[-width:]  # without those that are joined with it
        return self._observe(None if row is None else np.asarray(row), at)

    def _observe(self, row: NDArray[np.floating[Any]] | None, at: float) -> bool:
        new = self.stream.observe(row, at)
        if new:
            self._seen, self._over = True, False
            self._forget()
            if self._reports:
                *before, last = self._reports
                rows = (*last.rows, (row, at))
                kept = len(rows) <= _UNDONE[1]
                self._reports = (*before, replace(last, rows=rows)) if kept else ()
        return new

    def finish(self) -> None:
        """Tell that no row follows, until one does."""
        self._over = True
        self._forget()
        self.followed([], FINDING, 0.0)  # sees whether the film shows a known task

    def done(self, action: int) -> None:
        """Tell that the step of an action goes on now."""
        report = _Report(self.stream.copy(), self.told)
        self.stream.correct(action)
        self._reports = (*self._reports, report)[-_UNDONE[0] :]
        self.told |= {step.start for step in self.stream.steps()[-1:]}
        self._seen = True
        self._forget()
        self._judge_again()

    def undo(self) -> None:
        """Take back the last step that was reported; rows stay (ConfigError if there is none)."""
        if not self._reports:
            problem = "nothing to undo: rows of a video stay, and no step was reported in the last"
            raise ConfigError(f"{problem} {_UNDONE[1]} rows.")
        *before, last = self._reports
        self.stream, self.told, self._reports = last.stream.copy(), last.told, tuple(before)
        self._forget()
        self._judge_again()
        for row, at in last.rows:
            self._observe(row, at)

    def _judge_again(self) -> None:
        self._drawn, self._verified = ((), Findings()), ((), [], [])

    @cached_property
    def _recognised(self) -> list[TimedStep]:
        stream = self.stream  # once the film is over, its findings are of the steps in all rows
        task, verifier = int(stream.tasks.argmax()), self._run.verifier
        again = stream.steps_again(task) if self._over else []
        if again and verifier is not None:
            orders, taxonomy = verifier.orders[task], verifier.taxonomy
            again = [*corrected_steps(again, orders, taxonomy, finished=True)[0]]
        return again or stream.steps()

    def _forget(self) -> None:
        for name in ("steps", "outlook", "_recognised"):
            vars(self).pop(name, None)

    def goes_on(self, steps: list[TimedStep], later: int = 0) -> bool:
        """Whether the last step lasts up to the last row, or up to some rows before it."""
        end = self.stream.seconds - later / self.stream.recogniser.rate
        return bool(steps) and not self._over and steps[-1].end >= end - 1e-6

    def log_expected(self, states: TaskStates) -> torch.Tensor:
        """Return log p(state of the next step | rows) [S]."""
        places = {
            (task, int(action)): place
            for task, own in enumerate(self.stream.actions)
            for place, action in enumerate(own)
        }
        owners = zip(states.tasks.tolist(), states.actions.tolist(), strict=True)
        ahead = self.stream.next_states
        shares = [ahead[task, places[task, action]] for task, action in owners]
        return torch.tensor(shares).clamp(min=1e-30).log().float().log_softmax(dim=0)

    def observation(self) -> NDArray[np.float32] | None:
        """Return the observation [E] that the last rows show; None if they show none."""
        return joined_rows(
            self.stream.shown, self.stream.recogniser.width, self._run.planner.observation_dim
        )

    def followed(self, ahead: Sequence[Likely], least: float, lag: float) -> Followed:
        """Return what was recognised as of `Session.followed`, with next steps that are given."""
        stream, taxonomy = self.stream, self._run.taxonomy
        later = 0 if self._over else round(lag * stream.recogniser.rate)
        steps, tasks = stream.steps(later) if later else self._recognised, self.tasks
        going, task = self.goes_on(steps, later), int(tasks.argmax())
        done = steps[:-1] if going else steps
        judged = self._judged(done, task)
        certainty = round(self._known * float(stream.doubted_tasks[task]), 2)
        times = ((step.action, step.start, step.end) for step in done)
        state = judged, certainty, least, *times
        if state != self._verified[0]:
            facts = stored(done), certainty
            unsure: tuple[UnsureStep, ...] = ()
            if self._over and (verifier := self._run.verifier) is not None:
                unsure = judged.unsure(*facts, (verifier.config.unsure, least))
            self._verified = state, judged.deviations(*facts, least), [*unsure]
        late = True, steps[-1].action if going else None  # a step that comes now
        findings = [wrong for wrong in self._verified[1] if (wrong.omitted, wrong.action) != late]
        return Followed(
            seconds=stream.seconds,
            now=steps[-1] if going else None,
            done=done,
            findings=findings,
            unsure=self._verified[2],
            ended=self.ended,
            next=[*ahead],
            task=Likely(
                id=task, name=taxonomy.tasks[task].name, probability=float(self.tasks[task])
            ),
        )

    def _all_done(self) -> list[int]:
        """Actions that nothing expects, once all usual ones were begun: done, or of other tasks."""
        if not self._seen or self._run.verifier is None:
            return []
        order = self._run.verifier.orders[int(self.tasks.argmax())]
        counts = Counter(step.action for step in self._recognised)
        if any(counts[action] == 0 for action in order.actions[order.usual >= 0.5].tolist()):
            return []
        often = dict(zip(order.actions.tolist(), 1 + order.repeated.round(), strict=True))
        actions = range(len(self._run.taxonomy.actions))
        return [action for action in actions if counts[action] >= often.get(action, 0)]

    def _judged(self, done: list[TimedStep], task: int) -> Findings:
        """Return what was wrong in the steps of a task.

        Networks of the past alone may mistake a step for the usual one. So if rows are kept,
        networks of whole videos judge those up to the end of the last step that has been over for
        `_SURE_END`, once the film is `_LONGER`; when it is over, all of them.
        """
        stream, over = self.stream, self._over
        until = stream.seconds - (0.0 if over else _SURE_END) + 1e-6
        done = [step for step in done if step.end <= until]
        if self._run.verifier is None or not done:
            return Findings()
        end = round((stream.seconds if over else done[-1].end) * stream.recogniser.rate)
        rows = (len(done), end) if stream.keeps_rows else (0, stream.doubted_rows)
        key, before = (task, over, *rows), self._drawn[0]
        waits = key[:2] == before[:2] and key[2] >= before[2] and stream.seconds < self._wait
        if key != before and not waits:
            count = stream.recogniser.config.drawn if over else _DRAWN
            again = stream.drawn_again(task, count, end, either=over)
            drawn = again or stream.drawn_steps(task, count)
            findings = self._run.verifier.judge(
                stored(done),
                task,
                sure=[step.probability for step in done],
                drawn=drawn,
                finished=over,
            )
            if not any(drawn):
                return findings
            self._drawn, self._wait = (key, findings), _LONGER * stream.seconds
        return self._drawn[1]


def led(
    outlook: SequencePosterior, expected: torch.Tensor, going: torch.Tensor
) -> SequencePosterior:
    """Return a distribution that is led by the next step of the rows.

    Args:
        outlook: The network's distribution.
        expected: log p(state of the next step | rows) [S].
        going: States of the step that goes on [S]: it is seen, so the network does not expect it
            again.
    """
    whole = change(outlook, expected)
    shared = (1 - OWN) * whole
    return outlook.weighed(torch.where(going, torch.minimum(whole, shared), shared))


def joined_rows(
    rows: Sequence[NDArray[np.float32]], width: int, size: int
) -> NDArray[np.float32] | None:
    """Join the last of rows [D] to an observation [E], as those around a time in training.

    The last row is repeated for the rows after it. None if that row was lost, so that there are no
    rows, or if the width of an observation is not an odd number of rows.

    Args:
        rows: Rows up to the last one, oldest first.
        width: D.
        size: E.
    """
    count, over = divmod(size, width)
    if not rows or over or count % 2 == 0:
        return None
    half = count // 2
    kept = np.stack(rows[-half - 1 :])
    padding = ((half + 1 - len(kept), half), (0, 0))
    return np.pad(kept, padding, mode="edge").reshape(-1)
