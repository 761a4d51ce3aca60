"""The network of SCHEMA (Niu et al., ICLR 2024), after its published description."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.field.predictor import attend, normalise, positions
from cefito.planners.base import Shape
from cefito.planners.schema.method import SchemaConfig
from cefito.planners.shared.descriptions import DESCRIPTIONS
from cefito.planners.shared.layers import AttentionHeads, Drop, draw_layers, dropping, keep

Keys = tuple[tuple[Tensor, Tensor], ...]
"""Of each layer the keys and the values of a memory, each [1, heads, M, D / heads]."""


class SharedMemoryDecoder(nn.Module):
    """Post-norm layers of self-attention, attention to the memory, and a feed-forward layer.

    The output of an attention is normalised before it is added, and the sum again. Attention is not
    causal, and its weights are not dropped. There is no norm after the last layer.
    """

    def __init__(self, *, width: int, heads: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(width, heads, hidden) for _ in range(layers))

    def keys(self, memory: Tensor) -> Keys:
        """Keys and values of a memory [M, D] for each layer."""
        crossings: list[_Attention] = [layer.crossing for layer in self.layers]  # type: ignore[misc]
        return tuple(crossing.keys(memory[None]) for crossing in crossings)

    def forward(self, tokens: Tensor, keys: Keys, drop: Drop = keep) -> Tensor:
        """Decode tokens, [B, L, D] → [B, L, D], over the `keys` of a memory."""
        for place, layer in enumerate(self.layers):
            tokens = layer(tokens, keys[place], drop)
        return tokens


class _Attention(AttentionHeads):
    """Multi-head attention with a norm after it; keys and values may be computed once for all."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__(width, heads)
        self.norm = nn.LayerNorm(width)

    def keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, heads, M, D / heads] of vectors [B, M, D]."""
        return self.split(self.key(x)), self.split(self.value(x))

    def forward(self, x: Tensor, keys: tuple[Tensor, Tensor], drop: Drop) -> Tensor:
        """[B, L, D] → [B, L, D]; keys of B queries each, or of one for all."""
        query = self.split(self.query(x))
        shared = len(keys[0]) == 1 < len(x)
        if shared:  # all tokens as those of one query
            query = query.transpose(0, 1).flatten(1, 2)[None]
        mixed = attend(query, *keys)
        if shared:
            mixed = mixed[0].unflatten(1, x.shape[:2]).transpose(0, 1)
        return self.norm(drop(self.out(mixed.transpose(1, 2).flatten(2))))  # type: ignore[no-any-return]


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.among = _Attention(width, heads)
        self.crossing = _Attention(width, heads)
        self.norm_among = nn.LayerNorm(width)
        self.norm_crossing = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, keys: tuple[Tensor, Tensor], drop: Drop) -> Tensor:
        x = self.norm_among(x + drop(self.among(x, self.among.keys(x), drop)))
        x = self.norm_crossing(x + drop(self.crossing(x, keys, drop)))
        return self.norm(x + drop(self.fc2(drop(F.gelu(self.fc1(x))))))  # type: ignore[no-any-return]


BLOCK = 512  # queries decoded at once
_SCALE = math.log(1 / 0.07)  # logarithm of the initial factor of the cosines (published)


@dataclass(frozen=True)
class Memory:
    """The descriptions that all queries are decoded over."""

    encoded: Tensor  # R states before and R after each action, [K, 2, R, D]
    states: Keys  # keys and values for the decoder of states
    actions: Keys  # keys and values for the decoder of actions


@dataclass(frozen=True)
class SchemaOutputs:
    """Outputs of the network for B queries."""

    actions: Tensor  # logits, float32 [B, T, K]
    tasks: Tensor  # logits, float32 [B, C]
    between: Tensor  # decoded states between the steps, [B, T - 1, D]


class SchemaNetwork(nn.Module):
    """Encoders of observations and descriptions, a task head, decoders of states and of actions.

    A projection and a second factor that the published network has but nothing reads are left out,
    D² + D + 1 numbers.
    """

    mean: Tensor  # [E]
    counts: Tensor  # how often each action is followed by each in training, [K, K]
    descriptions: Tensor  # [K, 2R, W]
    state_positions: Tensor
    action_positions: Tensor

    def __init__(self, config: SchemaConfig, shape: Shape) -> None:
        super().__init__()
        self.config, self.horizon = config, shape.horizon
        tasks, actions = shape.tasks, shape.actions
        width, hidden = config.width, config.hidden or 2 * shape.observation_dim
        count, vector = DESCRIPTIONS, shape.text_dim
        if config.described == "observations":  # the mean before and the mean after each action
            count, vector = 2, shape.observation_dim
        self.encoder = nn.Sequential(
            nn.Linear(shape.observation_dim, hidden), nn.Linear(hidden, width)
        )
        self.description = nn.Linear(vector, width, bias=False)
        self.register_buffer("descriptions", torch.zeros(actions, count, vector))
        self.scale = nn.Parameter(torch.tensor(_SCALE))
        self.task1 = nn.Linear(2 * width, width)
        self.task2 = nn.Linear(width, tasks)
        self.state_decoder, self.action_decoder = (
            SharedMemoryDecoder(
                width=width,
                heads=config.heads,
                hidden=config.feedforward or 2 * width,
                layers=config.layers,
            )
            for _ in range(2)
        )
        self.ends = nn.Linear(width, width)
        self.told = nn.Linear(tasks, width) if config.state_task else None
        self.between = nn.Linear(width, width, bias=False)
        self.task = nn.Embedding(tasks, width)
        self.action1 = nn.Linear(width, width)
        self.action2 = nn.Linear(width, actions)
        self.register_buffer("mean", torch.zeros(shape.observation_dim))
        self.register_buffer("counts", torch.zeros(actions, actions, dtype=torch.int64))
        for name, length in (("state", shape.horizon + 1), ("action", 2 * shape.horizon + 1)):
            self.register_buffer(f"{name}_positions", positions(length, width), persistent=False)

    def reset(self, generator: torch.Generator) -> None:
        """Draw all weights anew: Kaiming-uniform layers, zero biases, normal vectors."""
        draw_layers(self, generator)
        nn.init.normal_(self.task.weight, generator=generator)

    def prepared(self, observations: Tensor) -> Tensor:
        """Observations [..., E] as they are encoded: centred and normalised if configured."""
        x = observations - self.mean if self.config.centre else observations
        return normalise(x) if self.config.normalise else x

    def memory(
        self, descriptions: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Memory:
        """Encode the descriptions, or others [K, 2R, W], and project them once, for all queries."""
        given = self.descriptions if descriptions is None else descriptions
        encoded = self.description(dropping(self.config.input_dropout, generator)(given))
        vectors = encoded.flatten(0, 1)
        return Memory(
            encoded=encoded.unflatten(1, (2, -1)),
            states=self.state_decoder.keys(vectors),
            actions=self.action_decoder.keys(vectors),
        )

    def encode(
        self, initial: Tensor, goal: Tensor, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Encode initial and goal observations [B, E] by two linear layers: states [B, 2, D]."""
        drop = dropping(self.config.input_dropout, generator)
        both = torch.stack([initial, goal], dim=1)
        return self.encoder(drop(self.prepared(both)))  # type: ignore[no-any-return]

    def task_logits(self, states: Tensor, drop: Drop = keep) -> Tensor:
        """Logits of the tasks, float32 [B, C], from encoded observations [B, 2, D]."""
        return self.task2(drop(F.relu(self.task1(states.flatten(1))))).float()  # type: ignore[no-any-return]

    def decode(
        self,
        states: Tensor,
        tasks: Tensor | None,
        memory: Memory,
        generator: torch.Generator | None,
    ) -> SchemaOutputs:
        """Decode the states between encoded observations [B, 2, D], then the actions.

        Task ids [B] are the true ones in training; None takes the likeliest.
        """
        drop = dropping(self.config.dropout, generator)
        logits = self.task_logits(states, drop)
        ends = self.ends(states)
        slots = ends.new_zeros(len(ends), self.horizon - 1, ends.shape[2])
        # states: start, T - 1 empty slots, goal [B, T + 1, D]
        queries = torch.cat([ends[:, :1], slots, ends[:, 1:]], dim=1) + self.state_positions
        if self.told is not None:
            queries = queries + self.told(logits.detach())[:, None]
        decoded = self.state_decoder(queries, memory.states, drop)
        between = self.between(decoded[:, 1:-1])
        whole = torch.cat([states[:, :1], between, states[:, 1:]], dim=1)
        # actions: s_0, 0, s_1, 0, ..., s_T [B, 2T + 1, D], read at the odd places
        tokens = torch.stack([whole[:, :-1], torch.zeros_like(whole[:, 1:])], dim=2).flatten(1, 2)
        tokens = torch.cat([tokens, whole[:, -1:]], dim=1) + self.action_positions
        tokens = tokens + self.task(logits.argmax(dim=1) if tasks is None else tasks)[:, None]
        decoded = self.action_decoder(tokens, memory.actions, drop)[:, 1::2]
        actions = self.action2(drop(F.relu(self.action1(decoded)))).float()
        return SchemaOutputs(actions=actions, tasks=logits, between=between)

    def alignment(self, states: Tensor, encoded: Tensor) -> Tensor:
        """Logits, float32 [B, 2, K]: factor × mean cosine of states [B, 2, D] to [K, 2, R, D].

        The initial observation is compared with the descriptions before the action, the goal with
        the ones after it.
        """
        means = F.normalize(encoded.float(), dim=-1).mean(dim=2)
        cosines = torch.einsum("bed,ked->bek", F.normalize(states.float(), dim=-1), means)
        return self.scale.exp() * cosines.float()
