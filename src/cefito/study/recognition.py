"""Recognisers of steps beside each other: trained on all videos but those of test, scored on these.

Or on all videos, each by a recogniser that was trained without its group.

OUT/recognition.json holds sums of each test video by recogniser and seed. Each of them is added
once it is there, also by several processes that share the folder; an interrupted comparison goes
on, and networks that are trained are kept in OUT/trainings until then.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import create_model

from cefito.data.folds import By, are_grouped, known_videos, split_folds, units_of
from cefito.data.prepared import PreparedDataset
from cefito.errors import CefitoError, ConfigError, DataError
from cefito.evaluation.metrics import checked_sums
from cefito.evaluation.recogniser_metrics import RECOGNISER_METRICS, FollowedRows, ScoredVideo
from cefito.evaluation.statistics import calibration, resampled_ratios
from cefito.executors import Done, Killed, make_executor
from cefito.files import read_json, write_json, write_text
from cefito.locks import locked
from cefito.markup import counted
from cefito.planners.methods import load_config
from cefito.progress import Progress, prefixed, silent
from cefito.recognition.chain import Floats
from cefito.recognition.methods import RECOGNISERS, RecogniserMethod, RecogniserRow
from cefito.recognition.recogniser import AnnotatedRows, Recogniser, Recognition
from cefito.recognition.settings import RecogniserConfig, RecogniserSettings
from cefito.settings import Settings, changed, check_key, differences, validated
from cefito.study.costs import recogniser_costs
from cefito.study.rendering import (
    DIFFERENCE,
    NONE,
    Entry,
    Table,
    check_columns,
    latex,
    markdown,
    resampled_legend,
    resampled_text,
    signed,
    signed_interval,
    study_notes,
)
from cefito.study.running import KILLED, mapped
from cefito.study.study import OfDataset
from cefito.training.trackers import TrackerName, check_tracker
from cefito.training.trainer import TrainingContext

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class _Films:
    """The videos, their rows and the labels of these."""

    data: PreparedDataset
    known: AnnotatedRows  # of all videos
    test: list[list[int]]  # videos of each fold, that others are trained for
    among: list[int]  # all videos that these are trained on, or scored on

    @classmethod
    def of(cls, data: PreparedDataset, by: By | None, folds: int | None) -> _Films:
        test = [place for place, video in enumerate(data.videos) if video.split == "test"]
        among = known_videos(data, test=True) if by else list(range(len(data.videos)))
        if data.timeline is None or (by is None and not 0 < len(test) < len(among)):
            problem = "expected videos of the split test, and others, or folds by group"
            if data.timeline is None:
                problem = (
                    "holds no rows of whole videos. Prepare it with features of videos; cefito "
                    "quickstart --pixels makes a small one of drawn films"
                )
            raise DataError(f"{data.folder}: {problem}.")
        held = [test] if by is None else split_folds(data, among, folds, by=by)
        return cls(data, AnnotatedRows.of(data, range(len(data.videos))), held, among)

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
        return units_of([self.data.videos[video] for video in self.scored])


@dataclass(frozen=True, kw_only=True, eq=False)
class RecogniserScorer(OfDataset):
    """Trains and scores rows, and adds their scores to recognition.json."""

    dataset: PreparedDataset
    out: Path
    changes: Mapping[str, Any]  # settings by name, of those recognisers that have them
    against: str  # the row that the others are compared with
    device: str = "cpu"
    by: By | None = None  # what folds of all videos keep together; None for the split test
    folds: int | None = None  # as of `split_folds`
    track: TrackerName | None = None  # program that gets the metrics of trainings, too

    @cached_property
    def films(self) -> _Films:
        """What is trained on and scored."""
        return _Films.of(self.dataset, self.by, self.folds)

    @cached_property
    def about(self) -> dict[str, Any]:
        """Entries of the file that its scores depend on."""
        dataset, films = self.dataset, self.films
        return {
            "format_version": 2,
            "dataset": {"name": dataset.name, "fingerprint": dataset.fingerprint},
            "timeline": dataset.rows_digest,
            "settings": _changed(RecogniserConfig, self.changes).model_dump(mode="json"),
            "changes": {**self.changes} or None,
            "test_videos": [dataset.videos[place].video_id for place in films.scored],
            "by": self.by,
            "folds": None if self.by is None else list(map(len, films.test)),
        }

    def fit(self, name: str, *learned: Any, **how: Any) -> Recogniser:
        """Train a row."""
        method, row = recogniser_rows()[name]
        config = _changed(method.settings, {**self.changes, **row.settings})
        return method.kind.fit(self.dataset, *learned, config=config, **how)

    def scores(self) -> dict[str, dict[str, Any]]:
        """Read the scores that there are, by recogniser and seed."""
        file = self.out / "recognition.json"
        if not file.exists():
            return {}
        before = read_json(file, "Choose another folder.")
        there, here = {key: before.get(key) for key in self.about}, dict(self.about)
        if there != here:
            if there["changes"] != here["changes"]:  # the other settings follow from these
                here["settings"] = there["settings"]
            said = differences(there, here)
            for section in ("changes", "settings"):
                said = said.replace(f"{section}.", "recogniser.")
            problem = f"has scores of others than are asked for: {said}"
            remedy = "Choose another folder, or give the same"
            if not before.get("videos"):
                remedy += ", or remove the file, which has no score yet, if no job works on it"
            raise ConfigError(f"{file} {problem}. {remedy}.")
        videos: dict[str, dict[str, Any]] = before["videos"]
        for name, (method, _) in recogniser_rows().items():
            code = RECOGNISERS.code(method.name)
            if {one.get("code", code) for one in videos.get(name, {}).values()} - {code}:
                problem = f"has scores of {name} by other code of its package"
                raise ConfigError(f"{file} {problem}. Choose another folder.")
        return videos

    def __call__(self, job: tuple[str, int], progress: Progress = silent) -> str:
        """Train a row with a seed and add its scores; return why there are none, else nothing."""
        name, seed = job
        if _is_scored(self.scores(), job):
            return ""
        trainings = self.out / "trainings" / f"{name}-{seed}"
        code = RECOGNISERS.code(recogniser_rows()[name][0].name)
        context = TrainingContext(
            device=self.device,
            folder=trainings,
            shared=True,
            key=f"{self.dataset.fingerprint} {self.dataset.rows_digest}{code}",
            progress=prefixed(progress, name),
            track=self.track,
        )
        try:
            measured = _measured(self.films, partial(self.fit, name, seed=seed), context)
        except CefitoError as problem:
            return " ".join(str(problem).split())
        with locked(self.out, "a comparison", wait=True):
            videos = self.scores()
            if not _is_scored(videos, job):  # another job may have scored it meanwhile
                videos.setdefault(name, {})[str(seed)] = measured | ({"code": code} if code else {})
                write_json(self.out / "recognition.json", self.report(videos))
        for path in trainings.rglob("*.safetensors") if self.track else ():
            path.unlink()
        if not self.track:
            shutil.rmtree(trainings, ignore_errors=True)
        return ""

    def claim(self) -> None:
        """Write the file without scores, by which jobs of other settings are refused at once."""
        with locked(self.out, "a comparison", wait=True):
            _ = self.scores()  # refuses others
            if not (self.out / "recognition.json").exists():
                write_json(self.out / "recognition.json", self.report({}))

    def report(self, videos: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Return what the file holds of these scores."""
        rows = _summaries(videos, self.films.units, self.against)
        return {**self.about, "against": self.against, "rows": rows, "videos": videos}


