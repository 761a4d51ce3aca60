"""The source keeps its shape: no circles, one class a name, no crumbs, more flow than apparatus."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import structure
from cefito.cli import main

ROOT = Path(__file__).resolve().parents[1]
BUDGETS = {
    "batch": 1_090,
    "benchmarks": 7_100,
    "cli": 5_375,
    "data": 6_560,
    "encoders": 2_180,
    "evaluation": 2_440,
    "executors": 590,
    "export": 940,
    "field": 1_905,
    "ground": 2_520,
    "inference": 4_510,
    "line": 650,
    "pages": 3_200,
    "parts": 1_725,
    "planners": 13_020,
    "recognition": 5_070,
    "report": 2_170,
    "runs": 1_330,
    "search": 2_910,
    "serve": 6_240,
    "study": 3_935,
    "testing": 650,
    "tests": 62_200,
    "tracks": 4_230,
    "training": 1_975,
    "verification": 2_735,
}
"""Lines of Python of each room of src and of the folders beside it; JavaScript, CSS and templates.

What `ledger.txt` lists goes before a budget: a change may raise one; its message says by how much.
"""
SLACK = 1.03
"""A room may have this share of its budget, so that no change is packed to fit."""
MODULES = 328
UNUSED = 0
"""Names in `__all__` that no other module mentions."""
EMPTY_NAMES = 0.010
"""Share of the names bound in src that do not say what they hold: `found`, `one`, `part`, …"""
ENTERED = {"plan": 36, "verify": 20, "graph": 14}
"""Files of src with a function that a command on a run of several lengths calls."""
SMALL = 36
"""Lines below which a module that only one other module uses belongs into that one."""


def test_no_modules_import_each_other():
    assert structure.circles() == []


def test_public_classes_have_names_of_their_own():
    assert [name for name, count in structure.classes().items() if count > 1] == []


def test_small_modules_have_several_users():
    users = structure.users()
    crumbs = [
        name
        for name, path in structure.modules().items()
        if path.stem not in ("__init__", "__main__", "method")  # a method's declaration
        and len(users[name]) == 1
        and structure.lines(name) < SMALL
    ]
    assert crumbs == []


def test_half_of_the_source_is_the_flow_from_data_to_plans():
    lines = {name: structure.lines(name) for name in structure.modules()}
    flow = sum(count for name, count in lines.items() if structure.room(name) in structure.METHOD)
    assert flow >= sum(lines.values()) / 2


def test_few_lines_only_refuse():
    guards = sum(structure.guard_lines(name) for name in structure.modules())
    assert guards <= 0.07 * sum(map(structure.lines, structure.modules()))


def test_names_say_what_they_hold():
    names = [name for module in structure.modules() for name in structure.bindings(module)]
    empty = [name for name in names if structure.EMPTY_NAME.fullmatch(name)]
    assert len(empty) <= EMPTY_NAMES * len(names), f"{len(empty)} of {len(names)}"


def test_rooms_keep_their_budgets():
    found = dict.fromkeys(BUDGETS, 0)
    for name in structure.modules():
        found[structure.room(name)] += structure.lines(name)
    for folder in ("tests", "benchmarks"):
        paths = (ROOT / folder).rglob("*.py")
        found[folder] = _lines(paths)
    endings = (".js", ".css", ".j2")
    found["pages"] = _lines(
        path for path in structure.SOURCE.rglob("*.*") if path.suffix in endings
    )
    over = {
        name: (lines, BUDGETS[name])
        for name, lines in found.items()
        if lines > SLACK * BUDGETS[name]
    }
    assert over == {}, "lines and budget; first look for what the change need not add"
    assert len(structure.modules()) <= MODULES


def _lines(paths):
    return sum(len(path.read_text("utf-8").splitlines()) for path in paths)


def test_public_functions_say_what_their_parameters_are():
    assert structure.without_arguments() == []


def test_no_private_name_is_replaced_by_a_test():
    assert structure.patched_private_names() == []


def test_names_for_others_have_users():
    """No more names in `__all__` than now are mentioned nowhere else in src."""
    assert len(structure.names_without_users()) <= UNUSED


@pytest.mark.parametrize("command", ENTERED)
def test_commands_enter_few_files(command, run_of_lengths, world, tmp_path, capsys):
    entered = set()
    video = next(video for video in world.videos if video.split == "test")
    task, steps = world.taxonomy.tasks[video.task].name, tmp_path / "steps.csv"
    rows = (
        f"{video.video_id},{task},{world.taxonomy.names([step.action])[0]},{step.start},{step.end}"
        for step in video.steps
    )
    steps.write_text("\n".join(("video,task,step,start,end", *rows)))
    asked = {"plan": ["--video", video.video_id, "--steps", "3"]}
    asked["verify"] = [str(steps), "--min-probability", "0.4"]
    call = [command, str(run_of_lengths.folder), *asked.get(command, ())]
    assert main(call) == 0  # modules are imported

    def enter(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(str(structure.SOURCE)):
            entered.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(enter)
    try:
        assert main(call) == 0
    finally:
        sys.setprofile(before)
    assert capsys.readouterr().out
    named = " ".join(sorted(Path(path).name for path in entered))
    assert len(entered) <= ENTERED[command], named
