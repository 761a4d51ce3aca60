"""Options of commands that plan: the query, number of steps, task, constraints and search."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, get_origin

from cyclopts import Parameter

from cefito.cli.console import passing_progress
from cefito.cli.options import (
    CONSTRAINTS,
    OUTPUT,
    PLANS,
    QUERY,
    SEARCH,
    Device,
    Moment,
    Several,
    field_options,
    option_name,
    with_options,
)
from cefito.cli.values import Flag
from cefito.data.vocabulary import find_task
from cefito.errors import ConfigError
from cefito.inference.constraints import Name, parse_constraints
from cefito.inference.question import AnyQuestion, Question
from cefito.planners.base_planner import check_partial
from cefito.planners.queries import Queries
from cefito.planners.shared.settings import PlanningConfig
from cefito.runtime import pick_device
from cefito.search.constraints import Constraints, declared
from cefito.settings import validated

if TYPE_CHECKING:
    import torch
    from numpy import int64
    from numpy.typing import NDArray

    from cefito.inference.observer import Observer
    from cefito.runs.run import Run


_NAMES = {"method": "--search", "budget_gflop": "--budget"}
"""Options with another name than their setting."""

_OF_TRAINING = ("actions", "fitting_windows")
"""Settings that are decided when a run is trained."""


def option_of(setting: str) -> str:
    """Return the option of a setting of the search."""
    return _NAMES.get(setting, option_name(setting))


def _descriptions() -> dict[str, str]:
    """Return the description of each setting from the docstrings."""
    docs = [inspect.cleandoc(kind.__doc__ or "") for kind in PlanningConfig.__mro__]
    attributes = "\n".join(doc.partition("Attributes:\n")[2] for doc in docs)
    entries = re.findall(r"^    (\w+): (.*(?:\n     +.*)*)", attributes, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _search_options() -> Iterator[tuple[str, Any, Any]]:
    """Yield name, type and default of each option."""
    descriptions = _descriptions()
    for name, setting in PlanningConfig.model_fields.items():
        parameter = Parameter(name=option_of(name), help=descriptions.get(name, ""))
        if name not in _OF_TRAINING:
            yield name, Annotated[Optional[setting.annotation], parameter], None  # noqa: UP045


@with_options(_search_options(), SEARCH)
class SearchOptions:
    """Settings of the search: fields of `PlanningConfig`, by default the run's."""

    def applied(self, run: Run) -> Run:
        """Return the run with the given settings."""
        changes = {name: value for name, value in vars(self).items() if value is not None}
        return run.with_search(**changes) if changes else run


AS_TRAINED = SearchOptions()
"""Nothing changed."""


def _constraint_options() -> Iterator[tuple[str, Any, Any]]:
    """Yield name, type and default of each option."""
    for name, (kind, how) in declared().items():
        parameter = Parameter(name=option_name(how.option), negative="", help=how.help)
        text = Several if get_origin(kind) is tuple else kind
        yield name, Annotated[text, parameter], getattr(Constraints, name)


@with_options(_constraint_options(), CONSTRAINTS)
class ConstraintOptions:
    """Constraints of every plan as text, by the fields of `Constraints`."""


UNCONSTRAINED = ConstraintOptions()


_FACTS = {name: info for name, info in Question.model_fields.items() if name != "constraints"}
_TEXT = Annotated[str | None, Parameter(allow_leading_hyphen=True)]
_FROM_TEXT: dict[Any, Any] = {Name | None: _TEXT, tuple[Name, ...] | None: Several}


