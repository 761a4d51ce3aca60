import copy
import json
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from author_checkpoints import (
    HEADS,
    TASKS,
    TEXT,
    D,
    E,
    K,
    checkpoint,
    classifier_checkpoint,
    classifier_shapes,
    config,
    drawn,
    shapes,
)
from cefito.data import Taxonomy
from cefito.data.windows import cut_windows
from cefito.errors import ConfigError, DataError, RunError
from cefito.evaluation.runs import evaluate_run
from cefito.evaluation.sharing import export_field, import_field
from cefito.field.fields import incremental_field, make_field
from cefito.inference.answer import answer
from cefito.parts.folder import recorded
from cefito.planners.cefito.checkpoints import to_checkpoints
from cefito.planners.methods import load_config
from cefito.planners.queries import Queries
from cefito.runs.finetune import finetune
from cefito.runs.run import open_run
from cefito.runs.train import train_run
from cefito.settings import flattened
from part_worlds import part_of
from slow_predictor import SlowPredictor, norm
from traps import Trap

TAXONOMY = {
    "dataset": "kitchen",
    "tasks": [
        {"id": 0, "name": "tea", "actions": [0, 1, 2]},
        {"id": 1, "name": "toast", "actions": [2, 3, 4, 5]},
        {"id": 2, "name": "tyre", "actions": [6, 7]},
    ],
    "actions": [{"id": number, "name": f"action {number}"} for number in range(K)],
}


def energies_by_hand(tensors, text, initial, goal, sequences, heads=HEADS):
    """The energy of each sequence [n, T], one at a time, in float64, from the tensors' layout."""
    slow = SlowPredictor(tensors, heads=heads)
    initial, goal = (norm(x.double(), 1e-5) for x in (initial, goal))
    with torch.no_grad():
        ends = [slow.states(initial, text[sequence])[-1] for sequence in sequences]
    return np.array([(end - goal).square().mean() for end in ends])


def task_logits_by_hand(tensors, initial, goal):
    def linear(name, x):
        return x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]

    halves = [linear("fc3", linear("fc2", linear("fc1", x)).relu()).relu() for x in (initial, goal)]
    return linear("fc4", (halves[0] + halves[1]) / 2)


@pytest.fixture(scope="module")
def tensors():
    return {horizon: drawn(shapes(horizon=horizon), seed=horizon) for horizon in (3, 4)}


@pytest.fixture(scope="module")
def text():
    return np.random.default_rng(0).standard_normal((K, TEXT)).astype(np.float32)


@pytest.fixture
def files(tmp_path, text):
    """Taxonomy and action text as files."""
    (tmp_path / "taxonomy.json").write_text(json.dumps(TAXONOMY))
    np.save(tmp_path / "text.npy", text)
    return {"taxonomy": tmp_path / "taxonomy.json", "action_text": tmp_path / "text.npy"}


@pytest.fixture(scope="module")
def field_file(tmp_path_factory, tensors):
    return checkpoint(tmp_path_factory.mktemp("checkpoint") / "T3.pth", tensors[3])


@pytest.fixture(scope="module")
def folder(field_file, tmp_path_factory, text):
    """An imported run without a classifier, not to be changed."""
    place = tmp_path_factory.mktemp("imported")
    (place / "taxonomy.json").write_text(json.dumps(TAXONOMY))
    np.save(place / "text.npy", text)
    return import_field(
        field_file, place / "run", taxonomy=place / "taxonomy.json", action_text=place / "text.npy"
    ).folder


@pytest.fixture
def run(folder):
    """That run, newly opened."""
    return open_run(folder)


@pytest.fixture
def copied(folder, tmp_path):
    """A copy of its folder, to be changed."""
    return Path(shutil.copytree(folder, tmp_path / "copied"))


@pytest.fixture(scope="module")
def observations():
    # raw: neither mean 0 nor deviation 1
    return (np.random.default_rng(3).standard_normal((2, 5, E)) * 7 + 2).astype(np.float32)


def queries(observations, tasks=None):
    return Queries(
        initial=observations[0],
        goal=observations[1],
        tasks=None if tasks is None else np.array(tasks),
    )


