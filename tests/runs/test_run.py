import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cefito.cli import main
from cefito.data import Annotations
from cefito.data.prepared import write_dataset
from cefito.data.simulation.world import WorldKnobs, write_world
from cefito.data.windows import cut_windows
from cefito.errors import ConfigError, DataError, RunError, SamplingError
from cefito.files import load_tensors, write_tensors
from cefito.locks import LOCK_FILE, locked
from cefito.parts.folder import recorded
from cefito.planners.methods import METHODS, load_config
from cefito.planners.queries import Queries
from cefito.runs.run import open_run
from cefito.runs.train import train_run
from cefito.search.settings import SearchConfig, search_settings
from cefito.training import trainer
from refusals import refusal
from tiny_runs import TINY_RUN, contents, stopping_after

TINY = TINY_RUN | {"training.optimiser.epochs": 2, "chain.width": 8, "search.fitting_windows": 10}
MANY = TINY | {"training.negatives.count": 10**8}
CONFIG = load_config("paper", overrides=TINY)
FREQUENT = load_config("paper", method="frequent", overrides=TINY, shared=True)
WEIGHTS = ("field.safetensors", "classifier.safetensors", "chain.safetensors")


def train(dataset, folder, **given):
    options = {"config": CONFIG, "horizon": 3, "seed": 0, "keep_checkpoints": True, **given}
    return train_run(dataset, folder, **options)


