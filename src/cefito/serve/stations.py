"""Stations that may use a service: a file with the name, the role and the hash of a token of each.

A token has 256 random bits. Nobody can guess what its SHA-256 was made of, so that a slow hash,
which protects passwords that people choose, would only take time from every request.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator

from cefito.errors import CefitoError, ConfigError
from cefito.files import FileRecord, file_digest
from cefito.serve.settings import ServiceSettings, events_log
from cefito.settings import Record, validated

logger = logging.getLogger(__name__)

Role = Literal["watch", "use", "administer"]
"""What a station may do: read; also ask, and have sessions; also read metrics."""
_ROLES: tuple[Role, ...] = ("watch", "use", "administer")  # each may do what those before it may
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
TOKEN = "cft_"
"""Begin of a token that `Stations.add` makes."""


class Station(Record):
    """A station."""

    name: Annotated[str, Field(pattern=_NAME)]
    role: Role
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]  # of its token

    @property
    def client(self) -> str:
        """Whose sessions and share of the threads are its own; empty for its address."""
        return self.name and f"station {self.name}"

    def may(self, role: Role) -> bool:
        """Whether its role includes another."""
        return _ROLES.index(self.role) >= _ROLES.index(role)

    def reaches(self, client: str) -> bool:
        """Whether it may ask for a session, whose id it knows, of a client."""
        return self.role != "use" or self.client == client


class Stations(FileRecord):
    """The stations of a file."""

    what: ClassVar[str] = "file of tokens"
    remedy: ClassVar[str] = (
        "Put a copy of it back, or add all stations to a new file (cefito token add)."
    )

    stations: tuple[Station, ...] = ()

    @field_validator("stations")
    @classmethod
    def _distinct(cls, stations: tuple[Station, ...]) -> tuple[Station, ...]:
        for values in ([station.name for station in stations], [of.sha256 for of in stations]):
            if len({*values}) < len(values):
                raise ValueError("two stations have one name or one token")
        return stations

    def add(self, name: str, role: Role) -> tuple[Self, str]:
        """Add a station (ConfigError if its name is taken or odd); also its token, kept nowhere."""
        if name in {station.name for station in self.stations}:
            raise ConfigError(f"'{name}' has a token already. Remove it, or choose another name.")
        if not re.fullmatch(_NAME, name):
            expected = "expected at most 64 letters, digits, '.', '_' and '-', the first no sign"
            raise ConfigError(f"name '{name}': {expected}.")
        token = TOKEN + secrets.token_urlsafe(32)
        values = {"name": name, "role": role, "sha256": _digest(token)}
        added = validated(Station, values, place="cefito token add")
        return self.model_copy(update={"stations": (*self.stations, added)}), token

    def without(self, name: str) -> Self:
        """Remove a station (ConfigError if there is none of the name)."""
        kept = tuple(station for station in self.stations if station.name != name)
        if len(kept) == len(self.stations):
            listed = ", ".join(station.name for station in kept) or "none"
            raise ConfigError(f"no station '{name}'; there are {listed}.")
        return self.model_copy(update={"stations": kept})


class Access:
    """The tokens of a service: one that may do all, or those of a file as it is now (RunError)."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._file, self._stamp = settings.stations, (0, 0, 0, 0)
        self._stations: tuple[Station, ...] = ()
        if settings.token is not None:
            digest = _digest(settings.token.get_secret_value())
            # whose clients are addresses; no name of a file is empty
            everybody = Station.model_construct(name="", role="administer", sha256=digest)
            self._stations = (everybody,)
        if self._file is not None:
            self._stamp = _stamp(self._file)
            self._stations = Stations.read(self._file).stations
            self._version = _version(self._file, self._stations)
        self.open = settings.token is None and self._file is None
        """Whether nobody needs a token."""

    def find(self, token: str) -> Station | None:
        """The station of a token, in a time that does not depend on which it is; None without."""
        self.read_again()
        digest = _digest(token)
        same = [of for of in self._stations if hmac.compare_digest(of.sha256, digest)]
        return same[0] if same else None

    def admits(self, station: Station | None) -> bool:
        """Whether a station that was admitted has its token and its role still."""
        self.read_again()
        return self.open or station in self._stations

    def read_again(self) -> None:
        """Read the file if it has changed; if it cannot be read, all tokens stay as they were."""
        if self._file is not None and (stamp := _stamp(self._file)) != self._stamp:
            self._stamp = stamp
            try:
                stations = Stations.read(self._file).stations
                version = _version(self._file, stations)
            except (CefitoError, OSError) as problem:
                logger.warning("all tokens stay as they were, %s: %s", self._version, problem)
                return
            self._stations, self._version = stations, version
            if stations:
                events_log.info("tokens read anew: %s", version)
            else:
                logger.warning("nobody has a token now: %s has no stations", self._file)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def _version(file: Path, stations: Sequence[Station]) -> str:
    """What the log says of the stations of a file, with the begin of the file's SHA-256."""
    return f"{len(stations)} stations, digest {file_digest(file)[:12]}"


def _stamp(path: Path) -> tuple[int, int, int, int]:
    """What changes with the content of a file."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0, 0, 0
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
