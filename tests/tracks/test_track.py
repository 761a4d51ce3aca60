"""Tracks: names and ids, and formats that cannot be declared without their meaning."""

import json
import sys
from typing import Any

import pytest

from cefito.data.annotations import Step, Video
from cefito.data.vocabulary import Taxonomy
from cefito.errors import ConfigError, DataError
from cefito.inference.verification import VerifiedStep, VerifiedVideo
from cefito.tracks import TimedStep, Track
from cefito.tracks.document import Choices, Format
from cefito.tracks.formats import FORMATS, WRITERS
from cefito.tracks.reading import holds_steps, read
from cefito.tracks.track import annotated_videos, bound, named, stored

TAXONOMY = Taxonomy.from_names(
    "kitchen", [("tea", [0, 1]), ("toast", [1, 2])], ["Boil", "pour", "cut"]
)
STEPS = (TimedStep(name="boil", start=0, end=4), TimedStep(name="pour", start=4, end=9))


def track(task="Tea", steps=STEPS):
    return Track(video="v", task=task, seconds=9, steps=steps, recognised=False)


def test_names_become_ids_and_names_again():
    (found,) = bound([track()], TAXONOMY)
    assert found.task_id == 0
    assert stored(found.steps) == (Step(0, 4, 0), Step(4, 9, 1))
    assert [step.name for step in named(stored(found.steps), TAXONOMY)] == ["Boil", "pour"]
    (other,) = bound([track("unknown")], TAXONOMY, task=1)
    assert other.task_id == 1


STRANGE = (TimedStep(name="juggle", start=0, end=1),)


@pytest.mark.parametrize("changes", [{"task": "coffee"}, {"steps": STRANGE}])
def test_names_that_a_taxonomy_lacks_are_refused_with_their_video(changes):
    with pytest.raises(ConfigError, match=r"a.csv, video 'v': unknown (task|action)"):
        list(bound([track(**changes)], TAXONOMY, place="a.csv"))
    with pytest.raises(ConfigError, match="step 'boil': expected an action's id"):
        stored(STEPS)


def test_annotated_videos_have_steps_split_missing_actions_and_group():
    late = STEPS[1].model_copy(update={"errors": ("late", "missing: Boil")})
    told = track(steps=(STEPS[0], late)).model_copy(update={"split": "test", "group": "ann"})
    assert [*annotated_videos([track(), told], TAXONOMY)] == [
        Video("v", "train", 0, (Step(0, 4, 0), Step(4, 9, 1))),
        Video("v", "test", 0, (Step(0, 4, 0), Step(4, 9, 1, ("late",))), missing=(0,), group="ann"),
    ]
    strange = track(steps=(late.model_copy(update={"errors": ("missing: juggle",)}),))
    with pytest.raises(ConfigError, match="video 'v', missing: unknown action"):
        list(annotated_videos([strange], TAXONOMY))


def test_json_holds_what_is_known():
    """Recognised steps with ids and probabilities, annotated ones with times alone."""
    seen = TimedStep(action=0, name="boil", start=0, end=4, probability=1.0)
    facts = {"video": "v", "task_id": 0, "task": "tea", "task_probability": 1.0, "seconds": 9.0}
    value = Track(**facts, steps=(seen,), annotated=STEPS[:1]).to_dict()
    times = {"name": "boil", "start": 0.0, "end": 4.0}
    assert value == facts | {
        "steps": [{"action": 0, **times, "probability": 1.0}],
        "annotated": [times],
    }
    assert Track.model_validate_json(json.dumps(value)).steps == (seen,)
    judged = {
        **{"recognised_wrongly": 0.0, "done_wrongly": 0.25, "mistake": 0.25},
        "kinds": {"order": 0.25},
    }
    step = VerifiedStep(**seen.model_dump(), **judged)
    checked = VerifiedVideo(**facts, steps=(step,), deviations=(), repair=()).to_dict()
    del facts["task_id"]
    empty = {"recognised": True, "deviations": [], "repair": [], "notes": []}
    assert checked == facts | empty | {"steps": [times | {"probability": 1.0} | judged]}


