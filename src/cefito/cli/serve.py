"""`cefito serve` and `mcp`: plans over HTTP, and tools for agents over stdin and stdout."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from cefito.cli.console import Volume, ending_signals, log_warnings, lose_stdout, talk, volume
from cefito.cli.options import Flag, SeveralPaths
from cefito.errors import ConfigError

_DEADLINE = 30.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")  # hosts that only this machine can reach


def serve(
    run: Path,
    /,
    *more: Path,
    host: str = "127.0.0.1",
    port: int = 8000,
    dataset: SeveralPaths = (),
    encoder: str | None = None,
    weights: Path | None = None,
    token_file: Path | None = None,
    allow_unauthenticated: Flag = False,
    mcp: Flag = False,
    workers: int = 2,
    threads: int = 1,
    together: int = 16,
    queue: int = 128,
    max_gflop: float = 500,
    deadline: float | None = None,
    max_deadline: float = 120,
    drain: float = 30,
    sessions: int = 100,
    client_sessions: int = 20,
    session_idle: float = 3600,
    device: str = "auto",
) -> int:
    """Answer requests for plans over HTTP until SIGTERM or Ctrl-C, then finish what runs.

    There is a page at /, and the interface for programs is described at /docs. A token that every
    client must send is read from the environment variable CEFITO_TOKEN or from a file; without one
    the service listens on this machine alone.

    Args:
        run: Run folder made by cefito train, or a folder of runs of several horizons.
        more: Further runs.
        host: Address to listen on.
        port: Port to listen on; 0 for any free port.
        dataset: A data set whose videos requests may name; may be repeated.
        encoder: Encoder of uploaded pictures and videos, as in cefito extract; own for the encoder
            of the run's features. Without it uploads are refused.
        weights: Weights file of the encoder s3d.
        token_file: File that holds the token.
        allow_unauthenticated: Without a token, listen on any address and answer to any host name.
        mcp: Offer tools for agents at /mcp, by the Model Context Protocol; needs pip install
            cefito[mcp].
        workers: Searches that run at a time.
        threads: Threads of each search.
        together: Maximum number of cheap searches of one kind in a batch; 1 for no batches.
        queue: Maximum number of searches in the queue; further requests are asked to retry later.
        max_gflop: Maximum operations of a query's search, 10⁹.
        deadline: Default seconds from a request to its answer; 30 unless the maximum is lower.
        max_deadline: Maximum seconds from a request to its answer.
        drain: Seconds that running requests have to finish at shutdown.
        sessions: Maximum number of live sessions that are open.
        client_sessions: Maximum number of them from one address.
        session_idle: Seconds after which a session ends if nobody uses it.
        device: auto, cpu or cuda.
    """
    from cefito.serve.settings import Limits, ServiceSettings, check_extra, read_token
    from cefito.settings import validated

    check_extra(mcp=mcp)
    token = read_token(token_file)
    if token is None and not (allow_unauthenticated or _is_loopback(host)):
        raise ConfigError(
            f"--host {host}: without a token this service listens on this machine alone. Put "
            "a token of at least 16 characters into CEFITO_TOKEN or a --token-file, or give "
            "--allow-unauthenticated."
        )
    given = {
        **{"workers": workers, "threads": threads, "together": together, "queue": queue},
        "queries": max(1, min(64, queue)),
        "gflop": max_gflop,
        "deadline_seconds": min(_DEADLINE, max_deadline) if deadline is None else deadline,
        "longest_seconds": max_deadline,
        "drain_seconds": drain,
        "sessions": sessions,
        "client_sessions": client_sessions,
        "session_seconds": session_idle,
    }
    limits = validated(Limits, given, place="cefito serve")
    hosts = tuple(dict.fromkeys((*_LOOPBACK, host)))
    service = {
        "runs": (run, *more),
        "datasets": dataset,
        "device": device,
        "encoder": encoder if encoder is not None or weights is None else "own",
        "weights": weights,
        "token": token,
        "mcp": mcp,
        "hosts": None if token or allow_unauthenticated else hosts,
        "limits": limits,
    }
    settings = validated(ServiceSettings, service, place="cefito serve")
    from cefito.serve.app import create_app
    from cefito.serve.process import listen, logging_to_stderr
    from cefito.serve.process import serve as run_server

    with logging_to_stderr(access=volume() is not Volume.QUIET), listen(host, port) as listening:
        app = create_app(settings)
        names = sorted({served.title for served in app.state.service.models.runs})
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}"
        run_server(
            app,
            listening,
            limits=limits,
            ready=lambda: talk(f"serving {', '.join(names)} on {address}", urgent=True),
        )
    return 0


def _is_loopback(host: str) -> bool:
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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
    from cefito.serve.settings import ServiceSettings, check_extra

    check_extra(mcp=True)
    from cefito.serve.mcp import ToolServer
    from cefito.serve.service import open_service
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
