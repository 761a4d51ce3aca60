"""What is looked at in a session is one line, however large it is."""

import html5lib
import pytest

import cefito
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.notebook import MOST, Folded, card


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    knobs = WorldKnobs(train=24, val=12, test=12, dim=8)
    return write_world(tmp_path_factory.mktemp("data") / "world", knobs=knobs)


def train(dataset, folder):
    config = cefito.load_config("small", method="nearest")
    return cefito.train_run(dataset, folder, config=config, horizon=3, seed=0)


def one_line(value, *parts):
    text = repr(value)
    assert text.startswith(f"{type(value).__name__}(")
    assert text.endswith(")")
    assert "\n" not in text
    assert len(text) < 250
    assert all(part in text for part in parts), text


def test_data(dataset):
    test = cefito.cut_windows(dataset, horizon=3, split="test")
    one_line(dataset, "'synthetic world (simulated)', 48 videos", "8 features", str(dataset.folder))
    one_line(dataset.annotations, "48 videos")
    one_line(dataset.taxonomy, "tasks", f"{len(dataset.taxonomy.actions)} actions")
    one_line(test, f"{len(test)} of 3 actions, 8 features, split 'test'")
    one_line(cefito.Queries.from_windows(test), f"{len(test)} of 8 features, tasks unknown")
    one_line(cefito.Queries.from_windows(test, oracle_task=True), "tasks known")


def test_runs_planners_and_plans(dataset, tmp_path):
    """Those of the other planners are looked at in their contract tests."""
    folder = str(tmp_path / "run")  # paths may be text
    run = train(dataset, folder)
    one_line(run, f"Run('nearest', T = 3, data set 'synthetic world (simulated)', in '{folder}'")
    one_line(run.planner, "T = 3, 8 features, 0 parameters")
    test = cefito.cut_windows(run.dataset(str(dataset.folder)), horizon=3, split="test")
    plans = run.planner.plan(cefito.Queries.from_windows(test.subset([0])), 2)[0]
    one_line(plans, f"{len(plans)} of 3 actions, best {plans.actions[0].tolist()} at ")
    one_line(cefito.Problem(test.initial[0], test.goal[0], (0, 1)), "2 actions, 8 features")


def in_a_notebook(value, *parts):
    html = value._repr_html_()
    parser = html5lib.HTMLParser(strict=True)  # raises at what is not HTML
    parser.parseFragment(html)
    assert "<script" not in html
    assert "<style" not in html  # nothing that would leak into the notebook
    assert all(part in html for part in parts), html
    return html


def test_in_a_notebook(dataset, tmp_path):
    run = train(dataset, tmp_path / "run <b>")
    tasks = [task.name for task in dataset.taxonomy.tasks]
    in_a_notebook(dataset, "synthetic world (simulated)", dataset.fingerprint, *tasks)
    html = in_a_notebook(run, "T = 3", "nearest", "run &lt;b&gt;", "<summary>Settings</summary>")
    assert "<b>" not in html
    test = cefito.cut_windows(dataset, horizon=3, split="test")
    plans = run.planner.plan(cefito.Queries.from_windows(test.subset([0])), 2)[0]
    sequence = " → ".join(map(str, plans.actions[0].tolist()))
    in_a_notebook(plans, sequence, f"{plans.scores[0]:.6g}", "exact")


def test_long_tables_are_cut_in_notebooks():
    html = card("many", {}, [Folded("rows", ("number",), [[row] for row in range(MOST + 7)])])
    assert html.count("<tr>") == MOST + 1
    assert "and 7 more" in html