READ: dict[str, Any] = {
    "name": "x",
    "endings": (".x",),
    "marks": ("x",),
    "read": lambda _: iter(()),
}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"name": ""}, "a name"),
        ({"name": "  "}, "a name"),
        ({"read": None, "remedy": "  "}, "a reader or a remedy"),
        ({"key": "  ", "write": lambda _: ""}, "a key and a writer"),
        ({"endings": ()}, "endings"),
        ({"endings": ("x",)}, "endings"),
        ({"marks": ()}, "a way to recognise it"),
        ({"read": None}, "a reader or a remedy"),
        ({"remedy": "Do this."}, "a reader or a remedy"),
        ({"key": "x"}, "a key and a writer"),
        ({"write": lambda _: ""}, "a key and a writer"),
    ],
)
def test_formats_are_not_declared_without_their_meaning(changes, expected):
    assert Format(**READ).ending == ".x"
    with pytest.raises(TypeError, match=expected):
        Format(**READ | changes)


def test_an_ending_means_one_format():
    endings = {writer.ending: key for key, writer in WRITERS.items()}
    assert endings[".json"] == "labelstudio"
    assert {ending.lower() for known in FORMATS for ending in known.endings} >= {
        ".sbv",
        ".textgrid",
    }


def test_names_of_steps_keep_the_order_of_the_file_and_steps_that_of_time(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("video,task,step,start,end\na,tea,pour,4,9\nb,tea,cut,0,1\na,tea,boil,0,4\n")
    found = read([path], Choices())
    assert found.actions == ("pour", "cut", "boil")
    assert [step.name for step in found.tracks[0].steps] == ["boil", "pour"]
    assert (found.tracks[0].seconds, found.tracks[0].recognised) == (9.0, False)


def test_a_file_whose_steps_all_lack_an_end_is_refused(tmp_path):
    (tmp_path / "x.txt").write_text("0:30 boil\n")
    with pytest.raises(DataError, match=r"holds no steps\. Left out"):
        read([tmp_path / "x.txt"], Choices(task="tea"))


def test_missing_files_of_steps_are_told_by_every_ending(tmp_path):
    assert holds_steps(tmp_path / "x.SBV")
    assert holds_steps(tmp_path / "x.TextGrid")
    assert not holds_steps(tmp_path / "x.npy")
    (tmp_path / "empty.csv").touch()
    assert holds_steps(tmp_path / "empty.csv")  # whose reader says that it is empty
    (tmp_path / "film").write_bytes(b"\x00\x01")
    assert not holds_steps(tmp_path / "film")


def test_tables_of_pandas_and_back():
    pandas = pytest.importorskip("pandas")
    (known,) = bound([track()], TAXONOMY)
    late = TimedStep(name="juggle", start=9, end=12, probability=0.5, errors=("order", "time"))
    facts = {"split": "train", "group": "Ann", "file": "v.mp4", "task_probability": 0.75}
    full = known.model_copy(update={"steps": (*known.steps, late), "recognised": True, **facts})
    for one in (track(), known, full):
        frame = one.to_frame()
        assert list(frame["step"]) == [step.name for step in one.steps]
        assert Track.from_frame(frame) == Track.from_frame(frame[::-1]) == one
    both = pandas.concat([full.to_frame(), track().model_copy(update={"video": "w"}).to_frame()])
    assert [Track.from_frame(part).video for _, part in both.groupby("video")] == ["v", "w"]
    small = pandas.DataFrame({"video": ["v"], "step": ["boil"], "start": [0], "end": [4.5]})
    assert Track.from_frame(small) == Track(
        video="v",
        task="",
        seconds=4.5,
        steps=(TimedStep(name="boil", start=0, end=4.5),),
        recognised=False,
    )
    for wrong, message in (
        (both, "holds several values of 'video'"),
        (small.drop(columns="end"), "has no column 'end'"),
        (small[:0], "holds no video"),
        (small.assign(start="soon"), "start"),
        (small.assign(step=None), "its name is ''"),
        (small.assign(start=5), "line 1: is no step .the times are not in order"),
        (small.assign(start=-1), "0 ≤ start ≤ end"),
        (small.assign(probability=2), "its probability 2"),
        (small.assign(action="x"), "action: expected"),
        (small.assign(split="odd"), "split is 'odd'; expected one of train"),
        (full.to_frame().assign(task=["a", "b", "b"]), "holds several values of 'task'"),
    ):
        with pytest.raises(ConfigError, match=message):
            Track.from_frame(wrong)


def test_tables_need_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match="pip install pandas"):
        track().to_frame()
