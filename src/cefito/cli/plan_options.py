"""Options of commands that plan: constraints, search, and how `plan` gets its observations."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, get_origin

from cyclopts import Parameter

from cefito.cli.console import passing_progress
from cefito.cli.options import Flag, Several, options_class
from cefito.errors import ConfigError
from cefito.search.constraints import Constraints, declared
from cefito.search.settings import SearchConfig, search_settings

if TYPE_CHECKING:
    import torch
    from numpy import int64
    from numpy.typing import NDArray

    from cefito.batch.query_rows import QuerySettings
    from cefito.inference.observer import Observer
    from cefito.planners.base import Queries
    from cefito.runs.run import Run

__all__ = [
    "AS_TRAINED",
    "DEFAULTS",
    "NOT_OBSERVED",
    "ConstraintOptions",
    "ObserveOptions",
    "PlanOptions",
    "SearchOptions",
    "find_query",
    "option_of",
]

_NAMES = {"method": "--search", "budget_gflop": "--budget"}
"""Options with another name than their setting."""

_OF_TRAINING = ("actions", "fitting_windows")
"""Settings that are decided when a run is trained."""


@dataclass(frozen=True)
class SearchOptions:
    """How to search; by default as the run was trained. Fields: the settings of `SearchConfig`."""

    def changes(self) -> dict[str, Any]:
        """Return the given settings."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def applied(self, run: Run) -> Run:
        """Return the run with the given settings."""
        changes = self.changes()
        if not changes:
            return run
        if run.trained_search is None:
            return run.with_search(SearchConfig())  # which refuses, and names the methods that can
        return run.with_search(search_settings(run.trained_search, **changes))


def option_of(setting: str) -> str:
    """Return the option of a setting of the search."""
    return _NAMES.get(setting, "--" + setting.replace("_", "-"))


