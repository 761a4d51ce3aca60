"""The reason given for each kind of bad row, while the other rows are planned."""

import json
import shutil

import numpy as np
import pytest
import torch

from cefito.batch.batch import plan_batch
from cefito.batch.planning import QuerySettings
from cefito.batch.sources import Columns
from cefito.errors import CefitoError
from cefito.planners.base import Marginals
from cefito.planners.cefito.planner import CefitoPlanner
from cefito.planners.simple.planners import NearestPlanner

from .conftest import observed
from .test_batch import read

GOOD = observed(1)[0]
SHORT = [0.5] * 15
HERE = {"features": "v3.npy", "start": 1, "end": 12}
TABLE = {
    "no JSON": ('{"id": "x"', "not valid JSON (Expecting ',' delimiter"),
    "nothing": ({}, "is not a query (found nothing). Each line needs features, start"),
    "half": ({"id": "half", "initial": SHORT}, "needs both observations and takes no steps done"),
    "both": ({**GOOD, **HERE}, "is not a query (found end, features, goal, initial, start)."),
    "an unknown key": ({**GOOD, "video": "v"}, "is not a query (video: there is none of that name"),
    "another width": ({**GOOD, "goal": SHORT[:3]}, "'initial' has shape [1, 15] and 'goal' [1, 3]"),
    "one second": (
        {"initial": SHORT[:5], "goal": SHORT[:5]},
        "observations have 5 features; this run was trained on 15, which are 3 rows of 5 joined.",
    ),
    "no numbers": ({**GOOD, "goal": []}, "'goal' is not a list of finite numbers."),
    "truth values": ({**GOOD, "goal": [True] * 15}, "'goal' is not a list of finite numbers."),
    "NaN": ({**GOOD, "goal": [float("nan"), *SHORT[1:]]}, "'goal' is not a list of finite"),
    "infinity": ({**GOOD, "goal": [*SHORT[1:], float("inf")]}, "'goal' is not a list of finite"),
    "beyond float32": ({**GOOD, "initial": [1e39, *SHORT[1:]]}, "holds inf. Extract its features"),
    "huge": ({**GOOD, "initial": [1e30, *SHORT[1:]]}, "which is too large to compute with"),
    "no file": ({**HERE, "features": "gone.npy"}, "gone.npy: no such file"),
    "NUL": ({**HERE, "features": "a\0b.npy"}, "cannot be read"),
    "no features": ({**HERE, "features": "steps.csv"}, "steps.csv: cannot be read as NumPy arrays"),
    "a folder": ({**HERE, "features": "."}, "it is a folder, not a file"),
    "behind the end": ({**HERE, "end": 99}, "second 99 is outside of"),
    "backwards": ({**HERE, "end": 0.5}, "must be after the start"),
    "before the start": ({**HERE, "start": -3}, "second -3 is outside of"),
    "no time": ({**HERE, "end": "soon"}, "is not a query (end: "),
    "one of two files": ({"initial": "v3.npy", "goal": SHORT}, "(found goal, initial)"),
    "rows of features": ({"initial": "v3.npy", "goal": "v3.npy"}, "v3.npy: has shape [17, 5]"),
    "no such task": ({**GOOD, "task": "tee"}, "unknown task 'tee'; similar names: 'tea'"),
    "no such id": ({**GOOD, "task": 7}, "unknown task 7"),
    "task 1.5": ({**GOOD, "task": 1.5}, "is not a query (task"),
    "constraints": ({**GOOD, "constraints": {"no_repeats": True}}, "cannot obey constraints"),
    "no constraints": ({**GOOD, "constraints": "{"}, "constraints: not valid JSON"),
    "a list of constraints": ({**GOOD, "constraints": [1]}, "is not a query (constraints"),
    "no list of steps": ({**GOOD, "done": '["boil"'}, "done: not valid JSON"),
    "unknown constraint": ({**GOOD, "constraints": {"never": [1]}}, "(constraints.never"),
    "no such action": ({**GOOD, "constraints": {"forbidden": ["sing"]}}, "unknown action 'sing'"),
    "id": ({**GOOD, "id": ["a"]}, "is not a query (id: "),
}


@pytest.fixture
def beside(own, listed, tmp_path):
    """A list of which every second row is bad, beside the files that it names."""
    for name in ("features/v3.npy", "steps.csv"):
        shutil.copy(own / name, tmp_path)
    good = observed(len(TABLE))
    rows = [row for pair in zip(good, TABLE.values(), strict=True) for row in (pair[0], pair[1][0])]
    return listed(rows), listed(good, "good.jsonl")


def assert_close(found, expected):
    """Equal but for the rounding of numbers: other rows are planned together."""
    if isinstance(expected, dict | list):
        pairs = found.items() if isinstance(found, dict) else enumerate(found)
        assert len(found) == len(expected)
        for key, value in pairs:
            assert_close(value, expected[key])
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)
    else:
        assert found == expected


