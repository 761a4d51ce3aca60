r"""Whether compiling the networks pays for planning: Inductor and AOTInductor against plain calls.

One thread, CPU time, all forms in turn in one process; weights are random except the chain's.

- chain: emissions and sums over tasks of 1 and 64 queries, the list of the five best pairs, and the
  whole query, planned with the compiled packages in their place;
- fields: the energies of a search's last actions in float32, with and without packed weights, at
  several numbers of tokens, and which share of a whole query by guided search such passes take.

`autotune` is `freezing` with `max_autotune`. A package of AOTInductor holds for one number of rows:
export specialises this code to it; here the last one.

    python benchmarks/compiled.py RUN --work WORK --out benchmarks/results/compiled.json
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial, partialmethod
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch._inductor import aoti_compile_and_package as package_into
from torch._inductor import aoti_load_package

from cefito.data import cut_windows
from cefito.field import children
from cefito.field.children import Prefixes
from cefito.field.fields import IncrementalField
from cefito.field.frozen import FrozenLinear
from cefito.planners.crf import inference
from cefito.planners.crf.inference import SequenceScores, TaskStates, TransitionSums
from cefito.planners.crf.model import ChainEvidence, ChainModel
from cefito.planners.queries import Queries
from cefito.runs.run import open_run
from cefito.search import GuidedSearch
from search import random_field, random_problem

FORMS: dict[str, dict[str, Any]] = {
    "freezing": {"freezing": True},
    "autotune": {
        "freezing": True,
        "max_autotune": True,
        "max_autotune_gemm_backends": "CPP,ATEN",
    },
}
SIZES: dict[str, dict[str, Any]] = {
    "small": {"field.width": 96, "field.depth": 2, "field.heads": 4, "field.mlp_ratio": 2.0},
    "paper": {},
}
TOKENS, ACTIONS, TOP = (64, 512, 4096), 11, 5


def spent() -> float:
    """CPU seconds of this process and of those that it has ended."""
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)


def timed(works: Mapping[str, Callable[[], Any]], rounds: int = 9) -> dict[str, float]:
    """CPU milliseconds of each, in turn; the median of the rounds."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            count, started = 0, time.process_time()
            while count == 0 or time.process_time() - started < 0.02:
                work()
                count += 1
            if number:  # the first warms up
                taken[name].append((time.process_time() - started) / count * 1e3)
    return {name: float(np.median(values)) for name, values in taken.items()}


