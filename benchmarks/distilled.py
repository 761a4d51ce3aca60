r"""Screening by a small field: how many sequences must be kept so that the best is seldom lost.

Two fields learn the energies of a run's trained field, on the training windows with noise and
sequences of each task, half of them near the true one: a student whose blocks have a tenth of the
weights, and the field's first block with a read-out of its own. All evaluate every sequence of
each window's true task. Rules of how many to keep are chosen such that the sequence of lowest
energy is lost for at most 1 % of the validation windows, and then tried on test windows. CPU time
in turn, one thread, exhaustive search of the energy alone; fields of `paper` size have random
weights there, and keep the share that the trained ones need.

    cefito train DATA --horizon 3 --preset small --set field.members=1 --out RUN
    python benchmarks/distilled.py RUN --out benchmarks/results/distilled.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cefito.data import cut_windows
from cefito.data.windows import Windows
from cefito.field.fields import CompositeField, SearchedField, incremental_field, make_field
from cefito.field.settings import FieldConfig
from cefito.files import write_json
from cefito.runs.run import open_run
from cefito.search import ExhaustiveSearch, Problem
from cefito.search.base import components_of
from cefito.search.problem import compiled, places
from cefito.search.screening import SequenceEnergies, coarse_of
from search import OBSERVATION, random_field

LOST, BATCH, SEQUENCES, NOISE = 0.01, 32, 32, 0.5
SMALLER: dict[str, Any] = {"width": 40, "depth": 1, "heads": 4}  # of `small`: 96, 2, 4
PAPER_SMALLER = {"field.width": 128, "field.depth": 3, "field.heads": 4}  # of `paper`: 384, 4, 6
Reals = NDArray[np.float64]


def drawn(windows: Windows, actions: tuple[tuple[int, ...], ...], seed: int) -> NDArray[np.int64]:
    """Distinct sequences of each window's task [N, M, T]: the true one, others near it, any."""
    generator, found = np.random.default_rng(seed), []
    for true, task in zip(windows.actions, windows.tasks, strict=True):
        ids = np.array(actions[task])
        near = np.repeat(true[None], 2 * SEQUENCES, axis=0)
        for row in near[1 : SEQUENCES // 2 + 4]:  # one or two steps changed
            steps = generator.choice(len(true), size=generator.integers(1, 3), replace=False)
            row[steps] = generator.choice(ids, size=len(steps))
        near[SEQUENCES // 2 + 4 :] = generator.choice(ids, size=near[SEQUENCES // 2 + 4 :].shape)
        _, first = np.unique(near, axis=0, return_index=True)
        found.append(near[np.sort(first)[:SEQUENCES]])
    return np.stack(found)


def energies(field: CompositeField, initial: Tensor, goal: Tensor, actions: Tensor) -> Tensor:
    """Differentiable energies [B, M] of sequences [B, M, T], one member."""
    total = torch.zeros(actions.shape[:2])
    for name, one in field.components.items():
        ends, read = (
            ((goal, initial), actions.flip(2)) if name.backward else ((initial, goal), actions)
        )
        total = total + one.candidate_energies(*ends, read)
    return total


def like(field: CompositeField, changes: Mapping[str, Any]) -> CompositeField:
    """A new field of other sizes for the same observations and actions."""
    first = field.predictor
    made = make_field(
        config=FieldConfig(**(field.config.model_dump() | changes)),
        observation_dim=first.observation_dim,
        action_count=first.action_count,
        horizon=first.horizon,
        action_vectors=first.action_vectors,
    )
    assert isinstance(made, CompositeField)
    return made


def students(teacher: CompositeField) -> dict[str, CompositeField]:
    """A field with a tenth of the blocks' weights, all new; the first block with a read-out."""
    small, early = like(teacher, SMALLER), like(teacher, {"depth": 1})
    early.load_state_dict(teacher.state_dict())
    for name, one in small.components.items():
        one.reset(torch.Generator().manual_seed(0), mean=teacher.components[name].mean)
    for key, parameter in early.named_parameters():
        parameter.requires_grad_(
            any(part in key for part in (".norm.", "state_head", "skip_scale"))
        )
    return {"tenth": small, "first block": early}


def distil(
    teacher: CompositeField, train: Windows, actions: tuple[tuple[int, ...], ...], epochs: int
) -> dict[str, CompositeField]:
    """The students after some epochs, with the same batches."""
    learned, rows = students(teacher), torch.arange(len(train))
    deviation = NOISE * float(np.concatenate([train.initial, train.goal]).std(axis=0).mean())
    generator = torch.Generator().manual_seed(0)
    optimisers = {
        name: torch.optim.AdamW([one for one in field.parameters() if one.requires_grad], lr=2e-3)
        for name, field in learned.items()
    }
    steps = epochs * -(-len(train) // BATCH)
    schedules = [
        torch.optim.lr_scheduler.CosineAnnealingLR(one, steps) for one in optimisers.values()
    ]
    for epoch in range(epochs):
        sequences, losses = torch.from_numpy(drawn(train, actions, epoch)), []
        for part in rows[torch.randperm(len(rows), generator=generator)].split(BATCH):
            initial, goal = (
                torch.from_numpy(end[part.numpy()]) for end in (train.initial, train.goal)
            )
            initial, goal = (
                end + deviation * torch.randn(end.shape, generator=generator)
                for end in (initial, goal)
            )
            with torch.no_grad():
                wanted = energies(teacher, initial, goal, sequences[part])
                wanted = wanted - wanted.mean(dim=1, keepdim=True)
                low = (-wanted / wanted.std()).softmax(dim=1)  # more weight on low energies
            for name, field in learned.items():
                given = energies(field, initial, goal, sequences[part])
                given = given - given.mean(dim=1, keepdim=True)
                squares = (given - wanted).square() / wanted.var()
                loss = ((1 / SEQUENCES + low) * squares).sum(dim=1).mean() / 2
                optimisers[name].zero_grad()
                loss.backward()
                optimisers[name].step()
                losses.append(loss.item())
            for schedule in schedules:
                schedule.step()
        print(epoch, np.mean(np.reshape(losses, (-1, 2)), axis=0), flush=True)
    return {name: field.eval() for name, field in learned.items()}


@torch.inference_mode()
def table(field: SearchedField, initial: Tensor, goal: Tensor, actions: Tensor) -> Reals:
    """Energies of all sequences [A^T] of some actions [A], by rank."""
    total: Any = 0.0
    for one in components_of(field):
        prefixes = one.energies.root(*((goal, initial) if one.reversed else (initial, goal)))
        for _ in range(field.horizon - 1):
            prefixes = one.energies.extend(prefixes, actions)
        found = one.energies.leaf_energy(prefixes, actions).view([len(actions)] * field.horizon)
        if one.reversed:
            found = found.permute(*range(field.horizon)[::-1])
        total = total + one.weight * found.double().numpy()
    return np.asarray(total).ravel()


def problems(windows: Windows, actions: tuple[tuple[int, ...], ...]) -> list[Problem]:
    ends = zip(windows.initial, windows.goal, windows.tasks, strict=True)
    return [Problem(initial=one, goal=other, actions=actions[task]) for one, other, task in ends]


def standings(
    fields: Mapping[str, SearchedField], exact: SearchedField, asked: list[Problem]
) -> dict[str, list[tuple[int, Reals]]]:
    """By each field, the rank of each window's best sequence, and all energies, ascending.

    These are deviations above the lowest one.
    """
    found: dict[str, list[tuple[int, Reals]]] = {name: [] for name in fields}
    for one in asked:
        ends = (torch.from_numpy(end)[None] for end in (one.initial, one.goal))
        given = (*ends, torch.tensor(one.actions))
        best = table(exact, *given).argmin()
        for name, field in fields.items():
            values = table(field, *given)
            rank = int((values < values[best]).sum())
            found[name].append((rank, np.sort(values - values.min()) / values.std()))
    return found


# how far behind the first a sequence is in each rule; what counts is the share that a rule keeps
RULES: dict[str, Callable[[int, Reals], float]] = {
    "count": lambda rank, values: rank + 1,  # noqa: ARG005
    "share": lambda rank, values: (rank + 1) / len(values),
    "deviations": lambda rank, values: float(values[rank]),
}


def share_kept(values: Reals, limit: float, behind: Callable[[int, Reals], float]) -> float:
    """The share of one window's sequences that a rule keeps."""
    return float(np.mean([behind(rank, values) <= limit for rank in range(len(values))]))


def rules(val: list[tuple[int, Reals]], test: list[tuple[int, Reals]]) -> dict[str, Any]:
    """Of each rule the least number that loses at most LOST of the validation windows."""
    rows: dict[str, Any] = {}
    for rule, behind in RULES.items():
        limit = sorted(behind(*one) for one in val)[int(np.ceil((1 - LOST) * len(val))) - 1]
        rows[rule] = {"limit": limit} | {
            f"share_kept_{name}": float(
                np.mean([share_kept(values, limit, behind) for _, values in part])
            )
            for name, part in (("val", val), ("test", test))
        }
        rows[rule] |= {
            "lost_val": float(np.mean([behind(*one) > limit for one in val])),
            "lost_test": float(np.mean([behind(*one) > limit for one in test])),
        }
    return rows


def screened(
    exact: SearchedField, rough: SearchedField, problem: Problem, rule: str, limit: float
) -> tuple[NDArray[np.int64], int, int]:
    """The best of those that another field does not exclude; their tokens, and how many."""
    ends = (torch.from_numpy(end)[None] for end in (problem.initial, problem.goal))
    values = table(rough, *ends, torch.tensor(problem.actions))
    if rule == "share":
        last = int(limit * len(values))
        kept = np.argpartition(values, last)[: last + 1]
    else:
        kept = np.flatnonzero(values <= values.min() + limit * values.std())
    (space,) = compiled([problem], exact.horizon, 1)
    again = SequenceEnergies(exact, [space], 1024)
    sequences = places(kept, space.size, exact.horizon)
    found = again.of(0, sequences)
    best = np.array(problem.actions)[sequences[found.argmin()]]
    return best, int(again.tokens[0]), len(kept)


def flops(config: FieldConfig, horizon: int, inner: int, leaves: int) -> float:
    """Operations of a walk by one component, with `inner` prefixes of one or more actions."""
    square, mlp = 2 * config.width**2, 2 * config.mlp_ratio
    token = (1 + mlp) * square + 4 * (2 * horizon + 1) * config.width  # behind the projections
    total = leaves * square  # the head
    for block in range(config.depth):
        first, last = block == 0, block == config.depth - 1
        projected = (0 if first else 2 if last else 3) * square  # the first ones stand in a table
        total += inner * 2 * (projected + (0 if last else token))
        total += leaves * (
            2 * projected + (token + (0 if first else square) if last else 2 * token)
        )
    return total


def timing(
    exact: SearchedField,
    asked: list[Problem],
    rough: Mapping[str, tuple[SearchedField, str, float]],
    rounds: int,
) -> dict[str, Any]:
    """CPU milliseconds of a query and operations, beside exact search in float32."""
    works: dict[str, Callable[[Problem], Any]] = {
        "float32": lambda one: ExhaustiveSearch().search(exact, [one], 1)[0],
        "bfloat16 first": lambda one: ExhaustiveSearch(screening="on").search(exact, [one], 1)[0],
    }
    for name, given in rough.items():
        field, rule, limit = given
        works[name] = lambda one, field=field, rule=rule, limit=limit: screened(
            exact, field, one, rule, limit
        )
    taken: dict[str, list[float]] = {name: [] for name in works}
    counted: dict[str, list[Any]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for one in asked:
            for name, work in works.items():
                started = time.process_time()
                found = work(one)
                if number:
                    taken[name].append(time.process_time() - started)
                elif name in rough:
                    counted[name].append(found)
                else:
                    counted[name].append(found.evaluated.token_forwards)
    rows: dict[str, Any] = {}
    horizon, parts = exact.horizon, len(components_of(exact))
    config = components_of(exact)[0].energies.field.config
    whole = 0.0
    for one in asked:
        size = len(one.actions)
        whole += parts * flops(
            config, horizon, sum(size**t for t in range(1, horizon)), size**horizon
        )
    for name, values in taken.items():
        rows[name] = {
            "milliseconds": float(np.sum(values) / len(values) * 1e3),
            "against_float32": float(np.sum(taken["float32"]) / np.sum(values)),
        }
        if name in rough:
            own, spent = components_of(rough[name][0])[0].energies.field.config, 0.0
            for one, (_, tokens, kept) in zip(asked, counted[name], strict=True):
                size = len(one.actions)
                inner = sum(size**t for t in range(1, horizon))
                spent += parts * flops(own, horizon, inner, size**horizon)
                # tokens: one of each component's root, two of each prefix and sequence
                spent += flops(config, horizon, (tokens - parts) // 2 - parts * kept, parts * kept)
            rows[name] |= {"flops_against_float32": whole / spent}
        else:
            rows[name] |= {"token_forwards": float(np.mean(counted[name]))}
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--windows", type=int, default=200)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    run = open_run(given.run)
    planner, dataset = run.planner, run.dataset()
    exact, actions = planner.incremental, planner.space.actions
    windows = {
        split: cut_windows(dataset, horizon=planner.horizon, split=split)
        for split in ("train", "val", "test")
    }
    learned = distil(planner.field, windows["train"], actions, given.epochs)
    fields = {name: incremental_field(field) for name, field in learned.items()}
    asked = {
        split: problems(windows[split].sample(given.windows, 0), actions)
        for split in ("val", "test")
    }
    rough = fields | {"bfloat16": coarse_of(exact)}
    found = {split: standings(rough, exact, part) for split, part in asked.items()}
    result: dict[str, Any] = {
        "run": given.run.name,
        "windows": given.windows,
        "parameters": {
            name: sum(one.predictor.parameter_count() for one in field.components.values())
            for name, field in ({"field": planner.field} | learned).items()
        },
    }
    chosen, limits, shares = {}, {}, {}
    for name in rough:
        rows = rules(found["val"][name], found["test"][name])
        firsts = float(np.mean([rank == 0 for rank, _ in found["val"][name]]))
        result[name] = rows | {"best_is_first": firsts}
        chosen[name] = min(rows, key=lambda rule, rows=rows: rows[rule]["share_kept_val"])
        limits[name] = rows[chosen[name]]["limit"]
        shares[name] = rows[chosen[name]]["share_kept_val"]
        print(name, json.dumps(result[name]), flush=True)
    trained = {name: (fields[name], chosen[name], limits[name]) for name in fields}
    result["time"] = timing(exact, asked["val"][:24], trained, 2)
    generator = np.random.default_rng(0)
    ends = generator.standard_normal((2, OBSERVATION), dtype=np.float32)
    size = 15  # actions, the median of the tasks
    problem = Problem(initial=ends[0], goal=ends[1], actions=tuple(range(size)))
    large = incremental_field(random_field(planner.horizon, torch.device("cpu")))
    less = incremental_field(
        random_field(planner.horizon, torch.device("cpu"), settings=PAPER_SMALLER)
    )
    assumed = {
        f"tenth, {share:.3f} kept": (less, "share", share)
        for share in sorted({shares["tenth"], 0.01, 0.1})
    }
    result["time_paper"] = timing(large, [problem], assumed, 3)
    print(json.dumps(result, indent=1))
    if given.out:
        write_json(given.out, result)


if __name__ == "__main__":
    main()