def _label(job: tuple[str, int]) -> str:
    return f"{job[0]}, seed {job[1]}"


def compare_recognisers(
    dataset: PreparedDataset,
    out: Path,
    names: Sequence[str],
    seeds: Sequence[int],
    progress: Progress = silent,
    changes: Mapping[str, Any] | None = None,
    *,
    only: Sequence[str] | None = None,
    seed: int | None = None,
    preset: str = "small",
    columns: Sequence[str] | None = None,
    against: str | None = None,
    workers: int = 1,
    executor: str | None = None,
    address: str | None = None,
    say: Callable[[str], None] | None = None,
    estimate: bool = False,
    **how: Any,
) -> tuple[list[Table], dict[str, Any]]:
    """Train and score recognisers, write recognition.json, .md and .tex; return tables and scores.

    A row that fails does not stop the others: `failed` of the scores returned has a line for each.
    A job of some rows or a seed makes no tables; its `done` has how many scores it and all jobs
    have, of how many.

    Args:
        dataset: A data set with rows of whole videos.
        out: Folder of the results; those that it holds are kept, and stand in the tables, too.
        names: Rows of `recogniser_rows`.
        seeds: Seeds that each of them is trained with.
        progress: Shows the progress of each training, or of all rows in several processes.
        changes: Settings by name, of those recognisers that have them; a row changes others.
        only: Those of the names that are worked on by this job; all by default.
        seed: The seed that is worked on by this job; all by default.
        preset: Preset, or path of one, whose section `recogniser` the changes are of.
        columns: Heads of the columns of the tables; all by default.
        against: The row that the others are compared with; the first one by default.
        workers: Number of processes; each takes a row and seed at a time.
        executor: A name in `cefito.executors.EXECUTORS`.
        address: Address of a running Ray cluster.
        say: Called with what the missing scores will take, and after each with what remains.
        estimate: Return nothing once it was called, if scores are missing.
        how: Other fields of `RecogniserScorer`.

    Raises:
        ConfigError: An unknown recogniser, setting, column or executor, or a folder of another data
            set, rows or settings.
        DataError: The data set holds no rows of whole videos, no test videos, or no groups.
    """
    changes, rows = changed({}, changes or {}), recogniser_rows()
    if not names or not {*names} <= rows.keys():
        unknown = ", ".join(name for name in names if name not in rows) or "none"
        problem = f"recognisers {unknown}: expected some of {', '.join(rows)}"
        raise ConfigError(f"{problem}.", setting="recognisers")
    check_columns(columns, _heads())
    check_tracker(how.get("track"))
    against = against or names[0]
    if against not in names:
        problem = f"against {against}: is not among the rows {', '.join(names)}"
        raise ConfigError(f"{problem}.", setting="against")
    of_rows = {**_of_preset(preset, dataset), **changes}
    scorer = RecogniserScorer(dataset=dataset, out=out, changes=of_rows, against=against, **how)
    gpus = int(scorer.device.startswith("cuda"))
    mapping = make_executor(executor, workers=workers, address=address, gpus=gpus)
    videos = scorer.scores()
    known = [name for name in {**dict.fromkeys(names), **videos} if name in rows]
    for key in changes:
        kinds = (_section(rows[name][0].settings) for name in known)
        check_key(f"recogniser.{key}", *kinds, place=f"recognisers {', '.join(known)}")
    jobs = _jobs(names if only is None else only, seeds if seed is None else [seed])
    missing = [job for job in jobs if not _is_scored(videos, job)]
    told = {}
    if missing and not estimate:
        scorer.claim()
    if say is not None and missing:
        learned = scorer.films.learned(scorer.films.test[0])
        costs = recogniser_costs(
            {name: partial(scorer.fit, name, learned, seed=jobs[0][1]) for name in dict(missing)},
            [(job[0], _label(job)) for job in missing],
            scorer.device,
            folds=len(scorer.films.test),
            workers=workers,
            progress=progress,
        )
        say(costs.words)
        told = costs.telling(say, _label)
        if estimate:
            return [], {"failed": []}
    failed = []
    shown = partial(scorer, progress=progress) if mapping.in_process else scorer
    outcomes = mapped(mapping, shown, missing, progress, **told)
    for job, outcome in zip(missing, outcomes, strict=True):
        if isinstance(outcome, Done):
            problem = outcome.value
        elif isinstance(outcome, Killed):
            problem = KILLED.format(outcome.signal)
        else:
            problem = f"{outcome.error.rstrip('.')}. This is a defect of the recogniser."
            logger.error("%s failed\n%s", _label(job), outcome.traceback)
        failed += [f"{_label(job)}: {problem}"] * bool(problem)
    report = {**scorer.report(scorer.scores()), "failed": failed}
    if (only, seed) != (None, None):
        shares, scored = (jobs, _jobs(names, seeds)), partial(_is_scored, report["videos"])
        return [], report | {"done": [(sum(map(scored, share)), len(share)) for share in shares]}
    summaries = report["rows"]
    listed = {name: summaries[name] for name in (*names, *summaries) if name in summaries}
    scores = _table(scorer.films, listed, of_rows)
    tables = [scores, _differences(scores, listed, against)]
    tables = [table.of_columns(columns) for table in tables if table.lines]
    write_text(out / "recognition.md", "\n".join(map(markdown, tables)))
    write_text(out / "recognition.tex", "\n".join(map(latex, tables)))
    return tables, report


