"""What methods share that predict a task and then denoise plans of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.data.windows import Windows
from cefito.planners.base import (
    UNCONSTRAINED,
    Fitted,
    Planner,
    Queries,
    Shape,
    Vocabulary,
    check_queries,
)
from cefito.planners.context import TrainingContext
from cefito.planners.diffusion.model import (
    DiffusionModel,
    best_plans,
    check_tasks,
    saved_sizes,
)
from cefito.planners.diffusion.network import DiffusionNetwork
from cefito.planners.network import NetworkPlanner, learned
from cefito.planners.shared.task_model import TaskModel, TaskPredictor
from cefito.progress import Progress, silent
from cefito.search.constraints import Constraints
from cefito.search.problem import Plans, SearchCost
from cefito.training.trainer import TrainingResult

__all__ = ["TaskDiffusionModel", "TaskDiffusionPlanner"]

Network = TypeVar("Network", bound=DiffusionNetwork)


class TaskDiffusionModel(DiffusionModel[Network]):
    """A trained network of diffusion whose only given block is the task.

    Attributes:
        part: Name of its section in presets and of its training's folder.
        network_class: Class of the network, made of the settings and the sizes of the data.
    """

    part: ClassVar[str]
    network_class: ClassVar[type[Any]]

    @classmethod
    def weights(cls, config: Any, horizon: int) -> Tensor:
        """What the rows weigh in the loss, [T]."""
        raise NotImplementedError

    @classmethod
    def tell(cls, network: Network, train: Windows) -> None:
        """Give an untrained network what else it needs of the training windows; here nothing."""

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        config: Any,
        tasks: NDArray[np.int64],
        seed: int,
        context: TrainingContext,
    ) -> tuple[Self, TrainingResult]:
        """Train the network on windows, keep the epoch of the best validation success rate.

        Args:
            train: Training windows.
            val: Validation windows.
            config: The network and how it is trained.
            tasks: The tasks that validation windows are planned for [N].
            seed: Seed of weights, batches, times and noise.
            context: Where it is trained.

        Raises:
            ConfigError: The horizon is too short for the configured network.
            RunError: A checkpoint cannot be used or written, or the training diverged.
        """
        network = cls.network_class(
            config=config,
            observation_dim=train.initial.shape[1],
            horizon=train.horizon,
            task_count=len(train.taxonomy.tasks),
            action_count=len(train.taxonomy.actions),
        )
        cls.tell(network, train)
        result = cls.train(
            network,
            train,
            val,
            known=(train.tasks,),
            val_known=(tasks,),
            weights=cls.weights(config, train.horizon),
            seed=seed,
            settings=[train.horizon, config.model_dump(), tasks.tolist()],
            context=context.part(cls.part),
        )
        return cls(network), result

    @classmethod
    def size(cls, config: Any, shape: Shape) -> int:
        """Learned numbers of a network for data of a shape."""
        return learned(
            cls.network_class(
                config=config,
                observation_dim=shape.observation_dim,
                task_count=shape.tasks,
                action_count=shape.actions,
                horizon=shape.horizon,
            )
        )

    @classmethod
    def load(cls, folder: Path, *, config: Any, device: torch.device | str = "cpu") -> Self:
        """The network that was saved in a folder.

        Raises:
            RunError: Missing or damaged file, or weights of another configuration.
        """

        def build(tensors: Mapping[str, Tensor]) -> Network:
            sizes = saved_sizes(tensors)
            network: Network = cls.network_class(
                config=config,
                observation_dim=sizes.observation_dim,
                task_count=sizes.before,
                action_count=sizes.action_count,
                horizon=sizes.horizon,
            )
            return network

        return cls(cls.read(folder, build, device=device))


@dataclass(frozen=True, eq=False, repr=False)
class TaskDiffusionPlanner(NetworkPlanner):
    """Plans by diffusion given a task: its network is all that a method adds.

    The best plan takes the highest score of each step in one sample; the further ones have the next
    highest sums of scores. The energy of a plan is minus its sum. The initial noise is the same for
    every query and is saved with the network: the plan of a query does not depend on which others
    are planned with it.

    Attributes:
        model_class: Class of the diffusion network's model.
        task_model: Predicts tasks.
        model: The diffusion network; the task is its only given block.
    """

    model_class: ClassVar[type[TaskDiffusionModel[Any]]]
    task_model: TaskPredictor[Any]
    model: TaskDiffusionModel[Any]

    @classmethod
    def check_horizon(cls, config: Any, horizon: int) -> None:
        """Refuse a horizon that is too short for the configured network.

        Raises:
            ConfigError: It is.
        """
        raise NotImplementedError

    @classmethod
    def fit_tasks(
        cls, train: Windows, val: Windows, *, settings: Any, seed: int, context: TrainingContext
    ) -> tuple[TaskPredictor[Any], TrainingResult]:
        """Train what predicts tasks; here the classifier that other methods use."""
        return TaskModel.fit(train, val, settings=settings, seed=seed, context=context)

    @classmethod
    def load_tasks(
        cls, folder: Path, *, settings: Any, device: torch.device | str
    ) -> TaskPredictor[Any]:
        """What predicts tasks, as it was saved in a folder."""
        return TaskModel.load(folder, config=settings.classifier, device=device)

    @classmethod
    def task_sizes(cls, settings: Any, shape: Shape) -> dict[str, int]:
        """Learned numbers of what predicts tasks."""
        return {TaskModel.title: TaskModel.size(settings.classifier, shape)}

    @classmethod
    def sizes(cls, settings: Any, shape: Shape) -> dict[str, int]:
        """Those of the task classifier and of the diffusion network."""
        model = cls.model_class
        own = {model.title: model.size(getattr(settings, model.part), shape)}
        return cls.task_sizes(settings, shape) | own

    @classmethod
    def fit(
        cls,
        train: Windows,
        val: Windows,
        *,
        settings: Any,
        seed: int,
        context: TrainingContext = TrainingContext(),
    ) -> Fitted[Self]:
        """Train the task classifier, then the diffusion network, validated with predicted tasks.

        Raises:
            ConfigError: The horizon is too short for the configured network.
            RunError: A checkpoint in the folder belongs to another training, or a training
                diverged.
        """
        config = getattr(settings, cls.model_class.part)
        cls.check_horizon(config, train.horizon)
        task_model, task_result = cls.fit_tasks(
            train, val, settings=settings, seed=seed, context=context
        )
        tasks = task_model.predict(Queries.from_windows(val))
        model, result = cls.model_class.fit(
            train, val, config=config, tasks=tasks, seed=seed, context=context
        )
        results = {task_model.title: task_result, cls.model_class.title: result}
        return Fitted(cls(task_model, model), results)

    @classmethod
    def load(
        cls, folder: Path | str, *, settings: Any, context: TrainingContext = TrainingContext()
    ) -> Self:
        """The planner that was saved in a folder.

        Raises:
            RunError: Missing or damaged files, or weights of another configuration.
        """
        folder, device = Path(folder), context.device
        config = getattr(settings, cls.model_class.part)
        return cls(
            cls.load_tasks(folder, settings=settings, device=device),
            cls.model_class.load(folder, config=config, device=device),
        )

    def save(self, folder: Path | str) -> None:
        """Write both networks."""
        folder = Path(folder)
        self.task_model.save(folder)
        self.model.save(folder)

    @property
    def parameters(self) -> dict[str, int]:
        """Those of the task classifier and of the diffusion network."""
        return {
            self.task_model.title: self.task_model.parameters,
            self.model.title: self.model.parameters,
        }

    @property
    def vocabulary(self) -> Vocabulary:
        """Numbers of tasks and actions that it was fitted for."""
        network = self.model.network
        return Vocabulary(network.task_count, network.action_count)

    def predict_tasks(self, queries: Queries) -> NDArray[np.int64]:
        """The task model's prediction [N], or the given tasks."""
        return self.task_model.predict(queries)

    def plan(
        self,
        queries: Queries,
        top_k: int,
        *,
        constraints: Constraints = UNCONSTRAINED,
        stop: Callable[[], bool] | None = None,  # noqa: ARG002
        progress: Progress = silent,  # noqa: ARG002
    ) -> list[Plans]:
        """The best plans of each query's task.

        Raises:
            ConfigError: `top_k` below 1, or constraints.
            RunError: Observations of another dimension, or an unknown task.
        """
        check_queries(cast("Planner", self), queries, top_k, constraints)
        if not len(queries):
            return []
        tasks = self.predict_tasks(queries)
        check_tasks(tasks, self.model.network.task_count)
        scores = self.model.scores(queries, tasks).astype(np.float64)
        forwards = self.horizon * self.model.network.config.sampling
        effort = SearchCost(token_forwards=forwards, leaves=0)
        return [best_plans(query_scores, top_k, effort) for query_scores in scores]
