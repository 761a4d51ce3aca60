"""Sessions that follow the rows of a video, and `cefito follow`."""

import io
import json
import sys
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch

from cefito import Session, verify
from cefito.cli import main
from cefito.errors import ConfigError, DataError, RunError
from cefito.inference.following import joined_rows, led
from cefito.markup import film_percent
from cefito.planners.any_length.guidance import SessionModel
from cefito.recognition.stream import StepStream
from cefito.runs.run import Run
from cefito.runs.train import check_run_folder
from cefito.tracks.track import stored
from tiny_runs import next_actions, rows_of


@pytest.fixture(scope="module")
def video(world):
    """A test video: its steps, in order, and its rows."""
    place = next(i for i, one in enumerate(world.videos) if one.split == "test")
    return world.videos[place], rows_of(world, place)


def names(world, steps):
    return [world.taxonomy.actions[step.action].name for step in steps]


@pytest.fixture(scope="module")
def followed(run_with_recogniser, video):
    session = Session(run_with_recogniser)
    for place, row in enumerate(video[1]):
        session.observe(row, at=float(place))
    return session


def test_rows_alone_show_the_steps_done(world, video, followed):
    found = followed.followed()
    steps = [*found.done, *([] if found.now is None else [found.now])]
    assert [step.name for step in steps] == names(world, video[0].steps)
    for ours, truth in zip(steps, video[0].steps, strict=True):
        assert ours.start == pytest.approx(truth.start, abs=2)
    assert found.task.id == video[0].task
    assert [step.name for step in followed.belief().done] == names(world, video[0].steps)


def test_the_end_is_told(run_with_recogniser, video):
    session, ended = Session(run_with_recogniser), []
    rows = [*video[1], *np.repeat(video[1][-1:], 30, axis=0)]
    for place, row in enumerate(rows):
        session.observe(row, at=float(place))
        ended.append(session.followed().ended)
    assert max(ended[: int(video[0].steps[-1].start)]) < 0.2
    assert ended[-1] > 0.9


def test_nothing_has_ended_before_a_step_was_seen(run_with_recogniser, monkeypatch):
    session = Session(run_with_recogniser)
    session.observe(None, at=0.0)
    monkeypatch.setattr(StepStream, "ended", 0.9)
    monkeypatch.setattr(StepStream, "steps", lambda *_: [])
    session.observe(None, at=1.0)
    assert (session.followed().ended, session.belief().finished) == (0.0, 0.0)


def test_once_all_usual_steps_were_begun_only_others_come_next(run_with_recogniser, video):
    session = Session(run_with_recogniser)
    for place, row in enumerate(video[1]):
        session.observe(row, at=float(place))
    order = run_with_recogniser.verifier.orders[session.followed().task.id]
    usual, actions = {*order.actions[order.usual >= 0.5].tolist()}, {*order.actions.tolist()}
    left = usual - {step.action for step in session.followed().done}
    assert left
    for at, action in enumerate(left, len(video[1])):
        assert session.followed().next == session.likely_next()
        session.done(action)
        session.observe(video[1][-1], at=float(at))
    found = session.followed()
    begun = {step.action for step in [*found.done, *([found.now] if found.now else [])]}
    assert usual <= begun
    assert found.next == session.likely_next()  # as the page and HTTP show them
    session.finish()
    finished = session.belief().finished
    assert finished == 1
    once = {*order.actions[order.repeated < 0.5].tolist()}
    assert {step.id for step in found.next} <= actions - (begun & once)


def test_a_film_that_is_over_is_judged_as_a_whole_video(run_with_recogniser, video):
    """Its last step is done, those that did not come are missing; a further row takes it back."""
    session, on = Session(run_with_recogniser), Session(run_with_recogniser)
    with pytest.raises(ConfigError, match="no row"):
        session.finish()
    rows = video[1][: int(video[0].steps[-2].start)]
    for place, row in enumerate(rows):
        for each in (session, on):
            each.observe(row, at=float(place))
    before = session.followed(least=0.5)
    session.finish()
    over = session.followed(least=0.5)
    assert over.now is None
    assert session.belief().finished == 1
    assert not {f.name for f in before.findings if f.kind == "missing"}
    missing = {finding.name for finding in over.findings if finding.kind == "missing"}
    film = verify(run_with_recogniser, rows)
    assert [(step.name, step.start, step.end) for step in over.done] == [
        (step.name, step.start, step.end) for step in film.steps
    ]
    assert missing == {finding.name for finding in film.deviations if finding.kind == "missing"}
    assert [(step.kind, step.name) for step in over.unsure] == [
        (step.kind, step.name) for step in film.unsure
    ]
    assert [one.evidence for one in over.findings] == [one.evidence for one in film.deviations]
    assert not before.unsure
    assert run_with_recogniser.taxonomy.actions[video[0].steps[-1].action].name in missing
    for each in (session, on):
        each.observe(video[1][len(rows)], at=float(len(rows)))
    assert session.followed(least=0.1) == on.followed(least=0.1)


