"""P3IV's critic, which classifies plans as true or decoded."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Critic"]


class Critic(nn.Module):
    """Judges plans: an MLP on each step's state and action, the mean over steps, another MLP.

    Generator and critic share an optimiser here. For a learning rate of its own, the critic's
    parameters are kept divided by that rate: steps of AdamW do not depend on the size of gradients,
    so parameters that are multiplied by the rate move by so much less.
    """

    seen: Tensor  # windows trained on; whole passes over them decide whose turn it is

    def __init__(self, *, states: int, embedding: int, action_count: int, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.embedding = nn.Linear(action_count, embedding, bias=False)
        self.steps = nn.ModuleList(
            [nn.Linear(states + embedding, 64), nn.Linear(64, 32), nn.Linear(32, 32)]
        )
        self.plan = nn.ModuleList([nn.Linear(32, 1024), nn.Linear(1024, 512), nn.Linear(512, 1)])
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def rescale(self) -> None:
        """Divide freshly drawn parameters by the rate."""
        for parameter in self.parameters():
            parameter.div_(self.rate)

    def forward(self, states: Tensor, actions: Tensor) -> Tensor:
        """Logits that plans of states [B, T, D'] and actions [B, T, K] are true, float32 [B]."""
        x = torch.cat([states, self._scaled(self.embedding, actions)], dim=2)
        for layer in self.steps:
            x = F.relu(self._scaled(layer, x))
        x = x.mean(dim=1)
        for layer in self.plan[:-1]:
            x = F.relu(self._scaled(layer, x))
        return self._scaled(self.plan[-1], x)[:, 0].float()

    def _scaled(self, layer: nn.Module, x: Tensor) -> Tensor:
        assert isinstance(layer, nn.Linear)
        bias = None if layer.bias is None else self.rate * layer.bias
        return F.linear(x, self.rate * layer.weight, bias)
