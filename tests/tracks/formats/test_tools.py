"""Formats of annotation tools: what becomes a step, and where it says so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cefito.data.readers.step_source import read_steps
from cefito.errors import DataError
from cefito.tracks.document import Choices
from cefito.tracks.formats import FORMATS
from tracks.formats.samples import (
    BORIS,
    CHAPTERS,
    CVAT,
    CVAT_TRACKS,
    SRT,
    VIA_JSON,
    VTT,
    cvat,
    spans,
)

SPANS = [("boil water", 0.5, 4.25), ("pour", 4.25, 6.0)]


@pytest.fixture
def read(tmp_path):
    """Read a text, by default as a file without a telling ending."""

    def read(content, name="one.txt", **choices):
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / name).write_text(text, encoding="utf-8")
        return read_steps(tmp_path / name, choices=Choices(**{"task": "tea"} | choices))

    return read


@pytest.mark.parametrize(
    ("content", "choices", "form", "note"),
    [
        (VIA_JSON, {"tier": "Step"}, "VIA", "temporal segment of the attribute 'Step'"),
        (BORIS, {}, "BORIS", "state event"),
        (BORIS.replace(",", "\t"), {}, "BORIS", "state event"),
        (CVAT, {"frame_rate": 4}, "CVAT", "run of frames of the tier 'tags'"),
        (VTT, {}, "WebVTT", "cue"),
        (SRT, {}, "SRT", "cue"),
    ],
)
def test_the_same_two_steps(read, content, choices, form, note):
    found = read(content, **choices)
    assert found.form == form
    assert found.annotations.videos[0].video_id == "one"
    assert spans(found) == SPANS
    assert found.notes[0] == f"one.txt: {form}; each {note} is a step."


def test_several_videos_and_attributes_of_via(read):
    found = read(VIA_JSON, tier="Step")
    assert [video.video_id for video in found.annotations.videos] == ["one", "two"]
    assert spans(found, 1) == [("pour", 1.0, 2.0)]
    assert found.notes[1] == "VIA: left out 1 entries of whole files or still frames."
    wrong = read(json.dumps(VIA_JSON).replace("Remark", "mistakes"))
    assert [step.errors for step in wrong.annotations.videos[0].steps] == [("slow",), ()]
    with pytest.raises(DataError, match=r"2 attributes: 'Step' \(3\), 'Remark' \(1\)"):
        read(VIA_JSON)


def test_events_of_boris_without_a_duration_are_left_out(read):
    assert read(BORIS).notes[1] == (
        "BORIS: left out 1 modifiers of behaviors, 1 point events, which have no duration."
    )
    with_task = BORIS.replace("Description", "task").replace("00:00,,Media", "00:00,coffee,Media")
    assert read(with_task, task=None).annotations.taxonomy.tasks[0].name == "coffee"
    with pytest.raises(DataError, match=r"task 'coffee', not 'tea'"):
        read(with_task)


def test_frames_of_cvat(read):
    text = cvat((0, "a"), (1, "a"), (3, "a"), (1, "b"), shift=100, every=5)
    assert spans(read(text, frame_rate=10)) == [("a", 10, 11), ("b", 10.5, 11), ("a", 11.5, 12)]
    match = r"only 1 tracks of objects\. Tag the frames of each step and export CVAT for images"
    with pytest.raises(DataError, match=match):
        read(CVAT_TRACKS, frame_rate=10)


def test_deleted_frames_of_cvat_are_bridged(read):
    frames = [(frame, "a" if frame < 10 else "b") for frame in range(20) if frame not in (4, 14)]
    text = cvat(*frames).replace("<size>99<", "<size>20<")
    found = read(text, frame_rate=1)
    assert spans(found) == [("a", 0, 10), ("b", 10, 20)]
    assert "CVAT: 2 gaps of deleted frames, which were bridged." in found.notes
    untagged = text.replace("</annotations>", '<image id="4" name="frame_000004"/></annotations>')
    assert spans(read(untagged, frame_rate=1))[:2] == [("a", 0, 4), ("a", 5, 10)]


def test_several_tasks_of_cvat(read):
    text = CVAT.replace("<task>", "<project><tasks><task>").replace(
        "</task>", "</task><task><id>6</id><name>two.mp4</name></task></tasks></project>"
    )
    text = text.replace('<image id="2"', '<image task_id="6" id="2"')
    text = text.replace('<image id="', '<image task_id="5" id="')
    found = read(text, frame_rate=4)
    assert [video.video_id for video in found.annotations.videos] == ["two", "one"]
    assert spans(found) == [("boil water", 0.5, 0.75)]


def test_chapters_end_where_the_next_begins(read):
    found = read(CHAPTERS, name="tea.txt")
    assert spans(found) == [("Intro", 0, 30), ("Boil water", 30, 65), ("Pour", 65, 3723)]
    assert found.annotations.videos[0].video_id == "tea"
    assert found.notes[1] == "chapters: left out 1 lines without a time."
    assert found.notes[2].startswith("Left out, since the end of their video is unknown: 1 step.")
    reverse = "Intro - 0:00\nBoil water 0:30\n"
    assert spans(read(reverse)) == [("Intro", 0, 30)]


def test_the_length_of_the_video_ends_the_last_chapter(read, tmp_path):
    (tmp_path / "videos.csv").write_text("video;seconds\ntea.mp4;1:10:00\n")
    found = read(CHAPTERS, name="tea.txt", video_table=tmp_path / "videos.csv")
    assert spans(found)[-1] == ("Outro", 3723, 4200)
    assert len(found.notes) == 3


def test_tables_with_times_in_front_are_no_chapters(read):
    text = "start\tend\tstep\tvideo\n0:30\t1:20\tpour\ta\n1:20\t1:30\tstir\ta\n"
    assert read(text).form == "table of steps"
    assert read(text.replace("\t", ",")).form == "table of steps"


def test_columns_are_of_tables_only(read):
    plain, asked = (read(VIA_JSON, tier="Step", columns=columns) for columns in ({}, {"step": "x"}))
    assert spans(asked) == spans(plain)  # the columns may be those of a table beside it
    said = "VIA: 1 of the files are no tables, so names of columns do not count there."
    assert said in asked.notes
    assert said not in plain.notes
    with pytest.raises(DataError, match=r"\(SRT\): has no tiers") as caught:
        read(SRT, tier="x")
    assert caught.value.setting == "tier"


def test_the_guide_lists_every_format():
    guide = (Path(__file__).resolve().parents[3] / "docs" / "your-own-data.md").read_text("utf-8")
    table = guide.partition("| format | recognised by |")[2].partition("\n\n")[0]
    assert [each.name for each in FORMATS if each.step and each.name not in table] == []


def test_long_lines_take_no_time(read):
    spaces = " " * 200_000
    for text in (f"0:00{spaces}\n0:30{spaces}x", f"a{spaces}0:0\n" * 3, "1\n" + "<" * 200_000):
        with pytest.raises(DataError):
            read(text)
    assert read("1\n0:00 --> 0:01\n" + "<" * 200_000).form == "SRT"


def via(*segments, attribute, **more):
    """A project of one film; segments are (start, end, values)."""
    metadata = {
        f"1_{number}": {"vid": "1", "z": list(times), "av": {"1": value}}
        for number, (*times, value) in enumerate(segments)
    }
    project = {"project": {"vid_list": ["1"]}, "attribute": {"1": {"aname": "S", **attribute}}}
    project |= {"file": {"1": {"fname": "one.mp4", "src": ""}}, "metadata": metadata}
    return project | {"view": {"1": {"fid_list": ["1"]}}} | more


OPTIONS = {"0": "boil", "1": "add, tea", "2": "pour"}


@pytest.mark.parametrize(
    ("kind", "value", "labels"),
    [
        (2, "1,2", ["add, tea", "pour"]),
        (2, "0", ["boil"]),
        (3, "2", ["pour"]),
        (4, "1", ["add, tea"]),
    ],
)
def test_attributes_with_options_in_via(kind, value, labels, read):
    found = read(via((0, 4, value), attribute={"type": kind, "options": OPTIONS}))
    assert [name for name, *_ in spans(found)] == labels


def test_values_that_are_no_option_are_counted(read):
    text = via((0, 4, "0"), (4, 5, "7"), (5, 6, "1,2"), attribute={"type": 4, "options": OPTIONS})
    found = read(text)
    assert spans(found) == [("boil", 0, 4)]
    assert found.notes[1] == "VIA: left out 2 values of 'S' that are none of its options."
    free = via((0, 4, "1,2"), attribute={"type": 1, "options": {}})
    assert spans(read(free)) == [("1,2", 0, 4)]


def test_two_views_of_one_film_in_via(read):
    attribute = {"type": 4, "options": OPTIONS}
    project = via(
        (0, 4, "0"), attribute=attribute, view={"1": {"fid_list": ["1"]}, "2": {"fid_list": ["1"]}}
    )
    project["metadata"]["2_x"] = {"vid": "2", "z": [1, 2], "av": {"1": "2"}}
    with pytest.raises(DataError, match=r"view 2: .*'one', as .*view 1 "):
        read(project)
    del project["metadata"]["2_x"]
    assert "1 videos without a segment" in read(project).notes[1]


def test_attributes_of_tags_in_cvat(read):
    text = cvat(*((n, "step") for n in range(4)))
    actions = iter(["boil", "boil", "pour", "pour"])
    value = '"><attribute name="action">{}</attribute></tag>'
    text = re.sub('" source="manual"></tag>', lambda _: value.format(next(actions)), text)
    with pytest.raises(DataError, match=r"2 tiers: ('tags' \(1\), 'step/action' \(2\)|'step/act)"):
        read(text, frame_rate=1)
    assert spans(read(text, frame_rate=1, tier="step/action")) == [("boil", 0, 2), ("pour", 2, 4)]
    assert spans(read(text, frame_rate=1, tier="tags")) == [("step", 0, 4)]


def test_jobs_and_names_of_frames_in_cvat(read):
    text = cvat((0, "a"), (1, "a"), every=5)
    job = text.replace("<task>", "<job>").replace("</task>", "</job>")
    for one in (
        text,
        job,
        job.replace('5" width', '5.PNG" width').replace('0" width', '0.PNG" width'),
    ):
        assert spans(read(one, frame_rate=10)) == [("a", 0, 1)]
    images = re.sub(r'name="frame_\d+"', 'name="img.jpg"', job)
    assert spans(read(images, frame_rate=10)) == [("a", 0, 1)]
    with pytest.raises(DataError, match="at most 18 digits"):
        read(text.replace("000005", "9" * 400), frame_rate=10)


@pytest.mark.parametrize("name", ["{}/frame_{:04d}.png", "{}/x{:04d}.png"])
def test_folders_of_images_in_cvat_are_films(name, read):
    names = [name.format(folder, frame) for folder in ("P01", "P02") for frame in range(3)]
    images = "".join(
        f'<image id="{number}" name="{one}"><tag label="{label}"/></image>'
        for number, (one, label) in enumerate(zip(names, "aabbcc", strict=True))
    )
    found = read(cvat(more=images), frame_rate=1)
    assert [video.video_id for video in found.annotations.videos] == ["P01", "P02"]
    assert [spans(found, number) for number in (0, 1)] == [
        [("a", 0, 2), ("b", 2, 3)],
        [("b", 0, 1), ("c", 1, 3)],
    ]


def test_two_tasks_of_one_film_in_cvat(read):
    one = "<task><id>{0}</id><name>n{0}</name><source>one.mp4</source></task>"
    meta = f"<project><tasks>{''.join(map(one.format, (5, 6, 7)))}</tasks></project>"
    image = '<image task_id="{}" id="0" name="frame_000000"><tag label="a"></tag></image>'
    images = "".join(map(image.format, (5, 6)))
    text = f"<annotations><version>1.1</version><meta>{meta}</meta>{{}}</annotations>"
    with pytest.raises(DataError, match=r"task 6: .*'one', as .*task 5 "):
        read(text.format(images), frame_rate=1)
    found = read(text.format(image.format(5)), frame_rate=1)
    assert found.notes[1] == "CVAT: left out 2 tasks without a tagged frame."


def test_comments_of_xml_are_no_elements(read):
    for text in ("<x>" + "<!--" + "-->x<!--" * 40, "<x>" + "<!-- -->" * 4000 + "<y/></x>"):
        with pytest.raises(DataError, match="is of no known format"):
            read(text)
    comment = "<annotations><!-- a <b> -->"
    assert spans(read(CVAT.replace("<annotations>", comment), frame_rate=4)) == SPANS
