"""ELAN's files, written by pympi."""

from __future__ import annotations

from pathlib import Path

import pytest

from cefito.data.readers.step_source import read_steps
from cefito.errors import DataError
from cefito.tracks import reading
from cefito.tracks.document import Choices
from tracks.formats.samples import spans

Elan = pytest.importorskip("pympi.Elan")
EXPORT = Path(__file__).resolve().parent.parent / "exported" / "label_studio.json"
TEA = (("Boil  water", 1000, 4500), ("Pour", 4500, 6250))


def write_eaf(path, tiers, *, media="file:///D:/My%20films/tea 1.mp4", origin=None, words=()):
    """A document with aligned annotations (label, start, end in ms) in tiers."""
    eaf = Elan.Eaf()
    eaf.remove_tier("default")
    if media is not None:
        eaf.add_linked_file(media, mimetype="video/mp4", time_origin=origin)
    for name, entries in tiers.items():
        eaf.add_tier(name)
        for label, start, end in entries:
            eaf.add_annotation(name, start, end, label)
    if words:
        eaf.add_linguistic_type("names", "Symbolic_Association")
        eaf.add_tier("Names", ling="names", parent=next(iter(tiers)))
        for label, time in words:
            eaf.add_ref_annotation("Names", next(iter(tiers)), time, label)
    eaf.to_file(str(path))
    return path


def test_a_tier_of_steps(tmp_path):
    path = write_eaf(tmp_path / "any.xml", {"Steps": [*TEA, ("", 7000, 8000)]})
    found = read_steps(path, choices=Choices(task="make tea"))
    assert spans(found) == [("Boil water", 1.0, 4.5), ("Pour", 4.5, 6.25)]
    assert found.annotations.videos[0].video_id == "tea 1"
    assert found.annotations.taxonomy.tasks[0].name == "make tea"
    assert (found.form, found.annotations.taxonomy.dataset) == ("ELAN", "any")
    assert found.notes[:2] == (
        "any.xml: ELAN; each annotation of the tier 'Steps' is a step.",
        "ELAN: left out 1 annotations without a label.",
    )


def test_tiers_that_refer_to_others_and_media_that_begin_later(tmp_path):
    path = write_eaf(
        tmp_path / "tea.eaf", {"Segments": TEA}, origin=2000, words=[("boil", 2000), ("pour", 5000)]
    )
    with pytest.raises(DataError, match=r"2 tiers: 'Segments' \(2\), 'Names' \(2\)") as caught:
        read_steps(path, choices=Choices(task="tea"))
    assert caught.value.setting == "tier"
    found = read_steps(path, choices=Choices(task="tea", tier="Names"))
    assert spans(found) == [("boil", 3.0, 6.5), ("pour", 6.5, 8.25)]
    with pytest.raises(DataError, match=r"no tier 'Other', only 'Segments' \(2\)"):
        read_steps(path, choices=Choices(task="tea", tier="Other"))


def test_one_file_a_video_without_its_name(tmp_path):
    paths = [
        write_eaf(tmp_path / f"film {number}.eaf", {"Steps": TEA}, media=None)
        for number in range(3)
    ]
    found = read_steps(paths, choices=Choices(task="tea"))
    assert [video.video_id for video in found.annotations.videos] == ["film 0", "film 1", "film 2"]
    assert found.annotations.taxonomy.dataset == tmp_path.name
    assert found.notes[0] == (
        "film 0.eaf and 2 more: ELAN; each annotation of the tier 'Steps' is a step."
    )
    other = write_eaf(tmp_path / "other.eaf", {"Parts": TEA}, media="film 3.mp4")
    both = read_steps([*paths, other], choices=Choices(task="tea"))
    assert (found.tier, both.tier) == ("Steps", "")
    again = write_eaf(tmp_path / "again.eaf", {"Steps": TEA}, media="film 1.mp4")
    with pytest.raises(DataError, match=r"again\.eaf \(ELAN\): .*'film 1', as .*film"):
        read_steps([*paths, again], choices=Choices(task="tea"))


def test_a_declared_encoding(tmp_path):
    path = write_eaf(tmp_path / "tea.eaf", {"Schritte": [("Brühe", 0, 900)]})
    text = path.read_text(encoding="utf-8").replace("UTF-8", "ISO-8859-1")
    path.write_bytes(text.encode("latin-1"))
    assert spans(read_steps(path, choices=Choices(task="Suppe"))) == [("Brühe", 0.0, 0.9)]


