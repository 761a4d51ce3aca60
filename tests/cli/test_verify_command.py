"""`cefito verify` and `cefito graph` on steps that are given, by a run of a simulated world."""

import csv
import json
import re
import shutil
from datetime import datetime
from pathlib import Path

import pytest

from cefito.cli.verify import show_verified
from cefito.inference.verification import CAUTION, VerifiedVideo, verify
from cefito.runs.options import TrainOptions
from cefito.tracks.document import Choices
from cefito.verification.findings import Deviation
from tiny_runs import TINY_RUN, as_arguments

RIGHT = ["crush spices", "boil water", "add tea leaves", "pour milk", "add honey", "stir mixture"]
SWAPPED = [RIGHT[1], RIGHT[0], *RIGHT[2:]]
TASK = "Brew Spiced Tea"
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "verify.md").read_text("utf-8")
BAD = "<b>&<script>alert(1)</script>"


@pytest.fixture
def run(run_of_lengths):
    return run_of_lengths.folder


@pytest.fixture
def table(tmp_path):
    """Write a table of the steps of videos by name, which all end with 'strain tea'."""

    def write(name="STEPS.csv", task=TASK, seconds=15, **videos):
        rows = [
            f'"{video}",{task},{step},{20 * place},{20 * place + seconds}\n'
            for video, steps in videos.items()
            for place, step in enumerate([*steps, "strain tea"])
        ]
        path = tmp_path / name
        path.write_text("video,task,step,start,end\n" + "".join(rows))
        return path

    return write


def test_findings_of_a_table(call, run, table):
    steps = table(right=RIGHT, wrong=SWAPPED, less=[*RIGHT[:3], *RIGHT[4:]])
    code, out, err = call("verify", run, steps)
    assert code == 0
    swapped, missing = sorted(out.splitlines()[1:], key=lambda row: "less" in row)
    assert "out of order" in swapped
    assert "'crush spices' after 'boil water'; 3 of 3 videos" in swapped
    assert missing.split()[:5] == ["less", "pour", "milk", "missing", "86.7"]
    assert (
        f"right: {TASK}, 7 steps given\nno mistake was found with a probability of 50.0 % or more\n"
        in err
    )
    assert "to do: pour milk\n" in err
    assert "if several people" in call("verify", run, table(one=RIGHT, seconds=70))[2]


def test_what_the_page_counts_in_assembly101(call, shared_data):
    """Each of the test videos ends with its first mistake."""
    table, whole = (shared_data / "assembly101_o" / name for name in ("steps.csv", "whole.csv"))
    with table.open() as file:
        right = {row["video"] for row in csv.DictReader(file) if row["split"] == "train"}
    with whole.open() as file:
        wrong = [row for row in csv.DictReader(file) if row["label"] == "mistake"]
    cause = {row["video"]: row["cause"] for row in reversed(wrong)}
    videos = json.loads(call("verify", table, table, "--online", "--json")[1])
    found = [(video, one) for video in videos for one in video["deviations"]]
    assert {one["kind"] for _, one in found} == {"missing", "unknown"}
    films = [video["video"] for video, one in found if one["kind"] == "missing"]
    unknown = [(video, one) for video, one in found if one["kind"] == "unknown"]
    lower = call("verify", table, table, "--online", "--json", "--min-probability", 0.0476)[1]
    steps = {
        (video["video"], one["step"], one["step"] == len(video["steps"]))
        for video in json.loads(lower)
        for one in video["deviations"]
        if "step" in one
    }
    hits = sum(last for *_, last in steps)
    assert (
        f"a right video | {100 * hits / len(steps):.1f} | {100 * hits / len(videos):.1f} |" in PAGE
    )
    named = {v["video"]: one["name"] for v, one in unknown if one["step"] == len(v["steps"])}
    assert all(name.startswith("detach-") for name in named.values())
    text, others = " ".join(PAGE.split()), [cause[name] for name in cause.keys() - named]
    for words in (
        f"a table of {len(right)} right videos and {len(videos)} up to their first mistake",
        f"the {len(named)} mistakes that it finds is a part that is taken off, and",
        f"names the same {len(unknown)}, {len(named)} of them mistakes",
        f"{len(films)} findings of missing steps, in {len({*films})} of the {len(videos)} videos",
        f"Of the other {len(others)} mistakes, {others.count('wrong position')} are of the posit",
    ):
        assert words in text


