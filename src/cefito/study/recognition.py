"""Recognisers of steps beside each other: trained on all videos but those of test, scored on these.

OUT/recognition.json holds sums of each test video by recogniser and seed. It is written after each
of them, so that an interrupted comparison goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.data.prepared import PreparedDataset
from cefito.data.timeline import row_labels
from cefito.errors import ConfigError, DataError
from cefito.files import read_json, write_json, write_text
from cefito.markup import counted
from cefito.progress import Progress, prefixed, silent
from cefito.recognition.chain import Floats
from cefito.recognition.classifier import Rows, Standard, whole_features
from cefito.recognition.mstcn import fit_mstcn, mstcn_probabilities
from cefito.recognition.recogniser import Recogniser
from cefito.recognition.scores import OVERLAPS, VideoScores, segments
from cefito.recognition.settings import MSTCNConfig, RecogniserConfig
from cefito.recognition.stream import StepStream
from cefito.study.rendering import NONE, Entry, Table, latex, markdown
from cefito.training.trainer import TrainingContext

Predict = Callable[[Rows], Floats]  # p(label) [n, K + 1] of standardised rows [n, D]
Yardstick = Callable[..., Predict]
"""Trains on rows [n, D] and labels [n] of videos, by K + 1 and a seed."""
RECOGNISERS = {
    "recogniser": "of a run: networks and semi-Markov chain",
    "rows": "the recogniser's networks of single rows alone",
    "hmm": "these networks and a hidden Markov model, whose durations are geometric",
    "mstcn": "MS-TCN++ (arXiv 2006.09220) as published",
    "nearest": "the nearest training row",
}
_SCORES = {  # head, and the columns that are divided, which are sums over videos
    "frame": ("frame", "right", "rows"),
    "edit": ("edit", "edit", "videos"),
    **{f"f1_{least}": (f"F1@{least}", f"found_{least}", "half") for least in OVERLAPS},
    "count": ("steps", "recognised", "annotated"),
    "task": ("task", "task_right", "videos"),
    "current": ("now", "current_right", "rows"),
    "next": ("next", "next_right", "asked"),
    "done": ("done", "done", "annotated"),
    "done_difference": ("done off", "done_gap", "videos"),
    "detected": ("detected", "detected", "steps"),
    "delay_seconds": ("delay, s", "delay", "detected"),  # all others are in per cent
}
_BINS, _DRAWS = 15, 2000
_LEGEND = (
    "Per cent, 95 % intervals (videos resampled). steps, done: recognised, and believed done at "
    "the end, for each annotated one; done off: mean difference; now, next: seconds with the right "
    "step, from the rows so far; delay: to the first row that shows a step."
)


@dataclass(frozen=True, eq=False)
class _Known:
    """The videos, their rows and the labels of these."""

    data: PreparedDataset
    rate: float
    raw: list[NDArray[np.float32]]  # [n, D] of each video
    labels: list[NDArray[np.int64]]  # [n] of each video
    train: list[int]
    test: list[int]
    background: int  # K

    @classmethod
    def of(cls, data: PreparedDataset) -> _Known:
        timeline, background = data.timeline, len(data.taxonomy.actions)
        splits = [video.split == "test" for video in data.videos]
        if timeline is None or len(set(splits)) < 2:
            problem = "expected videos of the split test, and others"
            if timeline is None:
                problem = "holds no rows of whole videos. Prepare it with features of videos"
            raise DataError(f"{data.folder}: {problem}.")
        raw, rate = [rows.astype(np.float32) for rows in timeline.videos], timeline.rate
        train, test = (np.flatnonzero(np.array(splits) == of).tolist() for of in (False, True))
        labels = [
            row_labels(video.steps, len(own), rate, background)
            for video, own in zip(data.videos, raw, strict=True)
        ]
        return cls(data, rate, raw, labels, train, test, background)


def compare_recognisers(
    dataset: PreparedDataset,
    out: Path,  # the results that it holds are kept
    names: Sequence[str],  # of `RECOGNISERS`
    seeds: Sequence[int],
    progress: Progress = silent,
    config: RecogniserConfig | None = None,
) -> tuple[Table, dict[str, Any]]:
    """Train and score recognisers, and write recognition.json, .md and .tex; the table and scores.

    Raises:
        ConfigError: An unknown recogniser, or a folder of another data set, rows or settings.
        DataError: The data set holds no rows of whole videos, or no test videos.
    """
    config = config or RecogniserConfig()
    still = config.model_copy(update={"temporal_layers": 0})
    methods: dict[str, RecogniserConfig | Yardstick] = {
        "recogniser": config,
        "rows": still,
        "hmm": still.model_copy(update={"phases": 1}),
        "mstcn": _mstcn,
        "nearest": _nearest,
    }
    if not names or not {*names} <= methods.keys():
        unknown = ", ".join(name for name in names if name not in methods) or "none"
        raise ConfigError(f"recognisers {unknown}: expected some of {', '.join(methods)}.")
    known, file = _Known.of(dataset), out / "recognition.json"
    about: dict[str, Any] = {
        "dataset": {"name": dataset.name, "fingerprint": dataset.fingerprint},
        "timeline": dataset.rows_digest,
        "settings": config.model_dump(mode="json"),
        "test_videos": [dataset.videos[place].video_id for place in known.test],
    }
    videos: dict[str, dict[str, Any]] = {}
    if file.exists():
        before = read_json(file, "Choose another folder.")
        if {key: before.get(key) for key in about} != about:
            problem = "is of another data set, other rows, or other settings"
            raise ConfigError(f"{file} {problem}. Choose another folder.")
        videos = before["videos"]
    out.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        for name in names:
            own = videos.setdefault(name, {})
            if str(seed) not in own and not (own and name == "nearest"):  # which trains nothing
                own[str(seed)] = _measured(known, name, methods[name], seed, progress)
            rows = _summaries(videos)
            write_json(file, report := {**about, "rows": rows, "videos": videos})
    table = _table(known, {name: rows[name] for name in names})
    write_text(file.with_suffix(".md"), markdown(table))
    write_text(file.with_suffix(".tex"), latex(table))
    return table, report


def _measured(
    known: _Known, name: str, method: RecogniserConfig | Yardstick, seed: int, progress: Progress
) -> dict[str, Any]:
    """Return the columns of the test videos, and ECE."""
    raw, more = [known.raw[video] for video in known.test], [dict[str, float]() for _ in known.test]
    if isinstance(method, RecogniserConfig):
        own = Recogniser.fit(
            known.data,
            known.train,
            config=method,
            seed=seed,
            context=TrainingContext(progress=prefixed(progress, name)),
        )
        if name == "rows":
            features = [whole_features(own.standard.scaled(rows), method, own.rate) for rows in raw]
            found = [np.exp(own.whole.log_probabilities(each)) for each in features]
        else:
            recognised = [own.recognise(rows) for rows in raw]
            found, more = [one.rows for one in recognised], []
            for video, one in zip(known.test, recognised, strict=True):
                right = int(one.tasks.argmax() == known.data.videos[video].task)
                more.append(_online(known, own, video) | {"task_right": right})
    else:
        rows, labels = [known.raw[v] for v in known.train], [known.labels[v] for v in known.train]
        standard = Standard.of(rows, rows[0].shape[1])
        rows = [standard.scaled(own) for own in rows]
        predict = method(rows, labels, known.background + 1, seed, progress)
        found = [predict(standard.scaled(own)) for own in raw]
    columns = [
        _offline(known, video, rows) | rest
        for video, rows, rest in zip(known.test, found, more, strict=True)
    ]
    measured: dict[str, Any] = {
        "columns": {key: [round(one[key], 4) for one in columns] for key in columns[0]}
    }
    return measured | ({} if name == "nearest" else {"ece": _calibration_error(known, found)})


def _mstcn(
    videos: Sequence[Rows],
    labels: Sequence[NDArray[np.int64]],
    label_count: int,
    seed: int,
    progress: Progress,
) -> Predict:
    context = TrainingContext(progress=progress)
    network = fit_mstcn(videos, labels, label_count, MSTCNConfig(), seed=seed, context=context)
    return partial(mstcn_probabilities, network)


def _nearest(
    videos: Sequence[Rows], labels: Sequence[NDArray[np.int64]], label_count: int, *_: Any
) -> Predict:
    """Give a row the label of the training row of the greatest cosine."""
    known, truth = np.concatenate(videos), np.eye(label_count)[np.concatenate(labels)]
    known = known / (np.linalg.norm(known, axis=1, keepdims=True) + 1e-9)
    return lambda rows: truth[(rows @ known.T).argmax(axis=1)]


def _offline(known: _Known, video: int, rows: Floats) -> dict[str, float]:
    """Return columns of a test video by p(label) [n, K + 1]."""
    one = VideoScores.of(rows.argmax(axis=1), known.labels[video], known.background)._asdict()
    found = dict(zip(OVERLAPS, one.pop("found"), strict=True))
    half = (one["recognised"] + one["annotated"]) / 2
    return one | {f"found_{least}": n for least, n in found.items()} | {"videos": 1, "half": half}


def _online(known: _Known, own: Recogniser, video: int) -> dict[str, float]:
    """Return columns of a test video whose rows come one after another."""
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
        if step.action in own_rows:  # a row is known at its end
            delays.append((start + own_rows.index(step.action) + 1) / rate - step.start)
    truth = known.labels[video]
    annotated, done = len(segments(truth, known.background)), len(stream.steps())
    return {
        "current_right": int((np.array(now) == truth).sum()),
        "next_right": right,
        "asked": asked,
        "done": done,
        "done_gap": abs(done - annotated) / max(annotated, 1),
        "steps": len(steps),
        "detected": len(delays),
        "delay": sum(delays),
    }


def _calibration_error(known: _Known, found: Sequence[Floats]) -> float:
    """Return the mean of | confidence − accuracy | over bins of equal width, in per cent."""
    rows = np.concatenate(found)
    confidence = rows.max(axis=1)
    right = rows.argmax(axis=1) == np.concatenate([known.labels[video] for video in known.test])
    bins = np.minimum((confidence * _BINS).astype(int), _BINS - 1)
    gaps = np.bincount(bins, weights=confidence - right)
    return round(100 * float(np.abs(gaps).sum() / len(rows)), 2)


def _summaries(videos: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return each score of each recogniser with its interval, and the first one's less it."""
    seeds = {name: list(own.values()) for name, own in videos.items() if own}
    ours, found = seeds.get("recogniser"), {}
    for name, own in seeds.items():
        count = len(own[0]["columns"]["videos"])
        drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), _DRAWS)
        draws = np.concatenate([np.ones((1, count)), drawn])
        row: dict[str, Any] = {"seeds": len(own)}
        for score, (_, *columns) in _SCORES.items():
            if columns[0] in own[0]["columns"]:
                values = _scores(own, score, draws)
                row[score] = _interval(values)
                if ours is not None and ours is not own:
                    less = _scores(ours, score, draws) - values
                    row[score]["recogniser_less_it"] = _interval(less)
        if "ece" in own[0]:
            row["ece"] = round(float(np.mean([one["ece"] for one in own])), 2)
        found[name] = row
    return found


