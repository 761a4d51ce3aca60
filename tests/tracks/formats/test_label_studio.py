"""Label Studio's exports: `exported/label_studio*` were exported by version 1.23.2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cefito.data.readers.step_source import read_steps
from cefito.errors import DataError
from cefito.tracks.document import Choices
from cefito.tracks.reading import read
from refusals import refusal
from tracks.formats.samples import spans

EXPORTED = Path(__file__).resolve().parent.parent / "exported"
TEA = Choices(task="make tea", frame_rate=4)


def test_an_export():
    name = "label_studio.json"
    found = read_steps(EXPORTED / name, choices=TEA)
    videos = [f"tea_0{number}" for number in range(1, 6)]
    assert [video.video_id for video in found.annotations.videos] == videos
    assert spans(found) == [  # frames 5 to 14 are 1 to 3.5 s: 4 a second, counted from 1
        ("Fill kettle", 1.0, 3.5),
        ("Boil water", 3.5, 6.0),
        ("Add tea leaves", 6.5, 9.0),
        ("Pour water", 9.0, 11.5),
    ]
    assert spans(found, 1)[0][0] == "Boil water"
    assert found.notes[0] == (
        f"{name}: Label Studio; each region of the control tag 'steps' is a step."
    )


def test_a_table_of_videos_has_what_the_export_has_not(tmp_path):
    table = tmp_path / "videos.csv"
    lines = [
        f"tea_0{n}.mp4,make tea,{'test' if n == 5 else 'train'},{2 * n},P{n}" for n in range(1, 6)
    ]
    table.write_text(
        "\n".join(["video,task,split,frame_rate,group", *lines, "tea_09,tea,train,1,"])
    )
    found = read_steps(EXPORTED / "label_studio.json", choices=Choices(video_table=table))
    assert [video.split for video in found.annotations.videos] == ["train"] * 4 + ["test"]
    assert [video.group for video in found.annotations.videos] == ["P1", "P2", "P3", "P4", "P5"]
    assert spans(found)[0] == ("Fill kettle", 2.0, 7.0)
    assert spans(found, 1)[0][1:] == (1.5, 4.0)
    assert found.notes[1] == "videos.csv: no steps in 1 video, such as 'tea_09'."
    table.write_text("video,task\ntea_01,make tea\n")
    match = r"videos.csv: names no task of video 'tea_02'. Add it, or one task for all."
    with pytest.raises(DataError, match=match):
        read_steps(EXPORTED / "label_studio.json", choices=Choices(video_table=table, frame_rate=4))


def region(kind, **value):
    return {"type": kind, "from_name": "tag", "to_name": "video", "value": value}


def annotation(*results, **more):
    return {"result": list(results), "updated_at": "2026-01-01", **more}


def export(path, *tasks):
    path.write_text(json.dumps(list(tasks)))
    return path


def test_seconds_boxes_and_several_annotations(tmp_path):
    first = region("labels", start=0.5, end=2.25, channel=0, labels=["boil", "wait"])
    boxes = region("videorectangle", sequence=[{"frame": 1, "enabled": True}], labels=["cup"])
    words = region("labels", start=0, end=4, text="boil", labels=["verb"])
    kept = annotation(first, boxes, words, region("choices", choices=["good"]))
    path = export(
        tmp_path / "x.json",
        {
            "id": 7,
            "data": {"film": "s3://films/a%20b.webm?X-Amz=1", "task": "tea", "split": "train"},
            "annotations": [
                annotation(region("labels", start=1, end=2, labels=["old"])),
                {**kept, "updated_at": "2026-02-01"},
                annotation(was_cancelled=True, updated_at="2026-03-01"),
            ],
        },
        {"id": 8, "data": {"video": "/data/local-files/?d=c/d.mp4"}, "annotations": []},
    )
    found = read_steps(path)
    (video,), (task,) = found.annotations.videos, found.annotations.taxonomy.tasks
    assert (video.video_id, video.split, task.name) == ("a b", "train", "tea")
    assert spans(found) == [("boil", 0.5, 2.25), ("wait", 0.5, 2.25)]
    assert "1 boxes of tracked objects, which have no steps" in found.notes[1]
    assert "1 older annotations of a task" in found.notes[1]
    assert "1 tasks without an annotation" in found.notes[1]


@pytest.mark.parametrize(("entry", "video"), [("video", "b"), ("film", "a")])
def test_the_entry_video_goes_before_other_media_and_the_first_of_these(tmp_path, entry, video):
    value = region("labels", start=1, end=2, labels=["boil"]) | {"to_name": "tag"}
    data = {"audio": "s3://x/a.wav", entry: "s3://x/b.mp4", "task": "tea"}
    path = export(tmp_path / "x.json", {"data": data, "annotations": [annotation(value)]})
    assert read_steps(path).annotations.videos[0].video_id == video


def test_the_ground_truth_wins(tmp_path):
    truth = annotation(region("labels", start=1, end=2, labels=["true"]), ground_truth=True)
    newer = annotation(region("labels", start=1, end=2, labels=["new"]), updated_at="2026-09-09")
    data = {"video": "https://example.org/v.mp4", "task": "tea"}
    path = export(tmp_path / "x.json", {"data": data, "annotations": [truth, newer]})
    assert spans(read_steps(path)) == [("true", 1.0, 2.0)]


def test_a_region_is_of_the_video_of_its_tag(tmp_path):
    left = region("labels", start=1, end=2, labels=["boil"]) | {"to_name": "left"}
    right = region("labels", start=3, end=4, labels=["pour"]) | {"to_name": "right"}
    data = {"video": "c.mp4", "left": "a.mp4", "right": "b.mp4", "task": " tea", "split": "Train"}
    task = {"data": data, "annotations": [annotation(left, right)]}
    found = read_steps(export(tmp_path / "x.json", task))
    assert [(video.video_id, video.split) for video in found.annotations.videos] == [
        ("a", "train"),
        ("b", "train"),
    ]
    assert found.annotations.taxonomy.tasks[0].name == "tea"
    data["split"] = "validation"
    with pytest.raises(DataError, match=r"region 1, .*region 2: .*'validation'"):
        read_steps(export(tmp_path / "x.json", task))


@pytest.mark.parametrize(
    ("results", "tier", "steps"),
    [
        (
            [
                region(
                    "timeserieslabels", start=0, end=4.0, instant=False, timeserieslabels=["boil"]
                )
            ],
            None,
            [("boil", 0.0, 4.0)],
        ),
        (
            [
                {"id": "r1", **region("labels", start=1, end=2, labels=["action"])},
                {
                    "id": "r1",
                    **region("choices", start=1, end=2, choices=["boil"]),
                    "from_name": "s",
                },
                {"id": "r2", **region("labels", start=2, end=4, labels=["action"])},
                {"id": "r2", **region("choices", choices=["pour", "stir"]), "from_name": "s"},
            ],
            "s",
            [("boil", 1.0, 2.0), ("pour", 2.0, 4.0), ("stir", 2.0, 4.0)],
        ),
        (
            [region("taxonomy", ranges=[{"start": 1, "end": 4}], taxonomy=[["tea", "boil"]])],
            None,
            [("tea/boil", 0.0, 1.0)],
        ),
    ],
)
def test_regions_of_other_tags(results, tier, steps, tmp_path):
    task = {"data": {"video": "v.mp4"}, "annotations": [annotation(*results)]}
    choices = Choices(task="tea", tier=tier, frame_rate=4)
    assert spans(read_steps(export(tmp_path / "x.json", task), choices=choices)) == steps


def test_the_rate_of_the_film_is_not_the_one_of_the_timeline(tmp_path):
    value = region("timelinelabels", ranges=[{"start": 1, "end": 20}], timelinelabels=["boil"])
    data = {"video": "v.mp4", "task": "tea", "fps": 10}
    path = export(tmp_path / "x.json", {"data": data, "annotations": [annotation(value)]})
    with pytest.raises(DataError, match=r"Video tag, not the film's \(10 fps") as caught:
        read_steps(path)
    assert caught.value.setting == "frame_rate"
    films = [data | {"video": f"{rate}.mp4", "frameRate": f"{rate}"} for rate in (25, 20)]
    export(path, *({"data": film, "annotations": [annotation(value)]} for film in films))
    found = read_steps(path)  # each task has its own
    assert [spans(found, n) for n in (0, 1)] == [[("boil", 0.0, end)] for end in (0.8, 1.0)]
    assert spans(read_steps(path, choices=Choices(frame_rate=5))) == [("boil", 0.0, 4.0)]


def test_what_a_server_leaves_null(tmp_path):
    boil = region("labels", start=1, end=2, labels=["boil"])
    nulls = {"was_cancelled": None, "ground_truth": None, "updated_at": None}
    task = {"id": 1, "data": {"video": "v.mp4"}, "predictions": [{"result": [boil]}]}
    path = export(tmp_path / "x.json", task | {"annotations": [annotation(boil, **nulls)]})
    assert spans(read_steps(path, choices=Choices(task="tea"))) == [("boil", 1.0, 2.0)]
    later = annotation(updated_at="2027")  # empty
    export(path, task | {"annotations": [annotation(boil), later]})
    assert spans(read_steps(path, choices=Choices(task="tea"))) == [("boil", 1.0, 2.0)]


def test_a_choice_for_the_whole_video_is_its_task(tmp_path):
    results = region("labels", start=1, end=2, labels=["boil"]), region("choices", choices=["tea"])
    task = {"data": {"video": "a.mp4"}, "annotations": [annotation(*results)]}
    found = read_steps(export(tmp_path / "x.json", task))
    assert [one.name for one in found.annotations.taxonomy.tasks] == ["tea"]
    assert "choices" not in " ".join(found.notes)
    task["annotations"] = [annotation(*results, results[1])]
    refusal(DataError, read_steps, export(tmp_path / "x.json", task), match="holds no task")


@pytest.mark.parametrize("timeline", [True, False])
def test_a_choice_of_regions_names_their_errors(tmp_path, timeline):
    """As a Choices tag with perRegion: results of the region's id, with its times again or not."""
    regions = []
    for number, (label, kinds) in enumerate((("boil", []), ("pour", ["Order Error", "spilt"])), 1):
        frames = {"ranges": [{"start": 10 * number, "end": 10 * number + 9}]}
        of = {"id": f"r{number}", "to_name": "video"}
        step = {**frames, "timelinelabels": [label]}
        regions.append({**of, "type": "timelinelabels", "from_name": "steps", "value": step})
        if kinds:
            value = {**(frames if timeline else {}), "choices": kinds}
            regions.append({**of, "type": "choices", "from_name": "error", "value": value})
    task = {"id": 1, "data": {"video": "tea.mp4", "task": "tea"}}
    path = tmp_path / "export.json"
    path.write_text(json.dumps([{**task, "annotations": [{"result": regions}]}]))
    (track,) = read([path], Choices(frame_rate=10)).tracks
    assert [(step.name, step.errors) for step in track.steps] == [
        ("boil", ()),
        ("pour", ("Order Error", "spilt")),
    ]
    assert track.task == "tea"
