"""A folder in the form of the authors' repository gives a data set with exactly its windows."""

import json

import numpy as np
import pytest

from authors_repository import (
    FEATURES,
    NAMES,
    OWNED,
    TASKS,
    TAXONOMY,
    embeddings,
    windows,
    write_repository,
)
from cefito.data import Taxonomy, cut_windows, open_dataset
from cefito.data.action_text import read_action_text
from cefito.data.annotations import Step, Video, read_videos, write_videos
from cefito.data.readers.assemble import prepare
from cefito.data.readers.benchmarks import read_benchmark
from cefito.errors import DataError
from cefito.planners.queries import Queries
from refusals import refusal

BENCHMARKS = {name.lower(): name for name in TASKS}


@pytest.fixture
def repository(tmp_path):
    return write_repository(tmp_path / "clone")


def prepared(source, target, **settings):
    return prepare(source, source.features, target, **settings)


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_prepared_windows_are_those_of_the_files(repository, tmp_path, benchmark):
    name = BENCHMARKS[benchmark]
    source = read_benchmark(benchmark, repository)
    again = read_benchmark(benchmark, repository / "dataset" / name)
    assert again == source
    assert source.features == repository / "dataset" / name / FEATURES[name]
    dataset = prepared(source, tmp_path / "data", precision="float32")
    taxonomy = dataset.taxonomy
    assert taxonomy.dataset == benchmark
    assert [task.name for task in taxonomy.tasks] == [key.split("_")[-1] for key in TASKS[name]]
    assert [task.actions for task in taxonomy.tasks] == [tuple(sorted(ids)) for ids in OWNED]
    assert [action.name for action in taxonomy.actions] == list(NAMES)
    np.testing.assert_array_equal(dataset.action_text, [embeddings()[key] for key in range(8)])
    whole = [video for video in dataset.videos if video.split == "train"]
    assert len(whole) == 12
    for horizon in (3, 4):
        stored = benchmark != "niv"
        wanted = windows(name, "test", horizon, predicted=stored)
        cut = cut_windows(dataset, horizon=horizon, split="test")
        steps = [entry["id"]["legal_range"] for entry in wanted]
        videos = [dataset.videos[video] for video in cut.video]
        assert [
            [[step.start, step.end, step.action] for step in video.steps[first:][:horizon]]
            for video, first in zip(videos, cut.start, strict=True)
        ] == steps
        assert cut.actions.tolist() == [[step[2] for step in part] for part in steps]
        assert cut.tasks.tolist() == [entry["id"]["task_id"] for entry in wanted]
        for row, entry in enumerate(wanted):
            rows = np.load(repository / entry["id"]["feature"])
            first = steps[row][0][0]
            around = rows[[max(first - 1, 0), first, first + 1]]
            np.testing.assert_array_equal(cut.initial[row], around.ravel())
        if not stored:
            assert cut.predicted is None
            continue
        given = [entry["id"]["event_class_top1"] for entry in wanted]
        assert cut.predicted.tolist() == given
        queries = Queries.from_windows(cut, stored_task=True)
        assert queries.tasks.tolist() == given
        assert 0 < (queries.tasks != cut.tasks).mean() < 0.5
    assert open_dataset(dataset.folder).videos == dataset.videos


def change(repository, benchmark, file, edit):
    path = repository / "dataset" / benchmark / f"{file}.json"
    value = json.loads(path.read_text())
    value = edit(value) or value
    path.write_text(json.dumps(value))


TEST = "test_list_3_133"
STAMPED = f"{TEST}_with_predictions"
FIRST = "0_23521_Make Jello"


@pytest.mark.parametrize(
    ("file", "edit", "match"),
    [
        ("train_list_4_133", lambda w: w.pop(0) and None, "windows of video 'tr_1-x' are missing"),
        (STAMPED, lambda w: w[0]["id"]["legal_range"][0].__setitem__(1, 99), "in a row"),
        (STAMPED, lambda w: w[1]["id"]["actions"].__setitem__(0, "fry"), "is 'fry', in the taxon"),
        (TAXONOMY["CrossTask"], lambda t: t[FIRST].update({"x": "fry"}), "has the action 'x'; e"),
        (
            TAXONOMY["CrossTask"],
            lambda t: t["2_71781_Make Taco Salad"].update({"0": "fry"}),
            "action 0 is 'stir' and 'fry'|action 0 is 'pour water' and 'fry'",
        ),
    ],
)
def test_files_that_contradict_each_other(repository, file, edit, match):
    change(repository, "CrossTask", file, edit)
    refusal(DataError, read_benchmark, "crosstask", repository, match=match)


