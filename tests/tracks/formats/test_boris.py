"""BORIS's exports: made-up events in the forms of its versions, and the steps that come out."""

from __future__ import annotations

import pytest

from cefito.data.readers.step_source import read_steps
from cefito.errors import DataError
from cefito.tracks.document import Choices
from refusals import refusal
from tracks.formats.samples import spans

COLUMNS = "Observation id,Observation type,Source,Time offset (s),Subject,Behavior,Modifier #1"
AGGREGATED = f"{COLUMNS},Behavior type,Start (s),Stop (s),Media file name"


def event(times, behavior="boil", media="/rec/tea.mp4", **more):
    """One line; `times` is "start,stop"."""
    cells = {
        "name": "o1",
        "source": "player #1:/rec/tea.mp4",
        "offset": "0.0",
        "subject": "No focal",
    }
    cells |= {"modifier": "", "kind": "STATE"} | more
    first = ",".join(cells[key] for key in ("name",)) + ",Media file(s)"
    rest = ",".join(cells[key] for key in ("source", "offset", "subject"))
    return f"{first},{rest},{behavior},{cells['modifier']},{cells['kind']},{times},{media}"


def table(*lines):
    return "\n".join([AGGREGATED, *lines, ""])


@pytest.fixture
def read(tmp_path):
    """The steps of a text by video."""

    def read(text, **choices):
        (tmp_path / "events.csv").write_text(text, encoding="utf-8")
        found = read_steps(tmp_path / "events.csv", choices=Choices(task="tea", **choices))
        videos = enumerate(found.annotations.videos)
        return {video.video_id: spans(found, number) for number, video in videos}

    return read


QUEUE = "player #1:/rec/tea.mp4;/rec/later.mp4"
BOIL, NONE = ("boil", 0.0, 2.0), {"source": "NA", "media": "NA"}
STEPS = {
    "an offset is added to all times, and the film is not found": (
        [
            event("100,102", media="Not found", offset="100.0"),
            event("102,104", "pour", media="Not found", offset="100.0"),
        ],
        {"tea": [BOIL, ("pour", 2.0, 4.0)]},
    ),
    "negative": ([event("98,99", offset="-2.0")], {"tea": [("boil", 100.0, 101.0)]}),
    "offset as a clock": ([event("0:01:40,0:01:42", offset="00:01:40.000")], {"tea": [BOIL]}),
    "the first event has no film": (
        [event("0,2", media="Not found"), event("2,4", "pour")],
        {"tea": [BOIL, ("pour", 2.0, 4.0)]},
    ),
    "live observations": (
        [event("0,2", name="s1", **NONE), event("0,3", name="s2", **NONE)],
        {"s1": [BOIL], "s2": [("boil", 0.0, 3.0)]},
    ),
    "films of one name": (
        [
            event("0,2", name="a", source="player #1:/P01/cam.mp4", media="/P01/cam.mp4"),
            event("0,3", name="b", source="player #1:/P02/cam.mp4", media="/P02/cam.mp4"),
        ],
        {"P01/cam": [BOIL], "P02/cam": [("boil", 0.0, 3.0)]},
    ),
    "two players": (
        [event("0,2", source="player #1:/rec/tea.mp4;player #2:/rec/side.mp4")],
        {"tea": [BOIL]},
    ),
    "only the first of two films has events": ([event("0,2", source=QUEUE)], {"tea": [BOIL]}),
}


@pytest.mark.parametrize("separator", [",", "\t"])
@pytest.mark.parametrize("case", STEPS)
def test_steps(case, separator, read):
    events, steps = STEPS[case]
    assert read(table(*events).replace(",", separator)) == steps


def test_subjects_of_one_observation_are_chosen(read):
    text = table(event("0,2", subject="A"), event("1,3", subject="B"))
    with pytest.raises(DataError, match=r"2 subjects: 'A' \(1\), 'B' \(1\)"):
        read(text)
    assert read(text, tier="B") == {"tea": [("boil", 1.0, 3.0)]}
    one_each = table(
        event("0,2", subject="A", name="a", source="", media=""),
        event("1,3", subject="B", name="b", source="", media=""),
    )
    assert list(read(one_each)) == ["a", "b"]
    assert list(read(one_each, tier="A")) == ["a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            table(event("0,2", name="A"), event("0,3", name="B")),
            r"observation 'B': annotates video 'tea', as .*observation 'A' does\. Leave one out\.$",
        ),
        (
            table(
                event("0,2"),
                event("60,62", "pour", media="/rec/later.mp4"),
                event("0,1", name="o2"),
            ),
            r"observation 'o1' has several videos, whose times add up",
        ),
        (
            table(
                *(
                    event("60,62", media=media, name=name, source=QUEUE)
                    for name, media in (("o1", "/rec/later.mp4"), ("o2", "Not found"))
                )
            ),
            r"observation 'o1', observation 'o2' has several videos",
        ),
        (
            table(event("0,2", offset="100"), event("0,2", name="o2", offset="9")),
            r"observation 'o1', observation 'o2' has events before its time offset",
        ),
        (table(event("0,NA"), event("1,2"), event("NA,NA")), r"line 2: has no .*, nor has line 4"),
        (COLUMNS + ",Time\no1\n", "has no columns .*Choose Observations"),
    ],
)
def test_refused(text, message, read):
    refusal(DataError, read, text, match=message)