def eaf(*tiers, slots, media='<MEDIA_DESCRIPTOR MEDIA_URL="file:///D:/tea.mp4"/>'):
    """A document as ELAN writes it; tiers are (name, constraint, annotations)."""
    named = "".join(
        f'<TIME_SLOT TIME_SLOT_ID="{name}"' + (f' TIME_VALUE="{time}"' if time != "" else "") + "/>"
        for name, time in slots.items()
    )
    types = "".join(
        f'<LINGUISTIC_TYPE LINGUISTIC_TYPE_ID="{name}-lt" CONSTRAINTS="{constraint}"/>'
        for name, constraint, _ in tiers
    )
    body = ""
    for name, _, entries in tiers:
        body += f'<TIER TIER_ID="{name}" LINGUISTIC_TYPE_REF="{name}-lt">'
        for number, label, *where in entries:
            if where[0] in slots:
                begin, end = where
                kind, at = "ALIGNABLE", f'TIME_SLOT_REF1="{begin}" TIME_SLOT_REF2="{end}"'
            else:
                kind, at = "REF", f'ANNOTATION_REF="{where[0]}"'
                at += f' PREVIOUS_ANNOTATION="{where[1]}"' if where[1:] else ""
            body += f'<ANNOTATION><{kind}_ANNOTATION ANNOTATION_ID="{number}" {at}>'
            body += f"<ANNOTATION_VALUE>{label}</ANNOTATION_VALUE></{kind}_ANNOTATION></ANNOTATION>"
        body += "</TIER>"
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><ANNOTATION_DOCUMENT><HEADER>{media}</HEADER>'
        f"<TIME_ORDER>{named}</TIME_ORDER>{body}{types}</ANNOTATION_DOCUMENT>"
    )


SLOTS = {"t1": 0, "t2": "", "t3": "", "t4": 6000, "t5": 9000}
STEPS = ("Steps", "", [("a1", "boil", "t1", "t4"), ("a2", "pour", "t4", "t5")])
PARTS = [("b1", "x", "t1", "t2"), ("b2", "y", "t2", "t3"), ("b3", "z", "t3", "t4")]
HANDS = [("c2", "grasp", "a1", "c1"), ("c1", "reach", "a1"), ("c3", "reach", "a2")]
NAMES = [("d1", "left", "c1"), ("d2", "right", "c2")]
LEVELS = [("e1", "one", "c2"), ("e2", "two", "c2", "e1")]
SOUND = '<MEDIA_DESCRIPTOR MEDIA_URL="file:///D:/mic.wav" MIME_TYPE="audio/x-wav"{}/>'
FILM = '<MEDIA_DESCRIPTOR MEDIA_URL="file:///D:/{}.mp4" MIME_TYPE="video/mp4" TIME_ORIGIN="{}"/>'


@pytest.fixture
def read(tmp_path):
    def read(text, tier, name="any.eaf"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return read_steps(tmp_path / name, choices=Choices(task="tea", tier=tier))

    return read


@pytest.mark.parametrize(
    ("tier", "steps"),
    [
        ("Steps", [("boil", 0, 6), ("pour", 6, 9)]),
        ("Parts", [("x", 0, 2), ("y", 2, 4), ("z", 4, 6)]),
        ("Hands", [("reach", 0, 3), ("grasp", 3, 6), ("reach", 6, 9)]),
        ("Names", [("left", 0, 3), ("right", 3, 6)]),
        ("Levels", [("one", 3, 4.5), ("two", 4.5, 6)]),
    ],
)
def test_tiers_of_every_stereotype(tier, steps, read):
    tiers = (
        ("Levels", "Symbolic_Subdivision", LEVELS),
        ("Parts", "Time_Subdivision", PARTS),
        STEPS,
        ("Names", "Symbolic_Association", NAMES),
        ("Hands", "Symbolic_Subdivision", HANDS),
    )
    found = read(eaf(*tiers, slots=SLOTS), tier)
    assert spans(found) == steps
    spaced = "ELAN: 2 borders without a time lie evenly between those around them, as in ELAN (tier"
    assert found.notes[1].startswith(spaced) == (tier == "Parts")


@pytest.mark.parametrize(
    ("media", "video", "start"),
    [
        (SOUND.format("") + FILM.format("tea", 1500), "tea", 1.5),
        (FILM.format("tea", 0) + FILM.format("side", 700), "tea", 0),
        (SOUND.format(' EXTRACTED_FROM="file:///D:/tea.mp4"'), "tea", 0),
        (SOUND.format(' TIME_ORIGIN="250"'), "mic", 0.25),
        ('<MEDIA_DESCRIPTOR MEDIA_URL="" RELATIVE_MEDIA_URL="./tea.MOV"/>', "tea", 0),
        (
            '<MEDIA_DESCRIPTOR MEDIA_URL="D:/a.wav"/><MEDIA_DESCRIPTOR MEDIA_URL="D:/b.avi"/>',
            "b",
            0,
        ),
        ("", "any", 0),
    ],
)
def test_steps_are_of_the_first_video(media, video, start, read):
    found = read(eaf(STEPS, slots=SLOTS, media=media), "Steps")
    assert found.annotations.videos[0].video_id == video
    assert spans(found)[0] == ("boil", start, start + 6)


WHOLE = eaf(STEPS, ("Hands", "Symbolic_Subdivision", HANDS), slots=SLOTS)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('SLOT_ID="t5"', 'SLOT_ID="t4"', r"has several time slots 't4'"),
        ('TIER_ID="Hands"', 'TIER_ID="Steps"', "has several tiers 'Steps'"),
        ('"6000"', f'"{"9" * 400}"', "is not a whole number of at most 18 digits"),
        ('"6000"', '"६०००"', "is not a whole number"),
        ("MEDIA_URL=", 'TIME_ORIGIN="6_000" MEDIA_URL=', "is not a whole number"),
    ],
)
def test_repeated_ids_and_odd_numbers(old, new, message, read):
    assert old in WHOLE
    with pytest.raises(DataError, match=message):
        read(WHOLE.replace(old, new, 1), "Steps")


