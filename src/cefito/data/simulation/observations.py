"""Simulated observations of annotated steps: a fixed random nonlinear map of a hidden state.

The state is the sum of the task, the steps done so far, the step that begins or has just ended, the
style of the video, and noise. Signals of strength s move it by s along one random direction; noise
and style have standard deviation s along every direction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.data.action_text import read_folder_text
from cefito.data.annotations import Annotations, Video
from cefito.data.prepared import PreparedDataset, write_dataset
from cefito.data.source import read_common
from cefito.data.vocabulary import Taxonomy, tasks_of
from cefito.files import sha256
from cefito.locks import check_new
from cefito.runtime import SimulationStream, check_seed

OBSERVATION_DIM = 1536
"""Numbers of an observation: of S3D's features of three seconds."""

_BLOCK = 4096  # steps whose hidden states and features are held in float32 at a time


@dataclass(frozen=True, kw_only=True)
class ObservationKnobs:
    """Difficulty of reading task, progress and step from an observation.

    The defaults are calibrated: a probe reads about as much as models of CrossTask's S3D features.
    """

    task: float = 3.6  # strength of the task's direction
    progress: float = 1.0  # strength of each action done so far
    memory: float = 0.7  # factor by which that fades with each later step
    step: float = 4.9  # strength of the step that begins (start) or has just ended (end)
    confusion_start: float = 0.11  # mean share of a neighbouring step in a start (U-shaped)
    confusion_end: float = 0.25  # the same for end observations
    shared_names: float = 0.8  # cosine of actions of the same name in different tasks
    shared_words: float = 0.3  # share of a name's look that comes from its words
    style: float = 0.5  # standard deviation of the video's style
    noise: float = 1.0  # standard deviation of the noise, one draw an observation
    noise_spread: float = 0.4  # standard deviation of the logarithm of a video's factor of it
    nonlinearity: float = 0.5  # share of each feature that is squashed
    hidden: int = 256  # dimensions


def simulate(source: Path | str, target: Path | str, *, seed: int = 0) -> PreparedDataset:
    """Simulate observations for an annotated folder and write a prepared data set.

    The folder holds `taxonomy.json`, `videos.jsonl` and optionally `action_text_features.npy`
    [K, W].

    Args:
        source: Annotated folder.
        target: New folder.
        seed: Seed of all that is drawn.
    """
    source, target, knobs = Path(source), Path(target), ObservationKnobs()
    check_seed(seed)
    check_new(target)
    annotations = read_common(source).annotations
    text = read_folder_text(source, annotations.taxonomy)
    start, end = observe(annotations, knobs, dim=OBSERVATION_DIM, seed=seed)
    return write_dataset(
        target,
        name=f"{annotations.taxonomy.dataset}-simulated",
        annotations=annotations,
        start=start,
        end=end,
        action_text=text,
        provenance={
            "observations": "simulated",
            "generator": "cefito.data.simulation.observations.observe",
            "knobs": asdict(knobs),
            "seed": seed,
            "source": {name: sha256(source / name) for name in ("taxonomy.json", "videos.jsonl")},
        },
    )


def observe(
    annotations: Annotations, knobs: ObservationKnobs, *, dim: int, seed: int
) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
    """Simulate the observations [S, E] at the start and at the end of every annotated step.

    Actions of the same (shared) name look alike. Features have a variance of the order of 1.

    Args:
        annotations: Annotations with S steps.
        knobs: Strengths of the parts of an observation.
        dim: E.
        seed: Seed of all that is drawn.
    """
    check_seed(seed)
    taxonomy = annotations.taxonomy
    looks = action_looks(taxonomy, knobs, seed=seed)
    traces = _directions([f"trace {name}" for name in _look_names(taxonomy)], knobs.hidden, seed)
    tasks = _directions([f"task {task.name}" for task in taxonomy.tasks], knobs.hidden, seed)

    def stream(kind: SimulationStream) -> np.random.Generator:
        return np.random.default_rng([seed, kind])

    camera = _Camera(knobs, dim=dim, generator=stream(SimulationStream.CAMERA))
    count = len(annotations.videos)
    styles = stream(SimulationStream.STYLES).standard_normal((count, knobs.hidden), np.float32)
    spread = stream(SimulationStream.SPREAD).standard_normal(count)
    scales = (knobs.noise * np.exp(knobs.noise_spread * spread)).astype(np.float32)
    noises, mixing = stream(SimulationStream.NOISE), stream(SimulationStream.CONFUSION)
    result = np.empty((2, annotations.step_count, dim), dtype=np.float16)
    for first, videos, indices in _blocks(annotations.videos):
        lengths = [len(video.steps) for video in videos]
        base = knobs.task * tasks[np.repeat([video.task for video in videos], lengths)]
        base += knobs.style * styles[np.repeat(indices, lengths)]
        scale = scales[np.repeat(indices, lengths), None]
        done = _done(videos, len(taxonomy.actions), knobs.memory)
        for side, confusion in enumerate((knobs.confusion_start, knobs.confusion_end)):
            hidden = base + knobs.progress * (done[side] @ traces)
            hidden += knobs.step * _shown(videos, looks, confusion, mixing)
            hidden += scale * noises.standard_normal(hidden.shape, np.float32)
            result[side, first : first + len(hidden)] = camera(hidden)
    return result[0], result[1]


