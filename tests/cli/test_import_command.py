import json

import numpy as np
import pytest
import torch

from author_checkpoints import (
    TEXT,
    checkpoint,
    classifier_checkpoint,
    classifier_shapes,
    config,
    drawn,
    shapes,
)
from authors_repository import windows, write_repository
from cefito.cli import main

E, K = 6, 4


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Checkpoints of field (T = 3) and classifier, taxonomy, action text and two observations."""
    folder = tmp_path_factory.mktemp("source")
    sizes = {"horizon": 3, "dim": E, "actions": K}
    checkpoint(folder / "field.pth", drawn(shapes(**sizes), 0))
    classifier = {
        name: torch.zeros(shape) for name, shape in classifier_shapes(dim=E, tasks=2).items()
    }
    classifier["fc4.bias"] = torch.tensor([0.0, 5.0])  # always the second task
    classifier_checkpoint(folder / "classifier.pth", classifier)
    actions = [{"id": number, "name": name} for number, name in enumerate("abcd")]
    tasks = [{"id": 0, "name": "tea", "actions": [0, 1]}]
    tasks.append({"id": 1, "name": "toast", "actions": [1, 2, 3]})
    taxonomy = {"dataset": "kitchen", "actions": actions, "tasks": tasks}
    (folder / "taxonomy.json").write_text(json.dumps(taxonomy))
    np.save(folder / "text.npy", np.random.default_rng(0).standard_normal((K, TEXT)))
    for name, seed in (("a", 1), ("b", 2)):
        np.save(folder / f"{name}.npy", np.random.default_rng(seed).standard_normal(E))
    return folder


def field_arguments(source, out):
    files = ["--taxonomy", str(source / "taxonomy.json"), "--action-text", str(source / "text.npy")]
    field = str(source / "field.pth")
    return ["import-checkpoint", field, *files, "--out", str(out)]


def plan(source, run, capsys, *more):
    """Exit code, the parsed answer or None, and what was said."""
    capsys.readouterr()
    files = ["--initial", str(source / "a.npy"), "--goal", str(source / "b.npy")]
    code = main(["plan", str(run), *files, "--device", "cpu", "--json", *more])
    captured = capsys.readouterr()
    return code, json.loads(captured.out) if code == 0 else None, captured.err


def test_import_then_plan(source, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(field_arguments(source, run)) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"wrote {run}: T = 3, energy field of 7,")
    assert captured.err.endswith(f"plan {run} --initial A.npy --goal B.npy --task ID\n")

    code, value, _ = plan(source, run, capsys, "--task", "1", "--top-k", "5")
    assert code == 0
    assert (value["task"], value["task_id"], value["task_source"]) == ("toast", 1, "given")
    assert value["task_probability"] is None
    assert len(value["plans"]) == 5
    energies = [one["energy"] for one in value["plans"]]
    assert energies == sorted(energies)
    assert {action for one in value["plans"] for action in one["actions"]} <= {1, 2, 3}
    assert value["exact"] is True
    code, _, said = plan(source, run, capsys)
    assert code == 2
    assert said.count("\n") == 1
    assert "has no task classifier, so tasks must be given" in said
    assert said.endswith(" (--task)\n")
    code, _, said = plan(source, run, capsys, "--task", "0", "--objective", "fitted")
    assert code == 2
    assert "so it has no chain. Plan with the objective 'energy'" in said
    assert said.endswith(" (--objective)\n")

    both = tmp_path / "both"
    classifier = ["--classifier", str(source / "classifier.pth")]
    assert main([*field_arguments(source, both), *classifier]) == 0
    said = capsys.readouterr().err
    assert "task classifier of" in said
    assert said.endswith("--goal B.npy\n")
    code, later, _ = plan(source, both, capsys, "--top-k", "5")
    assert code == 0
    assert 0 < later["task_probability"] <= 1
    assert (later["task"], later["task_id"], later["task_source"]) == ("toast", 1, "predicted")
    assert later["plans"] == value["plans"]


def test_from_the_authors_repository_to_tables(tmp_path, capsys):
    """Window files, taxonomy, features, embeddings and checkpoints as they are."""
    folder = write_repository(tmp_path / "clone") / "dataset" / "CrossTask"
    data, run, cmp = (str(tmp_path / name) for name in ("data", "run", "cmp"))
    prepare = ["data", "prepare", "crosstask", "--annotations", str(tmp_path / "clone")]
    assert main([*prepare, "--out", data]) == 0
    said = capsys.readouterr().err
    assert "(event_class_top1) are stored with their videos, for T = 3, 4" in said
    assert "those of action_embeddings_133.npy" in said
    tensors = drawn(shapes(horizon=3), 1)
    checkpoint(folder / "best.pth", tensors, config=config(tensors) | {"num_tasks": 3})
    files = ["--taxonomy", str(folder / "crosstask_taxonomy_133.json"), "--weights", "ema"]
    files += ["--action-text", str(folder / "action_embeddings_133.npy"), "--out", run]
    assert main(["import-checkpoint", str(folder / "best.pth"), *files]) == 0
    call = ["evaluate", run, "--dataset", data, "--device", "cpu", "--json"]
    capsys.readouterr()
    assert main([*call, "--stored-task"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert (scores["stored_task"], scores["oracle_task"]) == (True, False)
    wrong = sum(
        entry["id"]["event_class_top1"] != entry["id"]["task_id"]
        for entry in windows("CrossTask", "test", 3, predicted=True)
    )
    assert scores["metrics"]["task_accuracy"] == pytest.approx(
        100 * (1 - wrong / scores["windows"])
    )
    (kept,) = (tmp_path / "run").glob("evaluation-test-stored-task-*.json")
    assert json.loads(kept.read_text())["stored_task"] is True
    assert main([*call, "--oracle-task", "--stored-task"]) == 2
    assert "either the true task or the stored one" in capsys.readouterr().err
    rows = "frequent,frequent-stored-task"
    call = ["compare", data, "--planners", rows, "--horizons", "3", "--seeds", "1", "--out", cmp]
    assert main(call) == 0
    table = (tmp_path / "cmp" / "tables.md").read_text()
    assert "| most frequent window, stored task |" in table
    assert main([*call[:3], "pdpp-stored-task,viterbi-stored-task", *call[4:]]) == 2
    assert "makes no use of the task" in capsys.readouterr().err
