"""Cost of a training step of the chain against a plain form of it, and where the time goes.

The plain form pads all tasks to the largest one, differentiates the recursion through logarithms by
autograd, and updates one tensor of weights after the other. Both train a member of the preset
`small` on random observations, with as many windows, features, tasks and actions as CaptainCook4D
and COIN have at T = 3, in turn in one process: CPU seconds, the least of several steps, of which an
epoch has as many as its windows fill batches. A step cannot take less than its products, at the
rate of the largest one alone.

    python benchmarks/chain_training.py --out benchmarks/results/chain-training.json
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from cefito.cli.console import talk
from cefito.data.annotations import Taxonomy
from cefito.data.windows import Windows
from cefito.files import write_json
from cefito.planners.chain import inference
from cefito.planners.chain.inference import SequenceScores, TransitionSums
from cefito.planners.chain.network import ChainLoss, ChainNetwork
from cefito.planners.chain.states import TaskStates, smoothed_transitions
from cefito.planners.methods import load_config
from cefito.runtime import Processes, generator_for

HORIZON = 3
# windows, features, and the number of tasks of each number of actions
SIZES: dict[str, tuple[int, int, dict[int, int]]] = {
    "captaincook4d": (
        2554,
        256,
        {7: 1, 9: 1, 11: 5, 12: 2, 13: 1, 14: 3, 15: 2, 16: 1, 17: 3, 19: 2, 20: 1, 23: 1, 25: 1},
    ),
    "coin": (12288, 1536, {2: 5, 3: 51, 4: 56, 5: 36, 6: 19, 7: 11, 8: 1, 12: 1}),
}


def random_windows(count: int, features: int, tasks: dict[int, int]) -> Windows:
    """Windows of random observations, and of actions of random tasks."""
    generator, own, first = np.random.default_rng(0), [], 0
    for size in [size for size, number in tasks.items() for _ in range(number)]:
        own.append(range(first, first + size))
        first += size
    of = generator.integers(len(own), size=count)
    initial, goal = (generator.standard_normal((count, features), dtype=np.float32) for _ in "ab")
    return Windows(
        initial=initial,
        goal=goal,
        actions=np.array([generator.choice(own[task], size=HORIZON) for task in of]),
        tasks=of,
        video=np.arange(count),
        start=np.zeros(count, dtype=np.int64),
        taxonomy=Taxonomy.from_names(
            "random",
            [(f"task {number}", ids) for number, ids in enumerate(own)],
            [f"action {number}" for number in range(first)],
        ),
        action_text=None,
        dataset="random",
        split="train",
    )


def plain_sums(scores: SequenceScores) -> Tensor:
    """The sums of all tasks [B, C], padded to the largest one."""
    mix = TransitionSums(scores.transitions, scores.states.real)
    padded = scores.states.padded(scores.emissions)
    alpha = padded[:, 0]
    for step in range(1, scores.horizon):
        alpha = mix.forward(alpha) + padded[:, step]
    return inference._log_sum(alpha)


class Training:
    """A chain and a batch of it, and a step that is plain or as the library trains."""

    def __init__(self, name: str, windows: Windows, hidden: int | None = None) -> None:
        overrides = {} if hidden is None else {"chain.hidden": hidden}
        config: Any = load_config(
            "small", method="chain", dataset=name, horizon=HORIZON, overrides=overrides
        ).settings
        self.optimiser = config.chain_training.optimiser
        of = windows.taxonomy
        states = TaskStates.make([task.actions for task in of.tasks], len(of.actions))
        self.network = ChainNetwork(
            config=config.chain,
            states=states,
            observation_dim=windows.initial.shape[1],
            horizon=HORIZON,
            transitions=smoothed_transitions(states, windows.actions, windows.tasks),
        )
        self.network.reset(generator_for("cpu", 0))
        self.network.train()
        self.loss = ChainLoss(
            network=self.network,
            train=windows,
            val=windows.subset(range(8)),
            config=config.chain_training,
        )
        self.draws = generator_for("cpu", 1)
        self.rows = torch.randperm(len(windows), generator=self.draws)[: self.optimiser.batch_size]
        self.steps = -(-len(windows) // self.optimiser.batch_size)  # of an epoch
        self.updates = {
            plain: torch.optim.AdamW(
                self.network.parameters(),
                lr=self.optimiser.learning_rate,
                weight_decay=self.optimiser.weight_decay,
                fused=not plain,
            )
            for plain in (False, True)
        }

    def step(self, *, plain: bool = False) -> float:
        """Train with one batch; returns the loss."""
        kept: Any = SequenceScores.log_task_sums
        if plain:
            SequenceScores.log_task_sums = plain_sums  # type: ignore[method-assign]
        try:
            self.updates[plain].zero_grad(set_to_none=True)
            terms = self.loss.terms(self.rows, self.draws, Processes()).values()
            total = torch.stack([term.weight * term.sum / term.count for term in terms]).sum()
            total.backward()
            self.updates[plain].step()
        finally:
            SequenceScores.log_task_sums = kept  # type: ignore[method-assign]
        return float(total.detach())

    def parts(self) -> dict[str, Callable[[], object]]:
        """Parts of a step, each with its gradient."""
        initial, goal = self.loss.observations.draw(self.rows, self.draws)
        both = torch.stack([initial, goal], dim=1)
        scores = self.network(initial, goal, generator=self.draws).scores
        moving = SequenceScores(
            scores.states,
            scores.emissions.detach().requires_grad_(),
            scores.transitions.detach().requires_grad_(),
        )
        return {
            "draws": lambda: self.loss.observations.draw(self.rows, self.draws),
            "encoder": lambda: self.network.encoded(both, self.draws).sum().backward(),
            "sums": lambda: moving.log_partition().sum().backward(),
            "sums, plain": lambda: plain_sums(moving).logsumexp(dim=1).sum().backward(),
            "update": self.updates[False].step,
            "update, plain": self.updates[True].step,
        }


def products(training: Training, repeats: int) -> dict[str, float]:
    """The operations of the products of a step, and their least time."""
    with FlopCounterMode(display=False) as counter:
        training.step()
    operations = counter.get_total_flops()
    layer, rows = training.network.emission, training.optimiser.batch_size
    x = torch.randn(rows, layer.in_features)
    milliseconds = least({"product": lambda: layer(x)}, repeats)["product"]
    rate = 2 * rows * layer.weight.numel() / milliseconds / 1e6  # 10⁹ operations a second
    return {
        "gflop": round(operations / 1e9, 3),
        "gflop_per_second": round(rate, 1),
        "least_milliseconds": round(operations / rate / 1e6, 2),
    }


def loss_difference(name: str, windows: Windows, steps: int = 20) -> float:
    """The largest relative difference of the losses of both forms over some steps."""
    losses = []
    for plain in (False, True):
        training = Training(name, windows)
        losses.append([training.step(plain=plain) for _ in range(steps)])
    library, reference = map(np.array, losses)
    return float(np.abs(library / reference - 1).max())


def least(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The least CPU milliseconds of each, called in turn."""
    found: dict[str, list[float]] = {name: [] for name in functions}
    for number in range(repeats + 1):
        for name, function in functions.items():
            began = time.process_time()
            function()
            if number:  # the first warms up
                found[name].append(1000 * (time.process_time() - began))
    return {name: round(min(values), 3) for name, values in found.items()}


