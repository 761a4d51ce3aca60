"""Queries without the number of steps, without observations, after steps done, and in words."""

from __future__ import annotations

import json

import pytest

from cefito.inference.answer import answer
from cefito.inference.query import query_from_video
from cefito.inference.question import planning
from grey_videos import draw_greys, jpeg
from serve.live_sessions import begin


@pytest.fixture(scope="module")
def client(serving, place, run_of_lengths):
    """A client of a service of runs of 1 to 4 steps, of 3 and of 2."""
    return serving(runs=(run_of_lengths.folder, place.run, place.short))


def ask(client, status=200, **body):
    response = client.post("/v1/plan", json={"run": "run", **body})
    value = response.json()
    assert response.status_code == status, value
    return value


def plans(value):
    return [plan["actions"] for plan in value["plans"]]


def same(value, found):
    """The plans are those of the library."""
    assert plans(value) == [plan.actions for plan in found.plans]
    assert value["plans"][0]["score"] == pytest.approx(found.plans[0].score, rel=1e-4)
    assert value["lengths"] == {
        str(length): pytest.approx(share, rel=1e-4) for length, share in found.lengths.items()
    }


@pytest.mark.parametrize(
    ("goal", "done", "steps", "elapsed"),
    [(True, False, None, 37.5), (True, True, 2, None), (False, False, "2-3", None)],
)
def test_windows_of_a_video(client, run_of_lengths, video, goal, done, steps, elapsed):
    window = {"id": video.video_id, "step": 3, "goal": goal, "done": done}
    value = ask(client, video=window, steps=steps, elapsed=elapsed, top_k=20)
    run = planning(run_of_lengths, steps)
    query, truth = query_from_video(run, video.video_id, 3, goal=goal, done=done)
    same(value, answer(run, query, top_k=20, elapsed=elapsed))
    assert value["truth"]["actions"] == truth.tolist()
    assert value["horizon"] == run.horizon
    assert (value["known"]["goal"], value["known"]["elapsed"]) == (goal, elapsed)
    last = ask(client, video={**window, "last": 4}, elapsed=elapsed)["truth"]["actions"]
    assert last == [step.action for step in video.steps[2:4]]
    before = [step.action for step in video.steps[:2]]
    assert value["known"]["done"] == (before if done else None)
    if done:  # as a list, oldest first, by id or name
        listed = [before[0], run.taxonomy.actions[before[1]].name]
        asked = {"video": {**window, "done": False}, "steps": steps, "top_k": 20}
        assert plans(ask(client, **asked, done=listed)) == plans(value)
        assert plans(ask(client, **asked, done=listed[::-1])) != plans(value)


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({"task": 1, "steps": 5}, "steps", "this run plans 1 to 4 steps"),
        ({"task": 1, "steps": "3-2"}, "steps", "expected a number of steps, or a range"),
        ({"run": "tea", "task": 1}, "observations.goal", "needs both observations"),
        ({"run": "tea", "done": []}, "done", "takes no steps done before"),
        (
            {"run": "tea", "video": {"id": "VIDEO", "goal": False}},
            "observations.goal",
            "needs both",
        ),
        ({"run": "tea", "video": {"id": "VIDEO", "done": True}}, "done", "takes no steps done"),
        ({"run": "tea", "video": {"id": "VIDEO"}, "elapsed": 2}, "elapsed", "did not learn"),
        ({"task": 1, "done": ["fly"]}, "done", "unknown action 'fly'"),
        ({"task": 1, "done": [0] * 257}, "done", "at most 256"),
        ({"task": 1, "elapsed": 0}, "elapsed", "more than 0"),
        ({"video": {"id": "x", "done": True}, "done": []}, None, "both give the steps done"),
        ({"task": 1, "goal_text": "tent"}, "goal_text", "takes no goal in words; it needs feature"),
        (
            {"observations": {"goal": [1.0]}, "goal_text": "tent"},
            None,
            "'goal_text' takes the place of 'observations.goal'",
        ),
    ],
)
def test_refusals(client, video, body, field, message):
    value = ask(client, 422, **json.loads(json.dumps(body).replace("VIDEO", video.video_id)))
    assert message in value["detail"]
    assert value.get("field") == field


