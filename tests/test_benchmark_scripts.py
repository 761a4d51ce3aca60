"""The benchmark scripts: each starts, and some run at toy size on a CPU, in this process."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cefito.data import open_dataset
from cefito.data.readers.custom import prepare_custom
from cefito.planners.queries import Queries
from cefito.tracks import TimedStep
from row_films import prepared_films

pytestmark = pytest.mark.nightly
FOLDER = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "common")
TINY = {"field.width": "16", "field.depth": "1", "field.heads": "2"}
TINY |= {"training.negatives.count": "4"}
QUICK = {"pkg.training.optimiser.epochs": 1, "pkg.network.hidden": [8, 8]}


@pytest.fixture
def script(monkeypatch):
    """Import a script by its name; some have names that packages of tests have too."""
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in SCRIPTS:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module
    for name in SCRIPTS:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", SCRIPTS)
def test_help(name, script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit) as ended:
        script(name).main()
    assert ended.value.code == 0
    assert f"usage: {name}.py" in capsys.readouterr().out


def test_parts_of_the_gpu_script(script, tmp_path, monkeypatch, capsys):
    """A search, a training and a comparison; started again, nothing is repeated."""
    module, started = script("gpu"), []

    def run(command, *, timeout=None, **_):
        name, arguments = Path(command[1]).stem, command[2:]
        started.append(name)
        if timeout is not None and timeout < 1:
            raise subprocess.TimeoutExpired(command, timeout)
        if name == "gpu":
            module.main(arguments)
        else:
            monkeypatch.setattr(sys, "argv", command[1:])
            importlib.reload(script(name)).main()
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(module.subprocess, "run", run)
    parts = ("search", "train-T3", "compare")
    asked = ["--out", str(tmp_path), "--toy", "--device", "cpu", "--planners", "nearest,frequent"]
    asked += ["--sample", "20", "--parts", *parts]
    module.main(["--limit", "0.5", *asked])
    out, err = capsys.readouterr()
    assert json.loads(out.splitlines()[-1])["missing"] == list(parts)
    assert "out of time; the same command goes on" in err
    module.main(["--limit", "100", *asked])
    value = json.loads((tmp_path / "gpu.json").read_text())
    assert value["missing"] == []
    assert value["parts"].keys() == value["seconds"].keys() == set(parts)
    (row,) = value["parts"]["search"]["random"]
    assert row["exact"]["same_plans"]
    assert row["guided"]["argmin"]
    training = value["parts"]["train-T3"]
    assert training["training"]["energy field"]["epochs"] == 1
    assert 0 <= training["metrics"]["success_rate"] <= 100
    assert not value["parts"]["compare"]["problems"]
    started.clear()
    module.main(["--limit", "100", *asked])
    assert started == []


def test_a_draw_numbers_steps_and_missing_ones_anew(script, world, tmp_path):
    """Missing steps of recipes that were not drawn are left out, since they have no name there."""
    draws, names = script("draws"), [action.name for action in world.taxonomy.actions]
    tasks, place = [1, 2], next(i for i, one in enumerate(world.videos) if one.task == 2)
    own = world.taxonomy.tasks[2].actions
    other = next(a for a in range(len(names)) if not {a} & {*own, *world.taxonomy.tasks[1].actions})
    videos = list(world.videos)
    videos[place] = replace(videos[place], missing=(own[-1], other, own[0]))
    annotations = replace(world.annotations, videos=tuple(videos))
    folder = tmp_path / "draw"
    draws.cut_down(replace(world, annotations=annotations), tasks, [place], folder, "draw")
    (video,), new = open_dataset(folder).videos, open_dataset(folder).taxonomy
    assert [new.actions[a].name for a in video.missing] == [names[own[-1]], names[own[0]]]
    assert video.task == 1
    drawn = [new.actions[step.action].name for step in video.steps]
    assert drawn == [names[step.action] for step in videos[place].steps]


def test_data_sets_of_the_page(script, shared_data, tmp_path):
    page = " ".join((FOLDER.parent / "docs" / "measured.md").read_text("utf-8").split())
    names = "captaincook4d", "ikea_asm"
    cook, asm = (prepare_custom(shared_data / name, tmp_path / name) for name in names)
    chosen = script("draws").draw(cook, 0, recipes=8, train=66, val=15, share=0.5)
    draw = script("draws").cut_down(cook, *chosen, tmp_path / "draw", "captaincook4d-draw0-50")
    for made, form in (
        (cook, "{} recordings (train {}, val {}, test {}) of {} recipes, {:,} steps of {} actions"),
        (asm, "{0} videos of {4} tasks, {5:,} steps of {6} actions (train {1}, val {2}, test {3}"),
        (draw, "a draw of CaptainCook4D with {1} training videos"),
    ):
        splits = [video.split for video in made.videos]
        counts = [len(splits), *map(splits.count, ("train", "val", "test"))]
        counts += [len(made.taxonomy.tasks), len(made.start), len(made.taxonomy.actions)]
        assert form.format(*counts) in page
        assert f"`{made.fingerprint[:12]}…`" in page


def test_drawn_films_are_as_long_as_the_page_says(script):
    """Fifty seconds, and five a step, in docs/verify.md."""
    module, generator = script("workshop"), np.random.default_rng(0)
    films = [
        module.timed(module.right(scene, generator), generator)
        for scene in module._WORLDS["shapes"].values()
        for _ in range(50)
    ]
    assert np.mean([film[-1][2] for film in films]) == pytest.approx(50, abs=5)
    steps = [end - start for film in films for _, start, end in film]
    assert np.median(steps) == pytest.approx(5, abs=0.5)


def test_success_of_plans_by_films_labelled(script, tmp_path):
    prepared_films(tmp_path)
    out, small = tmp_path / "next.json", ["members=1", "folds=2", "temporal_layers=0", "changes=0"]
    asked = ["--films", "5", "10", "--draws", "0", "--orders", "random", "--plans", "quickstart"]
    asked += [word for entry in small for word in ("--set", entry)]
    script("next_films").main(["--data", str(tmp_path), "--out", str(out), *asked])
    scores = json.loads(out.read_text())["scores"]["random"]
    assert all(0 <= scores[films]["success"] <= 100 for films in ("5", "10"))


def test_live_sessions(script, world, run_of_lengths, tmp_path, monkeypatch, capsys):
    module, out = script("live"), tmp_path / "live.json"
    walks, few = module.walks, {"val": 5}
    monkeypatch.setattr(module, "walks", lambda *given: walks(*given)[: few.get(given[1])])
    argv = ["live.py", world.folder, run_of_lengths.folder, "--split", "val", "--out", out]
    monkeypatch.setattr(sys, "argv", [str(part) for part in argv])
    module.main()
    value = json.loads(out.read_text())
    found = module.walks(world, "val")
    assert (value["videos"], value["steps"]) == (5, sum(len(walk.actions) for walk in found))
    rows = value["rows"]
    assert f"n-grams: {rows['n-grams']['next_step_accuracy']} %" in capsys.readouterr().out
    sizes = np.array(value["videos_at_position"])
    for row in rows.values():
        mean = (np.array(row["by_position"]) * sizes).sum() / sizes.sum()
        assert row["next_step_accuracy"] == pytest.approx(mean, abs=0.01)
        assert row["interval"][0] <= row["next_step_accuracy"] <= row["interval"][1]
    for row in value["milliseconds_of_an_update"].values():
        assert 0 < row["processor_50"] <= row["processor_95"]
    # the first observation alone: nothing was done before
    query = Queries(
        initial=np.stack([walk.seen[0] for walk in found]),
        goal=np.stack([walk.goal for walk in found]),
        seen=np.tile([True, False], (5, 1)),
        done=np.zeros((5, 0), np.int64),
    )
    steps = run_of_lengths.planner.marginals(query).steps[:, 0]
    hits = steps.argmax(axis=1) == [walk.actions[0] for walk in found]
    assert rows["session, observations"]["by_position"][0] == pytest.approx(
        100 * hits.mean(), abs=1
    )


@pytest.mark.parametrize("preset", ["paper", "released"])
@pytest.mark.parametrize("case", ["reference", "bfloat16"])
def test_a_training_step(script, preset, case):
    measured = script("training").measure(preset, case, 1, 1, "cpu", 2, TINY)
    assert measured["seconds"] > 0
    assert measured["tokens"] > 2 * 7


def test_differences_over_several_data_sets(script):
    module = script("everything")

    def scores(rows, video):
        return module.Scores(np.array(rows, dtype=float), np.array(video), {})

    ours = [scores([[1, 1, 0, 1]], [0, 0, 1, 1]), scores([[1, 0]], [0, 1])]
    theirs = [scores([[0, 1, 0, 0]], [0, 0, 1, 1]), scores([[0, 0]], [0, 1])]
    pooled = module.difference(ours, theirs)
    assert pooled["mean"] == pytest.approx(50)  # 4 of 6 windows less 1
    assert pooled["low"] <= 50 <= pooled["high"]
    # videos of different data sets are different videos
    one = module.difference(ours[1:], theirs[1:])
    assert (one["mean"], one["low"], one["high"]) == (50, 0, 100)


def test_everything_on_two_data_sets(script, world, tmp_path, monkeypatch, capsys):
    module, other = script("everything"), tmp_path / "other"
    shutil.copytree(world.folder, other)
    out = tmp_path / "everything.json"
    argv = ["everything.py", world.folder, other, "--work", tmp_path / "work", "--out", out]
    argv += ["--planners", "nearest,frequent", "--against", "frequent", "--horizons", "3"]
    monkeypatch.setattr(sys, "argv", [str(part) for part in [*argv, "--seeds", 1]])
    module.main()
    value = json.loads(out.read_text())
    differences = value["success rate less that of frequent"]["nearest, T = 3"]
    assert differences["pooled"]["mean"] == pytest.approx(differences["mean"])
    assert "| other, T = 3 |" in capsys.readouterr().out


def test_growing_work(script, tmp_path):
    module = script("scale")
    assert module.chain_plans(3, 2, 8, False)["actions"] == 30
    assert module.chain_plans(10, 3, 8, True)["actions"] == 20
    assert module.training_steps(2, 2, 2, False)["steps"] == 2
    assert module.epoch(300)["cpu_seconds"] > 0
    run = module.made_run(tmp_path, 16)
    rows = module.list_queries(tmp_path / "queries.parquet", 70, 16)
    assert module.plan_list(run, rows, 70, "serial", 1)["mib_written"] > 0


def test_seconds_of_a_person_who_labels(script):
    module = script("labelling")
    annotated = [step("boil", 0, 10), step("pour", 10, 20), step("stir", 30, 40)]
    proposed = [step("boil", 0, 14), step("wait", 11, 19), step("pour", 50, 60)]
    film = {**module.changed(proposed, annotated), "seconds": 60.0}
    kinds = "proposed", "borders", "renamed", "inserted", "deleted"
    assert [film[kind] for kind in kinds] == [3, 1, 1, 1, 1]
    assert (film["moved"], film["added"], film["removed"]) == (1, 2, 2)
    person = module.Person(speed=2, key=0.2, point=1, think=1, look=2, home=0.4)
    assert (person.choose, person.border) == (2.2, pytest.approx(5.2))
    insert = 2.2 + 2 * 5.2
    assert person.from_nothing(film) == pytest.approx(30 + 3 * insert)
    changes = insert + 2 * 2.2 + 5.2 + (2.2 + 0.4 + 0.2)
    assert person.seconds(film) == pytest.approx(30 + 3 + changes)
    row = module.summary([[film], [film]])
    assert (row["draws"], row["from_nothing"], row["edits"]["mean"]) == (2, 9, 9)
    usual, fast, slow = (module.PEOPLE[name] for name in ("usual", "fast", "slow"))
    assert (fast.speed, usual.speed, slow.speed) == (2, 1.5, 1)
    for kind in ("think", "look"):  # half and twice the time
        times = [getattr(person, kind) for person in (fast, slow)]
        assert times == [share * getattr(usual, kind) for share in (0.5, 2)]
    assert row["person"]["usual"]["seconds"]["mean"] == round(usual.seconds(film), 1)


def step(name, start, end):
    return TimedStep(name=name, start=start, end=end)
