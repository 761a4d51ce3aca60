"""`cefito new-planner`: a package for a planner of one's own."""

from __future__ import annotations

from pathlib import Path

from cefito.cli.console import talk

__all__ = ["new_planner"]


def new_planner(name: str, /, *, out: Path | None = None) -> None:
    """Write a package that adds a planner: module, metadata, README and test.

    It holds a small planner that works, to be replaced by your own. Once it is installed, every
    command knows the planner by its name.

    Args:
        name: Name of the planner for --method, such as my-planner.
        out: Folder to write; by default the name.
    """
    from cefito.planners.example.new_package import write_package

    folder = Path(name) if out is None else out
    written = write_package(name, folder)
    talk(f"wrote {', '.join(str(path) for path in written)}")
    talk(f"next: cd {folder}; pip install -e '.[test]'; pytest")
