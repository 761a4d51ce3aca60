"""Readers of public and own annotations, and the preparation of data sets from them.

A reader gives a `Source`; `assemble` finds the features of its videos, observes their steps and
writes the data set. `custom` and `captaincook4d` also accept finished observations. The names below
are loaded when first used, since a run needs of all this only how observations are cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cefito import lazy

if TYPE_CHECKING:
    from cefito.data.readers.assemble import prepare, summary_rows
    from cefito.data.readers.benchmarks import read_benchmark
    from cefito.data.readers.captaincook4d import (
        downloaded_files,
        prepare_captaincook4d,
        read_captaincook4d,
    )
    from cefito.data.readers.custom import prepare_custom
    from cefito.data.readers.formats import Choices
    from cefito.data.readers.source import Source, irregularities, read_common
    from cefito.data.readers.step_source import convert_steps, read_steps

_HOMES = {
    "Choices": "formats",
    "Source": "source",
    "convert_steps": "step_source",
    "downloaded_files": "captaincook4d",
    "irregularities": "source",
    "prepare": "assemble",
    "prepare_captaincook4d": "captaincook4d",
    "prepare_custom": "custom",
    "read_benchmark": "benchmarks",
    "read_captaincook4d": "captaincook4d",
    "read_common": "source",
    "read_steps": "step_source",
    "summary_rows": "assemble",
}

__all__ = [
    "Choices",
    "Source",
    "convert_steps",
    "downloaded_files",
    "irregularities",
    "prepare",
    "prepare_captaincook4d",
    "prepare_custom",
    "read_benchmark",
    "read_captaincook4d",
    "read_common",
    "read_steps",
    "summary_rows",
]

__getattr__, __dir__ = lazy.attributes(__name__, _HOMES)