def test_the_findings_of_the_page(call, tmp_path):
    """By the table of the example, whose orders a run of it has, too."""
    steps = ["loosen nuts", "jack up", "put on wheel", "take off wheel", "jack down"]
    videos = {"monday": [*steps, "tighten nuts"], "tuesday": [*steps[:2], *steps[3:1:-1], steps[4]]}
    lines = [
        f"{video},change tyre,{step},{1 + 7 * place},{7 + 7 * place}"
        for video, names in videos.items()
        for place, step in enumerate(names)
    ]
    lines[-1] = "tuesday,change tyre,jack down,27,50"
    (tmp_path / "NEW.csv").write_text("\n".join(["video,task,step,start,end", *lines]))
    _, out, err = call("verify", ROOT / "examples/table/steps.csv", tmp_path / "NEW.csv")
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    said = [line for line in err.splitlines() if not line.startswith("warning")]
    assert [*said, *out.splitlines()] == shown.splitlines()


def test_files_of_steps_that_cannot_be_read_are_left_out_and_named(call, run, table, tmp_path):
    right, other = table(right=RIGHT), table("OTHER.csv", task="unknown", other=RIGHT)
    bad = tmp_path / "bad.eaf"
    bad.write_text("<ANNOTATION_DOCUMENT>")
    left = bad, tmp_path / "gone.csv", other
    code, out, err = call("verify", run, bad, right, *left[1:], "--json", "--check")
    assert code == 2
    assert [video["video"] for video in json.loads(out)] == ["right"]
    lines = [line for line in err.splitlines() if line.startswith("error: ")]
    for line, path in zip(sorted(lines), sorted(map(str, left)), strict=True):
        assert line.startswith(f"error: left out: {path}")
    code, out, err = call("verify", run, bad, other)
    assert (code, out) == (2, "")
    mixed = tmp_path / "MIXED.csv"  # a video of each
    mixed.write_text(other.read_text() + right.read_text().partition("\n")[2])
    code, out, err = call("verify", run, mixed, "--json")
    assert code == 2
    assert [video["video"] for video in json.loads(out)] == ["right"]
    assert f"error: left out: {mixed}, video 'other': unknown task 'unknown'" in err


def test_files_of_steps_of_any_name_and_their_options(call, refused, tmp_path):
    (tmp_path / "tea.txt").write_text("# tea\n1. boil\n2. pour\n")
    assert call("data", "procedure", tmp_path / "tea.txt", tmp_path / "tea")[0] == 0
    for name, text, options in (
        ("N.CSV", "video,task,step,start,end\na,tea,boil,0,4\na,tea,pour,4,9\n", []),
        ("n.txt", "0:00 - 0:04 boil\n0:04 - 0:09 pour\n", ["--task", "tea"]),
        ("n", "boil\nboil\npour\npour\n", ["--task", "tea", "--frame-rate", "1"]),
        (
            "eaf.tsv",
            "Tier\tBegin Time - msec\tEnd Time - msec\tAnnotation\n"
            "S\t0\t4000\tboil\nS\t4000\t9000\tpour\nN\t0\t9\tx\n",
            ["--task", "tea", "--tier", "S"],
        ),
        ("de.csv", "v;s;a;e\na;boil;0;4\na;pour;4;9\n", ["--task", "tea", "--column", "video=v"]),
    ):
        (tmp_path / name).write_text(text)
        if name == "de.csv":
            options += [f"--column={one}" for one in ("step=s", "start=a", "end=e")]
        assert call("verify", tmp_path / "tea", tmp_path / name, *options, "--check")[0] == 0, name
        if name in ("n", "eaf.tsv", "de.csv"):  # options are of both files
            right = shutil.copy(tmp_path / name, tmp_path / f"right {name}")
            assert call("verify", right, tmp_path / name, *options, "--check")[0] == 0
    (tmp_path / "late.txt").write_text("0:00 boil\n0:04 pour\n")
    _, _, err = call("verify", tmp_path / "tea", tmp_path / "late.txt", "--task", "tea")
    assert "the end of their video is unknown: 1 step" in err
    text = refused("verify", tmp_path / "tea", tmp_path / "eaf.tsv", "--task", "tea")
    assert text.endswith("Choose the one with the steps. (--tier)\n")


