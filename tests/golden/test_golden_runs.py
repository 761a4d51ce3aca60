"""What was trained, planned and answered stays the same, on drawn and on real features."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cefito
from cefito.cli import main
from cefito.data.readers.custom import prepare_custom
from cefito.planners.methods import METHODS
from golden.golden_files import QUERIES, TOP_K, WRITES, check, printed, processor, table, train

ENDS = {"start": "initial", "goal": "goal"}  # of observations, in Python and in tables

pytest.importorskip("fastapi")

KEPT = {path.stem for path in Path(__file__).with_name("files").glob("world-*.json")}
TRAINED = [name for name in METHODS if f"world-{name}" in KEPT or WRITES]
OFTEN = ("chain", "nearest")  # in every run of the tests; the others nightly
REAL = ("chain", "viterbi", "nearest")


def some(names, often=OFTEN):
    marks = {name: () if name in often else (pytest.mark.nightly,) for name in names}
    return [pytest.param(name, marks=marks[name]) for name in names]


@pytest.fixture(scope="module")
def rows(world, tmp_path_factory):
    """Queries of four test windows."""
    return table(world, tmp_path_factory.mktemp("queries") / "queries.jsonl")


def asked(run, rows):
    """The answer to each line of queries."""
    opened, found = cefito.open_run(run), []
    for number, line in enumerate(rows.read_text().splitlines(), start=1):
        facts = json.loads(line)
        seen: dict[str, Any] = {
            name: np.array(facts.pop(end)) for name, end in ENDS.items() if end in facts
        }
        answer = opened.plan(**seen, **facts, top_k=TOP_K)
        found.append({"id": str(number), **answer.model_dump(mode="json")})
    return found


@pytest.mark.parametrize("method", some([n for n in TRAINED if n != "any-length"]))
def test_method(method, world, rows, tmp_path, capsys):
    run = tmp_path / "run"
    weights = train(world.folder, method, run, "--horizon", "3")
    scores = printed(capsys, "evaluate", str(run))[0]
    found = {"processor": processor(), "weights": weights, "metrics": scores["metrics"]}
    check(f"world-{method}", found | {"plans": asked(run, rows)})


@pytest.mark.nightly
@pytest.mark.parametrize("method", REAL)
def test_real_features(method, shared_data, tmp_path, capsys):
    data = prepare_custom(shared_data / "ikea_asm", tmp_path / "data")
    run = tmp_path / "run"
    weights = train(data.folder, method, run, "--horizon", "3")
    rows = table(data, tmp_path / "queries.jsonl")
    found = {"processor": processor(), "weights": weights, "plans": asked(run, rows)}
    check(f"ikea-{method}", found)


@pytest.fixture(scope="module")
def lengths(world, tmp_path_factory):
    """A run of 1 to 4 steps, and the digests of its weights."""
    run = tmp_path_factory.mktemp("golden") / "run"
    return run, train(world.folder, "any-length", run, "--steps", "1-4")


def test_any_length(lengths, rows, tmp_path, capsys):
    """Every kind of question, the same in a batch."""
    run, weights = lengths
    both = [json.loads(line) for line in rows.read_text().splitlines()]
    start = {"initial": both[0]["initial"]}
    some = [*both, start, {**start, "steps": 2}, {**start, "elapsed": None, "done": ["sift flour"]}]
    some += [{"goal": both[1]["goal"]}, {"task": 0}, {"task": 0, "done": ["sift flour"]}]
    rows = tmp_path / "questions.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in some))
    out = tmp_path / "plans.jsonl"
    assert main(["plan-batch", str(run), str(rows), "--out", str(out), "--top-k", str(TOP_K)]) == 0
    batch = [json.loads(line) for line in out.read_text().splitlines()]
    found = {"processor": processor(), "weights": weights, "batch": batch}
    check("world-any-length", found | {"plans": asked(run, rows)})


def test_session_http_and_mcp(lengths, world):
    """One procedure, followed by a session; one question over HTTP and by a tool for agents."""
    from fastapi.testclient import TestClient

    from cefito.serve.app import create_app
    from cefito.serve.settings import ServiceSettings

    run, _ = lengths
    index = next(n for n, video in enumerate(world.videos) if video.split == "test")
    first, steps = int(world.first_row[index]), world.videos[index].steps
    session, told = cefito.open_run(run).session(), []
    for place, step in enumerate(steps[:QUERIES]):
        session.observe(world.start[first + place].astype(np.float32))
        told.append({"next": session.next_steps(3), "plans": [p.names for p in session.plans(2)]})
        if place % 2:
            session.done(step.action)
        told.append(session.belief().model_dump(mode="json"))
    body = {"run": "run", "steps": 3, "top_k": TOP_K}
    body["video"] = {"id": world.videos[index].video_id, "step": 1}
    settings = ServiceSettings(runs=(run,), datasets=(world.folder,), mcp=True)
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        plan = client.post("/v1/plan", json=body).json()
        asked = {"name": "next_steps", "arguments": {"run": "run", "done": [steps[0].action]}}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked}
        both = {"accept": "application/json, text/event-stream"}
        tool = client.post("/mcp", json=call, headers=both).json()["result"]["structuredContent"]
    check("session-http-mcp", {"session": told, "http": plan, "mcp": tool})


@pytest.mark.nightly
def test_study(world, tmp_path, capsys):
    out = tmp_path / "study"
    command = ["compare", str(world.folder), "--planners", "nearest,frequent,chain", "--horizons"]
    command += ["2,3", "--seeds", "1", "--preset", "quickstart", "--out", str(out)]
    results = printed(capsys, *command)[0]
    del results["dataset"]["fingerprint"]  # it and the processor are the machine's
    for trained in (one for trial in results["trials"] for one in trial["training"].values()):
        del trained["processor"]
    check("study", {"results": results})
