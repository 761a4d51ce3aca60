import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cefito.files import load_tensors
from cefito.runtime import Processes, processes
from cefito.training.log import read_metrics

# Steps of the field loss whose gradients are written down, by one process or by those of
# torchrun. Eleven windows in batches of five leave a last batch of one, of which the second process
# gets nothing.
SCRIPT = """
import sys
from pathlib import Path
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from cefito.field.classifier import TaskClassifier
from cefito.field.energy import EnergyField
from cefito.field.settings import ClassifierConfig, FieldConfig
from cefito.files import write_tensors
from cefito.training.settings import (
    ClassifierTrainingConfig,
    EmaConfig,
    FieldTrainingConfig,
    OptimiserConfig,
    StoppingConfig,
)
from cefito.runtime import processes
from cefito.training.losses import ClassifierLoss
from cefito.training.field_loss import FieldLoss
from cefito.training.trainer import train
from random_fields import randomise
from training.made import ACTIONS, E, K, T, windows

data = windows(tuple(range(11)))
losses = {
    "mean": {"loss": {"kind": "triplet", "reduction": "mean", "margin": {"low": 0.2, "high": 1.0}}},
    "violating": {
        "loss": {"reduction": "violating"},
        "auxiliary": {"negatives": True, "goal": "predicted"},
    },
    "softmax": {"loss": {"kind": "softmax", "temperature": 0.5}, "auxiliary": {"weight": 0.5}},
}
tensors = {}


def settings():
    return {
        "optimiser": OptimiserConfig(epochs=1, batch_size=5, clip=1.0, learning_rate=0.01),
        "ema": EmaConfig(decay=0.5),
        "stopping": StoppingConfig(),
        "seed": 0,
        "key": "",
    }


with processes(torch.device("cpu")) as (group, _):
    for name, changes in losses.items():
        config = FieldConfig(width=16, heads=2, depth=2, mlp_ratio=2, action_dim=5)
        field = EnergyField(config=config, observation_dim=E, action_count=K, horizon=T)
        randomise(field, torch.Generator().manual_seed(0))
        config = FieldTrainingConfig.model_validate(
            {"negatives": {"count": 8}, **changes, "augmentation": {"noise": 0.2, "swap": 0.3}}
        )
        loss = FieldLoss(
            field=field,
            train=data,
            actions=ACTIONS,
            config=config,
            score=lambda field, group: {"score": 0.0},
        )
        names, step = {id(parameter): key for key, parameter in field.named_parameters()}, 0

        def look(optimiser, *_):
            global step
            step += 1
            for parameter in optimiser.param_groups[0]["params"]:
                tensors[f"{name}.{step}.{names[id(parameter)]}"] = parameter.grad.clone()

        handle = register_optimizer_step_pre_hook(look)
        folder = Path(sys.argv[2]) / name
        if group.first:
            folder.mkdir(parents=True)
        group.wait()
        train(loss, group=group, folder=folder, **settings())
        handle.remove()
    classifier = TaskClassifier(
        config=ClassifierConfig(hidden=(4, 4, 4)), observation_dim=E, task_count=2
    )
    classifier.reset(torch.Generator().manual_seed(0))
    loss = ClassifierLoss(
        classifier=classifier, train=data, val=data, config=ClassifierTrainingConfig()
    )
    train(loss, group=group, **settings())
    tensors |= {f"classifier.{key}": tensor for key, tensor in classifier.state_dict().items()}
    write_tensors(Path(sys.argv[1] + f"-{group.rank}.safetensors"), tensors)
"""


def test_one_process():
    with processes(torch.device("cpu")) as (group, device):
        assert group == Processes(rank=0, world=1)
        assert device == torch.device("cpu")
    assert group.first
    value = torch.tensor([1.0, 2.0])
    assert group.sum(value) is value
    assert group.share(value) is not None
    assert group.share(value).tolist() == [1, 2]
    group.wait()
    group.sum_gradients([])


@pytest.mark.parametrize(("rows", "world"), [(7, 2), (1, 3), (0, 2), (6, 3)])
def test_shares_are_a_partition(rows, world):
    shares = [
        Processes(rank=rank, world=world).share(torch.arange(rows)).tolist()
        for rank in range(world)
    ]
    assert sorted(row for share in shares for row in share) == list(range(rows))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    first = [rank for rank in range(world) if Processes(rank=rank, world=world).first]
    assert first == [0]


@pytest.mark.slow
def test_two_processes_compute_the_gradients_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    arguments = [str(script), str(tmp_path / "two"), str(tmp_path / "two-runs")]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
            *arguments,
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    monkeypatch.setattr(
        sys, "argv", [str(script), str(tmp_path / "one"), str(tmp_path / "one-runs")]
    )
    runpy.run_path(str(script))
    one, two, second = (
        load_tensors(tmp_path / f"{name}.safetensors", "pt", "")[0]
        for name in ("one-0", "two-0", "two-1")
    )
    assert one.keys() == two.keys() == second.keys()
    assert {key.split(".")[1] for key in one if not key.startswith("classifier")} == {"1", "2", "3"}
    for key, expected in one.items():
        assert torch.equal(two[key], second[key]), key
        # later steps begin from weights that Adam moved by the rounding of gradients that are
        # nothing but rounding
        tolerance = 1e-6 if ".1." in key else 1e-3
        bounds = {"rtol": 100 * tolerance, "atol": tolerance}
        torch.testing.assert_close(two[key], expected, **bounds, msg=lambda m, k=key: f"{k}: {m}")
    for name in ("mean", "violating", "softmax"):
        ours, theirs = (
            read_metrics(tmp_path / f"{folder}-runs" / name / "metrics.jsonl")
            for folder in ("two", "one")
        )
        assert len(ours) == len(theirs) == 1
        for key in ("loss", "contrastive", "auxiliary"):
            assert ours[0][key] == pytest.approx(theirs[0][key], rel=1e-3)
