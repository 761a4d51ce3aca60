"""Vectors of the words in actions' names, trained with the weights of a chain's states."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import log
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.data.annotations import Taxonomy, folded

_STEM = 5  # letters that a word is known by, so that "potatoes" is "potato"
_LENGTH = 0.5  # length of a name's row of weights: its words learn half as fast as its own weights


def shared_words(names: Sequence[str]) -> Tensor:
    """Return the weights of the V words that several of K names have, float32 [K, V].

    Words weigh the logarithm of their inverse frequency among names; rows have length 1/2, or are
    zero where a name has no such word.
    """
    words = [{word[:_STEM] for word in re.findall(r"[^\W\d]+", folded(name))} for name in names]
    number = {word: sum(word in own for own in words) for word in sorted(set().union(*words))}
    kept = [word for word, count in number.items() if count > 1]
    weights = [[(word in own) * log(len(names) / number[word]) for word in kept] for own in words]
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
        own = self.emission.weight, self.ends
        return own if self.words is None else self.words(*own)

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
    parts = []
    if network.config.words:
        parts = [part for part in network.modules() if isinstance(part, WordSharing)]
        words = shared_words([action.name for action in taxonomy.actions])
    for part in parts:
        of_states = words[network.states.actions.cpu()]
        part.words = _WordVectors(of_states, part.emission, part.ends).to(part.ends.device)
    yield
    for part in parts:
        with torch.no_grad():
            emission, ends = part.state_weights()
            part.emission.weight.copy_(emission)
            part.ends.copy_(ends)
        part.words = None
