"""docs/line.md works as it is written: events, the gate, and films with their steps."""

import io
import itertools
import json
import os
import re
import shlex
import shutil
import sys
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import numpy as np
import pytest

from cefito.cli.follow import UNCONFIRMED, UNDELIVERED
from cefito.encoders import frames
from cefito.report import overlay
from grey_videos import draw_greys, grey_of, jpeg
from http_servers import serving
from line.test_delivery import receiving
from tiny_models import tiny_dinov2
from tiny_runs import rows_of

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "line.md").read_text(encoding="utf-8")


@pytest.fixture
def place(run_with_recogniser, world, tmp_path, monkeypatch):
    """A folder with NEW.npy, NEW.mp4, a camera and tell.py; the caches are there, too."""
    number = next(i for i, video in enumerate(world.videos) if video.split == "test")
    np.save(tmp_path / "NEW.npy", rows_of(world, number))
    (tmp_path / "tell.py").write_text(
        "import sys\nwith open('told', 'a') as file: file.write(sys.stdin.read() + '\\n')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    return tmp_path


@pytest.fixture
def follow(run_with_recogniser, place, call):
    """Follow NEW.npy, as (exit code, objects of --json, stderr)."""

    def follow(*argv, source=("--features", "NEW.npy")):
        code, out, err = call("follow", run_with_recogniser.folder, *source, "--json", *argv)
        return code, [json.loads(line) for line in out.splitlines()], err

    return follow


def told(place):
    return [json.loads(line) for line in (place / "told").read_text().splitlines()]


def test_the_commands_of_the_page(run_with_recogniser, place, call, monkeypatch):
    pytest.importorskip("transformers")
    pytest.importorskip("av")
    draw_greys(place / "NEW.mp4", 20)
    encoder = ("--encoder", tiny_dinov2(place / "encoder", 24))
    rows = [json.dumps(row.tolist()) for row in np.load(place / "NEW.npy")[:30]]
    block = re.search(r"^```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1]
    said = []
    with receiving() as receiver:
        for line in block.splitlines():
            words = shlex.split(line.replace("your-program | ", ""))[1:]
            changed = {"RUN": run_with_recogniser.folder, "0": "NEW.mp4"}
            changed |= {"https://mes.example/events": receiver.url}
            changed |= {"python tell.py": f"{sys.executable} tell.py"}
            words = [changed.get(word, word) for word in words]
            films = {"--camera", "--overlay"}.intersection(words)
            monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(rows)))
            said.append(call(*words, *(encoder if films else ())))
            # nobody confirms a critical step of the gate
            assert said[-1][0] in ((0, UNCONFIRMED) if "--gate" in words else (0,)), said[-1]
    assert len(said) == 5
    types = [json.loads(body)["type"] for body in receiver.seen]
    assert (types[0], types[-1]) == ("film.begun", "film.ended")
    assert {event["data"]["film"] for event in told(place)} == {"NEW.npy"}
    assert "do: " in said[2][2]
    assert "next: " not in said[2][2]
    assert json.loads(said[3][1].splitlines()[0])["gate"]["confirmed"] == []
    assert "wrote NEW-steps.mp4" in said[4][2]
    assert (place / "NEW-steps.mp4").stat().st_size > 0


def test_events_are_those_of_the_records(follow, place):
    command = "--on-event", f"{sys.executable} tell.py"
    code, records, err = follow(*command, "--event-limit", 1)
    assert err.count("holds 1 event: following waits until the receiver takes some") == 1
    events = told(place)
    done = [event["data"]["step"]["name"] for event in events if event["type"] == "step.done"]
    for event in events:
        if event["type"] == "step.withdrawn":
            done.remove(event["data"]["step"]["name"])
    assert code == 0
    example = json.loads(re.search(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1])
    first = next(event for event in events if event["type"] == example["type"])
    assert [first.keys(), first["data"].keys(), first["data"]["step"].keys()] == [
        example.keys(),
        example["data"].keys(),
        example["data"]["step"].keys(),
    ]
    assert sorted(done) == sorted(step["name"] for step in records[-1]["done"])
    assert events[-1]["data"]["complete"]
    assert events[-1]["data"]["done"] == [step["name"] for step in records[-1]["done"]]
    assert len({event["data"]["session"] for event in events}) == 1
    findings = {
        (finding["kind"], finding["action"]) for one in records for finding in one["findings"]
    }
    told_findings, standing = set(), set()
    for event in events:
        if "finding" in event["data"]:
            key = (event["data"]["finding"]["kind"], event["data"]["finding"]["action"])
            told_findings.add(key)
            (standing.remove if event["type"] == "finding.withdrawn" else standing.add)(key)
    assert told_findings == findings
    ends = {(finding["kind"], finding["action"]) for finding in events[-1]["data"]["findings"]}
    assert standing == ends
    assert ends == {(one["kind"], one["action"]) for one in records[-1]["findings"]}


