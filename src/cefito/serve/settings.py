"""Settings of a service, among them all limits."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field, SecretStr, model_validator

from cefito.errors import ConfigError
from cefito.settings import Settings

__all__ = ["TOKEN_VARIABLE", "Limits", "ServiceSettings", "read_token"]

TOKEN_VARIABLE = "CEFITO_TOKEN"
"""Environment variable that may hold the token."""
_SHORTEST_TOKEN = 16


class Limits(Settings):
    """Limits of a service and of each request.

    Attributes:
        workers: Searches that run at a time; one worker is reserved for cheap searches.
        threads: Threads of each search.
        queue: Searches in the queue.
        together: Cheap queries of one kind in a batch.
        top_k: Plans of a query.
        queries: Queries of a batch request.
        gflop: Operations of a query's search, 10⁹.
        cheap_gflop: Operations, 10⁹, up to which a search is cheap: it shares a batch with others
            of its kind, and the last worker is left to it.
        deadline_seconds: Default seconds from the arrival of a request to its answer.
        longest_seconds: Maximum of the same.
        body_mib: MiB of a request in JSON.
        upload_mib: MiB of an upload.
        upload_megapixels: Pixels of an uploaded picture, 10⁶.
        upload_seconds: Seconds to decode and encode an upload.
        uploads: Uploads that wait to be encoded.
        receive_seconds: Seconds that a client may take to send its request.
        drain_seconds: Seconds that running requests have to finish at shutdown.
    """

    workers: int = Field(2, ge=1, le=256)
    threads: int = Field(1, ge=1, le=1024)
    queue: int = Field(128, ge=1, le=100_000)
    together: int = Field(16, ge=1, le=1024)
    top_k: int = Field(100, ge=1, le=10_000)
    queries: int = Field(64, ge=1, le=10_000)
    gflop: float = Field(500, gt=0)
    cheap_gflop: float = Field(2, ge=0)
    deadline_seconds: float = Field(30, gt=0, le=86_400)
    longest_seconds: float = Field(120, gt=0, le=86_400)
    body_mib: float = Field(4, gt=0, le=1024)
    upload_mib: float = Field(64, gt=0, le=65_536)
    upload_megapixels: float = Field(25, gt=0, le=1000)
    upload_seconds: float = Field(60, gt=0, le=86_400)
    uploads: int = Field(4, ge=1, le=1000)
    receive_seconds: float = Field(30, gt=0, le=86_400)
    drain_seconds: float = Field(30, ge=0, le=86_400)

    @model_validator(mode="after")
    def _consistent(self) -> Limits:
        if self.deadline_seconds > self.longest_seconds:
            raise ValueError(
                f"the default deadline ({self.deadline_seconds:g} seconds) exceeds the maximum "
                f"({self.longest_seconds:g})"
            )
        if self.queries > self.queue:
            raise ValueError(
                f"a batch of {self.queries} queries does not fit a queue of {self.queue}"
            )
        return self

    @property
    def body_bytes(self) -> int:
        """Maximum size of a request in JSON."""
        return int(self.body_mib * 2**20)

    @property
    def upload_bytes(self) -> int:
        """Maximum size of an upload."""
        return int(self.upload_mib * 2**20)

    @property
    def upload_pixels(self) -> int:
        """Maximum pixels of an uploaded picture."""
        return int(self.upload_megapixels * 1e6)


class ServiceSettings(Settings):
    """Settings of a service.

    Attributes:
        runs: Run folders, or folders of runs of several horizons, as `open_run` takes them.
        datasets: Data sets whose videos requests may name.
        device: Device of the planners: auto, cpu or cuda.
        encoder: Encoder of uploaded pictures and videos, as `cefito.encoders.video.open_encoder`
            takes it; "own" for the encoder of each run's features. None refuses uploads.
        weights: Weights file of the encoder s3d.
        token: Token that clients must send; None admits everybody.
        hosts: Host names, without ports, by which clients may call the service; None for any.
        limits: All limits.
    """

    runs: tuple[Path, ...] = Field(min_length=1)
    datasets: tuple[Path, ...] = ()
    device: str = "cpu"
    encoder: str | None = None
    weights: Path | None = None
    token: SecretStr | None = None
    hosts: tuple[str, ...] | None = None
    limits: Limits = Limits()


def read_token(path: Path | None) -> SecretStr | None:
    """Read the token from a file, otherwise from the environment; None without one.

    Raises:
        ConfigError: The file cannot be read, or the token is too short or not printable ASCII.
    """
    place, text = f"the environment variable {TOKEN_VARIABLE}", os.environ.get(TOKEN_VARIABLE)
    if path is not None:
        place = str(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            raise ConfigError(
                f"{path}: cannot be read ({problem}). Give a file that holds the token.",
                setting="token_file",
            ) from problem
    if text is None:
        return None
    token = text.strip()
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise ConfigError(
            f"{place}: holds a token of {len(token)} characters; expected at least "
            f"{_SHORTEST_TOKEN} printable ASCII characters, as openssl rand -hex 32 prints.",
            setting="token_file" if path is not None else "",
        )
    return SecretStr(token)
