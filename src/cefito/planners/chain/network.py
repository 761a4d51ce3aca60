"""The network that scores a chain from the two observations of a query, and its loss.

Vectors of the words in actions' names are trained with the weights of the chain's states.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from math import log
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.data.annotations import Taxonomy, folded
from cefito.data.windows import Windows
from cefito.field.layers import Dropout
from cefito.field.predictor import prepared
from cefito.planners.chain.inference import SequenceScores
from cefito.planners.chain.method import ChainConfig, ChainTrainingConfig
from cefito.planners.chain.states import TaskStates
from cefito.planners.shared.layers import draw_layers
from cefito.training.losses import WindowLoss
from cefito.training.trainer import Term

_STEM = 5  # letters that a word is known by, so that "potatoes" is "potato"
_LENGTH = 0.5  # length of a name's row of weights: its words learn half as fast as its own weights


def shared_words(names: Sequence[str]) -> Tensor:
    """Return the weights of the V words that several of K names have, float32 [K, V].

    Words weigh the logarithm of their inverse frequency among names; rows have length 1/2, or are
    zero where a name has no such word.
    """
    words = [{word[:_STEM] for word in re.findall(r"[^\W\d]+", folded(name))} for name in names]
    number = {
        word: sum(word in name_words for name_words in words)
        for word in sorted(set().union(*words))
    }
    kept = [word for word, count in number.items() if count > 1]
    weights = [
        [(word in name_words) * log(len(names) / number[word]) for word in kept]
        for name_words in words
    ]
    return _LENGTH * F.normalize(torch.tensor(weights).reshape(len(names), len(kept)), dim=1)


class _WordVectors(nn.Module):
    """Vectors of words, zero unless they are drawn, that are added to weights of states."""

    words: Tensor

    def __init__(self, words: Tensor, emission: nn.Linear, ends: Tensor) -> None:
        # words: weights of the words of each state [S, V]
        super().__init__()
        self.register_buffer("words", words.to_sparse(), persistent=False)
        (size, count), width = words.shape, emission.in_features
        self.emission = nn.Parameter(torch.zeros(count, emission.out_features // size, width))
        self.ends = nn.Parameter(torch.zeros(count, 2, ends.shape[2]))

    def reset(self, generator: torch.Generator) -> None:
        bound = self.emission.shape[2] ** -0.5  # as of a Kaiming-uniform layer
        nn.init.uniform_(self.emission, -bound, bound, generator=generator)
        nn.init.normal_(self.ends, generator=generator)

    def forward(self, emission: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
        # w_s + Σ_v words_sv · u_v: [T·S, H], [2, S, W]
        return emission + self._summed(self.emission).flatten(0, 1), ends + self._summed(self.ends)

    def _summed(self, vectors: Tensor) -> Tensor:
        """Return Σ_v words_sv · vectors_v, [V, n, W] → [n, S, W]."""
        with torch.autocast(vectors.device.type, enabled=False):  # its gradient is in float32
            summed: Tensor = torch.sparse.mm(self.words, vectors.flatten(1))
        steps: Tensor = summed.unflatten(1, vectors.shape[1:])
        return steps.transpose(0, 1)


class WordSharing(nn.Module):
    """A network with weights of states, to which vectors of words are added in training."""

    emission: nn.Linear  # to the emissions of T steps, weights [T·S, H]
    ends: nn.Parameter  # vectors of the first and the last state [2, S, W]
    scale: nn.Parameter  # of their cosines

    def __init__(self) -> None:
        super().__init__()
        self.words: _WordVectors | None = None

    def state_weights(self) -> tuple[Tensor, Tensor]:
        """Return the weights of emissions [T·S, H] and the vectors of ends [2, S, W]."""
        weights = self.emission.weight, self.ends
        return weights if self.words is None else self.words(*weights)

    def read(self, hidden: Tensor, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Return the emissions [B, T, S] of hidden units [B, H], and the logits of both ends.

        The logits [B, 2, S] are scaled cosines of encoded observations [B, 2, W] to the ends.
        """
        weight, ends = self.state_weights()
        emissions = F.linear(hidden, weight, self.emission.bias).unflatten(1, (-1, ends.shape[1]))
        directions = F.normalize(ends, dim=-1)
        cosines = torch.einsum("bed,esd->bes", F.normalize(encoded.float(), dim=-1), directions)
        return emissions.float(), self.scale * cosines.float()


@contextmanager
def learning_words(network: Any, taxonomy: Taxonomy) -> Iterator[None]:
    """Train a network with vectors of the words of actions, if its settings say so.

    In the end they are added to its weights, so that planning knows no words.
    """
    layers = []
    if network.config.words:
        layers = [layer for layer in network.modules() if isinstance(layer, WordSharing)]
        words = shared_words([action.name for action in taxonomy.actions])
    for layer in layers:
        of_states = words[network.states.actions.cpu()]
        layer.words = _WordVectors(of_states, layer.emission, layer.ends).to(layer.ends.device)
    yield
    for layer in layers:
        with torch.no_grad():
            emission, ends = layer.state_weights()
            layer.emission.weight.copy_(emission)
            layer.ends.copy_(ends)
        layer.words = None


@dataclass(frozen=True)
class CrfOutputs:
    """Outputs of the network for B queries."""

    scores: SequenceScores
    first: Tensor  # logits of the first state, read from the initial observation alone, [B, S]
    last: Tensor  # logits of the last state, read from the goal alone, [B, S]


