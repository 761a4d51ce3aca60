"""Formats of annotation tools: what becomes a step, and where it says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from samples import (
    ANVIL,
    BORIS,
    CHAPTERS,
    CVAT,
    CVAT_TRACKS,
    SRT,
    VIA_CSV,
    VIA_JSON,
    VIA_SEGMENTS,
    VIDAT,
    VTT,
    cvat,
)

from cefito.data.readers import Choices, read_steps
from cefito.data.readers.formats import FORMATS
from cefito.errors import DataError

SPANS = [("boil water", 0.5, 4.25), ("pour", 4.25, 6.0)]


@pytest.fixture
def read(tmp_path):
    """Read a text, by default as a file without a telling ending."""

    def read(content, name="one.txt", **choices):
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / name).write_text(text, encoding="utf-8")
        return read_steps(tmp_path / name, choices=Choices(**{"task": "tea"} | choices))

    return read


def spans(source, number=0):
    names = [action.name for action in source.annotations.taxonomy.actions]
    steps = source.annotations.videos[number].steps
    return [(names[step.action], step.start, step.end) for step in steps]


@pytest.mark.parametrize(
    ("content", "choices", "form", "note"),
    [
        (VIA_JSON, {"tier": "Step"}, "VIA", "temporal segment of the attribute 'Step'"),
        (VIA_CSV, {"tier": "Step"}, "VIA", "temporal segment of the attribute 'Step'"),
        (VIA_SEGMENTS, {}, "VIA", "temporal segment of the attribute 'Step'"),
        (VIDAT, {}, "Vidat", "action"),
        (BORIS, {}, "BORIS", "state event"),
        (BORIS.replace(",", "\t"), {}, "BORIS", "state event"),
        (ANVIL, {}, "ANVIL", "element of the track 'Cook.Step'"),
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
    with pytest.raises(DataError, match=r"has 2 attributes: 'Step' \(3\), 'Remark' \(1\). Choose"):
        read(VIA_JSON)


def test_events_of_boris_without_a_duration_are_left_out(read):
    assert read(BORIS).notes[1] == (
        "BORIS: left out 1 modifiers of behaviors, 1 point events, which have no duration."
    )
    with_task = BORIS.replace("Description", "task").replace("00:00,,Media", "00:00,coffee,Media")
    assert read(with_task, task=None).annotations.taxonomy.tasks[0].name == "coffee"
    with pytest.raises(DataError, match=r"holds the task 'coffee', not 'tea'. Leave that out"):
        read(with_task)


def test_a_film_from_a_disk_has_the_name_of_vidats_file(read):
    value = json.loads(json.dumps(VIDAT))
    value["annotation"]["video"]["src"] = "blob:https://vidat2.davidz.cn/1b2c"
    assert read(value, name="film 7.json").annotations.videos[0].video_id == "film 7"


def test_attributes_of_a_track_of_anvil(read):
    hand = '<attribute name="action">pour</attribute><attribute name="hand">left</attribute>'
    text = ANVIL.replace('<attribute name="action">pour</attribute>', hand)
    found = read(text, tier="Cook.Step/action")
    assert spans(found) == SPANS
    assert "1 elements that refer to other tracks" in found.notes[1]
    with pytest.raises(
        DataError, match=r"has 2 tracks: 'Cook.Step/action' \(2\), 'Cook.Step/hand'"
    ):
        read(text)


def test_frames_of_cvat(read):
    text = cvat((0, "a"), (1, "a"), (3, "a"), (1, "b"), shift=100, every=5)
    assert spans(read(text, frame_rate=10)) == [("a", 10, 11), ("b", 10.5, 11), ("a", 11.5, 12)]
    match = r"only 1 tracks of objects\. Export tags as CVAT for images 1\.1, or choose the tier"
    with pytest.raises(DataError, match=match):
        read(CVAT_TRACKS, frame_rate=10)


def test_several_tasks_of_cvat(read):
    text = CVAT.replace("<task>", "<project><tasks><task>").replace(
        "</task>", "</task><task><id>6</id><name>two.mp4</name></task></tasks></project>"
    )
    text = text.replace('<image id="2"', '<image task_id="6" id="2"')
    text = text.replace('<image id="', '<image task_id="5" id="')
    found = read(text, frame_rate=4)
    assert [video.video_id for video in found.annotations.videos] == ["two", "one"]
    assert spans(found) == [("boil water", 0.5, 0.75)]


@pytest.mark.parametrize("ending", ["vtt", "srt"])
def test_captions_that_a_tool_wrote(ending, read):
    webvtt = pytest.importorskip("webvtt")
    captions = webvtt.WebVTT()
    captions.captions.append(webvtt.Caption("00:00:00.500", "00:00:04.250", "boil\nwater"))
    captions.captions.append(webvtt.Caption("00:00:04.250", "00:00:06.000", "pour"))
    text = captions.content if ending == "vtt" else captions_as_srt(captions)
    assert spans(read(text.replace("\n", "\r\n"))) == SPANS


def captions_as_srt(captions):
    import io

    buffer = io.StringIO()
    captions.write(buffer, format="srt")
    return buffer.getvalue()


def test_chapters_end_where_the_next_begins(read):
    found = read(CHAPTERS, name="tea.txt")
    assert spans(found) == [("Intro", 0, 30), ("Boil water", 30, 65), ("Pour", 65, 3723)]
    assert found.annotations.videos[0].video_id == "tea"
    assert found.notes[1].startswith("Left out, since the end of their video is unknown: 1 step.")
    reverse = "Intro - 0:00\nBoil water 0:30\n"
    assert spans(read(reverse)) == [("Intro", 0, 30)]


def test_the_length_of_the_video_ends_the_last_chapter(read, tmp_path):
    (tmp_path / "videos.csv").write_text("video;seconds\ntea.mp4;1:10:00\n")
    found = read(CHAPTERS, name="tea.txt", video_table=tmp_path / "videos.csv")
    assert spans(found)[-1] == ("Outro", 3723, 4200)
    assert len(found.notes) == 2


def test_tables_with_times_in_front_are_no_chapters(read):
    text = "start\tend\tstep\tvideo\n0:30\t1:20\tpour\ta\n1:20\t1:30\tstir\ta\n"
    assert read(text).form == "table of steps"
    assert read(text.replace("\t", ",")).form == "table of steps"


def test_speech_is_told_apart(read):
    lines = (f"{n}\n00:00:{n:02d},000 --> 00:00:{n:02d},900\nWords {'x' * n}\n" for n in range(30))
    assert any(
        note.startswith("30 of 30 names of steps occur once.")
        for note in read("\n".join(lines)).notes
    )


def test_columns_are_of_tables_only(read):
    with pytest.raises(DataError, match=r"\(VIA\): is no table, whose columns") as caught:
        read(VIA_JSON, columns={"step": "x"})
    assert caught.value.setting == "column"
    with pytest.raises(DataError, match=r"\(SRT\): has no tiers to choose from") as caught:
        read(SRT, tier="x")
    assert caught.value.setting == "tier"


def test_the_guide_lists_every_format():
    guide = (Path(__file__).resolve().parents[4] / "docs" / "your-own-data.md").read_text("utf-8")
    table = guide.partition("| format | recognised by |")[2].partition("\n\n")[0]
    assert [each.name for each in FORMATS if each.step and each.name not in table] == []


def test_long_lines_take_no_time(read):
    spaces = " " * 200_000
    for text in (f"0:00{spaces}\n0:30{spaces}x", f"a{spaces}0:0\n" * 3, "1\n" + "<" * 200_000):
        with pytest.raises(DataError):
            read(text)
    assert read("1\n0:00 --> 0:01\n" + "<" * 200_000).form == "SRT"
