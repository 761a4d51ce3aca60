"""Readers of public and own annotations, and the preparation of data sets from them.

A reader gives a `Source`; `assemble` finds the features of its videos, observes their steps and
writes the data set. `custom` and `captaincook4d` also accept finished observations.
"""

from cefito.data.readers.assemble import prepare, summary_rows
from cefito.data.readers.benchmarks import read_benchmark
from cefito.data.readers.captaincook4d import (
    downloaded_files,
    prepare_captaincook4d,
    read_captaincook4d,
)
from cefito.data.readers.custom import prepare_custom
from cefito.data.readers.source import Source, read_common
from cefito.data.readers.table import read_table

__all__ = [
    "Source",
    "downloaded_files",
    "prepare",
    "prepare_captaincook4d",
    "prepare_custom",
    "read_benchmark",
    "read_captaincook4d",
    "read_common",
    "read_table",
    "summary_rows",
]
