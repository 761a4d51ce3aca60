"""Imports point one way.

cli → serve, export → report → study, batch → evaluation → runs → inference → parts → planners →
training, search → field → data
"""

from __future__ import annotations

import subprocess
import sys

import pytest

import structure

# What everyone may use; each of these only what stands before it.
GROUND = (
    *("errors", "plugins", "settings", "locks", "files", "tensors", "arrays", "progress"),
    *("runtime", "markup"),
)
# For each room the rooms that it may use, besides itself and the ground.
_LEARNED = {"field", "data"}
_METHODS = {"training", "search", "encoders", "readers"} | _LEARNED
_PLANNERS = {"planners"} | _METHODS
_PARTS = {"parts", "tracks", "recognition", "verification"} | _PLANNERS
_RUNS = {"runs", "inference"} | _PARTS
_FRONT = {"evaluation", "study", "batch", "executors"} | _RUNS
ROOMS: dict[str, set[str]] = {
    "encoders": set(),
    "executors": set(),
    "data": set(),
    "field": {"data"},
    "search": set(),  # knows nothing of networks, nor of data sets
    "training": _LEARNED,
    # knows no run folders; of recognition and verification the settings alone
    "planners": {"executors", "recognition", "verification"} | _METHODS,
    "readers": {"data", "tracks"},
    "tracks": {"data"},  # knows nothing of recognition, networks and splits
    "recognition": {"data", "tracks", "training"},  # knows no planner
    "verification": {"data", "tracks", "readers", "recognition", "training"},
    "parts": {"recognition", "verification"} | _PLANNERS,  # of runs, opened when used
    "inference": _PARTS,
    "line": {"inference"} | _PARTS,
    "runs": {"inference"} | _PARTS,
    "evaluation": _RUNS,
    "study": {"evaluation", "executors"} | _RUNS,
    "batch": {"executors"} | _RUNS,
    "export": {"inference"} | _PARTS,
    "report": _FRONT,
    "serve": {"report"} | _FRONT,
    "cli": {"export", "line", "report", "serve"} | _FRONT,
    "testing": {"study", "recognition"} | _PLANNERS,
    "__main__": {"cli"},
}
HEAVY = ("torch", "transformers", "matplotlib", "fastapi", "uvicorn")


def _room(name: str) -> str:
    """First level below the package; the readers are a room of their own, above tracks."""
    return "readers" if name.startswith("cefito.data.readers") else name.split(".")[1]


def against_the_order(name: str) -> str:
    """Say which imports of a module point the wrong way; empty if none does."""
    room = _room(name)
    if room in GROUND:
        allowed = set(GROUND[: GROUND.index(room)])
    else:
        assert room in ROOMS, f"{name}: no room of the design; give it a place in ROOMS above"
        allowed = ROOMS[room] | {room} | set(GROUND)
    used = sorted(structure.imported(name) - {"cefito"})
    wrong = [other for other in used if _room(other) not in allowed]
    return f"{name} imports {', '.join(wrong)}; it may use {sorted(allowed)}" if wrong else ""


def test_imports_point_one_way():
    modules = structure.modules().keys() - {"cefito"}
    assert [fault for name in sorted(modules) if (fault := against_the_order(name))] == []


def test_the_order_has_no_circle():
    def reach(room: str, above: tuple[str, ...] = ()) -> None:
        assert room not in above, f"circle: {' → '.join((*above, room))}"
        for lower in ROOMS[room]:
            reach(lower, (*above, room))

    for room in ROOMS:
        reach(room)


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


def test_messages_are_not_shown_twice_once_words_have_vectors():
    pytest.importorskip("wordllama")
    code = "from cefito.markup import word_vectors as of; import logging; of(['a']); "
    code += "print(logging.root.handlers, logging.root.level == logging.WARNING)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[] True\n"
