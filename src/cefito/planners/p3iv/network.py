"""The network of P3IV: encoded observations and noise, decoded to a plan's actions and states."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.data.windows import Windows
from cefito.errors import ConfigError
from cefito.field.predictor import normalise, positions
from cefito.planners.base import Shape
from cefito.planners.p3iv.method import P3ivConfig
from cefito.planners.shared.layers import Drop, MultiHeadAttention, draw_layers, dropping
from cefito.planners.shared.transitions import counted_transitions
from cefito.runtime import generator_for


class Critic(nn.Module):
    """Judges plans: an MLP on each step's state and action, the mean over steps, another MLP.

    Generator and critic share an optimiser here. For a learning rate of its own, the critic's
    parameters are kept divided by that rate: steps of AdamW do not depend on the size of gradients,
    so parameters that are multiplied by the rate move by so much less.
    """

    seen: Tensor  # number of windows trained on, from which the current epoch follows

    def __init__(self, *, states: int, embedding: int, action_count: int, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.embedding = nn.Linear(action_count, embedding, bias=False)
        self.steps = nn.ModuleList(
            [nn.Linear(states + embedding, 64), nn.Linear(64, 32), nn.Linear(32, 32)]
        )
        self.plan = nn.ModuleList([nn.Linear(32, 1024), nn.Linear(1024, 512), nn.Linear(512, 1)])
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def rescale(self) -> None:
        """Divide freshly drawn parameters by the rate."""
        for parameter in self.parameters():
            parameter.div_(self.rate)

    def forward(self, states: Tensor, actions: Tensor) -> Tensor:
        """Logits that plans of states [B, T, D'] and actions [B, T, K] are true, float32 [B]."""
        x = torch.cat([states, self._scaled(self.embedding, actions)], dim=2)
        for layer in self.steps:
            x = F.relu(self._scaled(layer, x))
        x = x.mean(dim=1)
        for layer in self.plan[:-1]:
            x = F.relu(self._scaled(layer, x))
        return self._scaled(self.plan[-1], x)[:, 0].float()

    def _scaled(self, layer: nn.Module, x: Tensor) -> Tensor:
        assert isinstance(layer, nn.Linear)
        bias = None if layer.bias is None else self.rate * layer.bias
        return F.linear(x, self.rate * layer.weight, bias)


@dataclass(frozen=True)
class P3ivOutputs:
    """Outputs of the decoder for B queries."""

    logits: Tensor  # float32 [B, T, K]
    states: Tensor  # decoded, in the space of encoded names, float32 [B, T, D'], D' = width − noise


class P3ivNetwork(nn.Module):
    """Encoder of observations, decoder with memory, heads of actions, states and language.

    Tokens are the encoded initial observation, T - 1 empty ones and the encoded goal, each joined
    with its position and then with the noise. Outputs are read in the published order: the first
    action at the initial token, the last one at the goal's, the others at the first empty tokens.
    The published network for CrossTask and COIN has one class more, which no step has.
    """

    mean: Tensor  # [E]
    scale: Tensor  # observations are divided by it
    counts: Tensor  # transitions in training [K, K]
    noises: Tensor  # [N, Z], the same for every query, so that plans do not depend on chance
    dropout_seed: Tensor  # of the dropout in planning, if any
    hashed: Tensor  # whether the names' vectors were hashed from them
    positions: Tensor  # of the tokens, [T + 1, D']

    def __init__(self, config: P3ivConfig, shape: Shape) -> None:
        observation_dim, actions = shape.observation_dim, shape.actions
        if observation_dim % config.rows:
            raise ConfigError(
                f"observations have {observation_dim} features, which are not {config.rows} rows "
                "of one length. Set p3iv.rows to a number that divides them: 1 where they are a "
                "single row.",
                setting="p3iv.rows",
            )
        super().__init__()
        self.config, self.horizon, self.action_count = config, shape.horizon, shape.actions
        width, token, hidden = config.width, config.token_width, config.hidden
        self.encoder = _mlp(observation_dim // config.rows, hidden, token)
        self.token = nn.Linear(2 * token, token)
        self.memory = nn.Parameter(torch.zeros(config.slots, width))
        self.layers = nn.ModuleList(
            DecoderLayer(width, config.heads, config.feedforward) for _ in range(config.layers)
        )
        self.action = _mlp(width, hidden, actions)
        judged = shape.text_dim > 0 or config.adversarial > 0
        self.state = _mlp(width, hidden, token) if judged else None
        self.language = _mlp(shape.text_dim, hidden, token) if shape.text_dim else None
        self.critic: Critic | None = None
        self.register_buffer("positions", positions(shape.horizon + 1, token), persistent=False)
        self.register_buffer("mean", torch.zeros(observation_dim))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("counts", torch.zeros(actions, actions, dtype=torch.int64))
        self.register_buffer("noises", torch.zeros(config.samples, config.noise))
        self.register_buffer("dropout_seed", torch.zeros((), dtype=torch.int64))
        self.register_buffer("hashed", torch.zeros((), dtype=torch.bool))

    def add_critic(self) -> None:
        """Add an untrained critic, for training."""
        config = self.config
        self.critic = Critic(
            states=config.token_width,
            embedding=config.width,
            action_count=self.action_count,
            rate=config.critic_rate,
        )

    def reset(self, generator: torch.Generator) -> None:
        """Draw all anew: Kaiming-uniform layers, zero biases, normal memory (not published)."""
        draw_layers(self, generator)
        nn.init.normal_(self.memory, generator=generator)
        if self.critic is not None:
            self.critic.rescale()
        self.dropout_seed.random_(2**31, generator=generator)
        self.noises.normal_(generator=generator)

    def observe(self, train: Windows) -> None:
        """Take mean and scale of the observations, and transitions, from training windows."""
        counts = counted_transitions(train, self.action_count)
        self.counts.copy_(torch.from_numpy(counts))
        both = np.stack([train.initial, train.goal]).astype(np.float64)
        mean = both.mean(axis=(0, 1))
        if self.config.whiten:
            self.scale.fill_(float(both.std()) or 1.0)
            self.mean.fill_(float(mean.mean()))
        if self.config.centre:
            self.mean.copy_(torch.from_numpy(mean))

    def encode(self, initial: Tensor, goal: Tensor) -> Tensor:
        """Initial and goal observations, each [B, E] → means over their encoded rows [B, 2, D']."""
        x = (torch.stack([initial, goal], dim=1) - self.mean) / self.scale
        x = x.unflatten(-1, (self.config.rows, -1))
        if self.config.normalise:
            x = normalise(x)
        return self.encoder(x).mean(dim=2)  # type: ignore[no-any-return]

    def forward(
        self, encoded: Tensor, noise: Tensor, *, generator: torch.Generator | None = None
    ) -> P3ivOutputs:
        """Decode encoded observations [B, 2, D'] and noise [B, Z]; dropout by the generator."""
        horizon = self.horizon
        empty = encoded.new_zeros(len(encoded), horizon - 1, encoded.shape[2])
        values = torch.cat([encoded[:, :1], empty, encoded[:, 1:]], dim=1)  # [B, T + 1, D']
        places = self.positions.to(values.dtype).expand(len(values), -1, -1)
        tokens = self.token(torch.cat([values, places], dim=2))  # [B, T + 1, D']
        tokens = dropping(self.config.token_dropout, generator)(tokens)
        spread = noise.to(tokens.dtype)[:, None].expand(-1, horizon + 1, -1)
        x = torch.cat([tokens, spread], dim=2)  # each token with the noise, [B, T + 1, D]
        drop = dropping(self.config.dropout, generator)
        for layer in self.layers:
            x = layer(x, self.memory, drop)
        # first action at the initial token, last at the goal's: tokens 0, …, T − 2 and T, [B, T, D]
        read = x[:, [*range(horizon - 1), horizon]] if horizon > 1 else x[:, :1]
        states = self.state(read) if self.state is not None else read[..., :0]
        return P3ivOutputs(logits=self.action(read).float(), states=states.float())

    def named(self, vectors: Tensor) -> Tensor:
        """Vectors of names [K, W] in the space of decoded states, float32 [K, D']."""
        assert self.language is not None
        return self.language(vectors).float()  # type: ignore[no-any-return]

    def emissions(self, initial: Tensor, goal: Tensor, samples: int | None = None) -> Tensor:
        """Log-probability of each action at each step, float64 [B, T, K], by some or all noises.

        With several passes it is the share of the noises for which an action is the likeliest; the
        mean of the passes' probabilities counts as one noise more (not published), so that none is
        impossible.
        """
        passes = min(self.config.passes, samples or self.config.passes)
        if passes > 1 or self.config.test_dropout:
            # one by one: rounding differs with the size of a batch, and a close decision would
            # depend on the other queries
            pairs = zip(initial.split(1), goal.split(1), strict=True)
            parts = [self._shares(*pair, passes) for pair in pairs]
            empty = initial.new_zeros(0, self.horizon, self.action_count, dtype=torch.float64)
            return torch.cat([empty, *parts])
        noise = self.noises[:1].expand(len(initial), -1)
        logits = self(self.encode(initial, goal), noise).logits
        return logits.double().log_softmax(dim=-1)  # type: ignore[no-any-return]

    def _shares(self, initial: Tensor, goal: Tensor, passes: int) -> Tensor:
        """The same for one query [1, T, K]."""
        generator = (
            generator_for(initial.device, int(self.dropout_seed))
            if self.config.test_dropout
            else None
        )
        encoded = self.encode(initial, goal).expand(passes, -1, -1)
        logits = self(encoded, self.noises[:passes], generator=generator).logits
        # log p̄ = log (1/P) Σ_z p(a | z), the mean over P passes [T, K]
        mean: Tensor = logits.log_softmax(dim=-1).double().logsumexp(dim=0) - math.log(passes)
        if passes == 1:
            return mean[None]
        counts = F.one_hot(logits.argmax(dim=-1), self.action_count).sum(dim=0)
        # log (n(a) + p̄(a)) / (P + 1), where n(a) counts the passes in which a is the likeliest
        return (torch.logaddexp(counts.double().log(), mean) - math.log(passes + 1))[None]


class DecoderLayer(nn.Module):
    """A post-norm layer: attention over the tokens, over memory, and a ReLU MLP."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.tokens = MultiHeadAttention(width, heads)
        self.memory = MultiHeadAttention(width, heads)
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))

    def forward(self, x: Tensor, memory: Tensor, drop: Drop) -> Tensor:
        """Tokens [B, L, D] and slots of memory [M, D], the same for the whole batch → [B, L, D]."""
        x = self.norms[0](x + drop(self.tokens(x, x, drop)))
        recalled = self.memory(x.flatten(0, 1), memory, drop)  # one batch: memory is shared
        x = self.norms[1](x + drop(recalled.view_as(x)))
        mixed = self.fc2(drop(F.relu(self.fc1(x))))
        return self.norms[2](x + drop(mixed))  # type: ignore[no-any-return]


def _mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Two linear layers with a ReLU between them."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
