"""The paper's predictor, one sequence at a time in float64, from tensors by their names."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F


def norm(x: Tensor, epsilon: float = 1e-6) -> Tensor:
    """Rows of mean 0 and deviation 1."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / (x.var(-1, unbiased=False, keepdim=True) + epsilon).sqrt()


class SlowPredictor:
    """Sequences of tokens through causal blocks; `tensors` are leaves that take gradients."""

    def __init__(self, tensors: Mapping[str, Tensor], *, heads: int) -> None:
        self.tensors = {
            name.removeprefix("predictor."): tensor.detach().double().requires_grad_()
            for name, tensor in tensors.items()
        }
        self.heads, self.width = heads, len(self.tensors["state_mask_token"])
        self.depth = sum(name.endswith("attn.qkv.bias") for name in tensors)

    def linear(self, name: str, x: Tensor) -> Tensor:
        return x @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]

    def position(self, place: int) -> Tensor:
        half = self.width // 2
        angles = [place / 10_000 ** (index / half) for index in range(half)]
        waves = [math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]
        return torch.tensor(waves, dtype=torch.float64)

    def blocks(self, tokens: list[Tensor]) -> Tensor:
        """Tokens [L, D] after all blocks, before the last norm."""
        x = torch.stack([token + self.position(place) for place, token in enumerate(tokens)])
        later = torch.full((len(x), len(x)), -torch.inf, dtype=torch.float64).triu(1)
        for block in range(self.depth):
            mixed = []
            parts = self.linear(f"blocks.{block}.attn.qkv", norm(x)).chunk(3, dim=1)
            for query, key, value in zip(*(p.chunk(self.heads, dim=1) for p in parts), strict=True):
                scores = query @ key.T / (self.width / self.heads) ** 0.5 + later
                mixed.append(scores.softmax(dim=1) @ value)
            x = x + self.linear(f"blocks.{block}.attn.proj", torch.cat(mixed, dim=1))
            hidden = F.gelu(self.linear(f"blocks.{block}.mlp.fc1", norm(x)), approximate="tanh")
            x = x + self.linear(f"blocks.{block}.mlp.fc2", hidden)
        return x

    def latents(self, initial: Tensor, vectors: Tensor) -> Tensor:
        """Latent states [T, D] after each action; `initial` is normalised."""
        tokens = [self.linear("state_embed", initial)]
        for vector in vectors.double():
            tokens += [self.linear("action_embed", vector), self.tensors["state_mask_token"]]
        return self.blocks(tokens)[2::2]

    def last_norm(self, x: Tensor) -> Tensor:
        return norm(x) * self.tensors["norm.weight"] + self.tensors["norm.bias"]

    def states(self, initial: Tensor, vectors: Tensor) -> Tensor:
        """Predicted states [T, E]."""
        return self.linear("state_head", self.last_norm(self.latents(initial, vectors)))
