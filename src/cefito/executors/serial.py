"""Jobs one after the other, in this process."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from cefito.executors.base import Argument, Outcome, Value, attempt, ignore

__all__ = ["SerialExecutor"]


@dataclass(frozen=True)
class SerialExecutor:
    """Works on jobs in their order, in this process.

    Attributes:
        workers: How many work at the same time; it is always one, whatever is asked for.
    """

    in_process: ClassVar[bool] = True
    workers: int = 1

    def map(
        self,
        function: Callable[[Argument], Value],
        arguments: Sequence[Argument],
        *,
        groups: Sequence[Hashable] | None = None,  # noqa: ARG002
        advance: Callable[[float], None] = ignore,
    ) -> list[Outcome[Value]]:
        """Call a function with every argument; see `Executor.map`."""
        outcomes: list[Outcome[Value]] = []
        for argument in arguments:
            outcomes.append(attempt(function, argument))
            advance(1)
        return outcomes
