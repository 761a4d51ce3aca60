"""`cefito recognise`: steps of whole videos of a tiny data set."""

import csv
import json
import shutil
from dataclasses import replace
from html import escape
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import cefito
from cefito.cli import main
from cefito.cli.recognise import PROPOSALS, TASKS
from cefito.data.prepared import open_dataset
from cefito.data.readers.step_source import read_steps
from cefito.recognition import segmental_model
from cefito.recognition.segmental import SegmentalRecogniser
from cefito.recognition.trials import SeenMistakes
from cefito.runs.run import open_run
from cefito.tracks.formats import WRITERS
from cefito.verification.findings import UnsureStep
from cooking_films import NAMES, PLANS, TIER, make_run
from row_films import SMALL
from tiny_runs import TINY_LENGTHS, as_arguments

TWINS = ("a\\b.npy", "a_b.npy")
FIVE = {"of_skipped": 5, "of_exchanged": 5, "exchanged": 5, "right": 5}
TRIED = SeenMistakes(**FIVE, skipped=4, unseen=((0,),)), SeenMistakes(**FIVE, skipped=1)
TEST = ["v10", "v11", "v12", "v13"]


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    folder = tmp_path_factory.mktemp("films")
    make_run(folder)
    return folder


@pytest.fixture
def recognised(films, ran):
    return lambda *argv: json.loads(ran("recognise", films / "RUN", *argv, "--json").out)


def names(video):
    return [step["name"] for step in video["steps"]]


def test_steps_of_videos_of_the_data_set(recognised, films):
    found = recognised(*TEST)
    assert [one["video"] for one in found] == TEST
    assert [one["task"] for one in found] == ["tea", "toast"] * 2
    assert [names(one) for one in found] == [PLANS["tea"], PLANS["toast"]] * 2
    for one in found:
        ours, theirs = one["steps"], one["annotated"]
        middles = [(step["start"] + step["end"]) / 2 for step in ours]
        assert all(
            step["start"] <= middle <= step["end"]
            for step, middle in zip(theirs, middles, strict=True)
        )
        assert all(0 < step["probability"] <= 1 for step in ours)
    assert recognised(*TEST, "--dataset", films / "DATA") == found


def test_a_file_of_features_is_the_video_at_any_rate(recognised, films, tmp_path):
    (own,), (file,) = recognised("v10"), recognised(films / "FEATURES" / "v10.npy")
    assert [step["end"] for step in own["steps"]] == [step["end"] for step in file["steps"]]
    rows = np.load(films / "FEATURES" / "v10.npy")
    np.savez(tmp_path / "v10.npz", rows)
    torch.save(torch.from_numpy(rows), tmp_path / "v10.pt")
    with pytest.importorskip("h5py").File(tmp_path / "v10.h5", "w") as stored:
        stored["rows"] = rows
    for ending in ("npz", "pt", "h5"):
        assert recognised(tmp_path / f"v10.{ending}") == [file]
    np.save(tmp_path / "fast.npy", np.load(films / "FEATURES" / "v10.npy").repeat(4, axis=0))
    (fast,) = recognised(tmp_path / "fast.npy", "--feature-rate", 4)
    assert fast["steps"] == file["steps"]
    assert fast["seconds"] == file["seconds"]


def test_a_table_of_recognised_steps_prepares_a_data_set(ran, films, tmp_path):
    table = tmp_path / "STEPS.csv"
    ran("recognise", films / "RUN", *TEST, "--out", table)
    assert read_steps(table).annotations.step_count == 12
    prepare = ("data", "prepare", "custom", table, tmp_path / "DATA", "--features")
    ran(*prepare, films / "FEATURES")
    made = open_dataset(tmp_path / "DATA")
    assert [one.video_id for one in made.videos] == TEST
    assert made.timeline is not None


def test_one_file_a_video_in_a_folder_and_a_picture(ran, films, tmp_path):
    argv = ("recognise", films / "RUN", *TEST[:2], "--out", tmp_path / "ELAN", "--format", "eaf")
    out, err = ran(*argv, "--plot", tmp_path / "x.svg")
    assert out == ""
    assert err.endswith(f"wrote {tmp_path / 'ELAN'}: 6 steps of 2 videos\nwrote {tmp_path}/x.svg\n")
    assert sorted(path.name for path in (tmp_path / "ELAN").iterdir()) == ["v10.eaf", "v11.eaf"]
    ran(*argv[:4], "--out", tmp_path / "F", "--format", "frames", "--frame-rate", 15)
    assert {path.name for path in (tmp_path / "F").iterdir()} == {"groundTruth", "mapping.txt"}
    assert (tmp_path / "x.svg").read_text().count("annotated") == 2


