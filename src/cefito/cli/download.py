"""`cefito data download`: fetch weights, annotations and features."""

from __future__ import annotations

from pathlib import Path

from cefito.cli.console import print_json, progress, table, talk
from cefito.cli.options import Flag

__all__ = ["download"]


def download(
    name: str | None = None,
    target: Path = Path(),
    /,
    *,
    address: str | None = None,
    sha256: str | None = None,
    insecure: Flag = False,
    json: Flag = False,
) -> None:
    """Fetch weights, annotations or features; without a name, list what there is.

    A transfer that was stopped goes on when it is repeated. Archives are unpacked beside
    themselves.

    Args:
        name: What to fetch.
        target: Folder to write into.
        address: Where it lies, where that is not documented or has changed.
        sha256: SHA-256 that the file must have; otherwise the documented one, if any.
        insecure: Take an address without encryption (http).
        json: Print JSON instead of a table or lines.
    """
    from cefito.data.downloads import catalogue as room

    if name is None:
        known = list(room.places().values())
        if json:
            print_json([place.model_dump() for place in known])
        else:
            table(
                "What can be downloaded",
                ("name", "what", "address", "licence"),
                [
                    (
                        place.name,
                        place.what,
                        place.address or "give it with --address",
                        place.licence,
                    )
                    for place in known
                ],
            )
        return
    place = room.find_place(name)
    talk(f"{name}: {place.what}; licence: {place.licence}")
    done = room.download(
        name, target, address=address, sha256=sha256, insecure=insecure, progress=progress
    )
    compared = "as expected" if done.checked else "compared with nothing: none is documented"
    talk(
        f"{'there already' if done.kept else 'wrote'}: {done.path}, {done.bytes:,} bytes, SHA-256 "
        f"{done.sha256} ({compared})"
    )
    if done.folder is not None:
        talk(f"unpacked: {done.folder}")
    if json:
        print_json(
            {
                "name": name,
                "file": str(done.path),
                "bytes": done.bytes,
                "sha256": done.sha256,
                "checked": done.checked,
                "kept": done.kept,
                "folder": done.folder and str(done.folder),
            }
        )
