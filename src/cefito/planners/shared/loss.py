"""Base of losses of whole plans: windows on the device, and validation by the best plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.data.windows import Windows
from cefito.training.augmentation import Observations
from cefito.training.trainer import Term


class PlanLoss:
    """Base of losses that are validated by the best plan of each window of a fixed sample.

    The network's `config` has the settings `training`; `rows` are the steps compared in validation.
    """

    def __init__(self, network: Any, train: Windows, val: Windows) -> None:
        self.module, self.config = network, network.config
        training = self.config.training
        self.device = next(network.parameters()).device
        self.observations = Observations(train, training.augmentation, self.device)
        self.actions, self.tasks = self.placed(train.actions, train.tasks)
        self.chosen = val.sample_rows(training.stopping.windows or None, seed=0)
        self.val_windows = val.subset(self.chosen)
        self.val = self.placed(
            self.val_windows.initial, self.val_windows.goal, self.val_windows.actions
        )
        self.rows: Tensor | slice = slice(None)

    def placed(self, *arrays: NDArray[Any]) -> tuple[Tensor, ...]:
        """Arrays as tensors on the device."""
        return tuple(torch.from_numpy(array).to(self.device) for array in arrays)

    def __len__(self) -> int:
        return len(self.actions)

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
