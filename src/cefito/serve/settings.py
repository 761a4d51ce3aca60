"""What the operator of a service decides."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field, SecretStr, model_validator

from cefito.errors import ConfigError
from cefito.settings import Settings

__all__ = ["TOKEN_VARIABLE", "Limits", "ServiceSettings", "read_token"]

TOKEN_VARIABLE = "CEFITO_TOKEN"
"""Environment variable that may hold the token."""
SHORTEST_TOKEN = 16


class Limits(Settings):
    """How much is done at a time, and for one request.

    Attributes:
        workers: Searches at a time. One of them is kept free of dear searches.
        threads: Threads that each search computes with.
        queue: Searches that may wait.
        together: Most cheap queries of one kind that are walked together.
        top_k: Most plans of one query.
        queries: Most queries of one batch.
        gflop: Operations that the search of one query may take at most, 10⁹.
        cheap_gflop: Operations up to which a search is cheap: it is walked together with others of
            its kind, and dear ones never take every worker.
        deadline_seconds: Seconds that a request has from its arrival to its answer, where it does
            not say.
        longest_seconds: Most seconds that it may ask for.
        body_mib: Most MiB of a request in JSON.
        upload_mib: Most MiB of an upload.
        upload_megapixels: Most pixels of an uploaded picture, 10⁶.
        upload_seconds: Most seconds that an upload may take to be decoded and encoded.
        uploads: Uploads that may wait to be decoded.
        receive_seconds: Most seconds that a client may take to send its request.
        drain_seconds: Seconds that running requests have to end when the service is told to.
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
    def _fitting(self) -> Limits:
        if self.deadline_seconds > self.longest_seconds:
            raise ValueError(
                f"the usual deadline ({self.deadline_seconds:g} seconds) lies behind the longest "
                f"one ({self.longest_seconds:g})"
            )
        if self.queries > self.queue:
            raise ValueError(
                f"a batch of {self.queries} queries does not fit a queue of {self.queue}"
            )
        return self


class ServiceSettings(Settings):
    """A service.

    Attributes:
        runs: Run folders, or folders of runs of several horizons, as `open_run` takes them.
        datasets: Data sets whose videos may be named in requests.
        device: Where it plans: auto, cpu or cuda.
        encoder: Encoder of uploaded pictures and videos, as `cefito.encoders.video.open_encoder`
            takes it; "own" for the one that each run's features were made with. None refuses
            uploads.
        weights: File of the weights of the encoder s3d.
        token: What every client must show; None lets everybody in.
        hosts: Names by which clients may call the service, without ports; None for any.
        limits: How much is done.
    """

    runs: tuple[Path, ...] = Field(min_length=1)
    datasets: tuple[Path, ...] = ()
    device: str = "cpu"
    encoder: str | None = None
    weights: Path | None = None
    token: SecretStr | None = None
    hosts: tuple[str, ...] | None = None
    limits: Limits = Limits()


def read_token(path: Path | str | None) -> SecretStr | None:
    """The token of a file, otherwise of the environment; None where there is none.

    Args:
        path: A file that holds nothing else.

    Raises:
        ConfigError: The file cannot be read, or the token is too short or not of printable ASCII.
    """
    place, text = f"the environment variable {TOKEN_VARIABLE}", os.environ.get(TOKEN_VARIABLE)
    if path is not None:
        place = str(path)
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            raise ConfigError(
                f"{path}: cannot be read ({problem}). Give a file that holds the token.",
                setting="token_file",
            ) from problem
    if text is None:
        return None
    token = text.strip()
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise ConfigError(
            f"{place}: holds a token of {len(token)} characters; expected at least "
            f"{SHORTEST_TOKEN} printable ones of ASCII, such as openssl rand -hex 32 gives.",
            setting="token_file" if path is not None else "",
        )
    return SecretStr(token)
