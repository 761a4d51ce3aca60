"""`cefito quickstart`: the library once, in minutes, on an embedded world or on real videos.

With a folder of films, some of them labelled, it learns from these and verifies the others.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cefito.cli.console import log_warnings, program, progress, table, talk, word
from cefito.cli.evaluate import metric_cells, metric_columns
from cefito.cli.options import NO_CHOICES, StepOptions, given_names
from cefito.cli.values import Flag, said_as_json
from cefito.cli.verify import show_verified
from cefito.errors import ConfigError
from cefito.executors.processes import cores
from cefito.markup import counted, percent


@said_as_json
def quickstart(
    *,
    films: Path | None = None,
    labels: Path | None = None,
    steps: StepOptions = NO_CHOICES,
    pixels: Flag = False,
    real: Flag = False,
    out: Path | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Make a small simulated world, train on it, plan its test videos, write a report.

    With --films: learn from your labelled films, and say what was wrong in the others.

    Args:
        films: Folder of your films. Those that have labels of steps, an export of an annotation
            tool or a table in the folder, are learned from; in all others, steps are recognised and
            verified.
        labels: File of labels, or folder of them, if they are not in the folder of the films.
        pixels: Begin with films, which are drawn: extract features, train the chain on them, plan
            between two pictures.
        real: Download features of 383 real kitchen videos (CaptainCook4D, 5 MB), train the chain
            on them alone, plan the test videos.
        out: Folder for data set, run and report; by default runs/quickstart,
            runs/quickstart-pixels, runs/quickstart-real, or runs/ and the name of the folder.
        seed: Seed of world and training.
    """
    from cefito.files import user_cache
    from cefito.report import report_run, save_report
    from cefito.runs.run import open_run
    from cefito.study.quickstart import REAL, Kind, run_quickstart, write_pictures

    started = time.monotonic()
    if pixels + real + (films is not None) > 1:
        raise ConfigError("give one of --films, --pixels and --real.")
    if films is not None:
        return _of_films(films, labels, steps, out or Path("runs", films.resolve().name), seed)
    if labels is not None or given_names(steps):
        raise ConfigError("labels and how they are read are of --films FOLDER. Give it, too.")
    kind: Kind = "pixels" if pixels else "real" if real else "world"
    out = out or Path("runs", "quickstart" if kind == "world" else f"quickstart-{kind}")
    downloads = user_cache(REAL)
    with log_warnings():
        if real:
            talk(f"files: {downloads} (CaptainCook4D: annotations MIT, features Apache-2.0)")
        made = run_quickstart(out, kind=kind, downloads=downloads, seed=seed, progress=progress)
        report = out / "report.html"
        save_report(report_run(made.run, frames=pixels, progress=progress), report)
    first, columns = made.evaluations[0], metric_columns(made.evaluations)
    rows = [
        [
            f"{evaluation.planner}, true task" if evaluation.oracle_task else evaluation.planner,
            *metric_cells(evaluation, columns),
            f"{1000 * evaluation.seconds_per_query:.1f}",
        ]
        for evaluation in made.evaluations
    ]
    table(
        f"{first.dataset}: {first.windows} test windows, T = {first.horizon}; per cent",
        ("planner", *columns.values(), "ms a query"),
        rows,
    )
    for example in made.examples:
        task = example.true_task_name
        if example.predicted_task_name != task:
            task += f" (taken for: {example.predicted_task_name})"
        title = f"{task} – {example.video}, from step {example.from_step}"
        _show(title, example.plans, example.true_names)
    example = made.examples[0]
    plan = f"--video {example.video} --from-step {example.from_step}"
    if pixels:
        before, after = write_pictures(made)
        plan = f"--initial-image {before} --goal-image {after}"
        with log_warnings():
            answer = open_run(made.run.folder).plan(start=str(before), goal=str(after))
        title = f"{example.true_task_name}, between the pictures {before} and {after}"
        _show(title, answer.plans, example.true_names)
    seconds = time.monotonic() - started
    talk(f"\nDone in {seconds:.0f} s. Everything is in {out}; look at {report}.")
    run, data = word(out / "run"), word(made.run.dataset().folder)
    last = _LAST_REAL.format(data=word(out / "data")) if real else _LAST
    lines = (
        "What next:",
        f"  one plan          cefito plan {run} {plan}",
        f"  a page            cefito serve {run} --dataset {data}",
        "  your own films    cefito quickstart --films FOLDER, some of them labelled",
        "  step by step      cefito data prepare custom STEPS.csv DATA --videos FOLDER"
        f"{' --seconds 1' if pixels else ''}, then cefito train DATA --steps 1-6 --out RUN",
        f"  {last}",
    )
    talk(re.sub(r"(?<!method )cefito(?= )", lambda _: program(), "\n".join(lines)))
    scores = [evaluation.to_dict() for evaluation in made.evaluations]
    examples = [example.to_dict() for example in made.examples]
    return {"out": str(out), "report": str(report), "scores": scores, "examples": examples}


