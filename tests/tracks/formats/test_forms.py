"""Forms in which people and tools write steps: what is read, and what is refused by its name."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pytest

from cefito.data.readers.step_source import read_steps
from cefito.errors import ConfigError, DataError
from cefito.tracks import TimedStep, Track
from cefito.tracks.document import Choices, Document
from cefito.tracks.formats import FORMATS, WRITERS, in_order
from refusals import refusal
from tracks.formats.samples import spans

ABC = [("boil", 0.0, 4.0), ("pour", 4.0, 9.0), ("stir", 9.0, 12.0)]
TWO = ABC[:2]


@pytest.fixture
def read(tmp_path):
    """The steps of a text in a file, and the notes."""

    def read(text, name="tea1.txt", **choices):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        found = read_steps(path, choices=Choices(**{"task": "tea"} | choices))
        return spans(found), found

    return read


def table(columns, *times, video="tea1", separator=","):
    """Lines of a table, whose steps are those of ABC; `times` are cells of the other columns."""
    names = ["boil", "pour", "stir"]
    lines = [
        columns,
        *(f"{video},{name},{cells}" for name, cells in zip(names, times, strict=False)),
    ]
    return "\n".join(line.replace(",", separator) for line in lines) + "\n"


MILLI = "0,4000", "4000,9000", "9000,12000"
ELAN = "Begin Time - {0}\tEnd Time - {0}\tAnnotation\n"
OBSERVER = (
    "Time_Relative_sf,Duration_sf,Observation,Subject,Behavior,Event_Type\n"
    "0,4,tea1,cook,boil,State start\n4,0,tea1,cook,boil,State stop\n"
    "4,5,tea1,cook,pour,State start\n5,0,tea1,cook,sneeze,Point\n"
    "9,3,tea1,cook,stir,State start\n"
)
BORIS_7 = (
    "Observation id\to1\n\nMedia file(s)\n\nPlayer #1\ttea1.mp4\n\nTime offset (s)\t{}\n\n"
    "Time\tMedia file path\tSubject\tBehavior\tComment\tStatus\n"
    "{}\ttea1.mp4\t\tboil\t\tSTART\n{}\ttea1.mp4\t\tboil\t\tSTOP\n"
    "{}\ttea1.mp4\t\tsneeze\t\tPOINT\n"
    "{}\ttea1.mp4\t\tpour\t\tSTART\n{}\ttea1.mp4\t\tpour\t\tSTOP\n"
)
MIN = [
    {
        "id": 1,
        "annotation_id": 4,
        "annotator": 1,
        "video": "/data/upload/1/0a1b2c3d-tea1.mp4",
        "videoLabels": [
            {"ranges": [{"start": 1, "end": 100}], "timelinelabels": ["boil"]},
            {"ranges": [{"start": 101, "end": 225}], "timelinelabels": ["pour"]},
        ],
    }
]


def min_table(separator):
    text = io.StringIO()
    cells = {**MIN[0], "videoLabels": json.dumps(MIN[0]["videoLabels"])}
    csv.writer(text, delimiter=separator).writerows([[*cells], [*cells.values()]])
    return text.getvalue()


def label_studio(*ranges, **task):
    results = [
        {
            "type": "timelinelabels",
            "from_name": "steps",
            "value": {"ranges": [{"start": first, "end": last}], "timelinelabels": [name]},
        }
        for (first, last), name in zip(ranges, ["boil", "pour", "stir"], strict=False)
    ]
    made = {"result": results, "model_version": "other"}
    kinds = {kind: [made] for kind in task.pop("kinds", ("annotations",))}
    return json.dumps([{"id": 1, "data": {"video": "tea1.mp4"}, **kinds, **task}])


def activitynet(*names, key="annotations", label="label", **video):
    parts = [
        {"segment": [start, end], label: name}
        for name, (_, start, end) in zip(names, ABC, strict=False)
    ]
    return json.dumps({"database": {"tea1": {key: parts, **video}}})


NO_STEPS = "background", "bg", "null", "void", "no_action", "action_start", "action_end"
LABELS = "boil\n" * 4 + "pour\n" * 5 + "stir\n" * 3
MARKER = "{0}  001      V     C        {1} {1} {1} {1}  \n |C:ResolveColorBlue |M:{2} |D:{3}\n\n"


def markers(*rows, title="TITLE: t\nFCM: NON-DROP FRAME\n\n"):
    """Markers of Resolve: code, name and frames of each."""
    return title + "".join(MARKER.format(f"{n:03d}", *row) for n, row in enumerate(rows, 1))


def fiftyone(*detections, **export):
    return json.dumps({**export, "labels": {"tea1": detections}})


def sample(*fields, **facts):
    detections = {
        field: {"_cls": "TemporalDetections", "detections": [{"label": label, "support": support}]}
        for field, label, support in fields
    }
    return json.dumps({"samples": [{"filepath": "/d/tea1.mp4", **facts, **detections}]})


READ: dict[str, Any] = {
    # times at other places than chapters have them
    "SBV": ("0:00:00.000,0:00:04.000\nboil\n\n0:00:04.000,0:00:09.000\npour\n", {}, TWO),
    "SubViewer": (
        "[INFORMATION]\n[TITLE]x\n[END INFORMATION]\n\n00:00:00.00,00:00:04.00\nbo[br]il\n",
        {},
        [("bo il", 0, 4)],
    ),
    "numbers behind times": ("0:00 1. boil\n0:04 2. pour\n0:09 3. x", {}, TWO),
    "numbers and times at the end": ("1. boil 0:00\n2. pour 0:04\n3. x 0:09", {}, TWO),
    "steps with numbers": ("0:00 Step 1: boil\n0:04 Step 2: pour\n0:09 Step 3: x", {}, TWO),
    "steps with numbers alone": ("0:00 Schritt 1 boil\n0:04 Schritt 2 pour\n0:09 x", {}, TWO),
    "key caps": ("0:00 1️⃣ boil\n0:04 2️⃣ pour\n0:09 3️⃣ x", {}, TWO),
    "numbers alone": ("0:00 01 boil\n0:04 02 pour\n0:09 03 x", {}, TWO),
    "numbers of all": ("0:00 #1 boil\n0:04 #2 pour\n0:09 3/3: x", {}, TWO),
    "circled": ("0:00 ①boil\n0:04 ② pour\n0:09 ③ x", {}, TWO),
    "brackets": ("0:00 (1) boil\n0:04 (2) pour\n0:09 x", {}, TWO),
    "amounts stay": ("0:00 2 eggs\n0:04 3.5 mm\n0:09 x", {}, [("2 eggs", 0, 4), ("3.5 mm", 4, 9)]),
    "one number stays": ("0:00 boil\n0:04 2. pour\n0:09 x", {}, [ABC[0], ("2. pour", 4, 9)]),
    # tables
    "milliseconds": (
        table("video,step,start_ms,end_ms", *MILLI),
        {"columns": {"start": "start_ms", "end": "end_ms"}},
        ABC,
    ),
    "milliseconds of other names": (
        table("video,step,t0 (ms),start_time_in_ms", *MILLI),
        {"columns": {"start": "t0 (ms)", "end": "start_time_in_ms"}},
        ABC,
    ),
    "milliseconds without a sign": (
        table("video,step,startMs,endMillis", *MILLI),
        {"columns": {"start": "startMs", "end": "endMillis"}},
        ABC,
    ),
    "nanoseconds": (
        table("video,step,start,end_ns", "0,4e9", "4000000000,9e9").replace("start", "start_ns"),
        {"columns": {"start": "start_ns", "end": "end_ns"}},
        TWO,
    ),
    "hundredths": (
        table("video,step,start_cs,end_cs", "0,400"),
        {"columns": {"start": "start_cs", "end": "end_cs"}},
        ABC[:1],
    ),
    "microseconds": (
        table("video,step,start_us,end_us", "0,4000000"),
        {"columns": {"start": "start_us", "end": "end_us"}},
        ABC[:1],
    ),
    "quoted names and a video column of BIDS": (
        '"onset","duration","trial_type","video"\n0,4,boil,v\n4,5,pour,v\n',
        {},
        TWO,
    ),
    "minutes": (
        table("video,step,start_min,end_min", "0,0.5", "0.5,1:30"),
        {"columns": {"start": "start_min", "end": "end_min"}},
        [("boil", 0, 30), ("pour", 30, 90)],
    ),
    "timecodes": (
        table("video,step,start,end", "00:00:00:00,00:00:04:12"),
        {"frame_rate": 24},
        [("boil", 0, 4.5)],
    ),
    "drop-frame timecodes": (
        table("video,step,start,end", "01:00:00;00,01:00:04;15"),
        {"frame_rate": 30},
        [("boil", 3600, 3604.5)],
    ),
    "a timecode of all frames": (
        table("video,step,start,end", "01:00:00:00,01:00:00:15"),
        {"frame_rate": 30 / 1.001},
        [("boil", 3603.6, 3604.1005)],
    ),
    "milliseconds behind colons": (
        table("video,step,start,end", "00:00:00:000,00:00:04:000"),
        {},
        ABC[:1],
    ),
    "lengths": (table("video,step,start,duration", "0,4", "4,5"), {}, TWO),
    "lengths in milliseconds": (
        table("video,step,start,dur_ms", "0,4000", "4,5000"),
        {"columns": {"duration": "dur_ms"}},
        TWO,
    ),
    "starts alone": (table("video,step,start", "0", "4", "9") + "other,x,2\n", {}, TWO),
    "starts alone, as chosen": (
        table("video,step,start,id", "0,7", "4,8", "9,9"),
        {"columns": {"end": "start"}},
        TWO,
    ),
    "starts in another order": ("video,step,start\nv,pour,4\nv,x,9\nv,boil,0\n", {}, TWO),
    "no video": (
        "start,end,label\n0,4,boil\n4,9,pour\n",
        {"columns": {"step": "label"}, "by_file": True},
        TWO,
    ),
    "comments": ("# coder A, 25 fps\n\n#\n" + table("video,step,start,end", "0,4"), {}, ABC[:1]),
    "names in a comment": ("# " + table("video,step,start,end", "0,4"), {}, ABC[:1]),
    "numbered lines": ("#,video,step,start,end\n1,v,boil,0,4\n2,v,pour,4,9\n", {}, TWO),
    "annotation_id": (
        "annotation_id,annotator,video,step,start,end\na,1,v,boil,0,4\n",
        {},
        ABC[:1],
    ),
    "a column of BORIS": (
        "Observation id,Behavior,a,b\nv,boil,0,4\n",
        {"columns": {"video": "observation id", "step": "behavior", "start": "a", "end": "b"}},
        ABC[:1],
    ),
    "ELAN, seconds": (ELAN.format("ss.msec") + "0.0\t4.0\tboil\n4.0\t9.0\tpour\n", {}, TWO),
    "ELAN, milliseconds": (ELAN.format("msec") + "0\t4000\tboil\n4000\t9000\tpour\n", {}, TWO),
    "ELAN, clock": (ELAN.format("hh:mm:ss.ms") + "00:00:00.000\t00:00:04.000\tboil\n", {}, ABC[:1]),
    "ELAN, a column of a tier": (
        ELAN.format("ss.msec").replace("Annotation", "Steps") + "0\t4\tboil\n",
        {
            "columns": {
                "step": "steps",
                "start": "Begin Time - ss.msec",
                "end": "End Time - ss.msec",
            },
            "by_file": True,
        },
        ABC[:1],
    ),
    "ELAN, tier": (
        "Tier\t" + ELAN.format("msec") + "Steps\t0\t4000\tboil\nNotes\t0\t90\tx\n",
        {"tier": "Steps"},
        ABC[:1],
    ),
    "The Observer XT": (OBSERVER, {}, ABC),
    "The Observer XT, a subject": (
        OBSERVER.replace("4,5,tea1,cook", "4,5,tea1,help"),
        {"tier": "help"},
        ABC[1:2],
    ),
    "BIDS": ("onset\tduration\ttrial_type\n0\t4\tboil\n4\t5\tpour\n", {}, TWO),
    "Premiere, commas": (
        "Marker Name,In,Out\nboil,00:00:00:00,00:00:04:00\n",
        {"frame_rate": 25},
        ABC[:1],
    ),
    # tools
    "BORIS 7": (BORIS_7.format("0.0", 0, 4, 5, 4, 9), {}, TWO),
    "BORIS 7 with an offset": (BORIS_7.format("10.0", 10, 14, 15, 14, 19), {}, TWO),
    "BORIS without observations": (
        "Behavior,Subject,Start (s),Stop (s)\nboil,A,0,4\npour,A,4,9\n",
        {},
        TWO,
    ),
    "BORIS 8": (
        "Observation id,Subject,Behavior,Behavior type,Time,Media file name\n"
        "o,A,boil,START,0,tea1.mp4\no,A,pour,START,4,tea1.mp4\n"
        "o,A,boil,STOP,4,tea1.mp4\no,A,pour,STOP,9,tea1.mp4\n",
        {},
        TWO,
    ),
    "Label Studio from frame 0": (label_studio((0, 100), (101, 225)), {"frame_rate": 25}, TWO),
    "Label Studio's predictions": (
        label_studio((1, 100), (101, 225), kinds=("predictions",)),
        {"frame_rate": 25},
        TWO,
    ),
    "Label Studio without annotations": (
        label_studio((1, 100), (101, 225), kinds=("predictions",), annotations=[]),
        {"frame_rate": 25},
        TWO,
    ),
    "Label Studio, JSON-MIN": (json.dumps(MIN), {"frame_rate": 25}, TWO),
    "Label Studio, CSV": (min_table(","), {"frame_rate": 25}, TWO),
    "Label Studio, TSV": (
        min_table("\t").replace("annotator", "lead_time"),
        {"frame_rate": 25},
        TWO,
    ),
    "ActivityNet": (activitynet("boil", "pour", subset="training"), {}, TWO),
    "COIN": (
        activitynet("boil", "pour", key="annotation", **{"class": "tea"}),
        {"task": None},
        TWO,
    ),
    "YouCook2": (activitynet("boil", "pour", label="sentence"), {}, TWO),
    "BORIS, in no order": (
        "Observation id,Subject,Behavior,Behavior type,Time\n"
        "o,A,boil,START,0\no,A,boil,START,4\no,A,boil,STOP,4\no,A,boil,STOP,9\n",
        {},
        [("boil", 0, 4), ("boil", 4, 9)],
    ),
    "labels of frames": (LABELS, {"frame_rate": 1}, ABC),
    "labels of another background": (
        LABELS,
        {"frame_rate": 1, "background": "Pour, wait"},
        [ABC[0], ABC[2]],
    ),
    "labels of 50 Salads": (
        "action_start\n" * 4 + LABELS + "action_end\n",
        {"frame_rate": 1},
        [(n, s + 4, e + 4) for n, s, e in ABC],
    ),
    "segments of Audacity": ("0.000000\t4.000000\tboil\n4.0\t9.0\tpour\n", {}, TWO),
    "segments with spaces": (
        "# start end label\n0 4.0 boil\n4.0 9 add 2 eggs\n",
        {},
        [ABC[0], ("add 2 eggs", 4, 9)],
    ),
    "segments in frames": ("0 100 boil\n100 225 pour\n", {"frame_rate": 25}, TWO),
    "segments without a label": ("0.0 4.0 boil\n4.0 9.0\n", {}, ABC[:1]),
    "markers of Resolve": (
        markers(("01:00:00:00", "boil", 100), ("01:00:04:00", "pour", 125)),
        {"frame_rate": 25},
        TWO,
    ),
    "markers from nought": (
        markers(("00:00:00:00", "boil", 100), ("01:00:04:00", "pour", 125)),
        {"frame_rate": 25},
        [ABC[0], ("pour", 3604, 3609)],
    ),
    "markers of drop frames": (
        markers(("01;00;00;00", "boil", 60), title="TITLE: t\nFCM: DROP FRAME\n\n"),
        {"frame_rate": 30000 / 1001},
        [("boil", 0, 2.002)],
    ),
    "FiftyOne in frames": (
        fiftyone({"label": 1, "support": [1, 100]}, classes=["pour", "boil"]),
        {"frame_rate": 25},
        ABC[:1],
    ),
    "FiftyOne in seconds": (
        fiftyone(*({"label": n, "timestamps": [s, e], "confidence": 0.5} for n, s, e in TWO)),
        {},
        TWO,
    ),
    "samples of FiftyOne": (
        sample(("events", "boil", [1, 100]), tags=["train"], metadata={"frame_rate": 25}),
        {},
        ABC[:1],
    ),
    "a field of FiftyOne": (
        sample(("events", "boil", [1, 100]), ("found", "x", [1, 2])),
        {"frame_rate": 25, "tier": "events"},
        ABC[:1],
    ),
    "labels and background": (
        "SIL\n" * 4 + LABELS + "".join(2 * f"{name}\n" for name in NO_STEPS),
        {"frame_rate": 1},
        [(n, s + 4, e + 4) for n, s, e in ABC],
    ),
}


@pytest.mark.parametrize("case", READ)
def test_forms_that_are_read(case, read):
    text, choices, steps = READ[case]
    found, _ = read(text, **choices)
    assert [(name, pytest.approx(start), pytest.approx(end)) for name, start, end in steps] == found


EDL = "TITLE: t\nFCM: NON-DROP FRAME\n\n001  A  V  C  {0} {1} {0} {1}\n* FROM CLIP NAME: boil\n"
REFUSED: dict[str, Any] = {
    # other texts with times are no chapters
    "times in quotes": ('"0:00:00";"0:00:04";"boil"\n"0:00:04";"0:00:09";"x"\n', {}, "no column"),
    "a damaged head": (
        "WEBV<TT\n\n00:00.000 --> 00:04.000\nboil\n\n00:04.000 --> 00:09.000\npour\n",
        {},
        "is of no known format",
    ),
    "EDL": (EDL.format("00:00:00:00", "00:00:04:00"), {"frame_rate": 25}, "edit decision list"),
    "lengths at the end": ("boil 3:45\npour 4:10\nstir 5:01\n", {}, "is of no known format"),
    "a transcript": ("Ann 0:00\nhello\nBen 0:12\nhi\n", {}, "is of no known format"),
    "a log": ("saved at 10:00:01\nsaved at 10:00:02\n", {}, "is of no known format"),
    "times of day": ("10:00 am boil\n10:05 am pour\n10:09 pm x\n", {}, "is a time of day"),
    "JSON of times": ('{"0:00": "boil",\n"0:04": "pour"}\n', {}, "is of no known format"),
    "results": (
        json.dumps({"results": {"tea1": [{"label": "boil", "segment": [0, 4], "score": 1}]}}),
        {},
        "is results of ActivityNet, which is not read. Give the file of annotations",
    ),
    **{
        f"ELAN's text with {what}": (text, {}, "ELAN's tab-delimited text in another layout")
        for what, text in (
            ("tiers", "Begin Time - ss.msec\tEnd Time - ss.msec\tSteps\tNotes\n0\t4\tboil\t\n"),
            ("no columns", "Steps\t\t00:00:00.000\t0.0\t00:00:04.000\t4.0\tboil\n"),
            ("one form of time", "Steps\t\t0.0\t4.0\tboil\n"),
            ("files above", '"#file:///tea1.eaf"\nTier\t' + ELAN.format("msec") + "S\t0\t40\tb\n"),
        )
    },
    "TextGrid": ('File type = "ooTextFile"\nObject class = "TextGrid"\n', {}, "Praat TextGrid"),
    "Datavyu": (
        "#4\nstep (MATRIX,true,)-code|NOMINAL\n00:00:00:000,00:00:04:500,(boil)\n",
        {},
        "Dat",
    ),
    "ASS": ("[Script Info]\nTitle: x\n", {}, "Advanced SubStation"),
    "MicroDVD": ("{0}{100}boil\n{100}{225}pour\n", {}, "MicroDVD"),
    "FFmpeg": (";FFMETADATA1\n[CHAPTER]\nSTART=0\n", {}, "chapters of FFmpeg"),
    "OGM": ("CHAPTER01=00:00:00.000\nCHAPTER01NAME=boil\n", {}, "OGM chapters"),
    "CHAT": ("@UTF8\n@Begin\n*A: boil\n", {}, "CLAN's CHAT"),
    "FCPXML": ('<?xml version="1.0"?>\n<fcpxml version="1.9"/>', {}, "Final Cut Pro XML"),
    "Premiere": ("<!DOCTYPE xmeml>\n<xmeml version='4'/>", {}, "Final Cut Pro 7 XML"),
    "ANVIL": ("<?xml version='1.0'?><annotation><head/></annotation>", {}, "of ANVIL"),
    "TTML": ("<tt xmlns='http://www.w3.org/ns/ttml'><body/></tt>", {}, "TTML captions"),
    "VIA's CSV": ("# Exported\n# CSV_HEADER = metadata_id,file_list\n", {}, "Give its project"),
    "VIA 2": ('{"_via_img_metadata": {}}', {}, "a project of VIA 2"),
    "LosslessCut": ("{ version: 1, mediaFileName: 'a', cutSegments: [] }", {}, "LosslessCut"),
    "Vidat": ('{"annotation": {"actionAnnotationList": []}}', {}, "Vidat"),
    "COCO": ('{"images": [], "annotations": [{"bbox": []}], "categories": []}', {}, "COCO"),
    "captions": (
        '{"v_1": {"timestamps": [[0, 1]], "sentences": ["x"]}}',
        {},
        "ActivityNet Captions",
    ),
    "JSON lines": ('{"video": "a", "task_probability": 1}\n', {}, "is not as JSON lines writes"),
    "yt-dlp": ('{"chapters": [{"start_time": 0.0, "title": "x"}]}', {}, "yt-dlp"),
    "Whisper": ('{"text": "", "segments": [{"start": 0, "text": "x"}]}', {}, "Whisper"),
    "cue sheet": ("TRACK 01 AUDIO\n  INDEX 01 00:00:00\n", {}, "a cue sheet"),
    "frames as seconds": (activitynet("boil", duration=0.16), {}, "ends at 4 of 0.16 s"),
    "Breakfast": ("1-30 SIL\n31-150 take_cup\n", {}, "ranges of frames"),
    "segments, seconds or frames": ("0 4 boil\n4 9 pour\n", {}, "holds whole numbers alone"),
    "a line that is no segment": ("0.0 4.0 boil\n4.0 pour\n", {}, "line 2: is not a start, an end"),
    "BORIS without subjects": ("Behavior,Start (s),Stop (s)\nboil,0,4\n", {}, "no column 'step'"),
    "annotation_id alone": ("annotation_id,id,video\n4,1,v.mp4\n", {}, "no column 'step'"),
    "times of SBV in a text": (
        "as spoken\n\n0:00:00.000,0:00:04.000\nboil\n",
        {},
        "above the names of columns",
    ),
    **{
        f"not all that {form} has": (text, {"frame_rate": 25}, words)
        for form, text, words in (
            ("The Observer", "Time_Relative_sf,Duration_sf,Behavior\n0,4,boil\n", "column 'step'"),
            ("CVAT", "<annotations><image/></annotations>", "is of no known format"),
            ("FiftyOne", '{"labels": {"tea1": [{"label": "boil"}]}}', "is of no known format"),
            ("Resolve", " |C:ResolveColorBlue |M:boil |D:9\n", "Expected the columns"),
            ("ActivityNet", '{"database": {"a": {"annotations": []}}}', "is of no known format"),
            ("a folder of labels", "boil\nboil\npour\nstir\nstir\n", "is of no known format"),
        )
    },
    "segments, the first without a label": (
        "0.0 4.0\n4.0 9.0 pour\n",
        {},
        "is of no known format",
    ),
    "segments backwards": ("0.0 4.0 boil\n9.0 4.0 pour\n", {}, "line 2: the step runs from 9.0"),
    "markers without a rate": (markers(("01:00:00:00", "boil", 9)), {}, "holds no frame rate"),
    "markers of one frame": (
        markers(("01:00:00:00", "boil", 1), ("01:00:04:00", "pour", 1)),
        {"frame_rate": 25},
        "markers of one frame alone",
    ),
    "markers without a time": (
        markers(("01:00:00:99", "boil", 1)).replace("01:00:00:99", "soon"),
        {"frame_rate": 25},
        "line 5: names no time",
    ),
    "markers of another rate": (
        markers(("01:00:00:29", "boil", 9)),
        {"frame_rate": 25},
        "has 29 of 25 frames",
    ),
    "FiftyOne without frames": (
        fiftyone({"label": "boil", "timestamps": [0, 4]}, {"label": "pour"}),
        {},
        "has neither support nor timestamps",
    ),
    "FiftyOne of no rate": (
        fiftyone({"label": "boil", "support": [1, 9]}),
        {},
        "video 'tea1', detection 1: counts frames",
    ),
    "FiftyOne of an unknown class": (
        fiftyone({"label": 4, "timestamps": [0, 4]}, classes=["boil"]),
        {},
        "video 'tea1', detection 1: has the number 4 of no class",
    ),
    "FiftyOne of two fields": (
        sample(("events", "boil", [1, 100]), ("found", "x", [1, 2]), metadata={"frame_rate": 25}),
        {},
        "has 2 fields: 'events' (1), 'found' (1)",
    ),
    # units
    "one column in milliseconds": (
        table("video,step,start_ms,end", "0,4"),
        {"columns": {"start": "start_ms"}},
        "one counts milliseconds",
    ),
    "a clock in milliseconds": (
        table("video,step,start_ms,end_ms", "0:00,0:04"),
        {"columns": {"start": "start_ms", "end": "end_ms"}},
        "is a time of a clock, in a column of milliseconds",
    ),
    "samples": (
        table("video,step,start_sample,end_sample", "0,4"),
        {"columns": {"start": "start_sample", "end": "end_sample"}},
        "'start_sample' holds no seconds",
    ),
    "thousands of milliseconds": (
        table("video;step;start_ms;end_ms", "0,4")
        .replace("0,4", "0;4,000")
        .replace(",boil,", ";boil;"),
        {"columns": {"start": "start_ms", "end": "end_ms"}},
        "has a thousands separator",
    ),
    "thousands": (
        "video;step;start;end\nv;boil;900;990\nv;pour;1,005;1,020\n",
        {},
        "thousands separators",
    ),
    "frames of no known rate": (
        table("video,step,start,end", "00:00:00:00,00:00:04:12"),
        {},
        "holds no frame rate",
    ),
    "Unix times": (
        table("video,step,start,end", "1769000001,1769000005"),
        {},
        "they seem to be dates",
    ),
    "lengths as ends": (
        table("video,step,start,Duration_sf", "0,4"),
        {"columns": {"end": "duration_sf"}},
        "holds lengths. Give duration=NAME",
    ),
    # what is not there
    "no video": ("start,end,step\n0,4,boil\n", {}, "or name the video by the file"),
    "no end but numbers": (table("video,step,start,stop", "0,4"), {}, "or duration=NAME, or end="),
    "no column": ("made by hand\nvideo,task,step,start,end\n", {}, "above the names of columns"),
    "no tier": (table("video,step,start,end", "0,4"), {"tier": "Steps"}, "has no tiers to choose"),
    "numbers of labels": ("0\n0\n0\n1\n1\n1\n", {"frame_rate": 1}, "Put mapping.txt"),
    "unpaired": (
        BORIS_7.format("0.0", 0, 4, 5, 4, 9).replace("START", "STOP", 1),
        {},
        "line 10: has no times",
    ),
    "two tiers": ("Tier\t" + ELAN.format("msec") + "S\t0\t40\tb\nN\t0\t9\tx\n", {}, "has 2 tiers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_forms_that_are_refused(case, read):
    text, choices, words = REFUSED[case]
    assert words in refusal(DataError, read, text, **choices)


def test_a_folder_of_labels_of_frames(read, tmp_path):
    (tmp_path / "splits").mkdir()
    (tmp_path / "mapping.txt").write_text("0 boil\n1 pour\n")
    (tmp_path / "splits" / "test.split1.bundle").write_text("tea1.txt\n")
    (tmp_path / "splits" / "train.split2.bundle").write_text("groundTruth/tea1.txt\n")
    (tmp_path / "splits" / "train.split1.bundle").write_text("tea2.txt\n")
    found, source = read("0\n0\n1\n1\n", "groundTruth/tea1.txt", frame_rate=2)
    assert found == [("boil", 0, 1), ("pour", 1, 2)]
    assert source.annotations.videos[0].split == "test"
    assert "in test.split1.bundle" in " ".join(source.notes)
    for number, split in ((1, "test"), (2, "train")):
        _, source = read(LABELS, "groundTruth/tea1.txt", frame_rate=1, bundle=number)
        assert source.annotations.videos[0].split == split


def test_validation_is_test_where_nothing_else_is(read, tmp_path):
    database = {
        name: {"subset": subset, "annotations": [{"segment": [0, 4], "label": "boil"}]}
        for name, subset in (("a", "training"), ("b", "Validation"))
    } | {"c": {"subset": "testing"}}
    _, source = read(json.dumps({"database": database}))
    assert [video.split for video in source.annotations.videos] == ["train", "test"]
    assert "left out 1 videos without a segment" in " ".join(source.notes)
    database["c"] |= {"annotations": database["a"]["annotations"]}
    _, source = read(json.dumps({"database": database}))
    assert [video.split for video in source.annotations.videos] == ["train", "val", "test"]
    for tag, split in {"train": "train", "val": "val", "validation": "val", "test": "test"}.items():
        _, source = read(sample(("events", "boil", [1, 100]), tags=["new", tag]), frame_rate=25)
        assert source.annotations.videos[0].split == split


def test_two_tables_named_by_their_files(tmp_path):
    for folder in ("P01", "P02"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "steps.csv").write_text("step,start,end\nboil,0,4\n")
    found = read_steps(
        sorted(tmp_path.glob("*/steps.csv")), choices=Choices(task="t", by_file=True)
    )
    assert [video.video_id for video in found.annotations.videos] == ["P01/steps", "P02/steps"]


def test_predictions_beside_annotations_are_left_out(read):
    both = json.loads(label_studio((1, 100))) + json.loads(
        label_studio((1, 50), kinds=("predictions",), id=2)
    )
    found, source = read(json.dumps(both), frame_rate=25)
    assert found == ABC[:1]
    assert "left out 1 tasks with predictions alone" in " ".join(source.notes)
    _, alone = read(json.dumps(both[1:]), frame_rate=25)
    assert "predictions of 'other' that nobody has checked" in " ".join(alone.notes)


@pytest.mark.parametrize(("version", "expected"), [("cefito RUN v0", 4), ("third", 9)])
def test_predictions_of_recognise_come_first_then_the_newest(read, version, expected):
    (task,) = json.loads(label_studio((1, 100), kinds=("predictions",)))
    (older,) = task["predictions"]
    (newer,) = json.loads(label_studio((1, 225), kinds=("predictions",)))[0]["predictions"]
    older |= {"model_version": version, "created_at": "2026-01-01"}
    newer |= {"model_version": "second", "created_at": "2026-02-01"}
    found, _ = read(json.dumps([task | {"predictions": [older, newer]}]), frame_rate=25)
    assert found == [("boil", 0, expected)]


@pytest.mark.parametrize("key", sorted(WRITERS))
def test_what_is_written_is_recognised_as_no_other_format(key, tmp_path):
    """Also in a file without a telling ending."""
    steps = tuple(TimedStep(name=name, start=s, end=e) for name, s, e in ABC)
    track = Track(video="tea1", task="tea", seconds=12, steps=steps)
    for number, tracks in enumerate([[track], [track.model_copy(update={"recognised": False})]]):
        path = tmp_path / f"{number}.txt"
        path.write_text(WRITERS[key].text(tracks, 25), encoding="utf-8")
        document = Document(path, Choices(frame_rate=25), lambda _: None)
        first = next(form for form in FORMATS if form.matches(document))
        others = [
            form.name for form in FORMATS if form.told <= first.told and form.matches(document)
        ]
        assert (first.key or first.name, others) == (key, [WRITERS[key].name])


def test_a_form_that_a_new_file_reads_is_no_longer_refused():
    refused = next(form for form in FORMATS if ("fcpxml",) in form.tags)
    assert refused.read is None
    read = replace(next(form for form in FORMATS if form.key == "eaf"), tags=refused.tags)
    assert in_order([refused, read]) == (read,)


def test_the_task_of_the_name_of_a_video(read):
    pattern = {"task": None, "frame_rate": 1, "task_pattern": "_([a-z]+)$"}
    _, source = read(LABELS, "P03_cam01_P03_cereals.txt", **pattern)
    assert [task.name for task in source.annotations.taxonomy.tasks] == ["cereals"]
    _, source = read(LABELS, "change tyre 1.txt", **pattern | {"task_pattern": "^(.*) [0-9]"})
    assert [task.name for task in source.annotations.taxonomy.tasks] == ["change tyre"]
    assert "holds no task" in refusal(DataError, read, LABELS, "P03.txt", **pattern)
    for wrong in ("_[a-z]+", "_(", "(_)([a-z])"):
        with pytest.raises(ConfigError, match="with one group") as caught:
            read(LABELS, **{**pattern, "task_pattern": wrong})
        assert caught.value.setting == "task_pattern"
