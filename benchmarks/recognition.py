"""Steps recognised in whole videos, and by yardsticks on the same rows.

Trains on the training and validation videos of a folder with taxonomy.json, videos.jsonl and
timeline.npz, and scores the test videos. Other methods and seeds that --out holds are kept.

    python benchmarks/recognition.py --data FOLDER --out FILE [--methods recogniser nearest]

`done_difference` is | steps believed done at the end − annotated | / annotated. A row is known at
its end; the delay of a step runs from its start to the first row that shows its action as the
present one, over the steps of which a row did so before they ended.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

import common
from cefito.data import PreparedDataset
from cefito.data.readers.custom import prepare
from cefito.data.timeline import row_labels
from cefito.files import write_json
from cefito.timeline.memory import Standard, whole_features
from cefito.timeline.recogniser import Recogniser
from cefito.timeline.scores import OVERLAPS, VideoScores, segments
from cefito.timeline.settings import RecogniserConfig
from cefito.timeline.stream import StepStream

Floats = NDArray[np.float64]
Predict = Callable[[int], Floats]  # p(label) [n, K + 1] of the rows of a video
METHODS = ("recogniser", "rows", "hmm", "mstcn", "nearest")
YARDSTICKS = {
    "rows": RecogniserConfig(temporal_layers=0),
    "hmm": RecogniserConfig(temporal_layers=0, phases=1),
}
_BINS = 15
_DRAWS = 2000
SCORES = {  # the columns that each divides, which are sums over videos
    "frame": ("right", "rows"),
    "edit": ("edit", "videos"),
    **{f"f1_{overlap}": (f"found_{overlap}", "half") for overlap in OVERLAPS},
    "count": ("recognised", "annotated"),
    "task": ("task_right", "videos"),
    "current": ("current_right", "rows"),
    "next": ("next_right", "asked"),
    "done": ("done", "annotated"),
    "done_difference": ("done_gap", "videos"),
    "detected": ("detected", "steps"),
    "delay_seconds": ("delay", "detected"),  # all others are in per cent
}


@dataclass(frozen=True, eq=False)
class Known:
    """The videos, their rows and the labels of these."""

    data: PreparedDataset
    rate: float
    raw: Sequence[NDArray[np.floating[Any]]]  # [n, D] of each video
    rows: list[NDArray[np.float32]]  # standardised
    labels: list[NDArray[np.int64]]  # [n] of each video
    train: list[int]
    test: list[int]
    background: int  # K

    @classmethod
    def of(cls, data: PreparedDataset) -> Known:
        """Read a data set with a timeline."""
        timeline, background = data.timeline, len(data.taxonomy.actions)
        assert timeline is not None
        raw, rate = [rows.astype(np.float32) for rows in timeline.videos], timeline.rate
        of_test = np.array([video.split == "test" for video in data.videos])
        train, test = (np.flatnonzero(mask).tolist() for mask in (~of_test, of_test))
        standard = Standard.of([raw[place] for place in train], raw[0].shape[1])
        pairs = zip(data.videos, raw, strict=True)
        labels = [row_labels(video.steps, len(own), rate, background) for video, own in pairs]
        rows = [standard.scaled(own) for own in raw]
        return cls(data, rate, raw, rows, labels, train, test, background)


class Layer(nn.Module):  # of MS-TCN++, Li et al., arXiv 2006.09220
    """H + W ReLU([W_d * H]_d), with one or two dilations d."""

    def __init__(self, channels: int, dilations: Sequence[int]) -> None:
        super().__init__()
        self.dilated = nn.ModuleList(
            nn.Conv1d(channels, channels, 3, padding=one, dilation=one) for one in dilations
        )
        self.joined = nn.Conv1d(channels * len(dilations), channels, 1)
        self.dropout = nn.Dropout(0.5)

    def forward(self, before: Tensor) -> Tensor:
        """H of the next layer [1, 64, n]."""
        parts = []
        for one in self.dilated:
            if one.dilation[0] < before.shape[2]:
                parts.append(one(before))
            else:  # the outer weights meet padding alone
                parts.append(F.conv1d(before, one.weight[..., 1:2], one.bias))
        return before + self.dropout(self.joined(torch.cat(parts, dim=1).relu()))


class Stage(nn.Sequential):
    """Layers between a convolution of width 1 to their channels and one to the labels."""

    def __init__(self, size: int, labels: int, dilations: Sequence[Sequence[int]]) -> None:
        channels = 64
        layers = (Layer(channels, each) for each in dilations)
        super().__init__(nn.Conv1d(size, channels, 1), *layers, nn.Conv1d(channels, labels, 1))


class MSTCN(nn.Module):
    """A prediction stage of dual dilated layers and stages that refine its probabilities."""

    def __init__(self, size: int, labels: int, *, layers: int = 11, refined: int = 10) -> None:
        super().__init__()
        dual = [(2**place, 2 ** (layers - 1 - place)) for place in range(layers)]
        single = [(2**place,) for place in range(refined)]
        self.first = Stage(size, labels, dual)
        self.rest = nn.ModuleList(Stage(labels, labels, single) for _ in range(3))

    def forward(self, rows: Tensor) -> list[Tensor]:
        """Logits [1, K + 1, n] of each stage, of rows [1, D, n]."""
        found = [self.first(rows)]
        for stage in self.rest:
            found.append(stage(found[-1].softmax(dim=1)))
        return found


def _loss(stages: list[Tensor], truth: Tensor) -> Tensor:
    total = torch.zeros(())
    for logits in stages:
        logs = logits.log_softmax(dim=1)
        change = logs[..., 1:] - logs[..., :-1].detach()
        total = total + F.nll_loss(logs, truth[None])
        if truth.numel() > 1:
            total = total + 0.15 * change.square().clamp(max=4.0**2).mean()
    return total


def mstcn(known: Known, seed: int, epochs: int, stride: int) -> Predict:
    """Train for some epochs, one video a batch, on means of `stride` rows."""
    torch.manual_seed(seed)
    joined = [
        torch.from_numpy(np.add.reduceat(rows, np.arange(0, len(rows), stride)).T / stride)[None]
        for rows in known.rows
    ]
    network = MSTCN(known.rows[0].shape[1], known.background + 1)
    optimiser = torch.optim.Adam(network.parameters(), lr=5e-4)
    order, began = np.random.default_rng(seed), time.perf_counter()
    for epoch in range(epochs):
        losses = []
        for place in order.permutation(known.train):
            own, count = known.labels[place], joined[place].shape[2]
            truth = own[(np.arange(count) * stride + stride // 2).clip(max=len(own) - 1)]
            loss = _loss(network(joined[place]), torch.from_numpy(truth))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        spent = time.perf_counter() - began
        done = f"seed {seed}, epoch {epoch + 1}"
        print(f"mstcn, {done}: {np.mean(losses):.3f}, {spent:.0f} s", flush=True)
    network.eval()

    @torch.inference_mode()
    def predict(video: int) -> Floats:
        found = network(joined[video])[-1][0].T.double().softmax(dim=1).numpy()
        return np.repeat(found, stride, axis=0)[: len(known.rows[video])]

    return predict


def nearest(known: Known) -> Predict:
    """The label of the training row of the greatest cosine."""
    rows = np.concatenate([known.rows[place] for place in known.train])
    labels = np.eye(known.background + 1)[
        np.concatenate([known.labels[place] for place in known.train])
    ]
    rows = rows / (np.linalg.norm(rows, axis=1, keepdims=True) + 1e-9)
    return lambda video: labels[(known.rows[video] @ rows.T).argmax(axis=1)]


@lru_cache(maxsize=1)
def fitted(known: Known, seed: int, config: RecogniserConfig | None = None) -> Recogniser:
    """The recogniser, trained once for itself and its rows."""
    return Recogniser.fit(known.data, known.train, config=config, seed=seed)


def offline(known: Known, video: int, rows: Floats) -> dict[str, float]:
    """Columns of a test video by p(label) [n, K + 1]."""
    one = VideoScores.of(rows.argmax(axis=1), known.labels[video], known.background)
    found = {f"found_{least}": count for least, count in zip(OVERLAPS, one.found, strict=True)}
    own = one._asdict() | found | {"videos": 1, "half": (one.recognised + one.annotated) / 2}
    return {name: value for name, value in own.items() if name != "found"}


def online(known: Known, own: Recogniser, video: int) -> dict[str, float]:
    """Columns of a test video whose rows come one after another."""
    steps = sorted(known.data.videos[video].steps, key=lambda step: step.start)
    stream, now, right, asked, rate = StepStream(own), [], 0, 0, known.rate
    for count, row in enumerate(known.raw[video]):
        stream.observe(row)
        now.append(int(stream.now.argmax()))
        ahead = [step.action for step in steps if step.start > (count + 0.5) / rate]
        asked += bool(ahead)
        right += bool(ahead) and int(stream.next_actions.argmax()) == ahead[0]
    delays = []
    for step in steps:
        start, end = round(step.start * rate), round(step.end * rate)
        own_rows = now[start : max(start + 1, end)]
        if step.action in own_rows:
            delays.append((start + own_rows.index(step.action) + 1) / rate - step.start)
    truth = known.labels[video]
    annotated, done = len(segments(truth, known.background)), len(stream.steps())
    found = {"next_right": right, "asked": asked, "done": done, "steps": len(steps)}
    found |= {"current_right": int((np.array(now) == truth).sum()), "detected": len(delays)}
    return found | {"delay": sum(delays), "done_gap": abs(done - annotated) / max(annotated, 1)}


def calibration_error(known: Known, rows: list[Floats]) -> float:
    """Mean of | confidence − accuracy | over bins of equal width, in per cent."""
    every, truth = np.concatenate(rows), np.concatenate([known.labels[p] for p in known.test])
    confidence = every.max(axis=1)
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    gaps = np.bincount(bins, weights=confidence - (every.argmax(axis=1) == truth))
    return round(100 * float(np.abs(gaps).sum() / len(truth)), 2)


def measured(known: Known, method: str, seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """Columns of the test videos and ECE, of one seed."""
    began = time.perf_counter()
    more: list[dict[str, float]] = [{} for _ in known.test]
    if method in ("recogniser", "rows", "hmm"):
        own = fitted(known, seed, YARDSTICKS.get(method))
        spent = time.perf_counter() - began
        if method == "rows":
            scaled = [own.standard.scaled(known.raw[video]) for video in known.test]
            features = [whole_features(each, own.times) for each in scaled]
            rows = [np.exp(own.whole.log_probabilities(each)) for each in features]
        else:
            seen = [own.recognise(known.raw[video]) for video in known.test]
            rows, more = [one.rows for one in seen], [online(known, own, v) for v in known.test]
            for video, one, columns in zip(known.test, seen, more, strict=True):
                columns["task_right"] = int(one.tasks.argmax() == known.data.videos[video].task)
    else:
        size = {"epochs": given.epochs, "stride": given.stride}
        predict = mstcn(known, seed, **size) if method == "mstcn" else nearest(known)
        spent = time.perf_counter() - began
        rows = [predict(video) for video in known.test]
    both = zip(known.test, rows, more, strict=True)
    every = [offline(known, video, each) | one for video, each, one in both]
    found: dict[str, Any] = {}
    found["columns"] = {name: [round(one[name], 4) for one in every] for name in every[0]}
    found |= size if method == "mstcn" else {}
    found |= {} if method == "nearest" else {"ece": calibration_error(known, rows)}
    return found | {"training_seconds": round(spent, 1)}


def scores(seeds: list[dict[str, Any]], name: str, draws: Floats) -> Floats:
    """A score by the weights of videos [draws, videos]: means over seeds [draws]."""
    above, below = SCORES[name]
    pairs = [[draws @ one["columns"][each] for each in (above, below)] for one in seeds]
    found = np.mean([up / np.maximum(down, 1e-9) for up, down in pairs], axis=0)
    return found if name == "delay_seconds" else 100 * found


def summary(seeds: list[dict[str, Any]], ours: list[dict[str, Any]]) -> dict[str, Any]:
    """Each score with its 95 % interval, videos resampled, and the recogniser's less it."""
    known, found = seeds[0]["columns"], {"seeds": len(seeds)}
    count = len(known["videos"])
    drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), _DRAWS)
    draws = np.concatenate([np.ones((1, count)), drawn])
    for name in (name for name, columns in SCORES.items() if columns[0] in known):
        values = scores(seeds, name, draws)
        found[name] = interval(values)
        if ours and ours is not seeds:
            found[name]["recogniser_less_it"] = interval(scores(ours, name, draws) - values)
    for name in ("ece", "training_seconds", "epochs", "stride"):
        if name in seeds[0]:
            found[name] = round(float(np.mean([one[name] for one in seeds])), 2)
    return found


