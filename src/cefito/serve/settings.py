"""Settings of a service, among them all limits."""

from __future__ import annotations

import ipaddress
import logging
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from cefito.errors import ConfigError, install_command
from cefito.files import read_text
from cefito.settings import Settings

TOKEN_VARIABLE = "CEFITO_TOKEN"
"""Environment variable that may hold the token."""
LogFormat = Literal["text", "json"]
events_log = logging.getLogger("cefito.events")
"""What a service says of itself, at every volume."""
_SHORTEST_TOKEN = 16


class Limits(Settings):
    """Limits of a service and of each request; those with a description are options."""

    workers: int = Field(2, ge=1, le=256, description="Searches that run at a time.")
    threads: int = Field(1, ge=1, le=1024, description="Threads of each search.")
    together: int = Field(16, ge=1, le=1024, description="Maximum number of cheap ones in a batch.")
    queue: int = Field(128, ge=1, le=100_000, description="Maximum length of the queue.")
    gflop: float = Field(500, gt=0, description="Maximum operations of a query's search, 10⁹.")
    deadline_seconds: float = Field(
        30, gt=0, le=86_400, description="Default seconds of a request."
    )
    longest_seconds: float = Field(
        120, gt=0, le=86_400, description="Maximum seconds of a request."
    )
    drain_seconds: float = Field(30, ge=0, le=86_400, description="Seconds to finish at shutdown.")
    sessions: int = Field(100, ge=1, le=100_000, description="Maximum number of live sessions.")
    client_sessions: int = Field(20, ge=1, le=100_000, description="Maximum number of one client.")
    session_seconds: float = Field(
        3600, gt=0, le=604_800, description="Idle seconds that end a session."
    )
    top_k: int = Field(100, ge=1, le=10_000)  # plans of a query
    # 10⁹ operations up to which a search is cheap: it shares a batch with others of its kind, and
    # the last worker is left to it
    cheap_gflop: float = Field(2, ge=0)
    body_mib: float = Field(4, gt=0, le=1024)  # of a request in JSON
    upload_mib: float = Field(64, gt=0, le=65_536)
    upload_megapixels: float = Field(25, gt=0, le=1000)  # of a picture
    upload_memory_mib: float = Field(4096, gt=0)  # of the process that encodes it
    upload_seconds: float = Field(60, gt=0, le=86_400)  # to decode and encode an upload
    uploads: int = Field(16, ge=1, le=1000)  # that wait to be encoded
    session_events: int = Field(500, ge=1, le=100_000)  # that undo can take back
    heartbeat_seconds: float = Field(15, gt=0, le=3600)  # between signs of life in a stream
    # for a client to send the headers of a request, and again its body
    receive_seconds: float = Field(30, gt=0, le=86_400)

    @property
    def body_bytes(self) -> int:
        """Maximum size of a request in JSON."""
        return int(self.body_mib * 2**20)

    @property
    def upload_bytes(self) -> int:
        """Maximum size of an upload."""
        return int(self.upload_mib * 2**20)


class ServiceSettings(Settings):
    """Settings of a service."""

    runs: tuple[Path, ...] = Field(min_length=1)  # as for `open_run`, or folders of horizons
    datasets: tuple[Path, ...] = ()  # data sets whose videos requests may name
    device: str = "cpu"  # of the planners: auto, cpu or cuda
    # of uploads, as for `open_encoder`; "own" for each run's own, "auto" for it if it is the one
    # that is installed with its weights; None refuses uploads
    encoder: str | None = None
    weights: Path | None = None  # file of the encoder s3d
    token: SecretStr | None = None  # that clients must send; None admits everybody
    stations: Path | None = None  # file of `Stations`, each with a token, in the place of one token
    hosts: tuple[str, ...] | None = None  # names, without ports, of the service; None for any
    proxies: tuple[str, ...] = ()  # addresses or networks whose X-Forwarded-For is believed
    # where live sessions are kept, in files or, for several services, in Valkey; else in memory
    session_folder: Path | None = None
    session_store: str | None = None
    processes: int = Field(1, ge=1, le=256)  # that share the port; several need one of the two
    mcp: bool = False  # whether agents find its tools at /mcp
    log_format: LogFormat = "text"
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _one_store(self) -> Self:
        if None not in (self.session_folder, self.session_store):
            raise ValueError("sessions are kept in a folder or in a store; leave out one")
        return self

    @field_validator("proxies")
    @classmethod
    def _with_mapped(cls, addresses: tuple[str, ...]) -> tuple[str, ...]:
        """Check addresses; add those of IPv4 as a socket of both kinds reports them."""
        networks = [ipaddress.ip_network(address) for address in addresses]
        mapped = [
            f"::ffff:{network.network_address}/{96 + network.prefixlen}"
            for network in networks
            if network.version == 4
        ]
        return (*map(str, networks), *mapped)


def read_token(path: Path | None) -> SecretStr | None:
    """Read the token from a file, otherwise from the environment.

    None without one, also if the file holds stations, in JSON.
    """
    place, text = f"the environment variable {TOKEN_VARIABLE}", os.environ.get(TOKEN_VARIABLE)
    if path is not None:
        place = str(path)
        remedy = "Give a file that holds the token."
        text = read_text(path, remedy, ConfigError, setting="token_file")
    if text is None or (path is not None and text.lstrip().startswith("{")):
        return None
    token = text.strip()
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        expected = f"expected at least {_SHORTEST_TOKEN} ASCII characters (openssl rand -hex 32)"
        fault = f"holds a token of {len(token)} characters; {expected}"
        raise ConfigError(f"{place}: {fault}.", setting="token_file" if path else "")
    return SecretStr(token)


def check_extra(*, mcp: bool = False) -> None:
    """Check that the packages of the extra are installed, those of tools too (ConfigError)."""
    packages = ("fastapi", "fastapi_offline", "asgi_correlation_id", "prometheus_client")
    needed = (*packages, "python_multipart", "uvicorn", *["mcp"] * mcp)
    check_installed("mcp" if mcp else "serve", *needed)


def check_installed(extra: str, *packages: str) -> None:
    """Check that packages of an extra are installed (ConfigError)."""
    for package in packages:
        if find_spec(package) is None:
            problem = f"this needs the package {package}, which is not installed"
            raise ConfigError(f"{problem}. Run: {install_command(extra)}")
