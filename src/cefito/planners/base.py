"""Protocol of a planner with its defaults, and the records that describe one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from cefito.data.windows import Windows
from cefito.planners.queries import Queries
from cefito.planners.shared.settings import PlanningConfig
from cefito.progress import Progress, silent
from cefito.search.constraints import UNCONSTRAINED, Constraints
from cefito.search.problem import Plans
from cefito.settings import Record

if TYPE_CHECKING:
    from cefito.training.settings import TrainingResult
    from cefito.training.trainer import TrainingContext

__all__ = [
    "Abilities",
    "Description",
    "Fitted",
    "Marginals",
    "Planner",
    "Queries",
    "Shape",
    "Vocabulary",
]


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """Abilities of a planner."""

    top_k: bool = True  # lists several plans of a query
    constraints: bool = False  # plans can satisfy constraints
    search: bool = False
    true_task: bool = True  # uses the true task if given
    probabilities: bool = False  # at least under some settings of its search
    finetuning: bool = False  # learns further windows, also of new tasks and actions
    # plans several numbers of steps, also without an observation, and after steps done before
    any_length: bool = False


class Description(Record):
    """Parts of a planner, for records and tables."""

    name: str
    parameters: dict[str, int]  # of each network that takes part in planning
    search: PlanningConfig | None = None
    weights: dict[str, float] | None = None  # weights of its objective's terms, if any
    tasks: int | None = None  # number of likeliest tasks searched for a query, if it searches tasks
    # where a task's actions come from: "training" windows or the "taxonomy"; None if plans may
    # contain any action
    actions_from: str | None = None
    # tasks without training windows, whose plans contain the actions that the taxonomy lists
    tasks_without_training: tuple[int, ...] = ()
    probabilities: bool = False


class Marginals(NamedTuple):
    """Probabilities given the observations, without regard to constraints; None if unknown."""

    tasks: NDArray[np.float64] | None = None  # of each task, even if one is given [N, C]
    # of each action at each step, within the given task if there is one [N, T, K]; a step's sum is
    # the probability that a plan has the step
    steps: NDArray[np.float64] | None = None


class Vocabulary(NamedTuple):
    """Numbers of tasks and actions that a planner was fitted for."""

    tasks: int | None
    actions: int | None


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Dimensions of data, which the sizes of networks follow from."""

    observation_dim: int  # E, the features of an observation
    tasks: int  # C
    actions: int  # K
    horizon: int  # T
    text_dim: int = 0  # width of the text vectors of actions; 0 if there are none


