"""Simulated observations for annotations without features.

A probe measures how well they predict tasks and actions, beside models that others trained on real
S3D features of CrossTask.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cefito.arrays import load_npy
from cefito.data.annotations import Annotations, parsing
from cefito.data.prepared import check_action_text, write_dataset
from cefito.data.readers.source import read_common
from cefito.data.simulation.observations import ObservationKnobs, observe
from cefito.errors import ConfigError
from cefito.files import check_new, read_text, sha256
from cefito.markup import counted
from cefito.runtime import check_seed

OBSERVATION_DIM = 1536
CALIBRATION_HORIZON = 4
REFERENCE_FILE = "s3d_predictions.jsonl"

# Knobs by the features they are calibrated against. "s3d": CrossTask's S3D features, by the probe
# at T = 4.
LIKE = {"s3d": ObservationKnobs()}


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Accuracy over windows, in per cent; actions in the shared vocabulary if there is one."""

    task: float | None
    first: float | None  # first action
    last: float | None  # last action
    both: float | None  # first and last action


# The reference models on their own training windows of CrossTask, as stated by their authors.
REFERENCE_TRAIN = Figures(task=None, first=97.9, last=95.8, both=94.0)


@dataclass(frozen=True, kw_only=True)
class KnobCalibration:
    """Accuracy of a probe on simulated observations, beside models of real ones."""

    dataset: str
    like: str  # name of the knobs
    seed: int
    horizon: int
    vocabulary: int  # number of action ids that the probe distinguishes
    test: Figures | None  # None without windows of test videos
    train: Figures | None  # on the windows of all other videos, which the probe was trained on
    reference_test: Figures | None = None  # None if the source has no predictions
    reference_train: Figures | None = None

    def rows(self) -> list[dict[str, str | float | None]]:
        """One row a quantity, per cent: simulated and reference, on test and training windows."""
        labels = {"task": "task", "first": "first action", "last": "last action"}
        labels["both"] = "both ends"
        sides = {
            "simulated test": self.test,
            "reference test": self.reference_test,
            "simulated train": self.train,
            "reference train": self.reference_train,
        }
        return [
            {"quantity": label} | {name: getattr(side, field, None) for name, side in sides.items()}
            for field, label in labels.items()
        ]


def simulate(
    source: Path | str,
    target: Path | str,
    *,
    like: str = "s3d",
    seed: int = 0,
    shared_actions: bool = False,
    progress: Callable[[str], None] | None = None,
) -> KnobCalibration:
    """Simulate observations for an annotated folder, measure them, and write a prepared data set.

    The folder holds `taxonomy.json`, `videos.jsonl` and optionally `action_text_features.npy`
    [K, W] (with `shared_actions` `action_text_features_<K>.npy`) and `s3d_predictions.jsonl`, the
    reference. The calibration is also in the provenance of the data set.
    """
    source, target = Path(source), Path(target)
    check_seed(seed)
    if like not in LIKE:
        raise ConfigError(f"simulate: unknown features '{like}'. Choose one of: {', '.join(LIKE)}.")
    check_new(target)
    talk = progress or (lambda _: None)
    annotations = read_common(source).annotations
    written = annotations.in_shared_space() if shared_actions else annotations
    text = _action_text(source, written, shared=shared_actions)
    reference = _reference(source / REFERENCE_FILE, annotations)
    videos = counted(len(annotations.videos), "video")
    talk(f"simulating observations of {counted(annotations.step_count, 'step')} in {videos}")
    start, end = observe(annotations, LIKE[like], dim=OBSERVATION_DIM, seed=seed)
    vocabulary = f"-{len(written.taxonomy.actions)}" if shared_actions else ""
    name = f"{annotations.taxonomy.dataset}{vocabulary}-simulated"
    test, train = _measure(annotations, start, end, seed=seed, progress=talk)
    calibration = KnobCalibration(
        dataset=name,
        like=like,
        seed=seed,
        horizon=CALIBRATION_HORIZON,
        vocabulary=len(annotations.taxonomy.shared or annotations.taxonomy.actions),
        test=test,
        train=train,
        reference_test=reference,
        reference_train=None if reference is None else REFERENCE_TRAIN,
    )
    talk(f"writing {target}")
    write_dataset(
        target,
        name=name,
        annotations=written,
        start=start,
        end=end,
        action_text=text,
        provenance={
            "observations": "simulated",
            "generator": "cefito.data.simulation.observations.observe",
            "like": like,
            "knobs": asdict(LIKE[like]),
            "seed": seed,
            "shared_actions": shared_actions,
            "source": {name: sha256(source / name) for name in ("taxonomy.json", "videos.jsonl")},
            "calibration": asdict(calibration),
        },
    )
    return calibration