def test_the_table_on_a_terminal(ran, films):
    out, err = ran("recognise", films / "RUN", "v10", "--task", "tea")
    assert err.startswith("v10: task tea (given)\nnote: recognised steps follow the usual order")
    assert out.splitlines()[0].split() == ["video", "step", "start", "end", "probability"]
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [
        ["v10", name] for name in PLANS["tea"]
    ]


@pytest.mark.parametrize(
    "plan", [["cut", "heat", "spread"], ["spread", "cut", "heat"], ["heat"], ["cut", "cut"]]
)
def test_known_steps_are_each_there_once_and_in_order(recognised, plan):
    (found,) = recognised("v11", "--task", "toast", "--steps-known", ", ".join(plan))
    assert names(found) == plan
    ends = [time for step in found["steps"] for time in (step["start"], step["end"])]
    assert ends == sorted(ends)
    ids = ",".join(str(NAMES.index(name)) for name in plan)
    assert recognised("v11", "--task", "1", "--steps-known", ids) == [found]


def test_uncertain_steps_are_left_out(recognised):
    (every,), (none,) = recognised("v10"), recognised("v10", "--min-probability", 1)
    kept = sorted(step["probability"] for step in every["steps"])[1:]
    (likely,) = recognised("v10", "--min-probability", kept[0])
    assert (len(likely["steps"]), none["steps"]) == (2, [])


def test_what_is_wrong_in_recognised_steps(recognised, call, refused, films, tmp_path):
    (seen,) = recognised("v10")
    code, out, _ = call("verify", films / "RUN", "v10", "--check", "--json")
    (found,) = json.loads(out)
    assert (code, found["recognised"], found["deviations"], found["repair"]) == (0, True, [], [])
    assert [step["name"] for step in found["steps"]] == names(seen)
    assert (found["task"], found["seconds"]) == ("tea", seen["seconds"])
    np.save(tmp_path / "still.npy", np.zeros((1, 8)))
    still = tmp_path / "still.npy"
    assert "still.npy: no step was recognised.\n" in refused("verify", films / "RUN", still)
    code, out, err = call("verify", films / "RUN", still, "v10", "--json", "--check")
    assert (code, len(json.loads(out))) == (2, 1)
    assert f"error: left out: {still}: no step was recognised." in err
    _, _, err = call("verify", films / "RUN", "v10")
    (seen,) = (line for line in err.splitlines() if line.startswith("seen, and how sure that is: "))
    assert seen.count("(over 98 %)") == len(found["steps"])


def test_a_film_without_a_step_that_the_usual_order_fills_in(recognised, call, films, tmp_path):
    rows = np.load(films / "FEATURES" / "v10.npy")
    (seen,) = recognised("v10")
    step = next(step for step in seen["steps"] if step["name"] == "pour")
    start, end = round(step["start"]), round(step["end"])
    cut = tmp_path / "cut.npy"
    np.save(cut, np.concatenate([rows[:start], rows[end:]]))
    code, out, err = call("verify", films / "RUN", cut, "--check", "--json")
    (video,) = json.loads(out)
    assert code == 3
    assert [(one["kind"], one["name"]) for one in video["deviations"]] == [("missing", "pour")]
    code, out, _ = call("verify", films / "RUN", cut, "--check", "--json", "--min-probability", 1)
    assert (code, [one["name"] for one in json.loads(out)[0]["unsure"]]) == (4, ["pour"])
    _, _, err = call("verify", films / "RUN", cut)
    assert "to do: pour" in err
    _, out, err = call("annotate", films / "RUN", cut, "--out", tmp_path / "OUT", "--json")
    assert "unless it is labelled as an error" in err
    (film,) = json.loads(out)["films"]
    assert film["doubtful"] == ["pour: missing"]
    code, out, err = call("recognise", films / "RUN", cut)
    assert "pour" in out
    assert f"note: cefito verify {films / 'RUN'} says what was seen\n" in err
    table = tmp_path / "STEPS.csv"
    call("recognise", films / "RUN", cut, "--out", table)
    (given,) = json.loads(call("verify", films / "RUN", table, "--json")[1])
    assert (names(given), given["deviations"]) == (PLANS["tea"], [])  # as if all was done
    assert {step["probability"] for step in given["steps"]} == {1} != {*_shares(table)}
    _, _, err = call("recognise", films / "RUN", cut, "--task", "tea", "--steps-known", "boil,wait")
    assert "skipped" not in err


