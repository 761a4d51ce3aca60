"""Recognisers of steps beside each other: trained on all videos but those of test, scored on these.

Or on all videos, each by a recogniser that was trained without its group.

OUT/recognition.json holds sums of each test video by recogniser and seed. Each of them is added
once it is there, also by several processes that share the folder; an interrupted comparison goes
on, and networks that are trained are kept in OUT/trainings until then.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.data.folds import By, are_grouped, group_numbers, known_videos, split_folds
from cefito.data.prepared import PreparedDataset
from cefito.data.timeline import row_labels
from cefito.errors import ConfigError, DataError
from cefito.evaluation.metrics import checked_sums
from cefito.evaluation.recogniser_metrics import RECOGNISER_METRICS, FollowedRows, ScoredVideo
from cefito.evaluation.statistics import calibration, drawn_ratios, draws_interval
from cefito.files import read_json, write_json, write_text
from cefito.locks import locked
from cefito.markup import counted
from cefito.progress import Progress, prefixed, silent
from cefito.recognition.chain import Floats
from cefito.recognition.methods import RECOGNISERS, RecogniserMethod, RecogniserRow
from cefito.recognition.recogniser import Recogniser, Recognition
from cefito.recognition.settings import RecogniserConfig, RecogniserSettings
from cefito.settings import changed, check_key, validated
from cefito.study.costs import recogniser_costs
from cefito.study.rendering import NONE, Entry, Table, check_columns, latex, markdown, signed
from cefito.training.trainer import TrainingContext


@dataclass(frozen=True, eq=False)
class _Films:
    """The videos, their rows and the labels of these."""

    data: PreparedDataset
    rate: float
    raw: list[NDArray[np.float32]]  # [n, D] of each video
    labels: list[NDArray[np.int64]]  # [n] of each video
    test: list[list[int]]  # videos of each fold, that others are trained for
    among: list[int]  # all videos that these are trained on, or scored on
    background: int  # K

    @classmethod
    def of(cls, data: PreparedDataset, by: By | None, folds: int | None) -> _Films:
        timeline, background = data.timeline, len(data.taxonomy.actions)
        test = [place for place, video in enumerate(data.videos) if video.split == "test"]
        among = known_videos(data, test=True) if by else list(range(len(data.videos)))
        if timeline is None or (by is None and not 0 < len(test) < len(among)):
            problem = "expected videos of the split test, and others, or folds by group"
            if timeline is None:
                problem = "holds no rows of whole videos. Prepare it with features of videos"
            raise DataError(f"{data.folder}: {problem}.")
        held = [test] if by is None else split_folds(data, among, folds, by=by)
        raw, rate = [rows.astype(np.float32) for rows in timeline.videos], timeline.rate
        labels = [
            row_labels(video.steps, len(video_rows), rate, background)
            for video, video_rows in zip(data.videos, raw, strict=True)
        ]
        return cls(data, rate, raw, labels, held, among, background)

    @property
    def scored(self) -> list[int]:
        """All videos that are scored, fold by fold."""
        return [video for videos in self.test for video in videos]

    def learned(self, held: Sequence[int]) -> list[int]:
        """All videos that are trained on if some are held out."""
        return [video for video in self.among if video not in held]

    @property
    def units(self) -> NDArray[np.int64]:
        """The group of each scored video, of several, else the video: what intervals resample."""
        groups = group_numbers([self.data.videos[video] for video in self.scored])
        return groups if are_grouped(groups) else np.arange(len(groups))


def compare_recognisers(
    dataset: PreparedDataset,
    out: Path,
    names: Sequence[str],
    seeds: Sequence[int],
    progress: Progress = silent,
    changes: Mapping[str, Any] | None = None,
    *,
    only: Sequence[str] | None = None,
    device: str = "cpu",
    by: By | None = None,
    folds: int | None = None,
    columns: Sequence[str] | None = None,
    against: str | None = None,
    say: Callable[[str], None] | None = None,
) -> tuple[list[Table], dict[str, Any]]:
    """Train and score recognisers, write recognition.json, .md and .tex; return tables and scores.

    Args:
        dataset: A data set with rows of whole videos.
        out: Folder of the results; those that it holds are kept, and stand in the tables, too.
        names: Rows of `recogniser_rows`.
        seeds: Seeds that each of them is trained with.
        progress: Shows the progress of each training.
        changes: Settings by name, of those recognisers that have them; a row changes others.
        only: Those of the names that are worked on here; all by default.
        device: Where they are trained.
        by: Score all videos in folds, which keep this together, instead of the split test.
        folds: Number of folds, as of `split_folds`.
        columns: Heads of the columns of the tables; all by default.
        against: The row that the others are compared with; the first one by default.
        say: Called with what the missing scores will take, and after each with what remains.

    Raises:
        ConfigError: An unknown recogniser, setting or column, or a folder of another data set,
            rows or settings.
        DataError: The data set holds no rows of whole videos, no test videos, or no groups.
    """
    changes, rows = changed({}, changes or {}), recogniser_rows()
    if not names or not {*names} <= rows.keys():
        unknown = ", ".join(name for name in names if name not in rows) or "none"
        problem = f"recognisers {unknown}: expected some of {', '.join(rows)}"
        raise ConfigError(f"{problem}.", setting="recognisers")
    check_columns(columns, _heads())
    against = against or names[0]
    if against not in names:
        problem = f"against {against}: is not among the rows {', '.join(names)}"
        raise ConfigError(f"{problem}.", setting="against")
    films, file = _Films.of(dataset, by, folds), out / "recognition.json"
    about: dict[str, Any] = {
        "format_version": 2,
        "dataset": {"name": dataset.name, "fingerprint": dataset.fingerprint},
        "timeline": dataset.rows_digest,
        "settings": _changed(RecogniserConfig, changes).model_dump(mode="json"),
        "changes": changes or None,
        "test_videos": [dataset.videos[place].video_id for place in films.scored],
        "by": by,
        "folds": None if by is None else list(map(len, films.test)),
    }
    videos = _scored_before(file, about)
    known = [name for name in {**dict.fromkeys(names), **videos} if name in rows]
    for key in changes:
        kinds = (rows[name][0].settings for name in known)
        check_key(key, *kinds, place=f"recognisers {', '.join(known)}")

    def fit(name: str, *learned: Any, **how: Any) -> Recogniser:
        method, row = rows[name]
        config = _changed(method.settings, {**changes, **row.settings})
        return method.kind.fit(dataset, *learned, config=config, **how)

    def is_scored(name: str, seed: int) -> bool:
        scores = videos.get(name, {})
        return str(seed) in scores if rows[name][0].seeded else bool(scores)

    costs = None
    missing = [
        (name, seed)
        for place, seed in enumerate(seeds)
        for name in (names if only is None else only)
        if not is_scored(name, seed) and (rows[name][0].seeded or not place)
    ]
    if say is not None and missing:
        learned = films.learned(films.test[0])
        costs = recogniser_costs(
            {name: partial(fit, name, learned, seed=seeds[0]) for name in dict(missing)},
            [(name, f"{name}, seed {seed}") for name, seed in missing],
            device,
            folds=len(films.test),
            progress=progress,
        )
        say(costs.words)
    for name, seed in missing:
        if is_scored(name, seed):
            continue
        started = time.monotonic()
        trainings = out / "trainings" / f"{name}-{seed}"
        context = TrainingContext(
            device=device,
            folder=trainings,
            shared=True,
            key=f"{dataset.fingerprint} {dataset.rows_digest}",
            progress=prefixed(progress, name),
        )
        measured = _measured(films, partial(fit, name, seed=seed), context)
        with locked(out, "a comparison", wait=True):
            videos = _scored_before(file, about)
            scores = videos.setdefault(name, {})
            if rows[name][0].seeded or not scores:  # another job may have scored it meanwhile
                scores[str(seed)] = measured
            summaries = _summaries(videos, films.units, against)
            report = {**about, "against": against, "rows": summaries, "videos": videos}
            write_json(file, report)
        shutil.rmtree(trainings, ignore_errors=True)
        if costs is not None and say is not None:
            said = costs.finished(f"{name}, seed {seed}", time.monotonic() - started)
            if costs.seconds:
                say(said)
    summaries = _summaries(videos, films.units, against)
    listed = {name: summaries[name] for name in (*names, *summaries) if name in summaries}
    tables = [_table(films, listed), _differences(films, listed, against)]
    tables = [table.of_columns(columns) for table in tables if table.lines]
    write_text(file.with_suffix(".md"), "\n".join(map(markdown, tables)))
    write_text(file.with_suffix(".tex"), "\n".join(map(latex, tables)))
    return tables, {**about, "against": against, "rows": summaries, "videos": videos}


def _changed(kind: type[RecogniserSettings], changes: Mapping[str, Any]) -> RecogniserSettings:
    """Return settings with those of the changes that they have."""
    taken = {name: value for name, value in changes.items() if name in kind.model_fields}
    return validated(kind, taken, place="recogniser")


def _scored_before(file: Path, about: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the scores that a file holds, by recogniser and seed; none without it."""
    if not file.exists():
        return {}
    before = read_json(file, "Choose another folder.")
    if {key: before.get(key) for key in about} != about:
        problem = "is of another data set, other rows of videos or settings, or an earlier version"
        raise ConfigError(f"{file} {problem}. Choose another folder.")
    videos: dict[str, dict[str, Any]] = before["videos"]
    return videos


