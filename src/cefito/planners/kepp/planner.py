"""KEPP: knowledge-enhanced procedure planning (Nagasinghe et al., CVPR 2024).

Learned anew from its published facts. A step network predicts the first and the last action, a
graph of the transitions in training videos gives likely walks between them, and a plan network
denoises plans that have these walks beside them. Plans by a language model, which are not released,
are not among what it is told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cefito.data.windows import Windows
from cefito.errors import RunError
from cefito.files import load_tensors, write_tensors
from cefito.planners.base import (
    UNCONSTRAINED,
    Abilities,
    Fitted,
    Queries,
    Shape,
    Vocabulary,
    check_queries,
)
from cefito.planners.context import TrainingContext
from cefito.planners.diffusion.model import best_plans
from cefito.planners.diffusion.network import BLOCK
from cefito.planners.kepp.fitting import out_of_fold_walks, walk_graph
from cefito.planners.kepp.networks import (
    PlanModel,
    PlanNetwork,
    StepModel,
    StepNetwork,
    check_kepp_horizon,
)
from cefito.planners.kepp.settings import KeppConfig, KeppSettings
from cefito.planners.kepp.walks import WalkGraph
from cefito.planners.network import NetworkPlanner, learned
from cefito.progress import Progress, silent
from cefito.search.constraints import Constraints
from cefito.search.problem import Plans, SearchCost
from cefito.training.trainer import TrainingResult

__all__ = ["KeppPlanner", "WalkSource"]

_FILE = "kepp-graph.safetensors"
_REMEDY = "Train the run again."


@dataclass(frozen=True)
class WalkSource:
    """Where walks come from: predicted ends, and a graph between them.

    Attributes:
        step: Predicts the first and the last action.
        graph: Gives walks between them.
    """

    step: StepModel
    graph: WalkGraph

    def walks(self, queries: Queries) -> NDArray[np.int64]:
        """Walks of queries [N, R, T], likeliest first.

        Raises:
            RunError: Observations of another dimension.
        """
        return self.graph.between(self.step.ends(queries))


@dataclass(frozen=True, eq=False, repr=False)
class KeppPlanner(NetworkPlanner):
    """Plans by projected diffusion with walks of a graph beside the plan.

    The best plan takes the highest score of each step in one sample; the further ones have the next
    highest sums of scores. The energy of a plan is minus its sum. The initial noises are the same
    for every query and are saved with the networks. Tasks play no part.

    Attributes:
        source: Where walks come from; None where the plan network is told of none.
        model: The plan network.
        config: What it is told, and how.
    """

    abilities: ClassVar[Abilities] = Abilities(true_task=False)
    source: WalkSource | None
    model: PlanModel
    config: KeppConfig

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        settings: KeppSettings,
        seed: int,
        context: TrainingContext = TrainingContext(),
    ) -> Fitted[Self]:
        """Train the step network, one for each part of the training videos, and the plan network.

        The plan network is validated with predicted ends, as when planning.

        Raises:
            ConfigError: The horizon is 1 or too short for the configured networks.
            RunError: A checkpoint in the folder belongs to another training, or a training
                diverged.
        """
        config = settings.kepp
        check_kepp_horizon(config, train.horizon)
        trainings: dict[str, TrainingResult] = {}
        source, walks, val_walks = None, _none(train), _none(val)
        if config.knowledge != "none":
            step, trainings[StepModel.title] = StepModel.fit(
                train, val, config=config.step, seed=seed, context=context
            )
            source = WalkSource(step, walk_graph(train, config))
            val_walks = source.walks(Queries.from_windows(val))
            apart = None
            if config.paths == "out-of-fold":
                apart = out_of_fold_walks(train, val, config=config, seed=seed, context=context)
            if apart is None:
                walks = source.walks(Queries.from_windows(train))
            else:
                walks, results = apart
                trainings |= results
        model, trainings[PlanModel.title] = PlanModel.fit(
            train,
            val,
            config=config,
            walks=walks,
            val_walks=val_walks,
            seed=seed,
            context=context,
        )
        return Fitted(cls(source, model, config), trainings)

    @classmethod
    def sizes(cls, settings: KeppSettings, shape: Shape) -> dict[str, int]:
        """Those of both networks."""
        config = settings.kepp
        sizes = {
            "observation_dim": shape.observation_dim,
            "action_count": shape.actions,
            "horizon": shape.horizon,
        }
        step = {StepModel.title: learned(StepNetwork(config=config.step, **sizes))}
        return ({} if config.knowledge == "none" else step) | {
            PlanModel.title: learned(PlanNetwork(config=config, **sizes))
        }

    @classmethod
    def load(
        cls,
        folder: Path | str,
        *,
        settings: KeppSettings,
        context: TrainingContext = TrainingContext(),
    ) -> Self:
        """The planner that was saved in a folder.

        Raises:
            RunError: Missing or damaged files, weights of another configuration, or parts that do
                not belong together.
        """
        folder, config, device = Path(folder), settings.kepp, context.device
        model = PlanModel.load(folder, config=config, device=device)
        if config.knowledge == "none":
            return cls(None, model, config)
        step = StepModel.load(folder, config=config, device=device)
        sizes = (
            (network.horizon, network.action_count, network.observation_dim)
            for network in (step.network, model.network)
        )
        if len(set(sizes)) > 1:
            raise RunError(
                f"{folder / step.file}: its horizon, actions or features are not those of "
                f"{model.file}. {_REMEDY}"
            )
        tensors, _ = load_tensors(folder / _FILE, "np", _REMEDY, RunError)
        counts, size = tensors.get("counts"), model.network.action_count
        if (
            counts is None
            or counts.dtype != np.int64
            or counts.shape != (size, size)
            or counts.min() < 0
        ):
            raise RunError(
                f"{folder / _FILE}: holds no transition counts of {size} actions. {_REMEDY}"
            )
        graph = WalkGraph(counts, model.network.horizon, config.walks)
        return cls(WalkSource(step, graph), model, config)

    def save(self, folder: Path | str) -> None:
        """Write the networks and the graph."""
        folder = Path(folder)
        self.model.save(folder)
        if self.source is not None:
            self.source.step.save(folder)
            write_tensors(folder / _FILE, {"counts": self.source.graph.counts})

    @property
    def name(self) -> str:  # type: ignore[override]
        """What it is called in tables; says what it is not told, and where walks are in-sample."""
        config = self.config
        said = {"graph": [], "ends": ["ends alone"], "none": ["no graph, no ends"]}[
            config.knowledge
        ]
        if config.knowledge != "none" and config.paths == "in-sample":
            said.append("in-sample paths")
        return f"KEPP ({', '.join(said)})" if said else "KEPP"

    @property
    def parameters(self) -> dict[str, int]:
        """Those of both networks; the graph is counted, not learned."""
        step = {} if self.source is None else {StepModel.title: self.source.step.parameters}
        return step | {PlanModel.title: self.model.parameters}

    @property
    def vocabulary(self) -> Vocabulary:
        """Numbers of tasks and actions that it was fitted for."""
        return Vocabulary(None, self.model.network.action_count)

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64] | None:
        """The given tasks, which it does not use; None where none are given."""
        return queries.tasks

    def plan(
        self,
        queries: Queries,
        top_k: int,
        *,
        constraints: Constraints = UNCONSTRAINED,
        stop: Callable[[], bool] | None = None,  # noqa: ARG002
        progress: Progress = silent,  # noqa: ARG002
    ) -> list[Plans]:
        """The best plans of each query.

        Raises:
            ConfigError: `top_k` below 1, or constraints.
            RunError: Observations of another dimension.
        """
        check_queries(self, queries, top_k, constraints)
        sampling = self.config.plan.sampling + (self.config.step.sampling if self.source else 0)
        effort = SearchCost(token_forwards=self.horizon * sampling, leaves=0)
        return [
            best_plans(scores, top_k, effort)
            for block in queries.blocks(BLOCK)
            for scores in self._scores(block).astype(np.float64)
        ]

    def _scores(self, queries: Queries) -> NDArray[np.float32]:
        """The score of each action at each step of some queries [N, T, K]."""
        if self.source is None:
            walks = np.zeros((len(queries), 0, self.horizon), dtype=np.int64)
        else:
            walks = self.source.walks(queries)
        return self.model.scores(queries, walks, walks)


def _none(windows: Windows) -> NDArray[np.int64]:
    """No walks of windows [N, 0, T]."""
    return np.zeros((len(windows), 0, windows.horizon), dtype=np.int64)