class ObservationEncoder(nn.Module):
    """Encodes observations by two linear layers, trained apart and applied as one.

    Without an activation between them, multiplying their weights is cheaper than applying both; out
    of training the product is kept.
    """

    mean: Tensor
    horizon: int  # T, of the longest sequences

    def __init__(self, config: ChainConfig, observation_dim: int) -> None:
        super().__init__()
        self.config, self.observation_dim = config, observation_dim
        self.encoder = nn.Linear(observation_dim, config.hidden)
        self.narrowing = nn.Linear(config.hidden, config.width)
        self.register_buffer("mean", torch.zeros(observation_dim))
        self._product: tuple[Tensor, Tensor] | None = None
        self._states: TaskStates | None = None

    def _register(self, states: TaskStates) -> None:
        for attribute in fields(states):  # the others are derived from the saved one
            saved = attribute.name == "lookup"
            self.register_buffer(
                f"states_{attribute.name}", getattr(states, attribute.name), persistent=saved
            )

    @property
    def states(self) -> TaskStates:
        """The states, on the device of the network."""
        parts = {
            attribute.name: getattr(self, f"states_{attribute.name}")
            for attribute in fields(TaskStates)
        }
        kept = self._states
        if kept is None or any(getattr(kept, name) is not tensor for name, tensor in parts.items()):
            kept = self._states = TaskStates(**parts)
        return kept

    def train(self, mode: bool = True) -> Self:
        """Set the mode, and forget the product of the weights."""
        self._product = None
        return super().train(mode)

    @torch.no_grad()
    def take_over(self, learned: Self) -> None:
        """Copy a trained network over a subset of these states; further ones stay as drawn."""
        for layer in self.modules():
            if isinstance(layer, WordSharing) and layer.words is not None:
                for vectors in layer.words.parameters():
                    vectors.zero_()
        old, target = learned.states.to("cpu"), self.state_dict()
        ids, actions = self.states.lookup[old.tasks, old.actions], old.lookup.shape[1]
        row, column = (old.tasks[:, None] == old.tasks).nonzero(as_tuple=True)
        tasks, place = old.tasks[row], self.states.place[ids]
        for name, trained in learned.state_dict().items():
            tensor, weights = trained.to("cpu"), target[name]
            if name.endswith("ends"):  # [2, S, W]
                weights[:, ids] = tensor
            elif name.endswith(("emission.weight", "emission.bias")):  # [T·S, …]
                parts = tensor.unflatten(0, (-1, len(old)))
                weights.unflatten(0, (-1, len(self.states)))[:, ids] = parts
            elif name.endswith(("change", "counted")):  # [C, A, A]
                before = tensor[tasks, old.place[row], old.place[column]]
                weights[tasks, place[row], place[column]] = before
            elif name.endswith("before.weight"):  # of each action done, and of its recency [H, 2·K]
                weights.unflatten(1, (2, -1))[:, :, :actions] = tensor.unflatten(1, (2, -1))
            elif name != "states_lookup":
                weights.copy_(tensor)

    def encoded(self, observations: Tensor, generator: torch.Generator | None) -> Tensor:
        """Encode observations [B, 2, E] as [B, 2, W]."""
        observations = prepared(observations, self.config, self.mean)
        observations = dropped(observations, self.config.input_dropout, generator)
        weight, bias = self._weights()
        return F.linear(observations, weight, bias)

    def _weights(self) -> tuple[Tensor, Tensor]:
        """Return the product [W, E] of both layers' weights, and its bias [W]."""
        kept = self._product
        if kept is not None and kept[0].device == self.mean.device:
            return kept
        product = self.narrowing.weight @ self.encoder.weight, self.narrowing(self.encoder.bias)
        if not (self.training or torch.is_grad_enabled()):
            self._product = product
        return product


def dropped(values: Tensor, rate: float, generator: torch.Generator | None) -> Tensor:
    """Return values of which a share is zeroed; all of them without a generator.

    Args:
        values: Tensor of any shape.
        rate: Share to zero.
        generator: Draws it.
    """
    return values if generator is None else Dropout(rate, generator)(values)


class ChainNetwork(ObservationEncoder, WordSharing):
    """Emissions from both observations, transitions learned around counts.

    One linear encoder encodes both observations; an MLP on both encoded observations computes the
    emissions of every step. Each end is also predicted from its own observation alone, by cosines
    to learned vectors; these logits have a loss of their own and are added to the emissions.
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
        # transitions: logarithms of smoothed counts [C, A, A]; see `smoothed_transitions`
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
        """Compute the scores of all sequences, and the logits of the ends, from [B, E] each.

        Args:
            initial: Initial observations [B, E].
            goal: Goal observations [B, E].
            generator: Draws the dropout; None for none.
        """
        encoded = self.encoded(torch.stack([initial, goal], dim=1).float(), generator)  # [B, 2, W]
        between = F.gelu(self.hidden(dropped(encoded, self.config.dropout, generator).flatten(1)))
        emissions, logits = self.read(dropped(between, self.config.dropout, generator), encoded)
        steps = torch.tensor([0, self.horizon - 1], device=logits.device)
        emissions = emissions.index_add(1, steps, self.end_factors[:, None] * logits)
        scores = SequenceScores(self.states, emissions, self.transitions)
        return CrfOutputs(scores=scores, first=logits[:, 0], last=logits[:, 1])


class ChainLoss(WindowLoss):
    """−log p(sequence | observations), summed over tasks, and cross-entropies of both ends.

    The ends are pairs of task and action, which teaches the task.
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
