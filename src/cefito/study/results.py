"""The results file of a study, which its tables are made from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Discriminator, Tag

from cefito.data.folds import are_grouped, group_numbers
from cefito.data.windows import Selection, steps_text
from cefito.errors import RunError
from cefito.evaluation.records import ABSENT
from cefito.evaluation.statistics import resampled_ratios
from cefito.files import FileRecord
from cefito.parts.matching import DatasetName
from cefito.planners.any_length.predicted import PREDICTED
from cefito.planners.methods import PlannerVariant
from cefito.settings import differences
from cefito.study.study import Study
from cefito.study.trials import FailedTrial, ScoredTrial, TrialFile

AnyTrial = TypeVar("AnyTrial", ScoredTrial, FailedTrial)
PUBLISHED_WIDTH = 3 * 512
"""Numbers of an observation of published results: three seconds of S3D's features."""
RESULTS = "results.json"
"""Name of the results file in the folder of a study."""


class WindowList(FileRecord):
    """All scored test windows of a horizon, or of all lengths up to it."""

    video: tuple[int, ...] = ()  # number of each one's video in the data set
    start: tuple[int, ...] = ()  # number of each one's first step in its video
    length: tuple[int, ...] | None = ABSENT  # steps of each one, if there are several lengths
    group: tuple[int, ...] | None = ABSENT  # of each one's video, if videos share groups

    @property
    def kind(self) -> str:
        """What is resampled, video or group."""
        return "video" if self.group is None else "group"

    @property
    def units(self) -> tuple[int, ...]:
        """Number of each one's group, if videos share groups, else of its video."""
        return self.video if self.group is None else self.group


def _kind(trial: Any) -> str:
    failed = "error" in trial if isinstance(trial, dict) else hasattr(trial, "error")
    return "failed" if failed else "scored"


class Results(FileRecord):
    """Content of a results.json."""

    what: ClassVar[str] = "results file"
    remedy: ClassVar[str] = "Make it again with cefito compare."
    sealed: ClassVar[bool] = True

    format_version: Literal[1] = 1
    dataset: DatasetName
    features: str | None = ABSENT  # in words, if they are not those of published results
    selection: Selection  # windows that epochs and weights were chosen on
    preset: str
    settings: dict[str, Any]  # changed in all rows that have them, dotted keys
    sample: int | None  # size of the sample of test windows; None if all were scored
    horizons: list[int]
    shortest: int | None = ABSENT  # if windows of all lengths from it to the horizon were scored
    seeds: list[int]
    versions: dict[str, str]  # of libraries
    rows: list[PlannerVariant]
    windows: dict[int, WindowList]  # by horizon
    # mean over seeds of each metric, and ends of its 90 % interval with videos resampled (None
    # where nothing is counted), by horizon and row; None if some trial has no scores by video
    intervals: dict[int, dict[str, dict[str, dict[str, float | None]]]] | None = ABSENT
    trials: list[
        Annotated[
            Annotated[ScoredTrial, Tag("scored")] | Annotated[FailedTrial, Tag("failed")],
            Discriminator(_kind),
        ]
    ]

    def scored(self, horizon: int, row: str | None = None) -> list[ScoredTrial]:
        """Trials with scores at a horizon, by ascending seeds; of all rows by default."""
        return self._of(ScoredTrial, horizon, row)

    def failed(self, horizon: int, row: str) -> list[FailedTrial]:
        """Trials of a row without scores, by ascending seeds."""
        return self._of(FailedTrial, horizon, row)

    def _of(self, kind: type[AnyTrial], horizon: int, row: str | None) -> list[AnyTrial]:
        trials = (
            trial for trial in self.trials if trial.horizon == horizon and row in (None, trial.row)
        )
        return sorted(
            (trial for trial in trials if isinstance(trial, kind)), key=lambda trial: trial.seed
        )

    def steps(self, horizon: int) -> str:
        """Numbers of steps of the windows of a horizon, such as "3" or "1-6"."""
        return steps_text(horizon, self.shortest)

    def windows_of(self, horizon: int) -> WindowList:
        """All scored test windows of a horizon."""
        return self.windows.get(horizon, WindowList())


def changes_of_results(study: Study) -> str:
    """Say how the results file in the folder of a study differs from it; "" without a file."""
    try:
        before = Results.read(study.out / RESULTS).to_dict()
    except RunError:
        return ""
    now = _described(study)
    return differences({name: before.get(name) for name in now}, now)


