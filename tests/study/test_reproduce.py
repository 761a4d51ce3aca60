import re
import struct
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from authors_repository import FEATURES
from cefito.data.readers.custom import prepare_custom
from cefito.errors import ConfigError, RunError
from cefito.evaluation.records import WindowPlans
from cefito.inference.answer import PlannedSequence
from cefito.study import reproduce
from cefito.study.figures import Curve, draw_curves, draw_plans
from cefito.study.reproduce import EXPERIMENTS, experiment_study, find_experiment
from cefito.study.results import gather
from cefito.study.running import run_study
from cefito.study.study import Study
from cefito.study.tables import published_rows
from cefito.study.trials import ROWS, FailedTrial, find_rows
from tiny_runs import TINY_RUN

SETTINGS = TINY_RUN | {"chain.width": 8, "search.fitting_windows": 10}


def study(world, out, **changes):
    given = {"rows": (), "seeds": (0, 1), "preset": "paper", "settings": SETTINGS, "device": "cpu"}
    return Study(dataset=world, out=out, **{**given, **changes})


def size(path):
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", content[16:24])


def named(study, name):
    """A study of a data set of another name."""
    dataset = study.dataset
    taxonomy = replace(dataset.taxonomy, dataset=name)
    annotations = replace(dataset.annotations, taxonomy=taxonomy)
    return replace(study, dataset=replace(dataset, annotations=annotations))


# Experiments


@pytest.mark.parametrize("preset", ["paper", "small"])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_settings_of_every_experiment_load(name, preset, tiny_dataset, tmp_path):
    ours = experiment_study(name, study(tiny_dataset, tmp_path, preset=preset, settings={}))
    assert ours.horizons == EXPERIMENTS[name].horizons
    names = {row.name for row in ours.rows}
    assert len(names) == len({row.title for row in ours.rows}) == len(ours.rows) > 0
    for dataset in ("crosstask", "coin (simulated)", "niv", "tiny"):
        for trial in named(ours, dataset).trials:
            assert trial.config.preset == preset
            for key, expected in trial.row.settings.items():
                value = trial.config.settings
                for part in key.split("."):
                    value = getattr(value, part)
                assert value == expected
    assert EXPERIMENTS[name].against in {"", *names}


def test_experiments_say_which_published_table_they_are_of():
    for name, entry in EXPERIMENTS.items():
        assert find_experiment(name) is entry
        if entry.published:
            assert published_rows(entry.dataset or "crosstask", entry.horizons[0], entry.published)
    drawn = [name for name, entry in EXPERIMENTS.items() if entry.draw]
    assert drawn == ["negatives", "runtime", "qualitative"]


def test_rows_of_experiments(tiny_dataset, make_source, tmp_path):
    def rows(name, dataset=tiny_dataset):
        return {row.name: row for row in EXPERIMENTS[name].rows(dataset)}

    assert set(rows("text-encoder")) == {"actions-learned", "actions-observed", "actions-text"}
    plain = prepare_custom(make_source("plain-source"), tmp_path / "plain")
    assert set(rows("text-encoder", plain)) == {"actions-learned", "actions-observed"}
    assert rows("negatives")["N-50"].settings["training.negatives.hard"] == 0.8
    assert [row.true_task for row in rows("oracle").values()] == [False, True, False, True]
    assert [name for name, row in rows("niv").items() if row.true_task] == ["cefito-true-task"]
    assert not any(row.true_task for row in rows("coin").values())


@pytest.mark.parametrize("name", ["ablation", "text-encoder", "negatives"])
def test_rows_of_an_analysis_plan_by_the_classifier(name, tiny_dataset, tmp_path):
    """Not by the chain, which has one epoch there."""
    settings = {"classifier_training.optimiser.epochs": 2}
    given = study(tiny_dataset, tmp_path, preset="small", settings=settings)
    assert experiment_study(name, given).unreached == {}


def test_unknown_tables():
    with pytest.raises(ConfigError, match=r"table 'table-9'; .* crosstask, coin, .*qual"):
        find_experiment("table-9")


# Figures of experiments


def cheap(name, monkeypatch, world, out, rows, **changes):
    """The study of an experiment with other rows."""
    monkeypatch.setitem(EXPERIMENTS, name, replace(EXPERIMENTS[name], rows=lambda _: rows))
    return experiment_study(name, study(world, out, **changes), horizons=changes.get("horizons"))


