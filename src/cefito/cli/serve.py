"""`cefito serve`, `label` and `mcp`: over HTTP, in Label Studio, for agents on stdin and stdout."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from cyclopts import Group
from pydantic import SecretStr

from cefito.cli.console import (
    Volume,
    ending_signals,
    hangups_held,
    log_warnings,
    lose_stdout,
    talk,
    volume,
)
from cefito.cli.options import Several, SeveralPaths, field_options, with_options
from cefito.cli.values import Flag
from cefito.errors import ConfigError
from cefito.locks import locked
from cefito.runtime import pick_device
from cefito.serve.settings import (
    Limits,
    LogFormat,
    ServiceSettings,
    check_extra,
    events_log,
    read_token,
)
from cefito.settings import validated

if TYPE_CHECKING:
    from fastapi import FastAPI

_LOOPBACK = ("127.0.0.1", "localhost", "::1")  # hosts that only this machine can reach
_FILMS = Limits(body_mib=64, upload_mib=16_384, upload_seconds=3600, uploads=1000)
"""Limits of a back end of Label Studio, whose users are trusted with whole films."""
_NAMES = {
    "gflop": "--max-gflop",
    "deadline_seconds": "--deadline",
    "longest_seconds": "--max-deadline",
    "drain_seconds": "--drain",
    "session_seconds": "--session-idle",
}


@with_options(field_options(Limits.model_fields, names=_NAMES), Group("Limits", sort_key=1))
class LimitOptions:
    """Limits of the service: the fields of `Limits` that have a description."""


_DEFAULTS = LimitOptions()


@hangups_held()
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
    trusted_proxy: Several = (),
    session_folder: Path | None = None,
    session_store: str | None = None,
    processes: int = 1,
    mcp: Flag = False,
    log_format: LogFormat = "text",
    metrics_port: int | None = None,
    metrics_host: str = "127.0.0.1",
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
        token_file: File that holds the token, or the tokens of several stations, as cefito token
            add makes it.
        allow_unauthenticated: Without a token, listen on any address and answer to any host name.
        trusted_proxy: Address or network (10.0.0.0/8) of a proxy, whose X-Forwarded-For gives the
            client's address; may be repeated.
        session_folder: Folder that keeps live sessions across restarts; one service at a time uses
            it. By default several processes keep them in a temporary folder.
        session_store: Valkey that keeps live sessions for several services, such as
            valkey://10.0.0.5:6379/0; CEFITO_STORE_PASSWORD may hold its password.
        processes: Processes that share the port, each with all limits; not on Windows, and on the
            CPU alone.
        mcp: Offer tools for agents at /mcp, by the Model Context Protocol; needs the extra mcp.
        log_format: Write the log as lines of text or as objects of JSON, one a line.
        metrics_port: Also answer /metrics on a port of its own, without a token; 0 for any free
            port.
        metrics_host: Address to listen on for metrics.
        limits: Limits of the service.
        device: auto, cpu or cuda.
    """
    check_extra(mcp=mcp)
    service = {
        **_access(host, token_file, allow_unauthenticated),
        "runs": (run, *more),
        "datasets": dataset,
        "device": device,
        "encoder": "own" if encoder == "auto" and weights is not None else encoder,
        "weights": weights,
        "proxies": trusted_proxy,
        "session_folder": session_folder,
        "session_store": session_store,
        "processes": processes,
        "mcp": mcp,
        "log_format": log_format,
        "limits": validated(Limits, vars(limits), place="cefito serve"),
    }
    settings = validated(ServiceSettings, service, place="cefito serve")
    from cefito.serve.app import create_app

    with _session_folder(settings) as folder:
        settings = settings.model_copy(update={"session_folder": folder})
        metrics = None if metrics_port is None else (metrics_host, metrics_port)
        kept = "ended" if session_folder is None else f"kept in {session_folder}"
        kept = kept if session_store is None else "kept in Valkey"
        _answer(lambda: create_app(settings), settings, host, port, metrics, kept)
    return 0


@contextmanager
def _session_folder(settings: ServiceSettings) -> Iterator[Path | None]:
    """Lock the folder of sessions; several processes have a temporary one by default."""
    folder = settings.session_folder
    if settings.processes > 1 and (
        not hasattr(os, "fork") or pick_device(settings.device).type != "cpu"
    ):
        problem = f"--processes {settings.processes}: several processes need a system with fork"
        raise ConfigError(f"{problem} and --device cpu. Use one.", setting="processes")
    if folder is not None:
        with locked(folder, "cefito serve"):
            yield folder
    elif settings.processes > 1 and settings.session_store is None:
        with TemporaryDirectory(prefix="cefito-sessions-") as temporary:
            yield Path(temporary)
    else:
        yield None


