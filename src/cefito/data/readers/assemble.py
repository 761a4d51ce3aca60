"""From annotations and a folder of features to a prepared data set.

Videos are observed by several threads. What is left out is counted in the provenance, with the
reasons.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from cefito.arrays import Border
from cefito.data.action_text import read_action_text
from cefito.data.annotations import Annotations, Video
from cefito.data.prepared import PreparedDataset, video_folder_entry, write_dataset
from cefito.data.readers.feature_files import FeatureArray, FeatureError, FileFolder, load_features
from cefito.data.readers.observing import Beyond, check_layout, is_beyond, kept_steps, observe
from cefito.data.source import Source
from cefito.data.timeline import Timeline
from cefito.data.vocabulary import Taxonomy, nfc
from cefito.errors import DataError, explained
from cefito.files import read_json
from cefito.locks import check_new
from cefito.markup import counted, listed
from cefito.progress import Progress, silent
from cefito.settings import Settings, validated

_THREADS = 4  # that observe videos
_SHOWN = 3  # steps in a note


class ObservationOptions(Settings):
    """How the steps of a video are observed."""

    feature_rate: float | None = Field(
        None,
        ge=0.01,
        le=1000,
        description="Rows of features a second if not one, such as 25, or 1.875 (clips of 16 "
        "frames); the row in the middle of each second is taken. Of sensors, rows a second that "
        "are made and kept.",
    )
    beyond: Beyond = Field(
        "drop",
        description="Steps that end beyond the features are left out (drop), replaced by the step "
        "before, as the published loader does (rewrite), or refused (error).",
    )
    seconds: int = Field(
        3,
        ge=1,
        description="Rows of features around a step's start and end that form one observation, "
        "odd.",
    )
    precision: Literal["float16", "float32"] = Field(
        "float16", description="Stored type of the observations."
    )

    timeline: bool = Field(
        False,
        description="Keep the rows of whole videos, to recognise steps in them; the default for "
        "your own data.",
    )
    row_rate: float | None = Field(
        None,
        ge=0.01,
        le=1000,
        description="Rows a second of whole videos that are kept; by default one, or, of sensors "
        "and of labels of frames, those that there are.",
    )
    transposed: bool = Field(
        False,
        description="Features are [D, rows], as of MS-TCN; the default for a folder of labels of "
        "frames.",
    )

    @field_validator("seconds")
    @classmethod
    def _odd(cls, seconds: int) -> int:
        if seconds % 2 == 0:
            raise ValueError("expected an odd number")
        return seconds

    @property
    def rate(self) -> float:
        """Rows of features a second."""
        return 1.0 if self.feature_rate is None else self.feature_rate

    @property
    def border(self) -> Border:
        """Row repeated beyond a border: the reference loader's if steps are rewritten as by it."""
        return "last" if self.beyond == "rewrite" else "nearest"


@dataclass(frozen=True)
class _Observed:
    """A video with its observations, or with the reason why it cannot be used."""

    video: Video
    path: Path | None = None  # of its features
    rows: NDArray[Any] | None = None  # at the start and at the end of each kept step, [2, S, E]
    whole: NDArray[np.float16] | None = None  # its rows [n, D], if they are kept
    shape: tuple[int, int] = (0, 0)  # of its features
    kept: tuple[int, ...] = ()  # index of the annotated step at each place
    beyond: tuple[int, ...] = ()  # index of each step beyond the features
    seconds: float = 0.0  # of its features
    clamped: int = 0  # steps that end after the features by no more than rounding, and are kept
    reason: str = ""  # short
    detail: str = ""  # as a sentence


