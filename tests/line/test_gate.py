"""Events and the gate, on records of a film that are written by hand."""

import os
from typing import Any

import pytest

from cefito.cli.follow import _Film
from cefito.data.vocabulary import Action, Task, Taxonomy
from cefito.inference.following import Followed
from cefito.inference.outlook import Likely
from cefito.line.events import Event, Telling
from cefito.line.gate import Gate, Lines
from cefito.tracks import TimedStep
from cefito.verification.findings import Deviation

NAMES = ["boil", "pour", "wait", "serve", "cut"]
TEA = Task(0, "tea", (0, 1, 2, 3))
TAXONOMY = Taxonomy("kitchen", (TEA, Task(1, "toast", (4,))), tuple(map(Action, range(5), NAMES)))


def step(name, probability=0.9):
    return TimedStep(action=NAMES.index(name), name=name, start=0, end=1, probability=probability)


def seen(done="", now=None, following=None, missing=(), late=(), ended=0.0):
    """A record: names of steps done, of the present and of the next one, and of findings."""
    findings = [
        Deviation(
            kind=kind,
            words=kind,
            action=NAMES.index(name),
            name=name,
            probability=0.8,
            evidence="seen",
        )
        for kind, names in (("missing", missing), ("long", late))
        for name in names
    ]
    likely = [] if following is None else [following]
    return Followed(
        seconds=7,
        now=None if now is None else step(now),
        done=[step(name) for name in done.split()],
        next=[Likely(id=NAMES.index(name), name=name, probability=0.6) for name in likely],
        task=Likely(id=0, name="tea", probability=0.9),
        ended=ended,
        findings=findings,
    )


@pytest.fixture
def gate():
    """A gate with critical steps, as a function of these."""
    return lambda *names: Gate(TAXONOMY, [NAMES.index(name) for name in names])


def state(gate):
    shown = gate.shown
    return shown and (shown.name, shown.waits, shown.passed_over)


def confirmed(gate):
    return [(step.name, step.by, step.skipped) for step in gate.confirmed]


def test_each_change_is_told_once():
    told = Telling()

    def facts(**record):
        return [
            (kind, next(iter(facts.values()))["name"])
            for kind, facts in told.news(seen(**record)).facts()
        ]

    assert facts(now="boil") == []
    assert facts(done="boil", now="pour") == [("step.done", "boil")]
    assert facts(done="boil", now="pour", late=["boil"]) == [("finding", "boil")]
    assert facts(done="boil pour boil", late=["boil"], missing=["wait"]) == [
        ("step.done", "pour"),
        ("step.done", "boil"),
        ("step.missed", "wait"),
    ]
    assert facts(done="boil wait") == [
        ("step.withdrawn", "pour"),
        ("step.withdrawn", "boil"),
        ("step.done", "wait"),
        ("finding.withdrawn", "wait"),
        ("finding.withdrawn", "boil"),
    ]
    assert facts(done="boil wait", late=["boil"]) == [("finding", "boil")]
    assert facts(done="boil wait", late=["boil", "boil"]) == []
    faint = seen(done="boil wait", late=["boil"])
    (late,) = faint.findings
    faint = faint.model_copy(update={"findings": [late.model_copy(update={"probability": 0.6})]})
    told.news(faint).facts()
    ((_, gone),) = told.news(seen(done="boil wait")).facts()
    assert gone["finding"]["probability"] == 0.6  # as it was last found
    told.news(faint).facts()
    end = told.end()
    assert (end["done"], [finding["name"] for finding in end["findings"]]) == (
        ["boil", "wait"],
        ["boil"],
    )


def test_what_no_longer_holds_is_printed_and_where_no_step_is_left(capsys):
    """A step that comes late was missing before; the film has one finding at a time."""
    nobody: Any = None  # no session is asked
    film = _Film(
        nobody, Telling(), None, hint="", least=0.6, lag=0, ends=True, plan=False, as_json=False
    )
    film.take(seen(done="boil", now="wait", following="serve", missing=["pour"]))
    film.take(seen(done="boil wait pour", now="serve", late=["wait"]))
    lines = [line.strip() for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "7.0 s  now: wait (90.0 %); done: 1; next: serve 60.0 %",
        "pour: missing (80.0 %): seen",
        "7.0 s  now: serve (90.0 %); done: 3; next: no step is left",
        "pour: no longer missing",
        "wait: long (80.0 %): seen",
    ]


def test_events_have_ids_of_their_own():
    first, second = (Event.of("step.done", {"x": 1}) for _ in range(2))
    assert first.id != second.id
    assert first.timestamp.endswith("+00:00")
    assert set(first.model_dump()) == {"id", "type", "timestamp", "data"}