def test_queries_without_observations(client):
    assert ask(client, task=1)["known"]["done"] is None
    for done in ([], [0]):
        known = ask(client, done=done)["known"]
        assert (known["done"], known["initial"], known["goal"]) == (done, False, False)


def test_steps_choose_among_runs(client, video):
    window = {"id": video.video_id}
    assert ask(client, run=None, steps=4, video=window)["run"] == "run"
    assert ask(client, run=None, horizon=2, video=window)["run"] == "short"
    runs = client.get("/v1/model").json()["runs"]
    several = [(one["name"], one["shortest"], one["horizon"]) for one in runs if one["any_length"]]
    assert several == [("run", 1, 4)]
    value = ask(client, 422, run=None, steps=3, video=window)
    assert "2 runs fit; there are 'run' (steps 1-4), 'tea' (horizon 3)," in value["detail"]


# pictures and words, with a tiny CLIP


@pytest.fixture(scope="module")
def seeing(serving, run_of_lengths, tmp_path_factory, encoding_here):
    """A client of a service of the run as if it were trained on features of a tiny CLIP."""
    pytest.importorskip("transformers")
    import shutil

    from cefito.encoders.images import PretrainedImages
    from cefito.encoders.video import Pictures, record
    from cefito.parts.folder import recorded
    from tiny_models import tiny_clip

    folder = tmp_path_factory.mktemp("seeing")
    clip, run = tiny_clip(folder / "clip"), folder / "tent"
    shutil.copytree(run_of_lengths.folder, run)
    with recorded(run):
        info = json.loads((run / "run.json").read_text())
        info["dataset"]["observed"] = {
            "seconds": 1,
            "features": record(Pictures(PretrainedImages(clip))),
        }
        (run / "run.json").write_text(json.dumps(info))
    return serving(runs=(run,), datasets=(), encoder=str(clip))


def upload(client, files, status=200, **request):
    response = client.post(
        "/v1/plan/upload", files=files, data={"request": json.dumps({"run": "tent", **request})}
    )
    assert response.status_code == status, response.json()
    return response.json()


def test_uploads_of_one_picture_and_words(seeing):
    assert seeing.get("/v1/model").json()["runs"][0]["uploads"] == ["pictures", "video", "text"]
    before, after = {"initial": jpeg(20)}, {"goal": jpeg(200)}
    assert upload(seeing, before | after)["known"] is None
    value = upload(seeing, before, steps="2-3", done=[0])
    assert value["known"]["goal"] is False
    assert value["known"]["done"] == [0]
    assert set(value["lengths"]) == {"2", "3"}
    assert upload(seeing, after)["known"]["initial"] is False
    of_words = upload(seeing, before, goal_text="a folded tent")
    assert of_words["known"] is None
    other = upload(seeing, before, goal_text="a bowl of soup")
    assert other["plans"] != of_words["plans"]
    towards = [
        begin(seeing, run="tent", goal_text=of) for of in ("a folded tent", "a bowl of soup")
    ]
    assert towards[0]["goal"]
    assert towards[0]["plans"] != towards[1]["plans"]
    detail = upload(seeing, before | after, 422, goal_text="a folded tent")["detail"]
    assert "'goal_text' takes the place of 'goal' and 'end'" in detail
    detail = upload(seeing, before, 422, goal_text="tent " * 20)["detail"]
    assert "reads at most 48" in detail


def test_an_uploaded_video(seeing, tmp_path):
    pytest.importorskip("av")
    draw_greys(tmp_path / "film.mp4", 4)
    files = {"video": (tmp_path / "film.mp4").read_bytes()}
    data = {"request": '{"run": "tent"}', "start": "1", "end": "3"}
    response = seeing.post("/v1/plan/upload", files=files, data=data)
    assert response.status_code == 200, response.text
    assert response.json()["plans"]
