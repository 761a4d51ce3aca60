"""`cefito verify` and `cefito graph`: what was wrong in videos, and the order of a task's steps."""

from __future__ import annotations

import json as json_text
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from cefito.cli.console import check_any, left_out, log_warnings, print_json, table, talk
from cefito.cli.options import (
    AS_RECORDED,
    AS_WRITTEN,
    OUTPUT,
    FileOptions,
    RecordingOptions,
    Several,
    SeveralPaths,
)
from cefito.cli.values import Flag, Json
from cefito.data.vocabulary import find_task
from cefito.errors import CefitoError, ConfigError
from cefito.files import append_lines, check_target, write_text
from cefito.inference.constraints import parse_constraints
from cefito.markup import counted, film_percent, percent
from cefito.tracks.reading import choices_of_each
from cefito.verification.order_files import graph_text

if TYPE_CHECKING:
    from cefito.inference.verification import VerifiedVideo
    from cefito.verification.verifier import Verifier

_SELDOM = 0.2  # probability below which a step that was not seen is only named
FOUND = 3
"""Exit code of `--check` if something was wrong."""
UNSURE = 4
"""Exit code of `--check` if nothing was found, but films leave open whether all was right."""


def verify(
    run: Path,
    /,
    *inputs: str,
    order: Path | None = None,
    min_probability: float = 0.5,
    false_alarms: float | None = None,
    per_steps: int | None = None,
    online: Flag = False,
    reading: RecordingOptions = AS_RECORDED,
    files: FileOptions = AS_WRITTEN,
    films: Path | None = None,
    out: Annotated[SeveralPaths, Parameter(group=OUTPUT)] = (),
    bom: Annotated[Flag, Parameter(group=OUTPUT)] = False,
    log: Annotated[Path | None, Parameter(group=OUTPUT)] = None,
    check: Annotated[Flag, Parameter(group=OUTPUT)] = False,
    json: Annotated[Json, Parameter(group=OUTPUT)] = False,
) -> int:
    """Say what was skipped, out of order, added, repeated or done wrongly, and how to go on.

    Args:
        run: Run of several lengths, as cefito train DATA --steps 1-6 makes it. Probabilities are
            learned if its data set names errors; else they are smoothed frequencies. For files of
            steps also a folder of cefito data procedure, or a file of steps of right or labelled
            videos, of which those of the split train are learned from.
        inputs: Files of annotated steps, as cefito data steps reads them, which are taken as they
            are, with the task that they hold; or files of features, video files, or ids of videos,
            whose steps are recognised first. Of the file that is learned from, the split test.
        order: File of orders to keep instead of those learned, as cefito graph --out writes it.
        min_probability: Leave out what is less probable.
        false_alarms: Choose the least probability that promises at most so many false alarms an
            hour of a right video, instead of --min-probability.
        per_steps: Promise as many in so many steps instead, as in --false-alarms 2 --per-steps 100.
        online: Judge each step from those before it alone; steps are missing if later ones show it.
        films: Folder of video files with the names of the videos, which the page links to and shows
            pictures of; by default that of the run's data set.
        out: Page to write, .html, workbook, .xlsx, or table of findings, .csv; may be repeated.
        bom: Begin a CSV with a byte order mark, by which Excel knows its encoding.
        log: File to append a line of JSON for each finding to, .jsonl.
        check: Exit with the code 3 if something was wrong, with 4 if nothing was found, but films
            leave open whether all was right: a step is not sure, or such mistakes went unseen in
            training. A file that cannot be read is left out and named; the code is then 2.
    """
    from cefito.inference.verification import open_verifier, promised, verified_videos
    from cefito.report.findings_tables import new_workbook

    if not inputs:
        raise ConfigError("give files of steps or features, video files, or ids of videos.")
    if not 0 <= min_probability <= 1 or (false_alarms is not None and false_alarms < 0):
        raise ConfigError("--min-probability is 0 to 1, and --false-alarms at least 0.")
    for path in out:
        check_target(path, (".html", ".xlsx", ".csv"), "out")
        if path.suffix == ".xlsx":
            new_workbook(path)
    if log is not None:
        check_target(log, (".jsonl",), "log")
    with log_warnings():
        choices = choices_of_each([run, *inputs], files.choices)[run]
        asked: dict[str, Any] = {"task": reading.task, "online": online}
        opened, verifier = open_verifier(run, order, choices=choices, **asked)
        promise = promised(verifier, false_alarms, per_steps=per_steps, online=online)
        problems = list[CefitoError]()
        asked |= {"least": min_probability, "promise": promise, "failed": problems.append}
        asked |= {"choices": files.choices, **reading.reading()}
        verified = verified_videos(opened or run, verifier, inputs, **asked)
        check_any(problems, verified)
        if log is not None:
            _log(verified, log)
        if out:
            sources = run, opened, verified, films, choices
            _write(verified, out, verifier, bom, sources, [*map(str, problems)])
    if json:
        print_json([result.to_dict() for result in verified])
    else:
        show_verified(verified, min_probability)
    if problems:
        return left_out(problems)
    if not check:
        return 0
    if any(result.deviations for result in verified):
        return FOUND
    return UNSURE * any(result.left_open for result in verified)


