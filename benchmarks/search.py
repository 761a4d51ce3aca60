r"""Searches against the naive reference: time, token forwards, memory, agreement with the argmin.

Random fields of the `paper` size over |A| actions, where everything is timed against batched full
forwards of all candidates (extrapolated from a sample of candidates where marked); and trained
fields of run folders, where guided search is compared with the exact argmin on windows of
the data set, with the true and with the predicted task. All is measured in one run.

    python benchmarks/search.py --quick --threads 1 --clock cpu \
        --out benchmarks/results/search-quick.json
    python benchmarks/search.py --sizes 5 8 11 --horizons 3 4 5 6 \
        --out benchmarks/results/search.json
    python benchmarks/search.py --sizes --run runs/T5 runs/T6 --windows 200 \
        --out benchmarks/results/search-trained.json
    python benchmarks/search.py --sizes --run runs/T6 --windows 200 --effort \
        --out benchmarks/results/search-effort.json
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import common
from cefito.cli.console import talk
from cefito.data import cut_windows
from cefito.evaluation.runs import SAMPLE_SEED
from cefito.field.energy import EnergyField
from cefito.field.fields import IncrementalField, SearchedField
from cefito.files import write_json
from cefito.planners.cefito.hypotheses import ENERGY, Weights
from cefito.planners.cefito.planner import CefitoPlanner
from cefito.planners.methods import load_config
from cefito.planners.queries import Queries
from cefito.runs.run import open_run
from cefito.runtime import generator_for, pick_device
from cefito.search import ExhaustiveSearch, GuidedSearch, Plans, Problem

OBSERVATION, TEXT, ACTIONS = 1536, 512, 133
# beyond this many token forwards exact search of a `paper`-size field takes minutes on a CPU
EXACT_TOKENS = 600_000


SEARCHES: dict[str, ExhaustiveSearch | GuidedSearch] = {
    "exact": ExhaustiveSearch(screening="off"),
    "exact, screened": ExhaustiveSearch(screening="on"),
    "guided": GuidedSearch(screening="off"),
    "guided, screened": GuidedSearch(screening="on"),
}
"""Screened ones compute in bfloat16 first, which saves time where the processor multiplies it."""
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
clock = CLOCKS["wall"]
settings: dict[str, Any] = {}  # of the preset `paper`, changed


def timed(work: Callable[..., Any], device: torch.device) -> tuple[Any, float]:
    """What it gives, and the seconds it takes."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    started = clock()
    result = work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return result, clock() - started


def random_field(
    horizon: int, device: torch.device, seed: int = 0, *, settings: Mapping[str, Any] = settings
) -> EnergyField:
    """A `paper`-size field with new weights, three times as large, so that energies differ."""
    generator = generator_for("cpu", seed)
    field = EnergyField(
        config=load_config("paper", overrides=dict(settings)).settings.field,
        observation_dim=OBSERVATION,
        action_count=ACTIONS,
        horizon=horizon,
        action_vectors=torch.randn(ACTIONS, TEXT, generator=generator),
    )
    field.reset(generator)
    with torch.no_grad():
        for parameter in field.parameters():
            parameter.mul_(3.0)
    return field.to(device).eval()


def random_problem(size: int, seed: int = 0) -> Problem:
    """A query over the first actions."""
    generator = np.random.default_rng(seed)
    initial, goal = generator.standard_normal((2, OBSERVATION), dtype=np.float32)
    return Problem(initial=initial, goal=goal, actions=tuple(range(size)))


def naive_seconds(field: IncrementalField, problem: Problem, sample: int) -> tuple[float, bool]:
    """Seconds that full forwards of all candidates take, and whether extrapolated from a sample."""
    total = len(problem.actions) ** field.horizon
    count = min(sample, total)
    generator = np.random.default_rng(0)
    sequences = torch.from_numpy(generator.choice(problem.actions, size=(count, field.horizon))).to(
        field.device
    )
    initial, goal = (
        torch.from_numpy(part).to(field.device).expand(1, -1)
        for part in (problem.initial, problem.goal)
    )

    def work() -> None:
        for part in sequences.split(256 if field.device.type == "cpu" else 8192):
            field.energy(initial.expand(len(part), -1), goal.expand(len(part), -1), part)

    _, seconds = timed(work, field.device)
    return seconds * total / count, count < total


