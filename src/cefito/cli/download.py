"""`cefito data download`: fetch weights, annotations and features."""

from __future__ import annotations

from pathlib import Path

from cefito.cli.console import print_json, progress, table, talk
from cefito.cli.options import Flag
from cefito.errors import ConfigError

__all__ = ["download"]


def download(
    name: str | None = None,
    target: Path = Path(),
    /,
    *,
    address: str | None = None,
    sha256: str | None = None,
    json: Flag = False,
) -> None:
    """Download weights, annotations or features; without a name, list what is available.

    Args:
        name: What to download, a file or a group of files.
        target: Folder to write into.
        address: URL to use if none is documented or the documented one has changed.
        sha256: SHA-256 that the file must have; by default the documented one, if any.
        json: Print JSON instead of a table or lines.
    """
    from cefito.data import downloads

    if name is None:
        known = list(downloads.places().values())
        if json:
            print_json([place.model_dump() for place in known])
            return
        columns = ("name", "what", "address", "licence")
        rows = [(at.name, at.what, at.address or "needs --address", at.licence) for at in known]
        for group in dict.fromkeys(at.group for at in known if at.group):
            count = sum(at.group == group for at in known)
            rows.append((group, f"All {count} files {group}-…", "", ""))
        table("Available downloads", columns, rows)
        return
    chosen = downloads.find_places(name)
    if len(chosen) > 1 and (address is not None or sha256 is not None):
        parts = ", ".join(place.name for place in chosen)
        raise ConfigError(f"--address and --sha256 apply to one file: {parts}. Name one of them.")
    fetched = []
    for place in chosen:
        talk(f"{place.name}: {place.what}; licence: {place.licence}")
        done = downloads.download(
            place.name, target, address=address, sha256=sha256, progress=progress
        )
        checked = "as expected" if done.checked else "not checked: no SHA-256 is documented"
        size = f"{done.bytes:,} bytes, SHA-256 {done.sha256} ({checked})"
        talk(f"{'exists already' if done.kept else 'wrote'}: {done.path}, {size}")
        checksum = {"sha256": done.sha256, "checked": done.checked}
        entry = {"name": place.name, "file": str(done.path), "bytes": done.bytes, **checksum}
        fetched.append({**entry, "kept": done.kept})
    if json:
        print_json(fetched if len(chosen) > 1 else fetched[0])