def _action_text(
    source: Path, annotations: Annotations, *, shared: bool
) -> NDArray[np.floating[Any]] | None:
    size = len(annotations.taxonomy.actions)
    path = source / (f"action_text_features_{size}.npy" if shared else "action_text_features.npy")
    if not path.exists():
        return None
    text = load_npy(path)
    remedy = "Correct the file, or remove it to go without action text."
    check_action_text(text, annotations.taxonomy, place=str(path), remedy=remedy)
    return text


def _measure(
    annotations: Annotations,
    start: NDArray[np.float16],
    end: NDArray[np.float16],
    *,
    seed: int,
    progress: Callable[[str], None],
) -> tuple[Figures | None, Figures | None]:
    """The probe's accuracy on test windows and on its training windows."""
    taxonomy, horizon = annotations.taxonomy, CALIBRATION_HORIZON
    rows: dict[bool, list[int]] = {True: [], False: []}
    labels: dict[bool, list[tuple[int, int, int]]] = {True: [], False: []}
    mapped = taxonomy.to_shared or tuple(range(len(taxonomy.actions)))
    row = 0
    for video in annotations.videos:
        for first in range(len(video.steps) - horizon + 1 if video.in_protocol else 0):
            rows[video.split == "test"].append(row + first)
            ends = video.steps[first].action, video.steps[first + horizon - 1].action
            labels[video.split == "test"].append((video.task, mapped[ends[0]], mapped[ends[1]]))
        row += len(video.steps)
    if not rows[True] or not rows[False]:
        return None, None
    pairs = {
        side: np.concatenate([start[index], end[np.array(index) + horizon - 1]], axis=1).astype(
            np.float32
        )
        for side, index in rows.items()
    }
    actions = len(taxonomy.shared or taxonomy.actions)
    train, test = run_probe(
        pairs[False],
        np.array(labels[False]),
        pairs[True],
        seed=seed,
        progress=progress,
        classes=[len(taxonomy.tasks), actions, actions],
    )
    return _figures(test, np.array(labels[True])), _figures(train, np.array(labels[False]))


def _figures(predicted: NDArray[np.int64], true: NDArray[np.int64]) -> Figures:
    right = predicted == true
    task, first, last, both = (
        round(100 * float(share), 1)
        for share in (*right.mean(axis=0), right[:, 1:].all(axis=1).mean())
    )
    return Figures(task=task, first=first, last=last, both=both)


def _reference(path: Path, annotations: Annotations) -> Figures | None:
    """Accuracy of predictions from real features; lines of another horizon are skipped.

    Each is {"video_id", "start", "horizon", "task", "first_<K>", "last_<K>"}, of K shared names.
    """
    taxonomy = annotations.taxonomy
    if not path.exists() or taxonomy.shared is None or taxonomy.to_shared is None:
        return None
    first_key, last_key = (f"{end}_{len(taxonomy.shared)}" for end in ("first", "last"))
    videos = {video.video_id: video for video in annotations.videos}
    predicted, true = [], []
    remedy = "Remove the line, or the file to simulate without a reference."
    for number, line in enumerate(read_text(path, remedy).splitlines(), start=1):
        with parsing(f"{path}, line {number}", "a prediction for a window of these videos", remedy):
            value = json.loads(line)
            if value["horizon"] != CALIBRATION_HORIZON or first_key not in value:
                continue
            video, start = videos[value["video_id"]], int(value["start"])
            window = video.steps[max(start, 0) : start + CALIBRATION_HORIZON]
            ends = window[0].action, window[CALIBRATION_HORIZON - 1].action
            predicted.append((int(value["task"]), int(value[first_key]), int(value[last_key])))
        true.append((video.task, taxonomy.to_shared[ends[0]], taxonomy.to_shared[ends[1]]))
    return _figures(np.array(predicted), np.array(true)) if predicted else None


