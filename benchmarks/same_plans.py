"""Whether two versions of the library plan alike: same sequences, energies within rounding.

The queries are windows of a data set, with their true tasks and a random field of the preset
`small`, read in both directions, or of `paper`. Run it with each version; the second run compares.

    python benchmarks/same_plans.py DATA --preset small --queries 1000 --plans PLANS.npz \
        --out benchmarks/results/same-plans-small.json
    python benchmarks/same_plans.py DATA --preset paper --queries 200 --plans PLANS.npz \
        --out benchmarks/results/same-plans-paper.json
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from cefito.data import cut_windows, open_dataset
from cefito.data.windows import action_space
from cefito.field.fields import incremental_field, make_field, named_components
from cefito.planners.methods import load_config
from cefito.runtime import generator_for
from cefito.search import ExhaustiveSearch, GuidedSearch, Plans, Problem, Search

SEARCHES: dict[str, Search] = {"exact": ExhaustiveSearch(), "guided": GuidedSearch(proposals=64)}
MOST = 1500  # sequences of a query: tasks are thinned to so many actions


def planned(folder: Path, preset: str, count: int, horizon: int) -> dict[str, list[Plans]]:
    dataset = open_dataset(folder)
    windows = cut_windows(dataset, horizon=horizon, split="train")
    space, sample = action_space(windows, "training"), windows.sample(count, 0)
    both = {"field.directions": "both", "field.trained": True} if preset == "small" else {}
    config = load_config(preset, overrides=both).settings.field
    generator, actions = generator_for("cpu", 0), len(windows.taxonomy.actions)
    observed = config.action_encoding == "observed"
    width = windows.initial.shape[1] if observed else config.action_dim
    field = make_field(
        config=config,
        observation_dim=windows.initial.shape[1],
        action_count=actions,
        horizon=horizon,
        action_vectors=torch.randn(actions, width, generator=generator),
    )
    for part in named_components(field).values():
        part.reset(generator)
        with torch.no_grad():
            for parameter in part.parameters():
                parameter.mul_(1.0 if preset == "small" else 3.0)
    most = int(MOST ** (1 / horizon))
    problems = [
        Problem(initial=initial, goal=goal, actions=space.actions[task][:most])
        for initial, goal, task in zip(sample.initial, sample.goal, sample.tasks, strict=True)
    ]
    walked = incremental_field(field.eval())
    found = {}
    for name, search in SEARCHES.items():
        started = time.process_time()
        found[name] = search.search(walked, problems, 5)
        print(json.dumps({"search": name, "cpu_seconds": time.process_time() - started}))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--preset", choices=("small", "paper"), default="small")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--horizon", type=int, default=3)
    parser.add_argument("--plans", type=Path, required=True, help="file of the first version")
    parser.add_argument("--out", type=Path, help="file of the comparison")
    given = parser.parse_args()
    found = planned(given.data, given.preset, given.queries, given.horizon)
    arrays = {}
    for name, plans in found.items():
        arrays[f"{name} actions"] = np.stack([one.actions[0] for one in plans])
        arrays[f"{name} energy"] = np.array([one.energies[0] for one in plans])
    if not given.plans.exists():
        np.savez(given.plans, **arrays)
        return
    before = np.load(given.plans, allow_pickle=False)
    rows = []
    for name in found:
        same = (before[f"{name} actions"] == arrays[f"{name} actions"]).all(axis=1)
        gap = np.abs(arrays[f"{name} energy"] / before[f"{name} energy"] - 1)
        row = {"search": name, "queries": len(same), "same_plans": int(same.sum())}
        rows.append(row | {"largest_energy_difference": float(gap.max())})
    text = json.dumps({"preset": given.preset, "horizon": given.horizon, "rows": rows}, indent=1)
    print(text)
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
