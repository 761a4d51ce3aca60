"""Requests and answers, against what the library says of the same queries."""

from __future__ import annotations

import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial

import numpy as np
import pytest

from cefito.data import cut_windows
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.inference.answer import answer, answers
from cefito.inference.constraints import NamedConstraints
from cefito.planners.queries import Queries
from cefito.runs.run import open_run
from serve.test_docs import PAGE


def ask(client, **body):
    response = client.post("/v1/plan", json=body)
    assert response.status_code == 200, response.text
    assert response.json()["request_id"] == response.headers["x-request-id"]
    return response.json()


def refused(client, status=422, path="/v1/plan", **body):
    response = client.post(path, json=body)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == status
    assert problem["request_id"] == response.headers["x-request-id"]
    assert "\n" not in problem["detail"]
    return problem


@pytest.fixture(scope="module")
def run(place):
    return open_run(place.run)


@pytest.fixture(scope="module")
def windows(place):
    return cut_windows(place.world, horizon=3, split="test")


def plans_of(reply):
    return [plan["actions"] for plan in reply["plans"]]


def expected(run, windows, row=0, **asked):
    query = Queries.from_windows(windows.subset([row]))
    return answer(run, query, **asked)


def test_an_answer_is_the_library_s(client, place, run, windows):
    reply = ask(client, run="tea", observations=place.observations())
    known = expected(run, windows)
    assert plans_of(reply) == [plan.actions for plan in known.plans]
    for name in ("energy", "probability"):
        wanted = [getattr(plan, name) for plan in known.plans]
        assert [plan[name] for plan in reply["plans"]] == pytest.approx(wanted, rel=1e-4)
    assert (reply["run"], reply["horizon"], reply["exact"]) == ("tea", 3, known.exact)
    assert (reply["task_id"], reply["task"]) == (known.task_id, known.task)
    first = reply["plans"][0]
    assert first["names"] == run.taxonomy.names(first["actions"])
    assert reply["evaluated"]["token_forwards"] == known.evaluated.token_forwards
    assert reply["walked_with"] == 0
    assert not reply["search"]["interrupted"]
    assert reply["milliseconds"] > 0
    assert reply["truth"] is None
    own = {"request_id", "run", "horizon", "milliseconds", "most_gflop", "walked_with"}
    assert {*reply} == {*known.model_dump()} | own


def test_a_window_of_a_video_has_its_truth(client, place, run, windows):
    video = place.world.videos[windows.video[0]]
    reply = ask(client, horizon=3, video={"id": video.video_id, "step": int(windows.start[0]) + 1})
    assert plans_of(reply) == [plan.actions for plan in expected(run, windows).plans]
    assert reply["truth"]["actions"] == windows.actions[0].tolist()
    assert reply["dataset"] is None


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "exhaustive", "objective": "energy", "tasks": 1},
        {"method": "guided", "objective": "fitted"},
        {"method": "auto", "budget_gflop": 0.0, "objective": "chain", "tasks": 2},
        {"method": "auto", "budget_gflop": 0.0, "objective": "energy"},
    ],
)
def test_the_search_can_be_chosen(client, place, run, windows, changes):
    names = {"method": "search", "budget_gflop": "budget"}
    asked = {names.get(name, name): value for name, value in changes.items()}
    reply = ask(client, run="tea", observations=place.observations(), top_k=3, **asked)
    other = run.with_search(**changes)
    known = expected(other, windows, top_k=3)
    assert plans_of(reply) == [p.actions for p in known.plans]
    assert (reply["exact"], reply["evaluated"]) == (known.exact, asdict(known.evaluated))
    assert reply["search"]["method"] == changes["method"]


def test_constraints_by_id_and_by_name(client, place, run, windows):
    task = int(windows.tasks[0])
    first, second, third = run.planner.space.actions[task][:3]
    name = run.taxonomy.actions[second].name
    asked = {"pin": {"1": second}, "forbid": [first], "no_repeats": True}
    asked |= {"before": [[second, third]]}
    reply = ask(client, run="tea", observations=place.observations(), task=task, constraints=asked)
    named = NamedConstraints(
        pinned=((1, name),), forbidden=(first,), before=((second, third),), no_repeats=True
    )
    known = expected(run, windows, task=task, constraints=named)
    assert plans_of(reply) == [plan.actions for plan in known.plans]
    assert reply["task_source"] == "given"
    asked |= {"pin": {"1": name}}
    query = {"observations": place.observations(), "task": run.taxonomy.tasks[task].name}
    assert plans_of(ask(client, run="tea", constraints=asked, **query)) == plans_of(reply)
    search = {"objective": "energy", "tasks": 1}
    free = expected(run.with_search(**search), windows).plans
    first, second, _ = free[0].actions
    for asked, named in (
        ({"no_repeats": True}, NamedConstraints(no_repeats=True)),
        ({"before": [[second, first]]}, NamedConstraints(before=((second, first),))),
    ):
        reply = ask(client, run="tea", constraints=asked, **search, **query | {"task": None})
        known = expected(run.with_search(**search), windows, constraints=named)
        assert plans_of(reply) == [plan.actions for plan in known.plans]
        assert known.plans != free