def test_events_that_remain(follow, place, run_with_recogniser, call):
    fails = f"{sys.executable} -c 'raise SystemExit(1)'"
    code, _, err = follow("--on-event", fails, "--event-wait", 0)
    assert code == UNDELIVERED
    count = int(re.search(r"(\d+) events still wait in ", err)[1])
    run, command = run_with_recogniser.folder, ("--on-event", f"{sys.executable} tell.py")
    shutil.copy("NEW.npy", "OTHER.npy")
    for other in ((run, "OTHER.npy"), (shutil.copytree(run, "copy"), "NEW.npy")):
        code, _, err = call("follow", other[0], "--features", other[1], *command)
        assert (code, "of an earlier call" in err) == (0, False)
    Path("told").unlink()
    code, _, err = follow(*command)
    assert (code, f"holds {count} of an earlier call" in err) == (0, True)
    sessions = [event["data"]["session"] for event in told(place)]
    assert sessions[:count] == [sessions[0]] * count
    assert len(set(sessions)) == 2


def test_an_interrupted_command_does_not_wait(follow, place, monkeypatch):
    """Its events stay in the spool, with the end of the film, and the next call sends them."""

    class Interrupted:
        def __iter__(self):
            yield from (json.dumps(row.tolist()) for row in np.load("NEW.npy")[:9])
            raise KeyboardInterrupt

        def isatty(self):
            return False

    monkeypatch.setattr(sys, "stdin", Interrupted())
    fails, spool = f"{sys.executable} -c 'raise SystemExit(1)'", ("--event-spool", "spool")
    code, _, err = follow("--on-event", fails, "--event-wait", 3600, *spool, source=("-",))
    assert code == 130
    assert "events still wait in spool" in err
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    code, _, _ = follow("--on-event", f"{sys.executable} tell.py", *spool)
    ends = [event["data"] for event in told(place) if event["type"] == "film.ended"]
    assert (code, [end["complete"] for end in ends]) == (0, [False, True])
    assert ends[0]["film"] == "-"
    code, _, err = follow("--on-event", f"{sys.executable} tell.py", source=("-",))
    assert (code, "still wait" in err) == (2, False)  # no row, no event


def test_refusals(follow):
    for argv, words in (
        (("--critical", "boil water"), "Give it, too"),
        (("--gate", "--critical", "no such step"), "(--critical)"),
        (("--gate", "--critical", ""), "unknown action ''; no name is similar"),
        (("--on-event", "ftp://x"), "expected http://"),
        (("--on-event", "no-such-command"), "no such command"),
        (("--on-event", "http://x", "--event-limit", "0"), "at least 1"),
        (("--on-event", "http://x", "--event-secret", "tell.py"), "(--event-secret)"),
        (("--on-event", "http://x", "--event-spool", "NEW.npy"), "is no spool"),
    ):
        code, records, err = follow(*argv)
        assert (code, records) == (2, [])
        assert words in err.splitlines()[-1]


def test_a_gate_waits_for_the_lines_of_a_person(follow, place, monkeypatch):
    _, records, _ = follow()
    first = records[-1]["done"][0]["name"]
    for lines, code, by in ((f"wrong\n{first}\n", 0, "person"), ("", UNCONFIRMED, None)):
        (place / "lines").write_text(lines)
        with (place / "lines").open() as file:
            monkeypatch.setattr(sys, "stdin", file)
            found, gated, err = follow("--gate", "--critical", first)
        confirmed = gated[-1]["gate"]["confirmed"]
        mine = [step for step in confirmed if step["name"] == first][:1]
        assert [step["by"] for step in mine] == [by] * bool(by)
        assert all(step["seconds"] < gated[-1]["seconds"] for step in mine)  # the rows waited
        assert found == code or any(one["findings"] for one in records), err
        assert ("'wrong' is not the step shown" in err) == bool(by)
        shown = [one["gate"]["shown"] for one in gated if one["gate"]["shown"]]
        assert (first in [step["name"] for step in shown if step["waits"]]) is True
        if not by:
            assert shown[-1]["name"] == first
            assert f"'{first}' was not confirmed" in err


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no terminals here")
@pytest.mark.parametrize(("line", "event"), [("", "step.confirmed"), ("skip", "step.skipped")])
def test_a_person_at_a_terminal(line, event, follow, place, monkeypatch):
    """Enter, or skip and Enter; the event says by whom."""
    first = follow()[1][-1]["done"][0]["name"]
    typing, reading = os.openpty()
    with os.fdopen(typing, "wb", 0) as keyboard, os.fdopen(reading) as terminal:
        keyboard.write(f"{line}\n\4".encode())  # the end of the input
        monkeypatch.setattr(sys, "stdin", terminal)
        follow("--gate", "--critical", first, "--on-event", f"{sys.executable} tell.py")
    kinds = "step.confirmed", "step.skipped"
    steps = [(one["type"], one["data"]["step"]) for one in told(place) if one["type"] in kinds]
    mine = [(kind, step["by"]) for kind, step in steps if step["name"] == first]
    assert mine[0] == (event, "person")
    assert {step["by"] for _, step in steps} == {"person", "recogniser"}


