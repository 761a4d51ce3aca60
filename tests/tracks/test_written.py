"""Recognised steps as files of other programs, which their readers read back."""

import csv
import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from cefito.cli import main
from cefito.data.readers.step_source import convert_steps, read_steps
from cefito.errors import ConfigError
from cefito.files import file_names
from cefito.markup import plain
from cefito.recognition.plan_chain import aligned
from cefito.report.picture import timeline_picture, verified_picture
from cefito.tracks import TimedStep, Track
from cefito.tracks.document import Choices
from cefito.tracks.formats import WRITERS
from cefito.tracks.reading import read
from cefito.tracks.writing import write_tracks
from odd_names import ODD as NAMES

ODD = 'pour "milk" & <whisk>, --> 2'
RATE = 4  # frames a second, with which the times of steps are whole frames


def step(name, start, end, probability=0.5):
    return TimedStep(action=0, name=name, start=start, end=end, probability=probability)


def video(name="a", *, steps=(("boil", 1.0, 4.5), (ODD, 4.5, 3725.25)), **more):
    return Track(
        video=name,
        task_id=0,
        task="make, tea",
        task_probability=0.75,
        seconds=4000.0,
        steps=tuple(step(*each) for each in steps),
        **more,
    )


def written(folder, name, videos):
    path = folder / f"x{WRITERS[name].ending}"
    path.write_text(WRITERS[name].text(videos, RATE), encoding="utf-8")
    return path


def read_back(path, **choices):
    """Name and steps of each video."""
    tracks = read([path], Choices(**choices)).tracks
    return {one.video: [(each.name, each.start, each.end) for each in one.steps] for one in tracks}


STEPS = [("boil", 1.0, 4.5), (ODD, 4.5, 3725.25)]


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_every_format_of_annotations_is_read_back(name, tmp_path):
    single = WRITERS[name].single
    videos = [video()] if single else [video(), video("b.c", steps=(("boil", 0.0, 2.0),))]
    path = written(tmp_path, name, videos)
    holds_tasks = name in ("activitynet", "csv", "labelstudio", "jsonl")
    rate = RATE if WRITERS[name].frames else None
    found = read_back(path, task=None if holds_tasks else "make, tea", frame_rate=rate)
    steps = [(label.replace(" ", "_"), *times) for label, *times in STEPS]
    expected = {"a" if not single or name == "eaf" else "x": steps if name == "frames" else STEPS}
    assert found == expected | ({} if single else {"b.c": [("boil", 0.0, 2.0)]})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("csv", "video,task,step,start,end,probability\n"),
        ("via", '"attribute": {"1": {"aname": "step", '),
        ("via", '"type": 1,'),  # a text
        ("labelstudio", '"type": "timelinelabels", "from_name": "steps", "to_name": "video", '),
        ("segments", "1.000000\t4.500000\tboil\n"),
        ("activitynet", '"a": {"subset": "testing", "duration": 4000.0, "class": "make, tea", '),
        ("activitynet", '{"segment": [1.0, 4.5], "label": "boil", "score": 0.5}'),
        ("fiftyone", '{"classes": ["boil", "pour'),
        ("fiftyone", '"labels": {"a": [{"label": 0, "timestamps": [1.0, 4.5], "confidence": 0.5}'),
        ("edl", " 01:00:01:00 01:00:01:01 01:00:01:00 01:00:01:01"),  # of a second
        ("edl", "|M:boil |D:14\n"),
        ("premiere", "Marker Name\tDescription\tIn\tOut\tDuration\tMarker Type\nboil\t\t"),
        ("elantext", "\nsteps\t1.000\t4.500\tboil\t"),
        ("observer", "\na,1.000,3.500,,boil,State start\na,4.500,0.000,,boil,State stop\n"),
    ],
)
def test_files_are_of_the_form_of_their_programs(name, text):
    split = "test" if name == "activitynet" else ""
    written = WRITERS[name].text([video(split=split)], RATE)
    one_line = re.sub(r"([\[{]) | (?=[\]}])", r"\1", " ".join(written.split()))
    assert text in written + one_line


