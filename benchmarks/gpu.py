"""All that is to be measured on a machine with a GPU, in parts, within a limit of time.

    python benchmarks/gpu.py --limit 1800 --out OUT --annotations FOLDER/crosstask

The parts, one after the other:

- step: a training step of the `paper` predictor against the reference (`training.py`);
- search: exact and guided search of `paper`-size fields, T = 3 to 6 (`search.py`);
- queries: many queries, planned by each search (`queries.py`);
- train-T3, train-T4: a whole training with the preset `paper`, and the scores of its plans;
- compare: the planners beside each other, all at the sizes of `paper`.

Trainings need data: `--data`, a prepared data set, or `--annotations`, a folder with taxonomy.json
and videos.jsonl, for which observations are simulated; without either the small embedded world,
which is simulated too. Each part runs in a process of its own and leaves `OUT/PART.json`; all of
them stand in `OUT/gpu.json`. Killed, or out of time, it goes on when it is started again: parts
that are there are not repeated, trainings go on from their checkpoints, comparisons with the trials
that are missing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
from cefito.cli.console import progress, talk
from cefito.data.prepared import PreparedDataset, open_dataset
from cefito.data.simulation.observations import simulate
from cefito.data.simulation.world import write_world
from cefito.errors import RunError
from cefito.evaluation.runs import evaluate_run
from cefito.files import read_json, write_json
from cefito.planners.methods import load_config
from cefito.runs.train import train_run
from cefito.runtime import pick_device
from cefito.study.results import gather
from cefito.study.running import run_study
from cefito.study.study import Study
from cefito.study.trials import find_rows

HERE = Path(__file__).parent
TOY = {  # sizes at which every part takes seconds
    "field.width": "16",
    "field.depth": "1",
    "field.heads": "2",
    "training.optimiser.epochs": "1",
    "training.negatives.count": "4",
    "training.stopping.windows": "4",
    "classifier.hidden": "[8, 8, 8]",
    "classifier_training.optimiser.epochs": "1",
    "chain.hidden": "16",
    "chain.width": "8",
    "chain.emission": "8",
    "chain_training.optimiser.epochs": "1",
    "search.fitting_windows": "8",
}


def script(name: str, given: argparse.Namespace, *arguments: object) -> dict[str, Any]:
    """What another script of this folder writes with these arguments."""
    out = given.out / "parts" / f"{name}.json"
    device = ("--device", given.device, "--out", out)
    subprocess.run(
        [sys.executable, str(HERE / f"{name}.py"), *map(str, (*arguments, *device))],
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return dict(read_json(out, "Remove it.", RunError))


def settings(given: argparse.Namespace) -> dict[str, str]:
    """The settings of `paper` that are changed."""
    return {**(TOY if given.toy else {}), **common.settings(given.set)}


def as_options(values: dict[str, str], *sections: str) -> list[str]:
    """Settings of some sections as options of a script."""
    return [
        part
        for name, value in values.items()
        if name.partition(".")[0] in sections
        for part in ("--set", f"{name}={value}")
    ]


def step(given: argparse.Namespace) -> dict[str, Any]:
    """A training step against the reference, in both precisions."""
    sizes = ("--batch", 4, "--steps", 1, "--precision", "bfloat16") if given.toy else ("--steps", 5)
    changed = as_options(settings(given), "field", "training")
    return script("training", given, *sizes, *changed)


def search(given: argparse.Namespace) -> dict[str, Any]:
    """Searches of one query at all horizons."""
    sizes: tuple[object, ...] = ("--sizes", 5, 8, 11, "--exact-tokens", 10**7)
    if given.toy:
        sizes = ("--sizes", 3, "--horizons", 2)
    return script("search", given, *sizes, *as_options(settings(given), "field"))


def queries(given: argparse.Namespace) -> dict[str, Any]:
    """Many queries."""
    sizes: tuple[object, ...] = ("--queries", 10_000, "--seconds", 20)
    if given.toy:
        sizes = ("--queries", 20, "--seconds", 0.1, "--dim", 8, "--horizons", 2)
    return script("queries", given, "--work", given.out / "work", *sizes)


def dataset(given: argparse.Namespace) -> PreparedDataset:
    """The data set of the trainings, made where it is not there yet."""
    if given.data:
        return open_dataset(given.data)
    folder: Path = given.out / "work" / "data"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        if given.annotations:
            simulate(given.annotations, folder)
        else:
            write_world(folder)
    return open_dataset(folder)


def train(given: argparse.Namespace, horizon: int) -> dict[str, Any]:
    """A whole training, and its scores on test windows."""
    device, data = pick_device(given.device), dataset(given)
    config = load_config("paper", dataset=data.name, horizon=horizon, overrides=settings(given))
    run = train_run(
        data,
        given.out / "work" / f"run-T{horizon}",
        config=config,
        horizon=horizon,
        seed=0,
        device=device,
        progress=progress,
    )
    started = time.perf_counter()
    scores, _ = evaluate_run(run, sample=given.sample, progress=progress)
    return {
        "dataset": data.name,
        "horizon": horizon,
        **run.info.model_dump(mode="json", include={"windows", "parameters", "training"}),
        "evaluation_seconds": time.perf_counter() - started,
        "metrics": scores.metrics,
        "test_windows": scores.windows,
        "peak_mib": round(common.peak_mib(device)),
    }


def compare(given: argparse.Namespace) -> dict[str, Any]:
    """The table of planners; existing trials are not repeated."""
    study = Study(
        dataset=dataset(given),
        out=given.out / "work" / "compare",
        rows=find_rows(given.planners.split(",")),
        horizons=(2,) if given.toy else (3, 4),
        seeds=tuple(range(given.seeds)),
        preset="paper",
        settings=settings(given),
        sample=given.sample,
        device=given.device,
    )
    problems = run_study(study, progress=progress)
    return {"problems": problems, "results": gather(study).model_dump(mode="json")}


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "step": step,
    "search": search,
    "queries": queries,
    "train-T3": lambda given: train(given, 3),
    "train-T4": lambda given: train(given, 4),
    "compare": compare,
}


def run_parts(given: argparse.Namespace, argv: list[str]) -> None:
    """Run the parts that are missing, each in a process of its own, until the time is up."""
    ends = time.monotonic() + given.limit
    ledger = given.out / "spent.json"
    for name in given.parts:
        file = given.out / f"{name}.json"
        left = ends - time.monotonic()
        if file.exists() or left <= 0:
            continue
        talk(f"{name}: {left:.0f} s left")
        started = time.monotonic()
        command = [sys.executable, __file__, *argv, "--only", name]
        try:
            code = subprocess.run(command, timeout=left, check=False).returncode
            talk(f"{name}: {'done' if not code else f'failed with exit code {code}'}")
        except subprocess.TimeoutExpired:
            talk(f"{name}: out of time; the same command goes on")
        spent = read_json(ledger, "Remove it.", RunError) if ledger.exists() else {}
        spent[name] = spent.get(name, 0) + time.monotonic() - started
        write_json(ledger, spent)
        summarise(given)


def summarise(given: argparse.Namespace) -> dict[str, Any]:
    """Write all that is there into one file; parts that are not there yet are named."""
    found = {
        name: read_json(given.out / f"{name}.json", "Remove it.", RunError)
        for name in PARTS
        if (given.out / f"{name}.json").exists()
    }
    spent = given.out / "spent.json"
    value = {
        **common.machine(pick_device(given.device)),
        "toy": given.toy,
        "missing": [name for name in given.parts if name not in found],
        "seconds": read_json(spent, "Remove it.", RunError) if spent.exists() else {},
        "parts": found,
    }
    write_json(given.out / "gpu.json", value)
    return value


def main(argv: list[str] | None = None) -> None:
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--limit", type=float, required=True, help="seconds")
    parser.add_argument("--out", type=Path, required=True, help="folder of results and runs")
    parser.add_argument("--data", type=Path, help="a prepared data set")
    parser.add_argument("--annotations", type=Path, help="a folder to simulate observations for")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--planners", default="cefito,cefito+chain,chain,viterbi,pdpp,pkg,nearest,frequent"
    )
    parser.add_argument("--seeds", type=int, default=1, help="of the comparison")
    parser.add_argument("--sample", type=int, help="test windows that are scored; all by default")
    common.add_settings(parser)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--toy", action="store_true", help="tiny networks, to try the script")
    parser.add_argument("--only", choices=PARTS, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    (given.out / "parts").mkdir(parents=True, exist_ok=True)
    if given.only:
        result = PARTS[given.only](given)
        write_json(
            given.out / f"{given.only}.json",
            {**common.machine(pick_device(given.device)), **result},
        )
        return
    run_parts(given, argv)
    value = summarise(given)
    print(json.dumps({name: value[name] for name in ("device", "missing", "seconds")}))


if __name__ == "__main__":
    main()
