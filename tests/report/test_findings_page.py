"""The page and the tables of findings: links, pictures, durations by worker, spreadsheets."""

import base64
import csv
import re
import sys

import pytest

from browsing import ELEMENT, check_file, parsed
from cefito.cli import main
from cefito.cli.verify import show_verified
from cefito.inference.verification import VerifiedVideo, open_verifier
from cefito.report.findings_tables import save_table
from cefito.report.verification import save_verification
from grey_videos import draw_levels, read_grey

pytest.importorskip("av")

STEPS = ["boil water", "warm the pot", "add leaves", "pour water"]
LEVELS = dict(zip(STEPS, (60, 100, 140, 180), strict=True))
LONG = 6  # seconds of the last step of the second video


def rows(video, steps, worker, last=2):
    lengths = [2] * (len(steps) - 1) + [last]
    starts = [1 + sum(lengths[:place]) for place in range(len(steps))]
    return [
        f"{video},make tea,{step},{start},{start + length},{worker}"
        for step, start, length in zip(steps, starts, lengths, strict=True)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables of right and of other videos; the films of some of them, whose greys are the steps."""
    folder = tmp_path_factory.mktemp("findings")
    (folder / "films").mkdir()
    right = [line for n in range(10) for line in rows(f"right-{n}", STEPS, "Ann")]
    swapped = [STEPS[place] for place in (0, 3, 1, 2)]
    new = [*rows("swapped", swapped, "Ann"), *rows("=slow", STEPS[:2] + STEPS[3:], "Bob", LONG)]
    for name, lines in (("RIGHT", right), ("NEW", new)):
        text = "\n".join(("video,task,step,start,end,group", *lines))
        (folder / f"{name}.csv").write_text(text + "\n")
    for name, steps in (("right-3", STEPS), ("swapped", swapped)):
        levels = [30, *(LEVELS[step] for step in steps for _ in range(2))]
        draw_levels(folder / "films" / f"{name}.mp4", levels)
    (folder / "films" / "right-1.mp4").write_bytes(b"no video")
    return folder


def verified(folder, *options):
    command = ["verify", folder / "RIGHT.csv", folder / "NEW.csv", *options]
    assert main([str(part) for part in command]) == 0


def texts(element):
    return " ".join("".join(element.itertext()).split())


def table(tree, heading):
    """Cells of the table below a heading of the page."""
    section = next(one for one in tree.iter(f"{ELEMENT}section") if texts(one).startswith(heading))
    body = next(section.iter(f"{ELEMENT}tbody"))
    return [[texts(cell) for cell in row] for row in body.iter(f"{ELEMENT}tr")]


def test_the_page_says_which_films_were_wrong_where_and_how_long_steps_took(folder):
    page = folder / "page.html"
    verified(folder, "--out", page, "--films", folder / "films")
    tree = parsed(page.read_text("utf-8"))
    assert "2 of 2 had a finding." in texts(tree)
    assert "Nothing found" not in texts(tree)
    assert texts(tree).count("Red steps have a finding: ") == 2  # both at a step
    assert table(tree, "Which were wrong") == [
        ["swapped", "Ann", "make tea", "1", "0:03 pour water: out of order (88 %)"],
        [
            "=slow",
            "Bob",
            "make tea",
            "2",
            "0:05 pour water: too long (100 %)add leaves: missing (95 %)",
        ],
    ]
    assert [row[1] for row in table(tree, "How long steps took")] == STEPS  # not as swapped
    durations = {row[1]: row[2:] for row in table(tree, "How long steps took")}
    assert durations["boil water"] == ["2.0 s", "2.0 s, +0 % (1)", "2.0 s, +0 % (1)"]
    assert durations["pour water"] == ["2.0 s", "2.0 s, +0 % (1)", "6.0 s, +200 % (1)"]
    assert durations["add leaves"][2] == "–"  # Bob left it out
    heads = [texts(one) for one in tree.iter(f"{ELEMENT}h2")]
    assert heads == [
        *("Which were wrong, and where", "How long steps took"),
        *("swapped: make tea", "=slow: make tea"),
    ]
    links = [one.get("href") for one in tree.iter(f"{ELEMENT}a")]
    assert "films/swapped.mp4#t=3" in links
    assert not any("slow" in link for link in links)  # it has no film


def test_bars_have_the_names_of_steps_and_link_into_the_film(folder):
    page = folder / "bars.html"
    verified(folder, "--out", page, "--films", folder / "films")
    first, second = re.findall(r"<svg.*?</svg>", page.read_text("utf-8"), re.DOTALL)
    names = re.findall(r"pointer-events='none'>([^<]*)<", first)
    assert names == [STEPS[place] for place in (0, 3, 1, 2)]
    assert re.findall(r"<a href='([^']*)'", first) == [
        f"films/swapped.mp4#t={second}" for second in (1, 3, 5, 7)
    ]
    assert "<a " not in second


def test_a_finding_shows_its_moment_and_the_same_step_in_a_right_video(folder, monkeypatch, capsys):
    page = folder / "pictures.html"
    verified(folder, "--out", page, "--films", folder / "films")
    images = [*parsed(page.read_text("utf-8")).iter(f"{ELEMENT}img")]
    assert [one.get("alt") for one in images] == [
        "pour water, as it was here",
        "pour water, in a right video",
        "pour water, in a right video",  # of the video without a film
        "add leaves, in a right video",  # missing
    ]
    greys = [read_grey(base64.b64decode(one.get("src").partition(",")[2]))[1] for one in images]
    assert greys == pytest.approx([LEVELS["pour water"]] * 3 + [LEVELS["add leaves"]], abs=6)
    verified(folder, "--out", page)
    assert "<img" not in page.read_text("utf-8")
    assert ".mp4" not in page.read_text("utf-8")
    monkeypatch.setitem(sys.modules, "av", None)
    capsys.readouterr()
    verified(folder, "--out", page, "--films", folder / "films")
    assert "<img" not in page.read_text("utf-8")
    assert "films/swapped.mp4#t=3" in page.read_text("utf-8")
    said = capsys.readouterr().err
    assert said.count("no pictures: videos: need PyAV") == 1
    assert "[video]'" in said


def test_what_films_leave_open_stands_at_the_top_of_the_page_and_in_the_workbook(folder, capsys):
    openpyxl = pytest.importorskip("openpyxl")
    _, verifier = open_verifier(folder / "RIGHT.csv")
    unsure = {"action": 2, "name": "add leaves", "kind": "missing", "words": "missing"}
    unsure |= {"probability": 0.4}
    limits = ["mistakes in films may go unseen"]
    done = {"steps": [{"name": STEPS[0], "action": 0, "start": 0, "end": 9}]}
    left = {"action": 1, "name": "warm the pot", "probability": 0.1, "evidence": "in 1 of 9"}
    sure = {"action": 4, "name": "juggle", "kind": "added", "words": "added", "probability": 1.0}
    films = [
        VerifiedVideo.model_validate(
            {"video": name, "task": "make tea", "steps": (), "deviations": (), "repair": ()}
            | {"seconds": 60, "task_probability": 0.9999, **facts}
        )
        for name, facts in (
            ("a", {"unseen": [left], "steps": [done["steps"][0] | {"end": 1.992}]}),
            ("b", {"unsure": [unsure]}),
            ("c", {"limits": limits, "repair": ["pour"]}),
            (
                "d",
                {"limits": limits, "task_probability": 0.5, "unsure": [unsure], "repair": ["pour"]}
                | done,
            ),
        )
    ]
    page, book = folder / "open.html", folder / "open.xlsx"
    found = films[0].model_dump() | {"deviations": [sure | {"evidence": "in none"}]}
    save_verification([VerifiedVideo.model_validate(found)], page, verifier)
    assert texts(parsed(page.read_text("utf-8"))).count("over 98 %") == 3  # of a step, too
    sure |= {"evidence": "", "start": 12.340000000000002, "end": 20.0, "probability": 0.98765432}
    done["steps"][0] |= {"mistake": 0.12345}
    rounded = films[0].model_dump() | {"deviations": [sure], "steps": done["steps"]}
    save_table([VerifiedVideo.model_validate(rounded)], book, verifier)
    sheets = openpyxl.load_workbook(book)
    row = [cell.value for cell in sheets["findings"][2]]
    assert row[4:6] + row[7:8] == [12.34, 20, 0.988]
    assert sheets["findings"].column_dimensions["E"].width == len("12.34") + 2
    assert [cell.value for cell in sheets["steps"][2]][-2:] == [9, 0.123]
    save_table([VerifiedVideo.model_validate(found)], folder / "sure.csv", verifier)
    assert ",added,1.0,in none" in (folder / "sure.csv").read_text("utf-8")  # the share itself
    save_verification(films, page, verifier)
    save_table(films, book, verifier)
    tree = parsed(page.read_text("utf-8"))
    assert "0 of 4 had a finding; 3 without one leave open whether all was right." in texts(tree)
    assert "Nothing found in: a.A film" in texts(tree)
    assert [texts(one) for one in tree.iter(f"{ELEMENT}h2")][:2] == [
        *("Which leave open whether all was right", "How long steps took")
    ]
    assert table(tree, "Which leave open") == [
        ["b", "make tea", "add leaves: perhaps missing (40 %)"],
        ["c", "make tea", "mistakes in it may have gone unseen"],
        [
            "d",
            "make tea",
            "it may show another task, or none that is knownadd leaves: perhaps missing (40 %)",
        ],
    ]
    assert [row[-1] for row in table(tree, "How long steps took")] == ["2.0 s, +0 % (1)"]  # not d
    assert texts(tree).count("but that does not show that all was right") == 3
    seldom = "warm the pot (10.0 % missing; in 1 of 9)"
    assert f"Not seen, but not found to be missing {seldom}" in " ".join(texts(tree).split())
    assert "100 %" not in texts(tree)  # of the task
    assert texts(tree).count(limits[0]) == 1  # of both films
    (link,) = {one.get("href") for one in tree.iter(f"{ELEMENT}a") if "unseen" in texts(one)}
    assert limits[0] in texts(next(one for one in tree.iter() if one.get("id") == link[1:]))
    assert "What is left to do, if it is 'make tea'" in texts(tree)
    show_verified(films, 0.5)
    said = capsys.readouterr().err
    assert said.count("note: A film without a finding can still contain") == 1
    doubt = "note: the film may show another task, or none that is known; 'make tea' has 50.0 %"
    assert said.index("d: make tea") < said.index(doubt)
    assert "to do, if it is 'make tea': pour" in said
    assert "to do, unless done unseen: pour\n" in said
    assert "What is left to do, unless done unseen" in texts(tree)
    assert "not seen, but not found to be missing: warm the pot\n" in said  # of 10 %
    assert "can still contain a mistake" in texts(tree)  # of films, not of steps that are given
    verified(folder, "--out", folder / "given.html")
    assert "can still contain a mistake" not in (folder / "given.html").read_text("utf-8")
    rows = [*openpyxl.load_workbook(book)["videos"].iter_rows(values_only=True)]
    assert [row[-2] for row in rows] == ["not seen", seldom, None, None, None]
    missing = "add leaves, missing (40.0 %)"
    assert [row[-1] for row in rows] == [
        *("left open", None, missing, *limits, f"{missing}; {limits[0]}")
    ]


def test_a_missing_library_of_workbooks_is_said_before_the_work(folder, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    page = folder / "never.html"
    command = ["verify", folder / "RIGHT.csv", folder / "NEW.csv"]
    out = ("--out", page, "--out", folder / "never.xlsx")
    assert main([str(part) for part in (*command, *out)]) == 2
    assert "needs openpyxl" in capsys.readouterr().err
    assert not page.exists()


def test_a_browser_finds_no_fault(folder):
    page = folder / "look.html"
    verified(folder, "--out", page, "--films", folder / "films")
    check_file(page)


def test_tables_for_spreadsheets(folder):
    openpyxl = pytest.importorskip("openpyxl")
    book, plain, marked = folder / "x.xlsx", folder / "x.csv", folder / "bom.csv"
    verified(folder, "--out", book, "--out", plain)
    verified(folder, "--out", marked, "--bom")
    assert marked.read_bytes() == b"\xef\xbb\xbf" + plain.read_bytes()
    with marked.open(newline="", encoding="utf-8-sig") as file:
        lines = [*csv.DictReader(file)]
    assert [(one["video"], one["worker"], one["step"], one["finding"]) for one in lines] == [
        ("swapped", "Ann", "pour water", "out of order"),
        ("'=slow", "Bob", "pour water", "too long"),
        ("'=slow", "Bob", "add leaves", "missing"),
    ]
    sheets = openpyxl.load_workbook(book)
    assert sheets.sheetnames == ["videos", "findings", "steps", "durations"]
    cells = {sheet.title: [*sheet.iter_rows(values_only=True)] for sheet in sheets}
    found = "pour water: too long; add leaves: missing"
    slow = "=slow", "Bob", "make tea", 3, 2, found, "add leaves", None, None
    assert cells["videos"][2] == slow
    assert sheets["videos"]["A3"].data_type == "s"  # no formula
    assert len(cells["findings"]) == 4
    assert len(cells["steps"]) == 1 + 4 + 3
    (slow,) = [row for row in cells["durations"] if row[1:3] == ("pour water", "Bob")]
    assert slow[3:] == (LONG, pytest.approx(2, abs=0.01), pytest.approx(2, abs=0.01), 1)


def test_a_run_finds_the_films_of_its_data_set(run_of_lengths, folder, tmp_path, capsys):
    """None here: nothing is said of pictures."""
    steps = tmp_path / "STEPS.csv"
    names = run_of_lengths.taxonomy
    task = names.tasks[0]
    actions = names.names(task.actions[:3])
    lines = [f"v,{task.name},{name},{10 * n},{10 * n + 5}" for n, name in enumerate(actions)]
    steps.write_text("\n".join(("video,task,step,start,end", *lines)) + "\n")
    page = tmp_path / "page.html"
    assert main(["verify", str(run_of_lengths.folder), str(steps), "--out", str(page)]) == 0
    assert "<img" not in page.read_text("utf-8")
    empty = tmp_path / "empty"
    empty.mkdir()
    command = ["verify", str(run_of_lengths.folder), str(steps), "--films", str(empty)]
    assert main([*command, "--out", str(page)]) == 2
    assert "(--films)" in capsys.readouterr().err