@pytest.fixture(scope="module")
def trained(world, tmp_path_factory):
    """A finished run, not to be changed."""
    return train(world, tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def folder(trained, tmp_path):
    """A copy of the finished run, to be changed."""
    return Path(shutil.copytree(trained.folder, tmp_path / "copy"))


def same_weights(left, right):
    return all(
        (left / name).read_bytes() == (right / name).read_bytes()
        for name in (*WEIGHTS, "prior.safetensors")
    )


def queries(world, split="test"):
    return Queries.from_windows(cut_windows(world, horizon=3, split=split))


def other_world(world, folder, *, keep=bool, scale=lambda _: 1, video=lambda video: video):
    """The same data set with some videos only, with other observations or with other videos."""
    of_rows = [one for one in world.videos for _ in one.steps]
    rows = np.array([keep(one) for one in of_rows])
    scales = np.array([scale(one) for one in of_rows], world.start.dtype)[rows, None]
    return write_dataset(
        folder,
        name=world.name,
        provenance=world.provenance,
        annotations=Annotations(world.taxonomy, tuple(map(video, filter(keep, world.videos)))),
        start=world.start[rows] * scales,
        end=world.end[rows] * scales,
    )


def test_an_opened_run_plans_as_the_trained_one(trained, world):
    opened = open_run(str(trained.folder))
    assert opened.info == trained.info
    assert opened.taxonomy == trained.taxonomy == world.taxonomy
    ours: Any = trained.planner
    theirs: Any = opened.planner
    assert theirs.settings == CONFIG.settings
    assert opened.planner.horizon == opened.horizon == 3
    plans = ours.plan(queries(world), 3), theirs.plan(queries(world), 3)
    for left, right in zip(*plans, strict=True):
        np.testing.assert_array_equal(left.actions, right.actions)
        np.testing.assert_array_equal(left.energies, right.energies)
    assert theirs.fitted == ours.fitted


def test_what_a_run_folder_holds(trained, world):
    files = {"run.json", "taxonomy.json", "manifest.json", "videos.json", "planner.json"}
    files |= {"prior.safetensors", *WEIGHTS, "classifier", "field", "chain"}
    assert {path.name for path in trained.folder.iterdir()} == files
    info = json.loads((trained.folder / "run.json").read_text())
    assert info["dataset"] == {
        "name": world.name,
        "path": str(world.folder.resolve()),
        "fingerprint": world.fingerprint,
        "observed": None,
        "simulation": {"seed": 0, "knobs": world.provenance["knobs"]["observations"]},
    }
    expected = {"method": "cefito", "horizon": 3, "seed": 0, "preset": "paper"}
    expected |= {"finished": True, "selection": "held-out", "tasks_without_training": []}
    assert {name: info[name] for name in expected} == expected
    assert info["config"] == CONFIG.sections
    assert info["versions"].keys() == {"cefito", "torch", "numpy", "python"}
    assert info["parameters"].keys() == {"energy field", "task classifier", "chain"}
    assert info["windows"] == {
        split: len(cut_windows(world, horizon=3, split=split)) for split in ("train", "val")
    }
    for name, place in (("energy field", "field"), ("task classifier", "classifier")):
        result = info["training"][name]
        assert (result["epochs"], result["resumed"]) == (2, False)
        text = (trained.folder / place / "metrics.jsonl").read_text()
        assert [json.loads(line)["epoch"] for line in text.splitlines()] == [1, 2]


def test_energies_of_plans(trained, frequent, world):
    """The plan's energy is the one that planning shows, and it has a gradient."""
    run, windows = trained, cut_windows(world, horizon=3, split="test").subset([0])
    plans = run.planner.plan(Queries.from_windows(windows), 1)[0]
    both = (windows.initial, windows.goal)
    start, goal = (torch.tensor(each).float().requires_grad_() for each in both)
    found = run.energy(start, goal, torch.tensor(plans.actions))
    assert found.item() == pytest.approx(float(plans.energies[0]), rel=1e-4)
    found.sum().backward()
    assert goal.grad.abs().sum() > 0
    with pytest.raises(RunError, match="has no energy field"):
        frequent.energy(start, goal, torch.tensor(plans.actions))
    for ids in (plans.actions[:, :2], plans.actions - 1000, plans.actions.astype(np.float32)):
        with pytest.raises(ConfigError, match=r"expected (observations|ids of actions)"):
            run.energy(start, goal, torch.tensor(ids))


def test_another_search(trained, frequent, world):
    """The run stays as it is, whatever is made of it."""
    settings = search_settings(trained.trained_search, method="guided", proposals=4)
    other = trained.with_search(settings)
    assert other.planner.describe().search == settings
    assert trained.planner.describe().search == trained.trained_search == CONFIG.settings.search
    assert trained.settings.search == CONFIG.settings.search == other.trained_search
    assert (other.folder, other.info) == (trained.folder, trained.info)
    asked = queries(world).subset([0])
    assert other.planner.plan(asked, 1)[0].evaluated != trained.planner.plan(asked, 1)[0].evaluated
    assert frequent.trained_search is None
    with pytest.raises(ConfigError, match="no search to choose"):
        frequent.with_search(SearchConfig())


def test_a_data_set_that_has_moved(trained, world, tmp_path):
    assert trained.dataset().fingerprint == world.fingerprint
    moved = Path(shutil.copytree(world.folder, tmp_path / "moved"))
    assert trained.dataset(moved).folder == moved
    place = trained.info.dataset.model_copy(update={"path": str(tmp_path / "gone")})
    gone = replace(trained, info=trained.info.model_copy(update={"dataset": place}))
    with pytest.raises(RunError, match=r"no longer at .*gone\.") as caught:
        gone.dataset()
    assert caught.value.setting == "dataset"
    assert gone.dataset(moved).fingerprint == world.fingerprint
    with pytest.raises(DataError, match="nowhere"):
        trained.dataset(tmp_path / "nowhere")
    other = write_world(tmp_path / "gone", seed=1, knobs=WorldKnobs(train=6, val=6, test=6, dim=8))
    assert trained.dataset(other.folder).fingerprint == other.fingerprint
    with pytest.raises(RunError, match=rf"was trained on another .* {other.fingerprint[:12]}…"):
        gone.dataset()


@pytest.mark.parametrize(
    "steps", [3, *(pytest.param(count, marks=pytest.mark.nightly) for count in (0, 1, 5))]
)
def test_an_interrupted_training_goes_on_to_the_same_weights(steps, trained, world, tmp_path):
    """Two epochs of one step for classifier, chain and field, then the objective."""
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(world, folder, progress=stopping_after(steps))
    with pytest.raises(RunError, match=r"not finished\. Continue it"):
        open_run(folder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        state = torch.get_rng_state()
        train(world, folder)
        assert torch.equal(torch.get_rng_state(), state)
    assert same_weights(folder, trained.folder)
    assert open_run(folder).info.finished
    for name in ("field", "classifier", "chain"):
        lines = (folder / name / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["epoch"] for line in lines] == [1, 2]


def test_a_finished_run_keeps_no_checkpoints(folder, world, trained):
    kept = set(contents(folder))
    assert {name for name in kept if name.endswith("checkpoint.safetensors")}
    train(world, folder, keep_checkpoints=False)
    assert kept - set(contents(folder)) == {
        f"{part}/checkpoint.safetensors" for part in ("field", "classifier", "chain")
    }
    assert same_weights(folder, trained.folder)
    assert train(world, folder, keep_checkpoints=False, reuse=True).folder == folder


def test_training_again_does_nothing_and_gives_the_same(folder, world, trained, monkeypatch):
    def no_step(*_, **__):
        raise AssertionError("trained again")

    monkeypatch.setattr(trainer.Training, "step", no_step)
    before = contents(folder)
    again = train(world, folder)
    assert all(training.resumed for training in again.info.training.values())
    after = contents(folder)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"run.json", "manifest.json"}
    assert after.keys() == before.keys()
    assert same_weights(folder, trained.folder)
    assert [part.scores for part in open_run(folder).info.training.values()] == [
        part.scores for part in trained.info.training.values()
    ]


def test_a_finished_run_stays_one_while_training_is_called_again(folder, world, monkeypatch):
    def fit(*_, **__):
        assert open_run(folder)
        raise ZeroDivisionError

    monkeypatch.setattr("cefito.planners.cefito.planner.CefitoPlanner.fit", fit)
    with pytest.raises(ZeroDivisionError):
        train(world, folder)
    open_run(folder)


def reversed_steps(video):
    return replace(video, steps=video.steps[::-1]) if video.split == "test" else video


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"keep": lambda video: video.split != "test"}, marks=pytest.mark.nightly),
        {"scale": lambda video: 1000 ** (video.split == "test"), "video": reversed_steps},
    ],
    ids=["absent", "poisoned and relabelled"],
)
def test_training_never_sees_the_test_split(change, trained, world, tmp_path):
    other = other_world(world, tmp_path / "data", **change)
    assert other.fingerprint != world.fingerprint
    run = train(other, tmp_path / "run")
    assert same_weights(run.folder, trained.folder)
    assert run.info.training == trained.info.training


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("seed", {"seed": 1}),
        ("horizon", {"horizon": 2}),
        ("config", {"config": load_config("paper", overrides=TINY | {"field.depth": 2})}),
        ("dataset", {}),
    ],
)
def test_a_folder_with_another_run_is_refused(what, change, folder, world, tmp_path):
    before = contents(folder)
    if what == "dataset":
        world = other_world(world, tmp_path / "data", keep=lambda video: video.split != "test")
    with pytest.raises(RunError, match=f"another {what}, "):
        train(world, folder, **change)
    assert contents(folder) == before


