"""Recognisers of steps beside each other: trained on all videos but those of test, scored on these.

OUT/recognition.json holds sums of each test video by recogniser and seed. It is written after each
of them, so that an interrupted comparison goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.data.prepared import PreparedDataset
from cefito.data.timeline import row_labels
from cefito.errors import ConfigError, DataError
from cefito.evaluation.statistics import calibration, drawn_ratios, draws_interval
from cefito.files import read_json, write_json, write_text
from cefito.markup import counted
from cefito.progress import Progress, prefixed, silent
from cefito.recognition.chain import Floats
from cefito.recognition.methods import RECOGNISERS, RecogniserMethod, RecogniserRow
from cefito.recognition.recogniser import Recogniser
from cefito.recognition.scores import OVERLAPS, VideoScores, segments
from cefito.recognition.settings import RecogniserConfig
from cefito.study.rendering import NONE, Entry, Table, latex, markdown
from cefito.training.trainer import TrainingContext

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
_LEGEND = (
    "Per cent, 90 % intervals (videos resampled). steps, done: recognised, and believed done at "
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
    names: Sequence[str],  # of `recogniser_rows`
    seeds: Sequence[int],
    progress: Progress = silent,
    config: RecogniserConfig | None = None,
) -> tuple[Table, dict[str, Any]]:
    """Train and score recognisers, and write recognition.json, .md and .tex; the table and scores.

    Raises:
        ConfigError: An unknown recogniser, or a folder of another data set, rows or settings.
        DataError: The data set holds no rows of whole videos, or no test videos.
    """
    config, rows = config or RecogniserConfig(), recogniser_rows()
    if not names or not {*names} <= rows.keys():
        unknown = ", ".join(name for name in names if name not in rows) or "none"
        raise ConfigError(f"recognisers {unknown}: expected some of {', '.join(rows)}.")
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
            method, row = rows[name]
            if str(seed) not in own and (method.seeded or not own):
                base = config if isinstance(config, method.settings) else method.settings()
                chosen = base.model_copy(update=dict(row.settings))
                part = TrainingContext(progress=prefixed(progress, name))
                fit = method.kind.fit
                made = fit(dataset, known.train, config=chosen, seed=seed, context=part)
                own[str(seed)] = _measured(known, made)
            summaries = _summaries(videos)
            write_json(file, report := {**about, "rows": summaries, "videos": videos})
    table = _table(known, {name: summaries[name] for name in names})
    write_text(file.with_suffix(".md"), markdown(table))
    write_text(file.with_suffix(".tex"), latex(table))
    return table, report


def recogniser_rows() -> dict[str, tuple[RecogniserMethod, RecogniserRow]]:
    """Return the rows of all recognisers by name."""
    return {
        name: (method, row) for method in RECOGNISERS.values() for name, row in method.rows.items()
    }


def _measured(known: _Known, own: Recogniser) -> dict[str, Any]:
    """Return the columns of the test videos, and ECE."""
    recognised = [own.recognise(known.raw[video]) for video in known.test]
    rows, columns = [one.rows for one in recognised], []
    for video, one in zip(known.test, recognised, strict=True):
        column = _offline(known, video, one.rows)
        if own.follows:
            right = int(one.tasks.argmax() == known.data.videos[video].task)
            column |= _online(known, own, video) | {"task_right": right}
        columns.append(column)
    measured: dict[str, Any] = {
        "columns": {key: [round(one[key], 4) for one in columns] for key in columns[0]}
    }
    sure = all(((one == 0) | (one == 1)).all() for one in rows)
    return measured | ({} if sure else {"ece": _calibration_error(known, rows)})


def _offline(known: _Known, video: int, rows: Floats) -> dict[str, float]:
    """Return columns of a test video by p(label) [n, K + 1]."""
    one = VideoScores.of(rows.argmax(axis=1), known.labels[video], known.background)._asdict()
    found = dict(zip(OVERLAPS, one.pop("found"), strict=True))
    half = (one["recognised"] + one["annotated"]) / 2
    return one | {f"found_{least}": n for least, n in found.items()} | {"videos": 1, "half": half}


def _online(known: _Known, own: Recogniser, video: int) -> dict[str, float]:
    """Return columns of a test video whose rows come one after another."""
    steps = sorted(known.data.videos[video].steps, key=lambda step: step.start)
    stream, now, right, asked, rate = own.stream(), [], 0, 0, known.rate
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
    """Return the calibration error of the likeliest labels of rows, in per cent."""
    rows, counts = np.concatenate(found), [len(one) for one in found]
    right = rows.argmax(axis=1) == np.concatenate([known.labels[video] for video in known.test])
    measured = calibration(rows.max(axis=1), right, videos=np.repeat(known.test, counts))
    return round(measured.expected_calibration_error, 2)


def _summaries(videos: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return each score of each recogniser with its interval, and the first one's less it."""
    seeds = {name: list(own.values()) for name, own in videos.items() if own}
    ours, summaries = seeds.get("recogniser"), {}
    for name, own in seeds.items():
        row: dict[str, Any] = {"seeds": len(own)}
        for score, (_, *columns) in _SCORES.items():
            if columns[0] in own[0]["columns"]:
                value, draws = _scores(own, score)
                row[score] = _interval(value, draws)
                if ours is not None and ours is not own:
                    first, drawn = _scores(ours, score)
                    row[score]["recogniser_less_it"] = _interval(first - value, drawn - draws)
        if "ece" in own[0]:
            row["ece"] = round(float(np.mean([one["ece"] for one in own])), 2)
        summaries[name] = row
    return summaries


def _scores(seeds: Sequence[dict[str, Any]], score: str) -> tuple[float, Floats]:
    """Return a score and draws of it over videos [DRAWS], both means over seeds."""
    _, above, below = _SCORES[score]
    factor = 1 if score == "delay_seconds" else 100
    columns = [[np.array(one["columns"][each]) for each in (above, below)] for one in seeds]
    value = np.mean([up.sum() / max(down.sum(), 1e-9) for up, down in columns])
    draws: Floats = np.mean([drawn_ratios(up, down) for up, down in columns], axis=0)
    return factor * float(value), factor * draws


def _interval(value: float, draws: Floats) -> dict[str, Any]:
    """Return a value and its interval; without an end where nothing was counted."""
    ends = (None, None) if np.isnan(draws).all() else draws_interval(draws)
    low, high = (None if end is None else round(end, 2) for end in ends)
    return {"mean": round(value, 2), "low": low, "high": high}


def _table(known: _Known, rows: dict[str, dict[str, Any]]) -> Table:
    def cells(name: str) -> Iterator[str]:
        yield f"{name} ({counted(rows[name]['seeds'], 'seed')})"
        for score in _SCORES:
            one = rows[name].get(score)
            if one is None or one["low"] is None:
                yield NONE
            else:
                yield f"{one['mean']:.1f} ({one['low']:.0f}–{one['high']:.0f})"
        yield str(rows[name].get("ece", NONE))

    listed = recogniser_rows()
    return Table(
        title=f"{known.data.name}: steps of {counted(len(known.test), 'test video')}",
        heads=("recogniser", *(head for head, *_ in _SCORES.values()), "ECE"),
        lines=tuple(tuple(Entry(text=text) for text in cells(name)) for name in rows),
        legend=(_LEGEND,),
        notes=tuple(f"{name}: {listed[name][1].line}." for name in rows if name in listed),
    )