def on_random_fields(
    sizes: list[int],
    horizons: list[int],
    device: torch.device,
    sample: int,
    *,
    exact_tokens: int = EXACT_TOKENS,
) -> list[dict[str, Any]]:
    """Naive, exact and guided search."""
    rows = []
    for horizon in horizons:
        field = IncrementalField(random_field(horizon, device))
        naive_seconds(field, random_problem(3), 27)  # warm-up
        for search in SEARCHES.values():
            search.search(field, [random_problem(3)], 5)
        for size in sizes:
            problem = random_problem(size)
            # short ones wobble: the median of several, naive and others in turn
            repeats = range(3 if size**horizon <= 4096 else 1)
            total = sum(2 * size**level for level in range(horizon + 1))
            wanted = {
                name: search
                for name, search in SEARCHES.items()
                if total <= exact_tokens or not isinstance(search, ExhaustiveSearch)
            }
            naive = []
            runs: dict[str, list[tuple[Plans, float]]] = {name: [] for name in wanted}
            for _ in repeats:
                seconds, extrapolated = naive_seconds(field, problem, sample)
                naive.append(seconds)
                for name, search in wanted.items():
                    runs[name].append(
                        timed(lambda s=search, f=field, p=problem: s.search(f, [p], 5)[0], device)
                    )
            row: dict[str, Any] = {
                "horizon": horizon,
                "actions": size,
                "candidates": size**horizon,
                "naive": {
                    "seconds": float(np.median(naive)),
                    "extrapolated": extrapolated,
                    "token_forwards": size**horizon * (2 * horizon + 1),
                },
            }
            best = runs["exact"][0][0] if "exact" in runs else None
            for name, results in runs.items():
                found = results[0][0]
                taken = float(np.median([seconds for _, seconds in results]))
                row[name] = cost(found, taken) | {"against_naive": float(np.median(naive)) / taken}
                row[name] |= in_float32(wanted[name], field, [problem], [found])
                if best is not None:
                    row[name] |= {
                        "argmin": bool((found.actions[0] == best.actions[0]).all()),
                        "same_plans": bool(np.array_equal(found.actions, best.actions)),
                        "energy_gap": float(found.energies[0] / best.energies[0] - 1),
                    }
            row["peak_mib"] = common.peak_mib(device)
            talk(json.dumps(row))
            rows.append(row)
    return rows


def in_float32(
    search: ExhaustiveSearch | GuidedSearch,
    field: SearchedField,
    problems: list[Problem],
    found: list[Plans],
) -> dict[str, float]:
    """Of a screened search the token forwards a query in float32, and the mean margin."""
    if search.screening == "off":
        return {}
    first = search.model_copy(update={"screening": "off"}).search(field.coarse, problems, 5)
    tokens = [plans.evaluated.token_forwards for plans in found]
    coarse = [plans.evaluated.token_forwards for plans in first]
    margins = [plans.margin or 0.0 for plans in found]
    return {
        "float32_token_forwards_per_query": float(np.mean(np.subtract(tokens, coarse))),
        "margin": float(np.mean(margins)),
        "margin_over_score": float(
            np.mean([m / abs(p.scores[0]) for m, p in zip(margins, found, strict=True)])
        ),
    }


def cost(plans: Plans, seconds: float) -> dict[str, Any]:
    return {
        "seconds": seconds,
        "token_forwards": plans.evaluated.token_forwards,
        "leaves": plans.evaluated.leaves,
    }


