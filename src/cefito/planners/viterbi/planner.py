"""ViterbiPlanNet (arXiv 2603.04265): emissions of a network, decoded over known transitions."""

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
from cefito.field.predictor import prepared
from cefito.planners.base import Abilities, Marginals, Queries, Shape
from cefito.planners.network import NetworkPlanner, named_departures
from cefito.planners.queries import finite_outputs
from cefito.planners.shared.descriptions import description_vectors
from cefito.planners.shared.layers import PostNormLayer, draw_layers, dropping
from cefito.planners.shared.transitions import Decoded, transition_counts, transition_probabilities
from cefito.planners.shared.transitions import decode as over_transitions
from cefito.planners.viterbi.method import ABILITIES, Alignment, ViterbiConfig
from cefito.search.problem import Plans, SearchCost
from cefito.training.losses import PlanLoss, mean_term
from cefito.training.trainer import Term

_LOG_TEMPERATURE = math.log(1 / 0.07)  # initial logarithm of the factor of the cosines (published)


@dataclass(frozen=True)
class ViterbiOutputs:
    """Outputs of the network for B queries."""

    emissions: Tensor  # log σ of each step's logits, float32 [B, T, K]
    states: Tensor  # encoded initial and goal observation [B, 2, D]
    tasks: Tensor  # logits, float32 [B, C]; no column without a task head


