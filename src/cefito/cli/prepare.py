"""`cefito data prepare`: turn annotations and features into a prepared data set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from cefito.cli.console import passing_progress, print_json, table, talk

if TYPE_CHECKING:
    from cefito.data.prepared import PreparedDataset
    from cefito.data.sources import Source

__all__ = ["app", "wrote"]

app = App(name="prepare", help="Turn annotations and features into a prepared data set.")

Flag = Annotated[bool, Parameter(negative="")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Observed:
    """How steps are observed, and where the data set goes.

    Attributes:
        features: Folder with one file a video, .npy or .npz, [seconds, D], one row a second.
        out: Folder to write, which must not hold anything yet. A preparation that was stopped goes on when it is repeated.
        name: Name shown in tables; by default that of the annotations.
        beyond: Steps that end beyond the features: leave them out (drop), put the step before in their place, features and
            label, as the published loader does (rewrite), or stop (error).
        seconds: Rows of features around a step's start and end that make one observation.
        precision: Type in which observations are stored.
        workers: Threads.
        json: Print what was left out as JSON instead of a table.
    """

    features: Path
    out: Path
    name: str | None = None
    beyond: Literal["drop", "rewrite", "error"] = "drop"
    seconds: int = 3
    precision: Literal["float16", "float32"] = "float16"
    workers: int = 4
    json: Flag = False


@app.command
def custom(source: Path, target: Path, /, *, name: str | None = None) -> None:
    """Prepare your own annotated videos with observations of their steps made by any model.

    Args:
        source: Folder with taxonomy.json, videos.jsonl, features.npz and optionally action_text_features.npy.
        target: Folder to write, which must not hold anything yet.
        name: Name shown in tables; by default the one in taxonomy.json.
    """
    from cefito.data.sources.custom import prepare_custom

    wrote(target, prepare_custom(source, target, name=name))


@app.command(name="table")
def from_table(steps: Path, /, *, observed: Observed) -> None:
    """Prepare your own videos from a table of steps and a folder of features.

    Args:
        steps: CSV or Parquet with the columns video, task, step, start, end (seconds), and split if you like.
        observed: How steps are observed.
    """
    from cefito.data.sources.table import read_table

    _prepare(lambda: read_table(steps), observed)


@app.command
def crosstask(*, annotations: Path, taxonomy: Path | None = None, observed: Observed) -> None:
    """Prepare CrossTask from its annotations and a folder of features.

    Args:
        annotations: Its release, window files of the unified protocol, or taxonomy.json and videos.jsonl.
        taxonomy: A taxonomy.json, for window files, which hold no names of actions.
        observed: How steps are observed.
    """
    _benchmark("crosstask", annotations, taxonomy, observed)


@app.command
def coin(*, annotations: Path, taxonomy: Path | None = None, observed: Observed) -> None:
    """Prepare COIN from its annotations and a folder of features.

    Args:
        annotations: COIN's JSON, window files of the unified protocol, or taxonomy.json and videos.jsonl.
        taxonomy: A taxonomy.json, for window files, which hold no names of actions.
        observed: How steps are observed.
    """
    _benchmark("coin", annotations, taxonomy, observed)


@app.command
def niv(*, annotations: Path, taxonomy: Path | None = None, observed: Observed) -> None:
    """Prepare NIV from its annotations and a folder of features.

    Args:
        annotations: Window files of the unified protocol, or taxonomy.json and videos.jsonl.
        taxonomy: A taxonomy.json, for window files, which hold no names of actions.
        observed: How steps are observed.
    """
    _benchmark("niv", annotations, taxonomy, observed)


@app.command
def captaincook4d(*, annotations: Path, split: Path, observed: Observed) -> None:
    """Prepare CaptainCook4D from its step annotations, a split of its recordings and a folder of features.

    Args:
        annotations: The complete step annotations, JSON.
        split: Which recordings are train, val and test, JSON.
        observed: How steps are observed.
    """
    from cefito.data.sources.captaincook4d import read_captaincook4d

    _prepare(lambda: read_captaincook4d(annotations, split), observed)


def wrote(target: Path, dataset: PreparedDataset) -> None:
    """Say that a data set was written."""
    talk(f"wrote {target}: {dataset.name}, fingerprint {dataset.fingerprint[:12]}")


def _benchmark(name: str, annotations: Path, taxonomy: Path | None, observed: Observed) -> None:
    from cefito.data.sources.benchmarks import read_benchmark

    _prepare(lambda: read_benchmark(name, annotations, taxonomy=taxonomy), observed)


def _prepare(read: Callable[[], Source], observed: Observed) -> None:
    from cefito.data.sources.assemble import prepare, summary_rows

    dataset = prepare(read(), observed.features, observed.out, name=observed.name, beyond=observed.beyond,
                      seconds=observed.seconds, precision=observed.precision, workers=observed.workers,
                      progress=passing_progress)
    for note in dataset.provenance["preparation"]["notes"]:
        talk(f"note: {note}")
    if observed.json:
        print_json(dataset.provenance["preparation"])
    else:
        table(f"{dataset.name}: {observed.seconds} s around each start and end, {dataset.observation_dim} numbers, "
              f"{observed.precision}", ("what", "videos", "steps", "example"), summary_rows(dataset))
    wrote(observed.out, dataset)
