"""Recognisers of rows without a chain of steps, to compare others with.

Networks that are trained on whole videos (MS-TCN++, a transformer of ASFormer's kind), and nearest
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import override

from cefito.data.prepared import PreparedDataset
from cefito.data.vocabulary import Taxonomy, find_task
from cefito.errors import ConfigError, RunError
from cefito.files import Expected, check_tensors, load_weights
from cefito.recognition.asformer import ASFormer
from cefito.recognition.chain import Floats
from cefito.recognition.classifier import Standard
from cefito.recognition.mstcn import MSTCN
from cefito.recognition.recogniser import (
    RECOGNISER_FILE,
    REMEDY,
    SETTINGS_FILE,
    AnnotatedRows,
    BaseRecogniser,
    RecogniserHeader,
    Recognition,
    of_task,
    read_parts,
    unchained,
    write_parts,
)
from cefito.recognition.settings import (
    ASFormerConfig,
    MSTCNConfig,
    NearestConfig,
    RecogniserSettings,
    settings_of,
)
from cefito.recognition.temporal import Rows
from cefito.recognition.video_networks import fit_on_videos, video_probabilities
from cefito.runtime import weights_to_come
from cefito.settings import validated
from cefito.training.trainer import TrainingContext


@dataclass(frozen=True, eq=False)
class _YardstickRecogniser(BaseRecogniser):
    """What is fitted to standardised rows and labels, and gives p(label) of rows."""

    kind: ClassVar[type[RecogniserSettings]]

    config: RecogniserSettings
    standard: Standard
    fitted: Any
    rate: float
    taxonomy: Taxonomy

    @classmethod
    def fit(
        cls,
        dataset: PreparedDataset,
        videos: Sequence[int],
        *,
        config: RecogniserSettings | None = None,
        seed: int = 0,
        context: TrainingContext | None = None,
    ) -> Self:
        """Train on some videos of a data set with rows of whole videos (DataError)."""
        annotated, config = AnnotatedRows.of(dataset, videos), settings_of(config, cls.kind)
        standard = Standard.of(annotated.rows, annotated.rows[0].shape[1])
        scaled = [standard.scaled(rows) for rows in annotated.rows]
        count, context = len(dataset.taxonomy.actions) + 1, context or TrainingContext()
        fitted = cls.fitted_to(scaled, annotated.labels, count, config, seed, context)
        return cls(config, standard, fitted, annotated.rate, dataset.taxonomy)

    @classmethod
    def fitted_to(
        cls,
        rows: Sequence[Rows],
        labels: Sequence[NDArray[np.int64]],
        count: int,
        config: Any,
        seed: int,
        context: TrainingContext,
    ) -> Any:
        """Train on standardised rows [n, D] and labels [n] of videos, of K + 1 labels."""
        raise NotImplementedError

    def probabilities(self, rows: Rows) -> Floats:
        """Return p(label) [n, K + 1] of the standardised rows [n, D] of a video."""
        raise NotImplementedError

    def tensors(self) -> dict[str, Tensor]:
        """Return what is fitted, for a file."""
        raise NotImplementedError

    @classmethod
    def of_tensors(
        cls, tensors: dict[str, Tensor], width: int, count: int, config: Any, place: str
    ) -> Any:
        """Return what is fitted, of the tensors of a file (RunError)."""
        raise NotImplementedError

    def recognise(
        self,
        rows: NDArray[np.floating[Any]],
        *,
        rate: float | None = None,
        task: int | None = None,
        plan: Sequence[int] | None = None,
        doubt: bool = False,  # noqa: ARG002 — it knows no usual order
    ) -> Recognition:
        """Recognise the steps of a video; see `Recogniser.recognise`."""
        checked = self.checked_rows(rows, rate)
        task_id = None if task is None else find_task(self.taxonomy, task)
        if plan is not None:
            raise self._refused("align steps that are known")
        labels = self.probabilities(self.standard.scaled(checked))
        labels = self.decided(of_task(labels, self.taxonomy, task_id))
        return unchained(labels, self.taxonomy, self.rate, task_id)

    def decided(self, rows: Floats) -> Floats:
        """Return p(label) [n, K + 1] of all rows, of which the likeliest labels are the answer."""
        return rows

    def save(self, folder: Path) -> None:
        """Write it into a run folder."""
        config = self.config.model_dump(mode="json")
        header = RecogniserHeader(config=config, rate=self.rate, width=self.width)
        write_parts(folder, header, {"fitted": self.tensors(), "standard": vars(self.standard)})

    @classmethod
    def load(cls, folder: Path, taxonomy: Taxonomy) -> Self:
        """Read what `save` wrote into a run folder (RunError)."""
        place, file = str(folder / SETTINGS_FILE), str(folder / RECOGNISER_FILE)
        header, parts = read_parts(folder, RecogniserHeader)
        count, width = len(taxonomy.actions) + 1, header.width
        try:
            config = validated(cls.kind, header.config, place=place)
            arrays = {name: tensor.numpy() for name, tensor in parts.pop("standard", {}).items()}
            standard = Standard.of_arrays(arrays, width, width, file)
            size = standard.directions.shape[1]
            fitted = cls.of_tensors(parts.pop("fitted", {}), size, count, config, file)
            if parts:
                raise RunError(f"{file}: tensors '{min(parts)}' are unknown.")
        except (ConfigError, RunError) as problem:
            raise RunError(f"{problem} {REMEDY}") from problem
        return cls(config, standard, fitted, header.rate, taxonomy)


class VideoNetworkRecogniser(_YardstickRecogniser):
    """A network that is trained on whole videos."""

    network: ClassVar[type[nn.Module]]  # made of D, K + 1 and the settings

    @override
    @classmethod
    def fitted_to(
        cls,
        rows: Sequence[Rows],
        labels: Sequence[NDArray[np.int64]],
        count: int,
        config: Any,
        seed: int,
        context: TrainingContext,
    ) -> nn.Module:
        """Train the network."""
        return fit_on_videos(cls.network, rows, labels, count, config, seed=seed, context=context)

    def probabilities(self, rows: Rows) -> Floats:
        """Return p(label) [n, K + 1], those of the last stage."""
        return video_probabilities(self.fitted, rows)

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights."""
        return dict(self.fitted.state_dict())

    @override
    @classmethod
    def of_tensors(
        cls, tensors: dict[str, Tensor], width: int, count: int, config: Any, place: str
    ) -> nn.Module:
        """Return the network."""
        with weights_to_come():
            network = cls.network(width, count, config).eval()
        load_weights(network, tensors, place, copy=False)
        return network


