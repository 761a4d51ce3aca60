"""A constraint is added in one place: Python, command line and service know it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import cefito

TOY = """

class _AtMost:
    start: Hashable = frozenset()

    def __init__(self, most: int) -> None:
        self.most = most

    def follow(self, state: Any, action: int) -> Hashable | None:
        return state | {action} if len(state | {action}) <= self.most else None

    def accepts(self, state: Any) -> bool:
        return True

"""
FIELD = """
    most_different: Annotated[
        int,
        Declared(
            "most_different",
            "At most so many different actions.",
            "At most so many different actions.",
            "at most {} different actions",
            2,
            _AtMost,
        ),
    ] = 0
"""
USE = """
import json, sys
from itertools import product
import numpy as np
from fastapi.testclient import TestClient
import cefito
from cefito.cli import main
from cefito.errors import ConfigError
from cefito.search.feasible import Feasible
from cefito.serve.app import create_app
from cefito.serve.settings import ServiceSettings

def check(plans, more):
    assert plans
    for plan in plans:
        assert len(set(plan)) <= 2
        assert 1 not in more or len(set(plan)) == 2

run = cefito.open_run(sys.argv[1])
action = int(run.planner.space.actions[0][0])
constraints = cefito.Constraints(most_different=2, required=[action])
assert constraints.summary() == f"action {action} required; at most 2 different actions"
observed = json.loads(sys.argv[2])
queries = cefito.Queries(**{name: np.array([row]) for name, row in observed.items()})
for plans in run.planner.plan(queries.with_task(0), 1000, constraints=constraints):
    found = plans.actions.tolist()
    every = [s for s in product(run.planner.space.actions[0], repeat=3)
             if len(set(s)) <= 2 and action in s]
    assert sorted(map(tuple, found)) == sorted(every)

body = {"observations": observed, "task": 0, "top_k": 20, "horizon": 3,
        "constraints": {"most_different": 2, "require": [action]}}
with TestClient(create_app(ServiceSettings(runs=(sys.argv[1],)))) as client:
    answer = client.post("/v1/plan", json=body).json()
    assert [plan["actions"] for plan in answer["plans"]] == found[:20]
    page = client.get("/").text
    assert '<label for="most_different-0">at most … different actions</label>' in page
    assert 'data-kinds="number" data-words="at most {} different actions"' in page
    body["constraints"]["most_different"] = "two"
    refused = client.post("/v1/plan", json=body).json()
    assert refused["field"] == "constraints.most_different"

try:
    Feasible(cefito.Constraints(most_different=1, required=(2, 3)), (2, 3, 5), 3)
except ConfigError as problem:
    assert "at most 1 different actions" in str(problem)
else:
    raise AssertionError
for one in "ig":
    np.save(f"{one}.npy", np.array(observed["initial" if one == "i" else "goal"], np.float32))
sys.exit(main(["plan", sys.argv[1], "--initial", "i.npy", "--goal", "g.npy", "--task", "0",
               "--top-k", "20", "--most-different", "2", "--require", str(action), "--json"]))
"""


def test_a_toy_constraint(place, tmp_path):
    shutil.copytree(Path(cefito.__file__).parent, tmp_path / "src" / "cefito")
    file = tmp_path / "src" / "cefito" / "search" / "constraints.py"
    text = file.read_text(encoding="utf-8")
    head, tail = text.split("\n@dataclass(frozen=True)\nclass Constraints:", 1)
    body, end = tail.split("\n    def __post_init__", 1)
    file.write_text(
        f"{head}{TOY}\n@dataclass(frozen=True)\nclass Constraints:{body}{FIELD}"
        f"\n    def __post_init__{end}",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-c", USE, str(place.run), json.dumps(place.observations())],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    plans = [plan["actions"] for plan in json.loads(done.stdout)["plans"]]
    assert plans
    assert all(len(set(plan)) <= 2 for plan in plans)
