"""`cefito token`: the file of stations of `cefito serve --token-file`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from cyclopts import App

from cefito.cli.console import table, talk
from cefito.cli.options import said_as_json
from cefito.serve.stations import Role, Stations

app = App(name="token", help="Tokens of stations that may use the service.")


@app.command
@said_as_json
def add(file: Path, name: str, /, *, role: Role = "use") -> dict[str, Any]:
    """Make a token for a station and print it, once: the file keeps its SHA-256 alone.

    Args:
        file: File of tokens for cefito serve --token-file; made if missing. A service reads it
            again once it has changed.
        name: Name of the station, which the log shows: letters, digits, ".", "_" and "-".
        role: watch reads; use also asks, and has sessions; administer also reads metrics and
            reaches all sessions.
    """
    before = Stations.read(file) if file.exists() else Stations()
    stations, token = before.add(name, role)
    stations.write(file)
    talk(f"{name} may {role}; this is its token, which is kept nowhere:")
    sys.stdout.write(f"{token}\n")
    return {"name": name, "role": role, "token": token}


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
