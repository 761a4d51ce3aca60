"""Window files of the unified protocol give the videos that they were cut from."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cefito.data import read_annotations
from cefito.data.annotations import Step
from cefito.data.readers.benchmarks import read_benchmark
from cefito.data.readers.windows_json import join_windows


def by_id(videos):
    return {video.video_id: video for video in videos}


def fitting(videos, horizon):
    return {
        video.video_id: replace(video, in_protocol=True)
        for video in videos
        if video.in_protocol and len(video.steps) >= horizon
    }


@pytest.mark.parametrize("horizons", [(1,), (3, 4, 5), (2, 6)])
@pytest.mark.parametrize("vid", [True, False])
def test_windows_are_put_together(make_source, write_windows, tmp_path, horizons, vid):
    source = make_source(features=None)
    write_windows(source, tmp_path / "windows", horizons=horizons, vid=vid)
    (tmp_path / "windows" / "taxonomy.json").write_text((source / "taxonomy.json").read_text())
    whole, found = read_annotations(source), read_benchmark("niv", tmp_path / "windows")
    assert by_id(found.annotations.videos) == fitting(whole.videos, min(horizons))
    assert found.annotations.taxonomy == whole.taxonomy
    assert found.notes == ()
    assert found.names["a" if min(horizons) <= 3 else "b"][0].startswith("somewhere/else/")


def test_windows_without_a_taxonomy(make_source, write_windows, tmp_path):
    source = make_source(features=None)
    write_windows(source, tmp_path / "windows", horizons=(3,))
    found = read_benchmark("niv", tmp_path / "windows")
    taxonomy = found.annotations.taxonomy
    assert by_id(found.annotations.videos) == fitting(read_annotations(source).videos, 3)
    assert [task.name for task in taxonomy.tasks] == ["tea", "toast", "tyre"]
    assert taxonomy.tasks[1].actions == (2, 3, 4, 5)
    assert taxonomy.actions[4].name == "action 4"
    (note,) = found.notes
    assert note.startswith("Window files hold no names of actions; give a taxonomy.json")
    one = read_benchmark("niv", tmp_path / "windows" / "tiny_test_T3.json")
    assert {video.split for video in one.annotations.videos} == {"test"}


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=9),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_joining_against_the_sequence(actions, horizon, order):
    # equal times: the hardest case
    steps = tuple(Step(start=0.0, end=1.0, action=action) for action in actions)
    if len(steps) < horizon:
        return
    windows = [steps[first : first + horizon] for first in range(len(steps) - horizon + 1)]
    assert join_windows(windows) == steps
    order.shuffle(windows)
    found = join_windows(windows)
    # a shuffled list may be ambiguous; what is given back must have exactly these windows
    if found is not None:
        again = [found[first : first + horizon] for first in range(len(found) - horizon + 1)]
        assert sorted(again, key=repr) == sorted(windows, key=repr)
    distinct = [
        Step(start=float(place), end=place + 1.0, action=step.action)
        for place, step in enumerate(steps)
    ]
    runs = [distinct[first : first + horizon] for first in range(len(distinct) - horizon + 1)]
    order.shuffle(runs)
    if horizon > 1:
        assert join_windows(runs) == tuple(distinct)


@pytest.fixture
def windows(make_source, write_windows, tmp_path):
    """Change the windows of the training file and give its path."""
    write_windows(make_source(features=None), tmp_path / "windows", horizons=(3,))
    path = tmp_path / "windows" / "tiny_train_T3.json"

    def change(edit=len):
        value = json.loads(path.read_text())
        edit(value)
        path.write_text(json.dumps(value))
        return path

    return change


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda w: w.pop(2), r"window 1 \(.* from 0\): the windows of video 'b' do not overlap"),
        (lambda w: w[0]["id"]["legal_range"][1].pop(), r"window 0 \(counted from 0\): not a"),
        (lambda w: w[0]["id"]["legal_range"][1].__setitem__(0, -1), "step 2: the step runs from"),
        (lambda w: w.insert(2, w[1]), r"window 1 .* do not overlap into one sequence"),
        (lambda w: w[0]["id"]["legal_range"][1].__setitem__(2, 1.5), "id 1.5 is not a whole"),
        (lambda w: w[0]["id"].pop("task_id"), "not a window"),
        (lambda w: [w[0]["id"].pop("vid"), w[0]["id"].pop("feature")], "of video None"),
        (lambda w: w[0].__setitem__("instruction_len", 9), "is 9, but the windows of video 'a' ma"),
        (lambda w: w[0].__setitem__("instruction_len", "x"), "id 'x' is not a whole number"),
        (lambda w: w[0].__setitem__("instruction_len", True), "id True is not a whole number"),
        (lambda w: w[0]["id"].__setitem__("task_id", "١"), "is not a whole number"),
        (lambda w: w[0]["id"].__setitem__("actions", ["a"]), "1 names of them"),
        (lambda w: w[0]["id"].__setitem__("event_class_top1", 1.5), "id 1.5 is not a whole"),
        (lambda w: w[0]["id"].__setitem__("event_class_top1", 3), "not one known task a window"),
        (lambda w: w[1]["id"].__setitem__("task_id", 2), r"video 'b' has task ids \[1, 2\]"),
        (lambda w: w.append("x"), r"window 12 .*: not a window"),
    ],
)
def test_windows_that_do_not_fit(windows, wrong, edit, match):
    wrong("niv", windows(edit), match)


def test_windows_of_one_video_in_two_splits(windows, wrong, tmp_path):
    path = windows()
    (path.parent / "tiny_test_T3.json").write_text(path.read_text())
    wrong("niv", path.parent, r"video 'a' is in train here and in test in tiny_test_T3.json")


def test_windows_need_a_split_in_their_name(windows, wrong):
    path = windows()
    path = path.rename(path.parent / "windows.json")
    wrong("niv", path, "must contain exactly one of train, val, test")


def test_windows_of_another_vocabulary(windows, wrong, make_source, tiny_taxonomy):
    tiny_taxonomy["tasks"][1]["actions"] = [2, 3]
    other = make_source("other", taxonomy=tiny_taxonomy, features=None)
    wrong("niv", windows(), "action 4 is not one of task 1 .video '.'.", taxonomy=other)


def test_a_taxonomy_that_lists_shared_actions_once(windows, wrong, make_source, tiny_taxonomy):
    """Tasks own the actions of their windows, too, if the names agree."""
    names = [action["name"] for action in tiny_taxonomy["actions"]]
    tiny_taxonomy["tasks"][1]["actions"] = [2, 3]
    other = make_source("other", taxonomy=tiny_taxonomy, features=None)

    def named(entries, wrong=""):
        for entry in entries:
            steps = entry["id"]["legal_range"]
            entry["id"]["actions"] = [names[action] + wrong * (action == 4) for *_, action in steps]

    found = read_benchmark("niv", windows(named), taxonomy=other)
    assert found.annotations.taxonomy.tasks[1].actions == (2, 3, 4, 5)
    assert "the taxonomy lists them under others; they count as actions of both" in found.notes[0]
    path = windows(lambda entries: named(entries, "?!x"))
    wrong("niv", path, "action 4 is '.*x', in the taxonomy", taxonomy=other)


@pytest.mark.parametrize("name", [pytest.param("crosstask", marks=pytest.mark.nightly), "niv"])
def test_published_annotations_go_round(
    shared_data, real_annotations, write_windows, tmp_path, name
):
    write_windows(shared_data / name, tmp_path / "windows", horizons=(3,), vid=name != "niv")
    whole = real_annotations(name)
    found = read_benchmark(name, tmp_path / "windows", taxonomy=shared_data / name).annotations
    assert by_id(found.videos) == fitting(whole.videos, 3)
    assert read_benchmark(name, shared_data / name).annotations == whole
