r"""How many of the chain's likeliest sequences need an energy before the best one is known.

The 64 likeliest sequences of each validation window, over all tasks, are evaluated in the order of
their costs without the energy. No energy is negative: evaluation may stop once the next cost
exceeds the best score. Sharper bounds of the energies: the part of the observed goal outside the
range of the state head, which is known beforehand ("range"), and a number chosen on half of the
videos such that the best of at most 1 % of the windows is lost ("calibrated"), tried on the others.

    cefito train DATA --horizon 3 --preset small --set field.members=1 --out RUN
    python benchmarks/stop_early.py RUN --out benchmarks/results/stop-early-captaincook4d.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cefito.data import cut_windows
from cefito.data.windows import video_folds
from cefito.files import write_json
from cefito.planners.cefito.logistic import fit_weights
from cefito.planners.queries import Queries
from cefito.runs.run import open_run
from cefito.search.base import components_of, root_of

CANDIDATES, LOST = 64, 0.01
Reals = NDArray[np.float64]


def stops(costs: Reals, scores: Reals, bounds: Reals, chunk: int) -> int:
    """Sequences evaluated, in chunks, until all others cost more than the best score."""
    # costs without the energy, ascending; scores; lower bounds of the energies' terms: all [n]
    least = np.minimum.accumulate((costs + bounds)[::-1])[::-1]  # of this and all later ones
    for first in range(chunk, len(costs), chunk):
        if least[first] >= scores[:first].min():
            return first
    return len(costs)


def tokens(tasks: NDArray[np.int64], actions: NDArray[np.int64]) -> int:
    """Token forwards of sequences [n, T] read in both directions, one pass each."""
    count = 0
    for rows in (actions, actions[:, ::-1]):
        for length in range(1, rows.shape[1] + 1):
            count += 2 * len(np.unique(np.column_stack([tasks, rows[:, :length]]), axis=0))
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--windows", type=int, default=300)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    run = open_run(given.run)
    planner = run.planner
    sample = cut_windows(run.dataset(), horizon=planner.horizon, split="val").sample(
        given.windows, 0
    )
    found = planner.chain.scores(Queries.from_windows(sample))
    best, values = found.best(CANDIDATES)
    joint = (values - found.log_partition()[:, None]).double().cpu().numpy()
    actions = found.states.actions[best].cpu().numpy()  # [N, n, T]
    tasks = found.states.tasks[best[:, :, 0]].cpu().numpy()
    field, rows = planner.incremental, np.repeat(np.arange(len(sample)), CANDIDATES)
    initial, goal = (torch.from_numpy(part) for part in (sample.initial, sample.goal))
    flat = torch.from_numpy(actions.reshape(len(rows), -1))
    energies = [
        field.energy(initial[rows[part]], goal[rows[part]], flat[part])
        for part in np.array_split(np.arange(len(rows)), max(1, len(rows) // 1024))
    ]
    energy = torch.cat(energies).double().numpy().reshape(joint.shape)
    outside = np.zeros_like(energy)  # lower bound of each energy by the range of the state head
    for component in components_of(field):
        offsets = root_of(component, initial, goal).offsets
        last = actions[..., 0 if component.reversed else -1]
        squared = offsets.gather(1, torch.from_numpy(last))
        outside += component.weight * component.energies.field.from_squared(squared).numpy()
    right = (actions == sample.actions[:, None]).all(axis=2) & (tasks == sample.tasks[:, None])
    truth = np.where(right.any(axis=1), right.argmax(axis=1), -1)
    weight = float(
        fit_weights(list(-energy[..., None]), truth.tolist(), offsets=list(joint)).weights[0]
    )
    costs, scores = -joint, -joint + weight * energy
    calibrating = video_folds(sample.video, 2) == 0

    def lost(bound: Reals, rows: NDArray[np.bool_], chunk: int) -> float:
        wrong = [
            scores[row, : stops(costs[row], scores[row], bound[row], chunk)].min()
            > scores[row].min()
            for row in np.flatnonzero(rows)
        ]
        return float(np.mean(wrong))

    result: dict[str, Any] = {
        "run": given.run.name,
        "windows": len(sample),
        "weight_of_the_energy": weight,
        "energy": {
            "median": float(np.median(energy)),
            "of_the_best": float(np.median(energy[np.arange(len(sample)), scores.argmin(axis=1)])),
        },
        "outside_the_range": float(np.median(outside)),
    }
    chosen = max(
        (
            number
            for number in np.quantile(energy, np.linspace(0, 0.5, 51))
            if lost(np.full_like(energy, weight * number), calibrating, 8) <= LOST
        ),
        default=0.0,
    )
    everything = np.ones(len(sample), dtype=bool)
    all_tokens = [tokens(*pair) for pair in zip(tasks, actions, strict=True)]
    for name, bound, rows in (
        ("zero", np.zeros_like(energy), everything),
        ("range", weight * outside, everything),
        ("calibrated", np.full_like(energy, weight * chosen), ~calibrating),
    ):
        for chunk in (1, 8, 16):
            counts = {
                row: stops(costs[row], scores[row], bound[row], chunk)
                for row in np.flatnonzero(rows)
            }
            spent = sum(tokens(tasks[row, :n], actions[row, :n]) for row, n in counts.items())
            whole = sum(all_tokens[row] for row in counts)
            result[f"{name}, chunks of {chunk}"] = {
                "sequences": float(np.mean(list(counts.values()))),
                "token_forwards": spent / whole,
                "best_lost": lost(bound, rows, chunk),
            }
    print(json.dumps(result, indent=1))
    if given.out:
        write_json(given.out, result)


if __name__ == "__main__":
    main()
