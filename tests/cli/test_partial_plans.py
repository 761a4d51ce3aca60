"""Plans without the number of steps, without observations, and after steps done before."""

import json
import re

import numpy as np
import pytest

import cefito
from cefito.batch.sources import open_source
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.planners.given import Given


@pytest.fixture
def planned(ran, run_of_lengths):
    """Call `plan` on the run of several lengths; return its JSON."""
    return lambda *argv: json.loads(ran("plan", run_of_lengths.folder, "--json", *argv).out)


def lengths(value):
    return {len(plan["actions"]) for plan in value["plans"]}


def test_windows_of_a_video(planned, video, world):
    actions = [step.action for step in video.steps]
    of_video = ("--video", video.video_id, "--from-step", 3, "--top-k", 200)
    value = planned(*of_video)
    assert value["truth"]["actions"] == actions[2:6]
    assert set(value["lengths"]) == {"1", "2", "3", "4"}
    assert len(lengths(value)) > 1
    assert "known" not in value
    value = planned(*of_video, "--steps", 3)
    assert value["truth"]["actions"] == actions[2:5]
    assert lengths(value) == {3}
    value = planned(*of_video, "--horizon", 3)
    assert value["truth"]["actions"] == actions[2:5]
    value = planned(*of_video, "--steps", "2-3", "--without-goal", "--after-done")
    assert lengths(value) <= {2, 3}
    names = [world.taxonomy.actions[action].name for action in actions[:2]]
    assert value["known"] == {
        **{"initial": True, "goal": False},
        **{"done": actions[:2], "names": names, "elapsed": None},
    }
    said = planned(*of_video, "--without-goal", "--done", names[0], "--done", actions[1])
    assert said["known"] == value["known"]
    assert planned(*of_video, "--done", "")["known"]["done"] == []
    plain, value = planned(*of_video), planned(*of_video, "--elapsed", "37.5")
    assert value["known"]["elapsed"] == 37.5
    assert value["lengths"] != plain["lengths"]


def test_what_is_said_below_plans(ran, run_of_lengths, video, tmp_path):
    other = write_world(tmp_path / "other", knobs=WorldKnobs(train=6, val=6, test=6, dim=8))
    name = next(one.video_id for one in other.videos if one.split == "test")
    asked = ("--video", name, "--dataset", other.folder, "--min-probability", 1)
    unsure, elsewhere = ran("plan", run_of_lengths.folder, *asked).err.splitlines()[-3:-1]
    assert re.fullmatch(
        r"not sure: the best plan's probability is \d+\.\d %; requested: 100\.0 %", unsure
    )
    said = f"'{other.name}', fingerprint {other.fingerprint[:12]}"
    assert elsewhere == f"planned for another data set than that of the run: {said}"


@pytest.fixture
def table(tmp_path, video, world):
    """A table of queries of all kinds, and the plain rows."""
    row, actions = int(world.first_row[world.videos.index(video)]), video.steps
    start, goal = world.start[row].tolist(), world.end[row + 1].tolist()
    names = [world.taxonomy.actions[step.action].name for step in actions[:2]]
    task = world.taxonomy.tasks[video.task].name
    rows = [
        {"id": "both", "initial": start, "goal": goal},
        {"id": "two", "initial": start, "goal": goal, "steps": 2},
        {"id": "timed", "initial": start, "goal": goal, "elapsed": 12.5},
        {"id": "some", "initial": start, "steps": "2-3"},
        {"id": "after", "initial": start, "done": names, "task": task},
        {"id": "text", "initial": start, "done": "; ".join(names), "task": task},
        {"id": "begun", "initial": start, "done": []},
        {"id": "end", "goal": goal},
        {"id": "task", "task": task, "steps": 4},
        {"id": "done", "done": [actions[0].action]},
        {"id": "none", "task": task, "done": ""},
    ]
    path = tmp_path / "queries.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_table_of_all_kinds(table, ran, run_of_lengths, tmp_path):
    out = tmp_path / "plans.jsonl"
    asked = [json.loads(line) for line in table.read_text().splitlines()]
    other = next(one["done"][0] for one in asked if one["id"] == "after")
    batch = ("plan-batch", run_of_lengths.folder, table, "--out", out, "--top-k", 4)
    batch += ("--forbid", other)
    ran(*batch)
    plans = [json.loads(line) for line in out.read_text().splitlines()]
    assert all(action >= 0 for plan in plans for action in plan["actions"])
    assert not any(other in plan["names"] for plan in plans)
    by_name = {one["id"]: [plan for plan in plans if plan["query"] == one["id"]] for one in asked}
    said, told = ([plan["actions"] for plan in by_name[name]] for name in ("after", "text"))
    assert said == told != [plan["actions"] for plan in by_name["begun"]]
    assert all(len(found) == 4 for found in by_name.values())
    lengths = {name: {len(plan["actions"]) for plan in found} for name, found in by_name.items()}
    assert (lengths["two"], lengths["task"]) == ({2}, {4})
    assert lengths["some"] <= {2, 3}
    timed, plain = (by_name[name][0]["length_probability"] for name in ("timed", "both"))
    assert 0 < timed != plain < 1
    ran(*batch)  # nothing is left to do


