"""ELAN's files, written by pympi."""

from __future__ import annotations

from pathlib import Path

import pytest

from cefito.data.readers import Choices, read_steps
from cefito.errors import DataError

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


def spans(source):
    (video,) = source.annotations.videos
    names = [action.name for action in source.annotations.taxonomy.actions]
    return [(names[step.action], step.start, step.end) for step in video.steps]


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
        tmp_path / "tea.eaf",
        {"Segments": TEA},
        origin=2000,
        words=[("boil", 2000), ("pour", 5000)],
    )
    with pytest.raises(
        DataError, match=r"has 2 tiers: 'Segments' \(2\), 'Names' \(2\)\."
    ) as caught:
        read_steps(path, choices=Choices(task="tea"))
    assert caught.value.setting == "tier"
    found = read_steps(path, choices=Choices(task="tea", tier="Names"))
    assert spans(found) == [("boil", 3.0, 6.5), ("pour", 6.5, 8.25)]
    with pytest.raises(DataError, match=r"\(ELAN\): has no tier 'Other', only 'Segments' \(2\)"):
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
    again = write_eaf(tmp_path / "again.eaf", {"Steps": TEA}, media="film 1.mp4")
    with pytest.raises(DataError, match=r"again.eaf \(ELAN\): annotates video 'film 1', as .*film"):
        read_steps([*paths, again], choices=Choices(task="tea"))


def test_a_declared_encoding(tmp_path):
    path = write_eaf(tmp_path / "tea.eaf", {"Schritte": [("Brühe", 0, 900)]})
    text = path.read_text(encoding="utf-8").replace("UTF-8", "ISO-8859-1")
    path.write_bytes(text.encode("latin-1"))
    assert spans(read_steps(path, choices=Choices(task="Suppe"))) == [("Brühe", 0.0, 0.9)]


def test_all_that_is_missing_is_said_at_once(tmp_path):
    film = write_eaf(tmp_path / "film.eaf", {"Steps": TEA, "Other": [("b", 0, 10)]})
    table = tmp_path / "videos.csv"
    table.write_text("video,split\ntea_01,test\n")
    with pytest.raises(DataError, match=r"lacks the frames per second, the task") as caught:
        read_steps([EXPORT, film], choices=Choices(video_table=table))
    assert "a split" not in str(caught.value)  # the table has some
    assert caught.value.setting == "frame_rate, task, tier, video_table"