def _of_preset(preset: str, dataset: PreparedDataset) -> dict[str, Any]:
    """Return the settings of recognisers that a preset changes."""
    config = load_config(preset, method="any-length", dataset=dataset.taxonomy.dataset)
    section = config.parts["recogniser"]
    return dict(section.model_dump(mode="json", exclude_defaults=True, exclude={"method"}))


def _changed(kind: type[RecogniserSettings], changes: Mapping[str, Any]) -> Any:
    """Return settings with those of the changes that they have."""
    taken = {name: value for name, value in changes.items() if name in kind.model_fields}
    return validated(_section(kind), {"recogniser": taken}, place="settings").recogniser


def _section(kind: type[RecogniserSettings]) -> Any:
    """Return the class of settings with the section `recogniser` alone, whose keys have it."""
    return create_model("Section", __base__=Settings, recogniser=(kind, ...))


def _jobs(names: Sequence[str], seeds: Sequence[int]) -> list[tuple[str, int]]:
    """Return rows with seeds; a row that does not depend on the seed has one."""
    rows = recogniser_rows()
    return [
        (name, seed) for seed in seeds for name in names if rows[name][0].seeded or seed == seeds[0]
    ]


def _is_scored(videos: Mapping[str, Any], job: tuple[str, int]) -> bool:
    """Whether a row has the scores of a seed, or does not depend on it and has some."""
    name, seed = job
    scores = videos.get(name, {})
    return str(seed) in scores or (bool(scores) and not recogniser_rows()[name][0].seeded)


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
        recognised = [fitted.recognise(films.known.rows[video]) for video in held]
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
        for row in films.known.rows[video]:
            stream.observe(row)
            now.append(int(stream.now.argmax()))
            if (actions := stream.next_actions) is not None:
                ahead.append(int(actions.argmax()))
        told = np.array(ahead) if ahead else None
        seen["followed"] = FollowedRows(np.array(now), told, len(stream.steps()))
        seen["task_right"] = int(recognised.tasks.argmax()) == annotated.task
    return ScoredVideo(
        labels=recognised.rows.argmax(axis=1),
        truth=films.known.labels[video],
        background=len(films.data.taxonomy.actions),
        rate=films.known.rate,
        steps=tuple(sorted(annotated.steps, key=lambda step: step.start)),
        **seen,
    )


