"""Runtime and token forwards a query against the horizon, for a `paper`-size field.

As in the paper's figure of inference time. The size of the action set is that of each test window's
true task; every distinct size is measured once on a random field and weighted by how many windows
have it. Naive and exact search are timed up to a number of token forwards and extrapolated beyond
by their own rate (marked hollow in the picture); guided search is always run in full.

    python benchmarks/horizon.py DATASET --horizons 3 4 5 6 --out benchmarks/results/horizon.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cefito.cli.console import talk
from cefito.data import cut_windows, open_dataset
from cefito.data.windows import action_space
from cefito.field.fields import IncrementalField
from cefito.runtime import pick_device
from cefito.search import ExhaustiveSearch, GuidedSearch
from search import naive_seconds, random_field, random_problem, timed


def measure(
    sizes: np.ndarray[Any, Any], horizon: int, device: torch.device, most: int
) -> dict[str, Any]:
    """Mean cost a query of each search over windows of these action-set sizes [N]."""
    field = IncrementalField(random_field(horizon, device))
    GuidedSearch().search(field, [random_problem(4)], 5)  # warm-up
    values, counts = np.unique(sizes, return_counts=True)
    costs: dict[str, list[tuple[float, float, bool]]] = {"naive": [], "exact": [], "guided": []}
    rate = None  # seconds a token forward of the largest exact search that was run
    for size in values.tolist():
        problem = random_problem(size)
        seconds, extrapolated = naive_seconds(field, problem, most // (2 * horizon + 1))
        costs["naive"].append((seconds, size**horizon * (2 * horizon + 1), extrapolated))
        tokens = 1 + 2 * sum(size**level for level in range(1, horizon + 1))
        if tokens <= most or rate is None:
            _, taken = timed(lambda p=problem: ExhaustiveSearch().search(field, [p], 5), device)
            rate = taken / tokens
            costs["exact"].append((taken, tokens, False))
        else:
            costs["exact"].append((rate * tokens, tokens, True))
        found, taken = timed(lambda p=problem: GuidedSearch().search(field, [p], 5)[0], device)
        costs["guided"].append((taken, found.evaluated.token_forwards, False))
    share = counts / counts.sum()
    return {
        "horizon": horizon,
        "mean_candidates": float((share * values.astype(float) ** horizon).sum()),
        **{
            name: {
                "seconds": float(share @ [one[0] for one in rows]),
                "token_forwards": float(share @ [one[1] for one in rows]),
                "extrapolated": any(one[2] for one in rows),
            }
            for name, rows in costs.items()
        },
    }


def draw(rows: list[dict[str, Any]], path: Path, title: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, key, label in zip(
        figure.subplots(1, 2),
        ("seconds", "token_forwards"),
        ("mean seconds a query", "mean token forwards a query"),
        strict=True,
    ):
        for name, colour in (("naive", "#888888"), ("exact", "#1f77b4"), ("guided", "#d62728")):
            horizons = [row["horizon"] for row in rows]
            axes.plot(horizons, [row[name][key] for row in rows], color=colour, label=name)
            for row in rows:
                hollow = key == "seconds" and row[name]["extrapolated"]
                axes.plot(
                    row["horizon"],
                    row[name][key],
                    marker="o",
                    color=colour,
                    markerfacecolor="white" if hollow else colour,
                )
        axes.set(yscale="log", xlabel="horizon T", ylabel=label, xticks=horizons)
        axes.legend(frameon=False)
    figure.suptitle(title)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--horizons", type=int, nargs="+", default=[3, 4, 5, 6])
    parser.add_argument(
        "--most",
        type=int,
        default=40_000,
        help="most token forwards of a search that is not extrapolated",
    )
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    device = pick_device(given.device)
    dataset = open_dataset(given.dataset)
    rows = []
    for horizon in given.horizons:
        space = action_space(cut_windows(dataset, horizon=horizon, split="train"), "training")
        tasks = cut_windows(dataset, horizon=horizon, split="test").tasks
        rows.append(
            measure(
                np.array([len(space.actions[task]) for task in tasks]), horizon, device, given.most
            )
        )
        talk(json.dumps(rows[-1]))
    given.out.parent.mkdir(parents=True, exist_ok=True)
    device_name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    given.out.write_text(
        json.dumps(
            {
                "dataset": dataset.name,
                "device": device_name,
                "threads": torch.get_num_threads(),
                "rows": rows,
            },
            indent=1,
        )
        + "\n",
        encoding="utf-8",
    )
    draw(
        rows,
        given.out.with_suffix(".png"),
        f"{dataset.name}: action sets of its test windows, `paper`-size field, {device_name}",
    )


if __name__ == "__main__":
    main()
