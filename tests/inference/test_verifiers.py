"""Verifiers learned from tables of right or labelled videos, without features or a run."""

import json
from itertools import pairwise

import pytest

import cefito
from cefito.cli import main
from cefito.data.annotations import Step
from cefito.errors import CefitoError, ConfigError, DataError
from cefito.inference.verification import open_verifier, verified
from cefito.inference.verifiers import learned_verifier
from cefito.tracks import TimedStep, Track
from cefito.tracks.document import Choices
from cefito.verification.settings import VerifierConfig
from tracks.formats.test_elan import write_eaf

TEA = ["boil water", "add leaves", "pour milk", "stir"]
HEAD = "video,task,step,start,end,split,error\n"


def lines(video, steps=TEA, task="tea", split="train", errors=()):
    cells = [""] * len(steps)
    for place in errors:
        cells[place] = "yes"
    return "".join(
        f"{video},{task},{step},{20 * at},{20 * at + 10},{split},{cells[at]}\n"
        for at, step in enumerate(steps)
    )


@pytest.fixture
def write(tmp_path):
    """Write a table of the given lines."""

    def written(name, *rows, head=HEAD):
        path = tmp_path / name
        cells = [row if head == HEAD else row.replace(",train,\n", "\n") for row in rows]
        path.write_text(head + "".join(cells))
        return path

    return written


@pytest.fixture
def right(write):
    head = HEAD.replace(",split,error", "")
    return write("RIGHT.csv", *(lines(f"r{n}") for n in range(4)), head=head)


def findings(video):
    return [(one.kind, one.name) for one in video.deviations]


