"""Metrics of a training in TensorBoard and Weights & Biases are those of `metrics.jsonl`."""

import json
from importlib import metadata

import pytest
import torch

from cefito.cli import main
from cefito.errors import ConfigError
from cefito.progress import silent
from cefito.training import checkpoint, trackers
from cefito.training.checkpoint import MetricsLog, read_metrics
from cefito.training.settings import TrainingConfig
from cefito.training.steps import Steps, take_steps
from cefito.training.trackers import check_tracker
from cefito.training.trainer import Training, TrainingContext
from cefito.verification.verifier import Verifier
from tiny_runs import as_arguments
from training.test_trainer import Regression
from verification.test_verifier import SMALL, TAXONOMY, shop

LINES = [{"epoch": epoch, "loss": 1 / epoch, "val_score": 2.5 * epoch} for epoch in (1, 2, 3)]


def log(folder, name, *, epoch=0, lines=LINES):
    """Write lines of metrics, after those of earlier epochs."""
    tracked = MetricsLog(folder, epoch, name, about="its settings")
    for line in lines:
        tracked.write(line)
    tracked.close()


def events_of(folder):
    """Return what TensorBoard has of a training."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder)).Reload()


def drawn(folder):
    """Return what TensorBoard draws: (epoch, value) by name."""
    events = events_of(folder)
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def columns(lines):
    """Return (epoch, value) by name, of lines of metrics."""
    return {
        name: [(line["epoch"], pytest.approx(line[name])) for line in lines] for name in lines[0]
    }


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of TensorBoard's own modules
def test_tensorboard_draws_the_metrics_of_a_training(tmp_path):
    pytest.importorskip("tensorboard")
    training = TrainingConfig(optimiser={"epochs": 3, "batch_size": 4, "learning_rate": 0.05})
    options = {"seed": 0, "key": "k", "folder": tmp_path, "track": "tensorboard"}
    Training(Regression(), training=training, **options).run()
    lines = read_metrics(tmp_path / "metrics.jsonl")
    assert len(lines) == 3
    assert drawn(tmp_path) == columns(lines)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_draws_each_epoch_once_after_a_kill(tmp_path):
    pytest.importorskip("tensorboard")
    log(tmp_path, "tensorboard")
    again = [{"epoch": 3, "loss": 0.25, "val_score": 9.0}]
    log(tmp_path, "tensorboard", epoch=2, lines=again)
    assert drawn(tmp_path) == columns([*LINES[:2], *again])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_commands_track_all_trainings(world, tmp_path):
    pytest.importorskip("tensorboard")
    tiny = ["--track", "tensorboard", *as_arguments({"classifier_training.optimiser.epochs": 2})]
    call = ["train", str(world.folder), "--horizon", "2", "--method", "frequent"]
    assert main([*call, "--out", str(tmp_path / "RUN"), *tiny]) == 0
    call = ["compare", str(world.folder), "--horizons", "2", "--planners", "frequent"]
    assert main([*call, "--seeds", "1", "--out", str(tmp_path / "CMP"), *tiny]) == 0
    paths = [*tmp_path.rglob("metrics.jsonl")]
    assert {path.relative_to(tmp_path).parts[0] for path in paths} == {"RUN", "CMP"}
    for path in paths:
        assert drawn(path.parent) == columns(read_metrics(path))
        (said,) = events_of(path.parent).Tensors("training/text_summary")
        (about,) = said.tensor_proto.string_val
        assert '"epochs": 2' in about.decode()  # which tells trainings of a study apart


def test_weights_and_biases_offline(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    monkeypatch.delenv("WANDB_MODE", raising=False)
    (tmp_path / "RUN" / "chain").mkdir(parents=True)
    seen: set = set()
    for epoch, lines in ((0, LINES), (2, [{"epoch": 3, "loss": 0.25, "val_score": 9.0}])):
        log(tmp_path / "RUN" / "chain", "wandb", epoch=epoch, lines=lines)  # the second: resumed
        (path,) = {*tmp_path.rglob("offline-run-*/*.wandb")} - seen
        seen.add(path)
        records: list = []
        while not any(record.HasField("exit") for record in records):  # it writes on a little
            records = [Record.FromString(data) for data in leveldb(path.read_bytes()[7:])]
        (begun,) = (record.run for record in records if record.HasField("run"))
        assert (begun.display_name, begun.run_group, begun.project) == ("chain", "RUN", "cefito")
        settings = {item.key: item.value_json for item in begun.config.update}
        assert settings["training"] == '"its settings"'
        rows = [
            {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in row}
            for record in records
            if (row := record.history.item)
        ]
        assert [{name: row[name] for name in LINES[0]} for row in rows] == [*LINES[:epoch], *lines]


def test_networks_of_parts_are_drawn_by_step(tmp_path, monkeypatch):
    """Each in a folder of its own; one that was not finished, once."""
    opened: list = []

    def tracker(name, folder, written, network, about):
        opened.append((folder.name, network, [*written]))
        return trackers.Tracker(opened.append, lambda: opened.append("closed"))

    monkeypatch.setattr(checkpoint, "open_tracker", tracker)
    context = TrainingContext(folder=tmp_path, name="recogniser", track="tensorboard")

    def train(log):
        def loss():
            losses.append(network(torch.ones(1, 2)).square().sum())
            return losses[-1]

        steps = Steps(count=120, learning_rate=0.1, setting="")
        with silent("") as advance:
            take_steps(network, loss, steps, advance, log("member-1"))
        if len(opened) < 6:
            raise KeyboardInterrupt

    losses: list[torch.Tensor] = []
    network = torch.nn.Linear(2, 1)
    with pytest.raises(KeyboardInterrupt):
        context.keep("whole", network, train, seed=0, settings={})
    for name in ("whole", "past", "past"):
        context.keep(name, network, train, seed=0, settings={})
    lines = read_metrics(tmp_path / "recogniser" / "metrics.jsonl")
    names = ["whole/member-1"] * 3 + ["past/member-1"] * 3
    assert [line["network"] for line in lines] == names
    assert [line["step"] for line in lines] == [50, 100, 120] * 2
    means = [part.mean().item() for part in torch.stack(losses[-120:]).split([50, 50, 20])]
    assert [line["loss"] for line in lines[3:]] == pytest.approx(means)
    rates = [line["learning_rate"] for line in lines[:3]]
    assert 0.1 > rates[0] > rates[1] > rates[2] > 0  # one cycle
    assert opened[0] == opened[5] == ("recogniser", "whole/member-1", [])
    assert len(opened) == 15
    assert [{"network": "whole/member-1", **line} for line in opened[6:9]] == lines[:3]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_draws_a_verifier(tmp_path):
    pytest.importorskip("tensorboard")
    context = TrainingContext(folder=tmp_path, name="verifier", track="tensorboard")
    Verifier.fit(shop(60, 1), TAXONOMY, config=SMALL, context=context)
    lines = read_metrics(tmp_path / "verifier" / "metrics.jsonl")
    names = {line.pop("network"): line for line in lines}
    assert len(names) > 1
    for name, last in names.items():
        for key, points in drawn(tmp_path / "verifier" / name).items():
            assert points[-1] == (last["step"], pytest.approx(last[key]))


def leveldb(data):
    """Yield the records of a log of LevelDB, none of which is in parts, without its header."""
    while len(data) > 7:
        size, kind = int.from_bytes(data[4:6], "little"), data[6]
        assert kind == 1
        yield data[7 : 7 + size]
        data = data[7 + size :]


def test_a_program_that_is_not_installed_is_refused(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(trackers, "version", missing)
    for name in ("tensorboard", "wandb"):
        with pytest.raises(ConfigError, match=rf"^{name}: is not .*\[{name}\]") as caught:
            check_tracker(name)
        assert caught.value.setting == "track"
    check_tracker(None)
