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

# Gradients of each step of the field loss, by one process or by those of torchrun. Eleven windows
# in batches of five leave a last batch of one, of which the second process gets nothing.
SCRIPT = """
import sys
from pathlib import Path
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from cefito.files import write_tensors
from cefito.runtime import processes
from cefito.training.settings import EmaConfig, OptimiserConfig, StoppingConfig
from cefito.training.trainer import Training
from training.made import windows
from training.test_field_loss import field_loss

tensors, folder = {}, Path(sys.argv[1])
kinds = {
    "mean": {"loss": {"margin": {"low": 0.2, "high": 1.0}}},
    "violating": {
        "loss": {"reduction": "violating"},
        "auxiliary": {"negatives": True, "goal": "predicted"},
    },
}
with processes(torch.device("cpu")) as (group, _):
    for kind, changes in kinds.items():
        loss = field_loss(
            data=windows(tuple(range(11))),
            score=lambda field, group: {"score": 0.0},
            augmentation={"noise": 0.2, "swap": 0.3},
            **changes,
        )
        step = 0

        def look(optimiser, *_):
            global step
            step += 1
            for name, parameter in loss.module.named_parameters():
                if parameter.grad is not None:
                    tensors[f"{kind}.{step}.{name}"] = parameter.grad.clone()

        handle = register_optimizer_step_pre_hook(look)
        if group.first:
            (folder / kind).mkdir(parents=True)
        group.wait()
        Training(
            loss,
            optimiser=OptimiserConfig(epochs=1, batch_size=5, clip=1.0, learning_rate=0.01),
            ema=EmaConfig(decay=0.5),
            stopping=StoppingConfig(),
            seed=0,
            key="",
            group=group,
            folder=folder / kind,
        ).run()
        handle.remove()
    write_tensors(folder / f"{group.rank}.safetensors", tensors)
"""


def test_one_process():
    with processes(torch.device("cpu")) as (group, device):
        assert group == Processes(rank=0, world=1)
        assert device == torch.device("cpu")
    assert group.first
    value = torch.tensor([1.0, 2.0])
    assert group.sum(value) is value
    assert group.share(value).tolist() == [1, 2]
    group.wait()
    group.sum_gradients([])


@pytest.mark.parametrize(("rows", "world"), [(7, 2), (1, 3), (0, 2), (6, 3)])
def test_shares_are_a_partition(rows, world):
    group = [Processes(rank=rank, world=world) for rank in range(world)]
    shares = [one.share(torch.arange(rows)).tolist() for one in group]
    assert sorted(row for share in shares for row in share) == list(range(rows))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert [one.first for one in group] == [True] + [False] * (world - 1)


@pytest.mark.slow
def test_two_processes_compute_the_gradients_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    done = subprocess.run(
        [sys.executable, *launcher, str(script), str(tmp_path / "two")],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path / "one")])
    runpy.run_path(str(script))
    one, two, second = (
        load_tensors(tmp_path / f"{name}.safetensors", "pt", "")[0]
        for name in ("one/0", "two/0", "two/1")
    )
    assert one.keys() == two.keys() == second.keys()
    assert {key.split(".")[1] for key in one} == {"1", "2", "3"}
    for key, expected in one.items():
        assert torch.equal(two[key], second[key]), key
        # later steps begin from weights that Adam moved by the rounding of gradients that are
        # nothing but rounding
        tolerance = 1e-6 if ".1." in key else 1e-3
        bounds = {"rtol": 100 * tolerance, "atol": tolerance}
        torch.testing.assert_close(two[key], expected, **bounds, msg=lambda m, k=key: f"{k}: {m}")
    for kind in ("mean", "violating"):
        ours, theirs = (
            read_metrics(tmp_path / name / kind / "metrics.jsonl") for name in ("two", "one")
        )
        for key in ("loss", "contrastive", "auxiliary"):
            assert ours[0][key] == pytest.approx(theirs[0][key], rel=1e-3)