def test_foreign_folders_are_refused(world, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("keep")
    (tmp_path / "file").write_text("keep")
    for name, reason in (
        ("mine", "is not empty and holds no run"),
        ("file", r"cannot be made \(File exists\)"),
    ):
        with pytest.raises(RunError, match=f"{name}: {reason}. Choose another folder"):
            train(world, tmp_path / name)
    with pytest.raises(RunError, match="cannot be made"):
        train(world, tmp_path / "file" / "below")
    assert contents(tmp_path) == {"mine/thesis.tex": b"keep", "file": b"keep"}


def test_two_trainings_do_not_share_a_folder(world, tmp_path):
    call = {"config": load_config("paper", method="nearest")}
    with (
        locked(tmp_path / "run", "a training"),
        pytest.raises(RunError, match=r"\(a training, process \d+, "),
    ):
        train(world, tmp_path / "run", **call)
    with pytest.raises(DataError, match="gives no windows"):
        train(world, tmp_path / "new" / "run", **{**call, "horizon": 300})
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    (tmp_path / "run" / LOCK_FILE).touch()  # of one that was killed
    assert train(world, tmp_path / "run", **call).info.finished
    assert not (tmp_path / "run" / LOCK_FILE).exists()


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ([], ""),
        ({"nonsense": 1}, "nonsense"),
        ({"format_version": 2}, "format_version"),
        ({"horizon": None}, "horizon"),
        ({"selection": "guessed"}, "selection"),
        ({"config": []}, "config"),
        ({"dataset": {"name": "world", "path": "/", "fingerprint": 3}}, "dataset.fingerprint"),
        ({"parameters": {"energy field": "many"}}, "parameters.energy field"),
        ({"config": {"field": {"width": "wide"}}}, r"setting 'field\.width'"),
        ({"method": "oracle"}, "no method 'oracle'"),
    ],
)
def test_a_run_file_with_something_else_is_refused(change, place, folder, world):
    info = json.loads((folder / "run.json").read_text())
    with recorded(folder):
        (folder / "run.json").write_text(json.dumps({**info, **change} if change else change))
    match = rf"run\.json: (not a run of this version \()?{place}"
    assert len(refusal(RunError, open_run, folder, match=match)) < 500
    with pytest.raises(RunError, match=r"run\.json: (not a run|format)|with another"):
        train(world, folder)