@pytest.mark.parametrize("name", [name for name in sorted(WRITERS) if WRITERS[name].frames])
@pytest.mark.parametrize("rate", [24000 / 1001, 25, 30000 / 1001, 60])
def test_frames_are_those_of_any_rate(name, rate, tmp_path):
    steps = (("boil", 10 / rate, 250 / rate), ("pour", 4000 / rate, 120_000 / rate))
    path = tmp_path / f"x{WRITERS[name].ending}"
    path.write_text(WRITERS[name].text([video(steps=steps)], rate), encoding="utf-8")
    (back,) = read_back(path, task="tea", frame_rate=rate).values()
    rounded = [(label, *(round(time, 6) for time in times)) for label, *times in back]
    assert rounded == [(label, round(start, 6), round(end, 6)) for label, start, end in steps]
    with pytest.raises(ConfigError, match="Give the frames per second"):
        WRITERS[name].text([video()])


def test_splits_of_activitynet(tmp_path):
    videos = [video(split, split=split) for split in ("train", "val", "test")]
    (track, *others) = read([written(tmp_path, "activitynet", videos)], Choices()).tracks
    assert [each.split for each in (track, *others)] == ["train", "val", "test"]
    assert (track.task, track.seconds) == ("make, tea", 3725.25)


def test_a_frame_has_one_label():
    steps = (("boil", 1.0, 4.5), ("pour", 4.0, 9.0))
    with pytest.raises(ConfigError, match=r"'pour' and another .* frame 16"):
        WRITERS["frames"].text([video(steps=steps)], RATE)


@pytest.mark.parametrize("name", ["1", "1.5", "1,5", "-", "null", "No action", "a" * 101, ""])
def test_labels_of_frames_that_would_not_be_read_back(name):
    with pytest.raises(ConfigError, match=f"step '{name}': .* Rename"):
        WRITERS["frames"].text([video(steps=((name, 1.0, 4.5),))], RATE)


SINGLE = [name for name in sorted(WRITERS) if WRITERS[name].single]


@pytest.mark.parametrize("name", SINGLE)
def test_names_with_folders_are_read_back(name, tmp_path):
    videos = [video(each, steps=(("boil", 1.0, 4.5),)) for each in ("P01/x", "P02/x", "50%: y")]
    write_tracks(videos, tmp_path, WRITERS[name], frame_rate=RATE)
    files = sorted((tmp_path / WRITERS[name].folder).glob(f"*{WRITERS[name].ending}"))
    assert not (tmp_path / "splits").exists()  # which are not known
    table = tmp_path / "videos.table"
    table.write_text("video,task\nP01/x,tea\nP02/x,tea\n50%: y,toast\n")
    rate = RATE if WRITERS[name].frames else None
    tracks = read(files, Choices(video_table=table, frame_rate=rate)).tracks
    tasks = {"P01/x": "tea", "P02/x": "tea", "50%: y": "toast"}
    assert {each.video: each.task for each in tracks} == tasks


def test_a_folder_of_labels_of_frames(tmp_path):
    videos = [video("a", split="train"), video("b", steps=(("sit down", 0.0, 2.0),), split="test")]
    write_tracks(videos, tmp_path / "DATA", WRITERS["frames"], frame_rate=RATE)
    assert (tmp_path / "DATA/mapping.txt").read_text().split()[:4] == [
        "0",
        "background",
        "1",
        "boil",
    ]
    assert (tmp_path / "DATA/splits/test.split1.bundle").read_text() == "b.txt\n"
    lines = (tmp_path / "DATA/groundTruth/b.txt").read_text().splitlines()
    assert lines[:9] == ["sit_down"] * 8 + ["background"]
    assert len(lines) == 4000 * RATE
    twice = video("c", steps=(("boil", 0.0, 2.0), ("boil", 2.0, 4.0)), split="train")
    write_tracks([twice], tmp_path / "TWICE", WRITERS["frames"], frame_rate=RATE)
    (one,) = read_back(tmp_path / "TWICE/groundTruth/c.txt", task="tea", frame_rate=RATE).values()
    assert one == [("boil", 0.0, 4.0)]  # as the labels of frames do not tell them apart
    files = sorted((tmp_path / "DATA/groundTruth").iterdir())
    tracks = read(files, Choices(task="tea", frame_rate=RATE)).tracks
    assert [track.split for track in tracks] == ["train", "test"]
    rate = Choices(task="tea", frame_rate=RATE)
    convert_steps(files, tmp_path / "AGAIN", choices=rate, form="frames")
    assert (tmp_path / "AGAIN/splits/test.split1.bundle").read_text() == "b.txt\n"
    alike = video(steps=(("sit down", 0.0, 2.0), ("sit_down", 2.0, 3.0)))
    with pytest.raises(ConfigError, match="are one label, 'sit_down'"):
        write_tracks([alike], tmp_path / "OTHER", WRITERS["frames"], frame_rate=RATE)