class MSTCNRecogniser(VideoNetworkRecogniser):
    """MS-TCN++ (arXiv 2006.09220) as its authors released it."""

    kind, network = MSTCNConfig, MSTCN


class ASFormerRecogniser(VideoNetworkRecogniser):
    """A transformer of ASFormer's kind (arXiv 2110.08568)."""

    kind, network = ASFormerConfig, ASFormer


class NearestRecogniser(_YardstickRecogniser):
    """Gives a row the label of the training row of the greatest cosine."""

    kind = NearestConfig

    @override
    @classmethod
    def fitted_to(
        cls, rows: Sequence[Rows], labels: Sequence[NDArray[np.int64]], count: int, *_: Any
    ) -> tuple[Rows, NDArray[np.int64], int]:
        """Keep all rows at length 1 [N, D], their labels [N], and K + 1."""
        kept = np.concatenate(rows)
        kept = kept / (np.linalg.norm(kept, axis=1, keepdims=True) + 1e-9)
        return kept, np.concatenate(labels), count

    def probabilities(self, rows: Rows) -> Floats:
        """Return 1 for the label of the nearest row [n, K + 1]."""
        kept, labels, count = self.fitted
        nearest: Floats = np.eye(count)[labels[(rows @ kept.T).argmax(axis=1)]]
        return nearest

    def tensors(self) -> dict[str, Tensor]:
        """Return rows and labels."""
        rows, labels, _ = self.fitted
        return {"rows": torch.from_numpy(rows), "labels": torch.from_numpy(labels).double()}

    @override
    @classmethod
    def of_tensors(
        cls, tensors: dict[str, Tensor], width: int, count: int, config: Any, place: str
    ) -> tuple[Rows, NDArray[np.int64], int]:
        """Return rows and labels."""
        del config
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        size = len(arrays.get("labels", ()))
        expected = {
            "rows": Expected((size, width), -1.001, 1.001),
            "labels": Expected((size,), 0, count - 1),
        }
        check_tensors(arrays, expected, place)
        labels = arrays["labels"].astype(np.int64)
        if not size or (labels != arrays["labels"]).any():
            raise RunError(f"{place}: expected rows and the whole numbers of their labels.")
        return arrays["rows"], labels, count
