"""Runs on data sets that they were not trained on."""

import json
import logging
import shutil
from dataclasses import replace

import numpy as np
import pytest

from cefito.data import cut_windows
from cefito.data.prepared import write_dataset
from cefito.errors import DataError, RunError
from cefito.evaluation.records import RunEvaluation
from cefito.evaluation.runs import evaluate_run
from cefito.inference.answer import answer
from cefito.inference.query import query_from_video
from cefito.parts.folder import VIDEOS_FILE, trained_videos
from cefito.parts.matching import DatasetName, match_dataset, named_dataset
from cefito.runs.run import open_run
from part_worlds import part_of
from tiny_runs import small_run

OLD = [0, 1, 2, 3]
DIM = 8


@pytest.fixture(scope="module")
def old(world, tmp_path_factory):
    return part_of(world, tmp_path_factory.mktemp("data") / "old", tasks=OLD)


@pytest.fixture(scope="module")
def trained(old, tmp_path_factory):
    """A run that nothing is trained for; not to be changed."""
    return small_run(old, tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def run(trained, tmp_path):
    """The run in a folder of its own."""
    return open_run(shutil.copytree(trained.folder, tmp_path / "run"))


def test_nothing_changes_on_the_data_set_of_the_run(run, old, caplog):
    windows, other = match_dataset(run, run.dataset()).windows("test")
    expected = cut_windows(old, horizon=3, split="test")
    assert other is None
    for name in ("initial", "goal", "actions", "tasks", "video", "start"):
        np.testing.assert_array_equal(getattr(windows, name), getattr(expected, name))
    _, path = evaluate_run(run)
    assert "other_dataset" not in json.loads(path.read_text())
    assert [path.name for path in run.folder.glob("evaluation*")] == ["evaluation-test.json"]
    assert caplog.records == []


def test_other_ids_give_the_same_scores(run, old, world, tmp_path, caplog):
    """The same videos, tasks and actions numbered otherwise."""
    turned = part_of(world, tmp_path / "turned", tasks=OLD[::-1])
    assert turned.taxonomy != old.taxonomy
    scores, path = evaluate_run(run, dataset=turned.folder)
    assert path is not None
    assert path.name == f"evaluation-test-{turned.fingerprint[:12]}.json"
    assert RunEvaluation.read(path) == scores
    assert scores.fingerprint == turned.fingerprint
    mine, _ = evaluate_run(run)
    assert scores.metrics == mine.metrics
    assert scores.windows == mine.windows
    other = scores.other_dataset
    assert other.dataset.fingerprint == turned.fingerprint
    assert other.trained_on.fingerprint == old.fingerprint
    assert (other.new_task, other.new_action, other.tasks, other.actions) == (0, 0, (), ())
    assert (other.known_videos, other.known_windows) == (0, 0)
    (message,) = [record.getMessage() for record in caplog.records]
    assert f"fingerprint {turned.fingerprint[:12]}) is not the data set that" in message


def test_windows_of_new_tasks_and_actions_are_left_out(run, world, tmp_path, caplog, reseal):
    mixed = part_of(world, tmp_path / "mixed", tasks=[5, 2, 0])
    names = [action.name for action in mixed.taxonomy.actions]
    changed = mixed.taxonomy.to_dict()
    strange = mixed.taxonomy.tasks[2].actions[0]
    changed["actions"][strange]["name"] = "something else"
    (mixed.folder / "taxonomy.json").write_text(json.dumps(changed))
    reseal(mixed.folder)
    scores, _ = evaluate_run(run, dataset=mixed.folder)
    windows = cut_windows(mixed, horizon=3, split="test")
    new_task = windows.tasks == 0
    new_action = (windows.actions == strange).any(axis=1) & ~new_task
    assert new_task.any()
    assert new_action.any()
    other = scores.other_dataset
    assert (other.new_task, other.new_action) == (new_task.sum(), new_action.sum())
    assert scores.windows == len(windows) - new_task.sum() - new_action.sum()
    assert other.tasks == (mixed.taxonomy.tasks[0].name,)
    assert other.actions == (f"{mixed.taxonomy.tasks[2].name}: something else",)
    message = caplog.records[-1].getMessage()
    assert f"{new_task.sum() + new_action.sum()} of {len(windows)} windows" in message
    assert f"new to the run: 1 of its 3 tasks ('{mixed.taxonomy.tasks[0].name}')" in message
    assert "new to their tasks: 1 action ('something else' of" in message
    assert names[strange] != "something else"


def test_nothing_known_is_an_error(run, world, tmp_path):
    foreign = part_of(world, tmp_path / "foreign", tasks=[4, 5, 6, 7])
    name = foreign.taxonomy.tasks[0].name
    with pytest.raises(RunError) as caught:
        evaluate_run(run, dataset=foreign.folder)
    message = str(caught.value)
    assert message.startswith(f"{foreign.folder}: does not agree with what {run.folder}")
    assert f"new to the run: 4 of its 4 tasks ('{name}', " in message
    assert "and 1 more)" in message
    assert "cefito finetune" in message
    # tasks are known, but none of the test videos is of them
    partly = part_of(
        world,
        tmp_path / "partly",
        tasks=[4, 0],
        keep=lambda video: video.task == 4 or video.split != "test",
    )
    with pytest.raises(RunError, match=r"split 'test': .* 1 of its 2"):
        evaluate_run(run, dataset=partly.folder)
    assert list(run.folder.glob("evaluation*")) == []
    with pytest.raises(DataError, match="nowhere"):
        evaluate_run(run, dataset=tmp_path / "nowhere")


def test_all_that_does_not_agree_is_listed(run, world, tmp_path):
    narrow = part_of(world, tmp_path / "narrow", tasks=[4, 0], dim=DIM - 1)
    with pytest.raises(RunError) as caught:
        evaluate_run(run, dataset=narrow.folder)
    message = str(caught.value)
    assert f"observations have {DIM - 1} features; this run was trained on {DIM}" in message
    assert "new to the run: 1 of its 2 tasks" in message
    assert message.count("\n") == 0


def recipe(**features):
    return {"observed": {"seconds": features.pop("seconds", 3), "features": features or None}}


@pytest.mark.parametrize(
    ("ours", "theirs", "message"),
    [
        (recipe(), recipe(seconds=1), "seconds = 1 instead of 3"),
        (
            recipe(model="s3d", weights="a", rate=32.0),
            recipe(model="s3d", weights="b", rate=10.0),
            "features of weights = 'b' instead of 'a'; features of rate = 10.0 instead of 32.0",
        ),
        (recipe(model="s3d"), recipe(model="clip"), "features of model = 'clip' instead of 's3d'"),
        (recipe(), {"observations": "simulated", "seed": 0}, "simulated instead of from videos"),
        (
            {"observations": "simulated", "seed": 0},
            {"observations": "simulated", "seed": 1},
            "simulation with seed = 1 instead of 0",
        ),
        # a name may be that of a folder; the weights are the same
        (recipe(model="a", weights="w"), recipe(model="b", weights="w"), None),
        (recipe(), recipe(model="b", weights="w"), None),
        ({}, recipe(model="b"), "run does not say how"),
        (recipe(model="b"), {}, "other does not say how"),
    ],
)
def test_how_observations_were_made(old, ours, theirs, message, tmp_path, caplog):
    parts = {"name": "made", "annotations": old.annotations, "start": old.start, "end": old.end}
    mine = write_dataset(tmp_path / "mine", **parts, provenance=ours)
    other = write_dataset(tmp_path / "other", **parts | {"start": old.start + 1}, provenance=theirs)
    made = small_run(mine, tmp_path / "run")
    if message is not None and "does not say" not in message:
        with pytest.raises(RunError, match="does not agree with what") as caught:
            match_dataset(made, other)
        assert message in str(caught.value)
        assert "Prepare the data set like the run's." in str(caught.value)
        return
    match_dataset(made, other)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == (message is not None)
    assert all(message in line for line in said)


def test_videos_that_the_run_was_trained_on(run, old, world, tmp_path, caplog):
    seen = json.loads((run.folder / VIDEOS_FILE).read_text())
    train = cut_windows(old, horizon=3, split="train")
    assert seen["train"] == [old.videos[video].video_id for video in np.unique(train.video)]
    assert not {*seen["train"]} & {*seen["val"]}
    # all videos are test videos there
    whole = part_of(
        world, tmp_path / "whole", tasks=OLD, rename=lambda video: replace(video, split="test")
    )
    scores, _ = evaluate_run(run, dataset=whole.folder)
    known = {*seen["train"], *seen["val"]}
    other = scores.other_dataset
    windows = cut_windows(whole, horizon=3, split="test")
    mine = np.array([whole.videos[video].video_id in known for video in windows.video])
    assert other.known_videos == len(known)
    assert other.known_windows == mine.sum() < len(windows)
    message = caplog.records[-1].getMessage()
    assert f"has seen {len(known)} of the videos scored in its training" in message
    assert f"({mine.sum()} of {len(windows)} windows)" in message
    # as after a finetuning, whose first run had learned a test video
    tested = old.videos[int(cut_windows(old, horizon=3, split="test").video[0])].video_id
    began = replace(run, videos=run.videos.model_copy(update={"train": (tested,)}))
    match_dataset(began, old).windows("test")
    assert "was trained on videos of this split, too" in caplog.records[-1].getMessage()


def test_a_damaged_list_of_videos(run):
    (run.folder / VIDEOS_FILE).write_text('{"train": 3}')
    with pytest.raises(RunError, match=r"videos\.json: not a list of videos"):
        trained_videos(run.folder)


def test_planning_for_a_video_of_another_data_set(run, world, tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    mixed = part_of(world, tmp_path / "mixed", tasks=[5, 2])
    known = next(v for v in mixed.videos if v.task == 1 and len(v.steps) >= 3)
    query, truth = query_from_video(run, known.video_id, 1, mixed.folder)
    steps = [step.action for step in known.steps[:3]]
    assert run.taxonomy.names(truth) == mixed.taxonomy.names(steps)
    assert truth.tolist() != steps
    strange = next(v for v in mixed.videos if v.task == 0 and len(v.steps) >= 3)
    other, nothing = query_from_video(run, strange.video_id, 1, mixed.folder)
    assert nothing is None
    assert other.initial.shape == query.initial.shape == (1, DIM)
    name = mixed.taxonomy.tasks[0].name
    assert f"(task '{name}', '" in caplog.records[-1].getMessage()

    used = named_dataset(run, mixed.folder)
    assert used == DatasetName(name=mixed.name, fingerprint=mixed.fingerprint)
    assert named_dataset(run, None) is None
    assert named_dataset(run, run.dataset().folder) is None
    found = answer(run, query, truth=truth, dataset=used, top_k=1).to_dict()
    assert found["dataset"] == {"name": mixed.name, "fingerprint": mixed.fingerprint}
    assert "dataset" not in answer(run, query, top_k=1).to_dict()
