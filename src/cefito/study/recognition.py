"""Recognisers of steps beside each other: trained on all videos but those of test, scored on these.

OUT/recognition.json holds sums of each test video by recogniser and seed. It is written after each
of them, so that an interrupted comparison goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.data.prepared import PreparedDataset
from cefito.data.timeline import row_labels
from cefito.errors import ConfigError, DataError
from cefito.evaluation.metrics import checked_sums
from cefito.evaluation.recogniser_metrics import RECOGNISER_METRICS, FollowedRows, ScoredVideo
from cefito.evaluation.statistics import calibration, drawn_ratios, draws_interval
from cefito.files import read_json, write_json, write_text
from cefito.markup import counted
from cefito.progress import Progress, prefixed, silent
from cefito.recognition.chain import Floats
from cefito.recognition.methods import RECOGNISERS, RecogniserMethod, RecogniserRow
from cefito.recognition.recogniser import Recogniser, Recognition
from cefito.recognition.settings import RecogniserConfig
from cefito.study.rendering import NONE, Entry, Table, latex, markdown
from cefito.training.trainer import TrainingContext


@dataclass(frozen=True, eq=False)
class _Films:
    """The videos, their rows and the labels of these."""

    data: PreparedDataset
    rate: float
    raw: list[NDArray[np.float32]]  # [n, D] of each video
    labels: list[NDArray[np.int64]]  # [n] of each video
    train: list[int]
    test: list[int]
    background: int  # K

    @classmethod
    def of(cls, data: PreparedDataset) -> _Films:
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
            row_labels(video.steps, len(video_rows), rate, background)
            for video, video_rows in zip(data.videos, raw, strict=True)
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

    Args:
        dataset: A data set with rows of whole videos.
        out: Folder of the results; those that it holds are kept.
        names: Rows of `recogniser_rows`.
        seeds: Seeds that each of them is trained with.
        progress: Shows the progress of each training.
        config: Settings; a row changes some of them.

    Raises:
        ConfigError: An unknown recogniser, or a folder of another data set, rows or settings.
        DataError: The data set holds no rows of whole videos, or no test videos.
    """
    config, rows = config or RecogniserConfig(), recogniser_rows()
    if not names or not {*names} <= rows.keys():
        unknown = ", ".join(name for name in names if name not in rows) or "none"
        raise ConfigError(f"recognisers {unknown}: expected some of {', '.join(rows)}.")
    films, file = _Films.of(dataset), out / "recognition.json"
    about: dict[str, Any] = {
        "format_version": 2,
        "dataset": {"name": dataset.name, "fingerprint": dataset.fingerprint},
        "timeline": dataset.rows_digest,
        "settings": config.model_dump(mode="json"),
        "test_videos": [dataset.videos[place].video_id for place in films.test],
    }
    videos: dict[str, dict[str, Any]] = {}
    if file.exists():
        before = read_json(file, "Choose another folder.")
        if {key: before.get(key) for key in about} != about:
            problem = "is of another data set, other rows or settings, or an earlier version"
            raise ConfigError(f"{file} {problem}. Choose another folder.")
        videos = before["videos"]
    out.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        for name in names:
            by_seed = videos.setdefault(name, {})
            method, row = rows[name]
            if str(seed) not in by_seed and (method.seeded or not by_seed):
                base = config if isinstance(config, method.settings) else method.settings()
                chosen = base.model_copy(update=dict(row.settings))
                context = TrainingContext(progress=prefixed(progress, name))
                fit = method.kind.fit
                made = fit(dataset, films.train, config=chosen, seed=seed, context=context)
                by_seed[str(seed)] = _measured(films, made)
            summaries = _summaries(videos)
            write_json(file, report := {**about, "rows": summaries, "videos": videos})
    table = _table(films, {name: summaries[name] for name in names})
    write_text(file.with_suffix(".md"), markdown(table))
    write_text(file.with_suffix(".tex"), latex(table))
    return table, report


def recogniser_rows() -> dict[str, tuple[RecogniserMethod, RecogniserRow]]:
    """Return the rows of all recognisers by name."""
    return {
        name: (method, row) for method in RECOGNISERS.values() for name, row in method.rows.items()
    }


def _measured(films: _Films, fitted: Recogniser) -> dict[str, Any]:
    """Return the sums and divisors of each metric by test video [N, 2], and ECE."""
    recognised = [fitted.recognise(films.raw[video]) for video in films.test]
    rows = [recognition.rows for recognition in recognised]
    scored, sums = list(map(partial(_scored, films, fitted), films.test, recognised)), {}
    for name, metric in list(RECOGNISER_METRICS.items()):
        with RECOGNISER_METRICS.trying(name):
            totals = [metric.total(video) for video in scored]
            checked = [checked_sums(total, metric) for total in totals if total is not None]
            if len(checked) == len(totals):
                sums[name] = np.round(np.array(checked), 4).tolist()
    sure = all(((values == 0) | (values == 1)).all() for values in rows)
    return {"sums": sums} | ({} if sure else {"ece": _calibration_error(films, rows)})


