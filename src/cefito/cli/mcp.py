"""`cefito mcp`: tools for agents over stdin and stdout."""

from __future__ import annotations

from pathlib import Path

from cefito.cli.console import log_warnings
from cefito.cli.options import SeveralPaths

__all__ = ["mcp"]


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
    import anyio

    from cefito.serve.mcp import ToolServer
    from cefito.serve.service import open_service
    from cefito.serve.settings import ServiceSettings
    from cefito.settings import validated

    given = {"runs": (run, *more), "datasets": dataset, "device": device}
    with log_warnings():
        settings = validated(ServiceSettings, given, place="cefito mcp")
        anyio.run(ToolServer(open_service(settings)).run_stdio)
