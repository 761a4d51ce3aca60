"""SCHEMA: procedure planning by the state changes of steps (Niu et al., ICLR 2024).

Learned anew from its published facts. The states between the steps are decoded from the two
observations, the actions from all states, both over descriptions of the states before and after
each action; the actions' probabilities are decoded over the transitions of training videos.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cefito.data.windows import Windows
from cefito.planners.base import (
    UNCONSTRAINED,
    Fitted,
    Queries,
    Shape,
    Vocabulary,
    check_queries,
)
from cefito.planners.context import TrainingContext
from cefito.planners.network import NetworkPlanner
from cefito.planners.schema.model import SchemaModel
from cefito.planners.schema.settings import Described, SchemaConfig, SchemaSettings
from cefito.planners.shared.transitions import decode, log_guarded
from cefito.progress import Progress, silent
from cefito.search.constraints import Constraints
from cefito.search.problem import Plans, SearchCost
from cefito.settings import Settings

__all__ = ["KINDS", "SchemaPlanner"]

KINDS: dict[Described, str] = {
    "file": "",  # as published
    "templates": "template sentences",
    "observations": "mean observations",
    "names": "name hashes",
    "free": "free vectors",
    "none": "no descriptions",
}
"""What tables say of the descriptions."""


@dataclass(frozen=True, eq=False, repr=False)
class SchemaPlanner(NetworkPlanner):
    """Plans the sequences of the largest products of the actions' probabilities and transitions.

    Energies and scores are minus the logarithm of the product, and the list is exact: only
    sequences of positive probability are returned. Tasks are predicted by the network's own head;
    the true task is given in training, the predicted one in planning.

    Attributes:
        model: The network.
        described: What describes the states.
        smoothing: Added to every count of a transition.
    """

    model_class: ClassVar[type[SchemaModel]] = SchemaModel
    title: ClassVar[str] = "SCHEMA"
    departures: ClassVar[tuple[str, ...]] = ()
    model: SchemaModel
    described: Described
    smoothing: float

    @classmethod
    def config_of(cls, settings: Settings) -> SchemaConfig:
        """The settings of the network among the method's."""
        config: SchemaConfig = getattr(settings, cls.model_class.section)
        return config

    @classmethod
    def sizes(cls, settings: SchemaSettings, shape: Shape) -> dict[str, int]:
        """That of the network."""
        return {cls.model_class.title: cls.model_class.size(cls.config_of(settings), shape)}

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        settings: SchemaSettings,
        seed: int,
        context: TrainingContext = TrainingContext(),
    ) -> Fitted[Self]:
        """Count transitions and train the network.

        Raises:
            ConfigError: A text encoder is asked for and cannot be had.
            DataError: The file of descriptions is missing, damaged, or has another shape.
            RunError: A checkpoint cannot be used or written, or the training diverged.
        """
        config = cls.config_of(settings)
        model, result = cls.model_class.fit(train, val, config=config, seed=seed, context=context)
        planner = cls(model, config.described, config.smoothing)
        return Fitted(planner, {cls.model_class.title: result})

    @classmethod
    def load(
        cls,
        folder: Path | str,
        *,
        settings: SchemaSettings,
        context: TrainingContext = TrainingContext(),
    ) -> Self:
        """The planner that was saved in a folder.

        Raises:
            RunError: Missing or damaged file, or weights of another configuration.
        """
        config = cls.config_of(settings)
        model = cls.model_class.load(Path(folder), config=config, device=context.device)
        return cls(model, config.described, config.smoothing)

    def save(self, folder: Path | str) -> None:
        """Write weights, descriptions and transitions."""
        self.model.save(Path(folder))

    @property
    def name(self) -> str:  # type: ignore[override]
        """What it is called in tables; says where it is not as published."""
        said = ", ".join(part for part in (*self.departures, KINDS[self.described]) if part)
        return f"{self.title} ({said})" if said else self.title

    @property
    def parameters(self) -> dict[str, int]:
        """Those of the network, with the parts that serve in training only."""
        return {self.model.title: self.model.parameters}

    @property
    def vocabulary(self) -> Vocabulary:
        """Numbers of tasks and actions that it was fitted for."""
        network = self.model.network
        return Vocabulary(network.task_count, network.action_count)

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64]:
        """The given tasks, else the likeliest by the network's head, [N]."""
        return self.model.tasks(queries)

    def plan(
        self,
        queries: Queries,
        top_k: int,
        *,
        constraints: Constraints = UNCONSTRAINED,
        stop: Callable[[], bool] | None = None,  # noqa: ARG002
        progress: Progress = silent,  # noqa: ARG002
    ) -> list[Plans]:
        """The best plans of each query, best first; fewer where there are not so many sequences.

        Raises:
            ConfigError: `top_k` below 1, or constraints.
            DataError: A task that it does not know.
            RunError: Observations of another dimension.
        """
        check_queries(self, queries, top_k, constraints)
        if not len(queries):
            return []
        best = decode(self.model.emissions(queries), self._transitions, top_k)
        return best.plans(SearchCost(token_forwards=3 * self.horizon + 2, leaves=0))

    @property
    def _transitions(self) -> Tensor:
        return log_guarded(self.model.network.counts, smoothing=self.smoothing)
