"""`cefito recognise`: the steps of whole videos that nobody has cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from cyclopts import Parameter

from cefito.cli.console import log_warnings, passing_progress, print_json, table, talk
from cefito.cli.options import OUTPUT, Json
from cefito.errors import ConfigError
from cefito.markup import counted, percent

if TYPE_CHECKING:
    from cefito.data.annotations import Taxonomy
    from cefito.inference.recordings import Recording
    from cefito.runs.run import Run
    from cefito.timeline.formats import RecognisedVideo, Writer

StepsFormat = Literal["csv", "eaf", "labelstudio", "via", "vtt", "jsonl"]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RecordingOptions:
    """How whole videos are read.

    Attributes:
        dataset: Data set of the inputs, which are then ids of its videos.
        feature_rate: Rows of features a second; by default as in training.
        encoder: Encoder of video files; by default the one of the run's features.
        weights: File of its weights, for s3d.
        device: auto, cpu or cuda, for the encoder.
    """

    dataset: Path | None = None
    feature_rate: float | None = None
    encoder: str | None = None
    weights: Path | None = None
    device: str = "auto"

    def open(self, run: Run, inputs: Iterable[str]) -> Iterator[Recording]:
        """Yield the recordings of inputs, as `open_recordings` does."""
        from cefito.inference.recordings import open_recordings
        from cefito.runtime import pick_device

        settings = {**vars(self), "device": pick_device(self.device, float64=False)}
        return open_recordings(run, inputs, progress=passing_progress, **settings)


AS_RECORDED = RecordingOptions()
"""Nothing changed."""


def recognise(
    run: Path,
    /,
    *inputs: str,
    task: str | None = None,
    order: Path | None = None,
    steps_known: str | None = None,
    min_probability: float = 0.0,
    reading: RecordingOptions = AS_RECORDED,
    out: Annotated[Path | None, Parameter(group=OUTPUT)] = None,
    format_: Annotated[StepsFormat | None, Parameter(name="--format", group=OUTPUT)] = None,
    plot: Annotated[Path | None, Parameter(group=OUTPUT)] = None,
    json: Annotated[Json, Parameter(group=OUTPUT)] = False,
) -> None:
    """Recognise the steps of whole videos, with their times and probabilities.

    Args:
        run: Run with a recogniser, as cefito train DATA --steps 1-6 makes it of a data set with the
            rows of whole videos.
        inputs: Files of features (.npy, .npz, .pt, .h5; [rows, D], of the model that the run was
            trained on), video files, which are encoded so, or ids of videos of the run's data set.
        task: Name or id of the task of all videos; by default it is recognised.
        order: File of orders that the steps keep, as cefito graph --out writes it.
        steps_known: Names or ids of all steps of each video in order, separated by commas, as in
            "boil,pour": only their times are recognised. Needs --task.
        min_probability: Leave out steps below this probability.
        out: File to write, whose ending is its format: .csv (a table, as cefito data prepare custom
            reads it), .eaf (ELAN), .json (Label Studio, predictions), .vtt (WebVTT) or .jsonl. A
            folder, with --format, gets one file a video.
        format_: Format of the files.
        plot: Picture of the steps over time to write, .svg; with the annotated steps, if known.
    """
    from cefito.data.vocabulary import find_task
    from cefito.files import check_target, write_text
    from cefito.runs.run import open_run

    if not inputs:
        raise ConfigError("give files of features, video files, or ids of videos.")
    if not 0 <= min_probability <= 1:
        raise ConfigError(f"--min-probability {min_probability:g}: expected 0 to 1.")
    if steps_known is not None and task is None:
        raise ConfigError("--steps-known needs the task of the steps. Give --task, too.")
    chosen = None if out is None else _format(out, format_, len(inputs))
    if chosen is None and format_ is not None:
        raise ConfigError("--format is of a file. Give --out, too.")
    if plot is not None:
        check_target(plot, (".svg",), "plot")
    with log_warnings():
        opened = open_run(run)
        if order is not None:
            from cefito.timeline.order import read_orders

            own = opened.own_recogniser.given_orders(read_orders(order, opened.taxonomy))
            opened = replace(opened, recogniser=own)
        known = None if task is None else find_task(opened.taxonomy, task)
        plan = None if steps_known is None else _plan(opened.taxonomy, steps_known, known)
        found = [
            each.recognised(opened, task=known, plan=plan, least=min_probability)
            for each in reading.open(opened, inputs)
        ]
    if out is not None and chosen is not None:
        write_recognised(found, out, chosen)
    if plot is not None:
        from cefito.timeline.picture import timeline_picture

        write_text(plot, timeline_picture(found))
        talk(f"wrote {plot}")
    if json:
        print_json([each.to_dict() for each in found])
    elif out is None:
        _show(found)


def _plan(taxonomy: Taxonomy, given: str, task: int | None) -> tuple[int, ...]:
    """Return the ids of steps separated by commas."""
    from cefito.data.vocabulary import find_action

    names = [name for name in given.split(",") if name.strip()]
    return tuple(find_action(taxonomy, name, task=task, setting="steps_known") for name in names)


def _format(out: Path, name: str | None, count: int) -> Writer:
    """Return the format of a file or of a folder of files; refuse what cannot be written."""
    from cefito.files import check_target
    from cefito.timeline.formats import WRITERS

    endings = {writer.ending: writer for writer in WRITERS.values()}
    writer = endings.get(out.suffix) if name is None else WRITERS[name]
    if writer is None:
        expected = f"a file that ends in {', '.join(endings)}, or --format"
        raise ConfigError(f"--out {out}: expected {expected} ({', '.join(get_args(StepsFormat))}).")
    if _is_folder(out):
        return writer
    if writer.single and count > 1:
        problem = f"holds one video, not {count}. Give a folder, and --format"
        raise ConfigError(f"--out {out}: a file of this format {problem}.")
    check_target(out, (writer.ending,), "out")
    return writer


def _is_folder(out: Path) -> bool:
    return out.is_dir() or not out.suffix


def write_recognised(found: Sequence[RecognisedVideo], out: Path, writer: Writer) -> None:
    """Write one file, or one of each video into a folder."""
    from cefito.files import write_text

    files = {out: found}
    if _is_folder(out):
        out.mkdir(parents=True, exist_ok=True)
        names = [each.video.replace("/", "_").replace("\\", "_") for each in found]
        files = {
            out / f"{name}{writer.ending}": [each] for name, each in zip(names, found, strict=True)
        }
        if len(files) < len(found):
            raise ConfigError(f"{out}: two videos have one name of a file. Write one file a call.")
    for path, videos in files.items():
        write_text(path, writer.write(videos))
    steps = sum(len(each.steps) for each in found)
    talk(f"wrote {out}: {counted(steps, 'step')} of {counted(len(found), 'video')}")


def _show(found: Sequence[RecognisedVideo]) -> None:
    """Print the steps of videos as a table."""
    for each in found:
        talk(f"{each.video}: task {each.task} ({percent(each.task_probability)})")
    rows = [
        [each.video, step.name, round(step.start, 1), round(step.end, 1), percent(step.probability)]
        for each in found
        for step in each.steps
    ]
    table("", ("video", "step", "start", "end", "probability"), rows)