def measure(name: str, repeats: int, hidden: tuple[int, ...]) -> dict[str, Any]:
    """Steps, their parts, and steps with narrower encoders."""
    count, features, tasks = SIZES[name]
    windows = random_windows(count, features, tasks)
    training = Training(name, windows)
    steps = least({"library": training.step, "plain": lambda: training.step(plain=True)}, repeats)
    members = 3
    seconds = {
        form: round(milliseconds * training.steps / 1000, 3) for form, milliseconds in steps.items()
    }
    row: dict[str, Any] = {
        "windows": count,
        "features": features,
        "tasks": len(windows.taxonomy.tasks),
        "actions": len(windows.taxonomy.actions),
        "steps_of_an_epoch": training.steps,
        "epochs": training.optimiser.epochs,
        "milliseconds_of_a_step": steps,
        "products": products(training, repeats),
        "ratio": round(steps["plain"] / steps["library"], 3),
        "seconds_of_an_epoch": seconds,
        "seconds_of_a_training": {
            form: round(members * training.optimiser.epochs * value, 1)
            for form, value in seconds.items()
        },
        "members": members,
        "loss_difference_of_20_steps": loss_difference(name, windows),
        "milliseconds_of_parts": least(training.parts(), repeats),
        "milliseconds_by_hidden": least(
            {str(width): Training(name, windows, width).step for width in hidden}, repeats
        ),
    }
    talk(json.dumps({name: row}))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--hidden", type=int, nargs="*", default=[512, 1024, 3072])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/chain-training.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    result = {
        "machine": platform.machine(),
        "torch": torch.__version__,
        "threads": 1,
        "data": "random observations",
        "horizon": HORIZON,
        **{
            name: measure(name, arguments.repeats, tuple(arguments.hidden))
            for name in arguments.data
        },
    }
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
