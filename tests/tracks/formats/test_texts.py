"""Chapters and captions in the forms in which people and tools write them."""

from __future__ import annotations

import pytest

from cefito.data.readers.step_source import read_steps
from cefito.errors import DataError
from cefito.tracks.document import Choices
from refusals import refusal
from tracks.formats.samples import spans

TWO = "00:00:00.500 --> 00:00:04.250", "00:00:04.250 --> 00:00:06.000"
CUES = [("boil", 0.5, 4.25), ("pour", 4.25, 6.0)]


@pytest.fixture
def steps(tmp_path):
    """The steps of a text, and the notes."""

    def read(text, **choices):
        (tmp_path / "f.txt").write_text(text, encoding="utf-8")
        (tmp_path / "videos.csv").write_text("video,seconds\nf,130\n")
        given = {"task": "tea", "video_table": tmp_path / "videos.csv"} | choices
        found = read_steps(tmp_path / "f.txt", choices=Choices(**given))
        return spans(found), " ".join(found.notes)

    return read


@pytest.mark.parametrize(
    "text",
    [
        *("0:00 A\n0:30 B", "[00:00] A\n[00:30] B", "(0:00)A\n(0:30)B", "0:00\tA\n0:30\tB"),
        *("1. 0:00 A\n2. 0:30 B", "1) 0:00 A\n2) 0:30 B", "#1 0:00 A\n#2 0:30 B"),
        *("1️⃣ 0:00 A\n2️⃣ 0:30 B", "• 0:00 A\n• 0:30 B", "👩‍🍳 0:00 A\n🍵 0:30 B"),
        *("Step 1: 0:00 A\nStep 2: 0:30 B", "▶0:00 A\n▶ 0:30 B", "0:00 ▸ A\n0:30 ▸ B"),
        *("A 0:00\nB 0:30", "A - 0:00\nB - 0:30", "A (0:00)\nB (0:30)", "A: 0:00\nB: 0:30"),
        *("０：００　A\n０：３０　B", "【0:00】A\n【0:30】B", "0：00 A\n0：30 B"),
        *("- [0:00](https://x.org/a?t=0) A\n- [0:30](https://x.org/a?t=30) B", "0:00. A\n0:30. B"),
        *("0:00:00.000 A\n0:00:30.000 B", "0:00,0 A\n0:30,0 B", "00:00:00:000 A\n00:00:30:000 B"),
        *("0:00 - 0:30 A\n0:30 – 2:10 B", "0:00-0:30: A\n0:30-2:10: B", "0:00→0:30 A\n0:30→2:10 B"),
        *(
            "0:00 to 0:30 A\n0:30 to 2:10 B",
            "0:00\t0:30\tA\n0:30\t2:10\tB",
            "0:00 ～ 0:30 A\n0:30 B",
        ),
        *("A (0:00 - 0:30)\nB (0:30 - 2:10)", "A 0:00-0:30\nB 0:30-2:10"),
        "Tea! See https://x.org:8080\n\n0:00 A\n0:30 B\n\nMusic: X, 2020\n",
    ],
)
def test_lists_of_chapters(text, steps):
    found, notes = steps(text)
    assert found == [("A", 0, 30), ("B", 30, 130)]
    assert ("left out 2 lines without a time" in notes) == ("Music" in text)


def test_chapters_with_fractions_frames_and_other_writings(steps):
    found, _ = steps("0:00.0 Boil water\n0:30.5 Add tea\n1:05,2 Steep for 3:00\n")
    assert found == [
        ("Boil water", 0, 30.5),
        ("Add tea", 30.5, 65.2),
        ("Steep for 3:00", 65.2, 130),
    ]
    assert steps("00:00お湯を\n00:30　茶葉を\n")[0] == [("お湯を", 0, 30), ("茶葉を", 30, 130)]
    frames = "00:00:04:12 pour\n00:00:09;00 stir"
    assert steps(frames, frame_rate=25)[0] == [("pour", 4.48, 9), ("stir", 9, 130)]
    with pytest.raises(DataError, match="holds no frame rate") as caught:
        steps(frames)
    assert caught.value.setting == "frame_rate"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0:30 A\n0:00 B\n0:10 C\n0:05 D", "line 1, line 3: begins no earlier than the next one"),
        ("0:00 A 0:30 B 1:05 C", "line 1: holds several times. Write one chapter a line"),
        ("0:00 – A – 0:30\n0:30 – B – 1:05", "line 1, line 2: holds several times"),
        ("00:00:04:32 A\n00:00:09:00 B", "has 32 of 25 frames"),
        ("٠:٠٠ A\n٠:٣٠ B", "is of no known format ("),
        ("0:30,1:20,pour,a\n1:20,1:30,stir,a\n", "or put a line with names first"),
        ("0:30;1:20;7\n", "its first line holds no names of columns, only '0:30, 1:20, 7'"),
    ],
)
def test_texts_that_are_refused(text, message, steps):
    assert message in refusal(DataError, steps, text, frame_rate=25)


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        (f"WEBVTT\n\n{TWO[0]}\nboil\n{TWO[1]} align:start\npour\n", ""),
        (f"WEBVTT\n\nNOTE1\n{TWO[0]}\nboil\n\nSTYLE\n{TWO[1]}\npour\n", ""),
        (f"WEBVTT\n\nREGION x\n{TWO[0]}\nboil\n\n{TWO[1]}\npour\n\n9:00 --> 9:01\n", "1 cues with"),
        (f"\ufeff\nWEBVTT\nKind: captions\n{TWO[0]}\nboil\n{TWO[1]}\n<b>po</b>ur\n", ""),
        (f"WEBVTT\n\nNOTE\nlong\n\nwords\n\n{TWO[0]}\nboil\n\n{TWO[1]}\npour\n", "1 blocks of"),
        ("1\n00:00,500 --> 00:04,250\nboil\n2\n00:04,250 --> 00:06,000\npour\n", ""),
        (f"{TWO[0]} X1:0\n<i>boil</i>\n\n\n2\n{TWO[1]}\n{{\\an8}}pour\n\nslowly\n", "1 blocks of"),
    ],
)
def test_captions(text, left_out, steps):
    found, notes = steps(text)
    assert found == CUES
    assert left_out in notes
    assert bool(left_out) == ("left out" in notes)


def test_all_cues_without_times_are_named(steps):
    with pytest.raises(DataError, match=r"\(SRT\), line 2, line 8: '00:00:0x"):
        steps(
            f"1\n00:00:0x --> 1\na\n\n{TWO[0]}\nboil\n\n1 --> 2 x --> 3\nb\n".replace(
                "1 --> 2", "x"
            )
        )