def test_bad_rows_are_reported_and_do_not_affect_others(beside, nearest, tmp_path):
    mixed, good = beside
    done = plan_batch(nearest, mixed, tmp_path / "plans.jsonl")
    assert done.problems == ()
    bad = read(done.bad)
    assert done.counts.bad == len(bad) == len(TABLE)
    reasons = [row["reason"] for row in bad]
    missed = {
        name: reason
        for reason, (name, (_, message)) in zip(reasons, TABLE.items(), strict=True)
        if message not in reason
    }
    assert missed == {}
    for row, (name, (given, _)) in zip(bad, TABLE.items(), strict=True):
        assert row["reason"].startswith(f"{mixed}, line {row['line']}: "), name
        assert "\n" not in row["reason"], name
        known = given.get("id") if isinstance(given, dict) else None
        assert row["query"] == (known if isinstance(known, str) else str(row["line"])), name
    plan_batch(nearest, good, tmp_path / "alone.jsonl")
    plans = [{**row, "line": (row["line"] + 1) // 2} for row in read(done.plans)]
    assert_close(plans, read(tmp_path / "alone.jsonl"))
    lines = {row["line"] for row in [*read(done.plans), *bad]}
    assert lines == set(range(1, 2 * len(TABLE) + 1))


def test_constraints_and_tasks_of_a_row(trained, listed, tmp_path, monkeypatch):
    """Queries with equal constraints are planned together; the observations point to one task."""
    width, taxonomy = trained.planner.observation_dim, trained.taxonomy
    last = len(taxonomy.tasks) - 1
    tasks = np.where(np.arange(last + 1) == last, 0.98, 0.02 / last)[None]
    monkeypatch.setattr(CefitoPlanner, "marginals", lambda *_: Marginals(tasks=tasks))
    rows = observed(12, width)
    action = taxonomy.actions[taxonomy.tasks[0].actions[0]].name
    for number, row in enumerate(rows):
        if number % 3 == 1:
            row["task"] = number % 2
        if number % 4 == 1:
            row["constraints"] = {"forbidden": [action]}
        if number % 4 == 2:
            row["constraints"] = '{"no_repeats": true}'
    rows[3]["constraints"] = {"pinned": [[1, action], [1, 1]]}
    rows[8]["task"] = "999"
    settings = QuerySettings(top_k=4, min_probability=0.5)
    asked = QuerySettings(task=5)
    assert [asked.with_facts(Columns(task=own)).task for own in (None, 0)] == [5, 0]
    done = plan_batch(trained, listed(rows), tmp_path / "plans.jsonl", settings=settings)
    reasons = {row["line"]: row["reason"] for row in read(done.bad)}
    assert set(reasons) == {4, 9}
    assert "pinned" in reasons[4] or "step 1" in reasons[4]
    found = {}
    for row in read(done.plans):
        found.setdefault(row["line"], []).append(row)
    assert set(found) == set(range(1, 13)) - {4, 9}
    for number, plans in found.items():
        asked_for = rows[number - 1]
        if "task" in asked_for:
            assert {plan["task_id"] for plan in plans} == {asked_for["task"]}
        if number % 4 == 2:
            assert all(action not in plan["names"] for plan in plans)
        if number % 4 == 3:
            assert all(len(set(plan["actions"])) == 3 for plan in plans)
        asked_much = "task" in asked_for or "constraints" in asked_for
        assert {len(plan["warnings"]) for plan in plans} == {
            int(asked_much and plans[0]["task_id"] != last)
        }
        assert {plan["sure"] for plan in plans} == {plans[0]["probability"] >= 0.5}


def test_a_planner_that_fails_at_a_query(nearest, listed, tmp_path, monkeypatch, caplog):
    """The query is reported, and the others have their plans."""
    plan = NearestPlanner.plan
    rows, before, threads = observed(70), torch.get_num_threads(), set[int]()

    def failing(self, queries, *asked, **how):
        threads.add(torch.get_num_threads())
        marks = queries.initial[:, 0]
        if (marks == 7.0).any():
            raise CefitoError("cannot be planned")
        if (marks == 8.0).any():
            raise ZeroDivisionError("by nothing")
        return plan(self, queries, *asked, **how)

    rows[5]["initial"][0], rows[66]["initial"][0] = 7.0, 8.0
    monkeypatch.setattr(NearestPlanner, "plan", failing)
    path = listed(rows)
    done = plan_batch(nearest, path, tmp_path / "plans.jsonl", threads=before + 1)
    assert (threads, torch.get_num_threads()) == ({before + 1}, before)
    assert [(row["line"], row["reason"]) for row in read(done.bad)] == [
        (6, f"{path}, line 6: cannot be planned"),
        (67, f"{path}, line 67: ZeroDivisionError: by nothing. This is a defect of the program."),
    ]
    assert len({row["line"] for row in read(done.plans)}) == 68
    (logged,) = [one for one in caplog.records if one.levelname == "ERROR"]
    assert logged.exc_info is not None
    assert logged.exc_info[0] is ZeroDivisionError


def test_ids_as_they_are_given(nearest, listed, tmp_path):
    rows = [dict(row) for row in observed(4)]
    rows[0]["id"], rows[1]["id"], rows[2]["id"] = 7, "é→", "7"
    del rows[3]["id"]
    done = plan_batch(
        nearest, listed(rows), tmp_path / "plans.jsonl", settings=QuerySettings(top_k=1)
    )
    assert [row["query"] for row in read(done.plans)] == ["7", "é→", "7", "4"]
    assert json.loads(done.plans.read_text().splitlines()[1])["rank"] == 1
    assert np.isfinite([row["score"] for row in read(done.plans)]).all()
