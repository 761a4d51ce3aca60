"""`cefito mcp`: tools for agents over stdin and stdout."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from cefito.cli.console import ending_signals, log_warnings, lose_stdout
from cefito.cli.options import SeveralPaths

__all__ = ["mcp", "run_until_ended"]


def mcp(
    run: Path,
    /,
    *more: Path,
    dataset: SeveralPaths = (),
    device: str = "auto",
) -> None:
    """Offer plans to an agent on this machine, by the Model Context Protocol, until stdin ends.

    The tools are tasks, steps, plan, next_steps and score_plan. cefito serve --mcp offers them
    over HTTP.

    Args:
        run: Run folder made by cefito train, or a folder of runs of several horizons.
        more: Further runs.
        dataset: A data set whose videos the agent may name; may be repeated.
        device: auto, cpu or cuda.
    """
    from cefito.serve.process import check_extra

    check_extra(mcp=True)
    from cefito.serve.mcp import ToolServer
    from cefito.serve.service import open_service
    from cefito.serve.settings import ServiceSettings
    from cefito.settings import validated

    given = {"runs": (run, *more), "datasets": dataset, "device": device}
    with log_warnings():
        settings = validated(ServiceSettings, given, place="cefito mcp")
        run_until_ended(ToolServer(open_service(settings)).run_stdio)


def run_until_ended(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Serve stdin and stdout; a lost stdout ends it as any command."""
    import anyio

    try:
        with ending_signals("SIGTERM", "SIGINT", "SIGHUP", at_once=True):
            anyio.run(work)
    except BaseExceptionGroup as group:
        lost, rest = group.split(OSError)
        if lost is None or rest is not None:
            raise
        problem: BaseException = lost
        while isinstance(problem, BaseExceptionGroup):
            problem = problem.exceptions[0]
        assert isinstance(problem, OSError)
        lose_stdout(problem)
