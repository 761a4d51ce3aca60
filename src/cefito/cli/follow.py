"""`cefito follow`: what goes on, and what comes next, row by row or picture by picture."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from cefito.cli.console import log_warnings, passing_progress, print_json, talk
from cefito.cli.options import OUTPUT, Flag
from cefito.errors import ConfigError, DataError
from cefito.markup import percent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cefito.inference.following import Followed
    from cefito.inference.session import Session
    from cefito.runs.run import Run
    from cefito.timeline.verify import Deviation

_SHOWN = 3  # next steps


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
    encoder: str | None = None,
    weights: Path | None = None,
    json: Annotated[Flag, Parameter(group=OUTPUT)] = False,
) -> int:
    """Follow a procedure: the present step, steps done and next steps, whenever they change.

    Args:
        run: Run of several lengths with a recogniser, as cefito train DATA --steps 1-6 makes it of
            a data set with the rows of whole videos.
        stdin: "-" to read rows from the standard input.
        features: File of features [n, D] (.npy, .npz, .pt, .h5).
        feature_rate: Their rows a second; by default as in training.
        video: Video file, encoded as the run's features were.
        camera: Camera, by its number or device, one picture a second.
        task: Name or id of the task; by default it is inferred.
        plan: Show the likeliest plan of the steps that remain, too.
        false_alarms: Tell what was wrong from the probability on that gives so many false alarms an
            hour; by default from 80 %.
        encoder: Encoder of pictures; by default the one of the run's features.
        weights: File of its weights, for s3d.
        json: Print one JSON object a change, for programs.
    """
    from cefito.inference.following import FINDING
    from cefito.inference.recordings import open_recordings
    from cefito.inference.session import Session
    from cefito.runs.run import open_run

    given = {"--features": features, "--video": video, "--camera": camera, "-": stdin}
    chosen = [name for name, value in given.items() if value is not None]
    if len(chosen) != 1 or stdin not in (None, "-"):
        raise ConfigError("give one of --features FILE, --video FILE, --camera NUMBER, or -.")
    with log_warnings():
        opened = open_run(run)
        _ = opened.own_recogniser  # refuses a run without one before the first row comes
        session, least = Session(opened, task=task), FINDING
        if false_alarms is not None:
            least = opened.own_verifier.threshold(false_alarms)
        rows: Iterator[tuple[float, Any]]
        if stdin is not None:
            rows = _lines()
        elif camera is not None:
            rows = _camera_rows(opened, camera, encoder, weights)
        else:
            (whole,) = open_recordings(
                opened,
                [str(features or video)],
                feature_rate=feature_rate,
                encoder=encoder,
                weights=weights,
                progress=passing_progress,
            )
            rows = ((place / whole.rate, row) for place, row in enumerate(whole.rows))
        before: tuple[Any, ...] | None = None
        told = set[tuple[str, int]]()  # findings
        for at, row in rows:
            session.observe(row, at=at)
            found = session.followed(_SHOWN, least=least)
            state = (found.now and found.now.action, [one.action for one in found.done])
            news = [one for one in found.findings if (one.kind, one.action) not in told]
            told |= {(one.kind, one.action) for one in news}
            if state != before or news:
                _show(session, found, news, plan=plan, as_json=json)
            before = state
    if before is None:
        raise DataError("no row was seen: the source is empty or the camera gave no picture.")
    return 0


def _show(
    session: Session, found: Followed, news: Sequence[Deviation], *, plan: bool, as_json: bool
) -> None:
    """Print a change; lines tell each finding once."""
    steps = session.plans(1)[0] if plan else None
    names = [] if steps is None else session.run.taxonomy.names(list(steps.actions))
    if as_json:
        value = found.model_dump(mode="json")
        if steps is not None:
            value["plan"] = {"actions": names, "probability": steps.probability}
        print_json(value, indent=None)
        return
    now = "pause" if found.now is None else f"{found.now.name} ({percent(found.now.probability)})"
    ahead = ", ".join(f"{one.name} {percent(one.probability)}" for one in found.next)
    talk(f"{found.seconds:7.1f} s  now: {now}; done: {len(found.done)}; next: {ahead}")
    for one in news:
        talk(f"           {one.name}: {one.words} ({percent(one.probability)}): {one.evidence}")
    if steps is not None:
        talk("           remaining: " + " → ".join(names))


def _lines() -> Iterator[tuple[float, Any]]:
    """Yield times and rows of the standard input; the time of a bare row is its number."""
    for number, line in enumerate(sys.stdin):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            given = value if isinstance(value, dict) else {"at": number, "row": value}
            yield float(given["at"]), given["row"]
        except (ValueError, KeyError, TypeError) as problem:
            expected = '[numbers] or {"at": seconds, "row": [numbers] or null}'
            raise DataError(f"line {number + 1} of the input: expected {expected}.") from problem


def _camera_rows(
    run: Run, camera: str, encoder: str | None, weights: Path | None
) -> Iterator[tuple[float, NDArray[Any]]]:
    """Yield the time and the vector of each second of a camera."""
    from cefito.encoders.frames import camera_clips
    from cefito.inference.observer import ObservationRecipe

    device = f"/dev/video{camera}" if camera.isdecimal() else camera
    encode = ObservationRecipe.of(run).open(encoder, weights=weights).encoder
    for at, clip in camera_clips(device, encode.sampling):
        yield at, encode.encode(clip[None].float() / 255)[0]