@pytest.fixture
def film(place):
    """NEW.mp4 of 20 seconds, and the options of its encoder."""
    pytest.importorskip("transformers")
    pytest.importorskip("av")
    draw_greys(place / "NEW.mp4", 20)
    return "--encoder", tiny_dinov2(place / "encoder", 24)


def test_a_camera_goes_on(follow, film, run_with_recogniser, monkeypatch):
    """A step waits, and the input, which stays open, has no line; the camera has an address."""
    code, _, err = follow(*film, source=("--camera", "99"))  # a device
    assert (code, "/dev/video99: " in err) == (2, True)
    _, whole, _ = follow(*film, source=("--video", "NEW.mp4"))
    assert (whole[-1]["seconds"], whole[-1]["over"]) == (20, True)
    _, records, _ = follow(*film, source=("--camera", "NEW.mp4"))
    taxonomy = run_with_recogniser.taxonomy
    actions = taxonomy.tasks[records[-1]["task"]["id"]].actions
    critical = [word for name in taxonomy.names(actions) for word in ("--critical", name)]
    reading, writing = os.pipe()
    monkeypatch.setattr(frames, "monotonic", itertools.count().__next__)
    head = b"--next\r\ncontent-type: image/jpeg\r\n\r\n"
    pictures = (head + jpeg(grey_of(second)) + b"\r\n" for second in range(20))
    Path("camera.mjpg").write_bytes(b"".join(pictures))
    form = {".mjpg": "multipart/x-mixed-replace; boundary=next"}
    camera = type("Camera", (SimpleHTTPRequestHandler,), {"extensions_map": form})
    with os.fdopen(reading) as silent, os.fdopen(writing, "w"), serving(camera) as server:
        monkeypatch.setattr(sys, "stdin", silent)
        source = "--camera", f"http://127.0.0.1:{server.server_port}/camera.mjpg"
        code, gated, err = follow("--gate", *critical, *film, source=source)
    assert code == UNCONFIRMED
    assert (gated[-1]["seconds"], gated[-1]["over"]) == (20, False)  # it may have failed
    assert gated[-1]["gate"]["shown"]["waits"]
    assert f"'{gated[-1]['gate']['shown']['name']}' was not confirmed" in err


def test_films_with_steps_known_have_no_findings(film, run_with_recogniser, call, monkeypatch):
    task = run_with_recogniser.taxonomy.tasks[0]
    known = run_with_recogniser.taxonomy.names(task.actions)[1]
    asked = ("recognise", run_with_recogniser.folder, "NEW.mp4", "--task", 0, *film, "--overlay")
    said = [
        call(*asked, f"{name}.mp4", *options)
        for name, options in (("all", ()), ("known", ("--steps-known", known)))
    ]
    assert [code for code, _, _ in said] == [0, 0]
    assert "wrote known.mp4: 1 step, 0 findings" in said[1][2]
    assert "wrote all.mp4: " in said[0][2]
    assert " 0 findings" not in said[0][2]
    assert "no font" not in said[0][2]
    monkeypatch.setattr(overlay, "fonts_for", lambda _: (["DejaVu Sans"], "湯"))
    assert "no font here has the letters 湯" in call(*asked, "again.mp4")[2]


def test_lines_between_rows_confirm(follow, place, monkeypatch):
    rows = [json.dumps(row.tolist()) for row in np.load(place / "NEW.npy")]
    _, records, _ = follow()
    first = records[-1]["done"][0]["name"]
    lines = [*rows[:60], json.dumps({"confirm": first}), *rows[60:]]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines)))
    _, gated, _ = follow("--gate", "--critical", first, source=("-",))
    expected = {record["seconds"]: record["next"] for record in records}
    shared = [record for record in gated if record["seconds"] in expected]
    assert shared[-1]["gate"].keys() == {"shown", "confirmed"}
    assert [record["next"] for record in shared] == [
        expected[record["seconds"]] for record in shared
    ]  # what the recogniser expects, gate or not
    steps = gated[-1]["gate"]["confirmed"]
    assert [(step["name"], step["by"]) for step in steps][:1] == [(first, "person")]
    assert {step["by"] for step in steps[1:]} <= {"recogniser"}
    lines[60] = json.dumps({"skip": first})
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines)))
    _, gated, _ = follow("--gate", "--critical", first, source=("-",))
    assert gated[-1]["gate"]["confirmed"][0]["skipped"]
    for gate, line in ((False, {"confirm": first}), (True, {"at": 0})):
        monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(line)))
        code, _, err = follow(*["--gate"] * gate, source=("-",))
        assert (code, "line 1 of the input" in err, '{"skip": NAME}' in err) == (2, True, gate)
