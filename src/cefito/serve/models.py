"""The runs and data sets that a service has opened, found by name and horizon."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from cefito.data.prepared import open_dataset
from cefito.data.text import nfc
from cefito.errors import CefitoError, ConfigError, RunError
from cefito.inference.observer import Recipe
from cefito.runs.folders import horizons_in
from cefito.runs.matching import DatasetMatch, match_dataset
from cefito.runs.run import Run, open_run
from cefito.serve.problems import ProblemError

__all__ = ["Models", "Served", "open_models"]

_LISTED = 8


@dataclass(frozen=True)
class Served:
    """A run that can be asked.

    Attributes:
        name: What requests call it.
        run: The run.
        matches: Data sets whose videos it can plan.
        pictures: Whether uploaded pictures can be encoded for it.
        video: Whether uploaded videos can.
    """

    name: str
    run: Run
    matches: tuple[DatasetMatch, ...] = ()
    pictures: bool = False
    video: bool = False

    @property
    def title(self) -> str:
        """Name and horizon."""
        return f"'{self.name}' (horizon {self.run.horizon})"

    @cached_property
    def videos(self) -> dict[str, list[tuple[DatasetMatch, int]]]:
        """Data sets and indices of the videos of each id."""
        found: dict[str, list[tuple[DatasetMatch, int]]] = {}
        for match in self.matches:
            for index, video in enumerate(match.dataset.videos):
                found.setdefault(nfc(video.video_id), []).append((match, index))
        return found


@dataclass(frozen=True)
class Models:
    """All runs of a service.

    Attributes:
        runs: The runs, in the order that they were given, by ascending horizons.
        names: What messages say in the place of folders of the server.
    """

    runs: tuple[Served, ...]
    names: dict[str, str]

    def find(self, name: str | None, horizon: int | None) -> Served:
        """The one run of a name and a horizon, each of which may be left out.

        Raises:
            ProblemError: None fits, or several do.
        """
        fitting = [
            served
            for served in self.runs
            if name in (None, served.name) and horizon in (None, served.run.horizon)
        ]
        if len(fitting) == 1:
            return fitting[0]
        listed = _listed([served.title for served in self.runs])
        asked = " and ".join(
            f"{what} {value!r}"
            for what, value in (("run", name), ("horizon", horizon))
            if value is not None
        )
        if not fitting:
            known = [served for served in self.runs if name in (None, served.name)]
            field = "horizon" if known and horizon is not None else "run"
            raise ProblemError(
                422, "invalid", f"no run fits {asked}; there are {listed}. Name one.", field=field
            )
        field = "horizon" if len({served.name for served in fitting}) == 1 else "run"
        raise ProblemError(
            422,
            "invalid",
            f"{len(fitting)} runs fit{f' {asked}' if asked else ''}; there are {listed}. Say which "
            f"{field} is meant.",
            field=field,
        )


def open_models(
    runs: Sequence[Path],
    datasets: Sequence[Path] = (),
    *,
    device: torch.device | None = None,
    encoder: str | None = None,
    weights: Path | None = None,
) -> Models:
    """Open everything that a service needs.

    Args:
        runs: Run folders, archives or places on a hub; folders of several horizons give a run each.
        datasets: Data sets whose videos may be named.
        device: Where they plan.
        encoder: Encoder of uploads, "own" for that of each run's features, None for no uploads.
        weights: File of the weights of the encoder s3d.

    Raises:
        CefitoError: A run or data set that cannot be opened, two runs that cannot be told apart, a
            data set that no run can be used on, or an encoder that no run can be used with.
    """
    opened: list[tuple[Path, Run]] = []
    for given in runs:
        horizons: list[int | None] = [*horizons_in(given)] or [None]
        opened += [(given, open_run(given, horizon=each, device=device)) for each in horizons]
    served = [Served(name, run) for name, (_, run) in zip(_names(opened), opened, strict=True)]
    served = _with_datasets(served, datasets)
    if encoder is not None or weights is not None:
        served = _with_encoder(served, encoder, weights)
    names = {str(one.run.folder): one.name for one in served}
    names |= {str(Path(folder)): Path(folder).name for folder in datasets}
    longest_first = dict(sorted(names.items(), key=lambda entry: -len(entry[0])))
    return Models(tuple(served), longest_first)


def _names(opened: Sequence[tuple[Path, Run]]) -> list[str]:
    """The shortest ends of the paths that tell runs of one horizon apart."""
    paths = [
        Path(str(given).removeprefix("hub:")).with_suffix("")
        if given.suffix == ".zip" or str(given).startswith("hub:")
        else given.resolve()
        for given, _ in opened
    ]
    for count in range(1, 1 + max(len(path.parts) for path in paths)):
        names = ["/".join(path.parts[-count:]) for path in paths]
        keys = [(name, run.horizon) for name, (_, run) in zip(names, opened, strict=True)]
        if len(set(keys)) == len(keys):
            return names
    raise ConfigError("a run is given twice. Leave one of them out.", setting="runs")


def _with_datasets(served: Sequence[Served], datasets: Sequence[Path]) -> list[Served]:
    """The runs with the data sets that each can be used on."""
    matches: list[list[DatasetMatch]] = [[] for _ in served]
    for folder in datasets:
        dataset, reasons = open_dataset(folder), []
        for index, one in enumerate(served):
            try:
                matches[index].append(match_dataset(one.run, dataset))
            except CefitoError as problem:
                reasons.append(str(problem))
        if len(reasons) == len(served):
            raise RunError(f"{folder}: no run can be used on it. {reasons[0]}", setting="dataset")
    return [
        Served(one.name, one.run, tuple(found)) for one, found in zip(served, matches, strict=True)
    ]


def _with_encoder(
    served: Sequence[Served], encoder: str | None, weights: Path | None
) -> list[Served]:
    """The runs, with what can be encoded for each of them."""
    result, reasons = [], []
    for one in served:
        try:
            observer = Recipe.of(one.run).open(
                None if encoder == "own" else encoder, weights=weights
            )
        except CefitoError as problem:
            reasons.append(problem)
            result.append(one)
            continue
        pictures = observer.sees_pictures
        result.append(Served(one.name, one.run, one.matches, pictures, video=True))
    if len(reasons) == len(served):
        raise reasons[0]
    for reason in reasons:
        logging.getLogger(__name__).warning("no uploads for one of the runs: %s", reason)
    return result


def _listed(titles: Sequence[str]) -> str:
    more = f" and {len(titles) - _LISTED} more" if len(titles) > _LISTED else ""
    return ", ".join(titles[:_LISTED]) + more
