"""SCHEMA: procedure planning by the state changes of steps (Niu et al., ICLR 2024).

Reimplemented from its published description.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from cefito.data.windows import Windows
from cefito.field.predictor import attend, positions, prepared
from cefito.planners.base import Marginals, Queries, Shape
from cefito.planners.network import NetworkPlanner, named_departures
from cefito.planners.queries import finite_outputs
from cefito.planners.schema.method import Described, SchemaConfig
from cefito.planners.shared.descriptions import DESCRIPTIONS, EndMeans, description_vectors
from cefito.planners.shared.layers import AttentionHeads, Drop, draw_layers, dropping, keep
from cefito.planners.shared.transitions import counted_transitions, decode, log_guarded
from cefito.search.problem import Plans, SearchCost
from cefito.training.losses import PlanLoss, mean_term
from cefito.training.trainer import Term

Keys = tuple[tuple[Tensor, Tensor], ...]
"""Of each layer the keys and the values of a memory, each [1 or B, heads, M, D / heads]."""


class SharedMemoryDecoder(nn.Module):
    """Post-norm layers of self-attention, attention to the memory, and a feed-forward layer.

    The output of an attention is normalised before it is added, and the sum again. Attention is not
    causal, and its weights are not dropped. There is no norm after the last layer.

    Args:
        width: Width of tokens, D.
        heads: Number of heads of each attention.
        hidden: Width of the feed-forward layer.
        layers: Number of layers.
    """

    def __init__(self, *, width: int, heads: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(width, heads, hidden) for _ in range(layers))

    def keys(self, memory: Tensor) -> Keys:
        """Keys and values for each layer of a memory [1, M, D], or of B memories [B, M, D]."""
        crossings: list[_Attention] = [layer.crossing for layer in self.layers]  # type: ignore[misc]
        return tuple(crossing.keys(memory) for crossing in crossings)

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
    asked: Tensor  # added to the queries of the decoder of states, [B, T + 1, D]; or zero


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
        return prepared(observations, self.config, self.mean)

    def memory(
        self, descriptions: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Memory:
        """Encode the descriptions, or others [K, 2R, W], and project them once, for all queries."""
        texts = self.descriptions if descriptions is None else descriptions
        encoded = self.description(dropping(self.config.input_dropout, generator)(texts))
        vectors = encoded.flatten(0, 1)[None]
        return Memory(
            encoded=encoded.unflatten(1, (2, -1)),
            states=self.state_decoder.keys(vectors),
            actions=self.action_decoder.keys(vectors),
        )

    def encode(
        self, initial: Tensor, goal: Tensor, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Encode initial and goal observations [B, E] by two linear layers: states [B, 2, D].

        Args:
            initial: Initial observations [B, E].
            goal: Goal observations [B, E].
            generator: Draws the dropout; None for none.
        """
        drop = dropping(self.config.input_dropout, generator)
        both = torch.stack([initial, goal], dim=1)
        return self.encoder(drop(self.prepared(both)))  # type: ignore[no-any-return]

    def exchanged(self, states: Tensor, drop: Drop = keep) -> Tensor:  # noqa: ARG002
        """Return states [B, 2, D] as they are decoded from: as they are aligned, in SCHEMA."""
        return states

    def asked(self, states: Tensor, generator: torch.Generator | None = None) -> Tensor:  # noqa: ARG002
        """Return what is added to the queries of the decoder of states: zero, in SCHEMA."""
        return states.new_zeros(())

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
        """Decode the states between encoded observations, then the actions.

        Args:
            states: Encoded observations [B, 2, D].
            tasks: True task ids [B]; None takes the likeliest.
            memory: Encoded descriptions.
            generator: Draws the dropout; None for none.
        """
        drop = dropping(self.config.dropout, generator)
        states = self.exchanged(states, drop)
        logits = self.task_logits(states, drop)
        ends = self.ends(states)
        slots = ends.new_zeros(len(ends), self.horizon - 1, ends.shape[2])
        # states: start, T - 1 empty slots, goal [B, T + 1, D]
        queries = torch.cat([ends[:, :1], slots, ends[:, 1:]], dim=1) + self.state_positions
        if self.told is not None:
            queries = queries + self.told(logits.detach())[:, None]
        asked = self.asked(states, generator)
        decoded = self.state_decoder(queries + asked, memory.states, drop)
        between = self.between(decoded[:, 1:-1])
        whole = torch.cat([states[:, :1], between, states[:, 1:]], dim=1)
        # actions: s_0, 0, s_1, 0, ..., s_T [B, 2T + 1, D], read at the odd places
        tokens = torch.stack([whole[:, :-1], torch.zeros_like(whole[:, 1:])], dim=2).flatten(1, 2)
        tokens = torch.cat([tokens, whole[:, -1:]], dim=1) + self.action_positions
        tokens = tokens + self.task(logits.argmax(dim=1) if tasks is None else tasks)[:, None]
        decoded = self.action_decoder(tokens, memory.actions, drop)[:, 1::2]
        actions = self.action2(drop(F.relu(self.action1(decoded)))).float()
        return SchemaOutputs(actions=actions, tasks=logits, between=between, asked=asked)

    def alignment(self, states: Tensor, encoded: Tensor) -> Tensor:
        """Logits, float32 [B, 2, K]: factor × mean cosine of states [B, 2, D] to [K, 2, R, D].

        The initial observation is compared with the descriptions before the action, the goal with
        the ones after it.
        """
        means = F.normalize(encoded.float(), dim=-1).mean(dim=2)
        cosines = torch.einsum("bed,ked->bek", F.normalize(states.float(), dim=-1), means)
        return self.scale.exp() * cosines.float()


