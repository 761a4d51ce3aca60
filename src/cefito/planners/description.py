"""Records that describe planners: abilities, parts, and the data they are for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cefito.search.settings import SearchConfig
from cefito.settings import Record

__all__ = ["Abilities", "Description", "Evidence", "LanguageModel", "Shape", "Vocabulary"]


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """Abilities of a planner.

    Attributes:
        constraints: Its plans can satisfy constraints.
        search: Its search can be changed after training.
        true_task: It uses the true task if given.
        true_ends: It uses the true first and last action if given.
        true_between: It uses the true observations between the steps if given.
        probabilities: Its plans have probabilities, at least under some settings of its search.
        finetuning: It can learn further windows, also of new tasks and actions.
    """

    constraints: bool = False
    search: bool = False
    true_task: bool = True
    true_ends: bool = False
    true_between: bool = False
    probabilities: bool = False
    finetuning: bool = False


class Evidence(Record):
    """Evidence for the energy in validation windows, beside all other terms of the objective.

    Attributes:
        coefficient: Weight of the energy in a conditional logistic regression of the truth among
            likely candidates, not bounded by zero.
        low: Lower end of its 90 % interval, with whole videos as units; None if no window is
            informative.
        high: Upper end.
        gain: Log-likelihood a window gained by the energy on videos that no weight was fitted on.
        error: Its standard error, with whole videos as units; None if there are too few.
        kept: Whether the energy was kept.
        windows: Number of windows.
    """

    coefficient: float
    low: float | None
    high: float | None
    gain: float
    error: float | None
    kept: bool
    windows: int


class LanguageModel(Record):
    """A language model that a planner asks.

    Attributes:
        model: Its name on its server.
        prompt: Version of the prompts.
    """

    model: str
    prompt: int


class Description(Record):
    """Parts of a planner, for records and tables.

    Attributes:
        name: Name in tables.
        parameters: Number of parameters of each network that takes part in planning, by its name.
        search: Settings of its search, if any.
        weights: Weights of its objective's terms, if any.
        tasks: Number of likeliest tasks searched for a query, if it searches tasks.
        actions_from: Source of each task's actions ("training" windows or "taxonomy"), if plans
            keep to them.
        tasks_without_training: Tasks without a training window, which use the actions that the
            taxonomy lists.
        probabilities: Whether its plans have probabilities.
        evidence: Evidence for the energy, if the objective was fitted.
        language_model: The language model that it asks, if any.
    """

    name: str
    parameters: dict[str, int]
    search: SearchConfig | None = None
    weights: dict[str, float] | None = None
    tasks: int | None = None
    actions_from: str | None = None
    tasks_without_training: tuple[int, ...] = ()
    probabilities: bool = False
    evidence: Evidence | None = None
    language_model: LanguageModel | None = None


class Vocabulary(NamedTuple):
    """Numbers of tasks and actions that a planner was fitted for.

    Attributes:
        tasks: Number of tasks; None if unknown.
        actions: Number of actions; None if unknown.
    """

    tasks: int | None
    actions: int | None


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Dimensions of data, which the sizes of networks follow from.

    Attributes:
        observation_dim: E, the features of an observation.
        tasks: C.
        actions: K.
        horizon: T.
        text_dim: Width of the text vectors of actions; 0 if there are none.
    """

    observation_dim: int
    tasks: int
    actions: int
    horizon: int
    text_dim: int = 0
