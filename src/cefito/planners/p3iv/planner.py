"""P3IV: probabilistic procedure planning from instructional videos (Zhao et al., CVPR 2022).

Reimplemented from its published description.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from cefito.data.windows import Windows
from cefito.planners.base import Abilities, Queries, Shape
from cefito.planners.network import NetworkPlanner, named_departures
from cefito.planners.p3iv.method import ABILITIES, P3ivConfig
from cefito.planners.p3iv.network import P3ivNetwork, P3ivOutputs
from cefito.planners.queries import finite_outputs
from cefito.planners.shared.descriptions import name_vectors
from cefito.planners.shared.loss import PlanLoss, mean_term
from cefito.planners.shared.transitions import decode, log_guarded
from cefito.search.problem import Plans, SearchCost
from cefito.training.trainer import Term

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
        given = (outputs.states, _drawn(outputs.logits, generator))
        # −log σ(logit) of decoded plans [B]
        losses = F.softplus(-torch.func.functional_call(critic, fixed, given))
        return mean_term(self.config.adversarial, losses)

    @override
    def best_sequences(self) -> Tensor:
        initial, goal, _ = self.val
        emissions = self.module.emissions(initial, goal, self.config.validation_samples)
        return decode(emissions, log_guarded(self.module.counts), 1).sequences[:, 0]


def diversity(left: Tensor, right: Tensor, one: Tensor, other: Tensor) -> Tensor:
    """Penalty for like outputs of two noises: 1 / (1e-5 + mean|Δ output| / mean|Δ noise|)."""
    ratio = (left - right).abs().mean() / (one - other).abs().mean()
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
    def observe(cls, network: P3ivNetwork, train: Windows, *given: NDArray[np.float32]) -> None:
        network.observe(train)
        network.hashed.fill_(bool(given) and train.action_text is None)
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