def on_trained_field(
    folder: Path, windows: int, split: str, device: torch.device, limit: float
) -> dict[str, Any]:
    """Guided search against the exact argmin.

    They are compared on a fixed sample of the windows that have at most `limit` candidates.
    """
    run = open_run(folder, device=device)
    planner, dataset = run.planner, run.dataset()
    assert isinstance(planner, CefitoPlanner)
    horizon, field = planner.horizon, planner.incremental
    everything = cut_windows(dataset, horizon=horizon, split=split)
    likeliest = planner.predict_tasks(Queries.from_windows(everything))
    sizes = np.array([len(actions) for actions in planner.space.actions], dtype=float)
    small = np.flatnonzero(
        (sizes[everything.tasks] ** horizon <= limit) & (sizes[likeliest] ** horizon <= limit)
    )
    sample = everything.subset(small).sample(windows, SAMPLE_SEED)
    result: dict[str, Any] = {
        "run": folder.name,
        "dataset": dataset.name,
        "horizon": horizon,
        "split": split,
        "windows": len(sample),
        "sampled_from": len(small),
        "all_windows": len(everything),
        "most_candidates": limit,
    }
    known: dict[Any, Plans] = {}  # a task predicted rightly is not searched again
    for oracle in (True, False):
        queries = Queries.from_windows(sample, oracle_task=oracle)
        for name, weights in (("energy", ENERGY), ("fitted", planner.fitted)):
            problems = likeliest_problems(planner, queries, weights)
            plans: dict[str, list[Plans]] = {}
            row: dict[str, Any] = {
                "candidates": float(np.mean([len(one.actions) ** horizon for one in problems]))
            }
            for method, search in SEARCHES.items():
                wanted = [
                    index
                    for index, one in enumerate(problems)
                    if (method, name, index, one.actions) not in known
                ]
                found, seconds = timed(
                    lambda s=search, p=[problems[index] for index in wanted]: s.search(field, p, 5),
                    device,
                )
                known.update(
                    {
                        (method, name, index, problems[index].actions): one
                        for index, one in zip(wanted, found, strict=True)
                    }
                )
                plans[method] = [
                    known[method, name, index, one.actions] for index, one in enumerate(problems)
                ]
                row[method] = compared(plans[method], plans["exact"], sample.actions)
                if method.endswith("screened"):
                    pairs = zip(plans[method], plans[method.partition(",")[0]], strict=True)
                    same = [np.array_equal(one.actions, other.actions) for one, other in pairs]
                    row[method]["same_plans_as_unscreened"] = 100 * float(np.mean(same))
                    if oracle:
                        row[method] |= in_float32(search, field, problems, plans[method])
                if oracle:
                    row[method]["seconds_per_query"] = seconds / len(problems)
            result[f"{name}, {'true' if oracle else 'predicted'} task"] = row
            talk(json.dumps({f"{folder.name} {name} {'true' if oracle else 'predicted'}": row}))
    return result


def likeliest_problems(planner: CefitoPlanner, queries: Queries, weights: Weights) -> list[Problem]:
    """The problem of each query's given or likeliest task."""
    hypotheses = planner.hypotheses
    evidence = planner.chain.evidence(queries)
    return hypotheses.problems(
        queries,
        hypotheses.of(queries, 1, evidence),
        evidence,
        horizon=planner.horizon,
        weights=weights,
    )


def effort_on_trained_field(
    folder: Path, windows: int, split: str, device: torch.device
) -> dict[str, Any]:
    """Token forwards of guided search beside those of an exact one.

    They are counted on a fixed sample of all windows.
    """
    run = open_run(folder, device=device)
    planner, dataset = run.planner, run.dataset()
    assert isinstance(planner, CefitoPlanner)
    field = planner.incremental
    everything = cut_windows(dataset, horizon=planner.horizon, split=split)
    result: dict[str, Any] = {
        "run": folder.name,
        "dataset": dataset.name,
        "horizon": planner.horizon,
        "split": split,
        "windows": min(windows, len(everything)),
        "all_windows": len(everything),
    }
    for oracle in (True, False):
        queries = Queries.from_windows(everything.sample(windows, SAMPLE_SEED), oracle_task=oracle)
        for name, weights in (("energy", ENERGY), ("fitted", planner.fitted)):
            problems = likeliest_problems(planner, queries, weights)
            found, seconds = timed(lambda p=problems: GuidedSearch().search(field, p, 5), device)
            guided = np.mean([plans.evaluated.token_forwards for plans in found])
            exact = np.mean([exact_tokens(len(one.actions), planner.horizon) for one in problems])
            result[f"{name}, {'true' if oracle else 'predicted'} task"] = {
                "candidates": float(
                    np.mean([len(one.actions) ** planner.horizon for one in problems])
                ),
                "exact_token_forwards_per_query": float(exact),
                "guided_token_forwards_per_query": float(guided),
                "exact_over_guided": float(exact / guided),
                "guided_seconds_per_query": seconds / len(problems),
            }
    return result


