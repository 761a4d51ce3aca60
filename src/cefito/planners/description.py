"""Records that describe planners: abilities, parts, and the data they are for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cefito.search.settings import SearchConfig
from cefito.settings import Record

__all__ = ["Abilities", "Description", "Evidence", "LanguageModel", "Shape", "Vocabulary"]


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