@with_options(field_options(_FACTS, kinds=_FROM_TEXT, group=PLANS), PLANS)
@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """How to plan; its further fields are the facts of a `Question`.

    Attributes:
        horizon: Number of actions, if the folder holds runs of several.
        json: Print JSON.
    """

    constraints: ConstraintOptions = UNCONSTRAINED
    horizon: int | None = None
    device: Annotated[Device, Parameter(group=SEARCH)] = "auto"
    json: Annotated[Flag, Parameter(group=OUTPUT)] = False

    def open(self, folder: Path, search: SearchOptions) -> tuple[Run, torch.device]:
        """Open a run with the search of the options, and return it with its device."""
        from cefito.runs.run import run_for_steps

        device, steps = pick_device(self.device), vars(self)["steps"]
        run = run_for_steps(folder, horizon=self.horizon, steps=steps, device=device)
        return search.applied(run), device

    def question(self, run: Run, kind: type[AnyQuestion], **more: Any) -> AnyQuestion:
        """Return what is asked of a run, with names as they were given."""
        facts: dict[str, Any] = {name: vars(self)[name] for name in _FACTS}
        for name, value in facts.items():
            if isinstance(value, tuple):  # "" for an empty list, nothing for None
                facts[name] = (() if value == ("",) else value) if value else None
        task = None if facts["task"] is None else find_task(run.taxonomy, facts["task"])
        if any((texts := vars(self.constraints)).values()):
            facts["constraints"] = parse_constraints(run.taxonomy, texts, task=task)
        return validated(kind, {**facts, **more}, place="question")


DEFAULTS = PlanOptions()


_KINDS = {  # options that choose a kind of query, and those that go with it
    "a video of a data set": ({"video"}, {"from_step", "without_goal", "after_done", "dataset"}),
    "a video file": ({"video"}, {"start", "end", "encoder", "weights"}),
    "features": ({"features"}, {"start", "end", "seconds", "precision"}),
    "files of observations": ({"initial", "goal"}, set[str]()),
    "pictures": ({"initial_image", "goal_image"}, {"encoder", "weights"}),
    "no observation": (set[str](), set[str]()),
}
_GIVE = (
    "give --video (with --from-step, or a file with --start and --end), --initial and --goal, "
    "--features with --start and --end, or --initial-image and --goal-image"
)