def _scored(films: _Films, fitted: Recogniser, video: int, recognised: Recognition) -> ScoredVideo:
    """Return what metrics see of a test video; its rows are followed if the recogniser can."""
    annotated = films.data.videos[video]
    seen: dict[str, Any] = {}
    if fitted.follows:
        stream, now, ahead = fitted.stream(), [], []
        for row in films.raw[video]:
            stream.observe(row)
            now.append(int(stream.now.argmax()))
            if (actions := stream.next_actions) is not None:
                ahead.append(int(actions.argmax()))
        told = np.array(ahead) if ahead else None
        seen["followed"] = FollowedRows(np.array(now), told, len(stream.steps()))
        seen["task_right"] = int(recognised.tasks.argmax()) == annotated.task
    return ScoredVideo(
        labels=recognised.rows.argmax(axis=1),
        truth=films.labels[video],
        background=films.background,
        rate=films.rate,
        steps=tuple(sorted(annotated.steps, key=lambda step: step.start)),
        **seen,
    )


def _calibration_error(films: _Films, probabilities: Sequence[Floats]) -> float:
    """Return the calibration error of the likeliest labels of rows, in per cent."""
    rows, counts = np.concatenate(probabilities), [len(video_rows) for video_rows in probabilities]
    right = rows.argmax(axis=1) == np.concatenate([films.labels[video] for video in films.test])
    measured = calibration(rows.max(axis=1), right, videos=np.repeat(films.test, counts))
    return round(measured.expected_calibration_error, 2)


def _summaries(videos: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return each score of each recogniser with its interval, and the first one's less it."""
    seeds = {name: list(results.values()) for name, results in videos.items() if results}
    ours, summaries = seeds.get("recogniser"), {}
    for name, results in seeds.items():
        row: dict[str, Any] = {"seeds": len(results)}
        for metric in RECOGNISER_METRICS:
            if all(metric in seed["sums"] for seed in results):
                value, draws = _scores(results, metric)
                row[metric] = _interval(value, draws)
                if ours not in (None, results) and all(metric in seed["sums"] for seed in ours):
                    first, drawn = _scores(ours, metric)
                    row[metric]["recogniser_less_it"] = _interval(first - value, drawn - draws)
        if "ece" in results[0]:
            row["ece"] = round(float(np.mean([result["ece"] for result in results])), 2)
        summaries[name] = row
    return summaries


def _scores(seeds: Sequence[dict[str, Any]], name: str) -> tuple[float, Floats]:
    """Return a metric and draws of it over videos [DRAWS], both means over seeds."""
    factor = 100 if RECOGNISER_METRICS[name].percent else 1
    columns = [np.array(seed["sums"][name]).T for seed in seeds]  # sums and divisors [2, N]
    value = np.mean([up.sum() / max(down.sum(), 1e-9) for up, down in columns])
    draws: Floats = np.mean([drawn_ratios(up, down) for up, down in columns], axis=0)
    return factor * float(value), factor * draws


def _interval(value: float, draws: Floats) -> dict[str, Any]:
    """Return a value and its interval; without an end where nothing was counted."""
    ends = (None, None) if np.isnan(draws).all() else draws_interval(draws)
    low, high = (None if end is None else round(end, 2) for end in ends)
    return {"mean": round(value, 2), "low": low, "high": high}


def _table(films: _Films, rows: dict[str, dict[str, Any]]) -> Table:
    heads = {name: metric.head for name, metric in RECOGNISER_METRICS.items()}

    def cells(name: str) -> Iterator[str]:
        yield f"{name} ({counted(rows[name]['seeds'], 'seed')})"
        for metric in heads:
            score = rows[name].get(metric)
            if score is None or score["low"] is None:
                yield NONE
            else:
                yield f"{score['mean']:.1f} ({score['low']:.0f}–{score['high']:.0f})"
        yield str(rows[name].get("ece", NONE))

    listed = recogniser_rows()
    meanings = (f"{metric.head}: {metric.meaning}." for metric in RECOGNISER_METRICS.values())
    return Table(
        title=f"{films.data.name}: steps of {counted(len(films.test), 'test video')}",
        heads=("recogniser", *heads.values(), "ECE"),
        lines=tuple(tuple(Entry(text=text) for text in cells(name)) for name in rows),
        legend=(f"Per cent unless said, 90 % intervals (videos resampled). {' '.join(meanings)}",),
        notes=tuple(f"{name}: {listed[name][1].line}." for name in rows if name in listed),
    )
