"""Recognisers by name, with their settings; their code is imported when it is first used.

To add a recogniser, enter it in `RECOGNISERS`; another package has an entry point of the group
`cefito.recognisers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, cast

from cefito.plugins import Registry
from cefito.recognition.settings import (
    ASFormerConfig,
    MSTCNConfig,
    NearestConfig,
    OnlineConfig,
    RecogniserConfig,
    RecogniserSettings,
)

if TYPE_CHECKING:
    from cefito.recognition.recogniser import Recogniser


@dataclass(frozen=True)
class RecogniserRow:
    """A row of tables of recognisers."""

    line: str
    settings: Mapping[str, Any] = field(default_factory=dict)  # that differ from those compared


@dataclass(frozen=True, kw_only=True)
class RecogniserMethod:
    """A way to recognise steps."""

    name: str
    recogniser: type[Recogniser] | str  # a class, or its place "module:Name"
    settings: type[RecogniserSettings]  # its section; `method` is its name by default
    rows: Mapping[str, RecogniserRow]  # by name
    seeded: bool = True  # whether seeds give different ones

    @property
    def kind(self) -> type[Recogniser]:
        """The class, imported."""
        if isinstance(self.recogniser, str):
            return cast("type[Recogniser]", EntryPoint("", self.recogniser, "").load())
        return self.recogniser


def _fault(name: str, entry: Any) -> str:
    """Return what is wrong with a recogniser of another package."""
    if not (isinstance(entry, RecogniserMethod) and entry.name == name):
        return f"its entry point is not a RecogniserMethod of the name '{name}'"
    kind = entry.settings
    if not (isinstance(kind, type) and issubclass(kind, RecogniserSettings)):
        return "its settings are not a class of RecogniserSettings"
    return "" if kind().method == name else f"its settings do not say method = '{name}'"


_STILL = {"temporal_layers": 0}
RECOGNISERS: Registry[RecogniserMethod] = Registry(
    "cefito.recognisers",
    "recogniser",
    {
        method.name: method
        for method in (
            RecogniserMethod(
                name="segmental",
                recogniser="cefito.recognition.segmental:SegmentalRecogniser",
                settings=RecogniserConfig,
                rows={
                    "recogniser": RecogniserRow("of a run: networks and semi-Markov chain"),
                    "rows": RecogniserRow(
                        "the recogniser's networks of single rows alone", _STILL | {"chain": False}
                    ),
                    "hmm": RecogniserRow(
                        "networks of single rows and a hidden Markov model (geometric durations)",
                        _STILL | {"phases": 1},
                    ),
                },
            ),
            RecogniserMethod(
                name="mstcn",
                recogniser="cefito.recognition.yardsticks:MSTCNRecogniser",
                settings=MSTCNConfig,
                rows={"mstcn": RecogniserRow("MS-TCN++ (arXiv 2006.09220) as released")},
            ),
            RecogniserMethod(
                name="asformer",
                recogniser="cefito.recognition.yardsticks:ASFormerRecogniser",
                settings=ASFormerConfig,
                rows={
                    "asformer": RecogniserRow(
                        "a transformer of ASFormer's kind (arXiv 2110.08568), by its description"
                    )
                },
            ),
            RecogniserMethod(
                name="online",
                recogniser="cefito.recognition.online:OnlineRecogniser",
                settings=OnlineConfig,
                rows={
                    "tcn": RecogniserRow(
                        "row by row: one stage of MS-TCN (arXiv 1903.01945), causal, alone"
                    ),
                    "lstm": RecogniserRow("row by row: an LSTM alone", {"network": "lstm"}),
                    "rule": RecogniserRow(
                        "row by row: tcn, which keeps its last label while unsure and its segment "
                        "short (the rule of OnlineTAS, arXiv 2411.01122)",
                        {"rule": True},
                    ),
                },
            ),
            RecogniserMethod(
                name="nearest",
                recogniser="cefito.recognition.yardsticks:NearestRecogniser",
                settings=NearestConfig,
                rows={"nearest": RecogniserRow("the nearest training row")},
                seeded=False,
            ),
        )
    },
    _fault,
)
"""Recognisers by the setting `recogniser.method`."""
