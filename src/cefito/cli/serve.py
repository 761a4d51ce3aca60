"""`cefito serve`: trained runs asked for plans over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from cefito.cli.console import talk
from cefito.cli.options import Flag
from cefito.cli.verbosity import Volume, volume
from cefito.errors import ConfigError

__all__ = ["serve"]

_DEADLINE = 30.0
_SeveralPaths = Annotated[
    tuple[Path, ...], Parameter(negative="", consume_multiple=False, show_default=False)
]


def serve(
    run: Path,
    /,
    *more: Path,
    host: str = "127.0.0.1",
    port: int = 8000,
    dataset: _SeveralPaths = (),
    encoder: str | None = None,
    weights: Path | None = None,
    token_file: Path | None = None,
    allow_unauthenticated: Flag = False,
    workers: int = 2,
    threads: int = 1,
    together: int = 16,
    queue: int = 128,
    max_gflop: float = 500,
    deadline: float | None = None,
    max_deadline: float = 120,
    drain: float = 30,
    device: str = "auto",
) -> int:
    """Answer requests for plans over HTTP until told to end; then finish what runs.

    There is a page at /, the interface is at /docs. A token that every client must show is taken
    from the environment variable CEFITO_TOKEN or from a file; without one the service listens on
    this machine alone.

    Args:
        run: Run folder, as cefito train makes it, or one that holds runs of several horizons.
        more: Further runs.
        host: Address to listen on.
        port: Port to listen on; 0 for any that is free.
        dataset: A data set whose videos requests may name; may be repeated.
        encoder: What encodes uploaded pictures and videos, as in cefito extract; own for the
            encoder that the run's features were made with. Without it uploads are refused.
        weights: Of the encoder s3d: the file of its weights.
        token_file: File that holds the token.
        allow_unauthenticated: Without a token, listen on any address and answer to any name all the
            same.
        workers: Searches at a time.
        threads: Threads of each search.
        together: Most cheap searches of one kind that are walked together; 1 for none.
        queue: Searches that may wait; beyond, requests are told to come again.
        max_gflop: Operations that the search of one query may take at most, 10⁹.
        deadline: Seconds that a request has until its answer, where it does not say; 30 by default.
        max_deadline: Most seconds that it may ask for.
        drain: Seconds that running requests have to end when the service is told to.
        device: auto, cpu or cuda.
    """
    from cefito.serve.process import (
        LOOPBACK,
        check_extra,
        is_loopback,
        listen,
        logging_to_stderr,
    )
    from cefito.serve.settings import Limits, ServiceSettings, read_token
    from cefito.settings import validated

    check_extra()
    token = read_token(token_file)
    if token is None and not (allow_unauthenticated or is_loopback(host)):
        raise ConfigError(
            f"--host {host}: without a token this service listens on this machine alone. Put one "
            "of at least 16 characters into CEFITO_TOKEN or a --token-file, or say "
            "--allow-unauthenticated."
        )
    limits = validated(
        Limits,
        {
            "workers": workers,
            "threads": threads,
            "together": together,
            "queue": queue,
            "queries": max(1, min(64, queue)),
            "gflop": max_gflop,
            "deadline_seconds": min(_DEADLINE, max_deadline) if deadline is None else deadline,
            "longest_seconds": max_deadline,
            "drain_seconds": drain,
        },
        place="cefito serve",
    )
    settings = validated(
        ServiceSettings,
        {
            "runs": (run, *more),
            "datasets": dataset,
            "device": device,
            "encoder": encoder if encoder is not None or weights is None else "own",
            "weights": weights,
            "token": token,
            "hosts": None
            if token or allow_unauthenticated
            else tuple(dict.fromkeys((*LOOPBACK, host))),
            "limits": limits,
        },
        place="cefito serve",
    )
    from cefito.serve.app import create_app
    from cefito.serve.process import serve as serve_until_told

    with logging_to_stderr(access=volume() is not Volume.QUIET), listen(host, port) as listening:
        app = create_app(settings)
        names = sorted({served.title for served in app.state.service.models.runs})
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}"
        serve_until_told(
            app,
            listening,
            drain_seconds=limits.drain_seconds,
            ready=lambda: talk(f"serving {', '.join(names)} on {address}", urgent=True),
        )
    return 0