def test_what_was_seen_twice_in_a_row_is_shown_as_it_was_likelier_done(
    run_with_recogniser, video, monkeypatch
):
    session = Session(run_with_recogniser)
    for place, row in enumerate(video[1]):
        session.observe(row, at=float(place))
    steps = verify(run_with_recogniser, video[1]).steps
    exchanges = list[list[str]]()
    for place, (first, second) in enumerate(pairwise(steps)):
        again = second.model_copy(update={"start": first.start, "end": first.end})
        seen = [*steps[:place], again, *steps[place + 1 :]]
        monkeypatch.setattr(StepStream, "steps_again", lambda *_, seen=seen: seen)
        session.finish()
        exchanges.append([step.name for step in session.followed().done])
        assert exchanges[-1] != [step.name for step in steps]
    assert sorted(step.name for step in steps) in map(sorted, exchanges)


def test_the_present_step_is_told_later(run_with_recogniser, video):
    session, steps = Session(run_with_recogniser), video[0].steps
    right = {0: 0, 3: 0}
    for place, row in enumerate(video[1]):
        session.observe(row, at=float(place))
        if place < 3:
            assert session.followed(lag=3).now is None
            continue
        for lag in right:
            now, shown = session.followed(lag=lag).now, place + 0.5 - lag
            truth = [step.action for step in steps if step.start <= shown < step.end]
            right[lag] += ([] if now is None else [now.action]) == truth
            assert now is None or now.end == place + 1 - lag
    assert right[3] > right[0]
    assert right[3] > 0.9 * (len(video[1]) - 3)
    for lag in (-1, 21, float("nan")):
        with pytest.raises(ConfigError, match="expected 0 to 20 seconds"):
            session.followed(lag=lag)


def test_the_next_step_is_that_of_the_recogniser(run_with_recogniser, video):
    session, stream = Session(run_with_recogniser), StepStream(run_with_recogniser.recogniser, None)
    for place, row in enumerate(video[1][:40]):
        session.observe(row, at=float(place))
        stream.observe(row, float(place))
    expected = stream.next_actions
    action, share = next_actions(session, 1)[0]
    assert action == expected.argmax()
    assert share == pytest.approx(expected[action], abs=0.03)
    first = session.plans(1)[0]
    assert first.actions[0] == action


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ([[1, 1], [2, 2], [3, 3]], [2, 2, 3, 3, 3, 3]),
        ([[1, 1]], [1, 1, 1, 1, 1, 1]),
        ([], None),  # a row was lost
    ],
)
def test_the_last_rows_are_joined_as_those_of_training(shown, expected):
    """Of three rows to an observation, the last one stands for the one after it."""
    rows = [np.array(row) for row in shown]
    joined = joined_rows(rows, 2, 6)
    assert (None if joined is None else joined.tolist()) == expected
    assert joined_rows(rows, 4, 6) is None  # not the features of the observations


def test_a_goal_changes_the_next_step(run_with_recogniser, world, video):
    """Also while rows are followed, of which the recogniser knows none."""
    first, shares, told = int(world.first_row[world.videos.index(video[0])]), [], []
    for goal in (None, *np.asarray(world.end[first : first + 4 : 3], dtype=np.float32)):
        session = Session(run_with_recogniser, goal=goal)
        for place in range(int(video[0].steps[0].end)):
            session.observe(video[1][place], at=float(place))
        shares.append(session.outlook.next_actions())
        told.append(next_actions(session, 3))
    for one, other in combinations(range(3), 2):
        assert float((shares[one] - shares[other]).abs().max()) > 1e-3
        assert told[one] != told[other]