@pytest.mark.parametrize(("horizon", "scale"), [(4, 1.0), (3, 0.1), (3, 0.001)])
def test_plans_have_the_energies_of_the_checkpoint(
    horizon, scale, tensors, text, files, tmp_path, observations
):
    """At every scale of the features, also where the norm's epsilon matters."""
    observations = observations / 7 * np.float32(scale)
    path = checkpoint(tmp_path / "checkpoint.pth", tensors[horizon])
    run = import_field(path, tmp_path / "run", **files)
    assert run.horizon == run.planner.horizon == horizon
    allowed = run.taxonomy.tasks[0].actions
    everything = np.stack(np.meshgrid(*[allowed] * horizon, indexing="ij"), -1).reshape(-1, horizon)
    (plans,) = run.planner.plan(queries(observations[:, :1], [0]), len(everything))
    assert plans.exact
    assert len(plans) == len(everything) == 3**horizon
    some = slice(None, None, horizon)
    initial, goal = torch.from_numpy(observations[:, 0])
    expected = energies_by_hand(
        tensors[horizon], torch.from_numpy(text), initial, goal, plans.actions[some]
    )
    # float32 against float64 through four blocks
    np.testing.assert_allclose(plans.energies[some], expected, rtol=5e-6, atol=0)
    np.testing.assert_array_equal(plans.scores, plans.energies)
    assert expected.max() - expected.min() > 1e-3  # the test could tell them apart
    assert expected[0] <= expected.min() + 1e-5


@pytest.mark.parametrize(("heads", "weights"), [(6, "raw"), (8, "ema"), (1, "ema")])
def test_heads_of_the_config_and_chosen_weights(
    heads, weights, tensors, text, files, tmp_path, observations
):
    """Their files alone: taxonomy and embeddings in their form, ids in no order."""
    raw = drawn(shapes(horizon=3), seed=9)
    settings = config(tensors[3], num_heads=heads) | {"num_tasks": TASKS}
    path = checkpoint(tmp_path / "best.pth", tensors[3], model=raw, config=settings)
    tasks = {"0_12_tea": [2, 0, 1], "1_5_toast": [4, 3, 5], "2_7_tyre": [7, 6]}
    theirs = {key: {str(a): f"action {a}" for a in actions} for key, actions in tasks.items()}
    files["taxonomy"].write_text(json.dumps(theirs))
    vectors = np.array({a: text[a] for a in (3, 1, 0, 2, 7, 6, 5, 4)})
    np.save(files["action_text"], vectors, allow_pickle=True)
    run = import_field(path, tmp_path / "run", weights=weights, **files)
    assert run.info.imported["energy field"]["weights"] == {"raw": "model"}.get(weights, "ema")
    (plans,) = open_run(run.folder).planner.plan(queries(observations[:, :1], [1]), 5)
    initial, goal = torch.from_numpy(observations[:, 0])
    chosen = raw if weights == "raw" else tensors[3]
    given = (chosen, torch.from_numpy(text), initial, goal, plans.actions)
    np.testing.assert_allclose(plans.energies, energies_by_hand(*given, heads=heads), rtol=5e-6)
    assert set(plans.actions.ravel().tolist()) <= {3, 4, 5}
    if heads != 6:
        assert np.abs(plans.energies / energies_by_hand(*given) - 1).max() > 1e-4


@pytest.mark.parametrize(
    ("model", "more", "words"),
    [
        ({"num_heads": 7}, {}, "model.num_heads = 7, which does not divide 384"),
        ({"causal_attention": False}, {}, "model.causal_attention = False instead of True"),
        ({"depth": 6}, {}, "model.depth = 6 instead of 4"),
        ({"hidden_dim": 512, "mlp_ratio": 2}, {}, "model.hidden_dim = 512 instead of 384, model."),
        ({"observation_dim": 1536}, {}, f"model.observation_dim = 1536 instead of {E}"),
        ({}, {"horizon": 4}, "horizon = 4 instead of 3"),
        ({}, {"num_tasks": 18}, "num_tasks = 18 instead of 3"),
    ],
)
def test_configs_that_cannot_be_obeyed(model, more, words, tensors, tmp_path, refused):
    settings = config(tensors[3], **model) | more
    refused(checkpoint(tmp_path / "bad.pth", tensors[3], config=settings), "bad.pth", words)


def test_configs_of_other_forms(tensors, files, tmp_path, refused, caplog):
    path = tmp_path / "bad.pth"
    for wrong in ([1], "x", {3: 4}):
        refused(checkpoint(path, tensors[3], config=wrong), "'config' is not a table of settings")
    new = config(tensors[3], rotary=True)
    import_field(checkpoint(path, tensors[3], config=new), tmp_path / "new", **files)
    assert "its config has model.rotary, which is not looked at" in caplog.text
    import_field(checkpoint(path, tensors[3], config=None), tmp_path / "none", **files)