def _shares(table):
    with table.open() as file:
        return [float(row["probability"]) for row in csv.DictReader(file)]


def test_a_step_against_an_order_given_is_less_likely(recognised, films, tmp_path):
    order, dim, last = tmp_path / "order.json", tmp_path / "dim.npy", []
    np.save(dim, 0.1 * np.load(films / "FEATURES" / "v10.npy"))  # which leave room for doubt
    for edges in [], [[0, 1], [1, 2]], [[2, 1], [1, 0]]:
        order.write_text(json.dumps({"tea": {"edges": edges}}))
        (found,) = recognised(dim, "--task", "tea", "--order", order)
        last.append(found["steps"][-1]["probability"])
    assert last[2] + 0.05 < last[0] == pytest.approx(last[1], abs=0.05)


def test_names_of_videos_are_no_paths(films, ran, tmp_path):
    paths = [shutil.copy(films / "FEATURES" / "v1.npy", tmp_path / name) for name in TWINS]
    out = tmp_path / "x"
    ran("recognise", films / "RUN", *paths, "--out", out, "--format", "eaf")
    assert sorted(path.name for path in out.iterdir()) == ["a%5Cb.eaf", "a_b.eaf"]


def test_films_of_one_name_are_named_with_their_folders(
    recognised, films, ran, call, refused, tmp_path
):
    for name in ("P01/cam", "P02/cam", "side"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(films / "FEATURES" / "v10.npy", tmp_path / f"{name}.npy")
    one, other, side = (tmp_path / f"{name}.npy" for name in ("P01/cam", "P02/cam", "side"))
    found = recognised(one, other, side)
    assert [video["video"] for video in found] == ["P01/cam", "P02/cam", "side"]
    assert [video["video"] for video in recognised(one, side)] == ["cam", "side"]
    problem = refused("recognise", films / "RUN", one, side, one.parent / ".." / "P01" / "cam.npy")
    assert "another video is called 'cam', too. Leave one out, or rename the file." in problem
    annotate = ("annotate", films / "RUN", "--out", tmp_path / "OUT")
    ran(*annotate, one, other, "--format", "eaf")
    files = sorted((tmp_path / "OUT").glob("*.eaf"))
    assert len(files) == 2
    both = [part for file in files for part in ("--corrected", file)]
    assert "2 films, 6 steps: 6 kept" in ran(*annotate, *both).err
    told = ran(*annotate, "--corrected", *files, "--json")  # as a shell expands *.eaf
    assert json.loads(told.out)["kept"] == 6
    assert "gone.npy: no such file" in refused(*annotate, "--corrected", *files, "gone.npy")
    assert "give either films" in refused(*annotate, one, "--corrected", *files)
    assert "cam.npy" in refused(*annotate, "--corrected", *files, one)
    code, _, told = call(*annotate, "--corrected", files[0])
    assert code == 2
    assert "film 'cam' may be the proposed 'P01/cam' or 'P02/cam'" in told


def test_nothing_is_read_before_all_videos_are_there(films, refused, tmp_path):
    (tmp_path / "a.npy").write_text("no numbers")
    for missing, message in (("b.npy", "b.npy: no such file"), ("b", "b: no such file, and no")):
        given = (films / "RUN", tmp_path / "a.npy", tmp_path / missing)
        problem = refused("annotate", *given, "--out", tmp_path / "OUT")
        assert message in problem


@pytest.mark.parametrize("command", ["recognise", "verify", "follow"])
def test_a_film_of_another_task_than_the_one_given_is_named(command, films, call):
    film = films / "FEATURES" / "v10.npy"
    source = ("--features", film) if command == "follow" else (film,)
    for task in ("tea", "toast"):
        err = call(command, films / "RUN", *source, "--task", task)[2]
        said = f"warning: {film}: shows the task 'tea' (over 98 %), not 'toast', which was given"
        assert (said in err.splitlines()) == (task == "toast")


def test_plans_begin_where_the_last_rows_show_the_film_to_be(films, monkeypatch):
    """Three rows of the film are an observation of this run."""

    def likely():
        session = cefito.follow(films / "RUN")
        for second, row in enumerate(np.load(films / "FEATURES" / "v10.npy")[:30]):
            session.observe(row, at=float(second))
        return [plan.probability for plan in session.plans(3)]

    seen = likely()
    monkeypatch.setattr("cefito.inference.following.joined_rows", lambda *_: None)
    assert seen != pytest.approx(likely(), rel=1e-3)


def test_groups_of_films_are_those_of_a_table_of_videos(films, call, tmp_path):
    table, page = tmp_path / "VIDEOS.csv", tmp_path / "page.html"
    table.write_text("video,group\nv10.npy,early\nv11,late\n")
    rows = [films / "FEATURES" / f"{name}.npy" for name in TEST]
    options = ("--video-table", table, "--out", page, "--json")
    found = json.loads(call("verify", films / "RUN", *rows, *options)[1])
    assert [video.get("group", "") for video in found] == ["early", "late", "", ""]
    assert "by early" in page.read_text("utf-8")


def test_a_film_of_no_known_task_is_named_wherever_its_steps_go(films, call, tmp_path, monkeypatch):
    monkeypatch.setattr(segmental_model, "either_order", lambda drawn, *_, **__: (drawn, True))
    said = "note: v10: the film may show another task, or none that is known; 'tea' has 50.0 %"
    for more in ((), ("--out", tmp_path / "STEPS.csv"), ("--json",)):
        err = call("recognise", films / "RUN", films / "FEATURES" / "v10.npy", *more)[2]
        assert said in err.splitlines()
    assert call("verify", films / "RUN", films / "FEATURES" / "v10.npy", "--check")[0] == 4


@pytest.mark.parametrize("command", ["recognise", "verify"])
def test_videos_that_cannot_be_read_are_left_out_and_named(command, films, call, tmp_path):
    right, bad, wide = (tmp_path / name for name in ("right.npy", "bad.npy", "wide.npy"))
    shutil.copy(films / "FEATURES" / "v10.npy", right)
    bad.write_bytes(b"\0no numbers")
    np.save(wide, np.zeros((9, 5), np.float32))
    left, endings = [tmp_path / "rigth.npy", "v110", bad, wide], ["csv", "xlsx"]
    outs = [f"--out={tmp_path / 'x'}.{ending}" for ending in endings * (command == "verify")]
    code, out, err = call(command, films / "RUN", *left, right, "--json", *outs)
    assert code == 2
    assert [video["video"] for video in json.loads(out)] == ["right"]
    lines = [line for line in err.splitlines() if line.startswith("error: ")]
    for line, name in zip(lines, left, strict=True):
        assert line.startswith(f"error: left out: {name}: ")
    assert f"(did you mean {right}?)" in lines[0]
    assert "Similar ids: 'v1'" in lines[1]
    said = [line.removeprefix("error: left out: ").split(": ", 1) for line in lines]
    if command == "verify":
        _, *rows = csv.reader((tmp_path / "x.csv").read_text("utf-8").splitlines())
        assert [[row[0], row[6]] for row in rows] == [[a, f"not verified: {b}"] for a, b in said]
        book = pytest.importorskip("openpyxl").load_workbook(tmp_path / "x.xlsx")
        _, _, *rows = book["videos"].iter_rows(values_only=True)
        assert [[row[0], row[-1]] for row in rows] == [[a, f"not verified: {b}"] for a, b in said]
    code, out, err = call(command, films / "RUN", bad, wide)
    assert (code, out) == (2, "")
    assert all(str(path) in err for path in (bad, wide))


def test_proposals_that_were_corrected(films, ran, call, refused, tmp_path):
    out, steps = tmp_path / "OUT", tmp_path / "STEPS.csv"
    annotate = ("annotate", films / "RUN", "--out", out)
    assert "give either films, or the files that were corrected" in refused(*annotate)
    value = json.loads(ran(*annotate, "v10", "v11", "--json").out)
    assert {film["film"] for film in value["films"]} == {"v10", "v11"}
    assert f"{out}: holds proposals already." in refused(*annotate, "v12")
    told = ran(*annotate, "--corrected", films / "STEPS.csv").err
    assert told.startswith("not proposed, so not counted: v0, v1, v2, ")
    assert "\n2 films, 6 steps: " in told
    value = json.loads(ran(*annotate, "--corrected", films / "STEPS.csv", "--json").out)
    assert (value["videos"], value["steps"]) == (2, 6)
    assert value["kept"] + value["moved"] + value["added"] == 6
    assert "v0" in value["not_proposed"]
    steps.write_text((films / "STEPS.csv").read_text().replace("v1", "w1"))
    code, _, told = call(*annotate, "--corrected", steps)
    assert code == 2
    assert told.endswith(f"{out / 'proposals.jsonl'}: holds none of the corrected films.\n")
    assert "gone.csv: no such file" in refused(*annotate, "--corrected", tmp_path / "gone.csv")


def test_films_whose_labels_help_most_come_first(films, ran, tmp_path, monkeypatch):
    annotate = ("annotate", films / "RUN", "v0", "v10", "v11", "--out")
    value = json.loads(ran(*annotate, tmp_path / "A", "--json").out)["films"]
    assert [film["help"] for film in value] == sorted(
        (film["help"] for film in value), reverse=True
    )
    assert (value[2]["film"], value[2]["new"]) == ("v0", pytest.approx(0, abs=1e-5))  # labelled
    assert all(film["new"] > 0.02 for film in value[:2])
    assert {film["labelled"] for film in value} == {5}
    facts = ["help", "unsure", "new", "labelled", "why", "parts", "doubtful"]
    assert [*value[0]] == ["film", "task", "steps", *facts]  # as the page lists them
    lines = (tmp_path / "A" / PROPOSALS).read_text().splitlines()
    assert [json.loads(line)["video"] for line in lines] == [film["film"] for film in value]
    _, *out = ran(*annotate, tmp_path / "B").out.splitlines()
    assert " ".join(out[0].split()) == "film task steps why look first at perhaps not as usual"
    assert [line.split()[0] for line in out[1:]] == [film["film"] for film in value]
    assert "% new, 5 labelled films of its task" in out[1]
    unsure = UnsureStep(action=0, name="boil", kind="short", words="too short", probability=0.4)
    seen = SimpleNamespace(deviations=(), unsure=(unsure,))
    monkeypatch.setattr("cefito.inference.next_films.verified_film", lambda *_: seen)
    value = json.loads(ran(*annotate, tmp_path / "C", "--json").out)["films"]
    assert {tuple(film["doubtful"]) for film in value} == {("boil: too short",)}


def test_without_its_data_set_films_are_ordered_by_how_unsure_they_are(films, call, tmp_path):
    shutil.copytree(films / "RUN", tmp_path / "RUN")
    run = open_run(tmp_path / "RUN")
    moved = run.info.dataset.model_copy(update={"path": str(tmp_path / "gone")})
    replace(run, info=run.info.model_copy(update={"dataset": moved})).written()
    inputs = [films / "FEATURES" / f"{name}.npy" for name in ("v0", "v10", "v11")]
    code, out, err = call("annotate", tmp_path / "RUN", *inputs, "--out", tmp_path / "A", "--json")
    value = json.loads(out)["films"]
    assert code == 0
    assert "films are ordered by how unsure they are alone" in err
    unsure = [film["unsure"] for film in value]
    assert unsure == sorted(unsure, reverse=True) == [film["help"] for film in value]
    assert {film["new"] for film in value} == {film["labelled"] for film in value} == {None}


@pytest.mark.parametrize("form", WRITERS)
def test_proposals_of_every_format_that_is_written(form, films, ran, refused, tmp_path):
    annotate = ("annotate", films / "RUN", "--out", tmp_path)
    rate = ("--frame-rate", "10") if WRITERS[form].frames else ()
    ran(*annotate, "v10", "v11", "--format", form, *rate)
    folder = tmp_path / WRITERS[form].folder
    files = [path for path in folder.iterdir() if path.name not in (PROPOSALS, TASKS)]
    assert len(files) == (1 if form == "csv" else 2)
    assert {path.suffix for path in files} == {WRITERS[form].ending}
    assert form != "csv" or files == [tmp_path / "STEPS.csv"]
    both = [part for file in files for part in ("--corrected", file)]
    assert "2 films, 6 steps: 6 kept" in ran(*annotate, *both, *rate).err
    assert "2 films, 6 steps: 6 kept" in ran(*annotate, "--corrected", tmp_path, *rate).err
    if rate:
        assert "(--frame-rate)" in refused(*annotate[:3], tmp_path / "X", "v10", "--format", form)


def test_proposals_are_in_the_tier_of_the_labels(films, ran, tmp_path):
    """Whose name the data set keeps, in ELAN and in Label Studio; `steps` without one."""
    assert open_dataset(films / "DATA").provenance["tier"] == TIER
    shutil.copytree(films, tmp_path / "films")
    for tier in (TIER, "steps"):
        for form, mark in (
            ("eaf", f'TIER_ID="{escape(tier)}"'),
            ("labelstudio", f'"from_name": "{tier}"'),
            ("elantext", f"\n{tier}\t"),
        ):
            out, film = tmp_path / form / tier[:1], films / "FEATURES" / "v10.npy"
            ran("annotate", films / "RUN", film, "--out", out, "--format", form)
            (file,) = [path for path in out.rglob("*v10*") if path.is_file()]
            assert mark in file.read_text("utf-8")
        shutil.rmtree(films / "DATA", ignore_errors=True)
    shutil.copytree(tmp_path / "films" / "DATA", films / "DATA", dirs_exist_ok=True)


def test_each_film_keeps_its_task(films, ran, tmp_path):
    out = tmp_path / "OUT"
    ran("annotate", films / "RUN", "v10", "v11", "--out", out, "--format", "eaf")
    proposed = [json.loads(line) for line in (out / PROPOSALS).read_text().splitlines()]
    tasks = {track["video"]: track["task"] for track in proposed}
    (out / TASKS).write_text((out / TASKS).read_text().replace(f"v11.mp4,{tasks['v11']}", "v11,B"))
    eaf, steps = sorted(out.glob("*.eaf")), tmp_path / "STEPS.csv"
    ran("data", "steps", *eaf, "--video-table", out / "VIDEOS.csv", "--out", steps)
    rows = [line.split(",")[:2] for line in steps.read_text().splitlines()[1:]]
    assert dict(rows) == {"v10": tasks["v10"], "v11": "B"}
    both = [part for file in eaf for part in ("--corrected", file)]
    assert "2 films, 6 steps: 6 kept" in ran("annotate", films / "RUN", "--out", out, *both).err


def test_formats_are_listed_and_others_refused(films, call, refused):
    listed = ", ".join(sorted(WRITERS))
    for command in ("recognise", "annotate"):
        shown = " ".join(call(command, "--help")[1].replace("│", " ").split())
        assert f"[choices: {listed}]" in shown
        problem = refused(command, films / "RUN", "v1", "--out", "x", "--format", "xml")
        assert all(f'"{name}"' in problem for name in WRITERS)


def test_refusals(films, tmp_path, refused, call):
    rows = np.load(films / "FEATURES" / "v10.npy")
    np.save(tmp_path / "wide.npy", np.hstack([rows, rows]))
    np.save(tmp_path / "short.npy", rows[:3])
    rows[7, 2] = np.nan
    np.save(tmp_path / "nan.npy", rows)
    known = ("--task", "tea", "--steps-known")
    for argv, message in (
        ((tmp_path / "wide.npy",), "wide.npy: rows [79, 16]: expected [rows, 8], as in training."),
        ((tmp_path / "nan.npy",), "nan.npy: row 7 (counted from 0) holds NaN or infinity."),
        ((tmp_path / "short.npy", *known, "boil,pour,wait"), "is too short for the steps known"),
        ((tmp_path / "no.npy",), "no.npy"),
        ((tmp_path / "no.mp4",), "no.mp4: no such file, and no video"),
        ((films / "FEATURES" / "v10.npy", "--dataset", films / "DATA"), "/v10.npy' in "),
        (("v1", "v1"), "another video is called 'v1', too"),
        (("v1", "--task", "coffee"), "unknown task 'coffee'; "),
        (("v1", "--steps-known", "boil"), "need their task. Give it, too. (--task)"),
        (("v1", *known, "cut"), "action 'cut' is not one of the task 'tea' but of 'toast'."),
        (("v0", *known, ","), "not steps of one task"),
        (("v1", "--min-probability", "2"), "expected 0 to 1."),
        (("v1", "--out", tmp_path / "x.doc"), "expected a file that ends in .csv, .eaf, .edl"),
        (("v1", "v2", "--out", tmp_path / "x.eaf"), "holds one video, not 2. Give a folder"),
        (("v1", "--out", tmp_path / "x"), "or --format"),
        (("v1", "--format", "csv"), "Give --out, too."),
        (("v1", "--device", "abacus"), "device 'abacus': is unknown"),
        (("v1", "--feature-rate", 0), "0: expected 0.01 to 1000 rows a second. (--feature-rate)"),
        ((films / "STEPS.csv",), "does not say what its features were made with"),
        ((), "give files of features, video files, or ids of videos."),
    ):
        assert message in refused("recognise", films / "RUN", *argv)


def test_runs_and_data_sets_without_rows(films, tmp_path, refused, call):
    prepare = ["data", "prepare", "custom", films / "STEPS.csv", tmp_path / "DATA"]
    assert call(*prepare, "--features", films / "FEATURES", "--no-timeline")[0] == 0
    assert open_dataset(tmp_path / "DATA").timeline is None
    line = refused("recognise", films / "RUN", "v1", "--dataset", tmp_path / "DATA")
    assert "holds no rows of whole videos. Prepare it with features and --timeline." in line


def tried(run):
    """A run whose recogniser saw some of the mistakes that its training made up."""
    own = run.own_recogniser
    assert isinstance(own, SegmentalRecogniser)
    return replace(run, recogniser=replace(own, seen=TRIED))


def test_the_report_shows_whole_videos(films, call, tmp_path):
    out, run = tmp_path / "report.html", shutil.copytree(films / "RUN", tmp_path / "RUN")
    tried(open_run(run)).written()
    call("report", run, "--dataset", films / "DATA", "--out", out)
    page = out.read_text()
    assert "were exchanged, 5 of 5; not seen: &#39;boil&#39;." in page
    assert page.count("recognised</text>") == page.count("annotated</text>") > 0


def test_a_run_without_a_recogniser(trained, refused):
    assert "cannot recognise steps: its data set held no rows" in refused("recognise", trained, "x")


def test_training_says_that_a_recogniser_was_trained(films, capsys):
    from cefito.cli.train import _report

    run = tried(open_run(films / "RUN"))
    _report(run, True, open_dataset(films / "DATA"))
    said = capsys.readouterr().err
    assert "a recogniser of steps was trained, too: cefito recognise" in said
    assert "note: tea: of steps that were cut out" in said
    assert "were exchanged, 5 of 5; not seen: 'boil'\n" in said
    assert "note: mistakes in films may go unseen: of steps that were cut out" in said
    assert "1 of 5 were seen to be missing" in said


def test_a_folder_with_rows_alone_is_prepared(films, tmp_path, call):
    source = tmp_path / "SOURCE"
    source.mkdir()
    for name in ("taxonomy.json", "videos.jsonl"):
        (source / name).write_bytes((films / "DATA" / name).read_bytes())
    made = open_dataset(films / "DATA")
    rows = {one.video_id: rows for one, rows in zip(made.videos, made.timeline.videos, strict=True)}
    np.savez(source / "timeline.npz", rate=1.0, **rows)
    assert main(["data", "prepare", "custom", str(source), str(tmp_path / "DATA")]) == 0
    again = open_dataset(tmp_path / "DATA")
    assert np.array_equal(again.start, made.start)
    assert again.timeline.videos[3].shape == made.timeline.videos[3].shape


def test_poor_scores_of_videos_held_out_are_said(films, ran, call, tmp_path):
    shutil.copytree(films / "RUN", tmp_path / "RUN")
    assert "check these steps" not in ran("recognise", tmp_path / "RUN", "v10").err
    run = open_run(tmp_path / "RUN")
    own = run.own_recogniser
    assert isinstance(own, SegmentalRecogniser)
    assert own.held_out is not None
    assert own.held_out.videos == 10
    poor = own.held_out.model_copy(update={"edit": 41.4, "f1_50": 30.0})
    replace(run, recogniser=replace(own, held_out=poor, seen=TRIED)).written()
    said = ran("recognise", tmp_path / "RUN", "v10").err
    assert "check these steps" in said
    assert "F1@50 30, edit score 41" in said
    rows = tmp_path / "rows.npy"
    np.save(rows, np.zeros((2, own.width), dtype=np.float32))
    err = ran("follow", tmp_path / "RUN", "--features", rows).err
    assert "edit score 41" in err
    assert "; not seen: 'boil'\n" in err
    film = films / "FEATURES" / "v11.npy"  # toast, of which too few mistakes were seen
    code, out, err = call("verify", tmp_path / "RUN", film, "--check", "--json")
    assert (code, json.loads(out)[0]["deviations"]) == (4, [])
    (limit,) = json.loads(out)[0]["limits"]
    assert "1 of 5 were seen to be missing" in limit
    assert limit in call("verify", tmp_path / "RUN", film)[2]


def test_false_alarms_in_films_are_promised_by_films_held_out(films, call):
    code, out, _ = call("verify", films / "RUN", "v10", "--false-alarms", 1000, "--json")
    (video,) = json.loads(out)
    assert code == 0
    assert video["promise"]["videos"] == 10
    assert video["promise"]["false_alarms"] == 1000
    assert not video.get("notes")
    code, _, err = call("verify", films / "RUN", "v10", "--false-alarms", 0.5)
    assert code == 2
    assert "10 right videos held out suffice for" in err
    online = call("verify", films / "RUN", "v10", "--false-alarms", 1000, "--online", "--json")[1]
    assert "steps were given" in json.loads(online)[0]["notes"][0]


def test_from_labels_of_frames_to_a_missing_step_at_15_rows_a_second(ran, tmp_path, monkeypatch):
    rng, rate, plan = np.random.default_rng(0), 30, NAMES[:4]
    for name in ("groundTruth", "features", "splits"):
        (tmp_path / "KITCHEN" / name).mkdir(parents=True)

    def write(video, names, folder):
        """Write labels, in runs of about two seconds, and features [D, frames]."""
        runs = [("SIL", 15), *(run for name in names for run in ((name, None), ("SIL", 15)))]
        labels = [name for name, count in runs for _ in range(count or rng.integers(45, 75))]
        signs = 3 * np.eye(8)[[plan.index(name) if name in plan else 7 for name in labels]]
        rows = signs + 0.6 * rng.standard_normal(signs.shape)
        np.save(folder / f"{video}.npy", rows.T.astype(np.float32))
        return labels

    kitchen = tmp_path / "KITCHEN"
    for number in range(8):
        labels = write(f"v{number}", plan, kitchen / "features")
        (kitchen / "groundTruth" / f"v{number}.txt").write_text("\n".join(labels) + "\n")
    for split, videos in (("train", range(7)), ("test", (7,))):
        listed = "".join(f"v{number}.txt\n" for number in videos)
        (kitchen / "splits" / f"{split}.split1.bundle").write_text(listed)
    data, run = tmp_path / "DATA", tmp_path / "RUN"
    prepare = ("data", "prepare", "custom", kitchen, data, "--frame-rate", rate)
    ran(*prepare, "--task", "salad", "--row-rate", 15)
    assert open_dataset(data).timeline.rate == 15
    small = TINY_LENGTHS | {
        f"recogniser.{name}": value for name, value in SMALL.model_dump(exclude_unset=True).items()
    }
    small["recogniser.temporal_passes"] = 5
    monkeypatch.setattr("cefito.inference.whole_videos.among_right", lambda *_: ["one is odd"])
    said = ran("train", data, "--steps", "1-3", "--out", run, *as_arguments(small)).err
    assert "note: one is odd" in said.splitlines()
    assert open_run(run).own_recogniser.rate == 15
    assert len(open_run(run).own_verifier.films.hours) == 7  # each by a recogniser of the others
    film = kitchen / "features" / "v7.npy"
    (seen,) = json.loads(ran("recognise", run, film, "--json").out)
    assert names(seen) == plan
    (annotated,) = json.loads(ran("recognise", run, "v7", "--json").out)
    for ours, theirs in zip(seen["steps"], annotated["annotated"], strict=True):
        assert [ours["start"], ours["end"]] == pytest.approx(
            [theirs["start"], theirs["end"]], abs=1
        )
    *_, last = map(json.loads, ran("follow", run, "--features", film, "--json").out.splitlines())
    assert [step["name"] for step in last["done"]] == plan
    write("skipped", [*plan[:2], plan[3]], tmp_path)
    (wrong,) = json.loads(ran("verify", run, tmp_path / "skipped.npy", "--json").out)
    assert [(one["kind"], one["name"]) for one in wrong["deviations"]] == [("missing", plan[2])]
