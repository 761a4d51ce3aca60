"""What a run of several lengths has beside its planner: its settings, and its resumed training."""

import json
import os
import shutil
import signal
from dataclasses import dataclass, field, fields

import pytest

from cefito.cli import main
from cefito.errors import ConfigError, RunError
from cefito.parts.folder import RUN_FILE, RunInfo, recorded
from cefito.parts.opened import Opening
from cefito.planners.methods import load_config
from cefito.runs import train as train_module
from cefito.runs.finetune import finetune
from cefito.runs.options import TrainArguments, TrainOptions
from cefito.runs.run import open_run
from cefito.runs.train import train_run
from cefito.serve.models import open_models
from cefito.serve.settings import ServiceSettings
from cefito.training.checkpoint import read_metrics
from robustness.test_kills import ended, forked
from row_films import SMALL, prepared_films
from tiny_runs import TINY_LENGTHS, as_arguments, contents, stopping_after

SETTINGS = {
    f"recogniser.{name}": value for name, value in SMALL.model_dump(exclude_unset=True).items()
} | {
    "recogniser.temporal_layers": 2,
    "recogniser.temporal_steps": 20,
    "recogniser.temporal_passes": 1,
    "recogniser.trusts": [0.3, 1.0],
    "verifier.members": 2,
    **TINY_LENGTHS,
}


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    return prepared_films(tmp_path_factory.mktemp("films"))


def train(films, folder, *, overrides=SETTINGS, **given):
    config = load_config("small", method="any-length", overrides=overrides)
    options = {"horizon": 3, "shortest": 1, "seed": 0, "keep_checkpoints": True, **given}
    return train_run(films, folder, config=config, **options)


@pytest.fixture(scope="module")
def run(films, tmp_path_factory):
    return train(films, tmp_path_factory.mktemp("run"))


def test_settings_of_parts_are_kept(run):
    kept = json.loads((run.folder / "run.json").read_text())["config"]
    assert kept["recogniser"]["members"] == 1
    assert kept["verifier"]["members"] == 2
    opened = open_run(run.folder)
    assert opened.info.config == kept
    assert opened.recogniser.config.temporal_steps == 20
    assert opened.recogniser.config.trusts == (0.3, 1.0)
    assert opened.verifier.config.members == 2