def test_what_the_run_says(run, field_file, tensors):
    info = json.loads((run.folder / "run.json").read_text())
    assert info["finished"] is True
    assert (info["method"], info["horizon"], info["preset"]) == ("cefito", 3, "imported")
    assert info["seed"] is info["selection"] is None
    assert info["dataset"] == {"name": "kitchen", "path": "", "fingerprint": ""}
    record = info["imported"]["energy field"]
    assert len(record.pop("sha256")) == 64
    assert record.pop("config")["model.num_heads"] == HEADS
    assert record == {"file": field_file.name, "weights": "ema", "epoch": 17, "step": 1234}
    settings = run.planner.settings.search
    assert run.trained_search == settings
    assert run.planner.settings.field.distance == "mean_square"
    assert run.planner.space.source == settings.actions == "taxonomy"
    assert (settings.objective, settings.tasks) == ("energy", 1)
    assert run.planner.task_model is run.planner.chain is None
    assert run.taxonomy.to_dict() == Taxonomy.from_dict(TAXONOMY).to_dict()
    learned = sum(tensor.numel() for tensor in tensors[3].values())
    positions = tensors[3]["predictor.pos_embed"].numel()  # not learned
    assert info["parameters"] == {"energy field": learned - positions}


def test_saved_weights_in_half_precision(tmp_path, files, tensors):
    half = {
        name: tensor.half() if name != "predictor.pos_embed" else tensor
        for name, tensor in tensors[3].items()
    }
    run = import_field(checkpoint(tmp_path / "half.pth", half), tmp_path / "run", **files)
    planner: Any = run.planner
    weight = planner.field.predictor.state_head.weight
    assert weight.dtype == torch.float32
    torch.testing.assert_close(weight, half["predictor.state_head.weight"].float())


def test_without_a_classifier_tasks_must_be_given(run, observations):
    for call in (
        lambda: run.planner.plan(queries(observations), 1),
        lambda: run.planner.predict_tasks(queries(observations)),
        lambda: answer(run, queries(observations[:, :1])),
    ):
        with pytest.raises(RunError, match=r"no task classifier.*import-checkpoint") as caught:
            call()
        assert caught.value.setting == "task"
    found = answer(run, queries(observations[:, :1]), task=1, top_k=3)
    assert len(found.plans) == 3
    assert (found.task, found.task_source, found.task_probability) == ("toast", "given", None)
    assert found.weights == {"energy": 1.0, "chain": 0.0}


@pytest.mark.parametrize("objective", ["fitted", "chain"])
def test_what_needs_training_data_is_refused(run, observations, objective):
    changed = run.with_search(objective=objective)
    with pytest.raises(ConfigError, match=r"without training data.*'energy'") as caught:
        changed.planner.plan(queries(observations, [0] * 5), 1)
    assert caught.value.setting == "objective"
    run.planner.plan(queries(observations, [0] * 5), 1)


def test_a_classifier_comes_with_the_field(field_file, files, tmp_path, observations):
    tensors = drawn(classifier_shapes(), 9)
    path = classifier_checkpoint(tmp_path / "classifier.pth", tensors)
    run = import_field(field_file, tmp_path / "both", classifier=path, **files)
    logits = task_logits_by_hand(tensors, *torch.from_numpy(observations))
    likeliest = logits.argmax(dim=1).tolist()
    assert len(set(likeliest)) > 1
    planner: Any = run.planner
    np.testing.assert_allclose(
        planner.task_model.log_probabilities(queries(observations)),
        logits.log_softmax(dim=1),
        atol=1e-4,
    )
    assert run.planner.predict_tasks(queries(observations)).tolist() == likeliest
    assert (planner.task_model is None, planner.chain is None) == (False, True)
    assert json.loads((run.folder / "planner.json").read_text())["lacks"] == ["chain"]
    assert list(run.info.parameters) == ["task classifier", "energy field"]
    record = run.info.imported["task classifier"]
    assert (record["file"], record["weights"], record["epoch"]) == ("classifier.pth", "model", 3)
    plans = run.planner.plan(queries(observations), 1)
    assert [part.tasks[0] for part in plans] == likeliest
    several = run.with_search(tasks=3)
    assert all(len(plans) == 2 for plans in several.planner.plan(queries(observations), 2))