@pytest.mark.parametrize(
    ("options", "count", "first"),
    [
        ((), lambda steps: sum(min(4, steps - first) for first in range(steps)), "0:1"),
        (("--without-goal", "--after-done"), lambda steps: steps, "0"),
        (("--steps", 3), lambda steps: max(0, steps - 2), "0"),
    ],
)
def test_windows_of_a_split(options, count, first, call, ran, run_of_lengths, world, tmp_path):
    out = tmp_path / "plans.jsonl"
    batch = ("plan-batch", run_of_lengths.folder, world.folder, "--out", out, "--top-k", 1)
    ran(*batch, *options)
    plans = [json.loads(line) for line in out.read_text().splitlines()]
    tests = [video for video in world.videos if video.split == "test"]
    assert len(plans) == sum(count(len(video.steps)) for video in tests)
    name, _, place = plans[0]["query"].partition(":")
    assert (name in {video.video_id for video in tests}, place) == (True, first)
    if "--after-done" in options:
        rows = open_source(
            run_of_lengths, world.folder, given=Given.of(without_goal=True, after_done=True)
        ).rows()
        assert [row.value["done"] for row in rows] == [
            [step.action for step in video.steps[:done]]
            for video in tests
            for done in range(len(video.steps))
        ]
    again = call(*batch, *options, *(() if options else ("--without-goal",)))
    assert again[0] == (0 if options else 2)  # another batch has this file


def test_a_table_on_a_run_of_one_length(table, trained, ran, tmp_path):
    out = tmp_path / "plans.jsonl"
    ran("plan-batch", trained, table, "--out", out)
    plans = [json.loads(line) for line in out.read_text().splitlines()]
    assert {plan["query"] for plan in plans} == {"both"}
    assert {plan["length_probability"] for plan in plans} == {None}
    bad = (tmp_path / "plans.jsonl.bad.jsonl").read_text().splitlines()
    for one in map(json.loads, bad):
        reasons = dict.fromkeys(("two", "some", "task"), "Train a run")
        reasons["timed"] = "did not learn from the time between observations"
        assert reasons.get(one["query"], "needs both observations") in one["reason"]


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A run of several lengths on features of a tiny CLIP, the features and the CLIP."""
    pytest.importorskip("transformers")
    from cefito.cli import main
    from cefito.encoders.images import PretrainedImages
    from cefito.encoders.video import Pictures, record
    from tiny_models import tiny_clip
    from tiny_runs import TINY_LENGTHS, TINY_ROWS, as_arguments

    root = tmp_path_factory.mktemp("words")
    clip, features = tiny_clip(root / "clip"), root / "features"
    features.mkdir()
    (features / "extract.json").write_text(json.dumps(record(Pictures(PretrainedImages(clip)))))
    lines = ["video,task,step,start,end,split"]
    for video in range(8):
        order = [["unpack", "raise", "fold"], ["raise", "unpack", "fold"]][video % 2]
        rows = np.random.default_rng(video).normal(size=(4, 8)).astype(np.float32)
        np.save(features / f"v{video}.npy", rows)
        split = "test" if video > 5 else "val" if video > 4 else "train"
        lines += [f"v{video},tent,{one},{at},{at + 1},{split}" for at, one in enumerate(order)]
    (root / "steps.csv").write_text("\n".join(lines) + "\n")
    data = str(root / "data")
    custom = ["data", "prepare", "custom", str(root / "steps.csv"), data, "--seconds", "1"]
    assert main([*custom, "--features", str(features), "--precision", "float32"]) == 0
    train = ["train", data, "--steps", "1-2", "--out", str(root / "run"), "--preset", "small"]
    assert main([*train, *as_arguments(TINY_LENGTHS | TINY_ROWS)]) == 0
    return root


def test_a_goal_in_words(words, ran):
    from cefito.encoders.images import PretrainedImages
    from cefito.encoders.text import GoalTexts
    from cefito.inference.answer import answer
    from cefito.inference.query import query_from_video
    from cefito.runs.run import open_run

    run, clip = open_run(words / "run"), words / "clip"
    mean = run.planner.mean_observation
    taxonomy = run.taxonomy
    names = (*(one.name for one in taxonomy.tasks), *(one.name for one in taxonomy.actions))
    texts = GoalTexts(PretrainedImages(clip), 8, mean=mean, names=names)
    query, _ = query_from_video(run, "v7", 1, goal=False)
    expected = answer(run, query.with_goal(texts.observe("a folded tent")))
    plan = ("plan", run.folder, "--encoder", clip, "--goal-text", "a folded tent", "--json")
    value = json.loads(ran(*plan, "--video", "v7").out)
    assert value["truth"]["names"] == ["raise", "unpack"]
    assert [plan["actions"] for plan in value["plans"]] == [plan.actions for plan in expected.plans]
    assert value["plans"][0]["score"] == pytest.approx(expected.plans[0].score, rel=1e-4)
    asked = cefito.open_run(run.folder).plan(
        start=("v7", 1), goal_text="a folded tent", encoder=str(clip)
    )
    assert [plan.actions for plan in asked.plans] == [plan.actions for plan in expected.plans]
    assert json.loads(ran(*plan).out)["known"]["initial"] is False  # the goal alone
