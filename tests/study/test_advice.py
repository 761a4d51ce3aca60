import math

import numpy as np
import pytest

from cefito.data.readers.custom import prepare_custom
from cefito.data.windows import cut_windows
from cefito.errors import DataError
from cefito.evaluation import evaluate_planner
from cefito.evaluation.score import video_intervals
from cefito.planners.simple.nearest import NearestPlanner
from cefito.study.advice import FEW, advise

# (split, task, actions): tea is always the same, toast always another order; action 5 in one video
PLANNED = [
    *[("train", 0, [0, 1, 2])] * 6,
    ("train", 1, [2, 3, 4, 2]),
    ("train", 1, [4, 3, 2]),
    ("train", 1, [3, 5, 4]),
    ("val", 0, [0, 1, 2]),
    ("val", 1, [4, 2, 3]),
    ("val", 1, [2, 4, 3]),
    ("test", 2, [6, 7, 6]),
]


@pytest.fixture
def prepare(make_source, tmp_path):
    """Prepare videos of the form above; a step is observed as its action's unit vector."""

    def made(planned, name="planned"):
        lines = [
            {
                "video_id": f"v{number}",
                "split": split,
                "task_id": task,
                "steps": [[2.0 * at, 2.0 * at + 1, action] for at, action in enumerate(actions)],
            }
            for number, (split, task, actions) in enumerate(planned)
        ]
        rows = np.eye(8, dtype=np.float32)[[one for *_, actions in planned for one in actions]]
        source = make_source(f"{name}-source", videos=lines, features={"start": rows, "end": rows})
        return prepare_custom(source, tmp_path / name)

    return made


def test_figures_by_hand(prepare):
    found = advise(prepare(PLANNED))
    tea, toast, tyre = found["tasks"]
    assert (tea["train_videos"], tea["train_windows"], tea["repeated"]) == (6, 6, 100)
    assert (toast["train_videos"], toast["val_videos"], toast["train_windows"]) == (3, 2, 4)
    assert toast["repeated"] == 0
    assert (tyre["train_videos"], tyre["val_windows"], tyre["repeated"]) == (0, 0, None)
    by_steps = {one["steps"]: one for one in found["steps"]}
    assert by_steps[1]["seen"] == pytest.approx(100)
    # of 0 1, 1 2, 4 2, 2 3, 2 4 and 4 3, training shows all but 2 4
    assert by_steps[2]["seen"] == pytest.approx(100 * 5 / 6)
    assert (by_steps[3]["val_windows"], by_steps[3]["val_videos"]) == (3, 3)
    assert by_steps[3]["seen"] == pytest.approx(100 / 3)
    assert by_steps[4]["seen"] is None
    assert [one["videos"] for one in found["curve"]] == [3, 5, 9]
    assert found["curve"][-1]["nearest"]["value"] == pytest.approx(100 / 3)
    assert found["curve"][-1]["frequent"]["value"] == pytest.approx(100 / 3)
    assert found["outcomes"] == pytest.approx(
        {"right": 100 / 3, "seen": 0, "new": 200 / 3, "rare": 0}
    )
    assert found["rare_actions"] == ["spread"]
    assert found["actions"] == 6


def test_sentences_follow_from_the_figures(prepare):
    said = advise(prepare(PLANNED))["sentences"]
    assert said[0] == "2 of 3 tasks have fewer than 5 training videos: toast (3), tyre (0)."
    assert said[1] == "Tasks without validation windows, which no score covers: tyre."
    assert "The nearest window is right for 33.3 % of the validation windows" in said[2]
    assert said[2].endswith("These validation videos cannot tell whether more videos help.")
    assert said[4] == "Training shows at least half of the validation plans of 1-2 steps."
    assert "less than half of the validation plans of 3 steps" in said[5]
    assert said[6] == f"No number of steps has {FEW} validation videos: scores will say little."
    assert "66.7 % of the validation windows: new sequences of known actions" in said[-1]
    assert said[-1].endswith("share fewest sequences: toast (0 %), tea (100 %).")


@pytest.mark.parametrize(
    ("val", "outcome", "sentence"),
    [
        ([3, 5, 2], "rare", "1 of 6 actions are in one video only (such as spread)."),
        ([0, 1, 2], "right", "The nearest window fails nowhere"),
    ],
)
def test_the_largest_group_of_failures(prepare, val, outcome, sentence):
    planned = [one for one in PLANNED if one[0] != "val"]
    found = advise(prepare([*planned, ("val", 0 if val[0] == 0 else 1, val)]))
    assert found["outcomes"][outcome] == pytest.approx(100)
    assert sentence in found["sentences"][-1]
    assert found["gain"]["low"] is None  # one validation video cannot be resampled


def test_all_videos_are_scored_as_any_planner_is(world):
    found = advise(world)
    train, val = (cut_windows(world, horizon=3, split=name) for name in ("train", "val"))
    evaluation, plans = evaluate_planner(NearestPlanner.fit(train, val).planner, val)
    ends = video_intervals(plans, val)
    last, half = found["curve"][-1]["nearest"], found["curve"][1]["nearest"]
    assert last["value"] == pytest.approx(evaluation.metrics["success_rate"])
    assert last["low"] == pytest.approx(ends.low["success_rate"])
    assert last["high"] == pytest.approx(ends.high["success_rate"])
    assert found["gain"]["value"] == pytest.approx(last["value"] - half["value"])
    assert sum(found["outcomes"].values()) == pytest.approx(100)
    assert found["outcomes"]["right"] == pytest.approx(last["value"])
    seen = next(one["seen"] for one in found["steps"] if one["steps"] == 3)
    assert found["outcomes"]["right"] + found["outcomes"]["seen"] == pytest.approx(seen)
    shares = [
        sum(math.ceil(share * one["train_videos"] / 100) for one in found["tasks"])
        for share in (25, 50, 100)
    ]
    assert [one["videos"] for one in found["curve"]] == shares


def test_the_test_split_is_not_read(prepare):
    other = [one for one in PLANNED if one[0] != "test"]
    changed = prepare([*other, *[("test", 1, [5, 5, 5, 5])] * 7], "changed")
    assert advise(changed) == advise(prepare(PLANNED)) | {"dataset": changed.name}


def test_too_little_to_measure(prepare):
    with pytest.raises(DataError, match="gives no windows of horizon 3"):
        advise(prepare([("train", 0, [0, 1, 2])]))
    with pytest.raises(DataError, match="Choose a shorter horizon"):
        advise(prepare(PLANNED, "short"), horizon=9)