@pytest.fixture
def of_world(world, tmp_path):
    """An imported run of the world's tasks and actions."""
    actions = len(world.taxonomy.actions)
    files = {"taxonomy": world.folder / "taxonomy.json", "action_text": tmp_path / "text.npy"}
    np.save(files["action_text"], np.random.default_rng(0).standard_normal((actions, TEXT)))
    sizes = {"horizon": 3, "dim": world.observation_dim, "actions": actions}
    path = checkpoint(tmp_path / "checkpoint.pth", drawn(shapes(**sizes), 0))
    return import_field(path, tmp_path / "run", **files)


def test_scores_on_any_data_set_of_the_same_names(world, of_world):
    run = of_world
    windows = cut_windows(world, horizon=3, split="test")
    scores, file = evaluate_run(run, oracle_task=True, sample=3, dataset=world.folder)
    assert (scores.sampled_from, scores.dataset, scores.windows) == (len(windows), world.name, 3)
    assert (scores.preset, scores.actions_from, scores.exact) == ("imported", "taxonomy", True)
    assert file.name == f"evaluation-test-oracle-task-sample-3-{world.fingerprint[:12]}.json"
    assert scores.fingerprint == world.fingerprint
    with pytest.raises(RunError, match="has no task classifier"):
        evaluate_run(run, dataset=world.folder)
    with pytest.raises(RunError, match="was imported") as caught:
        evaluate_run(run, oracle_task=True)
    assert caught.value.setting == "dataset"


@pytest.mark.nightly
def test_imported_weights_go_on_learning(world, of_world, tmp_path):
    """The field goes on, with text vectors; the chain, absent before, begins afresh."""
    made = finetune(
        of_world,
        part_of(world, tmp_path / "part", tasks=[5, 0]),
        tmp_path / "further",
        epochs=1,
        settings={
            **{"training.negatives.count": 4, "training.stopping.windows": 3},
            **{"training.stopping.candidates": 30, "search.fitting_windows": 5},
            "training.optimiser.learning_rate": 1e-9,
        },
    )
    ours, theirs = (part.planner.field.state_dict() for part in (made, of_world))
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=0, atol=1e-5)
    assert made.info.started_from.seed is None
    planners: list[Any] = [made.planner, open_run(made.folder).planner]
    assert planners[0].chain is not None
    assert planners[1].task_model is not None


@pytest.fixture
def refused(tmp_path, files):
    """Check that a checkpoint, or other arguments, are refused in one line and leave nothing."""

    def check(path, *words, **given):
        if isinstance(path, dict):
            path = checkpoint(tmp_path / "bad.pth", path)
        with pytest.raises((RunError, DataError)) as caught:
            import_field(path, tmp_path / "run", **{**files, **given})
        message = str(caught.value)
        assert "\n" not in message
        for word in words:
            assert word in message, message
        assert not [found for found in tmp_path.iterdir() if "run" in found.name]

    return check


@pytest.mark.parametrize("place", ["config", "ema"])
def test_a_payload_is_never_run(place, tensors, refused, tmp_path):
    flag = tmp_path / "flag"
    path = checkpoint(tmp_path / "evil.pth", tensors[3], **{place: Trap(flag)})
    refused(path, "evil.pth: holds pickled objects", "(getattr)", "never loaded")
    assert not flag.exists()
    torch.load(path, weights_only=False)  # it would have run
    assert flag.exists()


