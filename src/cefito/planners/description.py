"""What planners say of themselves: what they can be asked for, and what they are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cefito.search.settings import SearchConfig
from cefito.settings import Record

__all__ = ["Abilities", "Description", "Evidence", "LanguageModel", "Shape", "Vocabulary"]


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """What a planner can be asked for beyond plans.

    Attributes:
        constraints: Plans that satisfy constraints.
        search: Another search than the one that it was made with.
        true_task: It plans differently where the true task is given.
        true_ends: It plans differently where the true first and last action are given.
        true_between: It plans differently where the true observations between the steps are given.
        probabilities: Its plans have probabilities, at least under some settings of its search.
        finetuning: Further windows, beginning with what it has learned, those of new tasks and
            actions among them.
    """

    constraints: bool = False
    search: bool = False
    true_task: bool = True
    true_ends: bool = False
    true_between: bool = False
    probabilities: bool = False
    finetuning: bool = False


class Evidence(Record):
    """What validation windows say of the energy, beside all other terms of the objective.

    Attributes:
        coefficient: Weight of the energy in a conditional logistic regression of the truth among
            likely candidates, were it free to be negative.
        low: Lower end of its 90 % interval, with whole videos as units; None where no window says
            anything.
        high: Upper end.
        gain: Log-likelihood a window gained by the energy on videos that no weight was fitted on.
        error: Its standard error, with whole videos as units; None where there are too few.
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
        model: Its name, as its server calls it.
        prompt: Version of the words that it is asked in.
    """

    model: str
    prompt: int


class Description(Record):
    """What a planner is made of, for records and tables.

    Attributes:
        name: What it is called in tables.
        parameters: Learned numbers of each network that takes part in planning, by its name.
        search: Settings of its search, where it has one.
        weights: Weights of its objective's terms, where it has such.
        tasks: Likeliest tasks that it searches for a query, where it searches tasks.
        actions_from: Where the actions of each task come from, where it keeps to them: "training"
            windows or "taxonomy".
        tasks_without_training: Tasks without a training window, which use the actions that the
            taxonomy lists.
        probabilities: Whether its plans have probabilities.
        evidence: What was found of the energy when the objective was fitted.
        language_model: The language model that it asks, if any. What became of the answers, each
            list of plans says (`Plans.reply`), and every evaluation of them.
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
        tasks: Of tasks; None where it does not know.
        actions: Of actions; None where it does not know.
        least: Whether there may be more, of which it has met none.
    """

    tasks: int | None
    actions: int | None
    least: bool = False


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Numbers of data that the sizes of networks follow from.

    Attributes:
        observation_dim: E, the features of an observation.
        tasks: C.
        actions: K.
        horizon: T.
        text_dim: Width of the text vectors of actions; 0 where there are none.
    """

    observation_dim: int
    tasks: int
    actions: int
    horizon: int
    text_dim: int = 0
