"""`cefito data prepare` and `steps`: from annotations to data sets and tables of steps."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cyclopts import App, Parameter

from cefito.cli.console import passing_progress, print_json, table, talk, wrote
from cefito.cli.features import S3D_OF_BENCHMARKS, EncoderOptions, extract_folder
from cefito.cli.options import Flag, Several, pairs
from cefito.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cefito.data.readers.formats import Choices
    from cefito.data.readers.source import Source


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StepOptions:
    """What files of annotated steps leave open.

    Attributes:
        task: Task of all videos, of files that hold no tasks.
        tier: Tier, track or control tag with the steps, of files with several.
        frame_rate: Frames per second, of files that count frames.
        video_table: CSV with the column video and any of task, split, seconds (length of the
            video) and frame_rate, which the files do not hold.
        encoding: Encoding of text, such as cp1252; by default Unicode, or else Windows-1252.
        by_file: Name each video by its file of annotations, not by the film that the file names.
        column: OURS=THEIRS, a table's name of a column, as in step=action; may be repeated.
    """

    task: str | None = None
    tier: str | None = None
    frame_rate: float | None = None
    video_table: Path | None = None
    encoding: str | None = None
    by_file: Flag = False
    column: Several = ()

    @property
    def given(self) -> list[str]:
        """Names of the options that are given."""
        return [
            "--" + one.name.replace("_", "-")
            for one in fields(self)
            if getattr(self, one.name) != one.default
        ]

    @property
    def choices(self) -> Choices:
        """The choices for the readers."""
        from cefito.data.readers.formats import Choices

        columns = pairs("--column", self.column, "OURS=THEIRS, as in --column step=action")
        values = asdict(self)
        del values["column"]
        return Choices(columns=columns, **values)


NO_CHOICES = StepOptions()


def steps(*files: Path, out: Path, options: StepOptions = NO_CHOICES, json: Flag = False) -> None:
    """Convert annotations to a table of steps, which cefito data prepare custom reads.

    The format of each file is recognised by its content: ELAN, ANVIL, CVAT, VIA, Vidat, BORIS,
    Label Studio, LeRobotDataset, WebVTT, SRT, SBV, Datavyu, chapters, or a table, CSV or Parquet,
    with the columns video, task, step, start, end (seconds), and optionally split.

    Args:
        files: One or several files, each with one or several videos.
        out: CSV to write.
        options: What the files leave open.
        json: Print what was read as JSON instead of a table.
    """
    from cefito.data.readers.source import irregularities
    from cefito.data.readers.step_source import convert_steps

    source = convert_steps(files, out, choices=options.choices)
    for note in source.notes:
        talk(f"note: {note}")
    odd = irregularities(source.annotations.videos)
    counts = {
        "tasks": len(source.annotations.taxonomy.tasks),
        "actions": len(source.annotations.taxonomy.actions),
        "videos": len(source.annotations.videos),
        "steps": source.annotations.step_count,
    }
    if json:
        print_json({"out": str(out), "form": source.form, **counts, "noticed": odd})
    else:
        rows = [[f"{entry['reason']}, videos", len(entry["videos"])] for entry in odd]
        table(source.form, ("what", "number"), [*map(list, counts.items()), *rows])
    talk(f"wrote {out}")


app = App(name="prepare", help="Turn annotations and features or videos into a prepared data set.")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Observed:
    """How steps are observed.

    Attributes:
        features: Folder with one file a video, .npy or .npz, [seconds, D], one row a second. With
            --videos, features are written there; by default into a folder beside the data set.
        feature_rate: Rows a second of features that have another number of them, such as 25 or
            1.875 (clips of 16 frames); the row in the middle of each second is taken.
        videos: Folder of videos, whose features are extracted first and whose frames reports show.
        name: Name shown in tables; by default the name of the annotations.
        beyond: Steps that end beyond the features are left out (drop), replaced by the step before,
            as the published loader does (rewrite), or refused (error).
        seconds: Rows of features around a step's start and end that form one observation.
        precision: Stored type of the observations.
        workers: Threads.
        json: Print what was left out as JSON instead of a table.
    """

    features: Path | None = None
    feature_rate: float | None = None
    videos: Path | None = None
    name: str | None = None
    beyond: Literal["drop", "rewrite", "error"] = "drop"
    seconds: int = 3
    precision: Literal["float16", "float32"] = "float16"
    workers: int = 4
    json: Flag = False


_DEFAULTS = Observed()


@app.command
def custom(
    *paths: Path,
    steps: StepOptions = NO_CHOICES,
    observed: Observed = _DEFAULTS,
    encoder: EncoderOptions = S3D_OF_BENCHMARKS,
) -> None:
    """Prepare your own annotated videos: FILE… FOLDER.

    Args:
        paths: Files of annotated steps, as cefito data steps reads them; or a folder with
            taxonomy.json and videos.jsonl, which without features and videos also holds finished
            observations in features.npz, and optionally action_text_features.npy. Last, the new
            folder.
        steps: What the files leave open.
        observed: How steps are observed.
        encoder: Encoder of videos.
    """
    from cefito.data.readers.custom import prepare_custom
    from cefito.data.readers.source import read_common
    from cefito.data.readers.step_source import read_steps

    if len(paths) < 2:
        raise ConfigError("give the files of annotated steps, or their folder, and a new folder.")
    *sources, target = paths
    folder = sources[0] if len(sources) == 1 and sources[0].is_dir() else None
    finished = observed.features is None and observed.videos is None
    if folder is not None and steps.given:
        applies = "applies to files only. Leave it out, or give files."
        raise ConfigError(f"{', '.join(steps.given)} {applies}")
    if finished and len(sources) == 1 and not sources[0].is_file():
        dataset = prepare_custom(sources[0], target, name=observed.name)
        for note in dataset.provenance.get("notes", ()):
            talk(f"note: {note}")
        wrote(target, dataset)
    elif folder is not None:
        _prepare(partial(read_common, folder), target, observed, encoder)
    else:
        _prepare(partial(read_steps, sources, choices=steps.choices), target, observed, encoder)


def _benchmark(
    benchmark: str,
    /,
    *,
    annotations: Path,
    out: Path,
    taxonomy: Path | None = None,
    action_text: Path | None = None,
    observed: Observed = _DEFAULTS,
    encoder: EncoderOptions = S3D_OF_BENCHMARKS,
) -> None:
    """Prepare a benchmark from its annotations and a folder of features or videos.

    Of window files, the features are by default those that they name.

    Args:
        benchmark: Its name.
        annotations: As released (CrossTask's folder, COIN's JSON), window files of the unified
            protocol or their folder, a folder with taxonomy.json and videos.jsonl, or the
            repository of the paper's authors.
        out: New folder.
        taxonomy: A taxonomy for window files, taxonomy.json or as the authors write it; by default
            the one beside them.
        action_text: Text embeddings of the actions: .npy [K, W], row = action id, or as the authors
            write them; by default action_embeddings….npy beside window files.
        observed: How steps are observed.
        encoder: Encoder of videos.
    """
    from cefito.data.readers.benchmarks import read_benchmark

    read = partial(
        read_benchmark, benchmark, annotations, taxonomy=taxonomy, action_text=action_text
    )
    _prepare(read, out, observed, encoder)


for _name, _title in (("crosstask", "CrossTask"), ("coin", "COIN"), ("niv", "NIV")):
    app.command(
        partial(_benchmark, _name),
        name=_name,
        help=f"Prepare {_title} from its annotations and a folder of features or videos.",
    )


@app.command
def captaincook4d(
    source: Path | None = None,
    target: Path | None = None,
    /,
    *,
    annotations: Path | None = None,
    split: Path | None = None,
    out: Path | None = None,
    observed: Observed = _DEFAULTS,
    encoder: EncoderOptions = S3D_OF_BENCHMARKS,
) -> None:
    """Prepare CaptainCook4D from its download, or from annotations and features or videos.

    Without --features and --videos, the downloaded features of steps are the observations.

    Args:
        source: Folder of cefito data download captaincook4d.
        target: New folder.
        annotations: The complete step annotations, JSON, by default the downloaded ones.
        split: Recordings of train, val and test, JSON, by default the downloaded ones.
        out: New folder, if it is not given as the second argument.
        observed: How steps are observed.
        encoder: Encoder of videos.
    """
    from cefito.data.readers.captaincook4d import (
        downloaded_files,
        prepare_captaincook4d,
        read_captaincook4d,
    )

    target, names = target or out, None
    published = source is not None and annotations is None and split is None
    if source is not None:
        files = downloaded_files(source)
        annotations, split = annotations or files["annotations"], split or files["split"]
        names = files["names"]
    if annotations is None or split is None or target is None:
        raise ConfigError(
            "give the folder of the download and a new folder, or --annotations, --split and --out."
        )
    if source is None or not published or observed.features or observed.videos:
        read = partial(read_captaincook4d, annotations, split, names)
        _prepare(read, target, observed, encoder)
        return
    if (replace(observed, name=None), encoder) != (_DEFAULTS, S3D_OF_BENCHMARKS):
        raise ConfigError("of these options, downloaded features of steps take --name only.")
    dataset = prepare_captaincook4d(source, target, name=observed.name)
    for note in dataset.provenance["notes"]:
        talk(f"note: {note}")
    wrote(target, dataset)


def _prepare(
    read: Callable[[], Source], out: Path, observed: Observed, encoder: EncoderOptions
) -> None:
    """Prepare a data set and print what was left out."""
    from cefito.data.readers.assemble import prepare, summary_rows

    videos = observed.videos
    if videos is None and encoder != S3D_OF_BENCHMARKS:
        raise ConfigError("--encoder and its options apply to --videos only. Leave them out.")
    source = read()  # before the slow extraction, so that errors in it show at once
    features = observed.features
    if features is None:
        features = source.features if videos is None else out.parent / f"{out.name}-features"
    if features is None:
        raise ConfigError("give --features, a folder with one file a video, or --videos, a folder.")
    if videos is not None:
        extract_folder(videos, features, encoder)
        videos = videos.parent if videos.is_file() else videos
    settings = asdict(observed)
    show_json = settings.pop("json")
    settings |= {"videos": videos, "features": features}
    dataset = prepare(source, target=out, progress=passing_progress, **settings)
    preparation = dataset.provenance["preparation"]
    for note in preparation["notes"]:
        talk(f"note: {note}")
    if show_json:
        print_json(preparation)
    else:
        numbers = f"{dataset.observation_dim} numbers, {observed.precision}"
        title = f"{dataset.name}: {observed.seconds} s around each start and end, {numbers}"
        table(title, ("what", "videos", "steps", "example"), summary_rows(dataset))
    wrote(out, dataset)
