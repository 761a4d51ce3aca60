"""Rows of sensor values with time stamps: several rates, gaps, missing values, and refusals."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cefito.cli import main
from cefito.data import open_dataset
from cefito.data.readers.custom import prepare
from cefito.data.sensors import SensorRecipe, read_tables, unscaled
from cefito.errors import ConfigError, DataError
from cefito.parts.folder import DatasetReference
from refusals import refusal

STEPS = """video,task,step,start,end,group,split
a,tea,boil,1,4,anna,train
a,tea,pour,5,9,anna,train
b,tea,boil,0,3,ben,train
b,tea,pour,4,8,ben,test
"""


def table(path: Path, rows: Iterable[Sequence[Any]], heads: str = "time,x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join((heads, *(",".join(map(str, row)) for row in rows))) + "\n")
    return path


@pytest.fixture
def kitchen(tmp_path):
    """A table of steps of two videos, and a folder with their sensors: x, ten times a second."""
    lines = STEPS.replace("b,tea,boil,0,3,ben,train", "b,tea,boil,0,3,ben,test")
    (tmp_path / "steps.csv").write_text(lines)
    rng = np.random.default_rng(0)
    for name in "ab":
        rows = [(f"{time:.1f}", f"{rng.normal():.4f}") for time in np.arange(0, 10, 0.1)]
        table(tmp_path / "sensors" / f"{name}.csv", rows)
    return tmp_path


def test_numbers_of_a_row_are_mean_spread_and_slope_of_its_values(tmp_path):
    path = table(tmp_path / "v.csv", [(0, 1), (0.25, 2), (0.5, 3), (0.75, 4), (1.5, 7), (3, 9)])
    numbers = unscaled(read_tables(path))
    assert numbers.shape == (4, 1, 4)
    np.testing.assert_allclose(numbers[0, 0], [2.5, 1.25**0.5, 4.0, 0])
    np.testing.assert_allclose(numbers[1, 0], [7, 0, 0, 0])
    np.testing.assert_allclose(numbers[2, 0], [7, 0, 0, 1])  # the last value
    np.testing.assert_allclose(numbers[3, 0], [9, 0, 0, 0])
    twice = unscaled(read_tables(path), rate=2.0)
    np.testing.assert_allclose(twice[:, 0, 0], [1.5, 3.5, 4, 7, 7, 7, 9])
    np.testing.assert_array_equal(twice[:, 0, 3], [0, 0, 1, 0, 1, 1, 0])


def test_large_offsets_cost_no_digits(tmp_path):
    times = np.arange(0, 3, 0.1)
    path = table(tmp_path / "v.csv", [(f"{t:.1f}", 1e7 + round(2 * t, 1)) for t in times])
    np.testing.assert_allclose(unscaled(read_tables(path))[:, 0, 2], 2, rtol=1e-6)


def test_tables_of_several_rates_and_cells_without_a_value(tmp_path):
    lost = "", "nan", "NA", "null"
    fast = [(f"{time:.2f}", time, lost[int(time)]) for time in np.arange(0, 4, 0.25)]
    table(tmp_path / "v" / "watch.csv", fast, "Time (s),X,lost")
    table(tmp_path / "v" / "bench.csv", [(1.0, 5), (3.0, 6)])
    numbers = unscaled(read_tables(tmp_path / "v"))
    names = [name for part in read_tables(tmp_path / "v") for name in part.channels]
    assert names == ["bench.x", "watch.x", "watch.lost"]
    np.testing.assert_allclose(numbers[:, 0, 0], [np.nan, 5, 5, 6])
    np.testing.assert_allclose(numbers[:, 1, 0], np.arange(4) + 0.375)
    assert np.isnan(numbers[:, 2, :3]).all()
    recipe = SensorRecipe.fit(names, 1.0, [numbers])
    assert recipe.lacking == (0, 2)  # a fourth number for what is often missing
    rows = recipe.rows(tmp_path / "v")
    assert rows.shape == (4, 3 * 3 + 2)
    np.testing.assert_array_equal(rows[:, -2:], [[1, 1], [0, 1], [1, 1], [0, 1]])
    assert rows[0, 0] == 0  # the median, before the first value
    np.testing.assert_array_equal(rows[:, 6:9], 0)
    missing = np.zeros((200, 2, 4))
    missing[:10, 0, 3] = missing[:11, 1, 3] = 1
    assert SensorRecipe.fit(["x", "y"], 1.0, [missing]).lacking == (1,)  # more than 5 %


def test_rows_do_not_depend_on_later_values(tmp_path):
    rng = np.random.default_rng(1)
    lines = [(f"{time:.2f}", round(rng.normal(), 3)) for time in np.sort(rng.uniform(0, 20, 60))]
    recipe = SensorRecipe.fit(["x"], 1.0, [unscaled(read_tables(table(tmp_path / "v.csv", lines)))])
    whole = recipe.rows(tmp_path / "v.csv")
    upto = [line for line in lines if float(line[0]) < 9]
    first = recipe.rows(table(tmp_path / "w.csv", upto))
    np.testing.assert_array_equal(first, whole[: len(first)])


@pytest.mark.parametrize("form", ["iso", "zone", "unix", "milliseconds"])
def test_times_of_a_clock_count_from_the_first_one(tmp_path, form):
    begin, seconds = datetime(2026, 5, 2, 10, 15, tzinfo=UTC), [0, 0.5, 1.25, 2.5]
    moments = [begin + timedelta(seconds=each) for each in seconds]
    forms: dict[str, list[Any]] = {
        "iso": [moment.replace(tzinfo=None).isoformat() for moment in moments],
        "zone": [moment.isoformat() for moment in moments],
        "unix": [moment.timestamp() for moment in moments],
        "milliseconds": [f"{1000 * moment.timestamp():.0f}" for moment in moments],
    }
    heads = dict(zip(forms, ("timestamp", "datetime", "t", "time_ms"), strict=True))[form]
    rows = list(zip(forms[form], range(4), strict=True))
    table(tmp_path / "v" / "a.csv", rows, f"{heads},x")
    table(tmp_path / "v" / "b.csv", rows[2:], f"{heads},x")
    for read, times in zip(read_tables(tmp_path / "v"), (seconds, seconds[2:]), strict=True):
        np.testing.assert_allclose(read.times, times, atol=1e-5)


def test_semicolons_and_commas(tmp_path):
    path = tmp_path / "v.csv"
    path.write_text("seconds;x\n0,5;1,5\n1,5;-2\n")
    (read,) = read_tables(path)
    assert (read.times.tolist(), read.values.tolist()) == ([0.5, 1.5], [[1.5], [-2]])


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("time,x\n1,1\n0.5,2\n", "line 3: its time stamp is before"),
        ("time,x\n1,1\nlater,2\n", "line 3: column 'time' holds 'later'"),
        ("time,x\n1,1\n,2\n", "line 3: has no time stamp"),
        ("time,x\n1,1\n2,high\n", "line 3: column 'x' holds 'high'"),
        ("time,x\n1,1\n2\n", "line 3: has 1 cell, not 2"),
        ("x,y\n1,1\n", "no column of times, only x, y"),
        ("time\n1\n", "has no channel"),
        ("time,x\n", "no line of values"),
        ("time,x\n1777716900000,1\n", "seem to be milliseconds"),
    ],
)
def test_tables_that_are_refused(tmp_path, text, match):
    (tmp_path / "v.csv").write_text(text)
    refusal(DataError, read_tables, tmp_path / "v.csv", match=match)


def test_scaling_is_by_training_videos_and_kept(kitchen):
    data = prepare(kitchen / "steps.csv", kitchen / "data", sensors=kitchen / "sensors")
    recipe = DatasetReference.of(open_dataset(kitchen / "data")).recipe
    assert (recipe.channels, recipe.rate) == (("x",), 1.0)
    train = unscaled(read_tables(kitchen / "sensors" / "a.csv"))[:, 0, :3]
    np.testing.assert_allclose(recipe.medians, np.median(train, axis=0))
    np.testing.assert_allclose(recipe.scales, np.subtract(*np.percentile(train, [75, 25], axis=0)))
    for place, name in enumerate("ab"):
        rows = recipe.rows(kitchen / "sensors" / f"{name}.csv")
        np.testing.assert_array_equal(data.timeline.videos[place], rows.astype(np.float16))
    assert [video.group for video in data.videos] == ["anna", "ben"]
    assert data.observation_dim == 9
    steps = kitchen / "steps.csv"
    steps.write_text(steps.read_text().replace("test", "val"))
    data = prepare(steps, kitchen / "val", sensors=kitchen / "sensors")
    every = [unscaled(read_tables(kitchen / "sensors" / f"{name}.csv"))[:, 0, :3] for name in "ab"]
    np.testing.assert_allclose(DatasetReference.of(data).recipe.medians, np.median(every, (0, 1)))


def test_other_rates_channels_and_the_recipe_of_another_data_set(kitchen):
    for name in "ab":
        place = kitchen / "more" / f"{name}.csv"
        lines = (kitchen / "sensors" / f"{name}.csv").read_text().splitlines()
        rows = [[line, 0, number] for number, line in enumerate(lines[1:])]
        if name == "b":  # in another order
            rows = [[number, label, line] for line, label, number in rows]
        table(place, rows, "time,x,label,y" if name == "a" else "y,label,time,x")
    asked = {"sensors": kitchen / "more", "channels": ["x", "y"], "feature_rate": 5.0}
    data = prepare(kitchen / "steps.csv", kitchen / "five", **asked)
    assert data.timeline.rate == 5
    assert [rows.shape for rows in data.timeline.videos] == [(50, 6), (50, 6)]
    rows = DatasetReference.of(data).recipe.rows(kitchen / "more" / "b.csv")
    np.testing.assert_array_equal(data.timeline.videos[1], rows.astype(np.float16))
    two = STEPS.replace("test", "train").replace("train", "test", 2)  # other training videos
    (kitchen / "other.csv").write_text(two)
    like = {"sensors": kitchen / "more", "like": kitchen / "five"}
    other = prepare(kitchen / "other.csv", kitchen / "like", **like)
    np.testing.assert_array_equal(other.timeline.videos[0], data.timeline.videos[0])
    assert DatasetReference.of(other).recipe == DatasetReference.of(data).recipe


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda folder: (folder / "b.csv").unlink(), "no table of 'b'"),
        (lambda folder: table(folder / "b.csv", [(0, 1)], "time,y"), "differ in the channels x, y"),
        (
            lambda folder: table(folder / "b.csv", [(100, 1), (105, 2)]),
            "run from 100 to 105 s, the steps of 'b' from 0 to 8 s",
        ),
        (lambda folder: table(folder / "b.csv", [(0, 1), (9000, 2)]), "Give both in seconds"),
    ],
)
def test_videos_that_are_refused(kitchen, change, match):
    change(kitchen / "sensors")
    asked = {"sensors": kitchen / "sensors"}
    refusal(DataError, prepare, kitchen / "steps.csv", kitchen / "data", match=match, **asked)
    assert not (kitchen / "data").exists()


def test_choices_that_do_not_fit(kitchen, capsys):
    steps, folder = kitchen / "steps.csv", kitchen / "sensors"
    for asked in ({"channels": ["x"]}, {"like": folder}, {"sensors": folder, "features": folder}):
        with pytest.raises(ConfigError, match="sensors"):
            prepare(steps, kitchen / "data", **asked)
    command = ["data", "prepare", "custom", str(steps), str(kitchen / "data")]
    assert main([*command, "--channels", "x"]) == 2
    assert "(--channels)" in capsys.readouterr().err
    assert main([*command, "--sensors", str(folder), "--channels", "x,y"]) == 2
    assert "has no channel y" in capsys.readouterr().err
    assert main([*command, "--sensors", str(folder), "--videos", str(folder)]) == 2


def test_command_and_groups(kitchen, capsys):
    command = ["data", "prepare", "custom", str(kitchen / "steps.csv"), str(kitchen / "data")]
    assert main([*command, "--sensors", str(kitchen / "sensors"), "--feature-rate", "2"]) == 0
    assert open_dataset(kitchen / "data").timeline.rate == 2
    capsys.readouterr()
    assert main(["data", "info", str(kitchen / "data")]) == 0
    assert "groups            2, of 1 to 1 videos" in capsys.readouterr().out


def test_damaged_recipes(kitchen):
    data = prepare(kitchen / "steps.csv", kitchen / "data", sensors=kitchen / "sensors")
    reference = DatasetReference.of(data)
    for change in ({"medians": [0.0]}, {"lacking": [1]}, {"rate": 0}, {"scales": [0.0] * 3}):
        sensors = {**reference.observed["features"]["sensors"], **change}
        damaged = reference.model_copy(update={"observed": {"features": {"sensors": sensors}}})
        with pytest.raises(DataError, match="recipe of the rows of sensors: damaged"):
            _ = damaged.recipe
    other = reference.model_copy(update={"observed": {"features": None}})
    assert other.recipe is None


def test_tables_below_comments_are_known_by_their_channels(kitchen):
    data = prepare(kitchen / "steps.csv", kitchen / "data", sensors=kitchen / "sensors")
    recipe = DatasetReference.of(data).recipe
    assert recipe is not None
    (kitchen / "new.csv").write_text("# watch 3\nlabel,TIME,X\n1,0,2\n")
    assert recipe.reads(kitchen / "new.csv")
    assert recipe.rows(kitchen / "new.csv").shape == (1, 3)
    assert not recipe.reads(kitchen / "steps.csv")
    assert not recipe.reads(kitchen / "absent.csv")