def test_a_finished_run_without_its_manifest_is_refused(folder):
    (folder / "manifest.json").unlink()
    refusal(RunError, open_run, folder, match=r"manifest\.json: no such file")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("planner.json", lambda _: []),
        ("planner.json", lambda value: {**value, "weights": {}}),
        ("planner.json", lambda value: {**value, "horizon": "three"}),
        ("planner.json", lambda value: {**value, "horizon": -3}),
        ("planner.json", lambda value: {**value, "taxonomy": {}}),
        ("chain.safetensors", None),
    ],
)
def test_planner_files_edited_by_hand_are_refused(name, change, folder):
    with recorded(folder):
        if change is None:  # loses its metadata
            write_tensors(folder / name, load_tensors(folder / name, "pt", "")[0])
        else:
            (folder / name).write_text(json.dumps(change(json.loads((folder / name).read_text()))))
    run = open_run(folder)
    refusal(RunError, lambda: run.planner, match=r"/copy: .*Train it again")


@pytest.mark.parametrize(
    "problem",
    [
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
)
@pytest.mark.parametrize("where", ["build", "read"])
def test_too_little_memory_is_not_a_wrong_file(problem, where, folder, monkeypatch, capsys):
    def fail(*args, **kwargs):
        raise problem

    if where == "build":
        monkeypatch.setattr("torch.nn.Module.load_state_dict", fail)
    else:
        monkeypatch.setattr("safetensors.safe_open", fail)
    assert main(["evaluate", str(folder), "--device", "cpu"]) == 1
    assert "error: not enough memory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"horizon": 0}, DataError, "horizon 0.*at least 1"),
        ({"seed": 2**63}, ConfigError, f"seed {2**63}"),
        ({"config": load_config("paper", overrides=MANY)}, SamplingError, "negatives"),
    ],
)
def test_arguments_that_are_refused_leave_nothing(change, error, message, world, tmp_path):
    with pytest.raises(error, match=message):
        train(world, tmp_path / "new" / "run", **change)
    assert list(tmp_path.iterdir()) == []


def full_disk(monkeypatch, *names):
    """Files of these names can no longer be written."""
    write = Path.write_bytes

    def write_bytes(self, data):
        if any(self.name.startswith(f".{name}.") for name in names):
            write(self, data[:10])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(self, data)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)


@pytest.mark.parametrize(
    "name",
    ["field.safetensors", "planner.json", "run.json", "checkpoint.safetensors", "metrics.jsonl"],
)
def test_a_full_disk_leaves_the_files_that_were_there(name, folder, world, monkeypatch):
    if name == "checkpoint.safetensors":  # one that still has to be written
        shutil.rmtree(folder / "field")
    before = contents(folder)
    full_disk(monkeypatch, name)
    with pytest.raises(RunError, match=f"{name}: .*No space left"):
        train(world, folder)
    after = contents(folder)
    after.pop("field/metrics.jsonl", None)
    before.pop("field/metrics.jsonl", None)
    assert after == before
    open_run(folder)


def test_validation_is_held_out_where_there_is_no_such_split(tiny_dataset, tmp_path):
    assert all(video.split != "val" for video in tiny_dataset.videos)
    run = train(tiny_dataset, tmp_path / "run", horizon=1)
    assert run.info.windows == {"train": 24, "val": 1}
    assert open_run(run.folder).planner.horizon == 1


# Other methods, other selections, shared trainings


@pytest.fixture(scope="module")
def frequent(world, tmp_path_factory):
    """A finished run of another method, not to be changed."""
    return train(world, tmp_path_factory.mktemp("runs") / "run", config=FREQUENT)


def steps_of(monkeypatch):
    """The networks whose steps are trained from now on."""
    trained, step = [], trainer.Training.step
    monkeypatch.setattr(
        trainer.Training,
        "step",
        lambda self, *rest: (trained.append(type(self.module).__name__), step(self, *rest))[1],
    )
    return trained


def test_a_method_without_settings_or_training(world, tmp_path):
    run = train(world, tmp_path / "run", config=load_config("paper", method="nearest"))
    files = {"run.json", "taxonomy.json", "manifest.json", "videos.json", "windows.safetensors"}
    assert {path.name for path in run.folder.iterdir()} == files
    assert (run.info.parameters, run.info.training) == ({}, {})
    # it uses no settings, so others are no other run
    train(world, run.folder, config=load_config("small", method="nearest"))
    with pytest.raises(RunError, match="holds a run with another method"):
        train(world, run.folder, config=FREQUENT)