def prepare(
    source: Source,
    features: Path | str,
    target: Path | str,
    *,
    name: str | None = None,
    videos: Path | str | None = None,
    progress: Progress = silent,
    **options: Any,
) -> PreparedDataset:
    """Observe the steps of annotated videos and write a prepared data set.

    Under `drop` and `error`, the last steps of a video are kept if all end within half a second
    after its rows. `provenance["preparation"]` lists what was left out.

    Args:
        source: The annotations.
        features: Folder with one file a video.
        target: New folder.
        name: Name shown in tables; by default the one of the annotations.
        videos: Folder of the videos, which the data set records so that frames can be shown.
        progress: Shows progress.
        options: Settings of `ObservationOptions`.
    """
    features, target = Path(features), Path(target)
    recipe = validated(ObservationOptions, options, place="preparation")
    check_new(target, name)
    place = ", ".join(str(path) for path in source.files)
    taxonomy = Taxonomy.from_dict(source.annotations.taxonomy.to_dict(), place=place)
    text, text_file = None, {}
    if source.action_text is not None:
        text = read_action_text(source.action_text, taxonomy)
        text_file = {"action_text": {"file": source.action_text.name}}
    paths, unused, notes = _files(source, FileFolder(features))
    with progress("videos", total=len(paths)) as advance, ThreadPoolExecutor(_THREADS) as pool:
        outcomes = []
        for outcome in pool.map(partial(_observed, recipe), *zip(*paths, strict=True)):
            outcomes.append(outcome)
            advance()
    seen = [outcome for outcome in outcomes if all(outcome.shape)]
    ends = [max(step.end for step in outcome.video.steps) for outcome in seen]
    notes += check_layout(features, [outcome.shape for outcome in seen], ends, recipe.feature_rate)
    used, refused = _usable(outcomes)
    refused += unused
    if not used:
        raise DataError(f"{features}: no video can be used; the first: {refused[0].detail}")
    source = replace(source, notes=(*source.notes, *notes))
    videos_used = tuple(outcome.video.with_steps(outcome.kept) for outcome in used)
    start, end = np.concatenate(
        [outcome.rows for outcome in used if outcome.rows is not None], axis=1
    )
    whole = tuple(outcome.whole for outcome in used if outcome.whole is not None)
    return write_dataset(
        target,
        name=name or taxonomy.dataset,
        annotations=Annotations(taxonomy=source.annotations.taxonomy, videos=videos_used),
        start=start,
        end=end,
        action_text=text,
        timeline=Timeline(whole, recipe.row_rate or 1.0) if recipe.timeline else None,
        provenance={
            "observations": (
                f"features of {recipe.seconds} s around the rounded start and end of each step, "
                f"concatenated, stored as {recipe.precision}"
            ),
            "observed": {
                "seconds": recipe.seconds,
                "precision": recipe.precision,
                "features": _made_with(features),
                **({} if recipe.border == "nearest" else {"border": recipe.border}),
                **({} if recipe.rate == 1 else {"feature_rate": recipe.rate}),
                **({"transposed": True} if recipe.transposed else {}),
            },
            "source": {"kind": source.form, "files": [path.name for path in source.files]},
            **({"tier": source.tier} if source.tier else {}),
            "preparation": _account(source, features, used, refused, recipe.beyond),
            **video_folder_entry(None if videos is None else Path(videos), target),
            "cefito": version("cefito"),
            **text_file,
        },
    )


def summary_rows(dataset: PreparedDataset) -> list[list[object]]:
    """Table of what a preparation left out or changed: (what, videos, steps, example)."""
    preparation = dataset.provenance["preparation"]
    rows: list[list[object]] = [
        ["prepared", preparation["videos"]["prepared"], preparation["steps"]["prepared"], None]
    ]
    beyond = preparation["beyond"]
    if beyond["steps"]:
        changed = {"drop": "dropped", "rewrite": "rewritten"}[beyond["policy"]]
        what = f"steps beyond the features, {changed}"
        rows.append([what, len(beyond["videos"]), beyond["steps"], beyond["videos"][0]])
    return rows + [
        [f"left out: {group['reason']}", len(group["videos"]), group["steps"], group["example"]]
        for group in preparation["left_out"]
    ]


def _files(
    source: Source, folder: FileFolder
) -> tuple[list[tuple[Video, Path]], list[_Observed], list[str]]:
    """Videos with their files, videos without one, and notes on the files."""
    matches: list[tuple[Video, Path, str]] = []
    unused: list[_Observed] = []
    claims: dict[Path, list[tuple[str, str]]] = defaultdict(list)  # names found in a file's, videos
    for video in source.annotations.videos:
        try:
            if not video.steps:
                raise FeatureError("no steps", f"video '{video.video_id}' has no annotated steps.")
            path, name = folder.find(source.names.get(video.video_id, (video.video_id,)))
        except FeatureError as problem:
            unused.append(_Observed(video, reason=problem.reason, detail=str(problem)))
            continue
        matches.append((video, path, name))
        claims[path].append((name, video.video_id))
    paths: list[tuple[Video, Path]] = []
    partial_names: list[str] = []
    for video, path, name in matches:
        longest = max(len(claim) for claim, _ in claims[path])
        (owner, first), *others = (claim for claim in claims[path] if len(claim[0]) == longest)
        if len(name) < longest:
            other = f"and there is no other file for video '{video.video_id}'."
            detail = f"{path}: belongs to '{owner}', {other}"
            unused.append(_Observed(video, reason="no features", detail=detail))
        elif others:
            both = f"may belong to video '{first}' and to video '{others[0][1]}'"
            detail = f"{path}: {both}. Put it into a folder named as that of one."
            unused.append(_Observed(video, reason="several videos", detail=detail))
        else:
            paths.append((video, path))
            if name.rpartition("/")[2] != nfc(path.stem):
                partial_names.append(f"'{video.video_id}' with {path.name}")
    if not partial_names:
        return paths, unused, []
    note = f"{len(partial_names)} videos were matched with files of longer names, for example"
    return paths, unused, [f"{note} {partial_names[0]}."]


def _observed(recipe: ObservationOptions, video: Video, path: Path) -> _Observed:
    """Observe the steps of a video."""
    outcome = _Observed(video, path)
    try:
        features = load_features(path, recipe.rate, transposed=recipe.transposed)
        outcome = replace(outcome, shape=(len(features.values), features.width))
        outcome = _with_rows(outcome, features, recipe)
        if recipe.timeline:
            whole = features.at_rate(recipe.row_rate or 1.0)
            outcome = replace(outcome, whole=whole.astype(np.float16))
        return outcome
    except FeatureError as problem:
        return replace(outcome, reason=problem.reason, detail=str(problem))


