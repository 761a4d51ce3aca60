"""Imports point one way.

cli → serve → report → study, batch → evaluation → inference → runs → planners → training, search →
field → data
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "cefito"

# What everyone may use; each of these only what stands before it.
GROUND = (
    *("errors", "plugins", "settings", "arrays", "locks", "files", "progress"),
    *("runtime", "markup", "times"),
)
# For each room the rooms that it may use, besides itself and the ground.
_LEARNED = {"field", "data"}
_METHODS = {"training", "search", "encoders"} | _LEARNED
_PLANNERS = {"planners"} | _METHODS
_RUNS = {"runs"} | _PLANNERS
_FRONT = {"inference", "evaluation", "study", "batch", "executors"} | _RUNS
ROOMS: dict[str, set[str]] = {
    "encoders": set(),
    "executors": set(),
    "data": set(),
    "field": {"data"},
    "search": set(),  # knows nothing of networks, nor of data sets
    "training": _LEARNED,
    "planners": _METHODS,  # knows no run folders
    "runs": _PLANNERS,
    "inference": _RUNS,
    "evaluation": {"inference"} | _RUNS,
    "study": {"inference", "evaluation", "executors"} | _RUNS,
    "batch": {"inference", "executors"} | _RUNS,
    "report": _FRONT,
    "serve": {"report"} | _FRONT,
    "cli": {"report", "serve"} | _FRONT,
    "testing": {"study"} | _PLANNERS,
    "__main__": {"cli"},
}
HEAVY = ("torch", "transformers", "matplotlib", "fastapi", "uvicorn")


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name below cefito of every import of a file, inside functions too."""
    package = path.relative_to(SOURCE.parent).with_suffix("").parts
    package = package[:-1]  # of a module: its package; of an __init__: the package itself
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            names = [module]
            if module == "cefito":  # `from cefito import data` imports a room
                names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name == "cefito" or name.startswith("cefito."):
                yield node.lineno, name.removeprefix("cefito").removeprefix(".")


MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def place(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def against_the_order(path: Path) -> str:
    """Say which imports of a module point the wrong way; empty if none does."""
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if room in GROUND:
        allowed = set(GROUND[: GROUND.index(room)])
    else:
        assert room in ROOMS, (
            f"{place(path)}: '{room}' is not a room of the design; give it a place in ROOMS above"
        )
        allowed = ROOMS[room] | {room} | set(GROUND)
    wrong = [
        f"{place(path)}, line {line}: imports cefito.{name}"
        for line, name in imported(path)
        if name.split(".")[0] not in allowed
    ]
    return f"{'; '.join(wrong)}; {room} may use {', '.join(sorted(allowed))}" if wrong else ""


def test_imports_point_one_way():
    assert [fault for path in MODULES if (fault := against_the_order(path))] == []


def test_the_order_has_no_circle():
    def reach(room: str, above: tuple[str, ...] = ()) -> None:
        assert room not in above, f"circle: {' → '.join((*above, room))}"
        for lower in ROOMS[room]:
            reach(lower, (*above, room))

    for room in ROOMS:
        reach(room)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import cefito.data.annotations", {"data.annotations"}),
        ("from cefito import data, errors", {"data", "errors"}),
        ("from . import x\nfrom ..data import Video\nfrom .. import a", {"cli", "data", "a"}),
        ("def f():\n    from cefito.training.trainer import train", {"training.trainer"}),
        ("import numpy, os\nfrom cefito_other import x", set()),
    ],
)
def test_the_finder_of_imports(tmp_path, monkeypatch, code, expected):
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path / "cefito")
    (tmp_path / "cefito" / "cli").mkdir(parents=True)
    (tmp_path / "cefito" / "cli" / "x.py").write_text(code)
    assert {name for _, name in imported(tmp_path / "cefito" / "cli" / "x.py")} == expected


LIGHT = (
    "import cefito",
    "import cefito.data",
    "import cefito.executors",
    "assert main(['--help']) == 0",
    "assert main(['data', '--help']) == 0",
    "assert main(['nonsense']) == 2",
    "assert main(['planners']) == 0",
    "assert main(['config', 'show', 'small']) == 0",
    "assert main(['config', 'show', '--set', 'x.y=1']) == 2",
    "assert main(['compare', 'DATA', '--out', 'OUT', '--set', 'field.widht=8']) == 2",
)


def test_what_must_be_light_is_light():
    check = (
        "import sys\n"
        f"for code in {LIGHT}:\n"
        "    if 'main' in code: from cefito.cli import main\n"
        "    exec(code)\n"
        f"    loaded = [name for name in {HEAVY} if name in sys.modules]\n"
        "    assert not loaded, (code, loaded)\n"
        "from cefito.cli import COMMANDS\n"
        "for name in COMMANDS:\n"
        "    assert main([name, '--help']) == 0\n"
        "    assert 'torch' not in sys.modules, name\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_opening_a_run_loads_no_reader_of_annotations():
    check = (
        "import sys\nimport cefito.cli.plan, cefito.inference.answer, cefito.batch.batch\n"
        "loaded = {name for name in sys.modules if name.startswith('cefito.data.readers.')}\n"
        "kept = {f'cefito.data.readers.{name}' for name in ('feature_files', 'observing')}\n"
        "assert loaded == kept, loaded - kept"
    )
    subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