def test_window_files_of_another_vocabulary_are_left_out(repository):
    folder = repository / "dataset" / "CrossTask"
    for split in ("train", "test"):
        value = windows("CrossTask", split, 3)
        for entry in value:
            for step in entry["id"]["legal_range"]:
                step[2] = (step[2] + 1) % 8
        (folder / f"{split}_list_3_105.json").write_text(json.dumps(value))
    (folder / "metrics.json").write_text('{"sr": 3}')
    found = read_benchmark("crosstask", repository)
    assert "Not read, since of no known form: metrics.json." in found.notes
    assert "Not read, since of other actions: test_list_3_105.json, train_list_3_105.json." in (
        found.notes
    )
    assert all("105" not in path.name for path in found.files)
    (folder / "crosstask_taxonomy_105.json").write_text(
        (folder / "crosstask_taxonomy_133.json").read_text()
    )
    with pytest.raises(DataError, match=r"taxonomy_105\.json, crosstask_taxonomy_133\.json"):
        read_benchmark("crosstask", repository)
    (folder / "action_embeddings_105.npy").write_bytes(b"")
    given = folder / "crosstask_taxonomy_133.json"
    with pytest.raises(DataError, match=r"embeddings_105\.npy, action_embeddings_133\.npy"):
        read_benchmark("crosstask", repository, taxonomy=given)
    (folder / "action_embeddings_105.npy").unlink()
    source = read_benchmark("crosstask", repository, taxonomy=given)
    assert source.annotations == found.annotations


def test_windows_without_their_taxonomy_have_names(repository):
    folder = repository / "dataset" / "COIN"
    (folder / f"{TAXONOMY['COIN']}.json").unlink()
    source = read_benchmark("coin", folder)
    assert source.annotations.taxonomy.actions[6].name == "stir mixture"
    assert source.annotations.taxonomy.tasks[2].name == "MakeRJ45Cable"
    assert not any("no names of actions" in note for note in source.notes)
    change(
        repository, "COIN", "coin_train_70_3", lambda w: w[0]["id"]["actions"].__setitem__(0, "fry")
    )
    with pytest.raises(DataError, match="action 0"):
        read_benchmark("coin", folder)


def test_predictions_stay_with_their_windows_when_steps_are_beyond_the_features(tmp_path):
    steps = tuple(Step(10.0 * n, 10.0 * n + 5, 0) for n in range(5))
    video = Video("a", "test", 0, steps, predicted={3: (0, 1, 2), 4: (1, 2)})
    assert video.with_steps(range(5)).predicted == video.predicted
    assert video.with_steps([0, 1, 2, 3, 3]).predicted == video.predicted  # rewritten
    assert video.with_steps([0, 1, 2, 3]).predicted == {3: (0, 1), 4: (1,)}
    assert video.with_steps([0, 2, 3, 4]).predicted == {3: (-1, 2), 4: (-1,)}
    assert video.with_steps([0, 1]).predicted == {3: (), 4: ()}
    taxonomy = Taxonomy.from_names("x", [("t", [0]), ("u", [0]), ("v", [0])], ["a"])
    for kept in (range(5), [0, 2, 3, 4], [0, 1]):
        path = tmp_path / "videos.jsonl"
        write_videos(path, [video.with_steps(kept)])
        assert read_videos(path, taxonomy) == (video.with_steps(kept),)
    for wrong in ({"3": [0, 1]}, {"3": [0, 1, 3]}, {"3": [0, 1, -2]}, {"0": []}, {"3": "x"}):
        line = {"video_id": "a", "split": "test", "task_id": 0, "predicted_tasks": wrong}
        line["steps"] = [[0, 1, 0]] * 5
        path.write_text(json.dumps(line))
        with pytest.raises(DataError, match="predicted_tasks"):
            read_videos(path, taxonomy)


def test_windows_without_predictions_are_refused(repository, tmp_path):
    dataset = prepared(read_benchmark("niv", repository), tmp_path / "data")
    cut = cut_windows(dataset, horizon=3, split="test")
    with pytest.raises(DataError, match=f"{len(cut)} of {len(cut)} windows"):
        Queries.from_windows(cut, stored_task=True)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda v: v.pop(3), "has no vector of action 3. Give the file of the taxonomy with 8"),
        (lambda v: v.update({9: v[0]}), "has a vector of action 9"),
        (lambda v: v.update({0: v[0][:4]}), r"has vectors of \[4, 5\] numbers"),
        (lambda v: v.update({0: v[0] * np.nan}), "NaN"),
        (lambda v: v.update({0: np.zeros((2, 5))}), r"float64 \[2, 5\] under 0"),
        (lambda v: v.update({0: "x"}), "under 0"),
        (lambda v: v.update({"pour": v[0]}), "under 'pour'"),
        (dict.clear, "holds a dict"),
    ],
)
def test_action_embeddings_that_do_not_fit(tmp_path, change, match):
    names = [("a", range(4)), ("b", range(4, 8))]
    taxonomy = Taxonomy.from_names("x", names, NAMES)
    path = tmp_path / "text.npy"
    expected = np.stack([embeddings()[number] for number in range(8)])
    for good in (
        expected,
        embeddings(),
        {str(key): value[None] for key, value in embeddings().items()},
        {np.int64(key): value.tolist() for key, value in embeddings().items()},
    ):
        np.save(path, np.array(good), allow_pickle=True)
        np.testing.assert_allclose(read_action_text(path, taxonomy), expected)
    value = embeddings()
    change(value)
    np.save(path, value, allow_pickle=True)
    refusal(DataError, read_action_text, path, taxonomy, match=match)
