"""Settings of a planner by random trials, each scored on validation windows alone.

Every method gets the same number of trials, the first of which is the preset as it is; the others
draw the settings of its space (`SPACES`) at random, by a generator of the seed, the method and the
number of the trial. A trial is one training for each data set, horizon and seed, scored on the
validation windows; the best mean success rate wins, then the mean accuracy, then the lower number.

No test window is read: trials are trained on copies of the data set without its test videos. With
--split-seed they are trained on draws of few recipes and videos as well (`draws.py`), so that
settings hold on several data sets.

What was scored is kept in files, one for each training, below WORK/METHOD: a command that was
killed goes on where it was, and one with more trials keeps those that there are.

    python benchmarks/tune.py DATA --method pdpp --trials 24 --work WORK --out tuned-pdpp.json
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from cefito.cli.console import talk
from cefito.data.prepared import PreparedDataset, open_dataset
from cefito.data.windows import fitting_windows
from cefito.errors import CefitoError, ConfigError, RunError
from cefito.evaluation.runs import SAMPLE_SEED
from cefito.evaluation.score import evaluate_planner
from cefito.files import read_json, write_json
from cefito.locks import locked
from cefito.planners.methods import METHODS, RunConfig, find_method, load_config
from cefito.runs.train import train_run
from cefito.runtime import pick_device
from cefito.settings import flattened
from draws import cut_down, draw

METRICS = ("success_rate", "mean_accuracy")
SHARED = ("classifier", "classifier_training")
"""Sections that several methods read; tuned for none of them."""


@dataclass(frozen=True)
class Log:
    """A number between two, its logarithm uniform; a whole one if both are."""

    low: float
    high: float

    def draw(self, rng: np.random.Generator) -> float:
        """A number, to three digits."""
        value = float(np.exp(rng.uniform(np.log(self.low), np.log(self.high))))
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        return round(value) if whole else float(f"{value:.3g}")

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}, log-uniform"


@dataclass(frozen=True)
class Pick:
    """One of several values."""

    values: tuple[Any, ...]

    def draw(self, rng: np.random.Generator) -> Any:
        """One of them."""
        return self.values[rng.integers(len(self.values))]

    def __str__(self) -> str:
        return "one of " + ", ".join(map(str, self.values))


Space = Mapping[tuple[str, ...], Log | Pick]
"""What is drawn, by the settings that get it; several settings share a draw."""


def trained(
    *sections: str, rate: tuple[float, float], epochs: tuple[int, int]
) -> dict[tuple[str, ...], Log | Pick]:
    """What is drawn of how networks are trained; several sections share it."""
    drawn: dict[str, Log | Pick] = {
        "optimiser.learning_rate": Log(*rate),
        "optimiser.epochs": Log(*epochs),
        "optimiser.batch_size": Pick((32, 64, 128)),
        "optimiser.weight_decay": Log(1e-3, 1.0),
        "augmentation.noise": Pick((0.0, 0.1, 0.3, 1.0)),
        "augmentation.swap": Pick((0.0, 0.4, 0.8)),
    }
    return {
        tuple(f"{section}.{name}" for section in sections): kind for name, kind in drawn.items()
    }


def one(**kinds: Log | Pick) -> dict[tuple[str, ...], Log | Pick]:
    """Draws of single settings, whose dots are written as two underscores."""
    return {(name.replace("__", "."),): kind for name, kind in kinds.items()}


DROPOUT = Pick((0.0, 0.1, 0.2, 0.3, 0.5))
SPACES: dict[str, Space] = {
    "cefito": trained("training", rate=(2e-4, 5e-3), epochs=(8, 48))
    | one(field__width=Pick((64, 96, 128)), field__depth=Pick((1, 2, 3)))
    | one(
        training__negatives__count=Pick((12, 24, 48)), training__loss__temperature=Log(0.03, 0.3)
    ),
    "chain": trained("chain_training", rate=(2e-4, 5e-3), epochs=(30, 240))
    | one(chain__input_dropout=DROPOUT, chain__dropout=DROPOUT)
    | one(chain__hidden=Pick((512, 1024, 3072)), chain__width=Pick((64, 128, 256))),
    "viterbi": trained("viterbi.training", rate=(2e-4, 1e-2), epochs=(20, 160))
    | one(viterbi__input_dropout=DROPOUT, viterbi__dropout=DROPOUT)
    | one(viterbi__hidden=Pick((256, 512, 1024)), viterbi__width=Pick((64, 128, 256))),
    "pdpp": trained("pdpp.training", rate=(5e-4, 1e-2), epochs=(8, 96))
    | one(pdpp__widths=Pick(([128], [256], [128, 256])), pdpp__ends=Pick((1.0, 2.0, 5.0)))
    | one(pdpp__dropout=DROPOUT),
    "pkg": trained("pkg.training", rate=(3e-4, 1e-2), epochs=(8, 96))
    | one(pkg__network__dropout=DROPOUT, pkg__smoothing=Pick((0.0, 0.01, 0.1)))
    | one(pkg__network__hidden=Pick(([256, 256], [512, 512], [1024, 1024]))),
    "schema": trained("schema_model.training", rate=(2e-4, 1e-2), epochs=(30, 300))
    | one(schema_model__input_dropout=DROPOUT, schema_model__dropout=DROPOUT)
    | one(schema_model__hidden=Pick((256, 512)), schema_model__width=Pick((64, 128))),
    "kepp": trained("kepp.step.training", "kepp.plan.training", rate=(5e-4, 1e-2), epochs=(5, 40))
    | {
        ("kepp.step.widths", "kepp.plan.widths"): Pick(([128], [256], [128, 256])),
        ("kepp.step.dropout", "kepp.plan.dropout"): DROPOUT,
        ("kepp.plan.ends",): Pick((1.0, 2.0, 5.0)),
    },
    "mtid": trained("mtid.training", rate=(5e-4, 1e-2), epochs=(8, 96))
    | one(mtid__widths=Pick(([128], [256], [128, 256])), mtid__ends=Pick((1.0, 2.0, 6.0)))
    | one(mtid__layers=Pick((1, 2, 3)), mtid__dropout=DROPOUT),
    "planllm": trained("planllm.training", rate=(2e-4, 1e-2), epochs=(30, 300))
    | one(planllm__input_dropout=DROPOUT, planllm__dropout=DROPOUT),
    "p3iv": trained("p3iv.training", rate=(1e-4, 5e-3), epochs=(10, 160))
    | one(p3iv__dropout=DROPOUT, p3iv__token_dropout=DROPOUT)
    | one(p3iv__hidden=Pick((128, 256, 512)), p3iv__width=Pick((128, 256))),
}
"""What is drawn for each method; of others, what `space_of` says."""


def space_of(method: str, config: RunConfig) -> Space:
    """What is drawn for a method.

    Without an entry of its own: how its networks are trained, around the preset (learning rate by a
    factor of 8, epochs from half to four times), and every share that is dropped.

    Raises:
        ConfigError: No such method, or one with nothing of its own to tune.
    """
    sections = find_method(method).settings.model_fields
    own = [name for name in sections if name not in SHARED]
    if "llm" in sections or not own:
        able = ", ".join(name for name in METHODS if name in SPACES)
        raise ConfigError(f"'{method}' trains nothing of its own to tune. Choose among {able}.")
    if method in SPACES:
        return SPACES[method]
    values = flattened({name: config.sections[name] for name in own})
    space: dict[tuple[str, ...], Log | Pick] = {}
    for key, value in values.items():
        section = key.removesuffix(".optimiser.learning_rate")
        if section != key:
            epochs = values[f"{section}.optimiser.epochs"]
            around = (value / 8, 8 * value), (max(1, epochs // 2), 4 * epochs)
            space |= trained(section, rate=around[0], epochs=around[1])
        elif key.endswith("dropout"):
            space[(key,)] = DROPOUT
    return space


def drawn(space: Space, method: str, seed: int, trial: int) -> dict[str, Any]:
    """The settings of a trial; none for the first one, which is the preset as it is."""
    if not trial:
        return {}
    rng = np.random.default_rng([20261122, seed, crc32(method.encode()), trial])
    found = [(keys, kind.draw(rng)) for keys, kind in space.items()]
    return {key: value for keys, value in found for key in keys}


def without_test(
    whole: PreparedDataset, work: Path, *, name: str, tasks: Sequence[int], videos: Sequence[int]
) -> PreparedDataset:
    """A copy of some videos of a data set, without those of its test split."""
    folder = work / "data" / f"{name}-{whole.fingerprint[:12]}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        kept = [index for index in videos if whole.videos[index].split != "test"]
        try:
            cut_down(whole, list(tasks), kept, folder, name)
        except CefitoError:
            if not folder.exists():  # else another tuning was there first; its copy is the same
                raise
    return check_without_test(open_dataset(folder))


def check_without_test(dataset: PreparedDataset) -> PreparedDataset:
    """The data set, if it has no test videos.

    Raises:
        ConfigError: It has.
    """
    if any(video.split == "test" for video in dataset.videos):
        raise ConfigError(
            f"{dataset.folder}: holds test videos, and settings are never chosen on these. Remove "
            "the folder and repeat the command."
        )
    return dataset


def data_sets(whole: PreparedDataset, given: argparse.Namespace) -> dict[str, PreparedDataset]:
    """What trials are trained and scored on, by name."""
    everything = range(len(whole.taxonomy.tasks)), range(len(whole.videos))
    parts = {"whole": everything}
    for seed in given.split_seed:
        sizes = {"recipes": given.recipes, "train": given.train, "val": given.val, "share": 1.0}
        tag = "-".join(str(size) for size in sizes.values())
        parts[f"draw{seed}-{tag}"] = draw(whole, seed, **sizes)
    return {
        name: without_test(
            whole, given.work, name=f"{whole.name}-{name}", tasks=tasks, videos=videos
        )
        for name, (tasks, videos) in parts.items()
    }


@dataclass(frozen=True)
class Piece:
    """One training of a trial, and what it is scored on."""

    data: str
    dataset: PreparedDataset
    horizon: int
    seed: int

    def __str__(self) -> str:
        return f"{self.data}-T{self.horizon}-seed{self.seed}"


def scored(
    piece: Piece, config: RunConfig, given: argparse.Namespace, place: Path
) -> dict[str, Any]:
    """Validation scores of a training, or the error that it ended with."""
    started = time.perf_counter()
    run_folder, trainings = place / f"run-{piece}", place.parent / "trainings"
    try:
        run = train_run(
            piece.dataset,
            run_folder,
            config=config,
            horizon=piece.horizon,
            seed=piece.seed,
            device=pick_device(given.device),
            trainings=trainings,
            reuse=True,
            tracker="none",
        )
    except RunError as problem:
        if "diverged" not in str(problem):
            raise
        return {"error": str(problem), "seconds": time.perf_counter() - started}
    _, windows = fitting_windows(piece.dataset, horizon=piece.horizon)
    windows = windows.sample(given.sample, SAMPLE_SEED)
    assert windows.split == "val"
    evaluation, _ = evaluate_planner(run.planner, windows)
    return {
        **{name: evaluation.metrics[name] for name in METRICS},
        "windows": len(windows),
        "parameters": sum(run.planner.describe().parameters.values()),
        "seconds": time.perf_counter() - started,
    }


def tidied(piece: Piece, place: Path) -> None:
    """Remove the run of a piece that is scored, and trainings that no other trial can share."""
    shutil.rmtree(place / f"run-{piece}", ignore_errors=True)
    for folder in sorted((place.parent / "trainings").glob("*")):
        if not folder.name.startswith("classifier"):
            shutil.rmtree(folder)


def trial_of(
    number: int, settings: dict[str, Any], pieces: Sequence[Piece], given: argparse.Namespace
) -> dict[str, Any]:
    """The record of a trial; trains and scores what is not there."""
    place = given.work / given.method / f"trial-{number:03}"
    place.mkdir(parents=True, exist_ok=True)
    scores = {}
    for piece in pieces:
        path = place / f"{piece}.json"
        if not path.exists():
            config = config_of(given, piece.horizon, settings)
            found = scored(piece, config, given, place)
            write_json(path, {"settings": settings, **found})
            tidied(piece, place)
        scores[str(piece)] = read_json(path, "Remove it and repeat the command.", RunError)
        if scores[str(piece)].pop("settings") != json.loads(json.dumps(settings)):
            raise RunError(f"{path}: is of other settings. Choose another folder for --work.")
    means: dict[str, float | None] = dict.fromkeys(METRICS)
    if not any("error" in score for score in scores.values()):
        for name in METRICS:
            means[name] = float(np.mean([score[name] for score in scores.values()]))
    return {"trial": number, "settings": settings, **means, "scores": scores}


def config_of(given: argparse.Namespace, horizon: int, settings: Mapping[str, Any]) -> RunConfig:
    """The preset for a horizon, with the settings of a trial.

    Raises:
        ConfigError: Settings that cannot be.
    """
    fixed = dict(entry.split("=", 1) for entry in given.set)
    return load_config(
        given.preset,
        method=given.method,
        dataset=given.variant,
        horizon=horizon,
        overrides={**fixed, **settings},
    )


def order(trial: Mapping[str, Any]) -> tuple[float, ...]:
    """Best first; trials that diverged last, and the lower number before the higher."""
    scores = [trial[name] for name in METRICS]
    known = [-score if score is not None else float("inf") for score in scores]
    return (*known, trial["trial"])


def tuned(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All trials, in their order."""
    whole = open_dataset(given.data)
    given.variant = whole.taxonomy.dataset
    horizons = [int(horizon) for horizon in given.horizons.split(",")]
    space = space_of(given.method, config_of(given, horizons[0], {}))
    trials = [drawn(space, given.method, given.seed, number) for number in range(given.trials)]
    for settings in trials:  # what cannot be is refused before anything is trained
        for horizon in horizons:
            config_of(given, horizon, settings)
    given.space = {" and ".join(keys): str(kind) for keys, kind in space.items()}
    data = data_sets(whole, given)
    pieces = [
        Piece(name, dataset, horizon, seed)
        for name, dataset in data.items()
        for horizon in horizons
        for seed in range(given.seeds)
    ]
    folder = given.work / given.method
    folder.mkdir(parents=True, exist_ok=True)
    fixed = {
        **{name: getattr(given, name) for name in ("preset", "seed", "sample", "set", "space")},
        "data": {name: dataset.fingerprint for name, dataset in data.items()},
    }
    given.fixed = json.loads(json.dumps(fixed))
    with locked(folder, "a tuning"):
        header = folder / "tuning.json"
        if not header.exists():
            write_json(header, given.fixed)
        if read_json(header, "Choose another folder.", RunError) != given.fixed:
            raise RunError(f"{folder}: holds trials of another tuning. Choose another --work.")
        for number, settings in enumerate(trials):
            yield trial_of(number, settings, pieces, given)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--method", required=True, help="; ".join(SPACES))
    parser.add_argument("--trials", type=int, default=24, help="the preset itself is the first")
    parser.add_argument(
        "--work", type=Path, required=True, help="copies of data and trials go there"
    )
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--horizons", default="3,4")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each, from seed 0")
    parser.add_argument("--sample", type=int, help="score a fixed sample of validation windows")
    parser.add_argument(
        "--split-seed", type=int, nargs="*", default=[], help="draws beside the whole"
    )
    parser.add_argument("--recipes", type=int, default=8, help="of a draw")
    parser.add_argument("--train", type=int, default=66, help="videos of a draw")
    parser.add_argument("--val", type=int, default=15, help="videos of a draw")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--device", default="auto")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    if given.trials < 1 or given.seeds < 1:
        raise SystemExit("error: --trials and --seeds: expected at least 1.")
    log = []
    try:
        for trial in tuned(given):
            log.append(trial)
            shown = [("–" if trial[name] is None else f"{trial[name]:.2f}") for name in METRICS]
            talk(f"trial {trial['trial']}: {' / '.join(shown)}  {json.dumps(trial['settings'])}")
    except CefitoError as problem:
        raise SystemExit(f"error: {problem}") from problem
    best = min(log, key=order)
    value = {
        "command": f"python benchmarks/tune.py DATA --method {given.method} --trials {given.trials}"
        f" --horizons {given.horizons} --seeds {given.seeds}",
        "method": given.method,
        **given.fixed,
        "horizons": given.horizons,
        "seeds": given.seeds,
        "trials": given.trials,
        "scored_on": "validation windows",
        "chosen": {name: part for name, part in best.items() if name != "scores"},
        "preset_has": {name: log[0][name] for name in METRICS},
        "seconds": sum(score["seconds"] for trial in log for score in trial["scores"].values()),
        "log": log,
    }
    write_json(given.out, value)
    print(json.dumps(value["chosen"], indent=1))


if __name__ == "__main__":
    main()