@pytest.mark.parametrize("form", sorted(WRITERS))
def test_files_are_converted_to_every_format(form, tmp_path):
    path = written(tmp_path, "csv", [video(steps=(("boil", 1.0, 4.5), ("pour", 5.0, 9.25)))])
    out = tmp_path / f"again{WRITERS[form].ending}"
    convert_steps([path], out, choices=Choices(frame_rate=RATE), form=form)
    held = form in ("activitynet", "csv", "labelstudio", "jsonl")
    rate = None if form == "labelstudio" else RATE
    (back,) = read_back(out, task=None if held else "make, tea", frame_rate=rate).values()
    assert back == [("boil", 1.0, 4.5), ("pour", 5.0, 9.25)]


def test_tables_hold_task_and_probability(tmp_path):
    path = written(tmp_path, "csv", [video()])
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [(row["task"], row["probability"]) for row in rows] == [("make, tea", "0.5000")] * 2


def test_tables_hold_no_formulas_and_any_names(tmp_path):
    """To spreadsheets; the reader finds the names, which it writes with single spaces."""
    videos = [video(name, steps=((name, 0.0, 2.0),)) for name in NAMES]
    path = written(tmp_path, "csv", videos)
    with path.open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell[0] in "=+-@\t\r"]
    assert {f"'{name}" for name in ("=1+1", "+1", "-1", "@x", "'=1")} <= {*cells}
    assert read_back(path) == {plain(name): [(plain(name), 0.0, 2.0)] for name in NAMES}
    out = tmp_path / "steps.csv"
    made = convert_steps([path], out).annotations.videos
    assert read_steps(out).annotations.videos == made == read_steps(path).annotations.videos


def test_elan_documents_are_read_by_pympi(tmp_path):
    elan = pytest.importorskip("pympi").Elan
    path = written(tmp_path, "eaf", [video(file=str(tmp_path / "my film.mp4"))])
    found = elan.Eaf(str(path))
    data = found.get_annotation_data_for_tier("steps")
    assert sorted(data) == [(1000, 4500, "boil"), (4500, 3725250, ODD)]
    (media,) = found.get_linked_files()
    assert media["MEDIA_URL"].endswith("/my%20film.mp4")
    assert list(read_back(path, task="tea")) == ["my film"]


def test_captions_are_read_by_another_reader(tmp_path):
    webvtt = pytest.importorskip("webvtt")
    cues = webvtt.read(str(written(tmp_path, "vtt", [video()])))
    assert [(cue.start, cue.end) for cue in cues] == [
        ("00:00:01.000", "00:00:04.500"),
        ("00:00:04.500", "01:02:05.250"),
    ]


def test_label_studio_shows_predictions_and_checked_ones_come_first(tmp_path):
    path = written(tmp_path, "labelstudio", [video(file="clips/a.mp4"), video("b")])
    tasks = json.loads(path.read_text())
    assert [task["data"]["video"] for task in tasks] == ["clips/a.mp4", "b.mp4"]
    (made,) = tasks[0]["predictions"]
    assert (made["score"], made["result"][0]["score"]) == (0.5, 0.5)
    assert made["result"][0]["value"]["ranges"] == [{"start": 25, "end": 108}]
    assert any("nobody has checked" in note for note in read_steps(path).notes)
    tasks[1]["annotations"] = [{"result": made["result"][:1]}]
    path.write_text(json.dumps(tasks))
    assert read_back(path) == {"b": [("boil", 1.0, 4.5)]}


def test_json_lines_are_records(tmp_path):
    lines = WRITERS["jsonl"].write([video(), video("b", steps=())]).splitlines()
    assert [Track.model_validate_json(line) for line in lines] == [video(), video("b", steps=())]
    (back,) = read([written(tmp_path, "jsonl", [video()])], Choices()).tracks
    assert (back.recognised, {step.probability for step in back.steps}) == (False, {1})  # given