def test_what_was_left_out_of_the_table_that_is_learned_from_is_said(call, tmp_path):
    right = tmp_path / "right.csv"
    right.write_text("video,task,step,start,end\n" + 2 * "a,tea,boil,0,4\n")
    (tmp_path / "new.csv").write_text("video,task,step,start,end\nb,tea,boil,0,4\n")
    err = call("verify", right, tmp_path / "new.csv")[2]
    assert f"warning: {right}: Left out 1 repeated step" in " ".join(err.split())


def test_a_name_of_a_column_is_of_the_tables_that_have_it(call, refused, tmp_path):
    tables = tmp_path / "right.csv", tmp_path / "new.csv"
    tables[0].write_text("video,task,step,von,bis\na,tea,boil,0,4\na,tea,pour,4,9\n")
    tables[1].write_text("video,task,step,start,end,who\nb,tea,pour,0,4,x\n")
    columns = {"start": "von", "end": "bis", "group": "who"}
    given = [*tables, *(f"--column={ours}={theirs}" for ours, theirs in columns.items())]
    code, out, _ = call("verify", *given, "--json")
    assert (code, json.loads(out)[0]["group"]) == (0, "x")
    found = verify(*tables, choices=Choices(columns=columns))
    lacking = [
        f"{name}.csv: has no column '{of}', which another table has."
        for name, of in (("right", "who"), ("new", "von"), ("new", "bis"))
    ]
    assert (found.group, sorted(found.notes)) == ("x", sorted(lacking))
    assert "has no column 'what'" in refused("verify", *given, "--column=error=what")


def test_videos_of_a_table_that_no_file_has_are_named_once(call, tmp_path):
    (tmp_path / "tea.txt").write_text("# tea\n1. boil\n2. pour\n")
    assert call("data", "procedure", tmp_path / "tea.txt", tmp_path / "tea")[0] == 0
    table, files = tmp_path / "VIDEOS.csv", [tmp_path / f"{name}.vtt" for name in "abc"]
    table.write_text("video,task\n" + "".join(f"{name},tea\n" for name in "abcd"))
    for file in files:
        cues = ("00:00.000 --> 00:04.000\nboil", "00:04.000 --> 00:09.000\npour")
        file.write_text("\n\n".join(("WEBVTT", *cues)) + "\n")
    err = call("verify", tmp_path / "tea", *files, "--video-table", table)[2]
    said = [line for line in err.splitlines() if "no steps in" in line]
    assert said == ["VIDEOS.csv: no steps in 1 video, such as 'd'."]


def test_exit_code_page_log_and_json(call, run, table, tmp_path):
    assert call("verify", run, table(one=RIGHT), "--check")[0] == 0
    (tmp_path / "folder.jsonl").mkdir()
    assert call("verify", run, table(one=SWAPPED), "--log", tmp_path / "folder.jsonl")[0] == 2
    steps, page, log = table(**{BAD: SWAPPED}), tmp_path / "x.html", tmp_path / "x.jsonl"
    for count in (1, 2):
        code, out, _ = call("verify", run, steps, "--out", page, "--log", log, "--json", "--check")
        (video,) = json.loads(out)
        (one,) = video["deviations"]
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        assert (code, len(lines)) == (3, count)
        log_of_the_page = PAGE.partition("## The log\n")[2].partition("\n## ")[0]
        keys = {*re.findall(r"`(\w+)`", log_of_the_page)}
        assert {*lines[-1]} == keys
        assert (video["video"], video["task"], video["recognised"]) == (BAD, TASK, False)
        assert lines[-1].items() >= {"video": BAD, "task": TASK, **one}.items()
        assert datetime.fromisoformat(lines[-1]["logged"]).tzinfo is not None
        step = video["steps"][one["step"] - 1]
        for key in ("start", "end", "name"):
            assert one[key] == step[key]
        assert [step["name"] for step in video["steps"]] == [*SWAPPED, "strain tea"]
    call("verify", run, table(one=SWAPPED, two=[*SWAPPED[:3], *SWAPPED[4:]]), "--log", log)
    logged = [json.loads(line) for line in log.read_text().splitlines()[2:]]
    kinds = [(one["video"], one["kind"]) for one in logged]
    assert sorted(kinds) == [("one", "order"), ("two", "missing"), ("two", "order")]
    call("verify", run, table(less=RIGHT[:-1]), "--log", log)
    assert {*json.loads(log.read_text().splitlines()[-1])} == keys - {"step", "start", "end"}
    text = page.read_text()
    assert [part in text for part in ("<script", "<b>", "&lt;b&gt;")] == [False, False, True]