def test_an_expensive_search_is_refused_before_it_begins(serving, place):
    strict = serving(limits={"gflop": 0.001, "cheap_gflop": 0})
    asked = {"run": "tea", "observations": place.observations(), "objective": "energy", "tasks": 1}
    problem = refused(strict, search="exhaustive", **asked)
    assert problem["type"] == "urn:cefito:expensive"
    assert problem["gflop"] > problem["limit"] == 0.001
    assert "'exhaustive' may take" in problem["detail"]
    shown = ("field", "gflop", "limit")  # in docs/serve.md
    (told,) = re.findall(r'"detail": "(the search .*?) …"', PAGE)
    numbers = partial(re.sub, r"[\d.,]+\d", "N")
    assert numbers(problem["detail"]).startswith(numbers(told))
    assert {*problem} == {"type", "title", "status", "detail", "request_id", *shown}
    action = place.world.taxonomy.tasks[0].actions[0]
    pinned = {"pin": {"1": action, "2": action}}
    ask(strict, search="exhaustive", **asked, task=0, constraints=pinned)


def test_an_interrupted_search_answers_with_its_plans(serving, place, monkeypatch):
    from cefito.inference.answer import answers
    from cefito.serve import service

    def stopped(several, stop):
        for one in quick(several, stop=lambda: False):
            search = one.search.model_copy(update={"interrupted": True})
            yield one.model_copy(update={"search": search})

    quick = answers
    monkeypatch.setattr(service, "answers", lambda *given, **how: list(stopped(*given, **how)))
    reply = ask(serving(), run="tea", observations=place.observations())
    assert reply["search"]["interrupted"]
    assert reply["plans"]


def test_queries_that_wait_run_as_one_batch(serving, place, monkeypatch):
    from cefito.serve import scheduler as scheduling
    from cefito.serve import service

    monkeypatch.setattr(scheduling, "TURN", float("inf"))  # however slow the machine is
    monkeypatch.setattr(service, "answers", lambda several, stop: wait(several, stop))
    client = serving(limits={"workers": 1})
    scheduler, quick, until = client.app.state.service.scheduler, answers, time.monotonic() + 20

    def wait(several, stop):
        while len(several) + scheduler.waiting < 5 and time.monotonic() < until:
            time.sleep(0.01)
        return quick(several, stop=stop)

    bodies = [{"run": "tea", "observations": place.observations(row)} for row in range(6)]
    with ThreadPoolExecutor(6) as threads:
        replies = list(threads.map(lambda body: ask(client, **body), bodies))
    until = 0
    assert max(reply["walked_with"] for reply in replies) > 1
    for body, reply in zip(bodies, replies, strict=True):
        assert plans_of(ask(client, **body)) == plans_of(reply)


def test_the_description_of_the_runs(client, place, run):
    reply = client.get("/v1/model").json()
    tea, short = reply["runs"]
    assert (tea["name"], tea["horizon"], short["name"], short["horizon"]) == ("tea", 3, "short", 2)
    assert tea["fingerprint"] == place.world.fingerprint
    assert tea["simulated"]
    assert tea["observation_dim"] == 8
    assert tea["tasks"] == [
        {"id": task.id, "name": task.name, "actions": list(task.actions)}
        for task in run.taxonomy.tasks
    ]
    assert [one["name"] for one in tea["actions"]] == [one.name for one in run.taxonomy.actions]
    assert tea["versions"] == run.info.versions
    assert (tea["probabilities"], tea["constraints"], short["constraints"]) == (True, True, False)
    assert tea["uploads"] == []
    assert reply["limits"]["top_k"] == 100
    assert {"cefito", "torch", "fastapi"} <= set(reply["versions"])
    assert str(place.run.parent) not in str(reply)