def test_a_table_of_right_videos_is_enough(right, write, capsys):
    new = write("NEW.csv", lines("x", ["boil water", "pour milk", "add leaves"]))
    found = cefito.verify(right, new)
    assert findings(found) == [("missing", "stir"), ("order", "pour milk")]
    assert found.repair == ("stir",)
    assert [one.kind for one in cefito.verify(right, found).deviations] == ["missing", "order"]
    assert main(["verify", str(right), str(new), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [found.to_dict()]
    assert cefito.graph(right, "tea") == [*pairwise(TEA)]
    assert main(["graph", str(right)]) == 0
    assert json.loads(capsys.readouterr().out)["tea"]["edges"] == [
        [*pair] for pair in pairwise(TEA)
    ]
    assert sorted(path.name for path in right.parent.iterdir()) == ["NEW.csv", "RIGHT.csv"]


def test_what_was_recognised_is_shown_as_it_was_likelier_done(right):
    verifier = open_verifier(right)[1]
    names = ["boil water", "pour milk", "pour milk", "stir", "boil water"]
    seen = tuple(
        Step(20 * at, 20 * at + (10 if at < 4 else 1), TEA.index(name))
        for at, name in enumerate(names)
    )
    steps = [TimedStep(name=TEA[s.action], action=s.action, start=s.start, end=s.end) for s in seen]
    facts = {"video": "f", "task": "tea", "task_id": 0, "seconds": 100.0}
    film = verified(verifier, Track(**facts, steps=steps, drawn=(seen,) * 2), least=0.5)
    assert [step.name for step in film.steps] == ["boil water", "pour milk", "add leaves", "stir"]
    (late,) = film.deviations  # one of both, which break as many orders
    assert (late.kind, film.steps[late.step - 1].name) == ("order", late.name)
    assert (film.repair, film.unseen) == ((), ())
    slip, exchange = sorted(film.notes)
    assert "'boil water' was seen again for 1.0 s" in slip
    assert "'pour milk' was seen twice in a row and 'add leaves' never" in exchange


def test_many_findings_in_a_film_may_be_those_of_another_task(right):
    verifier = open_verifier(right)[1]
    seen = tuple(Step(20 * at, 20 * at + 10, action) for at, action in enumerate([3, 3, 1]))
    steps = [TimedStep(name=TEA[s.action], action=s.action, start=s.start, end=s.end) for s in seen]
    facts = {"video": "f", "task": "tea", "task_id": 0, "seconds": 60.0, "steps": steps}
    many = "findings and 0 doubts among 3 steps are many for one film: it may show another task, or"
    for drawn in (seen,) * 2, None:  # recognised, or given
        film = verified(verifier, Track(**facts, drawn=drawn), least=0.5)
        assert len(film.deviations) >= 3
        assert (many in " ".join(film.notes)) == (drawn is not None)


@pytest.mark.parametrize(
    ("count", "shown", "certainty", "said"),
    [(7, 3, 0.54, True), (7, 3, 0.5, False), (6, 3, 0.54, False), (5, 2, 0.54, False)],
)
def test_doubts_that_outnumber_the_steps_may_be_those_of_another_task(
    count, shown, certainty, said, write
):
    """If more than three are in doubt; of a task with at most 50 % the limits say it."""
    names = [f"step {letter}" for letter in "abcdefg"[:count]]
    verifier = open_verifier(write("R.csv", *(lines(f"r{n}", names) for n in range(4))))[1]
    seen = tuple(Step(20 * at, 20 * at + 10, at) for at in range(shown))
    steps = [
        TimedStep(name=names[s.action], action=s.action, start=s.start, end=s.end) for s in seen
    ]
    facts = {"video": "f", "task": "tea", "task_id": 0, "seconds": 140.0, "steps": steps}
    track = Track(**facts, task_probability=certainty, drawn=(seen,) * 9 + (seen[1:],))
    film = verified(verifier, track, least=0.5)
    assert (len(film.deviations), len(film.unsure)) == (0, count - shown)
    many = "0 findings and 4 doubts among 3 steps are many for one film"
    assert [note.partition(":")[0] for note in film.notes] == [many] * said
    assert verified(verifier, track, least=0.001).notes == film.notes
    assert verified(verifier, track, least=0.9).notes == film.notes


@pytest.mark.parametrize(("count", "said"), [(12, True), (13, False), (7, False)])
def test_findings_are_many_from_a_third_of_the_steps_on(count, said, write):
    """If three are missing; two are too few, of however few steps."""
    names = [f"step {letter}" for letter in "abcdefghijklm"[:count]]
    verifier = open_verifier(write("R.csv", *(lines(f"r{n}", names) for n in range(4))))[1]
    seen = tuple(Step(20 * at, 20 * at + 10, at) for at in range(count) if at not in (2, 5, 8))
    steps = [
        TimedStep(name=names[s.action], action=s.action, start=s.start, end=s.end) for s in seen
    ]
    facts = {"video": "f", "task": "tea", "task_id": 0, "seconds": 300.0, "steps": steps}
    film = verified(verifier, Track(**facts, drawn=(seen,) * 2), least=0.5)
    assert [one.kind for one in film.deviations] == ["missing"] * (3 if count > 8 else 2)
    assert ("many for one film" in " ".join(film.notes)) == said


def test_an_unknown_name_is_a_finding_beside_the_others(right, write):
    new = write("NEW.csv", lines("x", ["boil water", "ad leaves", "fly", "stir"]))
    found = cefito.verify(right, new)
    unknown = {one.name: one for one in found.deviations if one.kind == "unknown"}
    three = write("THREE.csv", *(lines(f"r{n}", [*TEA, *"efghijklmn"]) for n in range(3)))
    for learned in (right, three):
        online = cefito.verify(learned, new, online=True).deviations
        assert {"ad leaves", "fly"} <= {one.name for one in online if one.kind == "unknown"}
    assert unknown["ad leaves"].evidence == "the nearest name is 'add leaves'"
    assert unknown["fly"].evidence == "no name of the task is similar"
    assert [(one.action, one.step) for one in unknown.values()] == [(None, 2), (None, 3)]
    assert {"add leaves", "pour milk"} == {
        one.name for one in found.deviations if one.kind == "missing"
    }
    assert [step.action is None for step in found.steps] == [False, True, True, False]
    wrong = write("WRONG.csv", *(lines(f"r{n}") for n in range(4)), lines("w", ["fly"], errors=[0]))
    (added,) = [one for one in cefito.verify(wrong, new).deviations if one.name == "fly"]
    assert (added.kind, added.words) == ("added", "not a step of the task")


def test_of_a_task_without_a_right_step_nothing_is_found(write):
    wrong = lines("w", ["cut", "heat"], task="toast", errors=(0, 1))
    learned = write("R.csv", lines("r"), lines("s"), wrong)
    new = write("N.csv", lines("x", ["heat", "cut"], task="toast"))
    found = cefito.verify(learned, new)
    note = "no right step of the task was seen in training"
    assert (found.deviations, found.notes) == ((), (note,))
    for step in found.to_dict()["steps"]:
        assert [step[key] for key in ("recognised_wrongly", "done_wrongly", "mistake")] == [
            None
        ] * 3
    assert cefito.verify(learned, new, online=True).deviations  # by the other task


def test_all_steps_have_probabilities_as_their_findings(right, write):
    new = write("NEW.csv", lines("x", ["boil water", "pour milk", "add leaves", "fly", "stir"]))
    found = cefito.verify(right, new, least=0.0)
    told = {one.step: one.probability for one in found.deviations if one.step is not None}
    for place, step in enumerate(found.steps, 1):
        assert told.get(place, 0.0) == step.mistake
        assert max(step.kinds.values()) <= step.mistake
    (entry,) = [one for one in found.to_dict()["steps"] if one["name"] == "add leaves"]
    assert entry["mistake"] == entry["kinds"]["order"] > 0.5 > entry["kinds"]["repeated"]
    kinds = {"wrong", "long", "short", "order", "repeated", "added", "unknown"}
    assert {*entry["kinds"]} == kinds
    assert entry["done_wrongly"] == entry["mistake"]
    assert (entry["probability"], entry["recognised_wrongly"]) == (1, 0)
    steps = [one.model_copy(update={"probability": 0.25}) for one in found.steps]
    doubted = found.model_copy(update={"steps": tuple(steps)})
    again = cefito.verify(right, doubted).to_dict()["steps"][2]
    assert (again["probability"], again["recognised_wrongly"]) == (0.25, 0.75)
    assert again["mistake"] == pytest.approx(entry["mistake"])
    assert again["done_wrongly"] == pytest.approx(entry["mistake"] / 4)


def test_online_steps_are_judged_from_those_before_them(right, write):
    new = write("NEW.csv", lines("x", ["boil water", "pour milk", "add leaves"]))
    found = cefito.verify(right, new, online=True)
    assert findings(found) == [("order", "pour milk")]  # once, when it was done
    assert found.deviations[0].evidence.startswith("'add leaves' was not done; 4 of 4 videos")
    skipped = write("SKIPPED.csv", lines("y", ["boil water", "pour milk"]))
    told = cefito.verify(right, skipped, online=True)
    assert ("missing", "add leaves") in findings(told)  # but not "stir", which may follow
    assert ("missing", "stir") not in findings(told)
    for count in (1, 2, 3):
        shorter = found.model_copy(update={"steps": found.steps[:count]})
        again = cefito.verify(right, shorter, online=True)
        assert again.steps == found.steps[:count]


def test_the_split_train_is_learned_and_the_split_test_of_the_same_file_judged(write):
    swapped = [TEA[1], TEA[0], *TEA[2:]]
    rows = [lines(f"r{n}", split="train") for n in range(3)]
    rows += [lines(f"t{n}", swapped, split="test") for n in range(9)]
    both = write("ALL.csv", *rows, lines("v", split="val"))
    _, verifier = open_verifier(both)
    assert verifier.orders[0].videos == 3
    with pytest.raises(ConfigError, match=r"videos t0, .* t4 and 4 more"):
        cefito.verify(both, both)
    assert findings(cefito.verify(both, both, video="t4"))[0][0] == "order"


def test_labelled_mistakes_train_networks(write):
    rows = [lines(f"r{n}") for n in range(8)]
    swapped = [TEA[1], TEA[0], *TEA[2:]]
    rows += [lines(f"w{n}", swapped, errors=(0, 1)) for n in range(10)]
    few = write("FEW.csv", *rows[:17])  # of 18 errors
    assert open_verifier(few)[1].network is None
    config = VerifierConfig(online=True, members=1, width=16, training_steps=60)
    verifier = learned_verifier(write("ENOUGH.csv", *rows), Choices(), config=config)
    assert verifier.network is not None
    assert verifier.orders[0].videos == 18  # of the others, the steps without an error
    assert verifier.orders[0].before[0, 1:].tolist() == [8, 8, 8]
    steps = [Step(20.0 * at, 20.0 * at + 10, action) for at, action in enumerate((1, 0, 2, 3))]
    online = verifier.verify(steps, 0, online=True).steps
    whole = verifier.verify(steps, 0).steps  # its networks know the steps before each alone
    for ours, theirs in zip(online, whole, strict=True):
        assert ours.mistake == pytest.approx(theirs.mistake, abs=1e-6)
    (alone,) = verifier.verify(steps[:1], 0, online=True).steps
    assert alone.mistake == pytest.approx(online[0].mistake, abs=1e-6)
    assert alone.kinds == pytest.approx(online[0].kinds, abs=1e-6)


def test_files_without_a_task_take_that_of_the_option(tmp_path):
    for name, text in (
        ("A.txt", "0:00 - 0:04 boil\n0:04 - 0:09 pour\n"),
        ("B.txt", "0:00 - 0:04 pour\n"),
    ):
        (tmp_path / name).write_text(text)
    elan = write_eaf(tmp_path / "A.eaf", {"Steps": [("boil", 0, 4000), ("pour", 4000, 9000)]})
    for right in (tmp_path / "A.txt", elan):
        found = cefito.verify(right, tmp_path / "B.txt", task="tea", least=0.7)
        assert findings(found) == [("missing", "boil")]


@pytest.mark.parametrize(
    ("learned", "new", "kind", "words"),
    [
        ([lines("r")], [lines("x", task="soup")], ConfigError, "unknown task 'soup'"),
        ([lines("r", errors=range(4))], [lines("x")], DataError, "are errors. Add a right video"),
        ([lines("r", split="test")], [lines("x")], DataError, "no video of the split train"),
        ([lines("r")], None, ConfigError, "of the split test to judge. Give the videos"),
    ],
)
def test_refusals(write, learned, new, kind, words):
    path = write("R.csv", *learned)
    with pytest.raises(CefitoError, match=words) as refusal:
        cefito.verify(path, path if new is None else write("N.csv", *new))
    assert isinstance(refusal.value, kind)
