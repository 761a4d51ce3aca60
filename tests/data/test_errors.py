"""Errors of steps: read from tables and folders, written, counted, left out of training."""

import json

import numpy as np
import pytest

from cefito.data.annotations import read_videos, write_videos
from cefito.data.info import describe
from cefito.data.readers.custom import prepare_custom
from cefito.data.readers.step_source import convert_steps, read_steps
from cefito.data.source import read_common
from cefito.data.windows import cut_windows, fitting_windows, without_errors
from cefito.errors import ConfigError, DataError

CELLS = {"no": (), "YES": ("error",), "": (), "false": (), "1": ("error",), "None": ()}
CELLS |= {"Nein": (), "ja": ("error",), "Oui": ("error",), "はい": ("error",)}
CELLS |= {"Non": (), "否": (), "いいえ": (), "Sí": ("error",), "是": ("error",)}
CELLS |= {" Order Error ; Timing Error;": ("Order Error", "Timing Error")}


def errors_of(videos):
    return [[step.errors for step in video.steps] for video in videos]


def test_the_column_error_of_a_table(tmp_path):
    table, again = tmp_path / "steps.csv", tmp_path / "again.csv"
    rows = [f"v,tea,step {n},{n},{n + 0.5},{cell}\n" for n, cell in enumerate(CELLS)]
    table.write_text("video,task,step,start,end,Error\n" + "".join(rows))
    convert_steps([table], again)
    for path in (table, again):
        found = read_steps(path)
        assert errors_of(found.annotations.videos) == [[*CELLS.values()]]
        kinds = "by kind: 'error' 7, 'Order Error' 1, 'Timing Error' 1."
        assert f"Steps with an error, {kinds}" in found.notes


@pytest.mark.parametrize("word", ["missing: ", "Missing:", "fehlt: ", "缺失："])
def test_a_step_that_people_say_is_missing(word, tmp_path):
    """It is of the video, whose other steps are right, however a table is read and written."""
    table, again = tmp_path / "steps.csv", tmp_path / "again.csv"
    lines = ["video,task,step,start,end,error", "v,tea,boil,1,2,", "v,tea,pour,3,4,too short"]
    lines += ["w,tea,boil,1,2,no", f"w,tea,steep,3,4,{word}pour;late"]
    table.write_text("\n".join(lines))
    convert_steps([table], again)
    for path in (table, again):
        annotations = read_steps(path).annotations
        assert annotations.taxonomy.names([*annotations.videos[1].missing]) == ["pour"]
        assert errors_of(annotations.videos) == [[(), ("too short",)], [(), ("late",)]]
        assert annotations.videos[0].missing == ()
    table.write_text(table.read_text().replace("pour;", "poor;"))
    with pytest.raises(ConfigError, match=r"video 'w', missing: .*'poor'"):
        read_steps(table)


@pytest.fixture
def prepared(make_source, tiny_videos, tmp_path):
    """A data set with errors in two training videos, one of validation and one of test."""
    for video in tiny_videos[-2:]:
        video["split"] = "val"
    folder, lines = make_source(), [""]
    wrong = {"b": {0: ["order"], 4: ["order", "other"]}, "e": {1: ["other"]}, "j": {3: ["other"]}}
    missing = {"c": ["WAIT", 3, "no such step", 99]}
    for video in tiny_videos:
        name, steps = video["video_id"], range(len(video["steps"]))
        value = {"video_id": name, "steps": [wrong.get(name, {}).get(at, []) for at in steps]}
        lines.append(json.dumps(value | {"missing": missing.get(name, []), "more": 1}))
    (folder / "errors.jsonl").write_text("\n".join(lines))
    return prepare_custom(folder, tmp_path / "DATA")


def test_missing_steps_are_ids_as_numbers_and_names_as_text(
    make_source, tiny_taxonomy, tiny_videos, tmp_path
):
    """Of actions that are called by numbers."""
    for action in tiny_taxonomy["actions"]:
        action["name"] = str((action["id"] + 1) % 8)
    folder = make_source(taxonomy=tiny_taxonomy)
    line = {"video_id": "a", "steps": [[], [], []], "missing": [3, 2, "3", "0"]}
    (folder / "errors.jsonl").write_text(json.dumps(line))
    assert prepare_custom(folder, tmp_path / "DATA").videos[0].missing == (3, 2, 2, 7)


def test_errors_beside_videos(prepared, tiny_dataset, tmp_path):
    wrong = {video.video_id: video.missing for video in prepared.videos if not video.clean}
    assert wrong == {"b": (), "c": (2, 3), "e": (), "j": ()}
    assert errors_of(prepared.videos)[1] == [("order",), (), (), (), ("order", "other")]
    assert "left out 2 missing steps of no known action" in prepared.provenance["notes"][-1]
    write_videos(tmp_path / "videos.jsonl", prepared.videos)
    again = read_videos(tmp_path / "videos.jsonl", prepared.taxonomy)
    assert again == prepared.videos  # which leaves out errors of steps
    assert errors_of(again) == errors_of(prepared.videos)
    counts = {"videos": 4, "steps": 4, "missing": 2, "kinds": {"other": 3, "order": 2}}
    assert describe(prepared.folder)["errors"] == counts
    assert describe(tiny_dataset.folder)["errors"] is None


@pytest.mark.parametrize(
    ("name", "line", "match"),
    [
        ("errors", {"video_id": "a", "steps": [[]]}, "has no video 'a' with 1 steps. Correct"),
        ("errors", {"video_id": "a"}, r"not a video.*\[kinds of errors\] for each step"),
        ("videos", {"errors": [["x"]]}, "'errors' of 1 steps; expected 3. Correct"),
        ("videos", {"missing": [8]}, r"'missing' \[8\]; expected ids of actions. Correct"),
    ],
)
def test_errors_that_do_not_fit(make_source, tiny_videos, name, line, match):
    if name == "videos":
        tiny_videos[0] |= line
    folder = make_source()
    (folder / "errors.jsonl").write_text(json.dumps(line) * (name == "errors"))
    with pytest.raises(DataError, match=rf"{name}.jsonl, line 1: .*{match}"):
        read_common(folder)


def places(windows):
    return set(zip(windows.video.tolist(), windows.start.tolist(), strict=True))


@pytest.mark.parametrize("errors", ["keep", "windows", "videos"])
def test_what_is_left_out_of_training(prepared, tiny_dataset, errors):
    cut = {name: cut_windows(prepared, horizon=2, split=name) for name in ("train", "val", "test")}
    for selection in ("held-out", "published"):
        train, chosen = fitting_windows(prepared, horizon=2, selection=selection, errors=errors)
        for windows, whole in ((train, cut["train"]), (chosen, cut[chosen.split])):
            untouched = errors == "keep" or windows.split == "test"
            assert (places(windows) == places(whole)) is untouched
            assert windows.wrong.any() == untouched
    left_out = {video for video, _ in places(cut["train"]) - places(train)}
    names = {prepared.videos[video].video_id for video in left_out}
    assert names == {"keep": set(), "windows": {"b"}, "videos": {"b", "c"}}[errors]
    own = cut["train"].subset(np.array(cut["train"].wrong).nonzero()[0])
    assert cut_windows(tiny_dataset, horizon=2, split="train").wrong is None
    if errors != "keep":
        with pytest.raises(DataError, match="all train windows have an error"):
            without_errors(own, prepared.videos, errors)