def _described(study: Study) -> dict[str, Any]:
    """Return the entries of a results file that all scores depend on."""
    lost = [key for key, names in study.unreached.items() if len(names) == len(study.rows)]
    return {
        "dataset": DatasetName.of(study.dataset).model_dump(),
        "selection": study.selection,
        "preset": study.preset,
        "settings": {key: study.settings[key] for key in study.settings if key not in lost},
        "sample": study.sample,
    }


def other_features(observed: Mapping[str, Any] | None, width: int) -> str | None:
    """Return in words what features are, unless they may be those of published results, S3D."""
    model = str(((observed or {}).get("features") or {}).get("model") or "")
    if model and "s3d" not in model.lower():
        return f"features of {model}"
    return None if width == PUBLISHED_WIDTH else f"observations of {width:,} numbers"


def gather(study: Study) -> Results:
    """Read all scores of a study from the files of its trials, or why they are missing."""
    records = [trial.result for trial in study.trials]
    windows: dict[int, WindowList] = {}
    groups = group_numbers(study.dataset.videos)
    for record in records:
        if isinstance(record, TrialFile):
            longest, group = windows.get(record.horizon), groups[record.videos]
            if longest is None or len(longest.video) < len(record.videos):
                shared = are_grouped(groups[np.unique(record.videos)])
                windows[record.horizon] = WindowList(
                    video=tuple(record.videos),
                    start=tuple(record.starts),
                    length=None if record.lengths is None else tuple(record.lengths),
                    group=tuple(group.tolist()) if shared else None,
                )
    return Results(
        **_described(study),
        features=other_features(
            study.dataset.provenance.get("observed"), study.dataset.observation_dim
        ),
        horizons=list(study.horizons),
        shortest=study.shortest,
        seeds=list(study.seeds),
        versions={"cefito": version("cefito"), "torch": torch.__version__, "numpy": np.__version__},
        rows=[_titled(row, records, study.predicts_length(row)) for row in study.rows],
        windows=windows,
        intervals=_intervals([one for one in records if isinstance(one, TrialFile)], groups),
        trials=[
            _placed(record, windows[record.horizon]) if isinstance(record, TrialFile) else record
            for record in records
        ],
    )


def _intervals(records: Sequence[TrialFile], groups: NDArray[np.int64]) -> Any:
    """Return the entry `intervals` of results; `groups` are those of the videos."""
    if any(record.video_sums is None for record in records):
        return None
    trials: defaultdict[tuple[int, str], list[TrialFile]] = defaultdict(list)
    for record in records:
        trials[record.horizon, record.row].append(record)
    intervals: dict[int, dict[str, Any]] = {}
    for (horizon, row), seeds in trials.items():
        videos = np.unique(seeds[0].videos)
        units = groups[videos] if are_grouped(groups[videos]) else videos
        # a single video cannot be resampled
        scores = resampled_ratios([one.by_video for one in seeds], units) if len(videos) > 1 else {}
        rounded = {name: score.rounded() for name, score in scores.items()}
        intervals.setdefault(horizon, {})[row] = rounded
    return intervals


def _titled(
    row: PlannerVariant, records: Sequence[TrialFile | FailedTrial], predicted: bool
) -> PlannerVariant:
    """Return a row with its final title, the planner's own name if it asks for that."""
    title = row.title + PREDICTED * predicted
    names = (
        record.planner
        for record in records
        if row.own_name and isinstance(record, TrialFile) and record.row == row.name
    )
    return row.model_copy(update={"title": next(names, title), "own_name": False})


def _placed(record: TrialFile, windows: WindowList) -> ScoredTrial:
    """Return a trial with the row numbers of its windows, or None if it has all."""
    scored = None
    if len(record.videos) < len(windows.video):
        places = _places(windows.video, windows.start, windows.length)
        number = {place: row for row, place in enumerate(places)}
        scored = [number[place] for place in _places(record.videos, record.starts, record.lengths)]
    left_out = ("key", "videos", "starts", "lengths", "video_sums", "video_counts")
    values = {name: value for name, value in record if name not in left_out}
    return ScoredTrial(**values, scored=scored)


def _places(
    videos: Sequence[int], starts: Sequence[int], lengths: Sequence[int] | None
) -> list[tuple[int, int, int]]:
    """Return video, first step and length (0 if all are alike) of each window."""
    return list(zip(videos, starts, lengths or [0] * len(videos), strict=True))
