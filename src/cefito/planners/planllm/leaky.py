"""PlanLLM-style planning with the leak of the published encoder: it sees the states between.

The published encoder lets all true states of a window see each other, in planning too, and picks
the first and the last afterwards. That is an oracle, not a planner. It stands here to show what the
sight is worth, under a name that says so; states between reach it by its queries alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cefito.data.windows import Windows
from cefito.planners.base import Abilities, Queries
from cefito.planners.planllm.loss import PlanLlmLoss
from cefito.planners.planllm.network import PlanLlmNetwork
from cefito.planners.planllm.planner import PlanLlmModel, PlanLlmPlanner
from cefito.planners.schema.loss import SchemaLoss
from cefito.planners.schema.model import SchemaModel
from cefito.planners.schema.network import Encoded
from cefito.training.distributed import Processes

__all__ = ["LeakyLoss", "LeakyModel", "LeakyPlanner"]


class LeakyLoss(PlanLlmLoss):
    """The same errors of a network that sees the states between, where windows have them.

    Noise changes these observations as it does the two others; they are never swapped.

    Args:
        network: As of `SchemaLoss`.
        train: As there; with the observations between.
        val: As there; with the observations between.
    """

    def __init__(self, *, network: PlanLlmNetwork, train: Windows, val: Windows) -> None:
        super().__init__(network=network, train=train, val=val)
        self.between, self.val_between = (
            None
            if windows.between is None
            else torch.from_numpy(windows.between).to(network.mean.device)
            for windows in (train, self.chosen)
        )

    def encoded(self, rows: Tensor, generator: torch.Generator, group: Processes) -> Encoded:
        """The encoded observations of this process's share of a batch."""
        if self.between is None:
            return super().encoded(rows, generator, group)
        initial, goal = self.observations.draw(rows, generator)
        between, noise = self.between[rows], self.config.training.augmentation.noise
        if noise:
            drawn = torch.randn(between.shape, generator=generator, device=between.device)
            between = between + noise * self.observations.deviation * drawn
        whole = torch.cat([initial[:, None], between, goal[:, None]], dim=1)
        return self.module.exchanged(group.share(whole), generator)

    def encoded_val(self, part: slice) -> Encoded:
        """The encoded observations of some validation windows."""
        if self.val_between is None:
            return super().encoded_val(part)
        initial, goal, _ = self.val
        seen = [initial[part, None], self.val_between[part], goal[part, None]]
        return self.module.exchanged(torch.cat(seen, dim=1), None)


@dataclass(frozen=True)
class LeakyModel(PlanLlmModel):
    """A network that sees the states between, where queries tell them."""

    title: ClassVar[str] = "leaky PlanLLM network"
    part: ClassVar[str] = "planllm-leaky"
    loss_class: ClassVar[type[SchemaLoss]] = LeakyLoss

    def encoded(self, queries: Queries) -> Encoded:
        """The encoded observations of queries, those between among them where they are told.

        Raises:
            RunError: Observations of another dimension.
        """
        if queries.between is None:
            return super().encoded(queries)
        network = self.network
        assert isinstance(network, PlanLlmNetwork)
        initial, goal = self.observations(queries, network.observation_dim)
        between = torch.from_numpy(queries.between).to(self.device)
        return network.exchanged(torch.cat([initial[:, None], between, goal[:, None]], dim=1), None)


@dataclass(frozen=True, eq=False, repr=False)
class LeakyPlanner(PlanLlmPlanner):
    """An oracle: it is trained, and plans where it is told them, with the true states between.

    Where it is told none, it sees the two observations alone, and plans worse than one that was
    trained so.
    """

    abilities: ClassVar[Abilities] = Abilities(true_between=True)
    model_class: ClassVar[type[SchemaModel]] = LeakyModel
    departures: ClassVar[tuple[str, ...]] = ("no BERT", "sees the states between")
