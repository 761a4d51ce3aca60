"""The field trained on what the chain leaves open, judged on validation windows.

The candidates of a training window are the sequences likeliest under a chain that was trained on
other videos (folds by video), with the truth among them. A new field of the run's settings is
trained by the softmax of log q - scale * E over them, q being that chain's probability: the scale
begins at zero, where there is no energy, and leaves it only as far as candidates of unseen videos
say. The chain of the run then proposes for validation windows, and the field orders them anew.

No test window is read. After each epoch: success rate, mean accuracy, mean log-likelihood of the
true candidate, and success rate given the true task, with the chain alone, with the scale as
learned, and with half of it.

    python benchmarks/residual.py DATA --run RUN --out benchmarks/results/residual.json
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from cefito.cli.console import talk
from cefito.data import Windows, cut_windows, open_dataset
from cefito.data.windows import video_folds
from cefito.field.fields import CompositeField
from cefito.files import write_json
from cefito.planners.base import Queries
from cefito.planners.cefito.planner import CefitoPlanner
from cefito.planners.crf.model import ChainModel
from cefito.runs.run import open_run
from cefito.training.augmentation import Observations
from cefito.training.trainer import TrainingContext

SHARES = {"chain alone": 0.0, "half of the scale": 0.5, "scale as learned": 1.0}
UNIT = 10.0
"""Energies per unit of the scale, so that its steps suit its size."""


@dataclass(frozen=True)
class Candidates:
    """The k likeliest sequences of N windows under a chain.

    Attributes:
        actions: [N, k, T].
        tasks: [N, k].
        log_q: Log-probabilities under the chain, negative infinity where there are fewer, [N, k].
        right: Which is the truth [N, k].
        log_truth: Log-probability of the truth [N].
    """

    actions: NDArray[np.int64]
    tasks: NDArray[np.int64]
    log_q: NDArray[np.float64]
    right: NDArray[np.bool_]
    log_truth: NDArray[np.float64]

    @classmethod
    def under(cls, chain: ChainModel, windows: Windows, count: int) -> Candidates:
        """Those of windows under a chain."""
        with torch.inference_mode():
            scores = chain.scores(Queries.from_windows(windows))
            best, values = scores.best(count)
            tasks, actions = torch.from_numpy(windows.tasks), torch.from_numpy(windows.actions)
            log_truth = scores.log_probabilities(scores.states.find(tasks, actions))
        found = scores.states.actions[best].numpy()
        of = scores.states.tasks[best[:, :, 0]].numpy()
        right = (found == windows.actions[:, None]).all(axis=2) & (of == windows.tasks[:, None])
        log_q = (values - scores.log_partition()[:, None]).double().numpy()
        return cls(found, of, log_q, right, log_truth.double().numpy())


def out_of_fold(
    planner: CefitoPlanner, train: Windows, val: Windows, folds: int, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Candidates [N, k, T] with log q [N, k] by chains of other videos, and the truth's place [N].

    Where the truth is not among them it takes the last place; -1 where no chain allows it.
    """
    own = video_folds(train.video, folds)
    actions = np.zeros((len(train), count, train.horizon), dtype=np.int64)
    log_q = np.zeros((len(train), count))
    truth = np.full(len(train), -1)
    config = planner.settings.chain.model_copy(update={"members": 1})
    settings = planner.settings.model_copy(update={"chain": config})
    for fold in range(folds):
        inside = np.flatnonzero(own == fold)
        held = train.subset(inside)
        chain, _ = ChainModel.fit(
            train.subset(np.flatnonzero(own != fold)),
            val,
            space=planner.space,
            settings=settings,
            seed=fold,
            context=TrainingContext(),
        )
        found = Candidates.under(chain, held, count)
        hit, known = found.right.any(axis=1), np.isfinite(found.log_truth)
        insert = ~hit & known
        found.actions[insert, -1] = held.actions[insert]
        found.log_q[insert, -1] = found.log_truth[insert]
        actions[inside], log_q[inside] = found.actions, found.log_q
        truth[inside] = np.where(hit, found.right.argmax(axis=1), np.where(known, count - 1, -1))
        talk(f"fold {fold}: {hit.mean():.3f} of the truths are among {count} candidates")
    finite = np.where(np.isfinite(log_q), log_q, -1e4)
    return torch.from_numpy(actions), torch.from_numpy(finite).float(), torch.from_numpy(truth)