def count_scores(
    report: Mapping[str, Any], names: Sequence[str], seeds: Sequence[int]
) -> tuple[int, int]:
    """Return how many scores of some rows and seeds a comparison has, and of how many.

    A row that does not depend on the seed has one score.

    Args:
        report: What `compare_recognisers` returns.
        names: Rows of `recogniser_rows`.
        seeds: Seeds.
    """
    rows, videos = recogniser_rows(), report["videos"]
    seeded = [name for name in names if rows[name][0].seeded]
    scored = sum(str(seed) in videos.get(name, {}) for name in seeded for seed in seeds)
    scored += sum(bool(videos.get(name)) for name in names if name not in seeded)
    return scored, len(seeded) * len(seeds) + len(names) - len(seeded)


def recogniser_rows() -> dict[str, tuple[RecogniserMethod, RecogniserRow]]:
    """Return the rows of all recognisers by name."""
    return {
        name: (method, row) for method in RECOGNISERS.values() for name, row in method.rows.items()
    }


def _measured(
    films: _Films, fit: Callable[..., Recogniser], context: TrainingContext
) -> dict[str, Any]:
    """Train on the other videos of each fold, and return the scores of the videos in it.

    These are sums and divisors of each metric by scored video [N, 2], and ECE.
    """
    rows, scored, sums = list[Floats](), list[ScoredVideo](), {}
    for fold, held in enumerate(films.test):
        fitted = fit(films.learned(held), context=context.part(f"fold-{fold + 1}"))
        recognised = [fitted.recognise(films.raw[video]) for video in held]
        rows += [recognition.rows for recognition in recognised]
        scored += map(partial(_scored, films, fitted), held, recognised)
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
    right = rows.argmax(axis=1) == np.concatenate([films.labels[video] for video in films.scored])
    measured = calibration(rows.max(axis=1), right, videos=np.repeat(films.units, counts))
    return round(measured.expected_calibration_error, 2)


