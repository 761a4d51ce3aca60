"""From drawn films to plans: time and memory of each stage, and success beside better features.

    python benchmarks/pixels.py --out benchmarks/results/pixels.json

Films of `cefito quickstart --pixels`, T = 3: features of EfficientNet-Lite0 beside the truth with
noise, which is a number for each action that is done or goes on. Each stage runs in a process of
its own. Then seconds of each encoder for a second of film, on one thread, decoding apart; weights
that need a download are random, which takes as long.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import common
from cefito.data import PreparedDataset, cut_windows, open_dataset
from cefito.data.prepared import write_dataset
from cefito.data.readers.assemble import prepare
from cefito.data.readers.step_source import read_steps
from cefito.data.simulation.films import write_films
from cefito.encoders.extraction import extract_videos
from cefito.encoders.frames import Sampling, clips, probe
from cefito.encoders.video import open_encoder
from cefito.evaluation.score import evaluate_planner
from cefito.evaluation.statistics import seed_interval
from cefito.planners.methods import load_config
from cefito.planners.queries import Queries
from cefito.runs.run import open_run
from cefito.runs.train import train_run

NOISES = (0.1, 0.25, 0.5, 1.0)  # standard deviations of the noise on the truth
METHODS = ("chain", "nearest")


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--work", type=Path, help="folder to keep films, data and runs in")
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    work = given.work or Path(tempfile.mkdtemp())
    stages = {
        "draw": partial(draw, work),
        "extract": partial(extract, work),
        "prepare": partial(assemble, work),
        "train": partial(train, work / "data", work / "run-0", "chain", 0),
        "plan": partial(plan, work / "run-0"),
    }
    times = {name: apart(stage) for name, stage in stages.items()}
    data = open_dataset(work / "data")
    sets = {"efficientnet-lite0": work / "data"}
    for noise in NOISES:
        sets[f"truth, noise {noise}"] = truth(data, work / f"truth-{noise}", noise)
    rows = [
        {"features": name, "method": method, **scores(folder, work, method, given.seeds)}
        for name, folder in sets.items()
        for method in METHODS
    ]
    result = {
        **common.about("pixels", given, data),
        "command": "python benchmarks/pixels.py",
        "machine": common.machine(),
        "stages": times,
        "scores": rows,
        "encoders": encoders(work / "films" / "videos"),
    }
    print(json.dumps(result, indent=1))
    if given.out:
        given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def apart(stage: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run a stage in a process of its own; its seconds, CPU seconds and peak memory."""
    receiver, sender = multiprocessing.get_context("spawn").Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=_measured, args=(stage, sender))
    process.start()
    found: dict[str, Any] = receiver.recv()
    process.join()
    return found


def _measured(stage: Callable[[], dict[str, Any]], sender: Any) -> None:
    torch.set_num_threads(1)
    began = time.perf_counter()
    counts = stage()
    used = resource.getrusage(resource.RUSAGE_SELF)
    sender.send(
        {
            "seconds": round(time.perf_counter() - began, 1),
            "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
            "peak_mib": round(common.peak_mib()),
            **counts,
        }
    )


def draw(work: Path) -> dict[str, Any]:
    write_films(work / "films")
    films = list((work / "films" / "videos").iterdir())
    return {"films": len(films), "mib": round(sum(one.stat().st_size for one in films) / 2**20)}


def extract(work: Path) -> dict[str, Any]:
    extract_videos(work / "films" / "videos", work / "films" / "features", open_encoder())
    features = (work / "films" / "features").glob("*.npy")
    return {"pictures": sum(len(np.load(path)) for path in features)}


def assemble(work: Path) -> dict[str, Any]:
    source = read_steps([work / "films" / "steps.csv"])
    made = prepare(
        source, work / "films" / "features", work / "data", name="drawn films", seconds=1
    )
    return {"steps": sum(len(video.steps) for video in made.videos)}


def train(data: Path, run: Path, method: str, seed: int) -> dict[str, Any]:
    config = load_config("quickstart", method=method)
    train_run(open_dataset(data), run, config=config, horizon=3, seed=seed, reuse=True)
    return {}


def plan(run: Path) -> dict[str, Any]:
    opened = open_run(run)
    test = cut_windows(opened.dataset(), horizon=3, split="test")
    opened.planner.plan(Queries.from_windows(test), 5)
    return {"windows": len(test)}


def truth(data: PreparedDataset, folder: Path, noise: float) -> Path:
    """A data set of the same steps that sees which actions are done, and the one that goes on."""
    generator = np.random.default_rng(0)
    starts, ends = [], []
    for video in data.videos:
        done = np.zeros(2 * len(data.taxonomy.actions), np.float32)
        half = len(done) // 2
        for step in video.steps:
            done[half:] = 0
            starts.append(done.copy())
            done[step.action] += 1
            done[half + step.action] = 1
            ends.append(done.copy())
    drawn = [
        np.stack(rows) + generator.normal(0, noise, (len(rows), len(rows[0])))
        for rows in (starts, ends)
    ]
    write_dataset(
        folder,
        name=f"drawn films, truth with noise {noise}",
        annotations=data.annotations,
        start=drawn[0].astype(np.float32),
        end=drawn[1].astype(np.float32),
        provenance={"observations": "simulated"},
    )
    return folder


def scores(data: Path, work: Path, method: str, seeds: int) -> dict[str, Any]:
    """Success rate and mean accuracy on test windows: mean of seeds, and half its interval."""
    found: dict[str, list[Any]] = {"success_rate": [], "mean_accuracy": []}
    for seed in range(seeds):
        run = work / f"run-{data.name}-{method}-{seed}"
        train(data, run, method, seed)
        test = cut_windows(open_dataset(data), horizon=3, split="test")
        metrics = evaluate_planner(open_run(run).planner, test)[0].metrics
        for name, values in found.items():
            values.append(metrics[name])
    intervals = {name: seed_interval(values) for name, values in found.items()}
    return {name: [one.mean, one.half_width] for name, one in intervals.items()}


def encoders(videos: Path) -> list[dict[str, Any]]:
    """CPU seconds of each encoder for a second of film, and of decoding: the least of five."""
    import transformers

    from cefito.encoders.s3d import S3D

    torch.set_num_threads(1)
    film = probe(sorted(videos.iterdir())[0])
    pictures = torch.stack(
        [clip[:, 0] for clip in clips(film, range(8), Sampling(frames=1, rate=1, size=None))]
    )
    began = time.process_time()
    for _ in clips(film, range(film.seconds), Sampling(frames=1, rate=1, size=None)):
        pass
    rows = [{"encoder": "decoding", "seconds": (time.process_time() - began) / film.seconds}]
    encoder: Any = open_encoder()
    images = encoder.images
    made: dict[str, tuple[Callable[[Any], Any], Any]] = {
        "efficientnet-lite0": (images.encode, pictures.float() / 255),
        "clip": (
            transformers.CLIPVisionModelWithProjection(transformers.CLIPVisionConfig()).eval(),
            torch.rand(8, 3, 224, 224),
        ),
        "dinov2": (
            transformers.Dinov2Model(transformers.Dinov2Config(image_size=518)).eval(),
            torch.rand(8, 3, 224, 224),
        ),
        "s3d": (S3D().eval(), torch.rand(1, 3, 32, 224, 224)),
    }
    for name, (encode, given) in made.items():
        taken = []
        with torch.inference_mode():
            for _ in range(5):
                began = time.process_time()
                encode(given)
                taken.append((time.process_time() - began) / len(given))
        rows.append({"encoder": name, "seconds": min(taken)})
    return rows


if __name__ == "__main__":
    main()
