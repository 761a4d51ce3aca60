"""The predictor: a causal transformer over an initial observation, actions and state slots."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.errors import ConfigError
from cefito.field.layers import gathered, linear, mlp, product_dtype
from cefito.field.settings import FieldConfig


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return softmax(Q Kᵀ / √d + mask) V.

    By PyTorch's kernel, except for bfloat16 on a CPU: there its backward pass takes about three
    times as long as plain matrix products, for which the CPU has instructions.

    Args:
        query: [B, heads, L, d].
        key: [B, heads, M, d].
        value: [B, heads, M, d].
        mask: As `prepared_mask` makes it, broadcastable to [B, heads, L, M]; None if every query
            may see every key.
    """
    # query [B, heads, L, d], key and value [B, heads, M, d] → [B, heads, L, d]; mask of
    # `prepared_mask`, broadcastable to [B, heads, L, M]; None if every query may see every key
    if not _by_products(query.dtype, query.device):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    query, key, value = (tensor.contiguous() for tensor in (query, key, value))
    scores = (query * query.shape[-1] ** -0.5) @ key.mT  # [B, heads, L, M]
    if mask is not None:
        scores += mask
    mixed: Tensor = scores.softmax(dim=-1) @ value
    return mixed


def prepared_mask(mask: Tensor) -> Tensor:
    """Return a mask, True if a query may see a key, as `attend` takes it under autocast."""
    dtype = product_dtype(mask)
    if not _by_products(dtype, mask.device):
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, -torch.inf)


def _by_products(dtype: torch.dtype, device: torch.device) -> bool:
    return dtype == torch.bfloat16 and device.type == "cpu"


EPSILON = 1e-6  # of the norms between and behind the blocks


def normalise(x: Tensor, epsilon: float = EPSILON) -> Tensor:
    """Apply parameter-free layer norm over the last dimension, in at least float32."""
    return F.layer_norm(x.float(), x.shape[-1:], eps=epsilon)


def prepared(x: Tensor, config: Any, mean: Tensor) -> Tensor:
    """Return observations […, E], minus their mean and layer-normalised, each if configured.

    Args:
        x: Observations […, E].
        config: Settings with `centre` and `normalise`.
        mean: Mean observation of training [E].
    """
    x = x - mean if config.centre else x
    return normalise(x) if config.normalise else x


def normalise_observation(x: Tensor, config: FieldConfig) -> Tensor:
    """Normalise (centred) observations […, E] along the features, as configured, in float32."""
    if config.normalisation == "unit":
        return F.normalize(x.float(), dim=-1)  # x / ‖x‖
    return normalise(x, config.observation_epsilon)


def positions(length: int, width: int) -> Tensor:
    """Return sinusoidal positions [length, width]: sines of all frequencies, then cosines."""
    half = width // 2
    frequency = torch.exp(-math.log(10_000.0) * torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=1).float()