def test_a_promise_of_false_alarms_is_made_and_said(call, run, table, tmp_path):
    steps, page = table(**{BAD: SWAPPED}), tmp_path / "x.html"
    for options, words in (
        (("--false-alarms", 20), "at most 20 false alarms an hour"),
        (("--false-alarms", 9, "--per-steps", 100), "at most 9 false alarms in 100 steps"),
    ):
        _, out, _ = call("verify", run, steps, *options, "--out", page, "--json")
        (video,) = json.loads(out)
        promise = video["promise"]
        assert {"false_alarms": options[1], "videos": 36}.items() <= promise.items()
        assert all(one["probability"] >= promise["least"] for one in video["deviations"])
        assert words in page.read_text()
        assert words in call("verify", run, steps, *options)[2]
    assert "promise" not in json.loads(call("verify", run, steps, "--json")[1])[0]


def test_what_is_said_of_all_films_is_said_once(capsys):
    unseen = "mistakes in films may go unseen: this recogniser was not tried on any"
    promise = {"false_alarms": 2, "per_steps": None, "least": 0.7, "videos": 9}
    films = [
        VerifiedVideo.model_validate(
            {"video": name, "task": "tea", "steps": (), "deviations": (), "repair": ()}
            | {"limits": limits, "promise": promise, "seconds": 60}
        )
        for name, limits in (("a", [unseen]), ("b", [unseen, "too dark"]), ("c", [unseen]))
    ]
    show_verified(films, 0.5)
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "no mistake was found" not in line] == [
        *(f"{name}: tea, 0 steps recognised" for name in "abc"),
        "promised: at most 2 false alarms an hour, from 70.0 % on, by 9 right videos held out",
        f"note: {unseen}",
        "b: note: too dark",
        f"note: {CAUTION}",
    ]
    assert films[0].to_dict()["limits"] == [unseen]
    facts = {"kind": "added", "words": "not a step of the task", "action": 1, "name": "pour"}
    sure = Deviation(**facts, step=1, start=0, end=9, probability=1.0, evidence="in none")
    show_verified([films[0].model_copy(update={"deviations": (sure,)})], 0.5)
    assert "over 98 %" in capsys.readouterr().out


def test_each_step_of_the_task_is_said(call, run, world, table):
    """A step is seen, or missing, or said to be neither."""
    (video,) = json.loads(call("verify", run, table(one=RIGHT[:2]), "--json")[1])
    kinds = ("steps", "deviations", "unseen")
    told = {one["name"] for kind in kinds for one in video.get(kind, ())}
    task = next(one for one in world.taxonomy.tasks if one.name == TASK)
    assert {*world.taxonomy.names(task.actions)} <= told
    said = call("verify", run, table(one=RIGHT[:2]), "--min-probability", "1")[2]
    assert "not seen, but not found to be missing: " in said
    assert " % missing; done in " in said


def test_steps_of_tables_are_names_also_if_they_are_numbers(call, run, refused, table):
    """They are never ids; so are tasks."""
    (video,) = json.loads(call("verify", run, table(one=["3"]), "--json")[1])
    assert ("unknown", "3") in [(one["kind"], one["name"]) for one in video["deviations"]]
    assert "unknown task '0'" in refused("verify", run, table("b.csv", task="0", one=RIGHT))