def test_the_recogniser_confirms_steps_that_are_not_critical(gate):
    door = gate()
    assert door.update(seen(following="boil")) == []
    assert state(door) == ("boil", False, False)
    door.update(seen(now="boil", following="pour"))
    assert state(door) == ("boil", False, False)
    (ours,) = door.update(seen(done="boil", following="pour"))
    assert (ours.name, ours.by, ours.skipped, ours.seconds) == ("boil", "recogniser", False, 7)
    assert state(door) == ("pour", False, False)
    door.update(seen(done="boil pour wait", now="serve"))
    assert state(door) == ("serve", False, False)
    door.update(seen(done="boil pour wait serve", ended=0.9))
    assert state(door) is None
    assert [name for name, by, _ in confirmed(door) if by == "recogniser"] == NAMES[:4]


def test_a_critical_step_stays_until_a_person_confirms_it(gate):
    door = gate("boil")
    door.update(seen(now="boil"))
    assert state(door) == ("boil", False, False)
    for record in (
        seen(done="boil", following="pour"),
        seen(done="boil", now="pour"),
        seen(done="boil pour", now="wait"),
    ):
        assert door.update(record) == []
        assert state(door) == ("boil", True, False)
    assert door.touch("pour") is None
    assert door.touch("\n").by == "person"
    (next_one,) = door.update(record)
    assert (next_one.name, next_one.by) == ("pour", "recogniser")
    assert state(door) == ("wait", False, False)
    assert door.touch("wait\n").name == "wait"  # before it is seen to be done
    door.update(seen(done="boil pour wait", following="serve"))
    assert state(door) == ("serve", False, False)


@pytest.mark.parametrize("line", ["skip", "s\n", "skip BOIL", "Skip 0"])
def test_a_step_that_was_passed_over_is_confirmed_or_skipped(gate, line):
    door = gate()
    record = seen(done="pour", now="wait", missing=["boil"])
    door.update(record)
    assert state(door) == ("boil", True, True)
    door.update(seen(done="pour boil", now="wait"))  # late: only a person settles it
    assert state(door) == ("boil", True, False)
    assert door.touch(line).skipped
    assert [step.name for step in door.update(record)] == ["pour"]
    assert state(door) == ("wait", False, False)
    assert confirmed(door) == [("boil", "person", True), ("pour", "recogniser", False)]


def test_a_step_shown_gives_way_only_if_it_is_not_critical(gate):
    for door, expected in ((gate(), ("pour", False, False)), (gate("boil"), ("boil", True, True))):
        door.update(seen(following="boil"))
        door.update(seen(following="serve"))
        assert state(door) == ("boil", False, False)
        door.update(seen(now="pour"))
        assert state(door) == expected
    door = gate("cut")  # a step of another task than the one that is recognised
    door.update(seen(following="cut"))
    door.update(seen(now="boil"))
    assert state(door) == ("boil", False, False)


def test_a_finding_does_not_replace_a_step_that_waits(gate):
    door = gate("pour")
    door.update(seen(done="pour"))
    record = seen(done="pour", missing=["boil"])
    door.update(record)
    assert state(door) == ("pour", True, False)
    door.touch("")
    door.update(record)
    assert state(door) == ("boil", True, True)


def test_critical_steps_are_asked_for_at_the_end(gate):
    door = gate("wait", "cut", "serve")
    door.update(record := seen(done="pour", now="serve"))
    assert state(door) == ("serve", False, False)
    record = seen(done="pour", now="serve", missing=["boil"])  # as the whole film shows
    for name in ("boil", "wait"):
        door.update(record, ended=True)
        assert state(door) == (name, True, True)
        door.touch("skip")
    door.update(record, ended=True)
    assert state(door) == ("serve", True, False)
    door.touch("serve")
    assert door.update(record, ended=True) == []
    assert state(door) is None
    assert door.to_dict()["confirmed"][2] == {
        "action": 2,
        "name": "wait",
        "by": "person",
        "skipped": True,
        "seconds": 7.0,
    }
    assert door.touch("") is None


def test_a_repeated_step_is_confirmed_twice(gate):
    door = gate("boil")
    door.update(seen(done="boil pour boil"))
    door.touch("boil")
    door.update(seen(done="boil pour boil"))
    assert state(door) == ("boil", True, False)


def test_lines_come_when_they_are_written():
    reading, writing = os.pipe()
    with os.fdopen(reading) as file:
        lines = Lines(file)
        assert lines.take(wait=False) is None
        os.write(writing, "eins\nzwölf\n".encode())
        assert [lines.take(wait=True) for _ in range(2)] == ["eins\n", "zwölf\n"]
        os.close(writing)
        assert lines.take(wait=True) is None
        assert lines.take(wait=False) is None
    assert Lines(file).take(wait=True) is None  # it is closed