class Planner(Protocol):
    """A fitted method: it plans for queries and never changes, so many threads can share it.

    Methods with a body are what planners do that can do no more; `BasePlanner` has the others.
    """

    abilities: ClassVar[Abilities] = Abilities()

    @classmethod
    def sizes(cls, settings: Any, shape: Shape) -> dict[str, int]:  # noqa: ARG003
        """Return the number of parameters of each network that its paper describes.

        Names are those of `Description.parameters`. Networks may be built, but no weights are
        drawn: torch's default device is "meta".

        Args:
            settings: The method's settings, of the class that its registration names.
            shape: Numbers of the data.
        """
        return {}

    if TYPE_CHECKING:  # not at run time, so that a dataclass can have fields of these names

        @property
        def name(self) -> str:
            """Name in tables."""

        @property
        def horizon(self) -> int:
            """T, the actions of a plan."""

        @property
        def observation_dim(self) -> int:
            """E, the features of an observation."""

    @property
    def vocabulary(self) -> Vocabulary:
        """Numbers of tasks and actions that it was fitted for."""
        return Vocabulary(None, None)

    @property
    def mean_observation(self) -> NDArray[np.float32] | None:
        """Mean observation of its training windows [E]; None if it does not keep it."""
        return None

    @property
    def reads_elapsed(self) -> bool:
        """Whether it uses the time between both observations."""
        return False

    @classmethod
    def fit(
        cls, train: Windows, val: Windows, *, settings: Any, seed: int, context: TrainingContext
    ) -> Fitted[Self]:
        """Learn from windows; all choices are made on `val`.

        Args:
            train: Training windows.
            val: Validation windows.
            settings: The method's settings, of the class that its registration names.
            seed: Seed of everything drawn.
            context: Where it is trained.
        """

    def refit(
        self, train: Windows, val: Windows, *, settings: Any, seed: int, context: TrainingContext
    ) -> Fitted[Self]:
        """Learn from further windows, starting from its parameters (ConfigError if it cannot).

        Args:
            train: Training windows of the same horizon, in ids that continue its own.
            val: Validation windows, on which all choices are made anew.
            settings: As in `fit`; the networks' own settings are the planner's.
            seed: Seed of everything drawn.
            context: Where it is trained.
        """

    @classmethod
    def load(cls, folder: Path | str, *, settings: Any, context: TrainingContext) -> Self:
        """Load the planner that was saved in a folder.

        Args:
            folder: Folder of the planner.
            settings: Settings of its method.
            context: Device.

        Raises:
            RunError: Missing or damaged files, or files of another configuration.
        """

    def save(self, folder: Path | str) -> None:
        """Write all that `load` needs into an existing folder."""

    def describe(self) -> Description:
        """Describe its parts."""

    def with_search(self, settings: PlanningConfig) -> Self:
        """Return a planner that searches in another way (ConfigError if it has no search)."""

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64] | None:
        """Return the task it plans each query for [N]; None if it has no notion of tasks."""
        if queries.tasks is not None:
            return queries.tasks
        tasks = self.marginals(queries).tasks
        return None if tasks is None else tasks.argmax(axis=1).astype(np.int64, copy=False)

    def marginals(self, queries: Queries) -> Marginals:  # noqa: ARG002
        """Return the probabilities of tasks and of single steps, as far as it has them."""
        return Marginals()

    def most_operations(
        self,
        queries: Queries,  # noqa: ARG002
        top_k: int,  # noqa: ARG002
        constraints: Constraints = UNCONSTRAINED,  # noqa: ARG002
    ) -> NDArray[np.float64] | None:
        """Return an upper bound of the floating-point operations to plan each query [N].

        The bound is known before any search. None if it has no search whose cost could grow.

        Args:
            queries: N queries.
            top_k: Number of plans of each.
            constraints: Constraints on the plans.
        """
        return None

    def log_probabilities(
        self,
        queries: Queries,  # noqa: ARG002
        sequences: NDArray[np.int64],  # noqa: ARG002
    ) -> NDArray[np.float64] | None:
        """Return log p of one plan of each query [N], as `plan` would list it, −∞ if impossible.

        None if only the plans that it lists have probabilities.

        Args:
            queries: Observations, perhaps with tasks.
            sequences: Actions of the plans [N, T], −1 after the last.
        """
        return None

    def first_pairs(self, queries: Queries) -> NDArray[np.floating[Any]] | None:  # noqa: ARG002
        """Return the probabilities of the first two actions [N, K, K + 1]; None if unknown.

        The last column has the probabilities of plans that end after the first action.
        """
        return None

    def plan(
        self,
        queries: Queries,
        top_k: int,
        *,
        constraints: Constraints = UNCONSTRAINED,
        stop: Callable[[], bool] | None = None,
        progress: Progress = silent,
    ) -> list[Plans]:
        """Return the best plans of each query, best first; at most `top_k`.

        A query's plans do not depend on the other queries.

        Args:
            queries: Observations, perhaps with tasks.
            top_k: Plans of each query; fewer if there are fewer sequences.
            constraints: Conditions on every plan.
            stop: Polled during planning; once it returns True, the best so far is returned.
            progress: Shows progress.

        Raises:
            ConfigError: `top_k` below 1, or constraints that it cannot obey or nothing satisfies.
            RunError: Observations of another dimension.
        """


class PlannerOfLengths(Planner, Protocol):
    """A planner of several numbers of steps (`Abilities.any_length`)."""

    if TYPE_CHECKING:

        @property
        def lengths(self) -> tuple[int, ...]:
            """Numbers of steps that it plans, ascending."""

    def with_lengths(self, shortest: int, longest: int) -> Self:
        """Return a planner of some of the lengths (ConfigError if it was not trained for them)."""


AnyPlanner = TypeVar("AnyPlanner", covariant=True)


@dataclass(frozen=True)
class Fitted(Generic[AnyPlanner]):
    """Result of fitting."""

    planner: AnyPlanner
    trainings: Mapping[str, TrainingResult] = field(default_factory=dict)  # by network
    all_videos: bool = False  # whether validation windows were trained on in the end