_PREDICTED_AT_ONCE = 2048


def run_probe(
    train: NDArray[np.float32],  # [N, D], standardised here
    labels: NDArray[np.int64],  # [N, H]
    test: NDArray[np.float32],  # [M, D]
    *,
    classes: list[int],  # of each target
    seed: int,
    width: int = 512,
    epochs: int = 10,
    batch: int = 256,
    rate: float = 1e-3,  # highest, after a warm-up and before a cosine decay
    decay: float = 0.05,
    dropout: float = 0.2,
    progress: Callable[[str], None] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Train one hidden layer on cross-entropy, summed over the H targets, with AdamW.

    Return the predicted labels of the training inputs [N, H] and of the test inputs [M, H].
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    inputs = torch.from_numpy(train)
    mean, deviation = inputs.mean(dim=0), inputs.std(dim=0) + 1e-6
    inputs = (inputs - mean) / deviation
    targets = torch.from_numpy(np.ascontiguousarray(labels))
    bounds = np.cumsum([0, *classes]).tolist()
    sizes = (train.shape[1], width, bounds[-1])
    weights = []
    for size_in, size_out in pairwise(sizes):
        spread, weight = size_in**-0.5, torch.empty(size_out, size_in)
        weights += [weight.uniform_(-spread, spread, generator=generator), torch.zeros(size_out)]
    for weight in weights:
        weight.requires_grad_()
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=decay)
    steps, step = epochs * -(-len(train) // batch), 0

    def heads(rows: torch.Tensor, share: float) -> list[torch.Tensor]:
        hidden = torch.nn.functional.linear(rows, weights[0], weights[1]).relu()
        if share:
            kept = torch.rand(hidden.shape, generator=generator) >= share
            hidden = hidden * kept / (1 - share)
        logits = torch.nn.functional.linear(hidden, weights[2], weights[3])
        return [logits[:, low:high] for low, high in pairwise(bounds)]

    def predict(rows: torch.Tensor) -> NDArray[np.int64]:
        found = np.empty((len(rows), len(classes)), dtype=np.int64)
        with torch.no_grad():
            for low in range(0, len(rows), _PREDICTED_AT_ONCE):
                for column, logits in enumerate(heads(rows[low : low + _PREDICTED_AT_ONCE], 0.0)):
                    found[low : low + _PREDICTED_AT_ONCE, column] = logits.argmax(dim=1).numpy()
        return found

    for epoch in range(epochs):
        order = torch.randperm(len(train), generator=generator)
        for low in range(0, len(train), batch):
            rows = order[low : low + batch]
            losses = [
                torch.nn.functional.cross_entropy(logits, targets[rows, column])
                for column, logits in enumerate(heads(inputs[rows], dropout))
            ]
            optimizer.param_groups[0]["lr"] = rate * _share_of_rate(step, steps)
            optimizer.zero_grad()
            torch.autograd.backward(torch.stack(losses).sum())
            optimizer.step()
            step += 1
        if progress is not None:
            progress(f"probe: epoch {epoch + 1} of {epochs}")
    return predict(inputs), predict((torch.from_numpy(test) - mean) / deviation)


def _share_of_rate(step: int, steps: int) -> float:
    """Share of the highest learning rate: linear in the first tenth, then along a cosine."""
    return min((step + 1) / (0.1 * steps), 0.5 + 0.5 * math.cos(math.pi * step / steps))