def _calibration_error(films: _Films, probabilities: Sequence[Floats]) -> float:
    """Return the calibration error of the likeliest labels of rows, in per cent."""
    rows, counts = np.concatenate(probabilities), [len(video_rows) for video_rows in probabilities]
    right = rows.argmax(axis=1) == np.concatenate(
        [films.known.labels[video] for video in films.scored]
    )
    measured = calibration(rows.max(axis=1), right, videos=np.repeat(films.units, counts))
    return round(measured.expected_calibration_error, 2)


def _summaries(
    videos: dict[str, dict[str, Any]], units: NDArray[np.int64], against: str
) -> dict[str, dict[str, Any]]:
    """Return each score of each recogniser with its interval, and it less that of one of them.

    `units` are what intervals resample, by scored video.
    """
    seeds = {name: list(results.values()) for name, results in videos.items() if results}
    scores = {
        name: resampled_ratios([_scaled(seed) for seed in seeds[name]], units) for name in seeds
    }
    others, summaries = scores.get(against, {}), {}
    for name, of_metrics in scores.items():
        row: dict[str, Any] = {"seeds": len(seeds[name])}
        for metric in (metric for metric in RECOGNISER_METRICS if metric in of_metrics):
            row[metric] = of_metrics[metric].rounded()
            if name != against and metric in others:
                row[metric]["difference"] = (of_metrics[metric] - others[metric]).rounded()
        if "ece" in seeds[name][0]:
            row["ece"] = round(float(np.mean([seed["ece"] for seed in seeds[name]])), 2)
        summaries[name] = row
    return summaries


