"""The states of a chain over actions, and what networks over them share: encoder and words.

A state is a pair of a task and one of its actions. There are no transitions between tasks: arrays
are padded to the largest task, [C, A, A]. Vectors of the words in actions' names are trained with
the weights of the states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from math import log
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.data.vocabulary import Taxonomy, words
from cefito.field.layers import Dropout
from cefito.field.predictor import prepared
from cefito.planners.chain.method import ChainConfig

_STEM = 5  # letters that a word is known by, so that "potatoes" is "potato"
_LENGTH = 0.5  # length of a name's row of weights: its words learn half as fast as its own weights


@dataclass(frozen=True)
class TaskStates:
    """The states of a chain, task by task."""

    actions: Tensor  # action id of each state, int64 [S]
    tasks: Tensor  # task id of each state, ascending, int64 [S]
    # state at each place of each task, int64 [C, A]; S if the task has fewer than A actions
    grid: Tensor
    place: Tensor  # place of each state in its task, int64 [S]
    lookup: Tensor  # state of each task's actions, int64 [C, K]; −1 for actions of other tasks

    @classmethod
    def make(cls, actions: Sequence[Sequence[int]], action_count: int) -> TaskStates:
        """Number the states of the actions of each task, position = task id."""
        sizes = [len(row) for row in actions]
        ids = torch.tensor([action for row in actions for action in row], dtype=torch.int64)
        tasks = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
        place = torch.tensor([place for size in sizes for place in range(size)], dtype=torch.int64)
        grid = torch.full((len(sizes), max(sizes)), len(ids))
        grid[tasks, place] = torch.arange(len(ids))
        lookup = torch.full((len(sizes), action_count), -1)
        lookup[tasks, ids] = torch.arange(len(ids))
        return cls(actions=ids, tasks=tasks, grid=grid, place=place, lookup=lookup)

    @classmethod
    def of(cls, lookup: Tensor) -> TaskStates:
        """Return the states of a saved lookup [C, K]."""
        actions = [(row >= 0).nonzero().flatten().tolist() for row in lookup]
        return cls.make(actions, lookup.shape[1])

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def real(self) -> Tensor:
        """Whether each place of each task has a state, bool [C, A]."""
        return self.grid < len(self)

    @property
    def task_count(self) -> int:
        """C."""
        return len(self.grid)

    @cached_property
    @torch.inference_mode(False)
    def owners(self) -> Tensor:
        """Tasks of each action, ascending, int64 [K, M]; C at places without one."""
        order = self.actions.argsort(stable=True)
        counts = self.actions.bincount(minlength=self.lookup.shape[1])
        place = torch.arange(len(self), device=order.device) - (
            (counts.cumsum(0) - counts).repeat_interleave(counts)
        )
        most = max(1, int(counts.max()))
        owners = self.tasks.new_full((len(counts), most), self.task_count)
        owners[self.actions[order], place] = self.tasks[order]
        return owners

    @cached_property
    @torch.inference_mode(False)
    def blocks(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """Tasks of similar size [c], and their part of the grid [c, a], for sums without padding.

        Each task of a block has at least two thirds as many actions as its largest one.
        """
        sizes = self.real.sum(dim=1)
        order = sizes.argsort(descending=True, stable=True)
        blocks, first, ranked = [], 0, sizes[order].tolist()
        for place, size in enumerate([*ranked, -1]):
            if 3 * size < 2 * ranked[first]:
                tasks = order[first:place]
                blocks.append((tasks, self.grid[tasks, : max(1, ranked[first])]))
                first = place
        return tuple(blocks)

    @cached_property
    @torch.inference_mode(False)
    def shared(self) -> Tensor:
        """Whether each state's action is one of several tasks, bool [S]."""
        return self.actions.bincount()[self.actions] > 1

    def by_task(self) -> tuple[tuple[int, ...], ...]:
        """Return the action ids of each task, ascending."""
        return tuple(tuple(ids.nonzero()[:, 0].tolist()) for ids in (self.lookup >= 0))

    def to(self, device: torch.device | str) -> TaskStates:
        """Return the states on a device."""
        return TaskStates(
            **{
                attribute.name: getattr(self, attribute.name).to(device)
                for attribute in fields(self)
            }
        )

    def find(self, tasks: Tensor, sequences: Tensor) -> Tensor:
        """Return the states […, T] of sequences […, T] of tasks […]; −1 for foreign actions."""
        return self.lookup[tasks[..., None], sequences]

    def padded(self, values: Tensor) -> Tensor:
        """Return values of states […, S] as […, C, A], −∞ at places without a state."""
        filled = F.pad(values, (0, 1), value=-torch.inf)
        padded: Tensor = filled[..., self.grid.flatten()].unflatten(-1, self.grid.shape)
        return padded

    def flat(self, values: Tensor) -> Tensor:
        """Return values […, C, A] as values of states […, S]."""
        return values[..., self.tasks, self.place]


def smoothed_transitions(
    states: TaskStates,
    sequences: NDArray[np.integer[Any]] | Tensor,
    tasks: NDArray[np.integer[Any]] | Tensor,
    smoothing: float = 0.2,
) -> Tensor:
    """Return log p(b | a, task) of smoothed counts of training windows.

    Args:
        states: States of all tasks.
        sequences: Actions of training windows [N, T].
        tasks: Their tasks [N].
        smoothing: s.
    """
    # returns float32 [C, A, A]: log((n(a, b) + s) / (n(a) + s·|A|)); 0 at places without a state
    sequence_states = states.find(torch.as_tensor(tasks).long(), torch.as_tensor(sequences).long())
    pairs = torch.stack([sequence_states[:, :-1].flatten(), sequence_states[:, 1:].flatten()])
    pairs = pairs[:, (pairs >= 0).all(dim=0)]
    width = states.grid.shape[1]
    counts = torch.zeros(states.task_count, width, width, dtype=torch.float64)
    index = (states.tasks[pairs[0]], states.place[pairs[0]], states.place[pairs[1]])
    counts.index_put_(index, torch.ones(pairs.shape[1], dtype=torch.float64), accumulate=True)
    real = states.real
    both = real[:, :, None] & real[:, None, :]
    counts = (counts + smoothing) * both
    shares = counts / counts.sum(dim=2, keepdim=True).clamp_min(1e-300)
    return torch.where(both, shares.clamp_min(1e-300).log(), 0.0).float()


def shared_words(names: Sequence[str]) -> Tensor:
    """Return the weights of the V words that several of K names have, float32 [K, V].

    Words weigh the logarithm of their inverse frequency among names; rows have length 1/2, or are
    zero where a name has no such word.
    """
    stems = [{word[:_STEM] for word in words(name) if not word.isdecimal()} for name in names]
    number = {stem: sum(stem in row for row in stems) for stem in sorted(set().union(*stems))}
    kept = [stem for stem, count in number.items() if count > 1]
    weights = [[(stem in row) * log(len(names) / number[stem]) for stem in kept] for row in stems]
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