def test_only_settings_and_code_of_the_method_matter(frequent, world, tmp_path, monkeypatch):
    folder = Path(shutil.copytree(frequent.folder, tmp_path / "copy"))

    def again(**changes):
        config = load_config("paper", method="frequent", overrides={**TINY, **changes}, shared=True)
        train(world, folder, config=config)

    again(**{"field.depth": 2})
    with pytest.raises(RunError, match="holds a run with another config"):
        again(**{"classifier.dropout": 0.5})
    monkeypatch.setattr(METHODS, "code", lambda _: "that of a package, which has changed")
    with pytest.raises(RunError, match="by other code of a package"):
        again()


def test_a_package_that_has_changed_since_is_said(world, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(METHODS, "package", lambda _: ("numpy", "2"))
    monkeypatch.setattr(METHODS, "code", lambda _: "before")
    config = load_config("paper", method="nearest")
    folder = train(world, tmp_path / "run", config=config).folder
    train(world, open_run(folder).folder, config=config)
    assert not caplog.messages
    monkeypatch.setattr(METHODS, "code", lambda _: "now")
    open_run(folder)
    (said,) = caplog.messages
    assert "run.json: the code of the package numpy has changed since its training" in said
    with pytest.raises(RunError, match="another code of its package"):
        train(world, folder, config=config)


def test_another_selection_is_another_run(frequent, world, tmp_path):
    folder = Path(shutil.copytree(frequent.folder, tmp_path / "copy"))
    with pytest.raises(RunError, match="holds a run with another selection"):
        train(world, folder, config=FREQUENT, selection="published")
    run = train(world, tmp_path / "run", config=FREQUENT, selection="published")
    assert run.info.windows["val"] == len(cut_windows(world, horizon=3, split="test"))
    (tmp_path / "run" / "run.json").unlink()
    shutil.rmtree(folder / "classifier")
    shutil.copytree(tmp_path / "run" / "classifier", folder / "classifier")
    # nor is its checkpoint taken for this one's
    with pytest.raises(RunError, match="cannot be resumed with these"):
        train(world, folder, config=FREQUENT)


def test_equal_trainings_are_shared(trained, frequent, world, tmp_path, monkeypatch):
    steps, shared = steps_of(monkeypatch), tmp_path / "trainings"
    given = {"trainings": shared}
    first = train(world, tmp_path / "first", config=FREQUENT, **given)
    assert set(steps) == {"TaskClassifier"}
    assert (first.folder / "classifier.safetensors").read_bytes() == (
        frequent.folder / "classifier.safetensors"
    ).read_bytes()
    steps.clear()
    second = train(world, tmp_path / "second", **given)
    assert set(steps) == {"ChainNetwork", "EnergyField"}
    assert same_weights(second.folder, trained.folder)  # as without sharing
    parts = {path.name.split("-")[0] for path in shared.iterdir()}
    assert parts == {"classifier", "field", "chain"}
    # checkpoints lie with the trainings
    assert all(path.is_file() for path in second.folder.iterdir())
    assert second.info.training["task classifier"].resumed is True
    steps.clear()
    train(world, tmp_path / "third", config=FREQUENT, selection="published", **given)
    train(world, tmp_path / "fourth", config=FREQUENT, seed=1, **given)
    train(world, tmp_path / "fifth", config=FREQUENT, horizon=2, **given)
    assert len(list(shared.glob("classifier-*"))) == 4
    assert set(steps) == {"TaskClassifier"}


def test_a_finished_run_is_opened_again(folder, frequent, world, tmp_path, monkeypatch):
    monkeypatch.setattr(trainer.Training, "__init__", lambda *_, **__: 1 / 0)
    before = contents(folder)
    again = train(world, folder, reuse=True)
    assert contents(folder) == before
    assert again.info.finished
    copied = Path(shutil.copytree(frequent.folder, tmp_path / "frequent"))
    assert train(world, copied, config=FREQUENT, reuse=True).planner.name
    with pytest.raises(RunError, match="holds a run with another seed"):
        train(world, copied, config=FREQUENT, seed=1, reuse=True)
    (copied / "classifier.safetensors").write_bytes(b"")
    with pytest.raises(RunError, match=r"classifier\.safetensors: has changed since"):
        train(world, copied, config=FREQUENT, reuse=True)
    with pytest.raises(ZeroDivisionError):  # nothing to be opened there
        train(world, tmp_path / "new", config=FREQUENT, reuse=True)


def test_metrics_of_epochs_are_lines_that_pandas_reads(trained):
    pandas = pytest.importorskip("pandas")
    read = pandas.read_json(trained.folder / "chain" / "metrics.jsonl", lines=True)
    kept = trained.info.training["chain"]
    assert len(read) == kept.epochs
    assert [*read["epoch"]] == [*range(1, kept.epochs + 1)]