def _with_rows(outcome: _Observed, features: FeatureArray, recipe: ObservationOptions) -> _Observed:
    """Add the observations of the steps that are kept."""
    steps, rows = outcome.video.steps, features.rows
    outside = [place for place, step in enumerate(steps) if is_beyond(step, rows)]
    clamped, last = 0, max(step.end for step in steps)
    whole = max(rows, len(features.values) / features.rate)  # seconds
    if outside and recipe.beyond != "rewrite" and last <= whole + 0.5:
        clamped, outside = len(outside), []
    ends = f"{outcome.path}: the features end at {whole:g} s, and"
    if outside and recipe.beyond == "error":
        late = f"step {outside[0] + 1} (counted from 1) of video '{outcome.video.video_id}'"
        problem = f"{ends} {late} ends later. Leave such steps out, or rewrite them."
        raise DataError(problem, setting="beyond")
    kept = list(range(len(steps))) if clamped else kept_steps(steps, rows, recipe.beyond)
    if not kept:
        raise FeatureError("all steps beyond", f"{ends} all steps end later.")
    times = [[steps[place].start for place in kept], [steps[place].end for place in kept]]
    observed = observe(
        features, times, seconds=recipe.seconds, precision=recipe.precision, border=recipe.border
    )
    seen: dict[str, Any] = {"beyond": tuple(outside), "seconds": whole, "clamped": clamped}
    return replace(outcome, rows=observed, kept=tuple(kept), **seen)


def _usable(outcomes: Sequence[_Observed]) -> tuple[list[_Observed], list[_Observed]]:
    """Videos with observations of the commonest width, and the others with the reason."""
    widths = Counter(outcome.rows.shape[2] for outcome in outcomes if outcome.rows is not None)
    width = min(widths, key=lambda size: (-widths[size], size), default=0)
    used: list[_Observed] = []
    refused: list[_Observed] = []
    for outcome in outcomes:
        if outcome.rows is None:
            refused.append(outcome)
        elif outcome.rows.shape[2] == width:
            used.append(outcome)
        else:
            numbers = f"{outcome.rows.shape[2]} numbers, most videos give {width}"
            problem = f"gives observations of {numbers}. Extract it with the same model."
            detail = f"{outcome.path}: {problem}"
            refused.append(replace(outcome, reason="wrong dimension", detail=detail))
    return used, refused


def _account(
    source: Source,
    folder: Path,
    used: Sequence[_Observed],
    refused: Sequence[_Observed],
    beyond: Beyond,
) -> dict[str, Any]:
    """What was left out or changed."""
    clamped = [outcome.video.video_id for outcome in used if outcome.clamped]
    clamped_steps = sum(outcome.clamped for outcome in used)
    notes = list(source.notes)
    if clamped:
        notes.append(
            "The last row stands for what ends up to half a second after the features: "
            f"{counted(clamped_steps, 'step')} of {counted(len(clamped), 'video')}; the first "
            f"video is '{clamped[0]}'."
        )
    names_of = source.annotations.taxonomy.actions
    late = [
        f"'{outcome.video.video_id}' ends at {outcome.seconds:g} s, but its step "
        f"'{names_of[step.action].name}' is from {step.start:g} to {step.end:g} s"
        for outcome in used
        for step in (outcome.video.steps[place] for place in outcome.beyond)
    ]
    if late and beyond == "drop":
        notes.append(f"left out, beyond the features: {listed(late, most=_SHOWN)}")
    left_out = []
    for reason in dict.fromkeys(outcome.reason for outcome in refused):
        members = [outcome for outcome in refused if outcome.reason == reason]
        example = members[0].detail.replace(f"{folder}/", "").replace(str(folder), folder.name)
        steps = sum(len(outcome.video.steps) for outcome in members)
        names = [outcome.video.video_id for outcome in members]
        left_out.append({"reason": reason, "steps": steps, "example": example, "videos": names})
    return {
        "videos": {"annotated": len(source.annotations.videos), "prepared": len(used)},
        "steps": {
            "annotated": source.annotations.step_count,
            "prepared": sum(len(outcome.kept) for outcome in used),
        },
        "beyond": {
            "policy": beyond,
            "steps": len(late),
            "videos": [outcome.video.video_id for outcome in used if outcome.beyond],
        },
        "clamped": {"steps": clamped_steps, "videos": clamped},
        "left_out": left_out,
        "notes": notes,
    }


def _made_with(features: Path) -> dict[str, Any] | None:
    """Read `extract.json`, which `cefito extract` writes beside features; None if there is none."""
    path = features / "extract.json"
    if not path.exists():
        return None
    remedy = "Extract the features again, or remove this file."
    value: dict[str, Any] = read_json(path, remedy)
    with explained(path, "is not a record of an extraction", remedy, AttributeError):
        return dict(value.items())
