"""Cost of a training step of the `paper` predictor against a straightforward reference.

Batch 128, N = 50, T = 3.

The reference draws negatives in a Python loop and evaluates every candidate as a full sequence of
2T + 1 tokens in fp32. The library draws them at once, shares prefixes between candidates and
computes only goals in the last block; on CUDA under bf16 autocast. Both take the same batch of
random observations, compute contrastive and auxiliary loss, and step AdamW.

    python benchmarks/training.py [--steps 3] [--threads 2] [--device auto] \\
        [--out benchmarks/results/training.json]
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from cefito.data.taxonomy import Action, Task, Taxonomy
from cefito.data.windows import Windows
from cefito.field import EnergyField
from cefito.field.prefixes import PrefixTree
from cefito.planners.settings import RunConfig, load_config
from cefito.runtime import generator_for, pick_device
from cefito.training.distributed import Processes
from cefito.training.field_loss import FieldLoss
from cefito.training.losses import adaptive_margins, triplet
from cefito.training.reference import SlowNegativeSampler

BATCH, HORIZON, OBSERVATION, TEXT = 128, 3, 1536, 512
SIZES = (
    6,
    5,
    8,
    7,
    10,
    7,
    9,
    3,
    8,
    7,
    11,
    6,
    8,
    10,
    7,
    5,
    8,
    8,
)  # 133 actions in 18 tasks of 3 to 11, as in CrossTask


def make_windows(count: int, generator: np.random.Generator) -> Windows:
    ends = np.cumsum(SIZES)
    tasks = tuple(
        Task(id=number, name=f"task {number}", actions=tuple(range(end - size, end)))
        for number, (size, end) in enumerate(zip(SIZES, ends.tolist(), strict=True))
    )
    taxonomy = Taxonomy(
        dataset="random",
        tasks=tasks,
        actions=tuple(Action(id=number, name=f"action {number}") for number in range(sum(SIZES))),
    )
    of = generator.integers(len(SIZES), size=count)
    actions = np.array([generator.choice(tasks[task].actions, size=HORIZON) for task in of])
    initial, goal = generator.standard_normal((2, count, OBSERVATION), dtype=np.float32)
    return Windows(
        initial=initial,
        goal=goal,
        actions=actions.astype(np.int64),
        tasks=of.astype(np.int64),
        video=np.arange(count),
        start=np.zeros(count, dtype=np.int64),
        taxonomy=taxonomy,
        action_text=generator.standard_normal((sum(SIZES), TEXT), dtype=np.float32),
        dataset="random",
        split="train",
    )


def new_field(windows: Windows, config: RunConfig, device: torch.device) -> EnergyField:
    field = EnergyField(
        config=config.field,
        observation_dim=OBSERVATION,
        action_count=len(windows.taxonomy.actions),
        horizon=HORIZON,
        action_vectors=torch.from_numpy(np.asarray(windows.action_text)),
    )
    field.reset(generator_for("cpu", 0))
    return field.to(device)


def library_step(
    windows: Windows, config: RunConfig, device: torch.device
) -> tuple[Callable[[], None], int]:
    field = new_field(windows, config, device)
    actions = {task.id: task.actions for task in windows.taxonomy.tasks}
    objective = FieldLoss(
        field=field, train=windows, actions=actions, config=config.training, score=lambda *_: {}
    )
    optimiser = torch.optim.AdamW(field.parameters(), lr=5e-4, weight_decay=1e-3)
    generator, rows = generator_for(device, 1), torch.arange(BATCH, device=device)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            terms = objective.terms(rows, generator, Processes())
        sum(term.weight * term.sum / term.count for term in terms.values()).backward()
        optimiser.step()

    negatives = objective.sampler.sample(objective.actions[rows], objective.tasks[rows], generator)
    candidates = torch.cat([objective.actions[rows][:, None], negatives], dim=1)
    tokens = BATCH * PrefixTree.build(candidates, action_count=len(windows.taxonomy.actions)).length
    return step, tokens + 2 * BATCH * (2 * HORIZON + 1)  # the two passes of the auxiliary loss


def reference_step(
    windows: Windows, config: RunConfig, device: torch.device
) -> tuple[Callable[[], None], int]:
    field = new_field(windows, config, device)
    sampler = SlowNegativeSampler(
        config=config.training.negatives,
        horizon=HORIZON,
        actions={task.id: task.actions for task in windows.taxonomy.tasks},
    )
    optimiser = torch.optim.AdamW(field.parameters(), lr=5e-4, weight_decay=1e-3)
    generator = generator_for("cpu", 1)
    initial, goal, actions, tasks = (
        torch.from_numpy(part)
        for part in (windows.initial, windows.goal, windows.actions, windows.tasks)
    )

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        negatives = sampler.sample(actions, tasks, generator).to(device)
        x, y, positives = initial.to(device), goal.to(device), actions.to(device)
        candidates = torch.cat([positives[:, None], negatives], dim=1)
        count = candidates.shape[1]
        energies = field.energy(
            x.repeat_interleave(count, dim=0),
            y.repeat_interleave(count, dim=0),
            candidates.flatten(0, 1),
        ).unflatten(0, (-1, count))
        margins = adaptive_margins(positives, negatives, config.training.loss.margin)
        total, number = triplet(energies[:, 0], energies[:, 1:], margins, "mean")
        states = field.predictor.states(x, positives)
        states = torch.cat([states[:, :-1], field.target(y)[:, None]], dim=1)
        logits = field.predictor.reconstruct(x, states)
        auxiliary = torch.nn.functional.cross_entropy(logits.flatten(0, 1), positives.flatten())
        (total / number + config.training.auxiliary.weight * auxiliary).backward()
        optimiser.step()

    tokens = BATCH * (config.training.negatives.count + 1) * (2 * HORIZON + 1)
    return step, tokens + 2 * BATCH * (2 * HORIZON + 1)


def measure(step: Callable[[], None], steps: int, device: torch.device) -> list[float]:
    times = []
    for number in range(steps + 1):
        started = time.perf_counter()
        step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if number:  # the first warms up
            times.append(time.perf_counter() - started)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/training.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    device, config = pick_device(arguments.device), load_config("paper")
    windows = make_windows(BATCH, np.random.default_rng(0))
    result = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "threads": arguments.threads,
        "torch": torch.__version__,
        "machine": platform.machine(),
        "batch": BATCH,
        "negatives": config.training.negatives.count,
        "horizon": HORIZON,
    }
    for name, build in (("library", library_step), ("reference", reference_step)):
        step, tokens = build(windows, config, device)
        times = measure(step, arguments.steps, device)
        result[name] = {"seconds": float(np.median(times)), "all_seconds": times, "tokens": tokens}
        if device.type == "cuda":
            result[name]["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
            torch.cuda.reset_peak_memory_stats()
    result["ratio"] = result["reference"]["seconds"] / result["library"]["seconds"]
    result["token_ratio"] = result["reference"]["tokens"] / result["library"]["tokens"]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
