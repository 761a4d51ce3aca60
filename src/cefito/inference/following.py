"""What rows of a whole video say to a live session: steps done, next steps, findings."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from cefito.planners.chain.states import TaskStates
from cefito.recognition.stream import StepStream
from cefito.settings import Record
from cefito.tracks import TimedStep
from cefito.tracks.track import stored
from cefito.verification.verifier import Deviation

if TYPE_CHECKING:
    from cefito.runs.run import Run

FINDING = 0.8
"""Least probability of a mistake that is reported."""


class Likely(Record):
    """A task or an action and its probability."""

    id: int
    name: str
    probability: float


class Followed(Record):
    """What was recognised in the rows of a video so far."""

    seconds: float = Field(description="Time of the last row, and of the step after it.")
    now: TimedStep | None = Field(description="The step that goes on; null in a pause.")
    done: list[TimedStep] = Field(description="Steps before it, oldest first.")
    next: list[Likely] = Field(description="Next steps, likeliest first.")
    task: Likely = Field(description="The likeliest task.")
    findings: list[Deviation] = Field(
        default=[], description="What was wrong in the steps done, likeliest first."
    )


class RowFollower:
    """Follows the rows of a video for a session.

    Args:
        run: A run of the method any-length.
        task: Id of the task; None to have it inferred.

    Raises:
        RunError: The run has no recogniser.
    """

    def __init__(self, run: Run, task: int | None) -> None:
        self.stream = StepStream(run.own_recogniser, task)
        self._run = run
        self.told: set[float] = set()  # starts of steps that were reported
        # findings, beside all that they depend on
        self._verified: tuple[tuple[Any, ...], list[Deviation]] = ((), [])

    def copy(self) -> Self:
        """Return a follower of the same rows, which goes on by itself."""
        other = copy(self)
        other.stream, other.told = self.stream.copy(), {*self.told}
        return other

    def correct(self, action: int) -> None:
        """Tell that the step of an action goes on now."""
        self.stream.correct(action)
        self.told |= {step.start for step in self.stream.steps()[-1:]}

    def goes_on(self, steps: list[TimedStep]) -> bool:
        """Whether the last step lasts up to the last row."""
        return bool(steps) and steps[-1].end >= self.stream.seconds

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
        """Join the last rows to an observation [E], as those around a time in training.

        The last row is repeated for the rows after it. None if that row was lost, or if the width
        of an observation is not an odd number of rows.
        """
        rows, size = self.stream.shown, self._run.planner.observation_dim
        count, rest = divmod(size, self.stream.recogniser.width)
        if not rows or rest or count % 2 == 0:
            return None
        half = count // 2
        kept = np.stack(rows[-half - 1 :])
        padding = ((half + 1 - len(kept), half), (0, 0))
        return np.pad(kept, padding, mode="edge").reshape(-1)

    def followed(self, ahead: list[Likely], least: float) -> Followed:
        """Return what was recognised, with the given next steps and findings that are likely."""
        stream, taxonomy = self.stream, self._run.taxonomy
        steps, tasks = stream.steps(), stream.tasks
        going, task = self.goes_on(steps), int(tasks.argmax())
        done = steps[:-1] if going else steps
        state = task, least, *done
        if state != self._verified[0]:
            self._verified = state, self._findings(done, task, least)
        return Followed(
            seconds=stream.seconds,
            now=steps[-1] if going else None,
            done=done,
            findings=self._verified[1],
            next=ahead,
            task=Likely(id=task, name=taxonomy.tasks[task].name, probability=float(tasks[task])),
        )

    def _findings(self, done: list[TimedStep], task: int, least: float) -> list[Deviation]:
        """Return what was wrong in the steps of a task that were recognised."""
        if self._run.verifier is None or not done:
            return []
        found = self._run.verifier.verify(
            stored(done),
            task,
            sure=[step.probability for step in done],
            finished=False,
            least=least,
        )
        return list(found.deviations)