@pytest.fixture
def drawn(monkeypatch):
    """What the curves and plans of figures are, while they are drawn."""
    calls = []

    def noting(draw):
        return lambda *given, **more: (calls.append((*given, more)), draw(*given, **more))[1]

    for name in ("draw_curves", "draw_plans"):
        monkeypatch.setattr(reproduce, name, noting(getattr(reproduce, name)))
    return calls


def figures(name: str, *given: Any) -> list[Path]:
    """The figures of an experiment."""
    draw = EXPERIMENTS[name].draw
    assert draw is not None
    return draw(*given)


def test_negatives(world, tmp_path, monkeypatch, drawn):
    rows = tuple(
        ROWS["nearest"].model_copy(update={"name": name, "title": name})
        for name in ("N-10", "N-50", "N-250", "r-0.0", "r-1.0")
    )
    ours = cheap("negatives", monkeypatch, world, tmp_path, rows)
    assert run_study(ours) == []
    results = gather(ours)
    for number, cell in enumerate(results.trials):
        cell.metrics["success_rate"] = float(number)
    written = figures("negatives", ours, results, ours.out)
    assert written == [tmp_path / "negatives.png", tmp_path / "negatives.pdf"]
    assert written[1].read_bytes().startswith(b"%PDF")
    width, height = size(tmp_path / "negatives.png")
    assert width > height > 400
    ((panels, *_, more),) = drawn
    assert [curve.points for curves in panels.values() for curve in curves] == [
        [(10, [0, 5]), (50, [1, 6]), (250, [2, 7])],
        [(0, [3, 8]), (0.8, [1, 6]), (1, [4, 9])],
    ]
    assert more["title"] == world.name
    failed = [
        FailedTrial(row=cell.row, horizon=cell.horizon, seed=cell.seed, error="killed")
        for cell in results.trials
    ]
    results = results.model_copy(update={"selection": "published", "trials": failed})
    figures("negatives", ours, results, ours.out)  # without a single score
    assert list(drawn[1][0].values()) == [[], []]
    assert drawn[1][-1]["title"] == f"{world.name}, chosen on TEST"


@pytest.mark.nightly
def test_runtime(world, tmp_path, monkeypatch, drawn):
    rows = (ROWS["cefito"], ROWS["nearest"])
    ours = cheap("runtime", monkeypatch, world, tmp_path, rows, horizons=(2, 3), seeds=(0,))
    assert run_study(ours) == []
    results = gather(ours)
    written = figures("runtime", ours, results, ours.out)
    assert written == [tmp_path / "runtime.png", tmp_path / "runtime.pdf"]
    size(tmp_path / "runtime.png")
    panels, *_ = drawn[0]
    seconds, tokens = panels.values()
    assert [curve.label for curve in seconds] == ["CEFITO, exact search", "nearest window"]
    assert [place for place, _ in seconds[0].points] == [2, 3]
    assert seconds[1].points[1] == (3, [results.trials[3].seconds_per_query])
    assert [curve.label for curve in tokens] == ["CEFITO, exact search"]  # the other has no network
    assert tokens[0].points[0] == (2, [results.trials[0].token_forwards_per_query])


@pytest.mark.nightly
def test_qualitative(world, tmp_path, drawn):
    longer: dict[str, Any] = {
        "classifier_training.optimiser.epochs": 10,
        "chain_training.optimiser.epochs": 40,
    }
    longer |= {"chain_training.optimiser.learning_rate": 0.01, "search.objective": "fitted"}
    settings = SETTINGS | longer  # some success is needed
    base = study(world, tmp_path, seeds=(0,), settings=settings)
    ours = experiment_study("qualitative", base, horizons=(2,))
    with pytest.raises(RunError, match=r"run\.json: no such file"):
        figures("qualitative", ours, gather(ours), ours.out)
    assert run_study(ours) == []
    written = figures("qualitative", ours, gather(ours), ours.out)
    ends = ("successes", "failures")
    endings = [f"{end}.{kind}" for end in ends for kind in ("png", "pdf")]
    assert [path.name for path in written] == [f"qualitative-T2-{end}" for end in endings]
    for path in written[::2]:
        size(path)
    names = {task.name for task in world.taxonomy.tasks}
    for (panels, _, more), right in zip(drawn, (True, False), strict=True):
        assert 1 <= len(panels) <= 4
        assert more["title"] == f"{world.name}, T = 2: {'successes' if right else 'failures'}"
        titles = [window.true_task_name for window in panels]
        assert set(titles) <= names
        assert all(window.success is right for window in panels)
    assert len(set(titles)) == 4  # of as many tasks as there are


