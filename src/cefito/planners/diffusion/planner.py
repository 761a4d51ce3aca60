"""Planning by a denoised matrix: scores of actions, best plans, methods that give a task, and PDPP.

PDPP is projected diffusion for procedure planning (Wang et al., CVPR 2023), reimplemented from its
published description. A network learns to restore the actions of noised plans, given the task and
the two observations; a plan is denoised from noise in a few deterministic steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from cefito.data.windows import Windows
from cefito.planners.base import Fitted, Marginals, Queries, Shape
from cefito.planners.diffusion.method import DiffusionConfig
from cefito.planners.diffusion.network import BLOCK, DiffusionNetwork, check_horizon, task_layout
from cefito.planners.network import NetworkPlanner, TrainedNetwork
from cefito.planners.queries import finite_outputs
from cefito.planners.shared.task_model import TaskModel
from cefito.search.problem import Plans, SearchCost
from cefito.search.step_costs import StepCosts
from cefito.training.losses import PlanLoss, mean_term
from cefito.training.trainer import Term


class DiffusionLoss(PlanLoss):
    """Squared error of the restored actions at random times, each row weighted, summed over a plan.

    The error is averaged over a batch, where it was published as summed: AdamW's steps do not
    depend on the factor. `sources` [N, ...] are those of the given blocks of training
    windows, such as the true tasks; `val_sources` those when planning, such as predicted tasks.

    Args:
        network: Network that is trained.
        train: Training windows.
        val: Validation windows.
        sources: Of the given blocks of training windows [N, ...]; None without any.
        val_sources: The same of validation windows.
    """

    def __init__(
        self,
        network: DiffusionNetwork,
        train: Windows,
        val: Windows,
        sources: NDArray[np.int64] | None = None,
        val_sources: NDArray[np.int64] | None = None,
    ) -> None:
        super().__init__(network, train, val)
        blocks = len(network.layout.before)
        self.sources = () if sources is None else self.placed(sources) * blocks
        self.val_sources = (
            () if val_sources is None else self.placed(val_sources[self.chosen]) * blocks
        )
        self.weights = network.row_weights().to(self.device)
        self.rows = network.layout.rows(self.device)

    def terms(self, rows: Tensor, generator: torch.Generator) -> Mapping[str, Term]:
        """The weighted squared error of a batch."""
        initial, goal = self.observations.draw(rows, generator)
        times = torch.randint(
            1, self.config.steps + 1, (len(rows),), generator=generator, device=rows.device
        )
        clean = F.one_hot(self.actions[rows], self.module.action_count).float()  # [B, T, K]
        noise = torch.randn(clean.shape, generator=generator, device=rows.device)
        project = self.module.projection(*(source[rows] for source in self.sources), initial, goal)
        matrix = self.module.diffusion.noised(project.filled(clean), project.filled(noise), times)
        latents = self.module.latents(project, generator=generator)
        # only the actions of the projected prediction can be wrong
        restored = self.module(project(matrix), times, latents)[..., project.actions]
        with torch.autocast(clean.device.type, enabled=False):
            errors = project.open(restored.float() - clean).square().sum(dim=2) @ self.weights
        return {"squared_error": mean_term(1.0, errors)}

    @override
    def best_sequences(self) -> Tensor:
        parts = zip(
            *(tensor.split(BLOCK) for tensor in (*self.val_sources, *self.val[:2])), strict=True
        )
        return torch.cat([self.module.scores(*block).argmax(dim=2) for block in parts])


Network = TypeVar("Network", bound=DiffusionNetwork)


@torch.inference_mode()
def sampled_scores(
    model: TrainedNetwork[Network], queries: Queries, sources: NDArray[np.int64] | None = None
) -> NDArray[np.float32]:
    """The score of each action at each step of each query, [N, T, K], given sources [N, ...].

    Args:
        model: Trained network.
        queries: N queries.
        sources: What the given blocks are made of [N, ...].
    """
    blocks = () if sources is None else model.on_device(sources) * len(model.network.layout.before)
    parts = zip(
        *(tensor.split(BLOCK) for tensor in (*blocks, *model.observations(queries))), strict=True
    )
    scores = torch.cat([model.network.scores(*block) for block in parts])
    finite_outputs(scores.where(~scores.isneginf(), 0), model.title)
    return np.asarray(scores.cpu().numpy())


def best_plans(scores: NDArray[np.float32], top_k: int, forwards: int) -> list[Plans]:
    """The sequences of the highest sums of scores [N, T, K] of each query, ties by action ids.

    Minus infinity forbids; energies are minus the sums. Only the `top_k` best actions of a step can
    occur: with any other action there, `top_k` sequences are better, one for each of them.

    Args:
        scores: Scores [N, T, K], −∞ for forbidden actions.
        top_k: Number of plans of each query.
        forwards: Forward passes of the network, for the cost.
    """
    plans = []
    for rows in scores.astype(np.float64):
        kept = np.sort(np.argsort(-rows, axis=1, kind="stable")[:, :top_k], axis=1)
        best = StepCosts(costs=tuple(-np.take_along_axis(rows, kept, axis=1))).cheapest(top_k)
        actions, cost = kept[np.arange(len(kept)), best.sequences], SearchCost(forwards, 0)
        plans.append(Plans(actions, best.costs, best.costs, cost, exact=False))
    return plans


@dataclass(frozen=True, eq=False, repr=False)
class TaskDiffusionPlanner(NetworkPlanner[Network]):
    """Plans by diffusion given a task: a method adds its network alone.

    The initial noise is the same for every query and is saved with the network: the plan of a query
    does not depend on which others are planned with it. The true task is given in training, the
    predicted one when planning.
    """

    loss = DiffusionLoss
    task_model: TaskModel

    @override
    @classmethod
    def sizes(cls, settings: Any, shape: Shape) -> dict[str, int]:
        return TaskModel.size(settings, shape) | super().sizes(settings, shape)

    @override
    @classmethod
    def fit(cls, train: Windows, val: Windows, *, settings: Any, **options: Any) -> Fitted[Self]:
        config = cls.config_of(settings)
        check_horizon(config, train.horizon, method=str(cls.name), section=cls.part)
        task_model, results = TaskModel.train(train, val, settings, **options)
        tasks = train.tasks, task_model.predict(Queries.from_windows(val))
        parts: dict[str, Any] = {"config": config, "task_model": task_model}
        planner, network_results = cls.train(train, val, settings, *tasks, **parts, **options)
        return Fitted(planner, results | network_results)

    @override
    @classmethod
    def load(cls, folder: Path | str, *, settings: Any, **options: Any) -> Self:
        task_model = TaskModel.load(folder, settings=settings, **options)
        return super().load(folder, settings=settings, task_model=task_model, **options)

    @override
    def save(self, folder: Path | str) -> None:
        self.task_model.save(folder)
        super().save(folder)

    @property
    def parameters(self) -> dict[str, int]:
        """The task classifier's and the diffusion network's."""
        return self.task_model.parameters | super().parameters

    @override
    def marginals(self, queries: Queries) -> Marginals:
        return Marginals(tasks=self.task_model.probabilities(queries))

    @override
    def decode(self, queries: Queries, top_k: int) -> list[Plans]:
        scores = sampled_scores(self, queries, self.predict_tasks(queries))
        return best_plans(scores, top_k, self.horizon * self.config.sampling)


class PdppNetwork(DiffusionNetwork):
    """Denoises matrices of task, action and observation; the task is given."""

    def __init__(self, config: DiffusionConfig, shape: Shape) -> None:
        super().__init__(config=config, layout=task_layout(shape))


@dataclass(frozen=True, eq=False, repr=False)
class PdppPlanner(TaskDiffusionPlanner[PdppNetwork]):
    """Plans by projected diffusion, as `TaskDiffusionPlanner` does."""

    name = "PDPP"
    title = "PDPP network"
    part = "pdpp"
    stream = 8
    build = PdppNetwork