def test_graphs_are_printed_edited_and_written(call, run, world, table, tmp_path):
    orders, path = json.loads(call("graph", run)[1]), tmp_path / "order.json"
    assert len(orders) == len(world.taxonomy.tasks)
    for form, edge in (("svg", "marker-end"), ("dot", " -> ")):
        assert call("graph", run, "--out", tmp_path / f"x.{form}")[0] == 0
        text = (tmp_path / f"x.{form}").read_text()
        assert text.count(edge) == sum(len(one["edges"]) for one in orders.values())
    change = ["--add", "boil water,crush spices", "--remove", "crush spices,boil water"]
    assert call("graph", run, "--task", TASK, *change, "--out", path)[0] == 0
    assert ["boil water", "crush spices"] in json.loads(path.read_text())[TASK]["edges"]
    for steps, code in ((RIGHT, 3), (SWAPPED, 0)):
        assert call("verify", run, table(one=steps), "--order", path, "--check")[0] == code
    assert call("graph", run, "--task", TASK, "--order", path)[1] == path.read_text()


def test_refusals(run, trained, table, refused, tmp_path):
    steps = table(one=RIGHT)
    for argv, message in (
        ((run,), "give files of steps or features, video files, or ids of videos."),
        ((run, table("b.csv", task="Soup", one=RIGHT)), "unknown task 'Soup'"),
        ((run, steps, "--min-probability", 2), "--min-probability is 0 to 1"),
        ((run, steps, "--false-alarms", 1), "36 right videos held out suffice for"),
        ((run, steps, "--out", tmp_path / "x.pdf"), "a file that ends in .html"),
        ((trained, steps), "knows no orders of steps, since it plans one number of steps"),
    ):
        assert message in refused("verify", *argv)
    for argv, message in (
        (("--add", "a,b"), "--add and --remove are of one task. Give --task"),
        (("--task", TASK, "--remove", "strain tea,boil water"), "no edge strain tea → boil water"),
        (("--task", TASK, "--add", "fly,swim"), "unknown action 'fly'"),
        (("--task", TASK, "--add", "strain tea,boil water"), "the order goes in a circle"),
    ):
        assert message in refused("graph", run, *argv)


def test_scores_of_windows_with_and_without_errors(ran, make_source, tiny_videos, tmp_path):
    tiny_videos[2]["split"] = "val"  # the only one of its task
    tiny_videos[5]["split"] = "train"
    tiny_videos[4]["errors"] = [["spilt"], *[[]] * 5]
    data, run = tmp_path / "DATA", tmp_path / "RUN"
    ran("data", "prepare", "custom", make_source(videos=tiny_videos), data)
    train = ("train", data, "--method", "cefito", "--preset", "paper", *as_arguments(TINY_RUN))
    ran(*train, "--horizon", 2, "--out", run)
    out, err = ran("evaluate", run)
    assert out.splitlines()[1].split() == ["per", "cent", "CEFITO"]  # one video has no interval
    *_, clean, wrong, without, _ = err.splitlines()
    assert clean.startswith("4 windows without an error: SR ")
    assert wrong.startswith("1 window with a step done wrongly: SR ")
    assert without == "tasks without training windows: 1; windows of these tasks: 0"


def test_errors_are_counted_and_left_out_of_training(
    call, refused, world, make_source, tiny_videos, tmp_path
):
    tiny_videos[0]["errors"] = [["spilt"], [], []]
    told = "".join(call("data", "info", make_source(features=None))[1:])
    assert "0 steps left out" in told
    assert re.search(r"spilt +1\b", told)
    train = ("train", world.folder, "--method", "nearest", "--horizon", 2)
    train += ("--out", tmp_path / "RUN", "--errors")
    assert call(*train, "videos")[0] == 0
    assert json.loads((tmp_path / "RUN" / "run.json").read_text())["errors"] == "videos"
    assert "choice of windows with errors" in refused(*train, "windows")
    assert TrainOptions.errors == "keep"