def outputs(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else list(value)


def compared(
    plain: nn.Module,
    work: Path,
    inputs: Mapping[str, tuple[Any, ...]],
    now: Callable[..., Any],
    forms: Mapping[str, dict[str, Any]] = FORMS,
) -> tuple[Any, dict[str, Any]]:
    """Rows for all inputs, and the package of AOTInductor for the last ones."""
    result: dict[str, Any] = {}
    *_, last = inputs.values()
    with torch.inference_mode():
        plain(*last)  # fills what is cached
    with torch.no_grad():
        exported = torch.export.export(plain, last)
        path = str(work / "package.pt2")
        for frozen in (True, False):
            begun, options = spent(), {"freezing": frozen}
            with suppress(RuntimeError):  # of a graph that cannot be frozen
                package_into(exported, package_path=path, inductor_configs=options)
                break
    compiled = spent() - begun
    begun = time.process_time()
    package = aoti_load_package(path)
    result["package"] = {
        "frozen": frozen,
        "compile_seconds": compiled,
        "mib": Path(path).stat().st_size / 2**20,
        "load_seconds": time.process_time() - begun,
    }
    for name, given in inputs.items():
        works: dict[str, Callable[..., Any]] = {"now": now, "plain": plain, "package": package}
        seconds = {}
        with torch.no_grad():
            module = torch.export.export(plain, given).module()
        for form, options in forms.items():
            torch._dynamo.reset()
            begun, call = spent(), torch.compile(module, options=options)
            try:
                with torch.no_grad():
                    call(*given)
            except RuntimeError as error:
                print(name, form, "does not compile:", str(error).strip().splitlines()[0])
                continue
            works[form], seconds[form] = call, spent() - begun
        with torch.inference_mode():
            wanted = outputs(now(*given))
        row: dict[str, Any] = {"compile_seconds": seconds, "difference": {}}
        if given is not last:
            del works["package"]  # which reads beyond inputs of other sizes, unchecked
        for form, call in works.items():
            with torch.inference_mode():
                found = outputs(call(*given))
            pairs = zip(found, wanted, strict=True)
            row["difference"][form] = max(float((a - b).abs().nan_to_num().max()) for a, b in pairs)
        with torch.inference_mode():
            row["milliseconds"] = timed(
                {form: lambda call=call, given=given: call(*given) for form, call in works.items()}
            )
        result[name] = row
        print(name, json.dumps(row), flush=True)
    return package, result


class ChainScores(nn.Module):
    """Emissions with calibrated tasks [B, T, S], and their sums over tasks [B, C].

    Already as plain calls it does less than the library: factors of transitions are kept, and the
    sums of calibrated tasks follow from the sums before.
    """

    def __init__(self, chain: ChainModel) -> None:
        super().__init__()
        self.chain, self.known = [chain], {}

    def forward(self, initial: Tensor, goal: Tensor) -> tuple[Tensor, Tensor]:
        """Return both for observations [B, E]."""
        (chain,) = self.chain
        joined, states = chain._joined, chain.states
        emissions = joined.emissions(initial, goal)
        context = SimpleNamespace(save_for_backward=lambda *_: None)
        with patch.object(inference, "TransitionSums", self._kept):
            sums = inference._TaskSums.forward(context, emissions, joined.transitions, states)
        offsets = (chain.task_power - 1) * sums.log_softmax(dim=1)  # [B, C]
        emissions[:, 0] += offsets[:, states.tasks]
        return emissions, sums + offsets

    def _kept(self, transitions: Tensor, real: Tensor) -> TransitionSums:
        if real.shape not in self.known:  # which differs from block to block
            self.known[real.shape] = TransitionSums(transitions, real)
        return self.known[real.shape]


class ChainBest(nn.Module):
    """The best pairs of task and sequence within some tasks of each query, and their scores."""

    def __init__(self, chain: ChainModel) -> None:
        super().__init__()
        self.states: list[TaskStates] = [chain.states]
        self.transitions = [chain._joined.transitions]

    def forward(self, emissions: Tensor, tasks: Tensor) -> tuple[Tensor, Tensor]:
        """Return states [B, n, T] and scores [B, n], of tasks [B, m]."""
        scores = SequenceScores(self.states[0], emissions, self.transitions[0])
        return inference._best(scores, TOP, tasks)


def of_chain(folder: Path, work: Path) -> dict[str, Any]:
    """The chain of a run, and its whole queries."""
    run = open_run(folder)
    planner = run.planner
    chain = planner.chain
    chain._joined.transitions = chain._joined.transitions.clone()
    windows = cut_windows(run.dataset(), horizon=planner.horizon, split="val").sample(64, 0)
    batches = {f"{n} queries": Queries.from_windows(windows.subset(range(n))) for n in (1, 64)}
    inputs = {
        name: (torch.from_numpy(one.initial), torch.from_numpy(one.goal))
        for name, one in batches.items()
    }

    def scores_now(*_: Tensor, one: Queries) -> tuple[Tensor, Tensor]:
        evidence = chain.scores(one)
        return evidence.emissions, evidence.log_task_sums()

    result: dict[str, Any] = {"parameters": chain.parameters}
    for name, given in inputs.items():
        # a package for each: rows of one query broadcast
        package, row = compared(
            ChainScores(chain), work, {name: given},
            lambda *_, one=batches[name]: scores_now(one=one), {"freezing": FORMS["freezing"]},
        )  # fmt: skip
        with torch.inference_mode():
            emissions, sums = package(*given)
            tasks = sums.topk(planner.tasks, dim=1).indices.sort(dim=1).values
            emissions = emissions.clone()
        best = ChainBest(chain)
        listed, rows = compared(best, work, {name: (emissions, tasks)}, best, {})

        def evidence(_: ChainModel, queries: Queries, scores: Any) -> ChainEvidence:
            with torch.inference_mode():
                emissions, sums = scores(*map(torch.from_numpy, (queries.initial, queries.goal)))
            found = SequenceScores(chain.states, emissions, chain._joined.transitions)
            return ChainEvidence(found, sums.double().numpy())

        def likeliest(
            scores: SequenceScores, count: int, tasks: Tensor | None,
            listed: Any = listed, usual: Any = inference._best, shape: Any = tasks.shape,
        ) -> Any:  # fmt: skip
            if count != TOP or tasks is None or tasks.shape != shape:
                return usual(scores, count, tasks)
            return listed(scores.emissions, tasks)

        def plan(one: Queries = batches[name]) -> Any:
            return planner.plan(one, TOP)

        def replaced(
            scores: Any, listed: Any = inference._best, plan: Any = plan, evidence: Any = evidence
        ) -> Any:
            with (
                patch.object(ChainModel, "evidence", partialmethod(evidence, scores=scores)),
                patch.object(inference, "_best", listed),
            ):
                return plan()

        works = {
            "now": plan,
            "plain": partial(replaced, ChainScores(chain)),
            "package": partial(replaced, package, likeliest),
        }
        same = all(
            np.array_equal(a.actions, b.actions)
            for a, b in zip(plan(), works["package"](), strict=True)
        )
        whole = timed(works, 25)
        result[name] = {"scores": row, "best": rows} | {
            "whole": {"milliseconds": whole, "same_plans": same}
        }
        print(name, json.dumps(result[name]["whole"]), flush=True)
    return result


class LastActions(nn.Module):
    """Energies of prefixes of T − 1 actions, each ended by an action of its own."""

    def __init__(self, field: IncrementalField) -> None:
        super().__init__()
        self.field = [field]

    def forward(
        self, keys: list[Tensor], values: list[Tensor], target: Tensor, query: Tensor,
        offsets: Tensor, parents: Tensor, actions: Tensor,
    ) -> Tensor:  # fmt: skip
        """Return energies [m] of parents and actions [m]; the others as in `Prefixes`."""
        depth = keys[0].shape[1] // 2
        prefixes = Prefixes(depth, tuple(keys), tuple(values), target, query, offsets)
        evaluate = IncrementalField.leaf_energy_each.__wrapped__  # type: ignore[attr-defined]
        energies: Tensor = evaluate(self.field[0], prefixes, parents, actions)
        return energies


def without_packing(field: IncrementalField) -> IncrementalField:
    """The same with plain products, which compilers know."""
    parts = [part for block in field._children.blocks for part in vars(block).values()]
    for part in [*parts, field._reach._product]:
        if isinstance(part, FrozenLinear):
            part.__dict__["_packed"] = None
            part.__dict__["_cast"] = part._weight
    return field


def of_field(settings: Mapping[str, Any], work: Path) -> dict[str, Any]:
    """A field with random weights: its last actions, and their share of a query."""
    network = random_field(3, torch.device("cpu"), settings=settings)
    field, problem = IncrementalField(network), random_problem(ACTIONS)
    everything, generator = torch.arange(ACTIONS), torch.Generator().manual_seed(0)
    ends = (torch.from_numpy(end)[None] for end in (problem.initial, problem.goal))
    prefixes = field.root(*ends)
    for _ in range(2):
        prefixes = field.extend(prefixes, everything)
    shared = [[part.clone() for part in parts] for parts in (prefixes.keys, prefixes.values)]
    others = [part.clone() for part in (prefixes.target, prefixes.query, prefixes.offsets)]
    inputs = {}
    for tokens in TOKENS:
        parents = torch.randint(len(prefixes), (tokens // 2,), generator=generator).sort().values
        actions = torch.randint(ACTIONS, (tokens // 2,), generator=generator)
        inputs[f"{tokens} tokens"] = (*shared, *others, parents, actions)
    plain = LastActions(without_packing(IncrementalField(network)))
    usual = children._padding

    def now(*given: Any) -> Tensor:
        with patch.object(children, "_padding", usual):
            energies: Tensor = LastActions(field)(*given)
        return energies

    with patch.object(children, "_padding", lambda _: 0):  # depends on the number of rows
        _, result = compared(plain, work, inputs, now)
    inside, evaluate = 0.0, IncrementalField.sequence_energies

    def watched(*given: Any) -> Tensor:
        nonlocal inside
        started = time.process_time()
        energies: Tensor = evaluate(*given)
        inside += time.process_time() - started
        return energies

    search = GuidedSearch()
    with patch.object(IncrementalField, "sequence_energies", watched):
        search.search(field, [problem], TOP)
        inside, started = 0.0, time.process_time()
        for _ in range(3):
            search.search(field, [problem], TOP)
    whole = time.process_time() - started
    result["guided_search"] = {"milliseconds": whole / 3 * 1e3, "share_of_passes": inside / whole}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="folder of the packages")
    parser.add_argument("--parts", nargs="+", default=["chain", *SIZES])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.work.mkdir(parents=True, exist_ok=True)
    found = json.loads(given.out.read_text()) if given.out and given.out.exists() else {}
    result: dict[str, Any] = found | {"torch": torch.__version__, "threads": 1}
    for part in given.parts:
        result[part] = (
            of_chain(given.run, given.work)
            if part == "chain"
            else of_field(SIZES[part], given.work)
        )
        if given.out:
            given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
