"""PKG: the likeliest path on the graph of transitions between two predicted actions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from cefito.data.windows import Windows
from cefito.field.classifier import ProposalNetwork
from cefito.planners.base import Abilities, Queries, Shape
from cefito.planners.network import NetworkPlanner
from cefito.planners.pkg.method import ABILITIES, PkgConfig, PkgSettings
from cefito.planners.queries import finite_outputs
from cefito.planners.shared.transitions import cheapest_paths, transition_costs, transition_counts
from cefito.search.problem import Plans, SearchCost
from cefito.training.losses import ProposalLoss


class StepNetwork(ProposalNetwork):
    """Predicts the first and the last action of a plan, and holds the graph of transitions."""

    counts: Tensor  # how often windows show one action after another, [K, K]

    def __init__(self, config: PkgConfig, shape: Shape) -> None:
        actions = shape.actions
        super().__init__(
            config=config.network,
            observation_dim=shape.observation_dim,
            action_count=actions,
            horizon=2,
        )
        self.training_config = config.training
        self.register_buffer("counts", torch.zeros(actions, actions, dtype=torch.int64))

    def observe(self, train: Windows) -> None:
        """Count the transitions of training windows."""
        self.counts.copy_(torch.from_numpy(transition_counts(train, len(self.counts))))


@dataclass(frozen=True, eq=False, repr=False)
class PkgPlanner(NetworkPlanner[StepNetwork]):
    """Plans paths on the graph of transitions seen in training windows: the likeliest of all.

    This is PKG of arXiv 2603.04265, which searches by beam (`PkgBeamPlanner`). A step model
    predicts the first and the last action of each query; plans are the cheapest paths of T actions
    between the two by `transition_costs`, which are the energies. The published step model, beam
    width and tie-breaking are not known. Tasks play no part. At T = 1, which is not published,
    plans are the actions that are likeliest as first and last at once.
    """

    abilities: ClassVar[Abilities] = ABILITIES
    exact: ClassVar[bool] = True
    name = "PKG (exact)"
    title = "step model"
    part = "step_model"
    section = "pkg"
    stream = 5
    ignored = frozenset({"smoothing", "width"})
    build = StepNetwork
    config: PkgConfig

    @override
    @classmethod
    def loss(cls, network: StepNetwork, train: Windows, val: Windows) -> ProposalLoss:
        return ProposalLoss(network, _ends(train), _ends(val), network.training_config)

    @override
    @classmethod
    def sizes(cls, settings: PkgSettings, shape: Shape) -> dict[str, int]:
        return {}  # no paper describes its step model

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How often training windows show one action after another, [K, K]."""
        return np.asarray(self.network.counts.cpu().numpy())

    @cached_property
    def costs(self) -> NDArray[np.float64]:
        """The cost of each transition in a path, [K, K]."""
        return transition_costs(self.counts, horizon=self.horizon, smoothing=self.config.smoothing)

    @torch.inference_mode()
    def logits(self, queries: Queries) -> NDArray[np.float32]:
        """Logits of the first and the last action over all actions, [N, 2, K]."""
        logits = self.network(*self.observations(queries))
        return np.asarray(finite_outputs(logits, self.title).float().cpu().numpy())

    @override
    def decode(self, queries: Queries, top_k: int) -> list[Plans]:
        if self.horizon == 1:
            return self._single_actions(queries, top_k)
        # the likeliest first and last actions, each by itself
        ends = [(first, last) for first, last in self.logits(queries).argmax(axis=2).tolist()]
        plans = {pair: self._paths(*pair, top_k) for pair in sorted(set(ends))}
        return [plans[pair] for pair in ends]

    def _single_actions(self, queries: Queries, top_k: int) -> list[Plans]:
        # −log p(first = a) − log p(last = a) [N, K]
        logits = torch.from_numpy(self.logits(queries)).double()
        plans = []
        for row in -logits.log_softmax(dim=2).sum(dim=1).numpy():
            best = row.argsort(kind="stable")[:top_k]
            cost = SearchCost(0, len(best))
            plans.append(Plans(best[:, None], row[best], row[best], cost, exact=True))
        return plans

    def _paths(self, first: int, last: int, top_k: int) -> Plans:
        paths, costs = cheapest_paths(
            self.costs,
            first=first,
            last=last,
            horizon=self.horizon,
            count=top_k,
            width=None if self.exact else self.config.width,
        )
        return Plans(paths, costs, costs, SearchCost(0, len(paths)), exact=self.exact)


class PkgBeamPlanner(PkgPlanner):
    """Plans paths of the graph by a beam search from the first action.

    It keeps `width` prefixes of each length; prefixes of T - 1 actions are ended by the last one.
    """

    exact: ClassVar[bool] = False
    name = "PKG (beam)"


def _ends(windows: Windows) -> Windows:
    """The windows with their first and last actions alone."""
    return replace(windows, actions=windows.actions[:, [0, -1]])
