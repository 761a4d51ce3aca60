"""`cefito token`: the file of stations of `cefito serve --token-file`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from cyclopts import App

from cefito.cli.console import table, talk
from cefito.cli.values import said_as_json
from cefito.errors import ConfigError
from cefito.serve.stations import Role, Stations

app = App(name="token", help="Tokens of stations that may use the service.")


@app.command
@said_as_json
def add(file: Path, name: str, /, *more: str, role: Role = "use") -> list[dict[str, Any]]:
    """Make a token for each station and print it, once: the file keeps its SHA-256 alone.

    The token of one station is a line; of several, each line is a name and its token. If a name is
    refused, nothing is written.

    Args:
        file: File of tokens for cefito serve --token-file; made if missing. A service reads it
            again once it has changed.
        name: Name of the station, which the log shows: letters, digits, ".", "_" and "-".
        more: Names of further stations.
        role: watch reads; use also asks, and has sessions; administer also reads metrics and
            reaches all sessions.
    """
    stations, tokens = Stations.read(file) if file.exists() else Stations(), {}
    for station in (names := (name, *more)):
        if names.count(station) > 1:
            raise ConfigError(f"'{station}' comes twice. Leave one out.")
        stations, tokens[station] = stations.add(station, role)
    stations.write(file)
    if more:
        talk(f"{len(tokens)} stations may {role}; these are their tokens, which are kept nowhere:")
    else:
        talk(f"{name} may {role}; this is its token, which is kept nowhere:")
    for station, token in tokens.items():
        sys.stdout.write(f"{station} {token}\n" if more else f"{token}\n")
    return [{"name": station, "role": role, "token": token} for station, token in tokens.items()]


@app.command
@said_as_json
def remove(file: Path, name: str, /) -> dict[str, str]:
    """Remove a station, whose token the service then refuses at once.

    Args:
        file: File of tokens.
        name: Name of the station.
    """
    Stations.read(file).without(name).write(file)
    talk(f"removed {name}")
    return {"removed": name}


@app.command(name="list")
@said_as_json
def list_stations(file: Path, /) -> list[dict[str, str]]:
    """List the stations and their roles.

    Args:
        file: File of tokens.
    """
    stations = Stations.read(file).stations
    table(f"stations of {file}", ("station", "role"), [(of.name, of.role) for of in stations])
    return [{"name": station.name, "role": station.role} for station in stations]
