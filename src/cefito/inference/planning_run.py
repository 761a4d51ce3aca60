"""Questions to a run in Python, with names in and names out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeGuard, TypeVar, Unpack

import numpy as np
from numpy.typing import NDArray

from cefito.data.windows import Scene
from cefito.errors import ConfigError, DataError
from cefito.files import has_ending
from cefito.inference.answer import Answer, answer
from cefito.inference.constraints import Name
from cefito.inference.observer import Observation, ObservationRecipe, Observer
from cefito.inference.query import (
    check_width,
    find_video,
    load_observation,
    observation_of_step,
)
from cefito.inference.question import Facts
from cefito.inference.session import Session
from cefito.planners.queries import Queries
from cefito.runs import finetune as finetuning
from cefito.runs import run as runs
from cefito.runs import train as training
from cefito.runs.matching import DatasetMatch, DatasetName, match_dataset
from cefito.runs.run import Run

__all__ = ["Observation", "PlanningRun", "finetune", "open_run", "train_run", "train_runs"]

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")
Answering = TypeVar("Answering")


class PlanningRun(Run):
    """A finished run that answers questions."""

    def plan(
        self,
        *,
        start: Observation | None = None,
        goal: Observation | None = None,
        goal_text: str | None = None,
        dataset: Path | str | None = None,
        encoder: str | None = None,
        **facts: Unpack[Facts],
    ) -> Answer:
        """Plan the steps between two observations; actions and tasks are given by name or id.

        Args:
            start: The observation before the first step, see `Observation`; None if it is not
                known.
            goal: The observation after the last step; None to plan to the end of the procedure.
            goal_text: The scene after the last step in words, instead of a goal; for runs on
                features of CLIP.
            dataset: The data set of a video, by default the run's.
            encoder: Encoder of pictures, as in `ObservationRecipe.open`; by default that of the
                run's features.
            facts: Fields of `cefito.inference.question.Question`, and of its constraints beside
                them, as `Facts` lists them.

        Raises:
            ConfigError: An argument that is invalid, or that the planner cannot follow.
            DataError: A file that cannot be used.
            RunError: Observations of another kind, or a data set or an encoder is missing.
        """
        if goal is not None and goal_text is not None:
            raise ConfigError(
                "goal and goal_text are both given. Leave one out.", setting="goal_text"
            )
        match = None
        if _is_place(start) or _is_place(goal):
            match = match_dataset(self, self.dataset(dataset))
        query = Queries.partial(
            size=self.planner.observation_dim,
            initial=None if start is None else self._observe("start", start, match, encoder),
            goal=None if goal is None else self._observe("goal", goal, match, encoder),
        )
        query = query.with_scenes(_scene(start, match, "start"), _scene(goal, match, "end"))
        if goal_text is not None:
            ObservationRecipe.of(self).check_text(encoder)
            query = query.with_goal(self._observer(encoder).of_text(goal_text))
        other = None if match is None or match.own else DatasetName.of(match.dataset)
        return answer(self, query, dataset=other, **facts)

    def session(
        self,
        *,
        goal: Observation | None = None,
        task: Name | None = None,
        done: Sequence[Name] | None = (),
        dataset: Path | str | None = None,
        encoder: str | None = None,
    ) -> Session:
        """Open a live session, which follows a procedure.

        Args:
            goal: The observation after the last step; None to plan to the end of the procedure.
            task: The task, if it is known.
            done: The actions done before, oldest first, by default none; None if they are not
                known.
            dataset: The data set of videos, by default the run's.
            encoder: Encoder of pictures, as in `plan`.

        Raises:
            ConfigError: A run of another method than any-length, or an unknown task.
            DataError: A file that cannot be used.
            RunError: A goal of another kind, or a data set or an encoder is missing.
        """
        match: DatasetMatch | None = None

        def read(name: str, source: Observation) -> NDArray[np.floating[Any]]:
            nonlocal match
            if match is None and _is_place(source):
                match = match_dataset(self, self.dataset(dataset))
            return self._observe(name, source, match, encoder)

        return Session(self, goal=goal, task=task, done=done, read=read)

    def _observe(
        self, name: str, source: Observation, match: DatasetMatch | None, encoder: str | None
    ) -> NDArray[np.floating[Any]]:
        """Return the observation [E] of an argument."""
        row: NDArray[np.floating[Any]]
        if match is not None and _is_place(source):
            return observation_of_step(match.dataset, *source, "end" if name == "goal" else "start")
        if isinstance(source, str | Path) and not has_ending(Path(source), (".npy",)):
            (row,) = self._observer(encoder).of_pictures(source, None).initial
            return row
        row = load_observation(source) if isinstance(source, str | Path) else np.asarray(source)
        if row.ndim != 1:
            raise DataError(f"{name}: has shape {list(row.shape)}; expected one observation [E].")
        check_width(self, len(row), f"{name}: the observation has")
        return row

    def _observer(self, encoder: str | None) -> Observer:
        """Return an encoder, opened once."""
        if encoder not in self._observers:
            self._observers[encoder] = ObservationRecipe.of(self).open(encoder)
        return self._observers[encoder]

    @cached_property
    def _observers(self) -> dict[str | None, Observer]:
        """Encoders that are open, by name."""
        return {}


def _scene(source: Observation | None, match: DatasetMatch | None, moment: str) -> Scene | None:
    """Return where the picture of an observation is; None if it has none."""
    if match is not None and _is_place(source):
        data, (video, step) = match.dataset, source
        step_of = data.videos[find_video(data, video)].steps[step - 1]
        folder = data.video_folder
        return None if folder is None else Scene(folder, getattr(step_of, moment), video)
    is_picture = isinstance(source, str | Path) and Path(source).suffix.lower() != ".npy"
    return Scene(Path(str(source))) if is_picture else None


def _is_place(source: Observation | None) -> TypeGuard[tuple[str, int]]:
    """Return whether an observation is given as a video id and a step."""
    return isinstance(source, tuple) and len(source) == 2 and isinstance(source[0], str)


def _answering(run: Run) -> PlanningRun:
    return PlanningRun(**{field.name: vars(run)[field.name] for field in fields(run)})


def _converted(
    make: Callable[Arguments, Made], convert: Callable[[Made], Answering]
) -> Callable[Arguments, Answering]:
    """Return `make` with its result, a run or runs by horizon, converted to `PlanningRun`."""

    @wraps(make)
    def made(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Answering:
        return convert(make(*args, **kwargs))

    return made


open_run = _converted(runs.open_run, _answering)
train_run = _converted(training.train_run, _answering)
train_runs = _converted(
    training.train_runs, lambda made: {horizon: _answering(run) for horizon, run in made.items()}
)
finetune = _converted(finetuning.finetune, _answering)