def test_the_network_does_not_expect_the_step_that_goes_on_again(run_with_recogniser):
    """Of the step that it thinks likeliest, were that the one that goes on."""
    planner = run_with_recogniser.planner
    outlook = SessionModel(planner.model, planner.lengths).posterior(None, None, None)
    states, expected = planner.model.states, outlook.next_actions()
    again = states.actions == int(expected.argmax())
    rows = torch.where(again, -9.0, outlook.log_first)
    ours, without = (led(outlook, rows, which).next_actions() for which in (again, again & ~again))
    assert ours.max() > ours[expected.argmax()]
    assert ours[expected.argmax()] < without[expected.argmax()] / 2


def test_next_steps_and_plans_begin_alike(run_with_recogniser, world, video):
    first = int(world.first_row[world.videos.index(video[0])])
    for goal in (None, np.asarray(world.end[first + 3], dtype=np.float32)):
        session = Session(run_with_recogniser, goal=goal)
        for place, row in enumerate(video[1][:40]):
            session.observe(row, at=float(place))
            found, likely = session.followed(3), session.likely_next(3)
            assert found.next == likely
            assert found.now is None or found.now.action not in [step.id for step in likely]
            assert session.plans_by_next(3)[0].actions[0] == likely[0].id
            assert found.task.id == session.belief().tasks[0].id
            assert session.belief().finished == (0 if found.now else found.ended)


def test_plans_that_begin_with_the_likeliest_step_come_first(run_with_recogniser, world, video):
    session = Session(run_with_recogniser)
    best = session.plans(3)
    other = next(step for step in session.likely_next(9) if step.id != best[0].actions[0])
    leading = session.plans(2, first=other.id)
    assert [plan.actions[0] for plan in leading] == [other.id, other.id]
    whole = {tuple(plan.actions): plan.probability for plan in session.plans(200)}
    for plan in leading:
        share = plan.probability * float(session.outlook.next_actions()[other.id])
        assert share == pytest.approx(whole[tuple(plan.actions)], abs=1e-4)


def test_rows_that_are_lost_late_or_repeated_change_little(run_with_recogniser, video, followed):
    session = Session(run_with_recogniser)
    for place, row in enumerate(video[1]):
        lost = place % 7 == 3
        session.observe(None if lost else row, at=place + 0.4)
        session.observe(video[1][0], at=max(0.0, place - 5.0))  # late
        session.observe(row, at=place + 0.5)  # of the same second
        if place == 20:
            session.observe(np.full_like(row, np.nan), at=21.0)
    ours = [step.action for step in session.followed().done]
    assert ours == [step.action for step in followed.followed().done]


def test_rows_are_narrower_or_wider_than_observations(run_with_recogniser, video, followed):
    session = Run(**vars(run_with_recogniser)).session()
    for place, row in enumerate(video[1]):  # 24 numbers; observations have 8
        session.observe(row, at=float(place))
    assert session.followed() == followed.followed()


def test_a_correction_is_the_present_step(run_with_recogniser, world, video):
    session = Session(run_with_recogniser)
    for place, row in enumerate(video[1][:30]):
        session.observe(row, at=float(place))
    other = video[0].steps[-1].action
    session.done(world.taxonomy.actions[other].name)
    found = session.followed()
    assert found.now is not None
    assert found.now.action == other
    assert session.belief().done[-1].reported


def test_a_correction_is_taken_back_and_rows_stay(run_with_recogniser, video):
    session, without = Session(run_with_recogniser), Session(run_with_recogniser)
    with pytest.raises(ConfigError, match="nothing to undo"):
        session.undo()
    others = [step.action for step in video[0].steps[-2:]]
    for place, row in enumerate(video[1][:40]):
        for one in (session, without):
            one.observe(row, at=float(place))
        if place in (25, 30):
            session.done(others[place == 30])
    assert session.events == 2
    assert session.followed() != without.followed()
    once = session.copy()
    for left in (1, 0):
        session.undo()
        assert session.events == left
    assert session.seconds == without.seconds
    assert session.followed() == without.followed()
    assert not any(step.reported for step in session.belief().done)
    assert once.events == 2  # a copy goes on by itself
    with pytest.raises(ConfigError, match="rows of a video stay"):
        session.undo()


