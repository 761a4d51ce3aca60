"""One process or several (torchrun): shares of a batch, and sums over all processes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch import distributed as dist

__all__ = ["Processes", "processes"]


@dataclass(frozen=True)
class Processes:
    """The processes that train together."""

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes files and logs."""
        return self.rank == 0

    def share(self, rows: Tensor) -> Tensor:
        """Return the rows of a batch that this process computes: every world-th."""
        return rows[self.rank :: self.world]

    def sum(self, value: Tensor) -> Tensor:
        """Return the sum of a tensor over all processes, without gradients."""
        if self.world == 1:
            return value
        total = value.detach().clone()
        dist.all_reduce(total)
        return total

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Sum the gradients of all processes, in one message."""
        if self.world == 1:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        for gradient, part in zip(
            gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True
        ):
            gradient.copy_(part.view_as(gradient))

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.world > 1:
            dist.barrier()


@contextmanager
def processes(device: torch.device) -> Iterator[tuple[Processes, torch.device]]:
    """Join the processes that torchrun started, if any; yield them and the device of this one."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Processes(), device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield Processes(rank=dist.get_rank(), world=world), device
    finally:
        dist.destroy_process_group()
