"""A planner of one network, to show all that such a method has to write."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional as F

from cefito.planners.base import Abilities
from cefito.planners.network import NetworkPlanner
from cefito.planners.queries import finite_outputs
from cefito.planners.shared.layers import draw_layers
from cefito.planners.shared.loss import PlanLoss, mean_term
from cefito.planners.shared.transitions import decode
from cefito.search.problem import SearchCost
from cefito.settings import Settings
from cefito.training.settings import TrainingConfig


class ToyNetworkConfig(Settings):
    training: TrainingConfig = TrainingConfig()


class ToyNetworkSettings(Settings):
    toy_network: ToyNetworkConfig = ToyNetworkConfig()


class ToyNetwork(nn.Module):
    """Log-probabilities of each step's action, linear in both observations."""

    def __init__(self, config, shape):
        super().__init__()
        self.config, self.steps = config, (shape.horizon, shape.actions)
        self.linear = nn.Linear(2 * shape.observation_dim, shape.horizon * shape.actions)

    def reset(self, generator):
        draw_layers(self, generator)

    def forward(self, initial, goal):
        logits = self.linear(torch.cat([initial, goal], dim=1)).unflatten(1, self.steps)
        return logits.float().log_softmax(dim=2)  # [B, T, K]


class ToyLoss(PlanLoss):
    def terms(self, rows, generator, group):
        drawn = (*self.observations.draw(rows, generator), self.actions[rows])
        initial, goal, actions = (group.share(part) for part in drawn)
        errors = F.nll_loss(self.module(initial, goal).mT, actions, reduction="none")
        return {"actions": mean_term(1.0, errors)}

    def best_sequences(self):
        return self.module(*self.val[:2]).argmax(dim=2)


@dataclass(frozen=True, eq=False, repr=False)
class ToyNetworkPlanner(NetworkPlanner[ToyNetwork]):
    abilities: ClassVar[Abilities] = Abilities(true_task=False)
    name = "toy of one network"
    title = "toy network"
    part = "toy_network"
    build = ToyNetwork
    loss = ToyLoss

    def decode(self, queries, top_k):
        emissions = finite_outputs(self.network(*self.observations(queries)), self.title)
        return decode(emissions, None, top_k).plans(SearchCost(token_forwards=2, leaves=0))