@Parameter(name="*", group=QUERY)
@dataclass(frozen=True, kw_only=True)
class QueryOptions:
    """The query: a window of a video, files, features, a video file or pictures.

    Attributes:
        video: Id of a video of the data set, or a video file with --start and --end.
        from_step: Number of the first step to plan, counted from 1; the plan covers as many steps
            as the run's horizon, or, for a run of several lengths, the rest of the video, at most
            the longest length.
        initial: .npy file of the observation before the first step.
        goal: .npy file of the observation after the last step.
        initial_image: Picture of the scene before the first step.
        goal_image: Picture of the scene after the last step.
        goal_text: The scene after the last step in words, as in "a folded tent", instead of a
            goal; for runs on features of CLIP.
        features: File with features of a video (.npy, .npz, .pt, .h5), one row a second, of the
            model that the run was trained on; with --start and --end. Rows are joined as in the
            run's data set.
        start: Second of the video at which the first step begins, as 62.5 or 1:02.5.
        end: Second of the video at which the last step ends.
        without_goal: With a video of the data set, plan without its goal observation.
        after_done: With a video of the data set, its steps before --from-step are known as done.
        dataset: Data set of --video, if not that of the run: any with observations that were made
            in the same way.
        encoder: As in cefito extract; by default the encoder of the run's data set.
        weights: The weights file of the encoder s3d.
        seconds: With --features, rows per observation; only for runs that do not record it.
        precision: With --features, storage type of the run's data set; only for runs that do not
            record it.
    """

    video: str | None = None
    from_step: int = 1
    initial: Path | None = None
    goal: Path | None = None
    initial_image: Path | None = None
    goal_image: Path | None = None
    goal_text: str | None = None
    features: Path | None = None
    start: Moment = None
    end: Moment = None
    without_goal: Flag = False
    after_done: Flag = False
    dataset: Path | None = None
    encoder: str | None = None
    weights: Path | None = None
    seconds: int | None = None
    precision: Literal["float16", "float32"] | None = None

    @property
    def given(self) -> set[str]:
        """Names of the options that are given."""
        return {name for name, value in vars(self).items() if value != vars(QueryOptions)[name]}

    @property
    def kind(self) -> str:
        """The kind of query, a key of `_KINDS`."""
        is_file = bool({"start", "end"} & self.given) or Path(self.video or "").is_file()
        for kind, (choosing, _) in _KINDS.items():
            if choosing & self.given and not (kind == "a video of a data set" and is_file):
                return kind
        return "no observation"

    def find(
        self, run: Run, device: torch.device, *, has_facts: bool
    ) -> tuple[Queries, NDArray[int64] | None]:
        """Return the query, and its annotated actions if they are known.

        Args:
            run: The run.
            device: Where observations are encoded.
            has_facts: Whether the task or steps done before are given.
        """
        kind = self._checked()
        initial, goal = self._ends(kind)
        has_facts = has_facts and run.planner.abilities.any_length
        if not (initial or goal or has_facts):
            raise ConfigError(
                f"{_GIVE}; a run of several lengths also takes one of both, or --task and --done."
            )
        if self.after_done or not (initial and goal):
            flags = {"without_goal": self.without_goal, "after_done": self.after_done}
            flag = next((name for name, is_set in flags.items() if is_set), None)
            check_partial(run.planner, flag or ("goal" if initial else "initial"))
        query, truth = self._observed(kind, run, device)
        if self.goal_text is not None:
            query = query.with_goal(self._observer(run, device).of_text(self.goal_text))
        return query, truth

    def _checked(self) -> str:
        """Return the kind of query; refuse options that do not go together."""
        kind, chosen = self.kind, self.given
        choosing, others = _KINDS[kind]
        if self.goal_text is not None:
            chosen -= {"goal_text", "encoder", "weights"}
            if chosen & {"goal", "goal_image", "end", "without_goal"}:
                raise ConfigError(
                    "--goal-text takes the place of every other goal. Leave the other out."
                )
        if kind != "a video of a data set" and self.without_goal:
            raise ConfigError("--without-goal is for videos of a data set. Leave the goal out.")
        if wrong := chosen - choosing - others:
            listed = ", ".join(map(option_name, sorted(wrong)))
            raise ConfigError(f"{listed}: does not go with {kind}. To plan, {_GIVE}.")
        if kind in ("a video file", "features") and not chosen & {"start", "end"}:
            problem = f"{kind} needs --start and --end in seconds, or one of both"
            alone = "--start alone plans without a goal, by a run of several lengths"
            raise ConfigError(f"{problem}: {alone}.")
        return kind

    def _ends(self, kind: str) -> tuple[bool, bool]:
        """Whether the initial observation and the goal are given."""
        if kind == "a video of a data set":
            return True, not self.without_goal
        first = (self.start, self.initial, self.initial_image)
        last = (self.end, self.goal, self.goal_image, self.goal_text)
        return any(source is not None for source in first), any(
            source is not None for source in last
        )

    def _observed(
        self, kind: str, run: Run, device: torch.device
    ) -> tuple[Queries, NDArray[int64] | None]:
        """Return the query of the observations, and its annotated actions if they are known."""
        from cefito.inference.query import query_from_features, query_from_files, query_from_video

        start, end = self.start, self.end
        if self.video is not None and kind == "a video of a data set":
            goal, done = not self.without_goal, self.after_done
            return query_from_video(
                run, self.video, self.from_step, self.dataset, goal=goal, done=done
            )
        if self.video is not None:
            observer, video = self._observer(run, device), Path(self.video)
            return observer.of_video(video, start, end, progress=passing_progress), None
        if self.features is not None:
            how: Any = {"seconds": self.seconds, "precision": self.precision}
            return query_from_features(run, self.features, start=start, end=end, **how), None
        if kind == "files of observations":
            return query_from_files(self.initial, self.goal, run), None
        if kind == "pictures":
            observer = self._observer(run, device)
            return observer.of_pictures(self.initial_image, self.goal_image), None
        return Queries.partial(size=run.planner.observation_dim), None

    def _observer(self, run: Run, device: torch.device) -> Observer:
        from cefito.inference.observer import ObservationRecipe

        recipe = ObservationRecipe.of(run)
        if self.goal_text is not None:
            recipe.check_text(self.encoder)
        return recipe.open(self.encoder, weights=self.weights, device=device)


NO_QUERY = QueryOptions()