class Attention(nn.Module):
    """Projections of multi-head self-attention; callers split the heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def split(self, x: Tensor) -> Tensor:
        """[B, L, D] → [B, heads, L, D / heads]."""
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)  # type: ignore[no-any-return]


class Mlp(nn.Module):
    """Two linear layers with a tanh-form GELU between them."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """[…, D] → […, D]."""
        return mlp(self.fc1, self.fc2, x)


class TransformerBlock(nn.Module):
    """A pre-norm transformer block with parameter-free norms.

    Args:
        width: Width of tokens, D.
        heads: Number of heads of the attention.
        hidden: Width of the MLP.
    """

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.attn = Attention(width, heads)
        self.mlp = Mlp(width, hidden)

    def forward(
        self,
        x: Tensor,
        *,
        index: Tensor | None = None,
        mask: Tensor | None = None,
        read: slice | Tensor = slice(None),
    ) -> Tensor:
        """Apply the block; compute only the tokens `read`, [B, Q, D].

        Args:
            x: Tokens [B, L, D]; with an index, distinct ones [n, D].
            index: The distinct token at each place [B, L].
            mask: As in `attend`.
            read: Places whose tokens are computed.
        """
        # mask of `prepared_mask`, broadcastable to [B, heads, L, L]; None for causal
        width, layer = x.shape[-1], self.attn.qkv
        normed = normalise(x)
        normed = normed.to(product_dtype(normed))  # once, not by each of several products
        # Q of the tokens read, K and V of all: [B, heads, L, D / heads]
        if index is not None:
            query, key, value = linear(layer, normed).split(width, dim=-1)
            key, value = gathered(key, index), gathered(value, index)
            x, query = gathered(x, index[:, read]), gathered(query, index[:, read])
        elif isinstance(read, slice) and read == slice(None):
            query, key, value = linear(layer, normed).split(width, dim=-1)
        else:
            query = linear(layer, normed[:, read], slice(width))
            key, value = linear(layer, normed, slice(width, None)).split(width, dim=-1)
            x = x[:, read]
        if mask is None:
            mask = prepared_mask(
                torch.ones(key.shape[-2], key.shape[-2], dtype=torch.bool, device=x.device).tril()
            )
        query, key, value = map(self.attn.split, (query, key, value))
        mixed = attend(query, key, value, mask[..., read, :])
        # x ← x + W_o attention(LN(x)); x ← x + MLP(LN(x))
        x = x + linear(self.attn.proj, mixed.transpose(-3, -2).flatten(-2))
        return x + self.mlp(normalise(x))  # type: ignore[no-any-return]


class Predictor(nn.Module):
    """Predicts the states after each action of a sequence, and the actions between states.

    Args:
        config: Sizes and encodings.
        observation_dim: Width E of observations.
        action_count: Number K of actions.
        horizon: Number T of steps.
        action_vectors: Frozen text embeddings or mean observations [K, W]; None to learn them.

    Raises:
        ConfigError: The configured encoding needs vectors, and none are given.
    """

    action_vectors: Tensor
    pos_embed: Tensor

    def __init__(
        self,
        *,
        config: FieldConfig,
        observation_dim: int,
        action_count: int,
        horizon: int,
        action_vectors: Tensor | None = None,
    ) -> None:
        super().__init__()
        if config.action_encoding in ("text", "observed") and action_vectors is None:
            raise ConfigError(
                f"action_encoding = '{config.action_encoding}', but no vectors of the actions are "
                "given. Prepare the data set with action_text_features.npy or choose 'learned'."
            )
        self.config, self.horizon = config, horizon
        self.observation_dim, self.action_count = observation_dim, action_count
        width = config.width
        self.learned_actions = action_vectors is None or config.action_encoding == "learned"
        if self.learned_actions or action_vectors is None:
            self.action_vectors = nn.Parameter(torch.randn(action_count, config.action_dim))
        else:
            self.register_buffer("action_vectors", action_vectors.float())
        if config.action_encoding == "observed":
            # distinguish actions with similar mean observations
            self.action_offsets = nn.Parameter(torch.empty(action_count, width))
        if config.goal_skip:
            self.skip_scale = nn.Parameter(torch.ones(()))
        self.other_vectors: Tensor | None = None
        self.state_embed = nn.Linear(observation_dim, width)
        self.action_embed = nn.Linear(self.action_vectors.shape[1], width)
        self.state_mask_token = nn.Parameter(torch.empty(width))
        self.action_mask_token = nn.Parameter(torch.empty(width))
        self.blocks = nn.ModuleList(
            TransformerBlock(width, config.heads, round(config.mlp_ratio * width))
            for _ in range(config.depth)
        )
        self.norm = nn.LayerNorm(width, eps=EPSILON)
        self.state_head = nn.Linear(width, observation_dim)
        self.action_head = nn.Linear(width, action_count)
        self.register_buffer("pos_embed", positions(2 * horizon + 1, width), persistent=False)

    def reset(self, generator: torch.Generator) -> None:
        """Draw all weights anew: truncated normal, zero biases; learned actions standard normal.

        Weights have deviation 0.02 ("fixed") or 1 / √inputs ("fan_in"). With "torch",
        weights and biases are uniform within ±1 / √inputs, and mask tokens are zero.
        """
        native = self.config.init == "torch"
        for module in self.modules():
            if isinstance(module, nn.Linear) and native:
                bound = module.in_features**-0.5
                nn.init.uniform_(module.weight, -bound, bound, generator=generator)
                nn.init.uniform_(module.bias, -bound, bound, generator=generator)
            elif isinstance(module, nn.Linear):
                deviation = 0.02 if self.config.init == "fixed" else module.in_features**-0.5
                nn.init.trunc_normal_(module.weight, std=deviation, generator=generator)
                nn.init.zeros_(module.bias)
        self.norm.reset_parameters()
        for token in (self.state_mask_token, self.action_mask_token):
            if native:
                nn.init.zeros_(token)
            else:
                nn.init.trunc_normal_(token, std=0.02, generator=generator)
        if self.learned_actions:
            nn.init.normal_(self.action_vectors, generator=generator)
        if self.config.action_encoding == "observed":
            nn.init.trunc_normal_(self.action_offsets, std=0.02, generator=generator)
        if self.config.goal_skip:
            nn.init.ones_(self.skip_scale)

    @contextmanager
    def using(self, vectors: Tensor | None) -> Iterator[None]:
        """Use other frozen action vectors [K, W] within the context; None keeps them."""
        before, self.other_vectors = self.other_vectors, vectors
        try:
            yield
        finally:
            self.other_vectors = before

    @property
    def vectors(self) -> Tensor:
        """The current vectors of the actions [K, W]."""
        return self.action_vectors if self.other_vectors is None else self.other_vectors

    def action_tokens(self) -> Tensor:
        """Return the token of each action, without position, [K, D]."""
        tokens = self.action_embed(self.vectors)
        if self.config.action_encoding == "observed":
            tokens = tokens + self.action_offsets
        return tokens  # type: ignore[no-any-return]

    def skip(self) -> Tensor | None:
        """Return the vector added to the state predicted after each action [K, E], or None."""
        return self.skip_scale * self.vectors if self.config.goal_skip else None

    def head(self, x: Tensor, actions: Tensor) -> Tensor:
        """Predict states […, E] from state tokens […, D] and actions: W_s LN(x) + b_s + skip(a)."""
        states = linear(self.state_head, self.norm(x))
        skip = self.skip()
        return states if skip is None else states + F.embedding(actions, skip)

    def state_token(self, observation: Tensor) -> Tensor:
        """Return the token of each (centred) observation, without position, […, E] → […, D]."""
        return self.state_embed(self.normalised(observation))  # type: ignore[no-any-return]

    def normalised(self, observation: Tensor) -> Tensor:
        """Normalise (centred) observations […, E] as configured."""
        return normalise_observation(observation, self.config)

    def states(self, initial: Tensor, actions: Tensor) -> Tensor:
        """Predict the state after each action [B, T, E], the goal last (pass 1)."""
        return self.head(self.latents(initial, actions), actions)

    def latents(self, initial: Tensor, actions: Tensor) -> Tensor:
        """Return the last block's tokens after each action [B, T, D], before norm and head."""
        # [x_s, a_1, s, …, a_T, s], every state slot s holding the state-mask token: [B, 2T + 1, D]
        slots = self.state_mask_token.expand(len(actions), actions.shape[1], -1)
        pairs = torch.stack([F.embedding(actions, self.action_tokens()), slots], dim=2)
        x = torch.cat([self.state_token(initial)[:, None], pairs.flatten(1, 2)], dim=1)
        x = x + self.pos_embed[: x.shape[1]]
        for block in self.blocks:
            x = block(x)
        return x[:, 2::2]

    def goal(self, initial: Tensor, actions: Tensor) -> Tensor:
        """Predict the goal [B, E] (paper, Eq. 1); the plain reference of every faster path."""
        return self.head(self.latents(initial, actions)[:, -1], actions[:, -1])
