"""A planner of one network that is linear in both observations.

A planner of one network writes its settings, network, loss and `decode`; `NetworkPlanner` fits,
saves and loads it. B are queries, E features, T steps and K actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.planners.base import Abilities, Shape
from cefito.planners.methods import Method, rows
from cefito.planners.network import NetworkPlanner
from cefito.planners.queries import Queries, finite_outputs
from cefito.planners.shared.layers import draw_layers
from cefito.planners.shared.transitions import decode
from cefito.search.problem import Plans, SearchCost
from cefito.settings import Settings
from cefito.training.losses import PlanLoss, mean_term
from cefito.training.settings import TrainingConfig


class LinearExampleConfig(Settings):
    """Settings of the network."""

    training: TrainingConfig = TrainingConfig()


class LinearExampleSettings(Settings):
    """Settings of the method; each field is a section, as in `--set linear_example.…=…`."""

    linear_example: LinearExampleConfig = LinearExampleConfig()


class LinearExampleNetwork(nn.Module):
    """Log-probabilities of the action of each step."""

    def __init__(self, config: LinearExampleConfig, shape: Shape) -> None:
        super().__init__()
        self.config, self.steps = config, (shape.horizon, shape.actions)
        self.linear = nn.Linear(2 * shape.observation_dim, shape.horizon * shape.actions)

    def reset(self, generator: torch.Generator) -> None:
        """Draw the weights."""
        draw_layers(self, generator)

    def forward(self, initial: Tensor, goal: Tensor) -> Tensor:
        """Return log-probabilities [B, T, K] given observations [B, E]."""
        logits = self.linear(torch.cat([initial, goal], dim=1)).unflatten(1, self.steps)
        log_probabilities: Tensor = logits.float().log_softmax(dim=2)
        return log_probabilities


class LinearExampleLoss(PlanLoss):
    """Cross-entropy of the actions."""

    def terms(self, rows: Tensor, generator: torch.Generator) -> dict[str, Any]:
        """Return the weighted terms of the loss of some training windows."""
        initial, goal = self.observations.draw(rows, generator)
        chances = self.module(initial, goal).mT  # [B, K, T]
        errors = F.nll_loss(chances, self.actions[rows], reduction="none")  # [B, T]
        return {"actions": mean_term(1.0, errors)}

    def best_sequences(self) -> Tensor:
        """Return the best sequences [B, T] of validation windows, to choose the epoch."""
        sequences: Tensor = self.module(*self.val[:2]).argmax(dim=2)
        return sequences


@dataclass(frozen=True, eq=False, repr=False)
class LinearExamplePlanner(NetworkPlanner[LinearExampleNetwork]):
    """Plans the likeliest actions of each step."""

    abilities: ClassVar[Abilities] = Abilities(true_task=False)
    name = "linear example"
    title = "linear example network"
    part = "linear_example"
    build = LinearExampleNetwork
    loss = LinearExampleLoss

    def decode(self, queries: Queries, top_k: int) -> list[Plans]:
        """Return the most probable sequences of each query, best first."""
        emissions = finite_outputs(self.network(*self.observations(queries)), self.title)
        return decode(emissions, None, top_k).plans(SearchCost(token_forwards=2, leaves=0))


METHOD = Method(
    name="linear-example",
    planner=LinearExamplePlanner,
    settings=LinearExampleSettings,
    title="Linear example",
    line="a network that is linear in both observations",
    variants=rows("linear-example", "Linear example"),
)
