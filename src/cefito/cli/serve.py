"""`cefito serve` and `mcp`: plans over HTTP, and tools for agents over stdin and stdout."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Group

from cefito.cli.console import Volume, ending_signals, log_warnings, lose_stdout, talk, volume
from cefito.cli.options import Flag, SeveralPaths, field_options, options_class
from cefito.errors import ConfigError
from cefito.locks import locked
from cefito.serve.settings import Limits, ServiceSettings, check_extra, read_token
from cefito.settings import validated

_LOOPBACK = ("127.0.0.1", "localhost", "::1")  # hosts that only this machine can reach
_NAMES = {
    "gflop": "--max-gflop",
    "deadline_seconds": "--deadline",
    "longest_seconds": "--max-deadline",
    "drain_seconds": "--drain",
    "session_seconds": "--session-idle",
}


@dataclass(frozen=True)
class LimitOptions:
    """Limits of the service. Fields: those of `Limits` that have a description."""


if not TYPE_CHECKING:  # a type checker cannot see fields that are made at run time
    _OPTIONS = field_options(Limits.model_fields, names=_NAMES)
    LimitOptions = options_class(LimitOptions, _OPTIONS, Group("Limits", sort_key=1))

_DEFAULTS = LimitOptions()


def serve(
    run: Path,
    /,
    *more: Path,
    host: str = "127.0.0.1",
    port: int = 8000,
    dataset: SeveralPaths = (),
    encoder: str = "auto",
    weights: Path | None = None,
    token_file: Path | None = None,
    allow_unauthenticated: Flag = False,
    trusted_proxy: tuple[str, ...] = (),
    session_folder: Path | None = None,
    mcp: Flag = False,
    limits: LimitOptions = _DEFAULTS,
    device: str = "auto",
) -> int:
    """Answer requests for plans over HTTP until SIGTERM or Ctrl-C, then finish what runs.

    Args:
        run: Run folder made by cefito train, or a folder of runs of several horizons.
        more: Further runs.
        host: Address to listen on.
        port: Port to listen on; 0 for any free port.
        dataset: A data set whose videos requests may name; may be repeated.
        encoder: Encoder of uploaded pictures and videos, as in cefito extract; own for the encoder
            of the run's features; auto for it if that is efficientnet-lite0. Other runs refuse
            uploads.
        weights: Weights file of the encoder s3d.
        token_file: File that holds the token.
        allow_unauthenticated: Without a token, listen on any address and answer to any host name.
        trusted_proxy: Address or network (10.0.0.0/8) of a proxy, whose X-Forwarded-For gives the
            client's address; may be repeated.
        session_folder: Folder that keeps live sessions across restarts; one service at a time uses
            it.
        mcp: Offer tools for agents at /mcp, by the Model Context Protocol; needs the extra mcp.
        limits: Limits of the service.
        device: auto, cpu or cuda.
    """
    check_extra(mcp=mcp)
    token = read_token(token_file)
    if token is None and not (allow_unauthenticated or _is_loopback(host)):
        raise ConfigError(
            f"--host {host}: without a token this service listens on this machine alone. Put "
            "a token of at least 16 characters into CEFITO_TOKEN or a --token-file, or give "
            "--allow-unauthenticated."
        )
    hosts = tuple(dict.fromkeys((*_LOOPBACK, host)))
    service = {
        "runs": (run, *more),
        "datasets": dataset,
        "device": device,
        "encoder": "own" if encoder == "auto" and weights is not None else encoder,
        "weights": weights,
        "token": token,
        "proxies": trusted_proxy,
        "session_folder": session_folder,
        "mcp": mcp,
        "hosts": None if token or allow_unauthenticated else hosts,
        "limits": validated(Limits, vars(limits), place="cefito serve"),
    }
    settings = validated(ServiceSettings, service, place="cefito serve")
    from cefito.serve import process
    from cefito.serve.app import create_app

    kept = nullcontext() if session_folder is None else locked(session_folder, "cefito serve")
    with kept, process.listen(host, port) as listening:
        with log_warnings():
            app = create_app(settings)
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}"

        def ready() -> None:
            names = sorted({served.title for served in app.state.service.models.runs})
            talk(f"serving {', '.join(names)} on {address}", urgent=True)

        access = volume() is not Volume.QUIET
        process.serve(app, listening, settings=settings, access=access, ready=ready)
    return 0


def _is_loopback(host: str) -> bool:
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def mcp(run: Path, /, *more: Path, dataset: SeveralPaths = (), device: str = "auto") -> None:
    """Offer plans to an agent on this machine, by the Model Context Protocol, until stdin ends.

    Args:
        run: Run folder made by cefito train, or a folder of runs of several horizons.
        more: Further runs.
        dataset: A data set whose videos the agent may name; may be repeated.
        device: auto, cpu or cuda.
    """
    check_extra(mcp=True)
    from cefito.serve.mcp import ToolServer
    from cefito.serve.service import open_service
    from cefito.serve.sessions import Sessions

    values = {"runs": (run, *more), "datasets": dataset, "device": device}
    with log_warnings():
        settings = validated(ServiceSettings, values, place="cefito mcp")
        run_until_ended(ToolServer(Sessions(open_service(settings))).run_stdio)


def run_until_ended(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Serve stdin and stdout; a lost stdout ends it as any command."""
    import anyio

    try:
        with ending_signals("SIGTERM", "SIGINT", "SIGHUP", at_once=True):
            anyio.run(work)
    except BaseExceptionGroup as group:
        lost, others = group.split(OSError)
        if lost is None or others is not None:
            raise
        problem: BaseException = lost
        while isinstance(problem, BaseExceptionGroup):
            problem = problem.exceptions[0]
        assert isinstance(problem, OSError)
        lose_stdout(problem)
