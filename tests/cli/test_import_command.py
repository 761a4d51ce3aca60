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


def test_import_then_plan(source, tmp_path, ran, refused):
    run, both = tmp_path / "run", tmp_path / "both"
    files = ("--taxonomy", source / "taxonomy.json", "--action-text", source / "text.npy")
    imported = ("import-checkpoint", source / "field.pth", *files, "--out")
    out, err = ran(*imported, run, "--json")
    value = json.loads(out)
    assert (value["run"], value["horizon"]) == (str(run), 3)
    assert value["parameters"]["energy field"] > 7000
    assert err.startswith(f"wrote {run}: T = 3, energy field of 7,")
    assert err.endswith(f"plan {run} --initial A.npy --goal B.npy --task ID\n")

    query = ("--initial", source / "a.npy", "--goal", source / "b.npy", "--device", "cpu", "--json")
    value = json.loads(ran("plan", run, *query, "--task", 1, "--top-k", 5).out)
    assert (value["task"], value["task_id"], value["task_source"]) == ("toast", 1, "given")
    assert value["task_probability"] is None
    assert len(value["plans"]) == 5
    energies = [one["energy"] for one in value["plans"]]
    assert energies == sorted(energies)
    assert {action for one in value["plans"] for action in one["actions"]} <= {1, 2, 3}
    assert value["exact"] is True
    said = refused("plan", run, *query)
    assert "has no task classifier, so tasks must be given" in said
    assert said.endswith(" (--task)\n")
    said = refused("plan", run, *query, "--task", 0, "--objective", "fitted")
    assert "so it has no chain. Plan with the objective 'energy'" in said
    assert said.endswith(" (--objective)\n")

    said = ran(*imported, both, "--classifier", source / "classifier.pth").err
    assert "task classifier of" in said
    assert said.endswith("--goal B.npy\n")
    later = json.loads(ran("plan", both, *query, "--top-k", 5).out)
    assert 0 < later["task_probability"] <= 1
    assert (later["task"], later["task_id"], later["task_source"]) == ("toast", 1, "predicted")
    assert later["plans"] == value["plans"]

    out = [tmp_path / name for name in ("f.pth", "f-action-text.npy", "f-classifier.pth")]
    said = ran("export", both, "--checkpoint", out[0])
    assert said == ("", f"wrote {', '.join(map(str, out))}\n")
    beside = ("--taxonomy", both / "taxonomy.json", "--action-text", out[1], "--classifier", out[2])
    ran("import-checkpoint", out[0], *beside, "--out", tmp_path / "again")
    assert json.loads(ran("plan", tmp_path / "again", *query, "--top-k", 5).out) == later
    checkpoint_too = ("--checkpoint", tmp_path / "g.pth")
    for wrong in (
        (),
        (tmp_path / "run.zip", *checkpoint_too),
        (*checkpoint_too, "--license", "MIT"),
    ):
        assert "give a zip file (with --license)," in refused("export", both, *wrong)
    line = refused("export", both, "--checkpoint", tmp_path / "f.zip")
    assert line.endswith("expected a file that ends in .pth. (--checkpoint)\n")


def test_from_the_authors_repository_to_tables(tmp_path, ran, refused):
    """Window files, taxonomy, features, embeddings and checkpoints as they are."""
    folder = write_repository(tmp_path / "clone") / "dataset" / "CrossTask"
    data, run, cmp = (tmp_path / name for name in ("data", "run", "cmp"))
    prepare = ("data", "prepare", "crosstask", "--annotations", tmp_path / "clone")
    said = ran(*prepare, "--out", data).err
    assert "(event_class_top1) are stored with their videos, for T = 3, 4" in said
    assert "those of action_embeddings_133.npy" in said
    tensors = drawn(shapes(horizon=3), 1)
    checkpoint(folder / "best.pth", tensors, config=config(tensors) | {"num_tasks": 3})
    files = ("--taxonomy", folder / "crosstask_taxonomy_133.json", "--weights", "ema")
    files += ("--action-text", folder / "action_embeddings_133.npy", "--out", run)
    ran("import-checkpoint", folder / "best.pth", *files)
    call = ("evaluate", run, "--dataset", data, "--device", "cpu", "--json")
    scores = json.loads(ran(*call, "--stored-task").out)
    assert (scores["stored_task"], scores["oracle_task"]) == (True, False)
    wrong = sum(
        entry["id"]["event_class_top1"] != entry["id"]["task_id"]
        for entry in windows("CrossTask", "test", 3, predicted=True)
    )
    assert scores["metrics"]["task_accuracy"] == pytest.approx(
        100 * (1 - wrong / scores["windows"])
    )
    (kept,) = run.glob("evaluation-test-stored-task-*.json")
    assert json.loads(kept.read_text())["stored_task"] is True
    line = refused(*call, "--oracle-task", "--stored-task")
    assert "either the true task or the stored one" in line
    call = ("compare", data, "--horizons", 3, "--seeds", 1, "--out", cmp, "--planners")
    ran(*call, "frequent,frequent-stored-task")
    assert "| most frequent window, stored task |" in (cmp / "tables.md").read_text()
    line = refused(*call, "pdpp-stored-task,viterbi-stored-task")
    assert "makes no use of the task" in line
