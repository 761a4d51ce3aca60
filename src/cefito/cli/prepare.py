"""`cefito data prepare`: turn annotations and features or videos into a prepared data set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cyclopts import App, Parameter

from cefito.cli.console import passing_progress, print_json, table, talk, wrote
from cefito.cli.extract import S3D_OF_BENCHMARKS, EncoderOptions, extract_folder
from cefito.cli.options import Flag, Several, pairs
from cefito.errors import ConfigError

if TYPE_CHECKING:
    from cefito.data.readers import Source

__all__ = ["app"]

app = App(name="prepare", help="Turn annotations and features or videos into a prepared data set.")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Observed:
    """How steps are observed.

    Attributes:
        features: Folder with one file a video, .npy or .npz, [seconds, D], one row a second. With
            videos it is where these are written, by default a folder beside the data set.
        videos: Folder of videos, whose features are extracted first. The data set notes where it
            lies, so that reports can show frames.
        name: Name shown in tables; by default that of the annotations.
        beyond: Steps that end beyond the features: leave them out (drop), put the step before in
            their place, features and label, as the published loader does (rewrite), or stop
            (error).
        seconds: Rows of features around a step's start and end that make one observation.
        precision: Type in which observations are stored.
        workers: Threads.
        json: Print what was left out as JSON instead of a table.
    """

    features: Path | None = None
    videos: Path | None = None
    name: str | None = None
    beyond: Literal["drop", "rewrite", "error"] = "drop"
    seconds: int = 3
    precision: Literal["float16", "float32"] = "float16"
    workers: int = 4
    json: Flag = False


_AS_GIVEN = Observed()


@app.command
def custom(
    source: Path,
    target: Path,
    /,
    *,
    column: Several = (),
    merge: Path | None = None,
    suggest_merges: Path | None = None,
    observed: Observed = _AS_GIVEN,
    encoder: EncoderOptions = S3D_OF_BENCHMARKS,
) -> None:
    """Prepare your own annotated videos.

    They are a table or a folder of annotations, with features or videos.

    Args:
        source: CSV or Parquet with the columns video, task, step, start, end (seconds), and split
            if you like; or a folder with taxonomy.json and videos.jsonl, where features.npz in it
            may hold observations of the steps that are made already, and action_text_features.npy
            embeddings of the actions' names.
        target: Folder to write, which must not hold anything yet. A preparation that was stopped
            goes on when it is repeated.
        column: OURS=THEIRS: what the table calls a column, as in step=action; may be repeated.
        merge: CSV with the columns kind (task or step), from and to: names to be replaced, so that
            names that mean the same become one.
        suggest_merges: Write such a CSV of names that differ by little, to look through, and stop.
        observed: How steps are observed.
        encoder: What encodes videos.
    """
    from cefito.data.readers import prepare_custom, read_common, read_table
    from cefito.data.readers.merges import read_merges
    from cefito.data.readers.table import MERGING

    columns = pairs("--column", column, "OURS=THEIRS, as in --column step=action")
    if columns and source.is_dir():
        raise ConfigError("--column is for tables. Leave it out, or give a table.")
    merges = None if merge is None else read_merges(merge)
    observing = observed.features is not None or observed.videos is not None
    if suggest_merges is None and not observing and not source.is_file():
        dataset = prepare_custom(source, target, name=observed.name, merges=merges)
        for note in dataset.provenance.get("notes", ()):
            talk(f"note: {note}")
        wrote(target, dataset)
        return

    def read() -> Source:
        if source.is_dir():
            return read_common(source, merges=merges)
        return read_table(source, columns=columns, merges=merges)

    if suggest_merges is not None:
        _suggest(read(), suggest_merges)
        return
    notes = _prepare(read, target, observed, encoder)
    if MERGING in notes:
        talk(
            "--suggest-merges MAP.csv writes such a map to look through, --merge MAP.csv applies "
            "it to a new preparation"
        )


def _suggest(source: Source, target: Path) -> None:
    from cefito.data.readers.merges import suggest_merges, write_merges

    found = suggest_merges(source.annotations)
    write_merges(target, found)
    talk(
        f"wrote {target}: {len(found)} names that may mean the same as another one. Remove the "
        f"lines that are not to be merged, then repeat the command with --merge {target} instead "
        "of --suggest-merges."
    )


@app.command
def crosstask(
    *,
    annotations: Path,
    out: Path,
    taxonomy: Path | None = None,
    observed: Observed = _AS_GIVEN,
    encoder: EncoderOptions = S3D_OF_BENCHMARKS,
) -> None:
    """Prepare CrossTask from its annotations and a folder of features or videos.

    Args:
        annotations: Its release, window files of the unified protocol, or taxonomy.json and
            videos.jsonl.
        out: Folder to write, which must not hold anything yet. A preparation that was stopped goes
            on when it is repeated.
        taxonomy: A taxonomy.json, for window files, which hold no names of actions.
        observed: How steps are observed.
        encoder: What encodes videos.
    """
    _benchmark("crosstask", annotations, taxonomy, out, observed, encoder)


@app.command
def coin(
    *,
    annotations: Path,
    out: Path,
    taxonomy: Path | None = None,
    observed: Observed = _AS_GIVEN,
    encoder: EncoderOptions = S3D_OF_BENCHMARKS,
) -> None:
    """Prepare COIN from its annotations and a folder of features or videos.

    Args:
        annotations: COIN's JSON, window files of the unified protocol, or taxonomy.json and
            videos.jsonl.
        out: Folder to write, which must not hold anything yet. A preparation that was stopped goes
            on when it is repeated.
        taxonomy: A taxonomy.json, for window files, which hold no names of actions.
        observed: How steps are observed.
        encoder: What encodes videos.
    """
    _benchmark("coin", annotations, taxonomy, out, observed, encoder)


@app.command
def niv(
    *,
    annotations: Path,
    out: Path,
    taxonomy: Path | None = None,
    observed: Observed = _AS_GIVEN,
    encoder: EncoderOptions = S3D_OF_BENCHMARKS,
) -> None:
    """Prepare NIV from its annotations and a folder of features or videos.

    Args:
        annotations: Window files of the unified protocol, or taxonomy.json and videos.jsonl.
        out: Folder to write, which must not hold anything yet. A preparation that was stopped goes
            on when it is repeated.
        taxonomy: A taxonomy.json, for window files, which hold no names of actions.
        observed: How steps are observed.
        encoder: What encodes videos.
    """
    _benchmark("niv", annotations, taxonomy, out, observed, encoder)


@app.command
def captaincook4d(
    *,
    annotations: Path,
    split: Path,
    out: Path,
    observed: Observed = _AS_GIVEN,
    encoder: EncoderOptions = S3D_OF_BENCHMARKS,
) -> None:
    """Prepare CaptainCook4D from its step annotations and a folder of features or videos.

    A split says which recordings are for training, validation and test.

    Args:
        annotations: The complete step annotations, JSON.
        split: Which recordings are train, val and test, JSON.
        out: Folder to write, which must not hold anything yet. A preparation that was stopped goes
            on when it is repeated.
        observed: How steps are observed.
        encoder: What encodes videos.
    """
    from cefito.data.readers import read_captaincook4d

    _prepare(lambda: read_captaincook4d(annotations, split), out, observed, encoder)


def _benchmark(
    name: str,
    annotations: Path,
    taxonomy: Path | None,
    out: Path,
    observed: Observed,
    encoder: EncoderOptions,
) -> None:
    from cefito.data.readers import read_benchmark

    _prepare(lambda: read_benchmark(name, annotations, taxonomy=taxonomy), out, observed, encoder)


def _folder_of(videos: Path | None) -> Path | None:
    """The folder of what may be a single video."""
    return videos.parent if videos is not None and videos.is_file() else videos


def _prepare(
    read: Callable[[], Source], out: Path, observed: Observed, encoder: EncoderOptions
) -> list[str]:
    """Prepare a data set, print what was left out, and return the notes."""
    from cefito.data.readers import prepare, summary_rows

    if observed.features is None and observed.videos is None:
        raise ConfigError(
            "give --features, a folder with one file of features a video, or --videos, a folder of "
            "videos."
        )
    if observed.videos is None and encoder != S3D_OF_BENCHMARKS:
        raise ConfigError(
            "--encoder and what belongs to it are for --videos. Leave them out, or give the videos."
        )
    source = read()  # before the videos are encoded, which takes long
    features = observed.features or out.parent / f"{out.name}-features"
    if observed.videos is not None:
        extract_folder(observed.videos, features, encoder)
    dataset = prepare(
        source,
        features,
        out,
        name=observed.name,
        beyond=observed.beyond,
        seconds=observed.seconds,
        precision=observed.precision,
        workers=observed.workers,
        videos=_folder_of(observed.videos),
        progress=passing_progress,
    )
    notes: list[str] = dataset.provenance["preparation"]["notes"]
    for note in notes:
        talk(f"note: {note}")
    if observed.json:
        print_json(dataset.provenance["preparation"])
    else:
        table(
            f"{dataset.name}: {observed.seconds} s around each start and end, "
            f"{dataset.observation_dim} numbers, {observed.precision}",
            ("what", "videos", "steps", "example"),
            summary_rows(dataset),
        )
    wrote(out, dataset)
    return notes