def energies(field: CompositeField, initial: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
    """Energies [B, k] of candidates [B, k, T]."""
    batch, count, _ = actions.shape
    initial, goal = (part.repeat_interleave(count, dim=0) for part in (initial, goal))
    flat = actions.reshape(batch * count, -1)
    return field.energy(initial, goal, flat).reshape(batch, count)


def judged(
    field: CompositeField, val: Windows, found: Candidates, scale: float
) -> dict[str, dict[str, float]]:
    """Scores of validation windows with no, half and all of the energy."""
    field.eval()
    ends = [torch.from_numpy(part) for part in (val.initial, val.goal)]
    with torch.inference_mode():
        parts = [
            energies(field, ends[0][rows], ends[1][rows], torch.from_numpy(found.actions)[rows])
            for rows in torch.arange(len(val)).split(32)
        ]
    field.train()
    energy = torch.cat(parts).double().numpy()
    correct = (found.actions == val.actions[:, None]).mean(axis=2)
    given = found.tasks == val.tasks[:, None]
    correct *= given
    every, hit = np.arange(len(val)), found.right.any(axis=1)
    result = {}
    for name, share in SHARES.items():
        score = found.log_q - share * scale * UNIT * energy
        best = correct[every, score.argmax(axis=1)]
        told = correct[every, np.where(given, score, -np.inf).argmax(axis=1)]
        log = score - np.logaddexp.reduce(score, axis=1)[:, None]
        result[name] = {
            "success_rate": 100 * float((best == 1).mean()),
            "mean_accuracy": 100 * float(best.mean()),
            "log_likelihood": float(log[every, found.right.argmax(axis=1)][hit].mean()),
            "success_rate, true task": 100 * float((told == 1).mean()),
        }
    return result


def fit(
    field: CompositeField,
    train: Windows,
    val: Windows,
    given: argparse.Namespace,
    planner: CefitoPlanner,
) -> list[dict[str, Any]]:
    """Train the field on what is left open; what validation windows say after each epoch."""
    actions, log_q, truth = out_of_fold(planner, train, val, given.folds, given.candidates)
    assert planner.chain is not None
    found = Candidates.under(planner.chain, val, 64)
    scale = nn.Parameter(torch.zeros(()))
    groups = [
        {"params": list(field.parameters()), "lr": given.rate, "weight_decay": 0.3},
        {"params": [scale], "lr": 2e-3, "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups)
    rows = (truth >= 0).nonzero()[:, 0]
    steps = given.epochs * -(-len(rows) // given.batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    config = planner.settings.training.augmentation.model_copy(
        update={"noise": given.noise, "swap": 0.0}
    )
    observations = Observations(train, config, torch.device("cpu"))
    generator = torch.Generator().manual_seed(given.seed)
    curve = []
    for epoch in range(1, given.epochs + 1):
        total, began = 0.0, time.process_time()
        for part in torch.randperm(len(rows), generator=generator).split(given.batch):
            batch = rows[part]
            energy = energies(field, *observations.draw(batch, generator), actions[batch])
            loss = F.cross_entropy(log_q[batch] - UNIT * scale * energy, truth[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total += float(loss.detach()) * len(batch)
        row = {
            "epoch": epoch,
            "training_loss": total / len(rows),
            "scale": UNIT * float(scale.detach()),
            "seconds": time.process_time() - began,
            "validation": judged(field, val, found, float(scale.detach())),
        }
        talk(json.dumps(row))
        curve.append(row)
    return curve


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--run", type=Path, required=True, help="of CEFITO, on this data set")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--candidates", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate")
    parser.add_argument("--noise", type=float, default=1.0, help="on observations")
    parser.add_argument("--batch", type=int, default=32, help="windows")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    dataset, planner = open_dataset(given.data), open_run(given.run).planner
    assert isinstance(planner, CefitoPlanner)
    train, val = (
        cut_windows(dataset, horizon=planner.horizon, split=split) for split in ("train", "val")
    )
    field = planner.field
    assert isinstance(field, CompositeField)
    mean = torch.from_numpy(np.concatenate([train.initial, train.goal]).mean(axis=0))
    for number, part in enumerate(field.components.values()):
        part.reset(torch.Generator().manual_seed(given.seed + 1000 * number), mean=mean)
    field.requires_grad_(True).train()
    curve = fit(field, train, val, given, planner)
    value = {
        "command": "python benchmarks/residual.py DATA --run RUN",
        "arguments": {
            name: part for name, part in vars(given).items() if name not in ("data", "run", "out")
        },
        "dataset": {"name": dataset.name, "fingerprint": dataset.fingerprint},
        "horizon": planner.horizon,
        "windows": {"training": len(train), "validation": len(val)},
        "curve": curve,
    }
    if given.out:
        write_json(given.out, value)
    print(json.dumps(curve[-1], indent=1))


if __name__ == "__main__":
    main()