def _write(
    verified: Sequence[VerifiedVideo],
    paths: Sequence[Path],
    verifier: Verifier,
    bom: bool,
    sources: tuple[Any, ...],
    left_out: Sequence[str],
) -> None:
    """Write pages and tables; the page's films are found by the sources."""
    from cefito.report.findings_tables import save_table
    from cefito.report.verification import find_films, save_verification

    for path in paths:
        if path.suffix == ".html":
            found = find_films(*sources)
            save_verification(verified, path, verifier, found, left_out=left_out)
        else:
            save_table(verified, path, verifier, bom=bom, left_out=left_out)
        talk(f"wrote {path}")


def _log(verified: Sequence[VerifiedVideo], path: Path) -> None:
    """Append findings to a file, for audits."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    lines = []
    for video in verified:
        for finding in video.deviations:
            facts = {"logged": now, "video": video.video, "task": video.task}
            value = facts | finding.model_dump(mode="json", exclude_none=True)
            lines.append(json_text.dumps(value, ensure_ascii=False))
    append_lines(path, lines)


def show_verified(verified: Sequence[VerifiedVideo], least: float) -> None:
    """Print what was wrong in videos; what is less probable than `least` was left out."""
    from cefito.inference.verification import CAUTION
    from cefito.inference.whole_videos import other_task

    for video in verified:
        _show_video(video, least)
    videos = defaultdict[str, list[str]](list)  # by what is said of them
    for video in verified:
        for said in (
            *(() if video.promise is None else (video.promise.words,)),
            *(
                f"note: {limit}"
                for limit in video.limits
                if limit != other_task(video.task, video.task_probability)
            ),
        ):
            videos[said].append(video.video)
    for said, names in videos.items():
        some = f"{', '.join(names)}: " * (len(names) < len(verified))
        talk(f"{some}{said}")
    if any(video.recognised and not video.deviations for video in verified):
        talk(f"note: {CAUTION}")
    rows = [
        [
            video.video,
            "" if deviation.start is None else round(deviation.start, 1),
            deviation.name,
            deviation.words,
            (film_percent if video.recognised else percent)(deviation.probability),
            deviation.evidence,
        ]
        for video in verified
        for deviation in video.deviations
    ]
    if rows:
        table("", ("video", "second", "step", "finding", "probability", "evidence"), rows)


def _show_video(video: VerifiedVideo, least: float) -> None:
    """Print the steps of a video, what is open and what is left to do."""
    from cefito.inference.whole_videos import other_task

    other = other_task(video.task, video.task_probability) if video.limits else ""
    how = "recognised" if video.recognised else "given"
    talk(f"{video.video}: {video.task}, {counted(len(video.steps), 'step')} {how}")
    if other:
        talk(f"note: {other}")
    if video.recognised and video.steps:
        steps = (f"{s.name} ({film_percent(s.certainty)})" for s in video.steps)
        talk(f"seen, and how sure that is: {', '.join(steps)}")
    for note in video.notes:
        talk(note)
    if not video.deviations:
        shown = least if video.promise is None else video.promise.least
        talk(f"no mistake was found with a probability of {percent(shown)} or more")
    if video.unsure:
        talk(f"the film leaves open: {'; '.join(step.text for step in video.unsure)}")
    if video.unseen:
        words = ", ".join(video.passed_over(_SELDOM))
        talk(f"not seen, but not found to be missing: {words}")
    if video.repair:
        talk(f"to do{video.condition}: {', '.join(video.repair)}")


def graph(
    run: Path,
    /,
    *,
    task: str | None = None,
    order: Path | None = None,
    add: Several = (),
    remove: Several = (),
    files: FileOptions = AS_WRITTEN,
    out: Annotated[Path | None, Parameter(group=OUTPUT)] = None,
) -> None:
    """Show the order of a task's steps as a graph, learned from videos without errors, or edit it.

    Args:
        run: Run of several lengths, as cefito train DATA --steps 1-6 makes it, or a folder of
            cefito data procedure, or a file of steps of right videos.
        task: Name or id of the task; all by default.
        order: File of orders to start from instead, .json.
        add: Order to add, as in "boil,pour"; may be repeated. Needs --task.
        remove: Edge to remove; may be repeated. Needs --task.
        out: File to write: .json, which --order reads, .dot (Graphviz) or .svg (a picture). By
            default JSON is printed.
    """
    from cefito.inference.verification import open_verifier
    from cefito.inference.verifiers import edited_orders
    from cefito.report.picture import graph_picture

    form = "json"
    if out is not None:
        check_target(out, (".json", ".dot", ".svg"), "out")
        form = out.suffix[1:]
    if (add or remove) and task is None:
        raise ConfigError("--add and --remove are of one task. Give --task, too.")
    with log_warnings():
        _, verifier = open_verifier(run, order, task=task, choices=files.choices)
        taxonomy = verifier.taxonomy
        chosen = [one.id for one in taxonomy.tasks]
        if task is not None:
            chosen = [find_task(taxonomy, task)]
            pairs = {
                name: parse_constraints(taxonomy, {"before": texts}, task=chosen[0]).before
                for name, texts in (("add", add), ("remove", remove))
            }
            verifier = edited_orders(verifier, chosen[0], **pairs)
    orders = {one: verifier.orders[one] for one in chosen}
    if form == "svg":
        text = graph_picture(orders, taxonomy)
    else:
        edges = {task_id: order.edges for task_id, order in orders.items()}
        optional = {task_id: order.optional for task_id, order in orders.items()}
        text = graph_text(edges, taxonomy, "dot" if form == "dot" else "json", optional)
    if out is None:
        print_json(json_text.loads(text))
    else:
        write_text(out, text)
        talk(f"wrote {out}")
