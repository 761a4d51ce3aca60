"""The network that scores a chain from the two observations of a query, and its loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.data.windows import Windows
from cefito.planners.chain.inference import SequenceScores
from cefito.planners.chain.method import ChainConfig, ChainTrainingConfig
from cefito.planners.chain.states import ObservationEncoder, TaskStates, WordSharing, dropped
from cefito.planners.shared.layers import draw_layers
from cefito.training.losses import WindowLoss
from cefito.training.trainer import Term


@dataclass(frozen=True)
class CrfOutputs:
    """Outputs of the network for B queries."""

    scores: SequenceScores
    first: Tensor  # logits of the first state, read from the initial observation alone, [B, S]
    last: Tensor  # logits of the last state, read from the goal alone, [B, S]


class ChainNetwork(ObservationEncoder, WordSharing):
    """Emissions from both observations, transitions learned around counts.

    One linear encoder encodes both observations; an MLP on both encoded observations computes the
    emissions of every step. Each end is also predicted from its own observation alone, by cosines
    to learned vectors; these logits have a loss of their own and are added to the emissions.

    Args:
        config: Sizes.
        states: States of each task.
        observation_dim: Width E of observations.
        horizon: Number T of steps.
        transitions: Logarithms of smoothed counts [C, A, A]; see `smoothed_transitions`.
    """

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
        super().__init__(config, observation_dim)
        self.horizon = horizon
        size, (tasks, actions) = len(states), states.grid.shape
        self.hidden = nn.Linear(2 * config.width, config.emission)
        self.emission = nn.Linear(config.emission, horizon * size)
        self.ends = nn.Parameter(torch.empty(2, size, config.width))
        self.scale = nn.Parameter(torch.tensor(config.scale))
        self.end_factors = nn.Parameter(torch.full((2,), config.ends))
        shape = (tasks, actions, actions)
        if config.learned:
            self.change = nn.Parameter(torch.zeros(shape))
        counted = torch.zeros(shape) if transitions is None else transitions.clone()
        self.register_buffer("counted", counted)
        self._register(states)

    def reset(self, generator: torch.Generator) -> None:
        """Draw all weights anew: Kaiming-uniform layers, zero biases, normal end vectors."""
        draw_layers(self, generator)
        nn.init.normal_(self.ends, generator=generator)
        nn.init.constant_(self.scale, self.config.scale)
        nn.init.constant_(self.end_factors, self.config.ends)
        if self.config.learned:
            nn.init.zeros_(self.change)
        if self.words is not None:
            self.words.reset(generator)

    @property
    def transitions(self) -> Tensor:
        """Scores of transitions [C, A, A]."""
        return self.counted + self.change if self.config.learned else self.counted

    def forward(
        self, initial: Tensor, goal: Tensor, *, generator: torch.Generator | None = None
    ) -> CrfOutputs:
        """Compute the scores of all sequences, and the logits of the ends, from [B, E] each."""
        encoded = self.encoded(torch.stack([initial, goal], dim=1).float(), generator)  # [B, 2, W]
        between = F.gelu(self.hidden(dropped(encoded, self.config.dropout, generator).flatten(1)))
        emissions, logits = self.read(dropped(between, self.config.dropout, generator), encoded)
        steps = torch.tensor([0, self.horizon - 1], device=logits.device)
        emissions = emissions.index_add(1, steps, self.end_factors[:, None] * logits)
        scores = SequenceScores(self.states, emissions, self.transitions)
        return CrfOutputs(scores=scores, first=logits[:, 0], last=logits[:, 1])


class ChainLoss(WindowLoss):
    """−log p(sequence | observations), summed over tasks, and cross-entropies of both ends.

    The ends are pairs of task and action, which teaches the task. Arguments are as of `WindowLoss`.
    """

    def __init__(
        self, network: ChainNetwork, train: Windows, val: Windows, training: ChainTrainingConfig
    ) -> None:
        super().__init__(network, train, val, training)
        self.sequences = network.states.find(self.tasks, self.actions)

    def terms(self, rows: Tensor, generator: torch.Generator) -> Mapping[str, Term]:
        """Return the losses of a batch."""
        initial, goal = self.observations.draw(rows, generator)
        actions, sequences = self.actions[rows], self.sequences[rows]
        outputs = self.module(initial, goal, generator=generator)
        count = torch.tensor(len(sequences), device=sequences.device)
        logs = outputs.scores.log_sequence_probabilities(actions)
        terms = {"sequence": Term(1.0, -logs.sum(), count)}
        if self.config.ends_weight:
            first = F.cross_entropy(outputs.first, sequences[:, 0], reduction="sum")
            last = F.cross_entropy(outputs.last, sequences[:, -1], reduction="sum")
            terms["ends"] = Term(self.config.ends_weight, (first + last) / 2, count)
        return terms

    def validate(self) -> Mapping[str, float]:
        """Return the success rate over all tasks, and the mean log-likelihood of true sequences."""
        initial, goal, actions = self.val
        scores = self.module(initial, goal).scores
        best, _ = scores.best(1)
        right = (self.module.states.actions[best[:, 0]] == actions).all(dim=1).double().mean()
        logs = scores.log_sequence_probabilities(actions)
        return {
            "success_rate": 100 * float(right),
            "log_likelihood": float(logs[logs.isfinite()].double().mean().nan_to_num()),
        }
