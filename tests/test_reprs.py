"""What is looked at in a session is one line, however large it is."""

import html5lib

import cefito
from cefito.inference.answer import answer
from cefito.markup import MOST, Folded, card


def train(world, folder):
    config = cefito.load_config("small", method="nearest")
    return cefito.train_run(world, folder, config=config, horizon=3, seed=0)


def one_line(value, *parts):
    text = repr(value)
    assert text.startswith(f"{type(value).__name__}(")
    assert text.endswith(")")
    assert "\n" not in text
    assert len(text) < 250
    assert all(part in text for part in parts), text


def test_data(world):
    test = cefito.cut_windows(world, horizon=3, split="test")
    one_line(world, "'synthetic world (simulated)', 48 videos", "8 features", str(world.folder))
    one_line(world.annotations, "48 videos")
    one_line(world.taxonomy, "tasks", f"{len(world.taxonomy.actions)} actions")
    one_line(test, f"{len(test)} of 3 actions, 8 features, split 'test'")
    one_line(cefito.Queries.from_windows(test), f"{len(test)} of 8 features, tasks unknown")
    one_line(cefito.Queries.from_windows(test, oracle_task=True), "tasks known")


def test_runs_planners_and_plans(world, tmp_path):
    """Those of the other planners are looked at in their contract tests."""
    folder = str(tmp_path / "run")  # paths may be text
    run = train(world, folder)
    one_line(
        run, f"PlanningRun('nearest', T = 3, data set 'synthetic world (simulated)', in '{folder}'"
    )
    one_line(run.planner, "T = 3, 8 features, 0 parameters")
    test = cefito.cut_windows(run.dataset(str(world.folder)), horizon=3, split="test")
    plans = run.planner.plan(cefito.Queries.from_windows(test.subset([0])), 2)[0]
    one_line(plans, f"{len(plans)} of 3 actions, best {plans.actions[0].tolist()} at ")
    one_line(cefito.Problem(test.initial[0], test.goal[0], (0, 1)), "2 actions, 8 features")


def test_answers(world, tmp_path):
    run = train(world, tmp_path / "run")
    test = cefito.cut_windows(world, horizon=3, split="test")
    found = answer(run, cefito.Queries.from_windows(test.subset([0])), top_k=2)
    best = " → ".join(found.best)
    assert (
        found.best == tuple(found.plans[0].names) == tuple(run.taxonomy.names(found.plans[0].ids))
    )
    one_line(found, f"Answer(2 plans, best {found.plans[0].score:.4f}  {best}", f"'{found.task}'")
    assert str(found).splitlines()[0] == f"task: {found.task}"
    assert [line.split("  ")[-1] for line in str(found).splitlines()[1:]] == [
        " → ".join(plan.steps) for plan in found.plans
    ]
    in_a_notebook(found, best, found.task, "<summary>Plans</summary>")
    likely = found.model_copy(update={"task_probability": 0.5, "lengths": {2: 0.25, 3: 0.75}})
    in_a_notebook(likely, f"{found.task}, 50.0 %", "3 (75 %), 2 (25 %)")
    none = found.model_copy(update={"plans": [], "task": None})
    one_line(none, "Answer(0 plans, ")
    assert (none.best, str(none)) == ((), "no plan")
    in_a_notebook(none, "no plan")


def in_a_notebook(value, *parts):
    html = value._repr_html_()
    parser = html5lib.HTMLParser(strict=True)  # raises at what is not HTML
    parser.parseFragment(html)
    assert "<script" not in html
    assert "<style" not in html  # nothing that would leak into the notebook
    assert all(part in html for part in parts), html
    return html


def test_in_a_notebook(world, tmp_path):
    run = train(world, tmp_path / "run <b>")
    tasks = [task.name for task in world.taxonomy.tasks]
    in_a_notebook(world, "synthetic world (simulated)", world.fingerprint, *tasks)
    html = in_a_notebook(run, "T = 3", "nearest", "run &lt;b&gt;", "<summary>Settings</summary>")
    assert "<b>" not in html
    test = cefito.cut_windows(world, horizon=3, split="test")
    plans = run.planner.plan(cefito.Queries.from_windows(test.subset([0])), 2)[0]
    sequence = " → ".join(map(str, plans.actions[0].tolist()))
    in_a_notebook(plans, sequence, f"{plans.scores[0]:.6g}", "exact")


def test_long_tables_are_cut_in_notebooks():
    html = card("many", {}, [Folded("rows", ("number",), [[row] for row in range(MOST + 7)])])
    assert html.count("<tr>") == MOST + 1
    assert "and 7 more" in html