def _scores(seeds: Sequence[dict[str, Any]], score: str, draws: Floats) -> Floats:
    """Return a score by the weights of videos [draws, videos]: means over seeds [draws]."""
    _, above, below = _SCORES[score]
    sums = [[draws @ one["columns"][each] for each in (above, below)] for one in seeds]
    found: Floats = np.mean([up / np.maximum(down, 1e-9) for up, down in sums], axis=0)
    return found if score == "delay_seconds" else 100 * found


def _interval(values: Floats) -> dict[str, Any]:
    """Return the first value, and the interval of the others."""
    low, high = np.percentile(values[1:], (2.5, 97.5)).round(2).tolist()
    return {"mean": round(float(values[0]), 2), "low": low, "high": high}


def _table(known: _Known, rows: dict[str, dict[str, Any]]) -> Table:
    def cells(name: str) -> Iterator[str]:
        yield f"{name} ({counted(rows[name]['seeds'], 'seed')})"
        for score in _SCORES:
            one = rows[name].get(score)
            yield NONE if one is None else f"{one['mean']:.1f} ({one['low']:.0f}–{one['high']:.0f})"
        yield str(rows[name].get("ece", NONE))

    return Table(
        title=f"{known.data.name}: steps of {counted(len(known.test), 'test video')}",
        heads=("recogniser", *(head for head, *_ in _SCORES.values()), "ECE"),
        lines=tuple(tuple(Entry(text=text) for text in cells(name)) for name in rows),
        legend=(_LEGEND,),
        notes=tuple(f"{name}: {RECOGNISERS[name]}." for name in rows if name in RECOGNISERS),
    )