def test_the_list_of_videos(client, place):
    reply = client.get("/v1/videos", params={"run": "tea", "split": "test"}).json()
    videos = [video for video in place.world.videos if video.split == "test"]
    assert reply["total"] == len(videos) == len(reply["videos"])
    first = reply["videos"][0]
    assert first["id"] == videos[0].video_id
    assert [step["id"] for step in first["steps"]] == [step.action for step in videos[0].steps]
    assert first["first_steps"] == list(range(1, len(videos[0].steps) - 1))
    task = first["task"]
    some = client.get("/v1/videos", params={"run": "tea", "task": task["name"], "limit": 1})
    assert [video["task"] for video in some.json()["videos"]] == [task]
    ours = [video for video in place.world.videos if video.task == task["id"]]
    assert some.json()["total"] == len(ours) < len(place.world.videos)
    later = client.get("/v1/videos", params={"run": "tea", "offset": 1, "limit": 1}).json()
    assert later["videos"][0]["id"] == place.world.videos[1].video_id
    assert client.get("/v1/videos", params={"run": "tea", "task": "x"}).status_code == 422


def test_a_search_of_videos(client, place):
    def found(**given):
        reply = client.get("/v1/videos", params={"run": "tea", "limit": 1000, **given}).json()
        assert reply["total"] == len(reply["videos"])
        return [video["id"] for video in reply["videos"]]

    world, order = place.world, ("test", "val", "train")
    by_split = [one.video_id for split in order for one in world.videos if one.split == split]
    assert found(search="") == by_split
    last = world.videos[-1].video_id
    assert found(search=last)[0] == last
    name = world.taxonomy.actions[world.videos[-1].steps[0].action].name
    words = f"{last}  {name.upper()}"
    assert found(search=words) == [last]
    assert found(search=f"{last} {world.taxonomy.tasks[world.videos[-1].task].name}") == [last]
    assert found(search=f"{words} no-such") == []
    long = [video.video_id for video in world.videos if len(video.steps) >= 3]
    assert sorted(found(windows=True)) == sorted(long)


def test_videos_of_two_data_sets(serving, place, tmp_path, caplog, monkeypatch):
    knobs = WorldKnobs(train=24, val=12, test=12, dim=8, order_freedom=0.9)
    monkeypatch.setattr("cefito.data.simulation.world.WORLD_NAME", "other")
    other = write_world(tmp_path / "other", knobs=knobs, seed=0)
    both = serving(datasets=(place.world.folder, other.folder))
    name = next(video.video_id for video in place.world.videos if len(video.steps) > 3)
    assert "in several data sets" in refused(both, run="tea", video={"id": name})["detail"]
    names = other.name, place.world.name
    asked = [ask(both, run="tea", video={"id": name, "dataset": of}) for of in names]
    assert [(reply["dataset"] or {}).get("name") for reply in asked] == ["other", None]
    shutil.rmtree(other.folder)
    both.app.state.service.reload()
    kept = both.app.state.service.models.versions
    assert kept.startswith("'short' (horizon 2), digest ")
    said = f"all runs are kept as they were, {kept}: {other.folder}/dataset.json: no"
    assert said in caplog.text


def test_metrics(client, place):
    ask(client, run="tea", observations=place.observations())
    text = client.get("/metrics").text
    assert 'cefito_requests_total{method="POST",route="/v1/plan",status="200"}' in text
    assert 'cefito_searches_total{horizon="3",outcome="answered",run="tea"}' in text
    assert "cefito_waiting 0.0" in text
    assert "process_resident_memory_bytes" in text


def test_sets_with_a_guarantee(serving, place, calibrated):
    client, observations = serving(runs=(calibrated.folder,), datasets=()), place.observations()
    assert "no data set is open for the run" in refused(client, video={"id": "x"})["detail"]
    asked = {"observations": observations, "coverage": 0.8, "top_k": 2}
    reply = ask(client, **asked)
    assert len(reply["plans"]) == 2
    query = Queries(**{name: np.array([row]) for name, row in observations.items()})
    expected, sets = answer(calibrated, query, coverage=0.8).sets, reply["sets"]
    assert (sets["coverage"], sets["videos"], sets["folds"]) == (0.8, 12, 0)
    for part in ("plans", "next_step", "next_two"):
        own = getattr(expected, part)
        assert sets[part]["size"] == own.size
        found = [one["actions"] for one in sets[part]["steps"]]
        assert found == [one.actions for one in own.steps]
    assert ask(client, observations=observations)["sets"] is None
    for change, words in (
        ({"coverage": 0.99}, "12 videos"),
        ({"constraints": {"no_repeats": True}}, "without constraints"),
    ):
        problem = refused(client, **(asked | change))
        assert problem["field"] == "coverage"
        assert words in problem["detail"]
