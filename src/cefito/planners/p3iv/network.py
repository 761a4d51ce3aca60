"""The network of P3IV: encoded observations and noise, decoded to a plan's actions and states."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.data.windows import Windows
from cefito.errors import ConfigError
from cefito.field.predictor import Dropout, normalise, positions
from cefito.planners.p3iv.critic import Critic
from cefito.planners.p3iv.decoder import DecoderLayer
from cefito.planners.p3iv.settings import P3ivConfig
from cefito.runtime import generator_for

__all__ = ["Outputs", "P3ivNetwork"]

_Drop = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Outputs:
    """What the decoder gives for B queries.

    Attributes:
        logits: Of each action at each step, float32 [B, T, K].
        states: What is decoded of the state at each step, in the space of encoded names, float32
            [B, T, width − noise].
    """

    logits: Tensor
    states: Tensor


class P3ivNetwork(nn.Module):
    """Encoder of observations, decoder with memory, heads of actions, states and language.

    Tokens are the encoded initial observation, T - 1 empty ones and the encoded goal, each joined
    with its position and then with the noise. Outputs are read in the published order: the first
    action at the initial token, the last one at the goal's, those between at the first empty
    tokens; the last empty token is only attended to. (At T = 1 the action is read at the initial
    token.) The published network for CrossTask and COIN has one class more, which no step bears.

    Args:
        config: Sizes and options.
        observation_dim: E.
        action_count: K.
        horizon: T.
        language_dim: Length of the vectors of names; 0 for no language head.
        critic: Whether there is a critic, which serves in training only.

    Attributes:
        mean: Subtracted from the observations [E].
        scale: The observations are divided by it.
        counts: How often each action follows each in training [K, K].
        noises: Those that plans are decoded from [N, Z], the same for every query; so a query has
            one plan, alone or among others.
        dropout_seed: Of what is dropped in planning, where anything is.
        hashed: Whether the names' vectors were hashed from them.
        positions: Sines and cosines of the tokens' places [T + 1, width − noise].

    Raises:
        ConfigError: Observations cannot be divided into rows.
    """

    mean: Tensor
    scale: Tensor
    counts: Tensor
    noises: Tensor
    dropout_seed: Tensor
    hashed: Tensor
    positions: Tensor

    def __init__(
        self,
        *,
        config: P3ivConfig,
        observation_dim: int,
        action_count: int,
        horizon: int,
        language_dim: int = 0,
        critic: bool = False,
    ) -> None:
        if observation_dim % config.rows:
            raise ConfigError(
                f"observations have {observation_dim} features, which are not {config.rows} rows "
                "of one length. Set p3iv.rows to a number that divides them: 1 where they are a "
                "single row.",
                setting="p3iv.rows",
            )
        super().__init__()
        self.config, self.observation_dim, self.horizon = config, observation_dim, horizon
        self.action_count = action_count
        width, token, hidden = config.width, config.token_width, config.hidden
        self.encoder = _mlp(observation_dim // config.rows, hidden, token)
        self.token = nn.Linear(2 * token, token)
        self.memory = nn.Parameter(
            torch.zeros(config.slots if config.memory == "slots" else config.layers, width)
        )
        self.layers = nn.ModuleList(
            DecoderLayer(width, config.heads, config.feedforward) for _ in range(config.layers)
        )
        self.action = _mlp(width, hidden, action_count)
        judged = language_dim > 0 or config.adversarial > 0
        self.state = _mlp(width, hidden, token) if judged else None
        self.language = _mlp(language_dim, hidden, token) if language_dim else None
        self.critic: Critic | None = (
            Critic(
                states=token, embedding=width, action_count=action_count, rate=config.critic_rate
            )
            if critic
            else None
        )
        self.register_buffer("positions", positions(horizon + 1, token))
        self.register_buffer("mean", torch.zeros(observation_dim))
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("counts", torch.zeros(action_count, action_count, dtype=torch.int64))
        self.register_buffer("noises", torch.zeros(config.samples, config.noise))
        self.register_buffer("dropout_seed", torch.zeros((), dtype=torch.int64))
        self.register_buffer("hashed", torch.zeros((), dtype=torch.bool))

    def reset(self, generator: torch.Generator) -> None:
        """Draw weights and noises anew: Kaiming-uniform, zero biases, normal memory.

        How the published weights are drawn is not known to us.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.kaiming_uniform_(module.weight, a=5**0.5, generator=generator)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.memory, generator=generator)
        if self.critic is not None:
            self.critic.rescale()
        self.dropout_seed.random_(2**31, generator=generator)
        self.noises.normal_(generator=generator)

    def observe(self, train: Windows) -> None:
        """Take from training windows what observations are centred and divided by."""
        both = np.stack([train.initial, train.goal]).astype(np.float64)
        mean = both.mean(axis=(0, 1))
        if self.config.whiten:
            self.scale.fill_(float(both.std()) or 1.0)
            self.mean.fill_(float(mean.mean()))
        if self.config.centre:
            self.mean.copy_(torch.from_numpy(mean))

    def encode(self, initial: Tensor, goal: Tensor) -> Tensor:
        """Encoded observations: the mean over their rows, [B, 2, D'].

        Args:
            initial: Initial observations [B, E].
            goal: Goal observations [B, E].
        """
        x = (torch.stack([initial, goal], dim=1) - self.mean) / self.scale
        x = x.unflatten(-1, (self.config.rows, -1))
        if self.config.normalise:
            x = normalise(x)
        return self.encoder(x).mean(dim=2)  # type: ignore[no-any-return]

    def forward(
        self, encoded: Tensor, noise: Tensor, *, generator: torch.Generator | None = None
    ) -> Outputs:
        """Decode encoded observations.

        Args:
            encoded: Initial and goal [B, 2, D'].
            noise: [B, Z].
            generator: Source of dropout; without, nothing is dropped.
        """
        horizon = self.horizon
        empty = encoded.new_zeros(len(encoded), horizon - 1, encoded.shape[2])
        values = torch.cat([encoded[:, :1], empty, encoded[:, 1:]], dim=1)
        places = self.positions.to(values.dtype).expand(len(values), -1, -1)
        tokens = self.token(torch.cat([values, places], dim=2))
        tokens = self._drop(self.config.token_dropout, generator)(tokens)
        spread = noise.to(tokens.dtype)[:, None].expand(-1, horizon + 1, -1)
        x = torch.cat([tokens, spread], dim=2)
        drop = self._drop(self.config.dropout, generator)
        for place, layer in enumerate(self.layers):
            slots = self.memory if self.config.memory == "slots" else self.memory[place, None]
            x = layer(x, slots, drop)
        read = x[:, [*range(horizon - 1), horizon]] if horizon > 1 else x[:, :1]
        states = self.state(read) if self.state is not None else read[..., :0]
        return Outputs(logits=self.action(read).float(), states=states.float())

    def named(self, vectors: Tensor) -> Tensor:
        """Vectors of names [K, W] in the space of decoded states, float32 [K, D']."""
        assert self.language is not None
        return self.language(vectors).float()  # type: ignore[no-any-return]

    def emissions(self, initial: Tensor, goal: Tensor, samples: int | None = None) -> Tensor:
        """How likely each action is at each step, as logarithms, float64 [B, T, K].

        With several passes a query these are the shares of the noises for which an action is the
        likeliest. The mean of the passes' probabilities counts as one noise more (not published),
        so that no action is impossible and actions that are the likeliest for none are ordered.
        A single pass is taken as it is.

        Args:
            initial: Initial observations [B, E].
            goal: Goal observations [B, E].
            samples: Noises to use, where not all.
        """
        passes = min(self.config.passes, samples or self.config.passes)
        if passes > 1 or self.config.test_dropout:
            # one by one: in batches of other sizes sums are rounded otherwise, and a likeliest
            # action that is one only just would depend on what else is asked
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
        mean: Tensor = logits.log_softmax(dim=-1).double().logsumexp(dim=0) - math.log(passes)
        if passes == 1:
            return mean[None]
        counts = F.one_hot(logits.argmax(dim=-1), self.action_count).sum(dim=0)
        return (torch.logaddexp(counts.double().log(), mean) - math.log(passes + 1))[None]

    @staticmethod
    def _drop(rate: float, generator: torch.Generator | None) -> _Drop:
        return Dropout(rate, generator) if generator is not None else lambda x: x


def _mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Two linear layers with a ReLU between them."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
