"""Errors of steps: read from tables and folders, written, counted, left out of training."""

import json
from dataclasses import replace

import numpy as np
import pytest

from cefito.data.annotations import Step, Video, read_videos, write_videos
from cefito.data.info import describe
from cefito.data.readers.custom import prepare_custom
from cefito.data.readers.source import read_common
from cefito.data.readers.step_source import convert_steps, read_steps
from cefito.data.windows import cut_windows, fitting_windows, joined_windows, without_errors
from cefito.errors import DataError

CELLS = ["no", "YES", " Order Error ; Timing Error;", "", "false", "1", "None", "spilt milk"]
KINDS = [(), ("error",), ("Order Error", "Timing Error"), (), (), ("error",), (), ("spilt milk",)]


def errors_of(videos):
    return [[step.errors for step in video.steps] for video in videos]


def test_the_column_error_of_a_table(tmp_path):
    table = tmp_path / "steps.csv"
    rows = [f"v,tea,step {n},{n},{n + 0.5},{cell}\n" for n, cell in enumerate(CELLS)]
    table.write_text("video,task,step,start,end,Error\n" + "".join(rows))
    found = read_steps(table).annotations
    assert errors_of(found.videos) == [KINDS]
    assert not found.videos[0].clean
    again = tmp_path / "again.csv"
    convert_steps([table], again)
    assert again.read_text().splitlines()[0] == "video,task,step,start,end,error"
    assert errors_of(read_steps(again).annotations.videos) == [KINDS]
    table.write_text(table.read_text().replace("Error\n", "mistake\n", 1))
    assert read_steps(table).annotations.videos[0].clean


@pytest.fixture
def folder(make_source, tiny_videos):
    """Write the tiny source with these lines of errors.jsonl."""

    def make(errors):
        source = make_source()
        lines = [json.dumps(one) if isinstance(one, dict) else one for one in errors]
        (source / "errors.jsonl").write_text("\n".join(lines))
        return source

    return make


def line_of(video, wrong, missing=()):
    kinds = [wrong.get(place, []) for place in range(len(video["steps"]))]
    return {"video_id": video["video_id"], "steps": kinds, "missing": list(missing), "more": 1}


@pytest.fixture
def prepared(folder, tiny_videos, tiny_taxonomy, tmp_path):
    """A data set with errors in two training videos, one of validation and one of test."""
    names = [action["name"] for action in tiny_taxonomy["actions"]]
    by_name = {video["video_id"]: video for video in tiny_videos}
    by_name["i"]["split"] = by_name["j"]["split"] = "val"
    lines = [
        line_of(by_name["b"], {0: ["Order Error"], 4: ["Order Error", "Other"]}),
        "",
        line_of(by_name["c"], {}, [names[2].upper(), 3, "no such step", 99]),
        line_of(by_name["e"], {1: ["Other"]}),
        line_of(by_name["j"], {3: ["Other"]}),
    ]
    return prepare_custom(folder(lines), tmp_path / "DATA")


def test_errors_beside_videos(prepared, tmp_path):
    wrong = [video for video in prepared.videos if not video.clean]
    assert [(video.video_id, video.missing) for video in wrong] == [
        *(("b", ()), ("c", (2, 3)), ("e", ()), ("j", ()))
    ]
    assert errors_of(wrong)[0] == [("Order Error",), (), (), (), ("Order Error", "Other")]
    note = "errors.jsonl: left out 2 missing steps of no known action."
    assert note in prepared.provenance["notes"]
    write_videos(tmp_path / "videos.jsonl", prepared.videos)
    again = read_videos(tmp_path / "videos.jsonl", prepared.taxonomy)
    assert again == prepared.videos  # which leaves out errors of steps
    assert errors_of(again) == errors_of(prepared.videos)
    assert describe(prepared.folder)["errors"] == {
        **{"videos": 4, "steps": 4, "missing": 2},
        "kinds": {"Other": 3, "Order Error": 2},
    }


def test_no_errors_are_counted_where_none_is_annotated(tiny_dataset):
    assert describe(tiny_dataset.folder)["errors"] is None
    assert cut_windows(tiny_dataset, horizon=2, split="train").wrong is None


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda line: line["steps"].pop(), r"errors.jsonl, line 1: videos.jsonl has no video '"),
        (lambda line: line.update(video_id="x"), r"line 1: videos.jsonl has no video 'x' with \d"),
        (lambda line: line.pop("steps"), r"line 1: not a video.*\[kinds of errors\] for each step"),
        (lambda line: line.update(steps=3), "line 1: not a video"),
    ],
)
def test_errors_that_do_not_fit(folder, tiny_videos, change, match):
    line = line_of(tiny_videos[0], {})
    change(line)
    with pytest.raises(DataError, match=match):
        read_common(folder([line]))


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"errors": [["x"]]}, "'errors' of 1 steps; expected 3"),
        ({"missing": [8]}, r"'missing' \[8\]; expected ids of actions"),
    ],
)
def test_videos_whose_errors_do_not_fit(make_source, tiny_videos, more, match):
    tiny_videos[0] |= more
    with pytest.raises(DataError, match=rf"videos.jsonl, line 1: {match}. Correct the line"):
        read_common(make_source(videos=tiny_videos))


def places(windows):
    return set(zip(windows.video.tolist(), windows.start.tolist(), strict=True))


def test_what_is_left_out_of_training(prepared):
    every = cut_windows(prepared, horizon=2, split="train")
    videos = prepared.videos
    for errors, keep in (
        ("keep", lambda video, start: True),
        ("windows", lambda video, start: not any(s.errors for s in video.steps[start : start + 2])),
        ("videos", lambda video, start: video.clean),
    ):
        kept = {(video, start) for video, start in places(every) if keep(videos[video], start)}
        assert places(without_errors(every, videos, errors)) == kept
    assert len(kept) < len(places(without_errors(every, videos, "windows"))) < len(every)
    own = np.flatnonzero(every.wrong)
    for errors in ("windows", "videos"):
        with pytest.raises(DataError, match="all train windows have an error or are of a video"):
            without_errors(every.subset(own), videos, errors)
    again = joined_windows(every.subset(own), every.subset(np.flatnonzero(~every.wrong)))
    assert (again.wrong == every.wrong).all()


@pytest.mark.parametrize("errors", ["keep", "windows", "videos"])
@pytest.mark.parametrize("selection", ["held-out", "published"])
def test_errors_never_change_test_windows(prepared, errors, selection):
    cut = {name: cut_windows(prepared, horizon=2, split=name) for name in ("train", "val", "test")}
    train, chosen = fitting_windows(prepared, horizon=2, selection=selection, errors=errors)
    for windows, whole in ((train, cut["train"]), (chosen, cut[chosen.split])):
        untouched = errors == "keep" or windows.split == "test"
        assert (places(windows) == places(whole)) is untouched
        assert windows.wrong.any() == untouched
