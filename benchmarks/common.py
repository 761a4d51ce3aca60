"""Parts that several scripts share: options, what was run and where."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow
import torch
from pyarrow import parquet

from cefito.data import PreparedDataset
from cefito.data.readers.custom import prepare
from cefito.files import write_json
from cefito.recognition.settings import RecogniserConfig
from cefito.runtime import capability
from cefito.settings import validated

TASK_SIZES = (6, 5, 8, 7, 10, 7, 9, 3, 8, 7, 11, 6, 8, 10, 7, 5, 8, 8)
"""Actions of each task: 133 in 18 tasks of 3 to 11, as in CrossTask."""
_ROWS = 1024  # of Parquet that are made at once


def parser(doc: str | None, *, data: str | None = None) -> argparse.ArgumentParser:
    """Options of a script: --out, and folders of data sets if `data` is `one` or `many`."""
    made = argparse.ArgumentParser(description=(doc or "").split("\n", maxsplit=1)[0])
    if data:
        made.add_argument("data", type=Path, nargs="+" if data == "many" else None)
    made.add_argument("--out", type=Path, help="JSON file to write")
    return made


@contextmanager
def prepared(folder: Path, *files: str) -> Iterator[PreparedDataset]:
    """Prepare rows of whole videos for a while: taxonomy.json, videos.jsonl, timeline.npz and more.

    Args:
        folder: The folder that holds the files.
        files: Further files of it.
    """
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "source"
        source.mkdir()
        for name in ("taxonomy.json", "videos.jsonl", "timeline.npz", *files):
            shutil.copy(folder / name, source)
        yield prepare(source, Path(place) / "DATA")


def write_report(report: dict[str, Any], out: Path | None) -> None:
    """Print a report, and write it if a file is given."""
    if out is not None:
        write_json(out, report)
    print(report)


def add_settings(made: argparse.ArgumentParser) -> None:
    """Add --set, read by `settings`."""
    made.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")


def settings(entries: Iterable[str]) -> dict[str, str]:
    """Settings of entries KEY=VALUE."""
    return dict(entry.split("=", 1) for entry in entries)


def recogniser_settings(entries: Iterable[str]) -> RecogniserConfig:
    """Settings of the segmental recogniser, of entries KEY=VALUE whose values are JSON."""
    chosen = {key: json.loads(value) for key, value in settings(entries).items()}
    return validated(RecogniserConfig, chosen, place="--set")


def about(script: str, given: argparse.Namespace, data: PreparedDataset) -> dict[str, Any]:
    """The command, its arguments without folders, and the data set."""
    left_out = ("data", "out", "work", "known", "runs")
    return {
        "command": f"python benchmarks/{script}.py DATA",
        "arguments": {name: part for name, part in vars(given).items() if name not in left_out},
        "dataset": {"name": data.name, "fingerprint": data.fingerprint},
    }


def machine(device: torch.device | None = None) -> dict[str, Any]:
    """Processor, cores, versions and device of what was measured."""
    device = device or torch.device("cpu")
    return {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "bfloat16_by": capability(device),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def peak_mib(device: torch.device | None = None) -> float:
    """Peak memory so far: of the GPU, or of this process."""
    if device is not None and device.type == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def groups(count: int) -> Iterator[tuple[int, int]]:
    """First row and number of rows of each group of a table."""
    for first in range(0, count, _ROWS):
        yield first, min(_ROWS, count - first)


def write_table(path: Path, parts: Iterable[dict[str, Any]]) -> Path:
    """Write a Parquet file group by group."""
    writer = None
    for part in parts:
        table = pyarrow.table(part)
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()
    return path