def _scaled(scores: Mapping[str, Any]) -> dict[str, Floats]:
    """Return sum, in per cent if it is a share, and divisor of each metric by video [N, 2]."""
    return {
        name: np.array(sums) * (100 if metric.percent else 1, 1)
        for name, sums in scores["sums"].items()
        if (metric := RECOGNISER_METRICS.get(name)) is not None
    }


def _heads() -> list[str]:
    """Return the heads of the columns, but the first."""
    return [*(metric.head for metric in RECOGNISER_METRICS.values()), "ECE"]


def _table(films: _Films, rows: dict[str, dict[str, Any]], changes: Mapping[str, Any]) -> Table:
    def cells(name: str) -> Iterator[str]:
        yield f"{name} ({counted(rows[name]['seeds'], 'seed')})"
        for metric in RECOGNISER_METRICS:
            score = rows[name].get(metric)
            if score is None or score["low"] is None:
                yield NONE
            else:
                yield resampled_text(score, 1)
        yield str(rows[name].get("ece", NONE))

    kind = "group" if are_grouped(films.units) else "video"
    listed, changed_in = recogniser_rows(), {f"recogniser.{key}": changes[key] for key in changes}
    seeded = {name for name in rows if name not in listed or listed[name][0].seeded}
    seeds = {name: rows[name]["seeds"] if name in seeded else None for name in rows}
    meanings = {metric.head: metric.meaning for metric in RECOGNISER_METRICS.values()}
    how = "the split test" if len(films.test) == 1 else f"held out in {len(films.test)} folds"
    return Table(
        title=f"{films.data.name}: steps of {counted(len(films.scored), 'video')}, {how}",
        heads=("recogniser", *_heads()),
        lines=tuple(tuple(Entry(text=text) for text in cells(name)) for name in rows),
        legend=resampled_legend(len(np.unique(films.units)), kind),
        meanings={**meanings, "ECE": "expected calibration error of the rows' probabilities"},
        notes=(
            *(f"{name}: {listed[name][1].line}." for name in rows if name in listed),
            *study_notes(changed_in, seeds),
        ),
    )


def _differences(scores: Table, rows: dict[str, dict[str, Any]], against: str) -> Table:
    """Return each score less that of one recogniser; without lines if there is none."""

    def cells(name: str) -> Iterator[str]:
        yield name
        for metric in RECOGNISER_METRICS:
            less = rows[name].get(metric, {}).get("difference")
            if less is None or less["low"] is None:
                yield NONE
            else:
                ends = signed_interval(less["low"], less["high"], 1)
                yield f"{signed(less['mean'], 1)} ({ends})"

    others = [name for name in rows if name != against and against in rows]
    return Table(
        title=f"{scores.title}: scores less those of {against}",
        heads=scores.heads[:-1],
        lines=tuple(tuple(Entry(text=text) for text in cells(name)) for name in others),
        legend=DIFFERENCE,
        meanings=scores.meanings,
        notes=scores.notes,
    )