def _access(host: str, token_file: Path | None, open_to_all: bool) -> dict[str, Any]:
    """Return who may use a service: its token and its host names."""
    token = read_token(token_file)
    stations = token_file if token is None else None
    closed = token is not None or stations is not None
    if not (closed or open_to_all or _is_loopback(host)):
        raise ConfigError(
            f"--host {host}: without a token this service listens on this machine alone. Put "
            "a token of at least 16 characters into CEFITO_TOKEN or a --token-file, or give "
            "--allow-unauthenticated."
        )
    hosts = tuple(dict.fromkeys((*_LOOPBACK, host)))
    hosts_or_all = None if closed or open_to_all else hosts
    return {"token": token, "stations": stations, "hosts": hosts_or_all}


def _answer(
    make: Callable[[], FastAPI],
    settings: ServiceSettings,
    host: str,
    port: int,
    metrics: tuple[str, int] | None = None,
    kept: str = "",
) -> None:
    """Serve an application, made once the port is open, until it is ended."""
    from cefito.serve import process
    from cefito.serve.logs import logged_to_stderr

    access = volume() is not Volume.QUIET
    with process.listen(host, port) as listening, ExitStack() as stack:
        stack.enter_context(logged_to_stderr(settings.log_format, requests=access))
        app = make()
        service, address = app.state.service, process.address_of(host, listening.getsockname()[1])
        monitors = None
        if metrics is not None:
            monitors = stack.enter_context(process.metrics_at(*metrics, service.collected))
            page = process.address_of(metrics[0], monitors.server_port)
            events_log.info("metrics on %s/metrics", page)

        def ready() -> None:
            events_log.info("serving %s on %s", service.models.versions, address)

        process.serve(app, listening, settings=settings, ready=ready, kept=kept, monitors=monitors)


def label(
    run: Path,
    /,
    *,
    host: str = "127.0.0.1",
    port: int = 9090,
    folder: Path | None = None,
    retrain_after: int = 5,
    dataset: Path | None = None,
    studio: str | None = None,
    encoder: str = "own",
    weights: Path | None = None,
    token_file: Path | None = None,
    allow_unauthenticated: Flag = False,
    device: str = "auto",
) -> int:
    """Propose steps in Label Studio, as its ML back end, and learn from what is corrected.

    Args:
        run: Run with a recogniser, trained on features of films.
        host: Address to listen on.
        port: Port to listen on; 0 for any free port.
        folder: Folder of corrected films and of the runs that learn from them; by default
            RUN.labels, beside the run. One back end at a time uses it.
        retrain_after: Corrected films after which a run learns from them; 0 for never.
        dataset: The run's data set, if it has moved; runs that learn keep its videos.
        studio: Address of Label Studio, if projects name it wrongly, such as http://studio:8080.
            The environment variable LABEL_STUDIO_API_KEY then holds a user's token.
        encoder: Encoder of films, as in cefito extract; own for that of the run's features.
        weights: Weights file of the encoder s3d.
        token_file: File that holds the token that Label Studio sends as its password.
        allow_unauthenticated: Without a token, listen on any address and answer to any host name.
        device: auto, cpu or cuda, for the proposals.
    """
    check_extra()
    if retrain_after < 0:
        raise ConfigError(f"--retrain-after {retrain_after}: expected 0 or more films.")
    values = {
        **_access(host, token_file, allow_unauthenticated),
        "runs": (run,),
        "device": device,
        "encoder": encoder,
        "weights": weights,
        "limits": _FILMS,
    }
    settings = validated(ServiceSettings, values, place="cefito label")
    from cefito.runs.corrected import CorrectedFilms
    from cefito.runs.run import open_run
    from cefito.serve.labels import create_label_app
    from cefito.serve.studio import Studio

    server, key = None, os.environ.get("LABEL_STUDIO_API_KEY", "")
    if studio is not None:
        if not key:
            raise ConfigError("--studio needs a user's token in LABEL_STUDIO_API_KEY.")
        server = Studio(address=studio, token=SecretStr(key))
    place = folder or run.with_name(f"{run.name}.labels")
    with locked(place, "cefito label"):
        start = open_run(run)
        films = CorrectedFilms(place, start, start.dataset(dataset))
        talk(f"labels for a project: {films.labels}, for Settings › Labeling Interface › Code")
        make = partial(create_label_app, settings, films, every=retrain_after, studio=server)
        _answer(make, settings, host, port)
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
