"""Cost of a training step of the published size against a straightforward reference.

Batch 128, N = 50, T = 3.

The reference of `paper` draws negatives in a Python loop and evaluates every candidate as a full
sequence of 2T + 1 tokens in float32. The library draws them at once, shares prefixes between
candidates and computes only goals in the last block, in float32 and in bfloat16, keeping
activations or computing them again. `released` also reconstructs the actions of every candidate;
its reference draws the same negatives and evaluates full sequences in both passes. All take the
same batch of random observations, compute contrastive and auxiliary loss, and step AdamW. Each is
measured in a process of its own, for the sake of its peak memory.

The ratios are of CPU time on a CPU, which other work on the machine disturbs less than the time on
the wall; of that on a GPU.

    python benchmarks/training.py --threads 2 --out benchmarks/results/training.json
    python benchmarks/training.py --precision bfloat16 --steps 5
    python benchmarks/training.py --preset released --out benchmarks/results/training-released.json
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import common
from cefito.data.vocabulary import Taxonomy
from cefito.data.windows import Windows
from cefito.field.energy import EnergyField
from cefito.field.prefixes import prefix_counts
from cefito.files import write_json
from cefito.planners.cefito.method import CefitoSettings
from cefito.planners.methods import load_config
from cefito.runtime import Resolved, generator_for, pick_device
from cefito.training.field_loss import FieldLoss
from cefito.training.losses import adaptive_margins, triplet

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "training"))
from reference import PlainFieldLoss, SlowNegativeSampler, reconstruct  # type: ignore[import-not-found]

BATCH, HORIZON, OBSERVATION, TEXT = 128, 3, 1536, 512
SIZES = common.TASK_SIZES

CASES: tuple[Resolved, ...] = ("float32", "bfloat16")
"""Precisions of the library."""


def make_windows(count: int, generator: np.random.Generator) -> Windows:
    ends = np.cumsum(SIZES)
    taxonomy = Taxonomy.from_names(
        "random",
        [
            (f"task {number}", range(end - size, end))
            for number, (size, end) in enumerate(zip(SIZES, ends.tolist(), strict=True))
        ],
        [f"action {number}" for number in range(sum(SIZES))],
    )
    of = generator.integers(len(SIZES), size=count)
    actions = np.array(
        [generator.choice(taxonomy.tasks[task].actions, size=HORIZON) for task in of]
    )
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


def new_field(windows: Windows, config: CefitoSettings, device: torch.device) -> EnergyField:
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
    windows: Windows,
    config: CefitoSettings,
    device: torch.device,
    precision: Resolved,
    loss: type[FieldLoss] = FieldLoss,
) -> tuple[Callable[[], float], int]:
    field = new_field(windows, config, device)
    actions = {task.id: task.actions for task in windows.taxonomy.tasks}
    objective = loss(
        field=field, train=windows, actions=actions, config=config.training, score=lambda *_: {}
    )
    reduced = precision == "bfloat16"
    optimiser = torch.optim.AdamW(
        field.parameters(), lr=5e-4, weight_decay=1e-3, fused=reduced or None
    )
    batch = len(windows)
    generator, rows = generator_for(device, 1), torch.arange(batch, device=device)

    def step() -> float:
        optimiser.zero_grad(set_to_none=True)
        parts, value = objective.parts(rows, generator), 0.0
        while True:
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=reduced):
                terms = next(parts, None)
            if terms is None:
                break
            total = sum(term.weight * term.sum / term.count for term in terms.values())
            total.backward()
            value += float(total.detach())
        optimiser.step()
        return value

    # without those that pad queries to the widest of their group
    negatives = objective.sampler.sample(objective.actions[rows], objective.tasks[rows], generator)
    candidates = torch.cat([objective.actions[rows][:, None], negatives], dim=1)
    full = 2 * HORIZON + 1
    if loss is PlainFieldLoss:
        return step, 2 * candidates[..., 0].numel() * full
    prefixes = int(prefix_counts(candidates, action_count=len(windows.taxonomy.actions)).sum())
    tokens = batch + 2 * prefixes
    if config.training.auxiliary.negatives:  # the second pass, without the last level
        return step, tokens + 2 * (batch + prefixes - candidates[..., 0].numel())
    return step, tokens + 2 * batch * full  # the two passes of the auxiliary loss


def reference_step(
    windows: Windows, config: CefitoSettings, device: torch.device
) -> tuple[Callable[[], float], int]:
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

    def step() -> float:
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
        logits = reconstruct(field.predictor, x, states)
        auxiliary = torch.nn.functional.cross_entropy(logits.flatten(0, 1), positives.flatten())
        whole = total / number + config.training.auxiliary.weight * auxiliary
        whole.backward()
        optimiser.step()
        return float(whole.detach())

    batch = len(windows)
    tokens = batch * (config.training.negatives.count + 1) * (2 * HORIZON + 1)
    return step, tokens + 2 * batch * (2 * HORIZON + 1)


def measure(
    preset: str,
    case: str,
    steps: int,
    threads: int,
    place: str,
    batch: int,
    settings: dict[str, str],
) -> dict[str, Any]:
    """Times and peak memory of one case, in a process that does nothing else."""
    torch.set_num_threads(threads)
    device, windows = torch.device(place), make_windows(batch, np.random.default_rng(0))
    precision: Resolved = "bfloat16" if case == "bfloat16" else "float32"
    config = load_config(preset, overrides=settings).settings
    if case != "reference":
        step, tokens = library_step(windows, config, device, precision)
    elif preset == "released":
        step, tokens = library_step(windows, config, device, precision, PlainFieldLoss)
    else:
        step, tokens = reference_step(windows, config, device)
    wall, cpu, losses = [], [], []
    for number in range(steps + 1):
        started, began = time.perf_counter(), time.process_time()
        losses.append(step())
        if device.type == "cuda":
            torch.cuda.synchronize()
        if number:  # the first warms up
            wall.append(time.perf_counter() - started)
            cpu.append(time.process_time() - began)
    return {
        "seconds": float(np.median(wall)),
        "cpu_seconds": float(np.median(cpu)),
        "all_seconds": wall,
        "all_cpu_seconds": cpu,
        "peak_mib": round(common.peak_mib(device)),
        "tokens": tokens,
        "first_loss": losses[0],
    }


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--preset", choices=("paper", "released"), default="paper")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", choices=("both", "float32", "bfloat16"), default="both")
    parser.add_argument("--batch", type=int, default=BATCH)
    common.add_settings(parser)
    parser.set_defaults(out=Path("benchmarks/results/training.json"))
    arguments = parser.parse_args()
    settings = common.settings(arguments.set)
    device = pick_device(arguments.device)
    training = load_config(arguments.preset, overrides=settings).settings.training
    result: dict[str, Any] = {
        **common.machine(device),
        "threads": arguments.threads,
        "preset": arguments.preset,
        "batch": arguments.batch,
        "negatives": training.negatives.count,
        "horizon": HORIZON,
        "ratios_of": "seconds" if device.type == "cuda" else "cpu_seconds",
    }
    wanted = [case for case in CASES if arguments.precision in ("both", case)]
    for case in ("reference", *wanted):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            given = (arguments.preset, case, arguments.steps, arguments.threads, str(device))
            result[case] = pool.apply(measure, (*given, arguments.batch, settings))
    reference, time_of = result["reference"], result["ratios_of"]
    for case in wanted:
        result[case]["ratio"] = reference[time_of] / result[case][time_of]
        result[case]["token_ratio"] = reference["tokens"] / result[case]["tokens"]
    write_json(arguments.out, result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