def _summaries(
    videos: dict[str, dict[str, Any]], units: NDArray[np.int64], against: str
) -> dict[str, dict[str, Any]]:
    """Return each score of each recogniser with its interval, and it less that of one of them.

    `units` are what intervals resample, by scored video.
    """
    seeds = {name: list(results.values()) for name, results in videos.items() if results}
    others, summaries = seeds.get(against, []), {}
    for name, results in seeds.items():
        row: dict[str, Any] = {"seeds": len(results)}
        for metric in RECOGNISER_METRICS:
            if all(metric in seed["sums"] for seed in results):
                value, draws = _scores(results, metric, units)
                row[metric] = _interval(value, draws)
                if name != against and others and all(metric in seed["sums"] for seed in others):
                    other, drawn = _scores(others, metric, units)
                    row[metric]["difference"] = _interval(value - other, draws - drawn)
        if "ece" in results[0]:
            row["ece"] = round(float(np.mean([result["ece"] for result in results])), 2)
        summaries[name] = row
    return summaries


def _scores(
    seeds: Sequence[dict[str, Any]], name: str, units: NDArray[np.int64]
) -> tuple[float, Floats]:
    """Return a metric and draws of it over videos, or groups, [DRAWS], both means over seeds."""
    factor = 100 if RECOGNISER_METRICS[name].percent else 1
    columns = [np.array(seed["sums"][name]).T for seed in seeds]  # sums and divisors [2, N]
    value = np.mean([up.sum() / max(down.sum(), 1e-9) for up, down in columns])
    drawn = [drawn_ratios(*(np.bincount(units, side) for side in both)) for both in columns]
    draws: Floats = np.mean(drawn, axis=0)
    return factor * float(value), factor * draws