_LEFT_OUT = 0.3  # share of the videos left out of mean observations at each step, as of the field


class SchemaLoss(PlanLoss):
    """Cross-entropy of actions, tasks and alignment (of both ends), and errors of decoded states.

    The target of a decoded state is the mean of the encoded descriptions of the state after the
    action before it and of the state before the action behind it; no gradient flows into them. The
    true tasks are given in training, the predicted ones in validation.

    Args:
        network: Network that is trained, which holds the text.
        train: Training windows.
        val: Validation windows.
        text: Not read, but by the losses of other methods.
    """

    def __init__(
        self,
        network: SchemaNetwork,
        train: Windows,
        val: Windows,
        text: NDArray[np.float32] | None = None,  # noqa: ARG002
    ) -> None:
        super().__init__(network, train, val)
        self.means: EndMeans | None = None
        if self.config.described == "observations":
            self.means = EndMeans(train, network.prepared, self.device)
        self.transitions = log_guarded(network.counts, smoothing=self.config.smoothing)

    def terms(self, rows: Tensor, generator: torch.Generator) -> Mapping[str, Term]:
        """The losses of a batch."""
        config = self.config
        states = self.module.encode(*self.observations.draw(rows, generator), generator=generator)
        described = None
        if self.means is not None:
            described = self.means.without(rows, _LEFT_OUT, generator)
        actions, tasks = self.actions[rows], self.tasks[rows]
        memory = self.module.memory(described, generator=generator)
        outputs = self.module.decode(states, tasks, memory, generator)
        errors = self.action_errors(outputs.actions.flatten(0, 1), actions.flatten())  # [B · T]
        terms = {
            "actions": mean_term(1.0, errors),
            "task": mean_term(config.task, F.cross_entropy(outputs.tasks, tasks, reduction="none")),
        }
        if config.alignment:
            logits = self.module.alignment(states, memory.encoded).flatten(0, 1)
            ends = actions[:, [0, -1]].flatten()
            terms["alignment"] = mean_term(
                config.alignment, F.cross_entropy(logits, ends, reduction="none")
            )
        if config.states and outputs.between.shape[1]:
            # each [K, D]; the state after step t is after(a_t) and before(a_t+1)
            before, after = memory.encoded.detach().float().mean(dim=2).unbind(dim=1)
            target = (after[actions[:, :-1]] + before[actions[:, 1:]]) / 2
            terms["states"] = mean_term(config.states, (outputs.between.float() - target).square())
        return terms | self.language_terms(outputs, rows, generator)

    def action_errors(self, logits: Tensor, actions: Tensor) -> Tensor:
        """Return the error of each action [n] by its logits [n, K]: cross-entropy, in SCHEMA."""
        return F.cross_entropy(logits, actions, reduction="none")

    def language_terms(
        self,
        outputs: SchemaOutputs,  # noqa: ARG002
        rows: Tensor,  # noqa: ARG002
        generator: torch.Generator,  # noqa: ARG002
    ) -> dict[str, Term]:
        """Return the losses on text: none, in SCHEMA.

        Args:
            outputs: What the network says of a batch of B windows.
            rows: Places of the batch among the training windows [B].
            generator: Draws what is random.
        """
        return {}

    @override
    def best_sequences(self) -> Tensor:
        memory, best = self.module.memory(), []
        initial, goal, _ = self.val
        for ends in zip(initial.split(BLOCK), goal.split(BLOCK), strict=True):
            logits = self.module.decode(self.module.encode(*ends), None, memory, None).actions
            best.append(decode(logits.double().log_softmax(dim=2), self.transitions, 1).sequences)
        return torch.cat(best)[:, 0]


