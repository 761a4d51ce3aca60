"""`cefito recognise` and `annotate`: steps of whole videos that nobody has cut, also to correct."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from cefito.cli.console import (
    check_any,
    left_out,
    log_warnings,
    passing_progress,
    print_json,
    table,
    talk,
    word,
)
from cefito.cli.options import AS_RECORDED, AS_WRITTEN, OUTPUT, FileOptions, RecordingOptions
from cefito.cli.values import Json, said_as_json
from cefito.data.annotations import json_lines
from cefito.data.robots import all_episodes, is_robot
from cefito.errors import CefitoError, ConfigError, DataError
from cefito.files import check_target, write_text
from cefito.markup import counted, csv_text, film_percent, percent
from cefito.settings import parse_record
from cefito.tracks import Track
from cefito.tracks.formats import WRITERS, Written
from cefito.tracks.writing import format_of, write_tracks

if TYPE_CHECKING:
    from cefito.inference.recordings import Recording
    from cefito.inference.whole_videos import Reading
    from cefito.parts.opened import OpenedRun
    from cefito.runs.run import Run
    from cefito.tracks.document import Choices, Format

PROPOSALS = "proposals.jsonl"
"""What was proposed, in the folder of the proposals."""
TASKS = "VIDEOS.csv"
"""Task of each film, which forms of one file a film do not hold, as --video-table reads it."""


def recognise(
    run: Path,
    /,
    *inputs: str,
    order: Path | None = None,
    steps_known: str | None = None,
    min_probability: float = 0.0,
    reading: RecordingOptions = AS_RECORDED,
    out: Annotated[Path | None, Parameter(group=OUTPUT)] = None,
    format_: Annotated[Written | None, Parameter(group=OUTPUT)] = None,
    frame_rate: Annotated[float | None, Parameter(group=OUTPUT)] = None,
    plot: Annotated[Path | None, Parameter(group=OUTPUT)] = None,
    overlay: Annotated[Path | None, Parameter(group=OUTPUT)] = None,
    json: Annotated[Json, Parameter(group=OUTPUT)] = False,
) -> int:
    """Recognise the steps of whole videos, with their times and probabilities.

    Args:
        run: Run with a recogniser, as cefito train DATA --steps 1-6 makes it of a data set with the
            rows of whole videos.
        inputs: Files of features (.npy, .npz, .pt, .h5; [rows, D], of the model that the run was
            trained on), video files, which are encoded so, or ids of videos of the run's data set;
            of a run of sensors, tables of their values, or folders of tables; LeRobot data sets
            for all of their episodes.
        order: File of orders that the steps keep, as cefito graph --out writes it.
        steps_known: Names or ids of all steps of each video in order, separated by commas, as in
            "boil,pour": only their times are recognised. Needs --task.
        min_probability: Leave out steps below this probability.
        out: File to write, whose ending is its format: .csv (a table, as cefito data prepare custom
            reads it), .eaf (ELAN), .json (Label Studio, predictions), .vtt (WebVTT), .edl
            (markers), .txt (start, end and label a line) or .jsonl. A folder, with --format, gets
            one file a video.
        format_: Format of the files.
        frame_rate: Frames per second, of the formats edl, frames and premiere, which count them.
        plot: Picture of the steps over time to write, .svg; with the annotated steps, if known.
        overlay: Film to write, .mp4 or .mkv, with the present step, its probability and what was
            wrong drawn in; of several films, a folder.
    """
    from cefito.inference.recordings import open_recordings
    from cefito.inference.whole_videos import recognised_videos, with_orders
    from cefito.runs.run import open_run

    if not inputs:
        raise ConfigError("give files of features, video files, or ids of videos.")
    if not 0 <= min_probability <= 1:
        raise ConfigError(f"--min-probability {min_probability:g}: expected 0 to 1.")
    inputs = (*all_episodes(inputs, reading.dataset),)
    chosen = None if out is None else format_of(out, format_, len(inputs))
    if chosen is not None:
        chosen.check_rate(frame_rate)
    if chosen is None and format_ is not None:
        raise ConfigError("--format is of a file. Give --out, too.")
    _check_pictures(plot, overlay, inputs)
    step_names = None
    if steps_known is not None:
        step_names = [name for name in steps_known.split(",") if name.strip()]
    with log_warnings():
        opened = with_orders(open_run(run), order)
        scores = opened.own_recogniser.held_out
        if scores is not None and scores.limit:
            talk(f"note: {scores.limit}")
        problems = list[CefitoError]()
        read: Reading = {**reading.reading(), "failed": problems.append}
        films = [] if overlay is None else [*open_recordings(opened, inputs, **read)]
        tracks = recognised_videos(
            opened,
            inputs if overlay is None else films,
            task=reading.task,
            steps_known=step_names,
            least=min_probability,
            **read,
        )
        check_any(problems, tracks)
        if overlay is not None:
            _overlay(opened, films, tracks, overlay, None if step_names else reading)
    _say_doubt(tracks)
    if out is not None and chosen is not None:
        _write(tracks, out, chosen, frame_rate)
    if plot is not None:
        from cefito.report.picture import timeline_picture

        write_text(plot, timeline_picture(tracks))
        talk(f"wrote {plot}")
    if json:
        print_json([track.to_dict() for track in tracks])
    elif out is None:
        _show(tracks, given=reading.task is not None)
        _warn(run, opened, step_names)
    return left_out(problems)


def _say_doubt(tracks: Sequence[Track]) -> None:
    """Name the videos that may show another task, wherever their steps are written."""
    from cefito.inference.whole_videos import other_task

    for track in tracks:
        if other := other_task(track.task, track.task_probability):
            talk(f"note: {track.video}: {other}")


def _warn(run: Path, opened: OpenedRun, step_names: list[str] | None) -> None:
    """Say that recognised steps can miss mistakes, and what finds these."""
    if opened.verifier is None or step_names is not None:
        return
    with suppress(ConfigError):
        opened.own_recogniser.given_orders({})  # refused by those that know no order
        usual = "they can fill in one that was skipped, or leave out a repetition"
        talk(f"note: recognised steps follow the usual order: {usual}")
        talk(f"note: cefito verify {word(run)} says what was seen")


def _write(
    tracks: Sequence[Track], out: Path, writer: Format, frame_rate: float | None = None
) -> None:
    """Write one file, or one of each video into a folder, and say so."""
    write_tracks(tracks, out, writer, frame_rate=frame_rate)
    steps = sum(len(track.steps) for track in tracks)
    talk(f"wrote {out}: {counted(steps, 'step')} of {counted(len(tracks), 'video')}")


def _check_pictures(plot: Path | None, overlay: Path | None, inputs: Sequence[str]) -> None:
    """Check that pictures can be written, before any work."""
    if plot is not None:
        check_target(plot, (".svg",), "plot")
    if overlay is not None:
        from cefito.report.overlay import check_overlay

        check_overlay(overlay, inputs)


def _overlay(
    run: OpenedRun,
    films: Sequence[Recording],
    tracks: Sequence[Track],
    out: Path,
    reading: RecordingOptions | None,
) -> None:
    """Write films with their steps drawn in, and what was wrong; nothing was in steps known."""
    from cefito.inference.verification import verified_film
    from cefito.report.overlay import overlay_film, overlay_targets

    targets = overlay_targets(out, [track.video for track in tracks])
    for film, track, target in zip(films, tracks, targets, strict=True):
        verified = None if reading is None else verified_film(run, film, reading.task)
        findings = () if verified is None else verified.deviations
        strange = overlay_film(
            Path(track.media), target, track, findings, progress=passing_progress
        )
        if strange:
            remedy = "Install a font that has them, such as Noto Sans"
            talk(f"note: no font here has the letters {strange}: '?' is drawn. {remedy}")
        talk(f"wrote {target}: {counted(len(track.steps), 'step')}, {len(findings)} findings")


def _show(tracks: Sequence[Track], *, given: bool) -> None:
    """Print the steps of videos as a table, after their tasks, which were given or recognised."""
    for track in tracks:
        sure = "given" if given else film_percent(track.task_probability)
        talk(f"{track.video}: task {track.task} ({sure})")
    rows = [
        (
            track.video,
            one.name,
            round(one.start, 1),
            round(one.end, 1),
            film_percent(one.probability),
        )
        for track in tracks
        for one in track.steps
    ]
    table("", ("video", "step", "start", "end", "probability"), rows)


@said_as_json
def annotate(
    run: Path,
    /,
    *films: str,
    out: Path,
    format_: Written = "csv",
    corrected: Annotated[tuple[Path, ...], Parameter(negative="", consume_multiple=True)] = (),
    reading: RecordingOptions = AS_RECORDED,
    files: FileOptions = AS_WRITTEN,
) -> dict[str, Any]:
    """Write the recognised steps of films for correction in an annotation tool.

    Args:
        run: Run with a recogniser.
        films: Video files, files of features, ids of videos of the run's data set, or LeRobot data
            sets.
        out: Folder of the proposals.
        format_: csv (STEPS.csv of all films), or a format of one file a film.
        corrected: Corrected files of any form that cefito data prepare custom reads, or folders of
            files of one form; give the run first.
    """
    if bool(films) == bool(corrected):
        raise ConfigError("give either films, or the files that were corrected (--corrected).")
    if corrected:
        return _report(out / PROPOSALS, corrected, files.choices)
    from cefito.inference.next_films import next_films
    from cefito.runs.run import open_run
    from cefito.tracks.formats.json_lines import write

    if (out / PROPOSALS).exists():
        raise DataError(f"{out}: holds proposals already. Choose another folder.", setting="out")
    rate = files.choices.frame_rate
    WRITERS[format_].check_rate(rate)
    with log_warnings():
        opened = open_run(run)
        order = next_films(opened, films, task=reading.task, **reading.reading())
    tracks = [film.track.model_copy(update={"tier": _tier(opened)}) for film, _ in order]
    out.mkdir(parents=True, exist_ok=True)
    _write(tracks, out / "STEPS.csv" if format_ == "csv" else out, WRITERS[format_], rate)
    write_text(out / PROPOSALS, write(tracks))
    if format_ != "csv":
        named = [(track.media, track.task) for track in tracks]
        write_text(out / TASKS, csv_text([("video", "task"), *named]))
    rows = [
        (
            film.film,
            film.task,
            film.steps,
            film.why,
            ", ".join(part.words for part in film.parts),
            "; ".join(film.doubtful),
        )
        for _, film in order
    ]
    heads = ("film", "task", "steps", "why", "look first at", "perhaps not as usual")
    table("Films, those to correct first", heads, rows)
    if any(film.doubtful for _, film in order):
        wrong = "a run learns a mistake as right, unless it is labelled as an error"
        talk(f"note: {wrong} ('yes' in a column or a tier 'error')")
    again = f"cefito annotate {word(run)} --out {word(out)} --corrected {word(out)}"
    talk(f"correct the files in {out}, then: {again}")
    return {"out": str(out), "films": [film.model_dump(mode="json") for _, film in order]}


def _tier(run: Run) -> str:
    """Return the tier of the labels that a run has learned from; empty if it is not known."""
    try:
        return str(run.dataset().provenance.get("tier", ""))
    except CefitoError:  # the data set is not here any more
        return ""


def _steps_in(path: Path) -> list[Path]:
    """Return the files of steps of a folder, but for what was proposed; else the path itself."""
    from cefito.tracks.reading import find_steps

    whole = path.is_dir() and not is_robot(path)
    return find_steps(path, but=PROPOSALS) if whole else [path]


def _report(proposals: Path, files: tuple[Path, ...], choices: Choices) -> dict[str, Any]:
    """Say, and return, what correcting took, for the films of which corrected steps are given."""
    from cefito.inference.proposals import compare, find_proposal
    from cefito.tracks.formats.table import TABLES
    from cefito.tracks.reading import read

    expected, proposed = "Expected what cefito annotate wrote.", dict[str, Track]()
    for place, line in json_lines(proposals, expected):
        track = parse_record(Track, line, place, expected, DataError)
        proposed[track.video] = track
    files = tuple(file for path in files for file in _steps_in(path))
    try:
        corrected = read(files, choices)
    except DataError as problem:
        if "task" not in problem.setting.split(", "):
            raise
        first = next(iter(proposed.values()), None)  # of any task: steps alone are compared
        corrected = read(files, choices.model_copy(update={"task": first and first.task}))
    left, pairs = [], []
    table = all(file.suffix.lower() in TABLES for file in files)
    for track in corrected.tracks:
        proposal = find_proposal(track.video, proposed.values(), proposals.parent, table=table)
        if proposal is None:
            left.append(track.video)
            continue
        pairs.append((proposal.steps, track.steps))
    if left:
        talk(f"not proposed, so not counted: {', '.join(left)}")
    if not pairs:
        raise DataError(f"{proposals}: holds none of the corrected films.")
    counts = compare(pairs)
    talk(
        f"{counted(counts.videos, 'film')}, {counted(counts.steps, 'step')}: {counts.kept} kept, "
        f"{counts.moved} moved, {counts.added} added or named anew, {counts.removed} removed"
    )
    talk(
        f"{counts.edits} edits instead of {3 * counts.steps} from nothing (a label and two borders "
        f"a step): {percent(counts.saved)} saved"
    )
    figures = {"edits": counts.edits, "saved": counts.saved, "not_proposed": left}
    return {**counts.model_dump(), **figures}
