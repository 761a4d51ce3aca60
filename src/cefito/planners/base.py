"""Protocol of a planner, the records that describe one, and what all planners share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from cefito.data.windows import Windows
from cefito.errors import ConfigError, RunError
from cefito.planners.queries import Queries
from cefito.progress import Progress, silent
from cefito.search.constraints import Constraints, check_actions
from cefito.search.problem import Plans
from cefito.search.settings import SearchConfig
from cefito.settings import Record

if TYPE_CHECKING:
    from cefito.training.trainer import TrainingContext, TrainingResult

__all__ = [
    "Abilities",
    "BasePlanner",
    "Description",
    "Evidence",
    "Fitted",
    "LanguageModel",
    "Marginals",
    "Planner",
    "Queries",
    "Shape",
    "Vocabulary",
    "check_elapsed",
    "check_finetuning",
    "check_finite",
    "check_min_probability",
    "check_partial",
    "check_probabilities",
    "check_queries",
    "check_task_given",
    "summary_line",
]


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """Abilities of a planner."""

    constraints: bool = False  # plans can satisfy constraints
    search: bool = False
    true_task: bool = True  # uses the true task if given
    true_ends: bool = False  # uses the true first and last action if given
    true_between: bool = False  # uses the true observations between the steps if given
    probabilities: bool = False  # at least under some settings of its search
    finetuning: bool = False  # learns further windows, also of new tasks and actions
    # plans several numbers of steps, also without an observation, and after steps done before
    any_length: bool = False


class Evidence(Record):
    """Evidence for the energy in validation windows, beside all other terms of the objective."""

    coefficient: float  # of the energy, in a conditional logistic regression
    low: float | None  # 90 % interval over videos; None if unknown
    high: float | None  # its upper end
    gain: float  # in log-likelihood a window, on held-out videos
    error: float | None  # its standard error, with whole videos as units; None if there are too few
    kept: bool
    windows: int


class LanguageModel(Record):
    """A language model that a planner asks."""

    model: str  # its name on its server
    prompt: int


class Description(Record):
    """Parts of a planner, for records and tables."""

    name: str
    parameters: dict[str, int]  # of each network that takes part in planning
    search: SearchConfig | None = None
    weights: dict[str, float] | None = None  # weights of its objective's terms, if any
    tasks: int | None = None  # number of likeliest tasks searched for a query, if it searches tasks
    actions_from: str | None = None  # "training" windows or "taxonomy"; None if any are used
    tasks_without_training: tuple[int, ...] = ()  # they use the actions that the taxonomy lists
    probabilities: bool = False
    evidence: Evidence | None = None
    language_model: LanguageModel | None = None


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


UNCONSTRAINED = Constraints()
_LISTED = "cefito planners lists the methods that can"


class Planner(Protocol):
    """A fitted method: it plans for queries and never changes, so many threads can share it."""

    abilities: ClassVar[Abilities]

    @classmethod
    def sizes(cls, settings: Any, shape: Shape) -> dict[str, int]:
        """Return the number of parameters of each network that its paper describes.

        Names are those of `Description.parameters`. Networks may be built, but no weights are
        drawn: torch's default device is "meta".

        Args:
            settings: The method's settings, of the class that its registration names.
            shape: Numbers of the data.
        """

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

    @property
    def mean_observation(self) -> NDArray[np.float32] | None:
        """Mean observation of its training windows [E]; None if it does not keep it."""

    @property
    def reads_elapsed(self) -> bool:
        """Whether it uses the time between both observations."""

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
        """Learn from further windows, starting from this planner's parameters; it stays unchanged.

        Args:
            train: Training windows of the same horizon, in ids that continue its own.
            val: Validation windows, on which all choices are made anew.
            settings: As in `fit`; the networks' own settings are the planner's.
            seed: Seed of everything drawn.
            context: Where it is trained.

        Raises:
            ConfigError: Its method cannot.
        """

    @classmethod
    def load(cls, folder: Path | str, *, settings: Any, context: TrainingContext) -> Self:
        """Load the planner that was saved in a folder.

        Raises:
            RunError: Missing or damaged files, or files of another configuration.
        """

    def save(self, folder: Path | str) -> None:
        """Write all that `load` needs into an existing folder."""

    def describe(self) -> Description:
        """Describe its parts."""

    def with_search(self, settings: SearchConfig) -> Self:
        """Return a planner that searches in another way; this one stays unchanged.

        Raises:
            ConfigError: It has no search that could be changed.
        """

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64] | None:
        """Return the task it plans each query for [N]; None if it has no notion of tasks."""

    def marginals(self, queries: Queries) -> Marginals:
        """Return the probabilities of tasks and of single steps, as far as it has them."""

    def most_operations(
        self, queries: Queries, top_k: int, constraints: Constraints = UNCONSTRAINED
    ) -> NDArray[np.float64] | None:
        """Return an upper bound of the floating-point operations to plan each query [N].

        The bound is known before any search. None if it has no search whose cost could grow.
        """

    def log_probabilities(
        self, queries: Queries, sequences: NDArray[np.int64]
    ) -> NDArray[np.float64] | None:
        """Return log p of one plan of each query [N], as `plan` would list it, −∞ if impossible.

        None if only the plans that it lists have probabilities.

        Args:
            queries: Observations, perhaps with tasks.
            sequences: Actions of the plans [N, T], −1 after the last.
        """

    def first_pairs(self, queries: Queries) -> NDArray[np.floating[Any]] | None:
        """Return the probabilities of the first two actions [N, K, K + 1]; None if unknown.

        In the last column, of plans that end after the first action.
        """

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
            top_k: Plans a query; fewer if there are not so many sequences.
            constraints: Conditions on every plan.
            stop: Polled during planning; once it returns True, the best so far is returned.
            progress: Shows progress.

        Raises:
            ConfigError: `top_k` below 1, or constraints that it cannot obey or nothing satisfies.
            RunError: Observations of another dimension.
        """


