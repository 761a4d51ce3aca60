"""Networks that are trained one after the other, or each in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from numpy.typing import NDArray

from cefito.errors import RunError
from cefito.executors.base import Done, Failed
from cefito.executors.processes import ProcessExecutor
from cefito.files import load_weights
from cefito.progress import silent
from cefito.training.settings import TrainingResult
from cefito.training.trainer import TrainingContext

_WORTH_A_PROCESS = 50_000  # examples of a training


def side_by_side(
    train: Callable[..., TrainingResult],
    members: Sequence[tuple[int, str, Any]],
    context: TrainingContext,
    examples: int,
    again: str = "",
) -> list[TrainingResult]:
    """Return the results of `train(context, *member)`, which trains the last of a member in place.

    With several workers, each is trained in a process of its own, with equal results, unless its
    training takes hardly longer than the start of a process: on fewer `examples` in all epochs.

    Raises:
        RunError: A process was ended, or failed.
    """
    if min(context.workers, len(members)) == 1 or examples < _WORTH_A_PROCESS:
        results = [train(context, *member) for member in members]
    else:
        apart = partial(
            _trained_apart, partial(train, replace(context, progress=silent, workers=1))
        )
        with context.progress(f"networks{again}", total=len(members)) as advance:
            executor = ProcessExecutor(context.workers)
            outcomes = executor.map(apart, members, advance=advance)
        results = []
        for (member, name, network), outcome in zip(members, outcomes, strict=True):
            if not isinstance(outcome, Done):
                said = "its process was killed, perhaps for memory; repeat the command to go on"
                if isinstance(outcome, Failed):
                    said = outcome.error
                raise RunError(f"network {member + 1} of {len(members)} was not trained: {said}.")
            weights, result = outcome.value
            load_weights(
                network, {key: torch.from_numpy(each) for key, each in weights.items()}, name
            )
            results.append(result)
    for _, _, network in members:
        network.eval()
    return results


def _trained_apart(
    train: Callable[..., TrainingResult], member: tuple[int, str, Any]
) -> tuple[dict[str, NDArray[Any]], TrainingResult]:
    """Train a copy of a network; return its weights, and the result."""
    result = train(*member)
    return {name: tensor.numpy() for name, tensor in member[2].state_dict().items()}, result
