"""The network of SCHEMA (Niu et al., ICLR 2024), learned anew from its published facts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.field.predictor import Dropout, normalise, positions
from cefito.planners.schema.decoder import Drop, Keys, SharedMemoryDecoder, nothing_dropped
from cefito.planners.schema.settings import SchemaConfig
from cefito.planners.shared.descriptions import DESCRIPTIONS

__all__ = ["BLOCK", "Encoded", "Memory", "Outputs", "SchemaNetwork"]

BLOCK = 512  # queries decoded at once
_SCALE = math.log(1 / 0.07)  # logarithm of the initial factor of the cosines (published)


@dataclass(frozen=True)
class Memory:
    """What all queries are decoded over.

    Attributes:
        encoded: Encoded descriptions of the R states before and the R after each action,
            [K, 2, R, D]; None where there are none.
        states: Their keys and values for the decoder of states.
        actions: Those for the decoder of actions.
    """

    encoded: Tensor | None
    states: Keys
    actions: Keys


@dataclass(frozen=True)
class Encoded:
    """Two encoded observations of B queries.

    Attributes:
        aligned: As descriptions are compared with them, [B, 2, D].
        states: As they are decoded from, [B, 2, D].
    """

    aligned: Tensor
    states: Tensor


@dataclass(frozen=True)
class Outputs:
    """What the network gives for B queries.

    Attributes:
        actions: Logits of each step's action, float32 [B, T, K].
        tasks: Logits of the tasks, float32 [B, C].
        aligned: Encoded initial and goal observations, [B, 2, D].
        between: Decoded states between the steps, [B, T - 1, D].
    """

    actions: Tensor
    tasks: Tensor
    aligned: Tensor
    between: Tensor


class SchemaNetwork(nn.Module):
    """Encoders of observations and descriptions, a task head, decoders of states and of actions.

    The states between the steps are decoded from the two observations, then the actions from all
    states; both over the descriptions of all actions. A projection and a second factor that the
    published network has but nothing reads are left out, D² + D + 1 numbers.

    Args:
        config: Widths and options.
        observation_dim: E.
        task_count: C.
        action_count: K.
        horizon: T.
        described: 2R, the descriptions of an action, and W, their width; None where there are none
            to encode.

    Attributes:
        mean: Subtracted from the observations, [E].
        counts: How often each action is followed by each in training, [K, K].
        descriptions: What is encoded [K, 2R, W]; only where there is something.
    """

    mean: Tensor
    counts: Tensor
    descriptions: Tensor
    state_positions: Tensor
    action_positions: Tensor

    def __init__(
        self,
        *,
        config: SchemaConfig,
        observation_dim: int,
        task_count: int,
        action_count: int,
        horizon: int,
        described: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        self.config, self.observation_dim, self.horizon = config, observation_dim, horizon
        self.task_count, self.action_count = task_count, action_count
        width, hidden = config.width, config.hidden or 2 * observation_dim
        free = config.described == "free"
        self.encoder = nn.Sequential(nn.Linear(observation_dim, hidden), nn.Linear(hidden, width))
        self.description: nn.Linear | None = None
        if described is not None:
            self.description = nn.Linear(described[1], width, bias=False)
            self.register_buffer("descriptions", torch.zeros(action_count, *described))
        self.free = nn.Parameter(torch.zeros(action_count, DESCRIPTIONS, width)) if free else None
        self.has_memory = described is not None or free
        if self.has_memory:
            self.scale = nn.Parameter(torch.tensor(_SCALE))
        self.task1 = nn.Linear(2 * width, width)
        self.task2 = nn.Linear(width, task_count)
        self.state_decoder, self.action_decoder = (
            SharedMemoryDecoder(
                width=width,
                heads=config.heads,
                hidden=config.feedforward or 2 * width,
                layers=config.layers,
                memory=self.has_memory,
            )
            for _ in range(2)
        )
        self.ends = nn.Linear(width, width)
        self.told = nn.Linear(task_count, width) if config.state_task else None
        self.between = nn.Linear(width, width, bias=False)
        self.task = nn.Embedding(task_count, width)
        self.action1 = nn.Linear(width, width)
        self.action2 = nn.Linear(width, action_count)
        self.register_buffer("mean", torch.zeros(observation_dim))
        self.register_buffer("counts", torch.zeros(action_count, action_count, dtype=torch.int64))
        # kept with the weights: nothing else tells T
        self.register_buffer("state_positions", positions(horizon + 1, width))
        self.register_buffer(
            "action_positions", positions(2 * horizon + 1, width), persistent=False
        )

    def reset(self, generator: torch.Generator) -> None:
        """Draw all weights anew: Kaiming-uniform layers, zero biases, normal vectors."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.kaiming_uniform_(module.weight, a=5**0.5, generator=generator)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.task.weight, generator=generator)
        if self.free is not None:
            nn.init.normal_(self.free, generator=generator)

    def prepared(self, observations: Tensor) -> Tensor:
        """Observations […, E] as they are encoded: centred and normalised where configured."""
        x = observations - self.mean if self.config.centre else observations
        return normalise(x) if self.config.normalise else x

    def memory(
        self, descriptions: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Memory:
        """Encode the descriptions and project them once, for any number of queries.

        Args:
            descriptions: Others than its own, [K, 2R, W].
            generator: In training, the source of dropout.
        """
        if not self.has_memory:
            return Memory(None, (), ())
        if self.free is not None:
            encoded = self.free
        else:
            assert self.description is not None
            given = self.descriptions if descriptions is None else descriptions
            encoded = self.description(self._drop(self.config.input_dropout, generator)(given))
        vectors = encoded.flatten(0, 1)
        return Memory(
            encoded=encoded.unflatten(1, (2, -1)),
            states=self.state_decoder.keys(vectors),
            actions=self.action_decoder.keys(vectors),
        )

    def encode(
        self, initial: Tensor, goal: Tensor, *, generator: torch.Generator | None = None
    ) -> Encoded:
        """Encode initial and goal observations [B, E]."""
        states = self.encoded(torch.stack([initial, goal], dim=1), generator)
        return Encoded(aligned=states, states=states)

    def encoded(self, observations: Tensor, generator: torch.Generator | None) -> Tensor:
        """States […, D] of observations […, E]: two linear layers, nothing between them."""
        drop = self._drop(self.config.input_dropout, generator)
        return self.encoder(drop(self.prepared(observations)))  # type: ignore[no-any-return]

    def task_logits(self, states: Tensor, drop: Drop = nothing_dropped) -> Tensor:
        """Logits of the tasks, float32 [B, C], from encoded observations [B, 2, D]."""
        return self.task2(drop(F.relu(self.task1(states.flatten(1))))).float()  # type: ignore[no-any-return]

    def forward(
        self,
        initial: Tensor,
        goal: Tensor,
        tasks: Tensor | None = None,
        *,
        memory: Memory | None = None,
        generator: torch.Generator | None = None,
    ) -> Outputs:
        """Decode the states between, then the actions.

        Args:
            initial: Initial observations [B, E].
            goal: Goal observations [B, E].
            tasks: Task ids [B]: the true ones in training; None for the likeliest.
            memory: What `memory` gave, where many batches share it.
            generator: In training, the source of dropout.
        """
        return self.decode(
            self.encode(initial, goal, generator=generator),
            tasks,
            memory or self.memory(generator=generator),
            generator,
        )

    def decode(
        self,
        encoded: Encoded,
        tasks: Tensor | None,
        memory: Memory,
        generator: torch.Generator | None,
    ) -> Outputs:
        """The outputs for encoded observations, as `forward`."""
        drop = self._drop(self.config.dropout, generator)
        states = encoded.states
        logits = self.task_logits(states, drop)
        ends = self.ends(states)
        slots = ends.new_zeros(len(ends), self.horizon - 1, ends.shape[2])
        queries = torch.cat([ends[:, :1], slots, ends[:, 1:]], dim=1) + self.state_positions
        if self.told is not None:
            queries = queries + self.told(logits.detach())[:, None]
        queries = queries + self.added(states, generator)
        decoded = self.state_decoder(queries, memory.states, drop)
        between = self.between(decoded[:, 1:-1])
        whole = torch.cat([states[:, :1], between, states[:, 1:]], dim=1)
        tokens = torch.stack([whole[:, :-1], torch.zeros_like(whole[:, 1:])], dim=2).flatten(1, 2)
        tokens = torch.cat([tokens, whole[:, -1:]], dim=1) + self.action_positions
        tokens = tokens + self.task(logits.argmax(dim=1) if tasks is None else tasks)[:, None]
        decoded = self.action_decoder(tokens, memory.actions, drop)[:, 1::2]
        actions = self.action2(drop(F.relu(self.action1(decoded)))).float()
        return Outputs(actions=actions, tasks=logits, aligned=encoded.aligned, between=between)

    def added(self, states: Tensor, generator: torch.Generator | None) -> Tensor:  # noqa: ARG002
        """What is added to the queries of the state decoder: nothing, in SCHEMA."""
        return states.new_zeros(())

    def alignment(self, aligned: Tensor, encoded: Tensor) -> Tensor:
        """How well observations fit each action: learned factor × mean cosine to its descriptions.

        Args:
            aligned: Encoded initial and goal observations [B, 2, D].
            encoded: Encoded descriptions [K, 2, R, D].

        Returns:
            Logits, float32 [B, 2, K]: of the initial observation with what is described before, of
            the goal with what is after.
        """
        means = F.normalize(encoded.float(), dim=-1).mean(dim=2)
        cosines = torch.einsum("bed,ked->bek", F.normalize(aligned.float(), dim=-1), means)
        return self.scale.exp() * cosines.float()

    @staticmethod
    def _drop(rate: float, generator: torch.Generator | None) -> Drop:
        return nothing_dropped if generator is None else Dropout(rate, generator)