def test_the_picture_has_every_step_and_no_markup_of_names():
    known = (TimedStep(name="other", start=0, end=3),)
    drawn = timeline_picture([video("<b>"), video("b", annotated=known)])
    root = ElementTree.fromstring(drawn)
    titles = [one.text for one in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles.count("boil, 0:01–0:04, 50%") == 2
    boxes = {one[0].text: float(one.get("fill-opacity", 1)) for one in root.iter() if len(one) == 1}
    tops = {one[0].text: float(one.get("y", 0)) for one in root.iter() if len(one) == 1}
    assert tops["other, 0:00–0:03"] < tops["boil, 0:01–0:04, 50%"]
    assert boxes["boil, 0:01–0:04, 50%"] < boxes["other, 0:00–0:03"] == 1
    assert "other, 0:00–0:03" in titles
    assert "<b>" not in drawn
    assert "annotated" in drawn
    assert timeline_picture([video(steps=())]).endswith("</svg>\n")


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 14400.0 * 11, 1e9, 1e300])
def test_pictures_of_any_length_have_few_labels(seconds):
    pictures = [
        verified_picture(seconds, [TimedStep(name="a", start=0, end=seconds)], {}),
        timeline_picture([video().model_copy(update={"seconds": seconds, "steps": ()})]),
    ]
    for picture in pictures:
        assert 1 <= picture.count("text-anchor='middle'") <= 11
        assert len(picture) < 10_000


def test_control_characters_of_names_make_no_broken_files(tmp_path):
    odd = video(steps=(("a\x00b\x1bc", 0.0, 1.0),))
    ElementTree.fromstring(timeline_picture([odd]))
    assert read_back(written(tmp_path, "eaf", [odd]), task="t") == {"a": [("a b c", 0.0, 1.0)]}


def test_a_known_plan_is_aligned_even_if_rows_say_nothing():
    rows, begin = np.full((9, 4), 0.25), np.full((9, 3), 0.1)
    begin[2, 0], begin[5, 1], begin[7, 0] = 0.9, 0.9, 0.8
    found = aligned(rows, begin, [0, 1, 0])
    assert [(one.action, one.start) for one in found] == [(0, 2), (1, 5), (0, 7)]
    assert all(one.start < one.end for one in found)


@pytest.mark.parametrize("name", ["csv", "eaf", "labelstudio", "via"])
def test_proposals_of_any_names_are_found_again(name, tmp_path, capsys):
    """Also where a format writes names with single spaces, or as the path of a film."""
    videos = [video(each, steps=((each, 0.0, 2.0), ("boil", 2.0, 9.0))) for each in NAMES]
    (tmp_path / "proposals.jsonl").write_text(WRITERS["jsonl"].write(videos), encoding="utf-8")
    files = file_names(NAMES) if WRITERS[name].single else {"all": "all"}
    argv = ["annotate", "run", "--out", str(tmp_path)]
    for each, file in files.items():
        path = tmp_path / f"{file}{WRITERS[name].ending}"
        one = [video for video in videos if each in ("all", video.video)]
        path.write_text(WRITERS[name].write(one), encoding="utf-8")
        argv += ["--corrected", str(path)]
    assert main(argv) == 0
    said = "".join(capsys.readouterr())
    assert "not proposed" not in said
    assert f"{len(NAMES)} films, {2 * len(NAMES)} steps: {2 * len(NAMES)} kept, 0 moved" in said


def test_a_corrected_film_that_may_be_one_of_two(tmp_path, capsys):
    videos = [video("cam"), video("P01/cam")]
    (tmp_path / "proposals.jsonl").write_text(WRITERS["jsonl"].write(videos), encoding="utf-8")
    path = tmp_path / "x.eaf"
    path.write_text(WRITERS["eaf"].write(videos[1:]), encoding="utf-8")
    assert main(["annotate", "run", "--out", str(tmp_path), "--corrected", str(path)]) == 2
    said = "".join(capsys.readouterr())
    assert "film 'cam' may be the proposed 'cam' or 'P01/cam'. Give" in said


@pytest.mark.parametrize("name", ["csv", "eaf", "labelstudio", "segments", "via"])
def test_corrected_proposals_are_compared_in_every_form(name, tmp_path, capsys):
    made = [video("P01/a")]
    (tmp_path / "proposals.jsonl").write_text(WRITERS["jsonl"].write(made), encoding="utf-8")
    path = written(tmp_path, name, made).rename(tmp_path / f"P01%2Fa{WRITERS[name].ending}")
    assert main(["annotate", "run", "--out", str(tmp_path), "--corrected", str(path)]) == 0
    assert "1 film, 2 steps: 2 kept, 0 moved" in "".join(capsys.readouterr())