AnyPlanner = TypeVar("AnyPlanner", covariant=True)


@dataclass(frozen=True)
class Fitted(Generic[AnyPlanner]):
    """Result of fitting."""

    planner: AnyPlanner
    trainings: Mapping[str, TrainingResult] = field(default_factory=dict)  # by network
    all_videos: bool = False  # whether validation windows were trained on in the end


class BasePlanner:
    """Defaults for planners without a search of their own: they refuse what they cannot do.

    Dataclasses of them are made with `repr=False`, for their fields are far too large to print.
    """

    abilities: ClassVar[Abilities] = Abilities()
    name: str

    @classmethod
    def sizes(cls, settings: Any, shape: Shape) -> dict[str, int]:  # noqa: ARG003
        """Return nothing: no paper describes its networks."""
        return {}

    def __repr__(self) -> str:
        return summary_line(cast("Planner", self))

    @property
    def parameters(self) -> dict[str, int]:
        """Number of parameters of each network that takes part in planning, by its name."""
        return {}

    @property
    def vocabulary(self) -> Vocabulary:
        """Unknown numbers of tasks and actions."""
        return Vocabulary(None, None)

    @property
    def mean_observation(self) -> NDArray[np.float32] | None:
        """None: it is not kept."""
        return None

    @property
    def reads_elapsed(self) -> bool:
        """False: it makes no use of it."""
        return False

    def describe(self) -> Description:
        """Describe its parts."""
        return Description(
            name=self.name,
            parameters=self.parameters,
            probabilities=self.abilities.probabilities,
        )

    def marginals(self, queries: Queries) -> Marginals:  # noqa: ARG002
        """Return no probabilities."""
        return Marginals()

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64] | None:
        """Return the given tasks, else the likeliest ones [N]; None if it predicts none."""
        if queries.tasks is not None:
            return queries.tasks
        tasks = self.marginals(queries).tasks
        return None if tasks is None else tasks.argmax(axis=1).astype(np.int64, copy=False)

    def refit(
        self,
        train: Windows,  # noqa: ARG002
        val: Windows,  # noqa: ARG002
        *,
        settings: Any,  # noqa: ARG002
        seed: int,  # noqa: ARG002
        context: TrainingContext,  # noqa: ARG002
    ) -> Fitted[Self]:
        """Refuse: it cannot be finetuned."""
        check_finetuning(self)
        raise NotImplementedError(f"{self.name} has the ability, but no method, to be finetuned")

    def most_operations(
        self,
        queries: Queries,  # noqa: ARG002
        top_k: int,  # noqa: ARG002
        constraints: Constraints = UNCONSTRAINED,  # noqa: ARG002
    ) -> NDArray[np.float64] | None:
        """Return None: its cost does not grow."""
        return None

    def log_probabilities(
        self,
        queries: Queries,  # noqa: ARG002
        sequences: NDArray[np.int64],  # noqa: ARG002
    ) -> NDArray[np.float64] | None:
        """Return None: only the plans that it lists have probabilities, if any."""
        return None

    def first_pairs(self, queries: Queries) -> NDArray[np.floating[Any]] | None:  # noqa: ARG002
        """Return None: it computes no sums over all plans."""
        return None

    def with_search(self, settings: SearchConfig) -> Self:  # noqa: ARG002
        """Refuse: it has no search that could be changed."""
        raise ConfigError(f"{self.name} has no search to choose; {_LISTED}.")

    def plan(
        self,
        queries: Queries,
        top_k: int,
        *,
        constraints: Constraints = UNCONSTRAINED,
        stop: Callable[[], bool] | None = None,  # noqa: ARG002
        progress: Progress = silent,  # noqa: ARG002
    ) -> list[Plans]:
        """Return the best plans of each query, by `decode`, which is not stopped."""
        check_queries(cast("Planner", self), queries, top_k, constraints)
        return self.decode(queries, top_k) if len(queries) else []

    def decode(self, queries: Queries, top_k: int) -> list[Plans]:
        """Return the `top_k` best plans of each query, best first; there is at least one query."""
        raise NotImplementedError