def action_looks(taxonomy: Taxonomy, knobs: ObservationKnobs, *, seed: int) -> NDArray[np.float32]:
    """The unit direction of each action, [K, hidden]: a part by name and words, a part by task.

    Args:
        taxonomy: Names of tasks and actions.
        knobs: Strengths of the parts, and their width.
        seed: Seed of the directions.
    """
    names = _look_names(taxonomy)
    words = [name.lower().split() for name in names]
    vocabulary = sorted({word for group in words for word in group})
    place = {word: index for index, word in enumerate(vocabulary)}
    of_words = _directions([f"word {word}" for word in vocabulary], knobs.hidden, seed)
    sums = [of_words[[place[word] for word in group]].sum(axis=0) for group in words]
    by_word = np.stack([row / np.sqrt(len(group)) for row, group in zip(sums, words, strict=True)])
    by_name = _directions([f"name {name}" for name in names], knobs.hidden, seed)
    owned = [f"action {name} of {tasks_of(taxonomy, action)}" for action, name in enumerate(names)]
    by_task = _directions(owned, knobs.hidden, seed)
    common = np.sqrt(knobs.shared_words) * by_word + np.sqrt(1 - knobs.shared_words) * by_name
    return _unit(
        np.sqrt(knobs.shared_names) * _unit(common) + np.sqrt(1 - knobs.shared_names) * by_task
    )


class _Camera:
    """The fixed map from hidden states to features, a random projection squashed in part."""

    def __init__(
        self, knobs: ObservationKnobs, *, dim: int, generator: np.random.Generator
    ) -> None:
        power = knobs.task**2 + knobs.progress**2 + knobs.step**2
        power += knobs.hidden * (knobs.style**2 + knobs.noise**2)
        scale = np.float32(1 / np.sqrt(max(power, 1e-12)))  # a projection has variance near 1
        self._weights = scale * generator.standard_normal((knobs.hidden, dim), np.float32)
        self._offsets = generator.standard_normal(dim, np.float32)
        self._share = np.float32(knobs.nonlinearity)

    def __call__(self, hidden: NDArray[np.float32]) -> NDArray[np.float16]:
        linear = hidden @ self._weights
        squashed = np.tanh(1.5 * linear + self._offsets)
        return ((1 - self._share) * linear + self._share * squashed).astype(np.float16)


def _look_names(taxonomy: Taxonomy) -> list[str]:
    if taxonomy.shared is not None and taxonomy.to_shared is not None:
        return [taxonomy.shared[target].name for target in taxonomy.to_shared]
    return [action.name for action in taxonomy.actions]


def _unit(rows: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True), dtype=np.float32)


def _directions(names: list[str], size: int, seed: int) -> NDArray[np.float32]:
    """A random unit vector a name, [len(names), size], independent of the other names."""
    rows = []
    for name in names:
        digest = hashlib.sha256(name.encode("utf-8")).digest()
        generator = np.random.default_rng([seed, *np.frombuffer(digest, dtype=np.uint32).tolist()])
        rows.append(generator.standard_normal(size, np.float32))
    return _unit(np.stack(rows))


def _blocks(videos: tuple[Video, ...]) -> Iterator[tuple[int, list[Video], list[int]]]:
    """Runs of videos of about `_BLOCK` steps: row of the first step, videos, their indices."""
    first, rows, start = 0, 0, 0
    for index, video in enumerate(videos):
        rows += len(video.steps)
        if rows >= _BLOCK or index == len(videos) - 1:
            if rows:
                yield first, list(videos[start : index + 1]), list(range(start, index + 1))
            first, rows, start = first + rows, 0, index + 1


def _done(videos: list[Video], size: int, memory: float) -> NDArray[np.float32]:
    """Trace (0 to 1) of each action before and after each step, [2, rows, size]."""
    rows = sum(len(video.steps) for video in videos)
    done = np.zeros((2, rows, size), dtype=np.float32)
    row = 0
    for video in videos:
        trace = np.zeros(size, dtype=np.float32)
        for step in video.steps:
            done[0, row] = trace
            trace *= memory
            trace[step.action] = 1
            done[1, row] = trace
            row += 1
    return done


def _shown(
    videos: list[Video],
    looks: NDArray[np.float32],
    confusion: float,
    generator: np.random.Generator,
) -> NDArray[np.float32]:
    """The look of each step, mixed with the look of a neighbouring step, [rows, hidden]."""
    shown, neighbours = [], []
    coins = iter(generator.random(sum(len(video.steps) for video in videos)) < 0.5)
    for video in videos:
        actions = [step.action for step in video.steps]
        for index, action in enumerate(actions):
            before, after = index > 0, index + 1 < len(actions)
            step = -1 if before and (next(coins) or not after) else int(after)
            shown.append(action)
            neighbours.append(actions[index + step])
    share = np.zeros((len(shown), 1), dtype=np.float32)
    if confusion > 0:
        a, b = 2 * confusion, 2 * (1 - confusion)
        share[:] = generator.beta(a, b, size=share.shape) if b else 1
    return (1 - share) * looks[shown] + share * looks[neighbours]