def exact_tokens(actions: int, horizon: int) -> int:
    """Token forwards of exact search: two a node of the tree, one for the initial observation."""
    return 1 + 2 * sum(actions**length for length in range(1, horizon + 1))


def compared(
    found: list[Plans], exact: list[Plans], actual: np.ndarray[Any, Any]
) -> dict[str, Any]:
    tokens = sum(plans.evaluated.token_forwards for plans in found)
    return {
        "success_rate": 100
        * float(
            np.mean(
                [(one.actions[0] == true).all() for one, true in zip(found, actual, strict=True)]
            )
        ),
        "argmin": 100
        * float(
            np.mean(
                [
                    (one.actions[0] == best.actions[0]).all()
                    for one, best in zip(found, exact, strict=True)
                ]
            )
        ),
        "score_gap": float(
            np.mean(
                [one.scores[0] - best.scores[0] for one, best in zip(found, exact, strict=True)]
            )
        ),
        "token_forwards_per_query": tokens / len(found),
        "exact_token_forwards_over_these": sum(plans.evaluated.token_forwards for plans in exact)
        / tokens,
    }


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Seconds and token forwards against T at the largest |A|."""
    from matplotlib.figure import Figure

    largest = max(row["actions"] for row in rows)
    rows = [row for row in rows if row["actions"] == largest]
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, key, label in zip(
        figure.subplots(1, 2),
        ("seconds", "token_forwards"),
        ("seconds a query", "token forwards a query"),
        strict=True,
    ):
        for name in ("naive", *SEARCHES):
            points = [(row["horizon"], row[name][key]) for row in rows if name in row]
            axes.plot(*zip(*points, strict=True), marker="o", label=name)
        axes.set(
            yscale="log",
            xlabel="horizon T",
            ylabel=label,
            title=f"`paper`-size field, |A| = {largest}",
            xticks=[row["horizon"] for row in rows],
        )
        axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="|A| = 11, T = 3 and 4, within a minute"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    parser.add_argument("--sizes", type=int, nargs="*", default=[5, 8, 11])
    parser.add_argument("--horizons", type=int, nargs="+", help="default 3 4 5 6; quick 3 4")
    parser.add_argument(
        "--sample",
        type=int,
        default=20_000,
        help="most candidates that the naive reference evaluates",
    )
    parser.add_argument("--run", type=Path, nargs="*", default=[], help="folders of trained runs")
    parser.add_argument("--windows", type=int, default=200)
    parser.add_argument("--split", default="test")
    parser.add_argument(
        "--effort",
        action="store_true",
        help="of runs only count token forwards, on windows of any size",
    )
    parser.add_argument(
        "--limit", type=float, default=1e7, help="most candidates of a window's exact search"
    )
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="of all seconds; CPU time suffers less from other work on the machine",
    )
    common.add_settings(parser)
    parser.add_argument(
        "--exact-tokens",
        type=int,
        default=EXACT_TOKENS,
        help="token forwards from which on exact search is left out",
    )
    given = parser.parse_args()
    global clock
    clock = CLOCKS[given.clock]
    settings.update(common.settings(given.set))
    if given.threads:
        torch.set_num_threads(given.threads)
    device = pick_device(given.device)
    result: dict[str, Any] = {**common.machine(device), "clock": given.clock}
    if given.quick:
        rows = on_random_fields([11], given.horizons or [3, 4], device, 1331)
        result["against_naive"] = {
            name: {str(row["horizon"]): row[name]["against_naive"] for row in rows}
            for name in rows[0]
            if "against_naive" in (rows[0][name] if isinstance(rows[0][name], dict) else ())
        }
    else:
        rows = (
            on_random_fields(
                given.sizes,
                given.horizons or [3, 4, 5, 6],
                device,
                given.sample,
                exact_tokens=given.exact_tokens,
            )
            if given.sizes
            else []
        )
        result["trained"] = [
            effort_on_trained_field(folder, given.windows, given.split, device)
            if given.effort
            else on_trained_field(folder, given.windows, given.split, device, given.limit)
            for folder in given.run
        ]
    result["random"] = rows
    if given.out:
        write_json(given.out, result)
        if rows and not given.quick:
            draw(rows, given.out.with_suffix(".png"))
    if given.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