def check_queries(
    planner: Planner, queries: Queries, top_k: int, constraints: Constraints = UNCONSTRAINED
) -> None:
    """Refuse queries that a planner cannot plan, before any work."""
    if not isinstance(top_k, int | np.integer) or top_k < 1:
        whole = "" if isinstance(top_k, int) else ", a whole number"
        raise ConfigError(f"top_k {top_k}: expected at least 1{whole}.", setting="top_k")
    if constraints:
        if not planner.abilities.constraints:
            raise ConfigError(f"{planner.name} cannot obey constraints; {_LISTED}.")
        check_actions(constraints, planner.vocabulary.actions)
    if planner.vocabulary.tasks is not None:
        queries.check_tasks(planner.vocabulary.tasks)
    if not queries.whole:
        check_partial(planner, "goal" if queries.done is None else "done")
        if planner.vocabulary.actions is not None:
            queries.check_done(planner.vocabulary.actions)
    if queries.elapsed is not None:
        check_elapsed(planner)
    if (width := queries.initial.shape[1]) != planner.observation_dim:
        raise RunError(
            f"observations have {width} features; this run was trained on "
            f"{planner.observation_dim}."
        )


def check_partial(planner: Planner, setting: str) -> None:
    """Refuse a planner that needs both observations and takes no steps done before."""
    if not planner.abilities.any_length:
        raise ConfigError(
            f"{planner.name} needs both observations and takes no steps done before. Train a run "
            "of several lengths for this (method any-length).",
            setting=setting,
        )


def check_elapsed(planner: Planner) -> None:
    """Refuse a planner that makes no use of the time between both observations."""
    if not planner.reads_elapsed:
        raise ConfigError(
            f"{planner.name} did not learn from the time between observations. Leave it out, or "
            "train a run of several lengths on videos whose steps have times.",
            setting="elapsed",
        )


def check_finite(plans: Plans, query: int) -> None:
    """Refuse plans that were chosen among energies that are not finite numbers."""
    if not (plans.finite and np.isfinite(plans.energies).all() and np.isfinite(plans.scores).all()):
        raise RunError(
            f"query {query} (counted from 0): the energies of its sequences are NaN or infinite, "
            "so there is no best plan. Give observations made in the same way as the run's; if "
            "they are, the run's weights are of no use: train it again."
        )


def check_finetuning(planner: Planner | BasePlanner) -> None:
    """Refuse a planner that cannot be finetuned (ConfigError)."""
    if not planner.abilities.finetuning:
        raise ConfigError(f"{planner.name} cannot be finetuned; {_LISTED}.")


def check_task_given(planner: Planner) -> None:
    """Refuse to give the task to a planner that plans the same without it (ConfigError)."""
    if not planner.abilities.true_task:
        raise ConfigError(
            f"{planner.name} makes no use of a given task. Leave it out.", setting="task"
        )


def summary_line(planner: Planner) -> str:
    """Return a planner in one line."""
    parameters = sum(planner.describe().parameters.values())
    return (
        f"{type(planner).__name__}(T = {planner.horizon}, {planner.observation_dim} features, "
        f"{parameters:,} parameters)"
    )


def check_min_probability(planner: Planner, least: float) -> None:
    """Refuse a least probability that is not from 0 to 1, or of plans without probabilities."""
    if not 0 <= least <= 1:
        raise ConfigError(
            f"least probability {least:g}: expected a number from 0 to 1.",
            setting="min_probability",
        )
    check_probabilities(planner, "min_probability")


def check_probabilities(planner: Planner, setting: str) -> None:
    """Refuse a planner whose plans have no probabilities."""
    if planner.describe().probabilities:
        return
    reason = f"{_LISTED}."
    if planner.abilities.probabilities:
        reason = "it has them under the objectives 'fitted' and 'likelihood' of a trained run."
    raise ConfigError(
        f"{planner.name} gives plans no probabilities here; {reason}", setting=setting
    )