def _of_films(
    folder: Path, labels: Path | None, steps: StepOptions, out: Path, seed: int
) -> dict[str, Any]:
    """Learn from labelled films, verify the others, write the page, and say what was found."""
    import torch

    from cefito.inference.whole_videos import limits_of_films
    from cefito.report.verification import find_films, save_verification
    from cefito.study.films import run_films
    from cefito.verification.findings import LEAST

    started, page = time.monotonic(), out / "FINDINGS.html"
    asked: dict[str, Any] = {"labels": labels, "choices": steps.choices, "seed": seed}
    asked |= {"ask": _answer if sys.stdin.isatty() else None, "progress": progress}
    asked["tell"] = lambda note: talk(f"note: {note}")
    asked["workers"] = max(1, cores() // torch.get_num_threads())
    with log_warnings():
        made = run_films(folder, out, **asked)
        run, verified = made.run, made.verified
        left_out = [note for note in made.notes if note.startswith("left out")]
        films = find_films(run, run, verified)
        save_verification(verified, page, run.own_verifier, films, left_out=left_out)
    if (scores := run.own_recogniser.held_out) is not None:
        talk(f"recogniser: {scores.words}{'' if scores.enough else f'; {scores.remedy}'}")
    said = {limit for video in verified for limit in video.limits}  # below
    for limit in limits_of_films(run):
        if limit not in said:
            talk(f"note: {limit}")
    show_verified(verified, LEAST)
    seconds, labelled = time.monotonic() - started, counted(made.labelled, "labelled film")
    talk(f"\nLearned from {labelled}, {made.new} without labels; {seconds:.0f} s. Look at {page}.")
    name, data = word(run.folder), word(run.folder.parent / "data")
    proposals = word(out / "PROPOSALS")
    recognised = [video for video in verified if video.recognised]
    wrong_first = sorted(recognised, key=lambda video: not video.deviations)
    inputs = [word(video.file or video.video) for video in wrong_first[:1]]
    lines = (
        "What next:",
        *(
            f"  correct what was recognised   cefito annotate {name} {film} --out {proposals}"
            for film in inputs
        ),
        f"  more films                    put them into {folder} and repeat the command",
        f"  live, from a camera           cefito follow {name} --camera 0",
        f"  a page for questions          cefito serve {name} --dataset {data}",
    )
    talk(re.sub(r"cefito(?= )", lambda _: program(), "\n".join(lines)))
    facts = {"labelled": made.labelled, "new": made.new, "notes": made.notes}
    videos = [video.to_dict() for video in verified]
    return {"out": str(out), "run": str(run.folder), "page": str(page), **facts, "videos": videos}


def _answer(question: str) -> str:
    """Ask the person at the terminal."""
    talk(question, urgent=True)
    return " ".join(sys.stdin.readline().split())


def _show(title: str, plans: Sequence[Any], true: Sequence[str]) -> None:
    """Print plans, and which of them is the annotated one."""
    shown = [(percent(plan.probability or 0), list(plan.names)) for plan in plans]
    table(
        f"\n{title}\n  annotated: {' → '.join(true)}",
        ("probability", "plan", ""),
        [(sure, " → ".join(names), "annotated" * (names == list(true))) for sure, names in shown],
    )


_LAST = "the paper's size  cefito train DATA --horizon 3 --method cefito --preset paper --out RUN"
_LAST_REAL = (
    "other planners    cefito compare {data} --planners all --horizons 3 --seeds 1 --out CMP"
)
