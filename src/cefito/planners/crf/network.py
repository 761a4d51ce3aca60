"""The network that scores a chain from the two observations of a query."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.field.predictor import Dropout
from cefito.planners.crf.inference import SequenceScores
from cefito.planners.crf.settings import ChainConfig
from cefito.planners.crf.states import TaskStates

__all__ = ["ChainNetwork", "CrfOutputs"]


@dataclass(frozen=True)
class CrfOutputs:
    """Outputs of the network for B queries."""

    scores: SequenceScores
    first: Tensor  # logits of the first state, read from the initial observation alone, [B, S]
    last: Tensor  # logits of the last state, read from the goal alone, [B, S]


class ChainNetwork(nn.Module):
    """Emissions from both observations, transitions learned around counts.

    One linear encoder encodes both observations; an MLP on both encoded observations computes the
    emissions of every step. Each end is also predicted from its own observation alone, by cosines
    to learned vectors; these logits have a loss of their own and are added to the emissions.
    """

    mean: Tensor
    counted: Tensor

    def __init__(
        self,
        *,
        config: ChainConfig,
        states: TaskStates,
        observation_dim: int,
        horizon: int,
        transitions: Tensor | None = None,
    ) -> None:
        # transitions: logarithms of smoothed counts [C, A, A]; see `smoothed_transitions`
        super().__init__()
        self.config, self.horizon, self.observation_dim = config, horizon, observation_dim
        size, (tasks, actions) = len(states), states.grid.shape
        self.encoder = nn.Linear(observation_dim, config.hidden)
        self.narrowing = nn.Linear(config.hidden, config.width)
        self.hidden = nn.Linear(2 * config.width, config.emission)
        self.emission = nn.Linear(config.emission, horizon * size)
        self.ends = nn.Parameter(torch.empty(2, size, config.width))
        self.scale = nn.Parameter(torch.tensor(config.scale))
        self.end_factors = nn.Parameter(torch.full((2,), config.ends))
        shape = (tasks, actions, actions)
        if config.learned:
            self.change = nn.Parameter(torch.zeros(shape))
        self.register_buffer("mean", torch.zeros(observation_dim))
        counted = torch.zeros(shape) if transitions is None else transitions.clone()
        self.register_buffer("counted", counted)
        for part in fields(states):  # the others are derived from the saved one
            saved = part.name == "lookup"
            self.register_buffer(
                f"states_{part.name}", getattr(states, part.name), persistent=saved
            )

    def reset(self, generator: torch.Generator) -> None:
        """Draw all weights anew: Kaiming-uniform layers, zero biases, normal end vectors."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.kaiming_uniform_(module.weight, a=5**0.5, generator=generator)
                nn.init.zeros_(module.bias)
        nn.init.normal_(self.ends, generator=generator)
        nn.init.constant_(self.scale, self.config.scale)
        nn.init.constant_(self.end_factors, self.config.ends)
        if self.config.learned:
            nn.init.zeros_(self.change)

    @torch.no_grad()
    def take_over(self, learned: ChainNetwork) -> None:
        """Copy a trained network over a subset of these states; further ones stay as drawn."""
        old, target = learned.states.to("cpu"), self.state_dict()
        given = {name: tensor.to("cpu") for name, tensor in learned.state_dict().items()}
        ids = self.states.lookup[old.tasks, old.actions]
        one, other = (old.tasks[:, None] == old.tasks).nonzero(as_tuple=True)
        place = self.states.place[ids]
        for name, tensor in given.items():
            if name == "ends":
                target[name][:, ids] = tensor
            elif name in ("emission.weight", "emission.bias"):
                target[name].unflatten(0, (self.horizon, -1))[:, ids] = tensor.unflatten(
                    0, (self.horizon, -1)
                )
            elif name in ("change", "counted"):
                tasks = old.tasks[one]
                target[name][tasks, place[one], place[other]] = tensor[
                    tasks, old.place[one], old.place[other]
                ]
            elif name != "states_lookup":
                target[name].copy_(tensor)

    @property
    def states(self) -> TaskStates:
        """The states, on the device of the network."""
        return TaskStates(
            **{part.name: getattr(self, f"states_{part.name}") for part in fields(TaskStates)}
        )

    @property
    def transitions(self) -> Tensor:
        """Scores of transitions [C, A, A]."""
        return self.counted + self.change if self.config.learned else self.counted

    def forward(
        self, initial: Tensor, goal: Tensor, *, generator: torch.Generator | None = None
    ) -> CrfOutputs:
        """Compute the scores of all sequences, and the logits of the ends, from [B, E] each."""
        encoded = self._encoded(torch.stack([initial, goal], dim=1).float(), generator)  # [B, 2, W]
        between = F.gelu(
            self.hidden(self._drop(encoded, self.config.dropout, generator).flatten(1))
        )
        emissions = self.emission(self._drop(between, self.config.dropout, generator))
        emissions = emissions.unflatten(1, (self.horizon, -1)).float()  # [B, T, S]
        directions = F.normalize(self.ends, dim=-1)
        cosines = torch.einsum("bed,esd->bes", F.normalize(encoded.float(), dim=-1), directions)
        logits = self.scale * cosines.float()  # of the first and the last state, [B, 2, S]
        read = torch.zeros_like(emissions)
        read[:, 0] += self.end_factors[0] * logits[:, 0]
        read[:, -1] += self.end_factors[1] * logits[:, 1]
        scores = SequenceScores(self.states, emissions + read, self.transitions)
        return CrfOutputs(scores=scores, first=logits[:, 0], last=logits[:, 1])

    def _encoded(self, observations: Tensor, generator: torch.Generator | None) -> Tensor:
        """Encode observations [B, 2, E] as [B, 2, width]."""
        if self.config.centre:
            observations = observations - self.mean
        if self.config.normalise:
            observations = F.layer_norm(observations, observations.shape[-1:], eps=1e-6)
        observations = self._drop(observations, self.config.input_dropout, generator)
        # without an activation between the two linear layers, multiplying their weights is cheaper
        weight = self.narrowing.weight @ self.encoder.weight
        return F.linear(observations, weight, self.narrowing(self.encoder.bias))

    def _drop(self, values: Tensor, rate: float, generator: torch.Generator | None) -> Tensor:
        return values if generator is None else Dropout(rate, generator)(values)