def interval(values: Floats) -> dict[str, Any]:
    """The first value, and the interval of the others."""
    low, high = np.percentile(values[1:], (2.5, 97.5)).round(2).tolist()
    return {"mean": round(float(values[0]), 2), "low": low, "high": high}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=50, help="of MS-TCN++, 50 as published")
    parser.add_argument("--stride", type=int, default=1, help="rows that MS-TCN++ sees as one")
    given = parser.parse_args(arguments)
    known_already = given.out is not None and given.out.exists()
    found = json.loads(given.out.read_text())["videos"] if known_already else {}
    with tempfile.TemporaryDirectory() as folder:
        known = Known.of(prepare(given.data, Path(folder) / "data"))
        for seed in given.seeds:
            for method in given.methods:
                if method != "nearest" or seed == given.seeds[0]:
                    own = measured(known, method, seed, given)
                    found.setdefault(method, {})[str(seed)] = own
                    write(given, known, found)


def write(given: argparse.Namespace, known: Known, found: dict[str, Any]) -> None:
    """Write the report, and show its means."""
    seeds = {name: list(own.values()) for name, own in found.items()}
    rows = {name: summary(own, seeds.get("recogniser", [])) for name, own in seeds.items()}
    report = {
        **common.about("recognition", given, known.data),
        "test_videos": [known.data.videos[place].video_id for place in known.test],
        "notes": "MS-TCN++ as published but for its epochs (50) and stride (1), fixed before; the "
        "recogniser's defaults were chosen by folds over training videos. ECE of rows, 15 bins.",
        "machine": common.machine(),
        "rows": rows,
        "videos": found,
    }
    if given.out is not None:
        write_json(given.out, report)
    for name, row in rows.items():
        shown = {key: one["mean"] if isinstance(one, dict) else one for key, one in row.items()}
        print(name, json.dumps(shown), flush=True)


if __name__ == "__main__":
    main()
