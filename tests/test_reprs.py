"""What is looked at in a session is one line, however large it is."""

import cefito
from cefito.inference.answer import answer


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
    assert found.best == tuple(run.taxonomy.names(found.plans[0].actions))
    one_line(found, f"Answer(2 plans, best {found.plans[0].score:.4f}  {best}", f"'{found.task}'")
    assert str(found).splitlines()[0] == f"task: {found.task}"
    assert [line.split("  ")[-1] for line in str(found).splitlines()[1:]] == [
        " → ".join(plan.steps) for plan in found.plans
    ]
    none = found.model_copy(update={"plans": [], "task": None})
    one_line(none, "Answer(0 plans, ")
    assert (none.best, str(none)) == ((), "no plan")