class ViterbiNetwork(nn.Module):
    """Encoder of observations, emission network, task head, encoder of descriptions.

    The encoder is linear (two layers), the emission network a post-norm transformer layer over the
    two encoded observations and an MLP on both of its outputs. The task head and the descriptions
    shape the encoder in training, and play no part in planning.
    """

    mean: Tensor
    counts: Tensor

    def __init__(self, config: ViterbiConfig, shape: Shape) -> None:
        super().__init__()
        self.config, self.horizon = config, shape.horizon
        width, actions = config.width, shape.actions
        self.encoder = nn.Sequential(
            nn.Linear(shape.observation_dim, config.hidden), nn.Linear(config.hidden, width)
        )
        self.layer = PostNormLayer(width, config.heads, config.feedforward, F.gelu)
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(2 * width, 2 * width)
        self.emission = nn.Linear(2 * width, shape.horizon * actions)
        self.task: nn.Sequential | None = None
        if config.task:
            self.task = nn.Sequential(
                nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, shape.tasks)
            )
        self.description: nn.Linear | None = None
        if shape.text_dim:
            self.description = nn.Linear(shape.text_dim, width, bias=False)
            self.log_temperature = nn.Parameter(torch.tensor(_LOG_TEMPERATURE))
        self.register_buffer("mean", torch.zeros(shape.observation_dim))
        self.register_buffer("counts", torch.zeros(actions, actions, dtype=torch.int64))

    def reset(self, generator: torch.Generator) -> None:
        """Draw all weights anew: Kaiming-uniform layers, zero biases."""
        draw_layers(self, generator)

    def observe(self, train: Windows) -> None:
        """Count the transitions of training windows."""
        self.counts.copy_(torch.from_numpy(transition_counts(train, len(self.counts))))

    def forward(
        self, initial: Tensor, goal: Tensor, *, generator: torch.Generator | None = None
    ) -> ViterbiOutputs:
        """Emissions, states and task logits of initial and goal observations, each [B, E]."""
        drop = dropping(self.config.dropout, generator)
        x = prepared(torch.stack([initial, goal], dim=1), self.config, self.mean)  # [B, 2, E]
        states = self.encoder(dropping(self.config.input_dropout, generator)(x))  # [B, 2, D]
        tokens = self.norm(self.layer(states, drop))
        hidden = drop(torch.sigmoid(self.fc(tokens.flatten(1))))
        emissions = F.logsigmoid(self.emission(hidden).float()).unflatten(1, (self.horizon, -1))
        tasks = emissions.new_zeros(len(x), 0)
        if self.task is not None:
            tasks = self.task(states.flatten(1)).float()
        return ViterbiOutputs(emissions=emissions, states=states, tasks=tasks)

    def alignment(
        self, states: Tensor, descriptions: Tensor, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Logits [B, 2, K]: learned factor × mean cosine of a state to an action's descriptions.

        The initial state [B, 2, D] is compared with the three descriptions before the action, the
        goal with the three after it, [K, 6, W]. The logarithm of the factor is learned.

        Args:
            states: Initial and goal states [B, 2, D].
            descriptions: Vectors of the actions' descriptions [K, 6, W].
            generator: Draws the dropout; None for none.
        """
        assert self.description is not None
        drop = dropping(self.config.input_dropout, generator)
        encoded = self.description(drop(descriptions)).float().unflatten(1, (2, 3))
        norms = torch.linalg.vector_norm(encoded, dim=-1).clamp_min(1e-12)  # [K, 2, 3]
        # mean of unit vectors as one product: (1 / 3‖x_i‖)_i (x_i)_i, [1, 3] × [3, D]
        means = ((1 / (3 * norms)).unsqueeze(-2) @ encoded).squeeze(-2)
        cosines = torch.einsum("bed,ked->bek", F.normalize(states.float(), dim=-1), means)
        return self.log_temperature.exp() * cosines.float()


_FLOOR = 1e-10  # transitions are clamped there inside the layer (published)


def clamped_transitions(counts: Tensor) -> Tensor:
    """Probabilities of the action after each action, float64 [K, K], from counts [K, K].

    Shares n(a, b) / n(a) are raised to at least 1e-10 and each row is divided by its sum again, as
    in the published layer; a row without any count becomes uniform.
    """
    shares = _shares(counts).clamp_min(_FLOOR)
    return shares / shares.sum(dim=1, keepdim=True)


def _shares(counts: Tensor) -> Tensor:
    return torch.from_numpy(transition_probabilities(counts.cpu().numpy())).to(counts.device)


def log_marginals(emissions: Tensor, transitions: Tensor) -> Tensor:
    """Log-probability of each action at each step, given emissions [B, T, K] of all steps.

    p(a_1..a_T) is in proportion to Π_t exp(emissions[t, a_t]) · Π_t transitions[a_t, a_t+1]; the
    prior over the first action is uniform. At temperature 1 the published soft recursion equals the
    forward-backward algorithm, used here. Transitions [K, K] are positive. Differentiable, in the
    precision of the emissions, even under autocast.
    """
    with torch.autocast(emissions.device.type, enabled=False):
        transitions = transitions.to(emissions.dtype)
        steps = emissions.unbind(dim=1)
        before, after = [steps[0]], [torch.zeros_like(steps[-1])]  # each [B, K]
        for step in steps[1:]:
            # α_t(b) = log Σ_a exp(α_t−1(a)) · transitions[a, b] + e_t(b)
            before.append(_mixed(before[-1], transitions) + step)
        for step in reversed(steps[1:]):
            # β_t−1(a) = log Σ_b transitions[a, b] · exp(e_t(b) + β_t(b))
            after.insert(0, _mixed(after[0] + step, transitions.T))
        # log p(a_t = a) = α_t(a) + β_t(a) − log Σ_a exp(α_t(a) + β_t(a)), [B, T, K]
        return (torch.stack(before, dim=1) + torch.stack(after, dim=1)).log_softmax(dim=-1)


def _mixed(logs: Tensor, transitions: Tensor) -> Tensor:
    """log(exp(logs) @ transitions) [B, K]; the largest term is taken out, so no row vanishes."""
    highest = logs.amax(dim=-1, keepdim=True).detach()
    return ((logs - highest).exp() @ transitions).log() + highest


def decode(emissions: Tensor, counts: Tensor, count: int) -> Decoded:
    """The best sequences under the layer's marginals, from log-emissions [B, T, K].

    They maximise Π_t p(a_t) · Π_t n(a_t, a_t+1) / n(a_t), the product of the marginals and of the
    raw transitions, so an unseen transition forbids a sequence. If no sequence is possible, the
    likeliest action of each step is taken, under clamped transitions.

    Args:
        emissions: Log-emissions [B, T, K].
        counts: Number of each transition [K, K].
        count: Number of sequences.
    """
    clamped = clamped_transitions(counts)
    marginals = log_marginals(emissions.double(), clamped)
    return over_transitions(marginals, _shares(counts).log(), count, substitutes=clamped.log())


class ViterbiLoss(PlanLoss):
    """Errors of marginals and of task logits, and misalignment with descriptions [K, 6, W] if any.

    Published is mean squared error of the marginals to the one-hot actions, plus cross-entropy of
    the alignment, averaged over the initial and the goal observation, plus mean squared error of
    the raw task logits to the one-hot task, all of weight 1, with means over all entries.

    Args:
        network: Network that is trained.
        train: Training windows.
        val: Validation windows.
        descriptions: Vectors of states [K, 6, W]; None without them.
    """

    def __init__(
        self,
        network: ViterbiNetwork,
        train: Windows,
        val: Windows,
        descriptions: NDArray[np.float32] | None = None,
    ) -> None:
        super().__init__(network, train, val)
        self.transitions = clamped_transitions(network.counts).float()
        self.descriptions = None if descriptions is None else self.placed(descriptions)[0]

    def terms(self, rows: Tensor, generator: torch.Generator) -> Mapping[str, Term]:
        """The losses of a batch."""
        initial, goal = self.observations.draw(rows, generator)
        actions, tasks = self.actions[rows], self.tasks[rows]
        outputs = self.module(initial, goal, generator=generator)
        marginals = log_marginals(outputs.emissions, self.transitions).exp()  # [B, T, K]
        terms = {"marginals": _squared(1.0, marginals, actions)}
        if self.descriptions is not None:
            # [B, 2, K]: initial and goal observation against the first and the last action
            logits = self.module.alignment(outputs.states, self.descriptions, generator=generator)
            ends = actions[:, [0, -1]]
            errors = F.cross_entropy(logits.flatten(0, 1), ends.flatten(), reduction="none")
            terms["alignment"] = mean_term(self.config.alignment, errors)
        if self.config.task:
            terms["task"] = _squared(self.config.task, outputs.tasks, tasks)
        return terms

    @override
    def best_sequences(self) -> Tensor:
        initial, goal, _ = self.val
        emissions = self.module(initial, goal).emissions
        return decode(emissions, self.module.counts, 1).sequences[:, 0]


def _squared(weight: float, values: Tensor, chosen: Tensor) -> Term:
    """Mean squared error of values [..., n] to one-hot vectors of the chosen places [...]."""
    return mean_term(weight, (values - F.one_hot(chosen, values.shape[-1])).square())


_KINDS: dict[Alignment, str] = {
    "file": "",  # as published
    "names": "name hashes",
    "none": "no alignment",
}


@dataclass(frozen=True, eq=False, repr=False)
class ViterbiPlanner(NetworkPlanner[ViterbiNetwork]):
    """Plans the likeliest sequences under the layer's marginals and the transitions.

    Energies and scores are minus the logarithm of the product that `decode` maximises, and
    the list is exact. Tasks are predicted by an auxiliary head, and change no plan. Without any
    sequence of positive probability, the only plan takes the likeliest action of each step.
    """

    abilities: ClassVar[Abilities] = ABILITIES
    title = "ViterbiPlanNet"
    part = "viterbi"
    stream: ClassVar[int] = 6
    build = ViterbiNetwork
    loss = ViterbiLoss
    ignored = frozenset({"name_width", "members"})
    config: ViterbiConfig

    @override
    @classmethod
    def text_dim(cls, config: ViterbiConfig, shape: Shape) -> int:
        return config.name_width if config.aligned_with in ("file", "names") else 0

    @override
    @classmethod
    def text_vectors(cls, config: ViterbiConfig, train: Windows) -> NDArray[np.float32] | None:
        if config.aligned_with == "none":
            return None
        setting = "viterbi.descriptions"
        return description_vectors(config.descriptions, train, config.name_width, setting=setting)

    @property
    def name(self) -> str:
        """Name in tables; says how it departs from the published method."""
        members = len(self.networks)
        departures = (
            _KINDS[self.config.aligned_with],
            "" if members == 1 else f"{members} members",
        )
        return named_departures("ViterbiPlanNet", departures)

    @override
    @torch.inference_mode()
    def marginals(self, queries: Queries) -> Marginals:
        if self.network.task is None:
            return Marginals()
        logits = torch.stack([outputs.tasks for outputs in self.outputs(queries)]).mean(dim=0)
        return Marginals(tasks=logits.double().softmax(dim=1).cpu().numpy())

    def outputs(self, queries: Queries) -> list[ViterbiOutputs]:
        """The outputs of each member for queries."""
        observations = self.observations(queries)
        return [network(*observations) for network in self.networks]

    @override
    def decode(self, queries: Queries, top_k: int) -> list[Plans]:
        outputs = self.outputs(queries)
        emissions = torch.stack([member.emissions for member in outputs]).mean(dim=0)
        finite_outputs(emissions, self.title)
        best = decode(emissions, self.network.counts, top_k)
        return best.plans(SearchCost(token_forwards=2, leaves=0))
