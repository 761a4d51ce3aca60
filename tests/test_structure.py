"""The source keeps its shape: no circles, one class a name, no crumbs, more flow than apparatus."""

from __future__ import annotations

import structure

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
