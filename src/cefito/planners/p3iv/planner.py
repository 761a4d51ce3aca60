"""P3IV: probabilistic procedure planning from instructional videos (Zhao et al., CVPR 2022).

Reimplemented from its published description.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from cefito.data.windows import Windows
from cefito.errors import ConfigError
from cefito.field.predictor import normalise, positions
from cefito.planners.base import Abilities, Queries, Shape
from cefito.planners.network import NetworkPlanner, named_departures
from cefito.planners.p3iv.method import ABILITIES, P3ivConfig
from cefito.planners.queries import finite_outputs
from cefito.planners.shared.descriptions import name_vectors
from cefito.planners.shared.layers import Drop, MultiHeadAttention, draw_layers, dropping
from cefito.planners.shared.transitions import counted_transitions, decode, log_guarded
from cefito.runtime import generator_for
from cefito.search.problem import Plans, SearchCost
from cefito.training.losses import PlanLoss, mean_term
from cefito.training.trainer import Term


class Critic(nn.Module):
    """Judges plans: an MLP on each step's state and action, the mean over steps, another MLP.

    Generator and critic share an optimiser here. For a learning rate of its own, the critic's
    parameters are kept divided by that rate: steps of AdamW do not depend on the size of gradients,
    so parameters that are multiplied by the rate move by so much less.

    Args:
        states: Width of decoded states, D'.
        embedding: Width of an action's vector.
        action_count: Number K of actions.
        rate: Factor of the learning rate of its parameters.
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
            with torch.no_grad():
                for parameter in self.critic.parameters():
                    parameter.div_(self.config.critic_rate)
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

        Args:
            initial: Initial observations [B, E].
            goal: Goal observations [B, E].
            samples: Number of noises; None for all.
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
    """A post-norm layer: attention over the tokens, over memory, and a ReLU MLP.

    Args:
        width: Width of tokens, D.
        heads: Number of heads of each attention.
        hidden: Width of the MLP.
    """

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


FACTOR = float(np.exp(0.7))
"""Of the products of states and encoded names (published)."""
_CLOSEST = 1e-5  # keeps the diversity loss finite (published)


class P3ivLoss(PlanLoss):
    """Cross-entropy of actions and of names, a critic's judgement, and diversity.

    Published weights are 1, 0.5, 0.1 and 0.1 on CrossTask; COIN and NIV have the first two alone.
    With a critic, epochs alternate as published: the generator learns in the first, the third and
    so on, the critic in the others; the other's parameters have no gradient then. Not published:
    the critic sees decoded states beside both true and decoded actions; the temperature of the
    Gumbel-softmax is 1; diversity compares logits.

    Args:
        network: Network that is trained.
        train: Training windows.
        val: Validation windows.
        names: Vectors of the names of actions [K, W]; None without them.
    """

    def __init__(
        self,
        network: P3ivNetwork,
        train: Windows,
        val: Windows,
        names: NDArray[np.float32] | None = None,
    ) -> None:
        super().__init__(network, train, val)
        self.names = None if names is None else self.placed(names)[0]

    def terms(self, rows: Tensor, generator: torch.Generator) -> Mapping[str, Term]:
        """The losses of a batch: of the generator, or of the critic where it is its turn."""
        initial, goal = self.observations.draw(rows, generator)
        shape = (2, len(rows), self.config.noise)
        noises = torch.randn(shape, generator=generator, device=rows.device)
        (first, second), actions = noises, self.actions[rows]
        if self._critic_learns(len(rows)):
            with torch.no_grad():
                encoded = self.module.encode(initial, goal)
                outputs = self.module(encoded, first, generator=generator)
            return {"critic": self._criticism(outputs, actions, generator)}
        encoded = self.module.encode(initial, goal)
        outputs = self.module(encoded, first, generator=generator)
        terms = {"actions": _cross_entropy(1.0, outputs.logits, actions)}  # −log p(a_t), [B, T]
        if self.names is not None:
            # −log softmax_k(e^0.7 s_t · n_k) of state s_t and encoded names n_k, logits [B, T, K]
            logits = FACTOR * outputs.states @ self.module.named(self.names).T
            terms["names"] = _cross_entropy(self.config.contrastive, logits, actions)
        if self.module.critic is not None:
            terms["adversarial"] = self._judgement(outputs, generator)
        if self.config.diversity:
            other = self.module(encoded, second, generator=generator)
            value = diversity(outputs.logits, other.logits, first, second)
            count = torch.tensor(len(actions), device=value.device)
            terms["diversity"] = Term(self.config.diversity, value * len(actions), count)
        return terms

    def _critic_learns(self, windows: int) -> bool:
        """Count the windows of a batch; return whether its epoch is one of the critic."""
        critic = self.module.critic
        if critic is None:
            return False
        epoch = int(critic.seen) // len(self)
        critic.seen += windows  # kept with the weights, so that a resumed training knows
        return epoch % 2 == 1

    def _criticism(self, outputs: P3ivOutputs, actions: Tensor, generator: torch.Generator) -> Term:
        """Loss of the critic: true plans as true, decoded plans as decoded."""
        critic = self.module.critic
        assert critic is not None
        true = F.one_hot(actions, self.module.action_count).to(outputs.logits.dtype)
        decoded = _drawn(outputs.logits, generator)  # [B, T, K], as `true`
        # −log σ(logit) of true plans, −log(1 − σ(logit)) of decoded ones
        losses = F.softplus(-critic(outputs.states, true)) + F.softplus(
            critic(outputs.states, decoded)
        )
        return mean_term(1.0, losses)

    def _judgement(self, outputs: P3ivOutputs, generator: torch.Generator) -> Term:
        """Loss of decoded plans that the critic recognises; the critic itself has no gradient."""
        critic = self.module.critic
        assert critic is not None
        fixed = {name: tensor.detach() for name, tensor in critic.named_parameters()}
        critic_inputs = (outputs.states, _drawn(outputs.logits, generator))
        # −log σ(logit) of decoded plans [B]
        losses = F.softplus(-torch.func.functional_call(critic, fixed, critic_inputs))
        return mean_term(self.config.adversarial, losses)

    @override
    def best_sequences(self) -> Tensor:
        initial, goal, _ = self.val
        emissions = self.module.emissions(initial, goal, self.config.validation_samples)
        return decode(emissions, log_guarded(self.module.counts), 1).sequences[:, 0]