@pytest.mark.parametrize("key", ["recogniser.mebers", "verifier.temporal_layers", "recogniser.x.y"])
def test_an_unknown_setting_of_a_part_is_refused(films, tmp_path, key, capsys):
    call = ["train", str(films.folder), "--steps", "1-3", "--out", str(tmp_path / "run")]
    assert main([*call, "--set", f"{key}=1"]) == 2
    assert f"setting '{key}'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_parts_belong_to_runs_of_several_lengths(capsys):
    with pytest.raises(ConfigError, match="is not read by chain"):
        load_config("small", method="chain", overrides={"recogniser.members": 1})
    assert main(["config", "show", "small", "--method", "any-length", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["recogniser"]["temporal_channels"], shown["verifier"]["folds"]) == (64, 4)


def test_another_setting_of_a_part_is_another_run(films, run):
    with pytest.raises(RunError, match="another config"):
        train(films, run.folder, overrides=SETTINGS | {"recogniser.members": 2})


def test_a_learning_rate_that_diverges_is_named(films, tmp_path):
    with pytest.raises(RunError, match=r"recogniser\.temporal_learning_rate, now 1e\+30"):
        train(films, tmp_path, overrides=SETTINGS | {"recogniser.temporal_learning_rate": 1e30})


@pytest.mark.parametrize("count", [1, 2, 9, 10, 11])
def test_few_steps_are_enough(films, tmp_path, count):
    few = {"recogniser.training_steps": count, "recogniser.temporal_steps": count}
    assert train(films, tmp_path, overrides=SETTINGS | few).recogniser is not None


def test_a_finetuned_run_takes_settings_of_parts(films, run, tmp_path):
    changes = {"recogniser.training_steps": 10}
    made = finetune(run, films, tmp_path, epochs=1, settings=changes)
    assert made.recogniser.config.training_steps == 10
    assert made.info.config["verifier"] == run.info.config["verifier"]
    with pytest.raises(ConfigError, match="networks that it begins with"):
        finetune(run, films, tmp_path / "b", settings={"any_length.hidden": 8})


@pytest.mark.parametrize("option", [[], ["--no-recogniser"]])
def test_a_finetuning_says_first_that_the_recogniser_is_trained_anew(
    films, run, tmp_path, capsys, option
):
    call = ["finetune", str(run.folder), str(films.folder), "--out", str(tmp_path / "further")]
    shorter = ["--set", "recogniser.temporal_passes=1", "--set", "recogniser.temporal_steps=2"]
    shorter += ["--set", "verifier.members=3"]
    assert main([*call, "--epochs", "1", *shorter, *option]) == 0
    said = capsys.readouterr().err
    words = "the recogniser is trained anew, which --epochs does not shorten: --set recogniser."
    assert (words in said) == (not option)
    assert said.find(words) < said.index("best epoch")
    made = open_run(tmp_path / "further")
    assert (made.recogniser is None) == bool(option)
    assert (run.own_verifier.config.members, made.own_verifier.config.members) == (2, 3)
    if not option:
        config = made.recogniser.config
        assert (config.temporal_passes, config.temporal_steps) == (1, 2)


def tensors(folder):
    return {name: data for name, data in contents(folder).items() if name.endswith(".safetensors")}


def metrics(folder):
    """Lines of the metrics of parts, without seconds."""
    lines = read_metrics(folder / "recogniser" / "metrics.jsonl")
    return [{**line, "train_seconds": 0} for line in lines]


def test_metrics_of_a_recogniser(run):
    """Each network has a line for its last step."""
    lines = metrics(run.folder)
    parts = {*(line["network"].partition("/")[0] for line in lines)}
    assert parts == {path.stem for path in run.folder.glob("recogniser/*.safetensors")}
    ends = {line["network"]: line["step"] for line in lines}
    steps = run.recogniser.config
    assert ends["whole/member-1"] == steps.training_steps
    assert ends["ahead/temporal"] == steps.temporal_steps
    assert {"fold-1-past/member-1"} < ends.keys()
    assert {*lines[0]} == {"network", "step", "learning_rate", "loss", "train_seconds"}
    assert len({(line["network"], line["step"]) for line in lines}) == len(lines)
    assert not (run.folder / "verifier").exists()  # which only counted


def test_an_interrupted_training_goes_on_to_the_same_bits(films, run, tmp_path):
    """With the networks that were finished."""
    kept = {}
    for reports in (20, 70, 200, 300):
        with pytest.raises(KeyboardInterrupt):
            train(films, tmp_path, progress=stopping_after(reports))
        times = {path: path.stat().st_mtime_ns for path in (tmp_path / "recogniser").glob("*.saf*")}
        assert times.items() >= kept.items()
        kept = times
    assert 3 <= len(kept) < 7
    train(films, tmp_path)
    assert kept.items() <= {path: path.stat().st_mtime_ns for path in kept}.items()
    assert tensors(tmp_path) == tensors(run.folder)
    assert metrics(tmp_path) == metrics(run.folder)


def test_a_killed_training_goes_on_to_the_same_bits(films, run, tmp_path):
    """By SIGKILL while the recogniser is trained, as soon as a further network is finished."""
    steps = ("--steps", "1-3", "--preset", "small", "--device", "cpu")
    call = ["train", films.folder, *steps, *as_arguments(SETTINGS), "--out", tmp_path]
    call += ["--keep-checkpoints"]
    for finished in (1, 3, 6):
        child = forked(call)
        while len(list(tmp_path.glob("recogniser/*.safetensors"))) < finished:
            assert os.waitpid(child, os.WNOHANG) == (0, 0)
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert ended(forked(call)) == 0
    assert tensors(tmp_path) == tensors(run.folder)
    assert metrics(tmp_path) == metrics(run.folder)


def test_a_finished_run_keeps_no_networks_of_a_training(films, run, tmp_path):
    folder = shutil.copytree(run.folder, tmp_path / "run")
    assert list(folder.glob("recogniser/*.safetensors"))
    train(films, folder, keep_checkpoints=False)
    assert not list(folder.glob("*/*.safetensors"))
    whole = {path.name: path.read_bytes() for path in run.folder.glob("*.safetensors")}
    assert {path.name: path.read_bytes() for path in folder.glob("*.safetensors")} == whole


def test_networks_of_another_training_are_not_taken(films, run, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(films, tmp_path, progress=stopping_after(250))
    first = next((tmp_path / "recogniser").glob("*.safetensors"))
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    with pytest.raises(RunError, match="has changed since it was written"):
        train(films, tmp_path)
    other = next(
        path
        for path in (run.folder / "recogniser").glob("*.safetensors")
        if path.name != first.name
    )
    first.write_bytes(other.read_bytes())
    with pytest.raises(RunError, match="another data set, other settings"):
        train(films, tmp_path)


def test_parts_are_opened_when_they_are_used(run, tmp_path, capsys):
    """From what the folder held on opening, each once."""
    folder = shutil.copytree(run.folder, tmp_path / "run")
    opened = open_run(folder)
    shutil.rmtree(folder)
    held = vars(opened)
    closed = {name for name, value in held.items() if isinstance(value, Opening)}
    assert closed == {"config", "planner", "recogniser", "verifier"}
    assert opened.verifier is opened.changed(files={}).verifier
    assert opened.coverage is None
    assert opened.recogniser.trusts == run.recogniser.trusts
    with_steps = opened.with_steps(1, 2)
    assert (with_steps.steps, opened.steps) == ("1-2", "1-3")
    assert main(["graph", str(run.folder)]) == 0
    assert "edges" in capsys.readouterr().out


def test_orders_need_no_planner(run, tmp_path, capsys):
    """A run whose method is not installed still draws graphs and verifies."""
    folder = shutil.copytree(run.folder, tmp_path / "run")
    info = json.loads((folder / "run.json").read_text())
    with recorded(folder):
        away = {**info, "method": "toy", "package": "cefito-toy", "versions": {}}
        (folder / "run.json").write_text(json.dumps(away))
    assert main(["graph", str(folder)]) == 0
    assert "edges" in capsys.readouterr().out
    opened = open_run(folder, plans=False)
    assert opened.own_verifier.config.members == 2
    for refused in (lambda: opened.planner, lambda: opened.config, lambda: open_run(folder)):
        with pytest.raises(RunError, match=r"run\.json: .* the package cefito-toy"):
            refused()


def test_a_part_that_is_damaged_is_refused_when_it_is_used(run, tmp_path):
    folder = shutil.copytree(run.folder, tmp_path / "run")
    with recorded(folder):
        (folder / "recogniser.json").write_text("{}")
    opened = open_run(folder)
    assert opened.verifier is not None
    for _ in range(2):
        with pytest.raises(RunError, match=r"/run/recogniser\.json.*Train the run again"):
            _ = opened.recogniser
    with pytest.raises(RunError, match="Train the run again"):
        opened.opened()
    with pytest.raises(RunError, match="Train the run again"):  # a service refuses it at once
        open_models(ServiceSettings(runs=(folder,)))
    (folder / "verifier.safetensors").write_bytes(b"")
    with pytest.raises(RunError, match="has changed since"):
        open_run(folder)


def test_callers_name_the_parts_that_they_need(films, tmp_path):
    alone = train(films, tmp_path / "a", parts=())
    assert (alone.recogniser, alone.verifier) == (None, None)
    online = SETTINGS | {"verifier.online": True}
    orders = train(films, tmp_path / "b", parts=("verifier",), overrides=online)
    assert orders.recogniser is None
    assert orders.own_verifier.orders
    assert orders.own_verifier.config.online


def test_the_arguments_of_training_are_its_options():
    given = [field.name for field in fields(TrainOptions)]
    assert [*TrainArguments.__annotations__] == given
    assert TrainOptions.of(TrainOptions(seed=3), {"reuse": True}) == TrainOptions(
        seed=3, reuse=True
    )
    with pytest.raises(TypeError, match="sead"):
        TrainOptions.of(None, {"sead": 1})  # type: ignore[typeddict-unknown-key]


def test_an_option_of_training_is_declared_once(monkeypatch, films, tmp_path):
    """A field of the record is an option of the commands and recorded; a resumption keeps it."""

    @dataclass(frozen=True, kw_only=True)
    class Further(TrainOptions):
        order: str = field(default="random", metadata=fields(TrainOptions)[0].metadata)

    monkeypatch.setattr(train_module, "TrainOptions", Further)
    assert [*Further.of_commands()][-1] == ("order", str, "random")
    usual = train(films, tmp_path / "a", parts=(), order="random")
    assert "options" not in (usual.folder / RUN_FILE).read_text("utf-8")
    other = train(films, tmp_path / "b", parts=(), order="fixed")
    assert RunInfo.read(other.folder).options == {"order": "fixed"}
    with pytest.raises(RunError, match="another option of its training"):
        train(films, tmp_path / "b", parts=())