def _interval(value: float, draws: Floats) -> dict[str, Any]:
    """Return a value and its interval; without an end where nothing was counted."""
    ends = (None, None) if np.isnan(draws).all() else draws_interval(draws)
    low, high = (None if end is None else round(end, 2) for end in ends)
    return {"mean": round(value, 2), "low": low, "high": high}


def _heads() -> list[str]:
    """Return the heads of the columns, but the first."""
    return [*(metric.head for metric in RECOGNISER_METRICS.values()), "ECE"]


def _title(films: _Films) -> str:
    how = "the split test" if len(films.test) == 1 else f"held out in {len(films.test)} folds"
    return f"{films.data.name}: steps of {counted(len(films.scored), 'video')}, {how}"


def _table(films: _Films, rows: dict[str, dict[str, Any]]) -> Table:
    def cells(name: str) -> Iterator[str]:
        yield f"{name} ({counted(rows[name]['seeds'], 'seed')})"
        for metric in RECOGNISER_METRICS:
            score = rows[name].get(metric)
            if score is None or score["low"] is None:
                yield NONE
            else:
                yield f"{score['mean']:.1f} ({score['low']:.0f}–{score['high']:.0f})"
        yield str(rows[name].get("ece", NONE))

    kind = "group" if are_grouped(films.units) else "video"
    listed = recogniser_rows()
    meanings = {metric.head: metric.meaning for metric in RECOGNISER_METRICS.values()}
    return Table(
        title=_title(films),
        heads=("recogniser", *_heads()),
        lines=tuple(tuple(Entry(text=text) for text in cells(name)) for name in rows),
        legend=f"Per cent unless said, 90 % intervals ({kind}s resampled).",
        meanings={**meanings, "ECE": "expected calibration error of the rows' probabilities"},
        notes=tuple(f"{name}: {listed[name][1].line}." for name in rows if name in listed),
    )


def _differences(films: _Films, rows: dict[str, dict[str, Any]], against: str) -> Table:
    """Return each score less that of one recogniser; without lines if there is none."""

    def cells(name: str) -> Iterator[str]:
        yield name
        for metric in RECOGNISER_METRICS:
            less = rows[name].get(metric, {}).get("difference")
            if less is None or less["low"] is None:
                yield NONE
            else:
                mean, low, high = (signed(less[end], 1) for end in ("mean", "low", "high"))
                yield f"{mean} ({low} to {high})"

    others = [name for name in rows if name != against and against in rows]
    return Table(
        title=f"{_title(films)}: scores less those of {against}",
        heads=("recogniser", *_heads()[:-1]),
        lines=tuple(tuple(Entry(text=text) for text in cells(name)) for name in others),
        legend="90 % intervals, for which both are scored on the same drawn videos.",
    )
