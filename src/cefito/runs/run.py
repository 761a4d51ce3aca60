"""The `Run` that users open: questions to it in Python, with names in and names out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, Unpack

import numpy as np
from numpy.typing import NDArray

from cefito.data.prepared import Scene
from cefito.errors import ConfigError, DataError
from cefito.files import has_ending
from cefito.inference.answer import Answer, answer
from cefito.inference.constraints import Name
from cefito.inference.observer import Observation, ObservationRecipe, Observer
from cefito.inference.query import check_width, find_video, load_observation, observation_of_step
from cefito.inference.question import Facts, planning, steps_range
from cefito.parts.folder import horizons_in
from cefito.parts.matching import DatasetMatch, DatasetName, match_dataset
from cefito.parts.opened import OpenedRun
from cefito.planners.queries import Queries

if TYPE_CHECKING:
    import torch

    from cefito.inference.session import Session

__all__ = ["Observation", "PlanningRun", "Run", "follow", "open_run", "run_for_steps"]


class Run(OpenedRun):
    """A finished run that answers questions.

    Args:
        folder: The run folder.
        planner: The trained planner.
        info: Content of `run.json`.
        config: All settings.
        taxonomy: Tasks and actions that the run knows.
        chosen_steps: Numbers of steps of the shortest and the longest plan; None for all.
        files: SHA-256 of each file, by name; empty if unknown.
        videos: Ids of the videos of training and validation; None if unknown.
        coverage: Thresholds of sets of plans; None if it is not calibrated.
        recogniser: Recogniser of steps in whole videos; None without one.
        verifier: Verifier of steps; None without one.
        copy_of: Archive that the folder is a copy of; empty if it is none.
    """

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
            ConfigError: A run whose planner guides no sessions, or an unknown task.
            DataError: A file that cannot be used.
            RunError: A goal of another kind, or a data set or an encoder is missing.
        """
        from cefito.inference.session import Session  # plans need none

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


PlanningRun = Run  # an earlier name


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


def open_run(
    folder: Path | str,
    *,
    horizon: int | None = None,
    device: torch.device | str | None = None,
    plans: bool = True,
) -> Run:
    """Open a finished run: a run folder, or a zip archive of one.

    Args:
        folder: A run folder, or one that holds runs of several horizons (`train_runs`).
        horizon: T of the run; may be left out if there is only one run. A run of several
            lengths then plans this one alone.
        device: Where it plans; the CPU by default.
        plans: Refuse at once a method or settings that are not of this version; else when the
            planner is used.

    Raises:
        RunError: No run, none of this horizon, several and no horizon, an unfinished one,
            damaged files, files that have changed since they were written or do not fit each
            other, or an unknown device.
    """
    return Run.open(folder, horizon=horizon, device=device, plans=plans)


def run_for_steps(
    folder: Path | str,
    *,
    horizon: int | None = None,
    steps: int | str | None = None,
    device: torch.device | str | None = None,
) -> Run:
    """Open a run that plans these numbers of steps; `horizon` and `device` are as in `open_run`.

    One number of steps also chooses among runs of several horizons.

    Raises:
        ConfigError: Not a number or range, or the run does not plan it.
        RunError: See `open_run`.
    """
    if steps is not None:
        shortest, longest = steps_range(steps)
        if horizon is not None and (shortest, longest) != (horizon, horizon):
            raise ConfigError(f"horizon {horizon} and steps {steps}: leave out one of both.")
        if shortest == longest and horizons_in(Path(folder)):
            horizon = shortest
    return planning(open_run(folder, horizon=horizon, device=device), steps)


def follow(
    run: Run | Path | str, *, task: Name | None = None, goal: Observation | None = None
) -> Session:
    """Open a session that follows a video row by row, which `Session.observe` takes with its time.

    Args:
        run: A run of several lengths with a recogniser, or its folder.
        task: Id or name of the task; by default it is inferred.
        goal: The observation after the last step, as in `Run.session`.

    Raises:
        ConfigError: A run that cannot follow, or an unknown task.
        RunError: The run has no recogniser, or a goal of another width.
    """
    from cefito.recognition.stream import step_stream

    opened = run if isinstance(run, Run) else open_run(Path(run))
    _ = step_stream(opened.own_recogniser)  # refuses before the first row comes
    return opened.session(task=task, goal=goal)