def _descriptions() -> dict[str, str]:
    """Return the description of each setting from the docstrings."""
    docs = [inspect.cleandoc(kind.__doc__ or "") for kind in SearchConfig.__mro__]
    attributes = "\n".join(doc.partition("Attributes:\n")[2] for doc in docs)
    entries = re.findall(r"^    (\w+): (.*(?:\n     +.*)*)", attributes, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _search_options() -> Iterator[tuple[str, Any, Any]]:
    """Yield name, type and default of each option."""
    descriptions = _descriptions()
    for name, setting in SearchConfig.model_fields.items():
        parameter = Parameter(name=option_of(name), help=descriptions.get(name, ""))
        if name not in _OF_TRAINING:
            yield name, Annotated[Optional[setting.annotation], parameter], None  # noqa: UP045


if not TYPE_CHECKING:  # a type checker cannot see fields that are made at run time
    SearchOptions = options_class(SearchOptions, _search_options())

AS_TRAINED = SearchOptions()
"""Nothing changed."""


@dataclass(frozen=True)
class ConstraintOptions:
    """Constraints on every plan, as text. Fields: the constraints of `Constraints`."""


def _constraint_options() -> Iterator[tuple[str, Any, Any]]:
    """Yield name, type and default of each option."""
    for name, (kind, how) in declared().items():
        parameter = Parameter(name="--" + how.option.replace("_", "-"), negative="", help=how.help)
        text = Several if get_origin(kind) is tuple else kind
        yield name, Annotated[text, parameter], getattr(Constraints, name)


if not TYPE_CHECKING:  # a type checker cannot see fields that are made at run time
    ConstraintOptions = options_class(ConstraintOptions, _constraint_options())

UNCONSTRAINED = ConstraintOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """How to plan.

    Attributes:
        task: Name or id of the task, instead of the predicted one; in a table, of the queries that
            name none.
        top_k: Number of plans a query.
        min_probability: From 0 to 1: an answer with a less probable best plan is marked as not
            sure.
        horizon: Number of actions, if the folder holds runs of several.
        device: auto, cpu or cuda.
        json: Print JSON.
    """

    task: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None
    top_k: int = 5
    constraints: ConstraintOptions = UNCONSTRAINED
    min_probability: float | None = None
    horizon: int | None = None
    device: str = "auto"
    json: Flag = False

    def open(self, folder: Path, search: SearchOptions) -> tuple[Run, torch.device]:
        """Open a run with the search of the options, and return it with its device."""
        from cefito.runs.run import open_run
        from cefito.runtime import pick_device

        device = pick_device(self.device)
        return search.applied(open_run(folder, horizon=self.horizon, device=device)), device

    def settings(self, run: Run, **more: Any) -> QuerySettings:
        """Return the settings of all queries; refuse tasks and actions that the run lacks."""
        from cefito.batch.query_rows import QuerySettings
        from cefito.data.vocabulary import find_task
        from cefito.inference.constraints import parse_constraints
        from cefito.settings import validated

        task = None if self.task is None else find_task(run.taxonomy, self.task)
        constraints = parse_constraints(run.taxonomy, vars(self.constraints), task=task)
        constraints.resolved(run.taxonomy, task=task)
        values = {
            "top_k": self.top_k,
            "task": task,
            "constraints": constraints,
            "min_probability": self.min_probability,
            **more,
        }
        return validated(QuerySettings, values, place="query")


DEFAULTS = PlanOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ObserveOptions:
    """Observations made on the spot: from features, a video file or two pictures.

    Attributes:
        features: .npy or .npz file with features of a video, one row a second, of the model that
            the run was trained on; with --start and --end. Rows are joined as in the run's data
            set.
        start: Second of the video at which the first step begins.
        end: Second of the video at which the last step ends.
        seconds: With --features, rows per observation; only for runs that do not record it.
        precision: With --features, storage type of the run's data set; only for runs that do not
            record it.
        initial_image: Picture of the scene before the first step.
        goal_image: Picture of the scene after the last step.
        encoder: As in cefito extract; by default the encoder of the run's data set.
        weights: The weights file of the encoder s3d.
    """

    features: Path | None = None
    start: float | None = None
    end: float | None = None
    seconds: int | None = None
    precision: Literal["float16", "float32"] | None = None
    initial_image: Path | None = None
    goal_image: Path | None = None
    encoder: str | None = None
    weights: Path | None = None

    def __bool__(self) -> bool:
        return any(value is not None for value in astuple(self))


NOT_OBSERVED = ObserveOptions()


def find_query(
    run: Run,
    *,
    video: str | None,
    from_step: int,
    initial: Path | None,
    goal: Path | None,
    observe: ObserveOptions,
    dataset: Path | None,
    device: torch.device,
) -> tuple[Queries, NDArray[int64] | None]:
    """Return the query that the options choose, and its annotated actions if they are known."""
    from cefito.inference.query import query_from_files, query_from_video

    if observe:
        if initial is not None or goal is not None or from_step:
            raise ConfigError(
                "--initial, --goal and --from-step do not go with a video file or pictures, nor "
                "with features. Leave them out."
            )
        if observe.features is not None:
            return _from_features(run, video, observe), None
        return _from_media(run, video, observe, device), None
    if video is not None and initial is None and goal is None:
        return query_from_video(run, video, from_step, dataset)
    if initial is None or goal is None or video is not None:
        raise ConfigError(
            "give --video (with --from-step, or a file with --start and --end), --initial and "
            "--goal, --features with --start and --end, or --initial-image and --goal-image."
        )
    return query_from_files(initial, goal, run), None


def _from_media(
    run: Run, video: str | None, options: ObserveOptions, device: torch.device
) -> Queries:
    """Return the query of a video file or of two pictures."""
    from cefito.inference.observer import ObservationRecipe

    if options.seconds is not None or options.precision is not None:
        raise ConfigError("--seconds and --precision are for --features. Leave them out.")
    start, end = options.start, options.end
    before, after = options.initial_image, options.goal_image

    def observer() -> Observer:
        return ObservationRecipe.of(run).open(
            options.encoder, weights=options.weights, device=device
        )

    if video is not None and start is not None and end is not None and before is after is None:
        return observer().of_video(video, start, end, progress=passing_progress)
    if before is not None and after is not None and video is None and start is end is None:
        return observer().of_pictures(before, after)
    raise ConfigError(
        "give --video FILE with --start and --end in seconds, or --initial-image and --goal-image."
    )


def _from_features(run: Run, video: str | None, options: ObserveOptions) -> Queries:
    """Return the query of two moments of a file of features."""
    from cefito.inference.query import query_from_features

    others = (video, options.initial_image, options.goal_image, options.encoder, options.weights)
    if any(value is not None for value in others):
        raise ConfigError(
            "--features takes the place of --video and of pictures, and no encoder is needed. "
            "Leave these out."
        )
    if options.features is None or options.start is None or options.end is None:
        raise ConfigError("give --features FILE with --start and --end in seconds.")
    return query_from_features(
        run,
        options.features,
        start=options.start,
        end=options.end,
        seconds=options.seconds,
        precision=options.precision,
    )
