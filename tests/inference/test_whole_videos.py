"""Whole videos from Python: recognised, followed and verified; the orders of a task's steps."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cefito
from cefito.cli import main
from cefito.errors import CefitoError, ConfigError, DataError, RunError
from cefito.inference.session import Session
from cefito.inference.whole_videos import limits_of_films
from cefito.recognition.trials import SeenMistakes
from cefito.tracks.track import named
from tiny_runs import rows_of

TASK = "Brew Spiced Tea"
STEPS = ["boil water", "crush spices", "add tea leaves", "pour milk", "add honey", "stir mixture"]


def track(steps, *, task=TASK, seconds=15.0):
    timed = [
        cefito.TimedStep(name=step, start=20.0 * place, end=20.0 * place + seconds)
        for place, step in enumerate(steps)
    ]
    facts = {"video": "v", "task": task, "seconds": 200.0, "recognised": False}
    return cefito.Track(**facts, steps=tuple(timed))


SWAPPED = track([*STEPS, "strain tea"])


@pytest.fixture(scope="module")
def film(world):
    """A test video and its rows."""
    place = next(i for i, one in enumerate(world.videos) if one.split == "test")
    return world.videos[place], rows_of(world, place)


def test_rows_a_file_and_the_command_line_are_recognised_alike(
    run_with_recogniser, film, world, tmp_path, capsys
):
    video, rows = film
    np.save(tmp_path / "film.npy", rows.astype(np.float32))
    by_rows = cefito.recognise(run_with_recogniser, rows.astype(np.float32), video="film")
    by_file = cefito.recognise(run_with_recogniser.folder, tmp_path / "film.npy")
    assert by_rows == by_file
    assert [step.name for step in by_rows.steps] == [
        step.name for step in named(video.steps, world.taxonomy)
    ]
    folder = str(run_with_recogniser.folder)
    assert main(["recognise", folder, str(tmp_path / "film.npy"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [by_rows.to_dict()]
    fast = cefito.recognise(run_with_recogniser, rows.repeat(2, axis=0), rate=2.0, video="film")
    assert fast.seconds == by_rows.seconds
    assert [one.name for one in fast.steps] == [one.name for one in by_rows.steps]


def test_known_steps_and_likely_ones(run_with_recogniser, film, world):
    video, rows = film
    task = world.taxonomy.tasks[video.task].name
    names = [step.name for step in named(video.steps, world.taxonomy)][:2]
    found = cefito.recognise(run_with_recogniser, rows, task=task, steps_known=names)
    assert [step.name for step in found.steps] == names
    assert cefito.recognise(run_with_recogniser, rows.tolist(), least=1.0).steps == ()
    with pytest.raises(ConfigError, match="need their task"):
        cefito.recognise(run_with_recogniser, rows, steps_known=names)


def test_a_session_that_takes_rows(run_with_recogniser, run_of_lengths, film):
    _, rows = film
    session = cefito.follow(run_with_recogniser.folder, task=0)
    other = cefito.open_run(run_with_recogniser.folder).session(task=0)
    for place, row in enumerate(rows[:30]):
        assert session.observe(row, at=float(place))
        other.observe(row, at=float(place))
    assert session.followed() == other.followed()
    with pytest.raises(RunError, match="cannot recognise steps"):
        cefito.follow(run_of_lengths.folder)


def test_a_track_is_verified_as_its_table(run_of_lengths, tmp_path):
    found = cefito.verify(run_of_lengths, SWAPPED)
    assert [(one.name, one.words) for one in found.deviations] == [("crush spices", "out of order")]
    assert (found.video, found.recognised, found.repair) == ("v", False, ())
    lines = [f"v,{TASK},{one.name},{one.start},{one.end}\n" for one in SWAPPED.steps]
    table = tmp_path / "STEPS.csv"
    table.write_text("video,task,step,start,end\n" + "".join(lines))
    assert cefito.verify(run_of_lengths.folder, table).deviations == found.deviations
    backwards = SWAPPED.model_copy(update={"steps": SWAPPED.steps[::-1]})
    assert cefito.verify(run_of_lengths, backwards) == found
    assert cefito.verify(run_of_lengths, found) == found
    assert cefito.verify(run_of_lengths, SWAPPED, least=1.0).deviations == ()
    for alarms, steps in ((20, None), (9, 100)):
        made = run_of_lengths.verifier.promise(alarms, per_steps=steps)
        few = cefito.verify(run_of_lengths, SWAPPED, false_alarms=alarms, per_steps=steps)
        assert few.promise == made
    other = SWAPPED.model_copy(update={"task": "unknown"})
    assert cefito.verify(run_of_lengths, other, task=TASK) == found
    table.write_text(table.read_text() + f"w,{TASK},boil water,0,4\n")
    assert cefito.verify(run_of_lengths, table, video="v").deviations == found.deviations
    with pytest.raises(ConfigError, match=r"the videos v, w\."):
        cefito.verify(run_of_lengths, table)


def test_rows_are_recognised_and_verified(run_with_recogniser, film):
    _, rows = film
    seen = cefito.recognise(run_with_recogniser, rows)
    found = cefito.verify(run_with_recogniser, rows, least=0.0)
    assert found.recognised
    doubted = run_with_recogniser.recogniser.recognise(rows, doubt=True).steps()
    assert [one.probability for one in found.steps] == [one.probability for one in doubted]
    (note,) = cefito.verify(run_with_recogniser, rows, false_alarms=1e6).notes
    assert "counted in videos whose steps were given" in note  # no films were held out
    # doubt in the usual order changes probabilities, here not steps
    assert [step.name for step in found.steps] == [step.name for step in seen.steps]
    assert found.drawn is not None
    assert len(found.drawn) == run_with_recogniser.recogniser.config.drawn
    assert found.limits  # of few videos, no mistakes were tried, or seen
    assert found.to_dict()["limits"] == [*found.limits]
    again = cefito.verify(run_with_recogniser, seen, least=0.0)
    assert done(again) != []
    assert again.limits == ()


@pytest.mark.parametrize("given", [False, True])
def test_a_film_that_shows_no_order_may_be_of_no_task(run_with_recogniser, film, given):
    """No film shows its order so clearly, nor that of neighbours, which is open once it is over.

    A task that is given is not doubted.
    """
    run, doubt = run_with_recogniser, "the film may show another task, or none that is known"
    name = run.taxonomy.tasks[film[0].task].name
    task, share = (name, 1.0) if given else (None, 0.5)
    never = replace(run.recogniser, least_ratios=(1e4, 1e4))
    seen = cefito.recognise(run.changed(recogniser=never), film[1], task=task)
    found = cefito.verify(run.changed(recogniser=never), film[1], task=task, least=0.0)
    said = [limit for limit in found.limits if limit.startswith(doubt)]
    assert said == [f"{doubt}; '{name}' has 50.0 %"] * (not given)
    for video in (seen, found):
        assert video.task_probability == pytest.approx(share, abs=0.01)
    assert all(finding.probability <= share for finding in found.deviations)
    session = Session(run.changed(recogniser=never), task=task)
    for second, row in enumerate(film[1]):
        session.observe(row, at=float(second))
    going = session.followed(least=0.01)
    assert "order" not in {finding.kind for finding in going.findings}
    before = going.task.probability
    session.finish()
    after = session.followed(least=0.01)
    assert "order" in {finding.kind for finding in after.findings}
    assert after.task.probability == pytest.approx(before * share, abs=0.01)
    assert all(finding.probability <= share for finding in after.findings)
    assert session.belief().tasks[0].probability == pytest.approx(after.task.probability)
    assert session.notes[-1].startswith("mistakes in films may go unseen")
    assert [note.startswith(doubt) for note in session.notes] == [True] * (not given) + [False]
    session.observe(film[1][-1], at=float(len(film[1])))
    assert session.notes == ()


def test_mistakes_that_were_never_seen_are_named_where_enough_were(run_with_recogniser):
    names = [action.name for action in run_with_recogniser.taxonomy.actions]
    counts = {"skipped": 5, "of_skipped": 5, "exchanged": 4, "of_exchanged": 5, "right": 5}
    for unseen, expected in (
        ((), []),
        (((1, 0),), [f"not seen: '{names[1]}' before '{names[0]}'"]),
    ):
        tried = SeenMistakes(**counts, unseen=unseen)
        recogniser = replace(run_with_recogniser.recogniser, seen=(tried,))
        limits = limits_of_films(run_with_recogniser.changed(recogniser=recogniser))
        assert [limit.split("; ")[-1] for limit in limits] == expected
        recogniser = replace(run_with_recogniser.recogniser, seen=(tried,) * 5)
        limits = limits_of_films(run_with_recogniser.changed(recogniser=recogniser))
        assert limits[3:] == ["the same holds for 2 more tasks"] * bool(expected)


def done(video):
    """Findings in steps that were done; rows also say which steps they do not show."""
    return [one for one in video.deviations if one.step is not None]


def test_a_written_procedure_verifies_and_has_a_graph(tmp_path, capsys):
    text = "# tea\n1. boil\n2. pour\n3. sip (at any time) (optional)\n"
    (tmp_path / "TEA.txt").write_text(text)
    folder = tmp_path / "TEA"
    assert main(["data", "procedure", str(tmp_path / "TEA.txt"), str(folder)]) == 0
    assert cefito.graph(folder, "tea") == [("boil", "pour")]
    capsys.readouterr()
    assert main(["graph", str(folder)]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "tea": {"edges": [["boil", "pour"]], "optional": ["sip"]}
    }
    assert cefito.graph(folder, "tea", remove=[("boil", "pour")]) == []
    found = cefito.verify(folder, track(["pour", "boil"], task="tea"))
    assert [one.words for one in found.deviations] == ["out of order"]
    with pytest.raises(ConfigError, match="Give a run"):
        cefito.verify(folder, np.zeros((3, 4)))


def test_the_graph_is_that_of_the_command_line(run_of_lengths, tmp_path, capsys):
    folder = str(run_of_lengths.folder)
    assert main(["graph", folder, "--task", TASK]) == 0
    edges = json.loads(capsys.readouterr().out)[TASK]["edges"]
    assert cefito.graph(run_of_lengths, TASK) == [tuple(edge) for edge in edges] != []
    order = tmp_path / "order.json"
    order.write_text(json.dumps({TASK: {"edges": []}}))
    assert not cefito.verify(run_of_lengths, SWAPPED, order=order).deviations
    kept, turned = ("boil water", "crush spices"), ("crush spices", "boil water")
    assert kept in cefito.graph(folder, TASK, add=[kept], remove=[turned])
    plan = cefito.open_run(folder).plan(task=TASK, before=cefito.graph(folder, TASK), steps=3)
    assert plan.plans


@pytest.mark.parametrize(
    ("source", "given", "words"),
    [
        (np.zeros((3, 5)), {}, r"rows \[3, 5\]: expected \[rows, 24\]"),
        (np.zeros(24), {}, r"rows \[24\]: expected"),
        (np.zeros((0, 24)), {}, r"rows \[0, 24\]: expected"),
        (np.full((3, 24), np.nan), {}, "row 0 .* holds NaN"),
        ([[1.0], [1.0, 2.0]], {}, "expected numbers"),
        (np.zeros((3, 24)), {"task": "coffee"}, "unknown task 'coffee'"),
        (np.zeros((3, 24)), {"rate": 0.0}, "expected 0.01 to 1000 rows"),
        (np.zeros((1, 24)), {}, "video: no step was recognised"),
        (
            np.zeros((1, 24)),
            {"task": 0},
            "video: no step of '.*' was recognised. Leave the task out",
        ),
        (track([]), {}, "without steps"),
        (track(STEPS, task=""), {}, "video 'v': names no task"),
        (track(STEPS, seconds=-50.0), {}, "video 'v', step 1: .* 0 ≤ start ≤ end"),
        ("no.csv", {}, "no.csv"),
        (SWAPPED, {"least": float("nan")}, "expected at least 0"),
        (SWAPPED, {"false_alarms": 0}, "0 false alarms an hour cannot be promised"),
        (SWAPPED, {"per_steps": 100}, "steps are of a number of false alarms"),
    ],
)
def test_refusals(run_with_recogniser, source, given, words):
    with pytest.raises(CefitoError, match=words) as refusal:
        cefito.verify(run_with_recogniser, source, **given)
    assert isinstance(refusal.value, ConfigError | DataError)


def test_the_python_of_the_pages(run_with_recogniser, film, tmp_path, monkeypatch, capsys):
    shutil.copytree(run_with_recogniser.folder, tmp_path / "RUN")
    np.save(tmp_path / "NEW.npy", film[1].astype(np.float32))
    lines = [f"monday,{TASK},{one.name},{one.start},{one.end}\n" for one in SWAPPED.steps]
    (tmp_path / "NEW.csv").write_text("video,task,step,start,end\n" + "".join(lines))
    monkeypatch.chdir(tmp_path)
    for page in ("recognise.md", "verify.md"):
        text = (Path(__file__).resolve().parents[2] / "docs" / page).read_text(encoding="utf-8")
        (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        exec(code.replace("change tyre", TASK), {})
    assert "crush spices out of order" in capsys.readouterr().out