KINDS: dict[Described, str] = {
    "file": "",  # as published
    "observations": "mean observations",
    "names": "name hashes",
}
"""Names of the kinds of descriptions in tables."""
_PUBLISHED_WIDTH = 768  # of embeddings of CLIP ViT-L/14 at 336 pixels


@dataclass(frozen=True, eq=False, repr=False)
class SchemaPlanner(NetworkPlanner[SchemaNetwork]):
    """Plans the sequences of the largest products of the actions' probabilities and transitions.

    Energies and scores are minus the logarithm of the product, and the list is exact. Tasks are
    predicted by the network's head; the true task is given in training, the predicted one in
    planning.
    """

    title = "SCHEMA network"
    part = "schema"
    section = "schema_model"
    stream = 11
    own_mean = True
    ignored = frozenset({"descriptions", "name_width"})
    build: ClassVar[Any] = SchemaNetwork
    loss: ClassVar[Any] = SchemaLoss
    config: SchemaConfig

    @override
    @classmethod
    def text_dim(cls, config: SchemaConfig, shape: Shape) -> int:
        return {"names": config.name_width, "file": _PUBLISHED_WIDTH}.get(config.described, 0)

    @override
    @classmethod
    def text_vectors(cls, config: SchemaConfig, train: Windows) -> NDArray[np.float32] | None:
        if config.described == "observations":
            return None
        setting = f"{cls.section}.descriptions"
        return description_vectors(config.descriptions, train, config.name_width, setting=setting)

    @override
    @classmethod
    def observe(cls, network: SchemaNetwork, train: Windows, *arrays: NDArray[np.float32]) -> None:
        config = network.config
        if config.centre:
            both = np.concatenate([train.initial, train.goal])
            network.mean.copy_(torch.from_numpy(both.mean(axis=0, dtype=np.float64)))
        if arrays:
            network.descriptions.copy_(torch.from_numpy(arrays[0]))
        elif config.described == "observations":
            network.descriptions.copy_(EndMeans(train, network.prepared).all())
        counts = counted_transitions(train, len(network.counts))
        network.counts.copy_(torch.from_numpy(counts))

    @property
    def name(self) -> str:
        """Name in tables; says how it departs from the published method."""
        return named_departures("SCHEMA", [KINDS[self.config.described]])

    @override
    @torch.inference_mode()
    def marginals(self, queries: Queries) -> Marginals:
        network = self.network
        logits = network.task_logits(network.exchanged(network.encode(*self.observations(queries))))
        shares = finite_outputs(logits, self.title).double().softmax(dim=1)
        return Marginals(tasks=shares.cpu().numpy())

    @override
    def decode(self, queries: Queries, top_k: int) -> list[Plans]:
        network, parts = self.network, []
        memory = network.memory()
        for block in queries.blocks(BLOCK):
            tasks = None if block.tasks is None else self.on_device(block.tasks)[0]
            states = network.encode(*self.observations(block))
            parts.append(network.decode(states, tasks, memory, None).actions)
        emissions = finite_outputs(torch.cat(parts), self.title).double().log_softmax(dim=2)
        transitions = log_guarded(network.counts, smoothing=self.config.smoothing)
        best = decode(emissions, transitions, top_k)
        return best.plans(SearchCost(token_forwards=3 * self.horizon + 2, leaves=0))
