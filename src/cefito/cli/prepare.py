"""`cefito data prepare` and `steps`: from annotations to data sets and tables of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from cyclopts import App

from cefito.cli.console import passing_progress, print_json, table, talk, wrote
from cefito.cli.features import DEFAULT_ENCODER, EncoderOptions, extract_folder
from cefito.cli.options import (
    NO_CHOICES,
    StepOptions,
    field_options,
    given_names,
    option_name,
    with_options,
)
from cefito.cli.values import Flag, said_as_json
from cefito.data.prepared import PreparedDataset
from cefito.data.readers.assemble import ObservationOptions, prepare, summary_rows
from cefito.data.robots import INFO, is_robot, open_robot
from cefito.data.source import Source, read_common
from cefito.errors import ConfigError, DataError
from cefito.files import check_target, write_text
from cefito.locks import check_new
from cefito.markup import counted, listed
from cefito.tracks.formats import Written

_OBSERVING = [  # whether rows are kept has another default for your own data
    (name, kind, None if name in ("timeline", "transposed") else default)
    for name, kind, default in field_options(
        ObservationOptions.model_fields, kinds={bool: bool | None}
    )
]


@with_options(_OBSERVING)
@dataclass(frozen=True, kw_only=True)
class Observed:
    """Options of a preparation: `ObservationOptions`, files, and what is printed.

    Attributes:
        features: Folder with one file a video (.npy, .npz, .pt, .h5), [seconds, D], one row a
            second. With --videos, features are written there; by default into a folder beside the
            data set.
        videos: Folder of videos, whose features are extracted first and whose frames reports show.
        name: Name shown in tables; by default the name of the annotations.
        json: Print what was left out as JSON instead of a table.
    """

    features: Path | None = None
    videos: Path | None = None
    name: str | None = None
    json: Flag = False

    @property
    def options(self) -> dict[str, Any]:
        """The settings of `ObservationOptions` that are given or have a default."""
        values = {name: getattr(self, name) for name in ObservationOptions.model_fields}
        return {name: value for name, value in values.items() if value is not None}


def steps(
    *files: Path,
    out: Path,
    format_: Written | None = None,
    options: StepOptions = NO_CHOICES,
    json: Flag = False,
) -> None:
    """Convert annotations to a table of steps or another format; all of them are read again.

    Files are exports of annotation tools, captions, chapters, or tables with the columns video,
    task, step, start, end (seconds), and optionally split and group.

    Args:
        files: One or several files, each with one or several videos.
        out: File to write, whose ending is its format: .csv (a table), or as of cefito recognise.
            A folder, with --format, gets one file a video.
        format_: Format of the files.
        json: Print what was read as JSON instead of a table.
    """
    from cefito.data.readers.step_source import convert_steps

    source = convert_steps(files, out, choices=options.choices, form=format_)
    _say(source.notes)
    counts = {
        "tasks": len(source.annotations.taxonomy.tasks),
        "actions": len(source.annotations.taxonomy.actions),
        "videos": len(source.annotations.videos),
        "steps": source.annotations.step_count,
    }
    if json:
        print_json({"out": str(out), "form": source.form, **counts})
    else:
        table(source.form, ("what", "number"), list(map(list, counts.items())))
    talk(f"wrote {out}")


@said_as_json
def subtasks(
    *files: Path, out: Path | None = None, in_place: Flag = False, options: StepOptions = NO_CHOICES
) -> dict[str, Any]:
    """Write steps as subtasks of a LeRobot data set, into a copy of it: FILE… FOLDER.

    Args:
        files: Files of steps, as cefito data steps reads them, of videos that are called as the
            episodes, such as episode_000003. Last, the data set.
        out: New folder of the copy.
        in_place: Write into the data set itself instead.
    """
    from cefito.tracks.reading import read
    from cefito.tracks.subtasks import write_subtasks

    if len(files) < 2:
        raise ConfigError("give files of steps, and the folder of a LeRobot data set.")
    if (out is None) != in_place:
        raise ConfigError("give either --out, a new folder for a copy, or --in-place.")
    *sources, robot = files
    try:
        read_tracks = read(sources, options.choices)
    except DataError as problem:
        if "task" not in problem.setting:  # which the episodes have
            raise
        read_tracks = read(sources, options.choices.model_copy(update={"task": "any"}))
    written = write_subtasks(read_tracks.tracks, robot, out)
    episodes, shown = counted(written.episodes, "episode"), listed(written.names, most=12)
    said = f"{counted(written.frames, 'frame')} of {episodes} have a step; {shown}"
    talk(f"wrote {out or robot}: {said}")
    if written.unseen:
        steps = f"shorter than a frame, so left out: {listed(written.unseen, most=12)}"
        talk(f"note: {steps}")
    return {"out": str(out or robot), **asdict(written)}


app = App(name="prepare", help="Turn annotations and features or videos into a prepared data set.")


_DEFAULTS = Observed()


@app.command
def custom(
    *paths: Path,
    steps: StepOptions = NO_CHOICES,
    observed: Observed = _DEFAULTS,
    sensors: Path | None = None,
    channels: str | None = None,
    like: Path | None = None,
    encoder: EncoderOptions = DEFAULT_ENCODER,
) -> None:
    """Prepare your own annotated videos: FILE… FOLDER.

    Args:
        paths: Files of annotated steps, as cefito data steps reads them; or a folder with
            taxonomy.json and videos.jsonl, which without features and videos also holds finished
            observations in features.npz, and optionally action_text_features.npy; or a folder with
            groundTruth, features and splits, labels of frames as MS-TCN uses them, of which
            --frame-rate is the rate of labels and features; or a LeRobot data set, of which films
            of a --camera are encoded. Last, the new folder.
        sensors: Folder with a table of sensor values a video, VIDEO.csv with a column time
            (seconds, or dates and times), or a folder VIDEO of such tables, or a LeRobot data set;
            rows are made of them, one a second, or --feature-rate.
        channels: Columns of sensors to keep, separated by commas; by default all.
        like: Data set whose channels, rate and scaling of sensors are taken.
    """
    from cefito.data.readers.benchmarks import naming_benchmark

    if len(paths) < 2:
        raise ConfigError("give the files of annotated steps, or their folder, and a new folder.")
    *sources, target = paths
    with naming_benchmark(sources):
        sensing: dict[str, Any] = {"sensors": sensors, "channels": channels, "like": like}
        _prepare_own(sources, target, steps, observed, sensing, encoder)


def _prepare_own(
    sources: list[Path],
    target: Path,
    steps: StepOptions,
    observed: Observed,
    sensing: dict[str, Any],
    encoder: EncoderOptions,
) -> None:
    from cefito.data.readers.custom import prepare as prepare_own
    from cefito.data.readers.frame_folder import is_frame_folder
    from cefito.data.readers.step_source import read_steps

    if len(sources) == 1 and is_robot(sources[0]):
        (robot,), sources = sources, [sources[0] / INFO]
        if observed.features is observed.videos is sensing["sensors"] is None:
            if open_robot(robot).cameras:
                observed = replace(observed, videos=robot)
            else:
                sensing["sensors"] = robot
    folder = sources[0] if len(sources) == 1 and sources[0].is_dir() else None
    frames = folder is not None and is_frame_folder(folder)
    finished = observed.features is None and observed.videos is None
    if folder is not None and not frames and (chosen := given_names(steps)):
        applies = "applies to files only. Leave it out, or give files."
        raise ConfigError(f"{', '.join(map(option_name, chosen))} {applies}")
    if any(value is not None for value in sensing.values()) or frames:
        if observed.videos is not None or encoder != DEFAULT_ENCODER:
            kind = "a folder of labels of frames" if frames else "--sensors"
            raise ConfigError(f"{kind} takes no videos. Leave --videos and encoders out.")
        if (channels := sensing["channels"]) is not None:
            sensing["channels"] = [name.strip().casefold() for name in channels.split(",")]
        sensing |= {"name": observed.name, "features": observed.features}
        sensing |= {**steps.choices.model_dump(exclude_defaults=True), **observed.options}
        dataset = prepare_own(sources, target, progress=passing_progress, **sensing)
        _tell(dataset, observed)
        wrote(target, dataset)
    elif finished and len(sources) == 1 and not sources[0].is_file():
        dataset = prepare_own(sources[0], target, name=observed.name, **observed.options)
        _say(dataset.provenance.get("notes", ()))
        if "preparation" in dataset.provenance:
            _tell(dataset, observed)
        wrote(target, dataset)
    elif folder is not None:
        _prepare(partial(read_common, folder), target, observed, encoder, timeline=True)
    else:
        read = partial(read_steps, sources, choices=steps.choices)
        _prepare(read, target, observed, encoder, timeline=True)


def prepare_benchmark(
    benchmark: str,
    /,
    *,
    annotations: Path,
    out: Path,
    taxonomy: Path | None = None,
    observed: Observed = _DEFAULTS,
    encoder: EncoderOptions = DEFAULT_ENCODER,
) -> None:
    """Prepare a benchmark by its annotations and features (window files name them) or videos.

    Args:
        benchmark: Its name.
        annotations: As released (CrossTask's folder, COIN's JSON), window files of the unified
            protocol or their folder, a folder with taxonomy.json and videos.jsonl, or the
            repository of the paper's authors.
        out: New folder.
        taxonomy: A taxonomy for window files, taxonomy.json or as the authors write it; by default
            the one beside them.
    """
    from cefito.data.readers.benchmarks import read_benchmark

    read = partial(read_benchmark, benchmark, annotations, taxonomy=taxonomy)
    _prepare(read, out, observed, encoder)


for _name, _title in (("crosstask", "CrossTask"), ("coin", "COIN"), ("niv", "NIV")):
    app.command(
        partial(prepare_benchmark, _name),
        name=_name,
        help=f"Prepare {_title} from its annotations and a folder of features or videos.",
    )


@app.command
def captaincook4d(
    source: Path,
    target: Path,
    /,
    *,
    observed: Observed = _DEFAULTS,
    encoder: EncoderOptions = DEFAULT_ENCODER,
) -> None:
    """Prepare CaptainCook4D from its download, with its features of steps or with your own.

    Args:
        source: Folder of cefito data download captaincook4d.
        target: New folder.
    """
    from cefito.data.readers.captaincook4d import prepare_captaincook4d, read_captaincook4d

    if observed.features or observed.videos:
        _prepare(partial(read_captaincook4d, source), target, observed, encoder)
        return
    if (replace(observed, name=None), encoder) != (_DEFAULTS, DEFAULT_ENCODER):
        raise ConfigError("of these options, downloaded features of steps take --name only.")
    dataset = prepare_captaincook4d(source, target, name=observed.name)
    _say(dataset.provenance["notes"])
    wrote(target, dataset)


@app.command
def assembly101(source: Path, out: Path, /, *, whole: Flag = False, json: Flag = False) -> None:
    """Write Assembly101's labels of mistakes as a table, which cefito verify learns from.

    Args:
        source: Folder of cefito data download assembly101.
        out: Table to write, .csv.
        whole: Keep the steps of test videos after their first mistake.
        json: Print what was read as JSON instead of a table.
    """
    from cefito.data.readers.assembly101 import read_assembly101
    from cefito.tracks.formats.table import steps_table

    check_target(out, (".csv",), "out")
    tracks = read_assembly101(source, whole=whole)
    write_text(out, steps_table(tracks))
    counts: dict[str, Any] = {"out": str(out)}
    for split in ("train", "test"):
        videos = [track for track in tracks if track.split == split]
        counts[f"{split} videos"] = len(videos)
        counts[f"{split} steps"] = sum(len(track.steps) for track in videos)
    counts["mistakes"] = sum(bool(step.errors) for track in tracks for step in track.steps)
    if json:
        print_json(counts)
    else:
        table("Assembly101", ("what", "number"), [[*one] for one in [*counts.items()][1:]])
    talk(f"wrote {out}")


def _prepare(
    read: Callable[[], Source],
    out: Path,
    observed: Observed,
    encoder: EncoderOptions,
    *,
    timeline: bool = False,
) -> None:
    """Prepare a data set and print what was left out; `timeline` is the default of the option."""
    videos = observed.videos
    if videos is None and encoder != DEFAULT_ENCODER:
        raise ConfigError("--encoder and its options apply to --videos only. Leave them out.")
    check_new(out, observed.name)  # before the slow extraction, so that errors show at once
    source = read()
    features = observed.features
    if features is None:
        features = source.features if videos is None else out.parent / f"{out.name}-features"
    if features is None:
        raise ConfigError("give --features, a folder with one file a video, or --videos, a folder.")
    if videos is not None:
        names = {video.video_id for video in source.annotations.videos}
        extract_folder(videos, features, encoder, videos=names)
        videos = videos.parent if videos.is_file() else None if is_robot(videos) else videos
    dataset = prepare(
        source,
        features,
        out,
        name=observed.name,
        videos=videos,
        progress=passing_progress,
        **{"timeline": timeline, **observed.options},
    )
    _tell(dataset, observed)
    wrote(out, dataset)


def _say(notes: Iterable[str]) -> None:
    for note in notes:
        talk(f"note: {note}")


def _tell(dataset: PreparedDataset, observed: Observed) -> None:
    """Print what was left out of a data set."""
    preparation = dataset.provenance["preparation"]
    _say(preparation["notes"])
    if observed.json:
        print_json(preparation)
    else:
        made = dataset.provenance["observed"]
        numbers = f"{dataset.observation_dim} numbers, {made['precision']}"
        title = f"{dataset.name}: {made['seconds']} s around each start and end, {numbers}"
        table(title, ("what", "videos", "steps", "example"), summary_rows(dataset))
