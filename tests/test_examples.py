"""The examples run as they stand."""

import runpy
from pathlib import Path

from cefito.data.simulation.world import WorldKnobs, write_world

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def test_plan(tmp_path, capsys):
    write_world(tmp_path / "data", knobs=WorldKnobs(train=24, val=12, test=12, dim=8))
    settings = (
        "training.optimiser.epochs=1",
        "classifier_training.optimiser.epochs=1",
        "training.stopping.windows=5",
        "training.negatives.count=4",
    )
    runpy.run_path(str(EXAMPLES / "plan.py"))["main"](
        str(tmp_path / "data"), str(tmp_path / "run"), *settings
    )
    first, *plans = capsys.readouterr().out.splitlines()
    assert first.startswith("synthetic world (simulated): success rate ")
    assert len(plans) == 5
    scores = [float(line.split()[0]) for line in plans]
    assert scores == sorted(scores)
    assert all(line.count(" → ") == 2 for line in plans)


def test_constraints(tmp_path, capsys):
    write_world(tmp_path / "data", knobs=WorldKnobs(train=24, val=12, test=12, dim=8))
    settings = (
        "training.optimiser.epochs=1",
        "classifier_training.optimiser.epochs=1",
        "training.stopping.windows=5",
        "training.negatives.count=4",
    )
    runpy.run_path(str(EXAMPLES / "constraints.py"))["main"](
        str(tmp_path / "data"), str(tmp_path / "run"), *settings
    )
    lines = capsys.readouterr().out.splitlines()
    titles = [line.split(",")[0] for line in lines if line.endswith("sequences evaluated:")]
    assert lines[0].startswith("annotated: ")
    assert titles == ["free", "constrained", "several tasks"]


def test_each_example_is_tested():
    source = Path(__file__).read_text(encoding="utf-8")
    assert all(f'"{path.name}"' in source for path in EXAMPLES.glob("*.py"))
