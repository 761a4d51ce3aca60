"""A folder of films with labels of some of them: a run that learned from these, and findings.

What is missing is found where that is safe: the files of labels in the folder, the task in names.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from cefito.data.prepared import open_dataset
from cefito.data.readers.assemble import prepare
from cefito.data.readers.feature_files import FeatureError, FileFolder
from cefito.data.readers.step_source import source_of
from cefito.data.source import Source
from cefito.data.vocabulary import nfc, similar_names
from cefito.errors import ConfigError, DataError, RunError, explained
from cefito.files import file_digest, read_text, value_digest, write_text
from cefito.inference.recordings import open_recordings
from cefito.inference.verification import VerifiedVideo, verified_videos
from cefito.inference.whole_videos import among_right
from cefito.markup import counted, csv_text, listed
from cefito.planners.methods import RunConfig, load_config
from cefito.progress import Progress, silent
from cefito.runs.run import Run
from cefito.runs.train import train_run
from cefito.tracks import Track
from cefito.tracks.document import Choices
from cefito.tracks.reading import find_steps, in_one_spelling, read
from cefito.verification.findings import LEAST
from cefito.verification.verifier import Verifier

LONGEST = 6
"""Most steps of a plan, if films have as many."""
_AS_WRITTEN = Choices()
_OWNER = "FILMS.txt"  # file that names the folder of films of the results
_SHOWN = 5  # names in a message
_ALIKE = 0.5  # share of the steps of the smaller of two groups of films from which they are a task
_LETTERS = 3  # of a word that says something
_SAY_NOTHING = re.compile(
    "annotations?|cam(era)?|clips?|data|exports?|films?|footage|front|gopr|img|labels?|labelled|"
    "left|mov(ie)?s?|new|old|person|raw|rec|recordings?|right|side|take|tests?|top|train|user|"
    "vid|videos?|work|worker",
    re.IGNORECASE,
)
"""Words of names that do not say what is done."""


@dataclass(frozen=True)
class FilmFindings:
    """What came of a folder of films."""

    run: Run
    labelled: int  # films that the run was trained on
    new: int  # films without labels
    verified: tuple[VerifiedVideo, ...]  # those without labels, or else those with labels
    notes: tuple[str, ...]  # on what was found, and what was left out


def run_films(
    folder: Path,
    out: Path,
    *,
    labels: Path | None = None,
    choices: Choices = _AS_WRITTEN,
    ask: Callable[[str], str] | None = None,
    seed: int = 0,
    config: RunConfig | None = None,
    workers: int = 1,
    progress: Progress = silent,
    tell: Callable[[str], object] = str,
) -> FilmFindings:
    """Learn from the labelled films of a folder, and verify those without labels.

    If all have labels, these are verified. A call that was stopped goes on when it is repeated.

    Args:
        folder: Folder of video files, at any depth.
        out: Folder of features, and, in a folder named by a digest of films and labels, of data set
            and run.
        labels: File of labels, or folder of them; by default they are looked for in `folder`.
        choices: What the labels leave open.
        ask: Answers a question, as a person at a terminal; None if nobody can.
        seed: Seed of the training.
        config: Settings of the training, of the method any-length; by default the preset `small`.
        workers: Processes that train.
        progress: Shows progress.
        tell: Takes each note: those on films and labels before the training, which takes minutes.

    Raises:
        ConfigError: The extra `video` is missing, the task is named nowhere, or `out` is of another
            folder of films.
        DataError: No films, no labels, labels of several forms, or of none of the films.
    """
    from cefito.encoders.extraction import SUFFIXES, extract_videos
    from cefito.encoders.video import open_encoder

    _check_owner(out, folder)
    files = FileFolder(folder, endings=SUFFIXES, kind="video file")
    paths = [labels] if labels is not None else []
    if labels is None or not labels.is_file():
        stems = {nfc(path.stem) for path in files.paths}
        paths = find_steps(labels or folder, columns=choices.columns, films=stems)
    source, choices, notes = _labelled(paths, choices, files, ask, out)
    films = files.owned(source.names)
    if len(films) == 1:
        problem = f"has labels of one film, '{next(iter(films))}'"
        raise DataError(f"{folder}: {problem}. Label at least two of each task, better five.")
    if not films:
        named = listed(source.names, most=_SHOWN)
        there = listed((path.name for path in files.paths), most=_SHOWN)
        problem = f"has none of the films that the labels name, {named}, only {there}"
        remedy = "Rename the films, or name the videos by their files of labels"
        raise DataError(f"{folder}: {problem}. {remedy}.", setting="by_file")
    with explained(out, "cannot be made", "Choose another folder.", error=RunError):
        out.mkdir(parents=True, exist_ok=True)
    write_text(out / _OWNER, f"{folder.resolve()}\n")
    features = out / "features"
    extracted = extract_videos(folder, features, open_encoder(), progress=progress)
    notes += [f"left out: {problem}" for problem in extracted.failed.values()]
    rows = {path: features / path.relative_to(folder).with_suffix(".npy") for path in files.paths}
    rows = {path: file for path, file in rows.items() if file.exists()}
    seen = [file_digest(rows[path]) for path in films.values() if path in rows]
    labelled = [source.annotations.taxonomy.to_dict(), *map(asdict, source.annotations.videos)]
    place = out / value_digest([*labelled, *seen])[:8]
    if (place / "data").exists():
        dataset = open_dataset(place / "data")
    else:
        how: dict[str, Any] = {"name": folder.resolve().name, "videos": folder, "timeline": True}
        dataset = prepare(source, features, place / "data", progress=progress, **how)
    absent = _without_film(source, files, films)
    notes += among_right(Verifier.fit(dataset.videos, dataset.taxonomy), dataset.videos)
    notes += [*absent.values(), *_account(dataset.provenance["preparation"], absent)]
    new = {path: file for path, file in rows.items() if path not in films.values()}
    labelled_films = counted(len(dataset.videos), "labelled film")
    for note in (f"to learn from: {labelled_films}; without labels: {len(new)}", *notes):
        tell(note)
    told = len(notes)
    run = train_run(
        dataset,
        place / "run",
        config=config or load_config("small", method="any-length"),
        horizon=min(LONGEST, max(len(video.steps) for video in dataset.videos)),
        shortest=1,
        seed=seed,
        workers=workers,
        progress=progress,
        reuse=True,
    )
    if new:
        verified = _new_films(run, new, choices, notes)
    else:
        notes.append("every film has labels, so these are verified; add films without labels")
        asked: dict[str, Any] = {"task": None, "least": LEAST, "choices": choices}
        verified = verified_videos(run, run.own_verifier, paths, **asked)
    for note in notes[told:]:
        tell(note)
    return FilmFindings(run, len(dataset.videos), len(new), tuple(verified), tuple(notes))


def _check_owner(out: Path, folder: Path) -> None:
    """Refuse a folder of results that is of another folder of films, unless that is gone."""
    if not (out / _OWNER).exists():
        return
    owner = Path(read_text(out / _OWNER, "Remove it.").strip())
    if owner.is_dir() and owner != folder.resolve():
        problem = f"holds what was learned from {owner}, not from {folder.resolve()}"
        raise ConfigError(f"{out}: {problem}. Give another folder.", setting="out")


def _without_film(source: Source, files: FileFolder, films: Mapping[str, Path]) -> dict[str, str]:
    """Say of each video with labels that has no film why, with a film that may be meant."""
    free = [path.stem for path in files.paths if path not in films.values()]
    said = dict[str, str]()
    for video, names in source.names.items():
        try:
            files.find(names)
        except FeatureError as problem:
            stem = Path(names[-1]).name
            near = similar_names(stem, [film for film in free if _numbers(film) == _numbers(stem)])
            guess = f"; did you mean {near[0]}?" if near else ""
            said[video] = f"left out, no film of this name: {video}{guess}"
            if problem.reason == "several files":
                said[video] = f"left out: {problem}"
    return said


def _numbers(name: str) -> list[int]:
    return [int(number) for number in re.findall(r"[0-9]+", name)]


def _account(preparation: Mapping[str, Any], named: Collection[str]) -> list[str]:
    """Return what a preparation notes, and which videos it left out that are not named already."""
    left = {
        group["reason"]: [video for video in group["videos"] if video not in named]
        for group in preparation["left_out"]
    }
    return [
        *preparation["notes"],
        *(
            f"left out, {reason}: {listed(videos, most=_SHOWN)}"
            for reason, videos in left.items()
            if videos
        ),
    ]


def _new_films(
    run: Run, rows: Mapping[Path, Path], choices: Choices, notes: list[str]
) -> list[VerifiedVideo]:
    """Recognise and verify films by their files of features; note those without a step."""
    verified = list[VerifiedVideo]()
    asked: dict[str, Any] = {"task": None, "least": LEAST, "choices": choices}
    recordings = open_recordings(run, map(str, rows.values()))
    for film, recording in zip(rows, recordings, strict=True):
        source = replace(recording, place=str(film), file=str(film))
        try:
            verified += verified_videos(run, run.own_verifier, [source], **asked)
        except ConfigError as problem:
            notes.append(f"left out: {problem}")
    return verified


def _labelled(
    paths: Sequence[Path],
    choices: Choices,
    files: FileFolder,
    ask: Callable[[str], str] | None,
    out: Path,
) -> tuple[Source, Choices, list[str]]:
    """Read labels; also return how they were read, and a note on tasks that names gave."""
    notes = list[str]()
    try:
        tracks = read(paths, choices)
    except DataError as problem:
        chosen = choices.task or choices.task_pattern or choices.video_table
        if "task" not in problem.setting.split(", ") or chosen:
            raise
        try:
            unnamed = read(paths, choices.model_copy(update={"task": "any"})).tracks
        except DataError as other:  # if columns lack, the first error also names the one of tasks
            raise (problem if "column" in other.setting.split(", ") else other) from None
        tasks, why = named_tasks(unnamed, files)
        tasks |= {track.video: track.task for track in unnamed if track.task != "any"}
        if len({*tasks.values()}) == 1:
            _check_one_task(files.folder, unnamed)
        if not why and ask is not None:
            tasks = dict.fromkeys(tasks, ask("What is done in these films, as in change tyre?"))
        if not all(tasks.values()):
            said = "neither labels nor names of files and folders say what is done in the films"
            raise ConfigError(f"{files.folder}: {said}. Name it.", setting="task") from problem
        if why:
            named = listed((f"'{task}'" for task in dict.fromkeys(tasks.values())), most=_SHOWN)
            notes.append(f"the labels name no task; {why}, it is {named}")
        table = out / "VIDEOS.csv"
        with explained(out, "cannot be made", "Choose another folder.", error=RunError):
            out.mkdir(parents=True, exist_ok=True)
        write_text(table, csv_text([("video", "task"), *tasks.items()]))
        choices = choices.model_copy(update={"video_table": table})
        tracks = read(paths, choices)
    return source_of(in_one_spelling(tracks), paths), choices, notes


def named_tasks(tracks: Sequence[Track], files: FileFolder) -> tuple[dict[str, str], str]:
    """Return the task of each video that names say, and which do; both are empty if none do.

    Names of several tasks are of films that share few steps, at least two of each with or without
    labels. A film whose name says nothing is of the only task with which it shares more.
    """
    films = files.owned({track.video: (track.video,) for track in tracks})
    steps = {track.video: {step.name for step in track.steps} for track in tracks}
    paths = {video: films.get(video, Path(video)) for video in steps}
    inside = {video: files.folder in path.parents[1:] for video, path in paths.items()}
    folders = {video: _words(path.parent.name) * inside[video] for video, path in paths.items()}
    names = {video: _words(path.stem) for video, path in paths.items()}
    alike = Counter(_words(path.stem) for path in {*files.paths, *paths.values()})
    several = {"by the names of folders": folders, "by the names of files": names}
    for why, tasks in several.items():
        groups: dict[str, list[str]] = defaultdict(list)
        for video, task in tasks.items():
            groups[task].append(video)
        for video in groups.pop("", ()):
            fits = [task for task, of in groups.items() if not _differ([of, [video]], steps)]
            tasks[video] = fits[0] if len(fits) == 1 else ""
            groups[tasks[video]].append(video)
        least = min(alike[task] for task in groups) if tasks is names else 2
        if len(groups) > 1 and "" not in groups and least > 1 and _differ(groups.values(), steps):
            return tasks, why
    whole = {"by the name of the folder": {_words(files.folder.resolve().name)}}
    whole |= {why: {*tasks.values()} for why, tasks in several.items()}
    for why, words in whole.items():
        if len(words) == 1 and (task := words.pop()):
            return dict.fromkeys(steps, task), why
    return dict.fromkeys(steps, ""), ""


def _check_one_task(folder: Path, tracks: Sequence[Track]) -> None:
    """Refuse films of two kinds, of several films each, that share few steps."""
    steps = {track.video: {step.name for step in track.steps} for track in tracks}
    kind = [*steps][:1]
    for video in kind:  # grows
        kind += [new for new in steps if new not in kind and not _differ([[video], [new]], steps)]
    others = [video for video in steps if video not in kind]
    if min(len(kind), len(others)) > 1:
        problem = f"the labels name no task, and '{kind[0]}' and '{others[0]}' share few steps"
        remedy = "Put films of each task into a folder called like it, or name the column of tasks"
        problem = f"{folder}: {problem}. {remedy}, a pattern of tasks in names, or one task for all"
        raise ConfigError(f"{problem}.", setting="column, task_pattern, task, video_table")


def _differ(groups: Iterable[Sequence[str]], steps: Mapping[str, set[str]]) -> bool:
    """Whether groups of videos share so few steps that each does something else."""
    sets = [set().union(*(steps[video] for video in videos)) for videos in groups]
    return all(len(a & b) <= _ALIKE * min(len(a), len(b)) for a, b in combinations(sets, 2))


def _words(name: str) -> str:
    """Return what a name says, from its first word that says something to the last one."""
    words = re.sub(r"[\W\d_]+", " ", nfc(name)).split()
    says = [
        (len(word) >= _LETTERS or not word.isascii()) and not _SAY_NOTHING.fullmatch(word)
        for word in words
    ]
    if True not in says:
        return ""
    return " ".join(words[says.index(True) : len(words) - says[::-1].index(True)])
