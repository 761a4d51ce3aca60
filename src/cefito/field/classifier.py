"""Networks beside the field: the task classifier, and proposals of each step's action."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cefito.field.layers import Dropout
from cefito.field.predictor import normalise, prepared
from cefito.field.settings import ClassifierConfig, ProposalConfig


class TaskClassifier(nn.Module):
    """Four linear layers applied to each observation, averaged over the two before the last.

    As in the authors' checkpoints there is no activation between the first two layers.

    Args:
        config: Settings of the layers.
        observation_dim: E, the features of an observation.
        task_count: C, the tasks of the taxonomy.
    """

    mean: Tensor  # subtracted from the observations, [E]

    def __init__(self, *, config: ClassifierConfig, observation_dim: int, task_count: int) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("mean", torch.zeros(observation_dim))
        released = (max(observation_dim // 3, 1), 4 * observation_dim, max(observation_dim // 3, 1))
        first, second, third = (
            size or default for size, default in zip(config.hidden, released, strict=True)
        )
        self.fc1 = nn.Linear(observation_dim, first)
        self.fc2 = nn.Linear(first, second)
        self.fc3 = nn.Linear(second, third)
        self.fc4 = nn.Linear(third, task_count)

    def reset(self, generator: torch.Generator) -> None:
        """Draw all weights anew: Kaiming-uniform or, if configured, -normal; zero biases."""
        for layer in (self.fc1, self.fc2, self.fc3, self.fc4):
            if self.config.init == "normal":
                nn.init.kaiming_normal_(layer.weight, generator=generator)
            else:
                nn.init.kaiming_uniform_(layer.weight, a=5**0.5, generator=generator)
            nn.init.zeros_(layer.bias)

    def forward(self, initial: Tensor, goal: Tensor, *, dropout: Dropout | None = None) -> Tensor:
        """Return the logits of the tasks, [B, E] and [B, E] → [B, |C|].

        Args:
            initial: Initial observations [B, E].
            goal: Goal observations [B, E].
            dropout: Draws what is dropped in training; None for none.
        """
        drop = dropout or (lambda x: x)
        x = torch.stack([initial, goal]) - self.mean  # [2, B, E]
        if self.config.normalise:
            x = normalise(x)
        x = drop(torch.relu(self.fc2(drop(self.fc1(x)))))
        return self.fc4(drop(torch.relu(self.fc3(x))).mean(dim=0))  # type: ignore[no-any-return]


class ProposalNetwork(nn.Module):
    """Logits of each step's action: a two-layer MLP on both observations and a linear path past it.

    Both paths add up to a query for each step, whose logits are its products with one learned
    vector for each action, shared by the steps. The linear path recognises the first and the last
    action, which the observations show; without it, accuracy on unseen videos is lower.

    Args:
        config: Widths and training.
        observation_dim: Width E of observations.
        action_count: Number K of actions.
        horizon: Number T of steps.
    """

    mean: Tensor

    def __init__(
        self, *, config: ProposalConfig, observation_dim: int, action_count: int, horizon: int
    ) -> None:
        super().__init__()
        self.config, self.observation_dim, self.horizon = config, observation_dim, horizon
        first, second = config.hidden
        queries = horizon * config.action_dim
        self.fc1 = nn.Linear(2 * observation_dim, first)
        self.fc2 = nn.Linear(first, second)
        self.fc3 = nn.Linear(second, queries, bias=False)
        self.linear = nn.Linear(2 * observation_dim, queries, bias=False)
        self.action_vectors = nn.Parameter(torch.zeros(action_count, config.action_dim))
        self.bias = nn.Parameter(torch.zeros(horizon, action_count))
        self.register_buffer("mean", torch.zeros(observation_dim))

    def reset(self, generator: torch.Generator) -> None:
        """Draw all weights anew: Kaiming-uniform layers, normal action vectors, zero biases."""
        for layer in (self.fc1, self.fc2, self.fc3, self.linear):
            nn.init.kaiming_uniform_(layer.weight, a=5**0.5, generator=generator)
        for bias in (self.fc1.bias, self.fc2.bias, self.bias):
            nn.init.zeros_(bias)
        nn.init.normal_(self.action_vectors, std=self.config.action_dim**-0.5, generator=generator)

    def forward(self, initial: Tensor, goal: Tensor, *, dropout: Dropout | None = None) -> Tensor:
        """Return the logits of each step's action, [B, E] and [B, E] → [B, T, K]."""
        drop = dropout or (lambda x: x)
        x = prepared(torch.stack([initial, goal], dim=1), self.config, self.mean)
        x = drop(x.flatten(1))
        hidden = drop(torch.relu(self.fc1(x)))
        hidden = drop(torch.relu(self.fc2(hidden)))
        queries = self.fc3(hidden) + self.linear(x)  # [B, T · action_dim]
        return queries.unflatten(1, (self.horizon, -1)) @ self.action_vectors.T + self.bias  # type: ignore[no-any-return]
