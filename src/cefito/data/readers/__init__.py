"""Where data come from: one file a source, each turns what it finds into a prepared data set.

Readers of annotations (`benchmarks` with `windows_json`, `crosstask` and `coin`; `captaincook4d`;
`table`; `read_common`) give a `Source`. `assemble` finds the features of its videos (`folder`,
`archives`), observes their steps (`observing`, `shards`) and writes the data set. `custom` takes
observations that are made already.
"""

from cefito.data.readers.assemble import prepare, summary_rows
from cefito.data.readers.benchmarks import read_benchmark
from cefito.data.readers.captaincook4d import read_captaincook4d
from cefito.data.readers.custom import prepare_custom
from cefito.data.readers.source import Source, read_common
from cefito.data.readers.table import read_table

__all__ = [
    "Source",
    "prepare",
    "prepare_custom",
    "read_benchmark",
    "read_captaincook4d",
    "read_common",
    "read_table",
    "summary_rows",
]
