"""`cefito check`: verify a data set, a run or a study."""

from __future__ import annotations

from pathlib import Path

from cefito.cli.console import log_warnings, print_json, table, talk
from cefito.cli.options import Flag

__all__ = ["check"]


def check(path: Path, /, *, json: Flag = False) -> None:
    """Check a data set, a run or a study: its structure, its values, and the SHA-256 of every file.

    Prints which of them it is. The exit code is 2 if something is damaged or has changed.

    Args:
        path: Folder of a prepared data set, a run folder, or the folder of a comparison.
        json: Print JSON instead of a table.
    """
    from cefito.study.checking import check as run

    with log_warnings():
        found = run(path)
    if json:
        print_json(found.to_dict())
        return
    table(f"{found.kind} '{found.name}': whole", ("what", "value"), list(found.facts.items()))
    table("", ("file", "SHA-256"), sorted(found.files.items()))
    for note in found.notes:
        talk(f"note: {note}")