def test_annotations_with_one_id_have_their_own_times(read):
    text = WHOLE.replace('NOTATION_ID="a2"', 'NOTATION_ID="a1"', 1)
    assert spans(read(text, "Steps")) == [("boil", 0, 6), ("pour", 6, 9)]
    with pytest.raises(DataError, match="refer to none or several"):
        read(text.replace('REF="a2"', 'REF="a1"'), "Hands")


def test_annotations_that_refer_in_a_circle_are_left_out(read):
    circle = [("c1", "x", "c2", "c2"), ("c2", "y", "c1", "c1"), ("c3", "z", "a1", "c3")]
    text = eaf(STEPS, ("Hands", "Symbolic_Subdivision", circle), slots=SLOTS)
    assert spans(read(text, "Hands")) == [("z", 0, 6)]


def test_an_entity_of_an_external_declaration_is_refused(read):
    text = WHOLE.replace("<ANNOTATION_DOC", '<!DOCTYPE a SYSTEM "a.dtd"><ANNOTATION_DOC', 1)
    assert spans(read(text, "Steps"))[0][0] == "boil"
    with pytest.raises(DataError, match=r"XML entity 'ouml'"):
        read(text.replace("boil", "k&ouml;cheln"), "Steps")


WRONG = (("wrong order; too short", 4500, 6250), ("no", 1000, 4500))


@pytest.mark.parametrize(
    ("tiers", "words", "choices", "kinds"),
    [
        ({"Steps": TEA, "Errors": WRONG}, (), {}, [(), ("wrong order", "too short")]),
        ({"Steps": TEA, "slip": WRONG}, (), {"error_tier": "slip"}, [(), WRONG]),
        ({"Steps": TEA, "mistake": [("yes", 2000, 5500)]}, (), {}, [("error",), ()]),  # overlaps
        ({"Steps": TEA, "Mistakes": [("yes", 2000, 5500)]}, (), {}, [("error",), ()]),
        ({"Steps": TEA, "errors": [("no", 2000, 5500)]}, (), {}, [(), ()]),
        ({"Steps": TEA}, [("yes", 5000)], {"error_tier": "Names"}, [(), ("error",)]),  # refers
        ({"errors": TEA}, (), {}, [(), ()]),  # the only tier has the steps
        ({"Steps": TEA, "Errors": WRONG}, (), {"tier": "Errors"}, [(), ()]),
    ],
)
def test_a_tier_of_errors(tmp_path, tiers, words, choices, kinds):
    path = write_eaf(tmp_path / "tea.eaf", tiers, words=words)
    tracks = reading.read([path], Choices(task="tea", **choices))
    expected = [("wrong order", "too short") if one is WRONG else one for one in kinds]
    assert [step.errors for step in tracks.tracks[0].steps] == expected
    said = "ELAN: 1 steps with an error, by" in " ".join(tracks.notes)
    assert said == any(expected)


def test_errors_at_no_step_and_an_unknown_tier(tmp_path):
    path = write_eaf(tmp_path / "tea.eaf", {"Steps": TEA, "error": [("late", 9000, 9500)]})
    tracks = reading.read([path], Choices(task="tea"))
    assert [step.errors for step in tracks.tracks[0].steps] == [(), ()]
    assert "ELAN: left out 1 errors at no step." in tracks.notes
    gap = [("missing: pour; late", 0, 500)]  # before the first step
    path = write_eaf(tmp_path / "gap.eaf", {"Steps": TEA, "error": gap})
    tracks = reading.read([path], Choices(task="tea"))
    assert [step.errors for step in tracks.tracks[0].steps] == [("missing: pour",), ()]
    assert tracks.tracks[0].missing == ("pour",)
    assert not tracks.tracks[0].steps[0].wrong
    assert "ELAN: left out 1 errors at no step." in tracks.notes
    with pytest.raises(DataError, match="no tier 'slips' with errors") as no:
        reading.read([path], Choices(task="tea", error_tier="slips"))
    assert no.value.setting == "error_tier"
