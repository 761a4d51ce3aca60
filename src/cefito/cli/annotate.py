"""`cefito annotate`: recognised steps to correct instead of labelling from nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cefito.cli.console import log_warnings, table, talk
from cefito.cli.recognise import AS_RECORDED, RecordingOptions, write_recognised
from cefito.errors import ConfigError, DataError
from cefito.markup import counted, percent

if TYPE_CHECKING:
    from cefito.timeline.formats import RecognisedVideo

PROPOSALS = "proposals.jsonl"
"""What was proposed, in the folder of the proposals."""


def annotate(
    run: Path,
    /,
    *films: str,
    out: Path,
    format_: Literal["csv", "eaf", "labelstudio", "via"] = "csv",
    corrected: tuple[Path, ...] = (),
    task: str | None = None,
    reading: RecordingOptions = AS_RECORDED,
) -> None:
    """Write the recognised steps of films for correction in an annotation tool.

    The films are listed with those first whose correction helps most. Afterwards, --corrected takes
    the corrected files and says what the proposals saved; cefito data prepare custom reads them.

    Args:
        run: Run with a recogniser.
        films: Video files, files of features, or ids of videos of the run's data set.
        out: Folder of the proposals.
        format_: csv (STEPS.csv of all films), or one file a film: eaf (ELAN), labelstudio
            (predictions) or via.
        corrected: Corrected file of any form that cefito data prepare custom reads; may be
            repeated.
        task: Name or id of the task of all films; by default it is recognised.
    """
    if bool(films) == bool(corrected):
        raise ConfigError("give either films, or the files that were corrected (--corrected).")
    if corrected:
        _report(out, corrected)
        return
    from cefito.data.vocabulary import find_task
    from cefito.files import write_text
    from cefito.inference.proposals import doubt
    from cefito.runs.run import open_run
    from cefito.timeline.formats import WRITERS, json_lines

    if (out / PROPOSALS).exists():
        raise DataError(f"{out}: holds proposals already. Choose another folder.", setting="out")
    with log_warnings():
        opened = open_run(run)
        known = None if task is None else find_task(opened.taxonomy, task)
        found = [each.recognised(opened, task=known) for each in reading.open(opened, films)]
    found.sort(key=doubt, reverse=True)
    out.mkdir(parents=True, exist_ok=True)
    write_recognised(found, out / "STEPS.csv" if format_ == "csv" else out, WRITERS[format_])
    write_text(out / PROPOSALS, json_lines(found))
    table(
        "Films, those to correct first",
        ("film", "task", "steps", "unsure"),
        [[one.video, one.task, len(one.steps), percent(doubt(one))] for one in found],
    )
    talk(f"correct the files in {out}, then: cefito annotate {run} --out {out} --corrected FILE")


def _report(folder: Path, files: tuple[Path, ...]) -> None:
    """Say what correcting took, for the films of which corrected steps are given."""
    from cefito.data.readers.formats import Choices
    from cefito.data.readers.step_source import read_steps
    from cefito.files import read_text
    from cefito.inference.proposals import compare
    from cefito.settings import parse_record
    from cefito.timeline.formats import RecognisedVideo, TimedAction

    path, expected = folder / PROPOSALS, "Expected what cefito annotate wrote."
    proposed = {}
    for number, line in enumerate(read_text(path, expected).splitlines(), 1):
        place = f"{path}, line {number}"
        one: RecognisedVideo = parse_record(RecognisedVideo, line, place, expected, DataError)
        proposed[one.video] = one
    task = next(iter({one.task for one in proposed.values()}), None)
    try:
        found = read_steps(files)
    except DataError as problem:
        if problem.setting != "task":
            raise
        found = read_steps(files, choices=Choices(task=task))  # of a form that holds none
    names, pairs, left = found.annotations.taxonomy.actions, [], []
    for video in found.annotations.videos:
        steps = [
            TimedAction(name=names[step.action].name, start=step.start, end=step.end)
            for step in video.steps
        ]
        if video.video_id not in proposed:
            left.append(video.video_id)
            continue
        one = proposed[video.video_id]
        own = [TimedAction(name=s.name, start=s.start, end=s.end) for s in one.steps]
        pairs.append((own, steps))
    if left:
        talk(f"not proposed, so not counted: {', '.join(left)}")
    if not pairs:
        raise DataError(f"{path}: holds none of the corrected films.")
    counts = compare(pairs)
    talk(
        f"{counted(counts.videos, 'film')}, {counted(counts.steps, 'step')}: {counts.kept} kept, "
        f"{counts.moved} moved, {counts.added} added or named anew, {counts.removed} removed"
    )
    talk(
        f"{counts.edits} edits instead of {3 * counts.steps} from nothing (a label and two borders "
        f"a step): {percent(counts.saved)} saved"
    )