def test_files_that_are_no_checkpoints(tmp_path, field_file, refused):
    refused(tmp_path / "gone.pth", "gone.pth: no such file")
    refused(tmp_path, "it is a folder")
    whole, damaged = field_file.read_bytes(), "bad.pth: is truncated or not a checkpoint"
    for content in (b"", b"garbage" * 40, whole[: len(whole) // 2], whole[:-1]):
        (tmp_path / "bad.pth").write_bytes(content)
        refused(tmp_path / "bad.pth", damaged)
    with (
        zipfile.ZipFile(field_file) as archive,
        zipfile.ZipFile(tmp_path / "bad.pth", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in archive.namelist():
            packed.writestr(name, bytes(10 * len(archive.read(name))))
    refused(tmp_path / "bad.pth", damaged)
    (tmp_path / "bad.pth").write_bytes(b"\n<!DOCTYPE html><html><title>Quota exceeded</title>")
    refused(tmp_path / "bad.pth", "is a page of HTML")
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / "bad.pth")
    refused(tmp_path / "bad.pth", damaged)
    for content, found in (
        ({"model": drawn(classifier_shapes(), 0), "epoch": 3}, "epoch, model"),
        ([1, 2], "list"),
        ({}, "nothing"),
        ({"ema": {}}, "ema"),
        ({"ema": {"a": 3}}, "ema"),
        (3, "int"),
    ):
        torch.save(content, tmp_path / "bad.pth")
        refused(tmp_path / "bad.pth", f"no tensors under 'ema' (found: {found})")


BIAS = "predictor.norm.bias"


def shaped(name, *shape):
    return lambda found: {**found, name: torch.zeros(shape)}


def altered(change, name=BIAS):
    return lambda found: {**found, name: change(found[name])}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda found: {name: each for name, each in found.items() if "blocks.3" not in name},
            "tensor 'predictor.blocks.3.attn.proj.bias' is missing",
        ),
        (
            lambda found: {f"module.{name}": tensor for name, tensor in found.items()},
            "bad.pth: not an energy field (",
        ),
        (shaped("head.bias", 1), "tensor 'head.bias' is unknown"),
        (
            shaped("predictor.state_embed.weight", D, E + 1),
            f"'predictor.state_head.weight' has shape [{E}, {D}]",
        ),
        (shaped("predictor.pos_embed", 0, D), "does not hold sinusoidal positions"),
        (shaped("predictor.state_embed.weight", D), "not an energy field (tuple index out of rang"),
        (altered(lambda x: x * np.nan), f"'{BIAS}' holds NaN or infinity"),
        (altered(lambda x: x.double() * 1e300), f"'{BIAS}' holds NaN or infinity"),
        (altered(lambda x: x.to(torch.int64)), f"'{BIAS}' is not one of plain"),
        (altered(lambda x: x.to_sparse()), f"'{BIAS}' is not one of plain"),
        (altered(lambda x: x.to("meta")), f"'{BIAS}' is not one of plain"),
        (  # cosines first
            altered(lambda x: x.roll(D // 2, dims=1), "predictor.pos_embed"),
            "does not hold sinusoidal positions",
        ),
    ],
)
def test_tensors_of_another_network(tensors, refused, change, words):
    refused(change(tensors[3]), "bad.pth", words)


def test_taxonomy_and_text_must_fit(tmp_path, field_file, text, refused):
    taxonomy = copy.deepcopy(TAXONOMY)
    bad, other = tmp_path / "bad.npy", tmp_path / "other.json"
    np.save(bad, text[:, :-1])
    shape = f"shape [{K}, {TEXT - 1}]; expected [{K}, {TEXT}]"
    refused(field_file, "bad.npy", shape, action_text=bad)
    np.save(bad, np.array([Trap(tmp_path / "flag")]), allow_pickle=True)
    refused(field_file, "pickled", action_text=bad)
    refused(field_file, "no such file", action_text=tmp_path / "gone.npy")
    taxonomy["tasks"][2]["actions"] = []
    other.write_text(json.dumps(taxonomy))
    refused(field_file, "task 2 ('tyre') has no actions", taxonomy=other)
    taxonomy["tasks"], taxonomy["actions"] = taxonomy["tasks"][:1], taxonomy["actions"][:3]
    other.write_text(json.dumps(taxonomy))
    refused(field_file, f"knows {K} actions", "other.json lists 3", taxonomy=other)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (classifier_shapes(tasks=TASKS + 1), f"'fc4.weight' has shape [4, {E // 3}]"),
        ({"fc1.weight": (4, E)}, "'fc1.bias' is missing"),
        (shapes(horizon=3), "'action_mask_token' is unknown"),
    ],
)
def test_a_classifier_that_does_not_fit(found, words, field_file, tmp_path, refused):
    path = classifier_checkpoint(tmp_path / "classifier.pth", drawn(found, 0))
    refused(field_file, words, classifier=path)


def test_folders_that_nothing_is_imported_into(folder, field_file, files):
    with pytest.raises(DataError, match="exists already"):
        import_field(field_file, folder, **files)


