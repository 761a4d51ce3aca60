"""One small file of each format, by the published descriptions of the tools.

ELAN's files are written by pympi, and those of Label Studio were exported.
"""

from __future__ import annotations

from typing import Any

VIA_JSON = {
    "project": {"pid": "__VIA_PROJECT_ID__", "pname": "Tea", "vid_list": ["1", "2"]},
    "config": {"file": {"loc_prefix": {"1": "", "2": ""}}, "ui": {}},
    "attribute": {
        "1": {
            "aname": "Step",
            "anchor_id": "FILE1_Z2_XY0",
            "type": 4,
            "options": {"0": "boil water", "1": "pour"},
            "default_option_id": "",
        },
        "2": {"aname": "Remark", "anchor_id": "FILE1_Z2_XY0", "type": 1, "options": {}},
    },
    "file": {
        "1": {"fid": "1", "fname": "one.mp4", "type": 4, "loc": 1, "src": ""},
        "2": {"fid": "2", "fname": "", "type": 4, "loc": 2, "src": "https://x.org/a/two.webm"},
    },
    "metadata": {
        "1_a": {"vid": "1", "flg": 0, "z": [0.5, 4.25], "xy": [], "av": {"1": "0", "2": "slow"}},
        "1_b": {"vid": "1", "flg": 0, "z": [4.25, 6], "xy": [], "av": {"1": "1"}},
        "2_a": {"vid": "2", "flg": 0, "z": [1, 2], "xy": [], "av": {"1": "1"}},
        "2_b": {"vid": "2", "flg": 0, "z": [1.5], "xy": [2, 1, 1, 5, 5], "av": {"1": "1"}},
    },
    "view": {"1": {"fid_list": ["1"]}, "2": {"fid_list": ["2"]}},
}
BORIS = (
    "Observation id,Observation date,Description,Observation type,Source,Time offset (s),"
    "Coding duration,Media duration (s),FPS (frame/s),Subject,"
    "Observation duration by subject by observation,Behavior,Behavioral category,Modifier #1,"
    "Behavior type,Start (s),Stop (s),Duration (s),Media file name,Image index start,"
    "Image index stop,Image file path start,Image file path stop,Comment start,Comment stop\n"
    "obs 1,2026-01-02 10:00:00,,Media file(s),player #1:one.mp4,0.0,9.0,10.0,25.0,No focal subject,"
    "5.5,boil water,,,STATE,0.500,4.250,3.750,C:/films/one.mp4,12,106,,,,\n"
    "obs 1,2026-01-02 10:00:00,,Media file(s),player #1:one.mp4,0.0,9.0,10.0,25.0,No focal subject,"
    "5.5,pour,,hot,STATE,4.250,6.000,1.750,C:/films/one.mp4,106,150,,,,\n"
    "obs 1,2026-01-02 10:00:00,,Media file(s),player #1:one.mp4,0.0,9.0,10.0,25.0,No focal subject,"
    "5.5,sneeze,,,POINT,5.000,5.000,NA,C:/films/one.mp4,125,125,,,,\n"
)


def cvat(*frames: tuple[int, str], more: str = "", shift: int = 0, every: int = 1) -> str:
    """An export of "CVAT for images 1.1" of a video task with tags (frame, label)."""
    images = "".join(
        f'<image id="{number}" name="frame_{shift + every * number:06d}" width="64" height="48">'
        f'<tag label="{label}" source="manual"></tag></image>\n'
        for number, label in frames
    )
    step = f"step={every}" if every > 1 else ""
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n  <version>1.1</version>\n'
        "  <meta>\n"
        f"    <task><id>5</id><name>tea</name><size>99</size><mode>interpolation</mode>"
        f"<frame_filter>{step}</frame_filter><source>one.mp4</source></task>\n"
        f"    <dumped>2026-01-02</dumped>\n  </meta>\n{images}{more}</annotations>\n"
    )


CVAT = cvat(*((n, "boil water") for n in range(2, 17)), *((n, "pour") for n in range(17, 24)))
CVAT_TRACKS = cvat(
    more='<track id="0" label="cup" source="manual"><box frame="0" keyframe="1" outside="0" '
    'occluded="0" xtl="1" ytl="1" xbr="9" ybr="9" z_order="0"></box></track>\n'
)
VTT = """WEBVTT - tea

NOTE made by hand

STYLE
::cue { color: red }

first
00:00.500 --> 00:04.250 align:start position:0%
<v Anna>boil <b>water</b>

00:00:04.250 --> 00:00:06.000
pour
"""
SRT = """1
00:00:00,500 --> 00:00:04,250
<i>boil water</i>

2
00:00:04,250 --> 00:00:06,000
{\\an8}pour
"""
CHAPTERS = """How to make tea. Thanks for watching!

0:00 Intro
0:30 – Boil water
(1:05) Pour
1:02:03 Outro
"""


def spans(source: Any, number: int = 0) -> list[tuple[str, float, float]]:
    """Name, start and end of each step of a video of a source."""
    names = [action.name for action in source.annotations.taxonomy.actions]
    steps = source.annotations.videos[number].steps
    return [(names[step.action], step.start, step.end) for step in steps]