def test_a_correction_long_ago_stays(run_with_recogniser, video):
    session = Session(run_with_recogniser)
    session.observe(video[1][0], at=0.0)
    session.done(video[0].steps[0].action)
    for at in range(1, 602):
        assert session.events == 1
        session.observe(video[1][0], at=float(at))
    assert session.events == 0


def test_sessions_take_rows_or_boundaries(run_with_recogniser, run_of_lengths, video):
    with pytest.raises(RunError, match="cannot recognise steps"):
        Session(run_of_lengths).observe(video[1][0], at=0.0)
    session = Session(run_with_recogniser)
    with pytest.raises(ConfigError, match="no row of a video"):
        session.followed()
    with pytest.raises(DataError, match=r"row \[3\]: expected \[24\]"):
        session.observe(np.zeros(3), at=0.0)
    assert not session.follows_rows  # a row that is refused changes nothing
    with pytest.raises(ConfigError, match="no observation is given"):
        session.observe(None)
    session.observe(video[1][0], at=0.0)
    with pytest.raises(ConfigError, match="follows rows"):
        session.observe(np.zeros(8))
    with pytest.raises(DataError, match=r"row \[3\]: expected \[24\]"):
        session.observe(np.zeros(3), at=1.0)


def test_follow_prints_each_change(run_with_recogniser, world, video, tmp_path, capsys):
    np.save(tmp_path / "new.npy", video[1])
    run = str(run_with_recogniser.folder)
    assert main(["follow", run, "--features", str(tmp_path / "new.npy"), "--json", "--plan"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [step["name"] for step in events[-1]["done"]][:2] == names(world, video[0].steps)[:2]
    assert all(event["plan"]["actions"] for event in events)
    assert [event["over"] for event in events] == [False] * (len(events) - 1) + [True]
    later = ["--features", str(tmp_path / "new.npy"), "--json", "--lag", "2"]
    assert main(["follow", run, *later]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    ends = {one["seconds"] - one["now"]["end"] for one in shown if one["now"]}
    assert ends == {2}  # seconds ago
    assert main(["follow", run, "--features", str(tmp_path / "new.npy"), "--plan"]) == 0
    said = capsys.readouterr().err
    assert "remaining: " + " → ".join(events[-2]["plan"]["actions"]) + "\n" in said
    assert f"now: {names(world, video[0].steps)[0]}" in said
    assert "next: " in said
    assert " s  the film is over; done: " in said
    for done in events[-1]["done"]:
        assert f"{done['name']} ({film_percent(done['probability'])})" in said.splitlines()[-2]
    for finding in events[-1]["findings"]:
        assert f"{finding['name']}, {finding['words']}" in said.splitlines()[-1]


def test_times_of_lines(run_with_recogniser, video, monkeypatch, capsys):
    """Seconds, times of day, or a line each second; milliseconds are refused."""

    def followed(lines, *argv, code=0):
        text = "\n".join(map(json.dumps, lines))
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        assert main(["follow", str(run_with_recogniser.folder), "-", "--json", *argv]) == code
        return capsys.readouterr()

    rows = video[1][:20].tolist()
    bare = followed(rows).out
    assert followed([{"at": at, "row": row} for at, row in enumerate(rows)]).out == bare
    assert followed([{"at": 1.769e9 + at, "row": row} for at, row in enumerate(rows)]).out == bare
    fast = [row for row in rows for _ in range(5)]
    assert followed(fast, "--feature-rate", "5").out == bare
    for begin in (0, 1.769e12):
        lines = [{"at": begin + 1000 * at, "row": row} for at, row in enumerate(rows)]
        problem = followed(lines, code=2).err
        assert "line 2 of the input: is 1000 s after the first row. Give times in s" in problem
    assert "expected 0.01 to 1000 rows" in followed(rows, "--feature-rate", "0", code=2).err


def test_a_time_of_day_is_no_time_of_a_video(run_with_recogniser, video):
    session = Session(run_with_recogniser)
    with pytest.raises(DataError, match="at second 1,769,000,000"):
        session.observe(video[1][0], at=1.769e9)
    assert session.observe(video[1][0], at=60.0)


def test_follow_reads_lines(run_with_recogniser, video, monkeypatch, capsys):
    rows = [{"at": place, "row": row.tolist()} for place, row in enumerate(video[1][:20])]
    lines = [json.dumps(row) for row in rows] + ["", json.dumps({"at": 20, "row": None})]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines)))
    run = str(run_with_recogniser.folder)
    assert main(["follow", run, "-", "--json"]) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["seconds"] <= 21, last["over"]) == (True, True)
    for text, problem in (("{}", "line 1 of the input"), (" \n", "the source is empty or")):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        assert main(["follow", run, "-"]) == 2
        assert problem in capsys.readouterr().err
    for line in (
        '"x"',
        "[1, 2]",
        '{"at": true, "row": null}',
        '{"at": NaN, "row": null}',
        "\udcff",
    ):
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"null\n\n{line}\n"))
        assert main(["follow", run, "-"]) == 2
        assert "line 3 of the input: expected [" in capsys.readouterr().err
    assert main(["follow", run, "-", "--false-alarms", "1"]) == 2
    assert "cannot be promised" in capsys.readouterr().err
    assert main(["follow", run]) == 2
    assert "give one of" in capsys.readouterr().err
    assert main(["follow", run, "-", "--lag", "21"]) == 2  # before anything is said of the run
    assert capsys.readouterr().err == "error: lag 21: expected 0 to 20 seconds. (--lag)\n"


