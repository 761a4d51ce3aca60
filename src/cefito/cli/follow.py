"""`cefito follow`: what goes on, and what comes next, row by row or picture by picture."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from cefito.cli.console import log_warnings, passing_progress, print_json, talk
from cefito.cli.options import OUTPUT, Flag
from cefito.errors import ConfigError, DataError
from cefito.markup import percent
from cefito.times import as_seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cefito.inference.following import Followed
    from cefito.inference.session import Session
    from cefito.parts.opened import OpenedRun
    from cefito.verification.findings import Deviation

_SHOWN = 3  # next steps
_ENDED = 0.5  # probability of the end from which on it is told
_LATEST = 3600.0  # seconds; a first row that is later has a time of day
_FARTHEST = 10.0  # seconds between the first two rows; times further apart are milliseconds


def follow(
    run: Path,
    stdin: Annotated[str | None, Parameter(show=False, allow_leading_hyphen=True)] = None,
    /,
    *,
    features: Path | None = None,
    feature_rate: float | None = None,
    video: Path | None = None,
    camera: str | None = None,
    task: str | None = None,
    plan: Flag = False,
    false_alarms: float | None = None,
    lag: float = 0.0,
    encoder: str | None = None,
    weights: Path | None = None,
    json: Annotated[Flag, Parameter(group=OUTPUT)] = False,
) -> int:
    """Follow a procedure: the present step, steps done and next steps, whenever they change.

    Args:
        run: Run of several lengths with a recogniser, as cefito train DATA --steps 1-6 makes it of
            a data set with the rows of whole videos.
        stdin: "-" to read rows from the standard input.
        features: File of features [n, D] (.npy, .npz, .pt, .h5); of a run of sensors, a table of
            their values, or a folder of tables.
        feature_rate: Rows a second of features, or of bare lines; by default as in training.
        video: Video file, encoded as the run's features were.
        camera: Camera, by its number or device, one picture a second.
        task: Name or id of the task; by default it is inferred.
        plan: Show the likeliest plan of the steps that remain, too.
        false_alarms: Tell what was wrong from the probability on that promises at most so many
            false alarms an hour where steps are given; by default from 60 %.
        lag: Tell which step went on so many seconds ago, which the rows since then make surer.
        encoder: Encoder of pictures; by default the one of the run's features.
        weights: File of its weights, for s3d.
        json: Print one JSON object a change, for programs.
    """
    from cefito.inference.following import FINDING
    from cefito.inference.recordings import open_recordings, row_rate
    from cefito.inference.whole_videos import limits_of_films
    from cefito.runs.run import follow as open_session

    sources = {"--features": features, "--video": video, "--camera": camera, "-": stdin}
    chosen = [name for name, value in sources.items() if value is not None]
    if len(chosen) != 1 or stdin not in (None, "-"):
        raise ConfigError("give one of --features FILE, --video FILE, --camera NUMBER, or -.")
    with log_warnings():
        session, least = open_session(run, task=task), FINDING
        opened = session.run
        if false_alarms is not None:
            least = opened.own_verifier.promise(false_alarms, online=True).least
        for limit in limits_of_films(opened):
            talk(f"note: {limit}")
        rows: Iterator[tuple[float, Any]]
        if stdin is not None:
            rows = _lines(row_rate(opened, feature_rate), opened.own_recogniser.width)
        elif camera is not None:
            rows = _camera_rows(opened, camera, encoder, weights)
        else:
            (whole,) = open_recordings(
                opened,
                [str(features or video)],
                rate=feature_rate,
                encoder=encoder,
                weights=weights,
                progress=passing_progress,
            )
            rows = ((place / whole.rate, row) for place, row in enumerate(whole.rows))
        before: tuple[Any, ...] | None = None
        told = set[tuple[str, int | None]]()  # findings
        for at, row in rows:
            session.observe(row, at=at)
            followed = session.followed(_SHOWN, least=least, lag=lag)
            going = followed.now.action if followed.now else followed.ended >= _ENDED
            state = (going, followed.now is None, [step.action for step in followed.done])
            news = [
                finding
                for finding in followed.findings
                if (finding.kind, finding.action) not in told
            ]
            told |= {(finding.kind, finding.action) for finding in news}
            if state != before or news:
                _show(session, followed, news, plan=plan, as_json=json)
            before = state
    if before is None:
        raise DataError("no row was seen: the source is empty or the camera gave no picture.")
    return 0


def _show(
    session: Session, followed: Followed, news: Sequence[Deviation], *, plan: bool, as_json: bool
) -> None:
    """Print a change; lines tell each finding once."""
    over = followed.now is None and followed.ended >= _ENDED
    steps = session.plans_by_next(1)[0] if plan and not over else None
    names = [] if steps is None else session.run.taxonomy.names(list(steps.actions))
    if as_json:
        value = followed.model_dump(mode="json")
        if steps is not None:
            value["plan"] = {"actions": names, "probability": steps.probability}
        print_json(value, indent=None)
        return
    now = f"finished ({percent(followed.ended)})" if over else "pause"
    if followed.now is not None:
        now = f"{followed.now.name} ({percent(followed.now.probability)})"
    ahead = ", ".join(f"{step.name} {percent(step.probability)}" for step in followed.next)
    coming = "" if over else f"; next: {ahead}"
    talk(f"{followed.seconds:7.1f} s  now: {now}; done: {len(followed.done)}{coming}")
    for finding in news:
        talk(
            f"           {finding.name}: {finding.words} "
            f"({percent(finding.probability)}): {finding.evidence}"
        )
    if steps is not None:
        talk("           remaining: " + " → ".join(names))


def _lines(rate: float, width: int) -> Iterator[tuple[float, Any]]:
    """Yield times and rows [D] of the standard input; bare rows come at a rate, the first at 0.

    Times of day, such as Unix times, count from the first row.
    """
    import numpy as np

    lines, rows, first, before = 0, 0, 0.0, 0.0
    try:
        for line in sys.stdin:
            if line.strip():
                value = json.loads(line)
                bare = {"at": rows / rate, "row": value}
                entry = value if isinstance(value, dict) else bare
                at, row = as_seconds(entry["at"]), entry["row"]
                row = row if row is None else np.asarray(row, dtype=np.float32)
                if not (math.isfinite(at) and (row is None or row.shape == (width,))):
                    raise ValueError("not a time, or not numbers of this width")
                if not rows and at > _LATEST:
                    first = at
                if rows == 1 and at - first - before > _FARTHEST:
                    problem = f"is {at - first - before:g} s after the first row"
                    raise DataError(
                        f"line {lines + 1} of the input: {problem}. Give times in seconds."
                    )
                before, rows = at - first, rows + 1
                yield before, row
            lines += 1
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as problem:
        row = f"[{width} numbers]"
        expected = f'{row} or {{"at": seconds, "row": {row} or null}}'
        raise DataError(f"line {lines + 1} of the input: expected {expected}.") from problem


def _camera_rows(
    run: OpenedRun, camera: str, encoder: str | None, weights: Path | None
) -> Iterator[tuple[float, NDArray[Any]]]:
    """Yield the time and the vector of each second of a camera."""
    from cefito.encoders.frames import camera_clips
    from cefito.inference.observer import ObservationRecipe

    device = f"/dev/video{camera}" if camera.isdecimal() else camera
    encode = ObservationRecipe.of(run).open(encoder, weights=weights).encoder
    for at, clip in camera_clips(device, encode.sampling):
        yield at, encode.encode(clip[None].float() / 255)[0]
