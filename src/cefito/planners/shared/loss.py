"""Base of losses of whole plans: windows on the device, and validation by the best plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from cefito.data.windows import Windows
from cefito.training.losses import WindowLoss
from cefito.training.trainer import Term


class PlanLoss(WindowLoss):
    """Base of losses that are validated by the best plan of each window of a fixed sample.

    The network's `config` has the settings `training`; `rows` are the steps compared in validation.
    """

    def __init__(self, network: Any, train: Windows, val: Windows) -> None:
        training = network.config.training
        self.chosen = val.sample_rows(training.stopping.windows or None, seed=0)
        super().__init__(network, train, val.subset(self.chosen), training)
        self.config = network.config
        self.rows: Tensor | slice = slice(None)

    def best_sequences(self) -> Tensor:
        """The best plan of each validation window [N, T], as planning gives it."""
        raise NotImplementedError

    def validate(self) -> Mapping[str, float]:
        """Success rate and mean accuracy of the best plans, in per cent."""
        right = (self.best_sequences() == self.val[-1])[:, self.rows]
        return {
            "success_rate": 100 * float(right.all(dim=1).double().mean()),
            "mean_accuracy": 100 * float(right.double().mean()),
        }


def mean_term(weight: float, errors: Tensor) -> Term:
    """The weighted mean of errors, as a term of a loss."""
    return Term(weight, errors.sum(), torch.tensor(errors.numel(), device=errors.device))