def diversity(left: Tensor, right: Tensor, left_noise: Tensor, right_noise: Tensor) -> Tensor:
    """Penalty for like outputs of two noises: 1 / (1e-5 + mean|Δ output| / mean|Δ noise|).

    Args:
        left: Outputs for the first noise.
        right: Outputs for the second.
        left_noise: The first noise.
        right_noise: The second.
    """
    ratio = (left - right).abs().mean() / (left_noise - right_noise).abs().mean()
    return 1 / (_CLOSEST + ratio)


def _drawn(logits: Tensor, generator: torch.Generator) -> Tensor:
    """Actions drawn softly, by a Gumbel-softmax of temperature 1: weights [B, T, K]."""
    uniform = torch.rand(logits.shape, generator=generator, device=logits.device)
    tiny = torch.finfo(logits.dtype).tiny
    gumbel = -(-uniform.clamp_min(tiny).log()).clamp_min(tiny).log()  # g = −log(−log u)
    return (logits + gumbel).softmax(dim=-1)


def _cross_entropy(weight: float, logits: Tensor, actions: Tensor) -> Term:
    """Of logits [B, T, K] and the true actions [B, T]."""
    loss = F.cross_entropy(logits.flatten(0, 1), actions.flatten(), reduction="sum")
    return Term(weight, loss, torch.tensor(actions.numel(), device=loss.device))


@dataclass(frozen=True, eq=False, repr=False)
class P3ivPlanner(NetworkPlanner[P3ivNetwork]):
    """Plans the likeliest sequences under sampled actions and the transitions of training.

    Energies and scores are minus the logarithm of the product that is maximised, and the list is
    exact. Tasks play no part, and nothing is drawn in planning.
    """

    abilities: ClassVar[Abilities] = ABILITIES
    title = "P3IV"
    part = "p3iv"
    stream = 15
    own_mean = True
    build = P3ivNetwork
    loss = P3ivLoss
    config: P3ivConfig

    @override
    @classmethod
    def text_dim(cls, config: P3ivConfig, shape: Shape) -> int:
        return (shape.text_dim or config.name_width) if config.contrastive else 0

    @override
    @classmethod
    def text_vectors(cls, config: P3ivConfig, train: Windows) -> NDArray[np.float32] | None:
        if not config.contrastive:
            return None
        if train.action_text is not None:
            return np.ascontiguousarray(train.action_text, dtype=np.float32)
        names = [action.name for action in train.taxonomy.actions]
        return name_vectors(names, config.name_width)[:, 0].copy()

    @override
    @classmethod
    def observe(cls, network: P3ivNetwork, train: Windows, *arrays: NDArray[np.float32]) -> None:
        network.observe(train)
        network.hashed.fill_(bool(arrays) and train.action_text is None)
        if network.config.adversarial:
            network.add_critic()

    def __post_init__(self) -> None:
        for network in self.networks:
            network.critic = None  # it serves in training only

    @property
    def name(self) -> str:
        """Name in tables; says how it departs from the paper."""
        config = self.config
        departures = (
            "" if config.noise else "no noise",
            "dropout in planning" if config.test_dropout else "",
            "" if config.contrastive else "no language",
            "name hashes" if bool(self.network.hashed) else "",
        )
        return named_departures("P3IV", departures)

    @override
    def decode(self, queries: Queries, top_k: int) -> list[Plans]:
        initial, goal = self.observations(queries)
        emissions = finite_outputs(self.network.emissions(initial, goal), self.title)
        best = decode(emissions, log_guarded(self.network.counts), top_k)
        return best.plans(SearchCost(self.config.passes * (self.horizon + 1), leaves=0))