@pytest.mark.parametrize("told", [False, True])
def test_findings_are_those_of_the_steps_as_they_are_now(run_with_recogniser, video, told):
    """By networks of whole videos up to the last step; by those of the past after one was told."""
    session, recogniser = Session(run_with_recogniser), run_with_recogniser.recogniser
    stream, judged = recogniser.stream().doubted(), 0
    doubting = replace(recogniser, config=recogniser.config.model_copy(update={"drawn": 16}))
    for place, row in enumerate(video[1]):
        session.observe(row, at=float(place))
        stream.observe(row, at=float(place))
        if told and place == 10:
            session.done(video[0].steps[0].action)
            stream.correct(video[0].steps[0].action)
        found = session.followed(least=0.01)
        task = found.task.id
        assert stream.keeps_rows == (not told or place < 10)
        drawn = stream.drawn_steps(task, 16)
        assert len(drawn) == (16 if place >= 4 else 0)
        ends = [step.end for step in found.done if step.end <= place - 1]  # two seconds ago
        if ends and place != 10:
            if stream.keeps_rows:
                rows = video[1][: round(ends[-1])]
                drawn = doubting.recognise(rows, task=task, doubt=True).drawn_steps
            expected = run_with_recogniser.verifier.verify(
                stored(found.done),
                task,
                drawn=drawn,
                certainty=round(float(stream.doubted_tasks[task]), 2),
                finished=False,
                least=0.01,
            )
            late = found.now and ("missing", found.now.action)
            assert found.findings == [
                one for one in expected.deviations if (one.kind, one.action) != late
            ]
            judged += 1
    assert judged > 20


def test_findings_do_not_depend_on_when_they_were_asked_for(run_with_recogniser, video):
    asked, silent = Session(run_with_recogniser), Session(run_with_recogniser)
    order = [*range(15, 40), *range(15), *range(40, len(video[1]))]  # early steps come late
    findings = []
    for place, row in enumerate(video[1][order]):
        for session in (asked, silent):
            session.observe(row, at=float(place))
        told = asked.followed(least=0.1)
        findings.append(told.findings)
        missing = {one.action for one in told.findings if one.kind == "missing"}
        assert told.now is None or told.now.action not in missing  # it comes late
        if place % 7 == 0:
            assert findings[-1] == silent.copy().followed(least=0.1).findings
    assert any(findings)


def test_a_run_of_other_rows_is_not_gone_on_with(run_with_recogniser, tmp_path):
    info = run_with_recogniser.info
    reference = {rows: info.dataset.model_copy(update={"rows": rows}) for rows in ("a", "b", None)}
    info.model_copy(update={"dataset": reference["a"]}).write(tmp_path)
    for rows in ("a", None):  # None: no recogniser is trained, or it was before this was recorded
        check_run_folder(tmp_path, info.model_copy(update={"dataset": reference[rows]}))
    with pytest.raises(RunError, match="holds a run with another timeline"):
        check_run_folder(tmp_path, info.model_copy(update={"dataset": reference["b"]}))
