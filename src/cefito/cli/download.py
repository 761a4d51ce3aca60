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
    """Download weights, annotations or features; without a name, list what is available.

    Args:
        name: What to download.
        target: Folder to write into.
        address: URL to use if none is documented or the documented one has changed.
        sha256: SHA-256 that the file must have; by default the documented one, if any.
        insecure: Accept an unencrypted address (http).
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
        table("Available downloads", columns, rows)
        return
    place = downloads.find_place(name)
    talk(f"{name}: {place.what}; licence: {place.licence}")
    done = downloads.download(
        name, target, address=address, sha256=sha256, insecure=insecure, progress=progress
    )
    checked = "as expected" if done.checked else "not checked: no SHA-256 is documented"
    size = f"{done.bytes:,} bytes, SHA-256 {done.sha256} ({checked})"
    talk(f"{'exists already' if done.kept else 'wrote'}: {done.path}, {size}")
    if done.folder is not None:
        talk(f"unpacked: {done.folder}")
    if json:
        shown = {"name": name, "file": str(done.path), "bytes": done.bytes, "sha256": done.sha256}
        shown |= {"checked": done.checked, "kept": done.kept}
        print_json(shown | {"folder": done.folder and str(done.folder)})