def test_an_imported_run_names_the_networks_that_it_lacks(copied):
    value = json.loads((copied / "planner.json").read_text())
    assert value["lacks"] == ["task classifier", "chain"]
    with recorded(copied):
        (copied / "planner.json").write_text(json.dumps({**value, "lacks": []}))
    with pytest.raises(RunError, match=r"classifier\.safetensors: no such file"):
        _ = open_run(copied).planner


def back(folder, tmp_path):
    """The run of a run's exported checkpoints, and what was written."""
    field, text, classifier = export_field(folder, tmp_path / "out.pth")
    beside = {"taxonomy": folder / "taxonomy.json", "action_text": text, "classifier": classifier}
    contents = [torch.load(path, weights_only=True) for path in (field, classifier)]
    return import_field(field, tmp_path / "again", **beside), *contents, np.load(text)


def test_a_field_comes_back_as_it_was(tensors, text, files, tmp_path, observations):
    """Weights to the bit, hence energies; the files are plain tensors and values."""
    classifier = drawn(classifier_shapes(), 5)
    settings = config(tensors[3], num_heads=8)
    run = import_field(
        checkpoint(tmp_path / "a.pth", tensors[3], config=settings),
        tmp_path / "run",
        classifier=classifier_checkpoint(tmp_path / "b.pth", classifier),
        **files,
    )
    again, field, tasks, vectors = back(run.folder, tmp_path)
    for written, expected in (
        (field["ema"], tensors[3]),
        (field["model"], tensors[3]),
        (tasks["model"], classifier),
    ):
        assert set(written) == set(expected)
        for name, tensor in expected.items():
            torch.testing.assert_close(written[name], tensor, rtol=0, atol=1e-6)
    ours, theirs = (flattened(one) for one in (field["config"], settings))
    assert ours == {name: theirs.get(name, TASKS) for name in ours}
    np.testing.assert_array_equal(vectors, text)
    plans = [one.planner.plan(queries(observations), 5) for one in (run, again)]
    for ours, theirs in zip(*plans, strict=True):
        np.testing.assert_array_equal(ours.actions, theirs.actions)
        np.testing.assert_array_equal(ours.energies, theirs.energies)


@pytest.mark.nightly
def test_a_trained_field_comes_back(world, tmp_path):
    """With learned vectors of the actions, which come back as if they were of text."""
    changes = {"training.optimiser.epochs": 1, "training.negatives.count": 4}
    changes |= {"training.stopping.windows": 3, "training.stopping.candidates": 30}
    changes |= {"classifier_training.optimiser.epochs": 1, "training.stopping.every": 1}
    settings = load_config("released", method="cefito", horizon=3, overrides=changes)
    run = train_run(world, tmp_path / "run", config=settings, horizon=3, seed=0)
    again, *_ = back(run.folder, tmp_path)
    windows = cut_windows(world, horizon=3, split="test").sample(20, 0)
    arrays = (windows.initial, windows.goal, windows.actions)
    energies = [one.energy(*map(torch.from_numpy, arrays)) for one in (run, again)]
    assert torch.equal(*energies)
    of_windows = Queries.from_windows(windows)
    ours, theirs = (one.planner.task_model.log_probabilities(of_windows) for one in (run, again))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"width": 16, "heads": 2}, "width = 16"),
        ({"distance": "l2", "centre": True}, "distance = 'l2', centre = True"),
        ({"directions": "both"}, "directions = 'both'"),
        ({"action_encoding": "observed"}, "action_encoding = 'observed'"),
    ],
)
def test_fields_of_another_form_are_not_exported(changes, words, run):
    """By the name of each setting that departs."""
    field = make_field(
        config=run.planner.field.config.model_copy(update=changes),
        action_vectors=torch.zeros(K, TEXT),
        **{"observation_dim": E, "action_count": K, "horizon": 3},
    )
    planner = replace(run.planner, incremental=incremental_field(field.eval()))
    with pytest.raises(RunError, match=f"no energy field with {words}\\."):
        to_checkpoints(planner, "run")


def test_what_is_not_exported(folder, tmp_path, run_of_lengths):
    target = tmp_path / "out.pth"
    with pytest.raises(RunError, match="has no energy field"):
        export_field(run_of_lengths.folder, target)
    beside = tmp_path / "out-action-text.npy"
    beside.write_text("mine")
    with pytest.raises(DataError, match=r"out-action-text\.npy: exists already"):
        export_field(folder, target)
    assert list(tmp_path.iterdir()) == [beside]
    assert export_field(folder, tmp_path / "b.pth")[2:] == []  # it has no task classifier
