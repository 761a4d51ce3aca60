"""Broken files of every format: each is refused in one line that names file and format."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from cefito.data.readers.step_source import read_steps
from cefito.errors import DataError
from cefito.tracks.document import Choices
from tracks.formats.samples import BORIS, CHAPTERS, CVAT, SRT, VIA_JSON, VTT

EXPORT = (Path(__file__).resolve().parents[1] / "exported" / "label_studio.json").read_text()
VIA = json.dumps(VIA_JSON)
EAF = """<?xml version="1.0" encoding="UTF-8"?>
<ANNOTATION_DOCUMENT VERSION="3.0">
<HEADER TIME_UNITS="milliseconds"><MEDIA_DESCRIPTOR MEDIA_URL="file:///one.mp4"/></HEADER>
<TIME_ORDER><TIME_SLOT TIME_SLOT_ID="ts1" TIME_VALUE="500"/>
<TIME_SLOT TIME_SLOT_ID="ts2" TIME_VALUE="4250"/></TIME_ORDER>
<TIER TIER_ID="Steps"><ANNOTATION><ALIGNABLE_ANNOTATION ANNOTATION_ID="a1" TIME_SLOT_REF1="ts1"
 TIME_SLOT_REF2="ts2"><ANNOTATION_VALUE>boil</ANNOTATION_VALUE></ALIGNABLE_ANNOTATION></ANNOTATION>
</TIER></ANNOTATION_DOCUMENT>
"""
LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
BOMB = f'<!DOCTYPE x [<!ENTITY l0 "ha">{LAUGHS}]>'


def with_doctype(text, declared):
    head, _, rest = text.partition("?>\n")
    return f"{head}?>\n{declared}\n{rest}".replace(">boil", ">&l11;").replace("boil", "&l11;")


BROKEN = {
    "elan cut": ("ELAN", EAF[:-40], "is damaged XML"),
    "elan without a slot": ("ELAN", EAF.replace('ID="ts2"', 'ID="ts3"'), "is damaged or not whole"),
    "elan unaligned": ("ELAN", EAF.replace(' TIME_VALUE="4250"', ""), "between borders without"),
    "elan words as times": ("ELAN", EAF.replace("4250", "soon"), "is damaged or not whole"),
    "elan backwards": ("ELAN", EAF.replace("4250", "42"), "the step runs from 0.5 to 0.042"),
    "elan in frames": ("ELAN", EAF.replace("milliseconds", "PAL-frames"), "counts times in 'PAL-"),
    "elan without labels": ("ELAN", EAF.replace("boil", ""), "holds no annotation with a label"),
    "elan with a bomb": ("ELAN", with_doctype(EAF, BOMB), "declares XML entities"),
    "cvat without labels": ("CVAT", CVAT.replace("tag label", "tag name"), "is damaged or not"),
    "cvat without tags": ("CVAT", re.sub("<image.*", "", CVAT), "holds no run of frames"),
    "via cut": ("VIA", VIA[:-50], "is damaged JSON"),
    "via without views": ("VIA", VIA.replace('"view"', '"views"'), "is not as VIA writes it (view"),
    "via times": ("VIA", VIA.replace("[0.5, 4.25]", '["a", 1]'), "metadata.1_a.z.0"),
    "via empty view": ("VIA", VIA.replace('["1"]}', "[]}"), "is damaged or not whole"),
    "via without films": ("VIA", VIA.replace('"one.mp4"', '""'), "1_a: belongs to no video file."),
    "boris tabular": ("BORIS", "Observation id,Behavior,Time\no,boil,1\n", "Aggregated events"),
    "boris unpaired": ("BORIS", BORIS.replace("4.250,3.750", "NA,NA"), "line 2: has no times"),
    "boris two films": ("BORIS", BORIS.replace("one.mp4,106", "two.mp4,106"), "has several videos"),
    "boris only points": ("BORIS", BORIS.replace("STATE", "POINT"), "holds no state event with a"),
    "label studio csv": ("Label Studio", "annotation_id,annotator,id\n1,1,1\n", "holds no region"),
    "activitynet with half a character": (
        "ActivityNet",
        '{"database": {"v": {"annotations": [{"segment": [1, 2], "label": "a\\udc00"}]}}}',
        "is damaged JSON",
    ),
    "label studio deep": ("Label Studio", EXPORT + "[" * 99_999, "is damaged JSON"),
    "label studio ranges": ("Label Studio", EXPORT.replace('"ranges"', '"range"'), "(ranges: is m"),
    "label studio film": (
        "Label Studio",
        EXPORT.replace('"video":', '"v":').replace(".mp4", ""),
        "no video, nor do those of task 2, task 3",
    ),
    "label studio empty": ("Label Studio", '[{"data":{},"annotations":[]}]', "holds no region"),
    "vtt without times": ("WebVTT", VTT.replace("00:04.250 al", "later al"), "line 9: '00:00"),
    "vtt arrows": ("WebVTT", VTT.replace(" --> ", " to "), "label, only 2 blocks of text without"),
    "vtt backwards": ("WebVTT", VTT.replace("00:06", "00:01"), "the step runs from 4.25 to 1.0"),
    "vtt empty": ("WebVTT", "WEBVTT\n", "holds no cue with a label"),
    "srt times": ("SRT", SRT.replace("04,250", "4.250.1"), "line 6: '00:00:00,500 --> 00:00:4.25"),
    "chapters backwards": ("chapters", CHAPTERS.replace("1:05", "0:05"), "line 4: begins no ear"),
    "one chapter": ("chapters", "0:00 Boil\n", "holds no steps. Left out, since the end of"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_refused_in_one_line_that_names_the_format(case, tmp_path):
    form, text, message = BROKEN[case]
    path = tmp_path / "broken.txt"
    path.write_text(text, encoding="utf-8")
    tier = "Step" if form == "VIA" else None
    with pytest.raises(DataError) as caught:
        read_steps(path, choices=Choices(task="tea", frame_rate=25, tier=tier))
    found = str(caught.value)
    assert message in found
    assert found.startswith(f"{path} ({form})")
    assert "\n" not in found
    assert found.endswith(".")


@pytest.mark.parametrize("text", ['{"a": [1, 2]}', "[1]", "<?xml version='1.0'?><x/>", "{"])
def test_unknown_json_and_xml_are_no_tables(text, tmp_path):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(DataError, match=r"x\.csv: .*no known format \(.*ELAN"):
        read_steps(tmp_path / "x.csv")


WHOLE = {"ELAN": EAF, "CVAT": CVAT, "VIA": VIA, "BORIS": BORIS, "Label Studio": EXPORT}
WHOLE |= {"WebVTT": VTT, "SRT": SRT, "chapters": CHAPTERS}


@pytest.mark.parametrize("form", WHOLE)
def test_cut_and_changed_files_are_refused_in_one_line_or_read(form, tmp_path):
    data, path = WHOLE[form].encode(), tmp_path / "one.txt"
    for place in range(1, len(data), len(data) // 12):
        for change in (b"", b"null", b"-1e999", b"\n\n", b"\xff\x00", b"<", data[:place]):
            rest = data[place + 4 :] if change else b""
            path.write_bytes(data[:place] + change + rest)
            assert "\n" not in refusal(path, tier="Step" if form.startswith("VIA") else None)


def refusal(path, **choices):
    """The message about a file; empty if it is read."""
    try:
        read_steps(path, choices=Choices(task="tea", frame_rate=25, **choices))
    except DataError as problem:
        return str(problem)
    return ""