# Drawing


def test_curves_of_one_and_of_several_seeds(tmp_path):
    curves = [
        Curve("costs $5 or $6_", [(3, [1.0]), (4, [20.0])]),
        Curve("b", [(3, [0.5, 1.5, 1.0]), (5, [1e-3, 3.0])]),
    ]
    axes: dict[str, Any] = {"labels": ("T", "T"), "values": ("s", "s"), "log_places": (True, False)}
    panels, path = {"a": curves, "b": []}, tmp_path / "curves.png"
    draw_curves(panels, path, **axes, log_values=True, title="$x_")
    draw_curves({"a": curves}, tmp_path / "one.svg", labels=("T",), values=("s",))
    assert size(tmp_path / "curves.png")[0] > 1000
    assert b"<svg" in (tmp_path / "one.svg").read_bytes()


def test_plans_of_names_that_are_hard_to_print(tmp_path):
    names = ["pay $5 and $6_", "x" * 200]
    plan = {"actions": [0, 1], "names": names, "energy": 1.0, "score": -0.5}
    plan |= {"probability": None, "task": None, "task_id": None}
    first = WindowPlans(
        **{"video": "a", "from_step": 1, "start": 0.0, "end": 1.0, "rank": None},
        **{"true_task": 0, "true_task_name": "Save $5_ or $6", "success": False, "exact": True},
        **{"predicted_task": None, "predicted_task_name": None},
        **{"true_actions": [0, 2], "true_names": names, "plans": [PlannedSequence(**plan)]},
    )
    second = first.model_copy(update={"plans": []})
    draw_plans([first, second], tmp_path / "two.png", title="$x_")
    draw_plans([second], tmp_path / "one.png", title="")
    assert size(tmp_path / "two.png")[1] > size(tmp_path / "one.png")[1]


def test_the_page_lists_the_rows_and_the_tables_that_there_are(world):
    page = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text(encoding="utf-8")
    assert all(f"`dataset/{name}/{place}`" in page for name, place in FEATURES.items())
    (others,) = re.findall(r"cefito reproduce ablation .*# or (.*)", page)
    named = {"ablation", *others.split(", ")}
    assert named | {"crosstask", "coin", "niv"} == EXPERIMENTS.keys()
    assert {name for name in named if EXPERIMENTS[name].draw} == {
        "negatives",
        "runtime",
        "qualitative",
    }
    (ordered,) = re.findall(r"Rows of\s(.*) stand in the paper's order", page)
    kept = [f"`{name}`" for name, entry in EXPERIMENTS.items() if entry.ordered]
    assert ordered == "{}, {} and {}".format(*kept)
    rows = ["cefito", "cefito-guided", "viterbi", "pdpp", "pkg-beam", "nearest", "frequent"]
    assert [row.name for row in EXPERIMENTS["coin"].rows(world)] == rows
    (added,) = re.findall(r"`--planners ([\w,]+)`\s+trains", page)
    assert [row.name for row in find_rows(added.split(","))] == added.split(",")
    targets = re.findall(r"^\|.* ([3-6]) \| (.*) \| not run \|$", page, re.MULTILINE)
    methods = ("CEFITO", "ViterbiPlanNet", "ViterbiPlanNet (reproduced)")
    places = product(("crosstask", "coin", "niv"), range(3, 7))
    for (name, steps), (told, cells) in zip(places, targets, strict=True):
        again = published_rows(name, steps, "reproduction")
        rows = {row.method: row for row in [*published_rows(name, steps), *again]}
        scores = [(row.success_rate, row.mean_accuracy) for row in map(rows.get, methods) if row]
        shown = [f"{rate.value:.2f} / {accuracy.value:.2f}" for rate, accuracy in scores]
        assert (int(told), cells.removeprefix("– | ").split(" | ")) == (steps, shown)
