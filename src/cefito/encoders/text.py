"""Text embeddings of action names and goals, by pretrained encoders (CLIP, Flan-T5, WordLlama).

The defaults are as the authors' released embeddings: CLIP ViT-B/32, end-of-text state after the
final norm, before the projection, of the bare name, not normalised (Sec. 3.2, Supp. B, Tab. 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cefito.encoders.images import PretrainedImages, repeats
from cefito.encoders.pretrained import (
    COPY_AGAIN,
    find_pretrained,
    load_weights,
    needed_packages,
    quiet_transformers,
)
from cefito.errors import ConfigError, DataError, explained
from cefito.files import check_array
from cefito.markup import word_vectors
from cefito.progress import Progress, silent

if TYPE_CHECKING:
    import torch


TEXT_MODELS = {"clip": "openai/clip-vit-base-patch32", "t5": "google/flan-t5-base"}
"""Names on the hub by short name."""

LAYERS = {
    "clip": {
        "pooled": "end-of-text state after the final norm, before the projection",
        "projected": "end-of-text state after the projection",
    },
    "t5": {
        "mean": "mean of the encoder's last hidden states over all tokens, the end token among them"
    },
}
"""Layers of each kind of model; the first is the default."""

_KINDS = {"clip": "clip", "clip_text_model": "clip", "t5": "t5"}
_ARCHITECTURES = {
    "mean": "T5EncoderModel",
    "pooled": "CLIPTextModel",
    "projected": "CLIPTextModelWithProjection",
}
_TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "spiece.model")


class PretrainedText:
    """CLIP's text encoder or the encoder of a T5, loaded when the first text is encoded.

    Args:
        model: "clip", "t5", a folder as save_pretrained writes it, or a name on the hub.
        layer: One of `LAYERS` of the model's kind; the first by default.
        revision: Branch, tag or commit on the hub.
        batch_size: Texts per batch; changes the vectors by float rounding only.
        device: A torch device.
        progress: Shows progress in texts.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        layer: str | None = None,
        revision: str | None = None,
        batch_size: int = 64,
        device: torch.device | str = "cpu",
        progress: Progress = silent,
    ) -> None:
        self.pretrained = find_pretrained(
            model, models=TEXT_MODELS, kinds=_KINDS, layers=LAYERS, layer=layer, revision=revision
        )
        self.batch_size, self.device, self.progress = batch_size, str(device), progress

    def describe(self) -> dict[str, Any]:
        """Return model, revision and layer with its meaning."""
        source = self.pretrained
        return {
            "model": source.name,
            "revision": source.revision,
            "layer": source.layer,
            "layer_means": LAYERS[source.kind][source.layer],
        }

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of N texts, [N, W]; texts too long for the model raise DataError."""
        import torch

        different = list(dict.fromkeys(texts))  # equal texts have equal vectors
        model, rows = self._model, [np.zeros((0, self._width), np.float32)]
        with (
            torch.inference_mode(),
            self.progress(f"encoding with {self.pretrained.name}", total=len(different)) as advance,
        ):
            for first in range(0, len(different), self.batch_size):
                batch = different[first : first + self.batch_size]
                ids, mask = (tensor.to(self.device) for tensor in self._tokens(batch))
                output = model(input_ids=ids, attention_mask=mask)
                if self.pretrained.layer == "mean":
                    states = output.last_hidden_state  # [B, L, W]
                    weights = mask.unsqueeze(-1).to(states.dtype)  # [B, L, 1]
                    vectors = (states * weights).sum(dim=1) / weights.sum(dim=1)
                elif self.pretrained.layer == "projected":
                    vectors = output.text_embeds
                else:
                    vectors = output.pooler_output
                rows.append(vectors.float().cpu().numpy())  # [B, W]
                advance(len(batch))
        encoded = np.concatenate(rows)
        if len(texts):
            check_array(encoded, shape=encoded.shape, place=self.pretrained.place, rows="text")
        return encoded[[different.index(text) for text in texts]]

    @cached_property
    def _model(self) -> Any:
        architecture = _ARCHITECTURES[self.pretrained.layer]
        return load_weights(architecture, self.pretrained, device=self.device)

    @property
    def _width(self) -> int:
        names = {"mean": "d_model", "projected": "projection_dim", "pooled": "hidden_size"}
        return int(getattr(self._model.config, names[self.pretrained.layer]))

    @cached_property
    def _tokenizer(self) -> Any:
        folder, place = self.pretrained.folder, self.pretrained.place
        if not any((folder / name).exists() for name in _TOKENIZER_FILES):
            raise ConfigError(f"{place}: has no {' or '.join(_TOKENIZER_FILES)}. {COPY_AGAIN}")
        from transformers import AutoTokenizer

        fault = "its tokenizer could not be loaded"  # exceptions of many types
        again = explained(place, fault, COPY_AGAIN, Exception, error=ConfigError)
        with quiet_transformers(), again:
            tokenizer = AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        # a tokenizer of another model would give wrong vectors without an error
        token_count = self._model.get_input_embeddings().num_embeddings
        end = tokenizer.eos_token_id
        reads = self._model.config.eos_token_id
        fault = ""
        if len(tokenizer) > token_count or end is None or tokenizer.pad_token_id is None:
            fault = f"({len(tokenizer)} tokens) does not belong to its model ({token_count} tokens)"
        # old configurations say 2, which transformers reads as the highest id
        elif self.pretrained.kind == "clip" and reads not in (2, end):
            fault = f"ends texts with token {end}, but its model reads its vector at {reads}"
        if fault:
            raise ConfigError(f"{place}: its tokenizer {fault}. Copy the model again.")
        return tokenizer

    def _tokens(self, texts: list[str]) -> tuple[Any, Any]:
        """Return ids and mask of a batch, [B, L]; no text is cut."""
        import torch

        tokenizer = self._tokenizer
        # None for T5, whose positions are relative
        limit = getattr(self._model.config, "max_position_embeddings", None)
        with quiet_transformers():  # which would warn of long texts
            lists = tokenizer(texts, add_special_tokens=True, truncation=False)["input_ids"]
        for text, ids in zip(texts, lists, strict=True):
            if limit is not None and len(ids) > limit:
                fault = f"has {len(ids)} tokens; {self.pretrained.name} reads at most {limit}"
                raise DataError(f"'{text}': {fault}. Shorten the name.")
            if tokenizer.eos_token_id not in ids:
                fault = f"its tokenizer adds no end token. {COPY_AGAIN}"
                raise ConfigError(f"{self.pretrained.place}: {fault}")
        length = max(map(len, lists))
        padded = torch.full((len(lists), length), tokenizer.pad_token_id, dtype=torch.long)
        mask = torch.zeros(len(lists), length, dtype=torch.long)
        for row, ids in enumerate(lists):
            padded[row, : len(ids)] = torch.tensor(ids)
            mask[row, : len(ids)] = 1
        return padded, mask


class WordLlamaText:
    """WordLlama: the mean of 256 numbers a token, of tables that its package holds (MIT)."""

    def describe(self) -> dict[str, Any]:
        """Return model, version of the package, and layer with its meaning."""
        return {
            "model": "wordllama",
            "revision": version("wordllama"),
            "layer": "mean",
            "layer_means": "mean of the vectors of a text's tokens, not normalised",
        }

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of N texts, [N, 256]."""
        with needed_packages():
            return word_vectors(texts)


SHARED_LAYER = "projected"
"""Layer of CLIP whose vectors of pictures and of texts are in one space."""
_NAMES = 64  # names whose mean vector is taken


@dataclass(frozen=True)
class GoalTexts:
    """Encodes texts beside the observations of pictures.

    CLIP's pictures and texts are in separate regions of its space (Liang et al., Mind the Gap,
    2022), so the vector v of a text is moved by the difference of the means of both:
    v − mean vector of the names + mean observation.

    Raises:
        ConfigError: The encoder has no text tower in the space of its pictures.
    """

    encoder: PretrainedImages  # of the run's data set
    size: int  # E, features of an observation of the run
    mean: NDArray[np.float32] | None = None  # mean observation [E]; None to move no vector
    names: tuple[str, ...] = ()  # of tasks and actions of the run

    def __post_init__(self) -> None:
        source = self.encoder.pretrained
        if source.layer != SHARED_LAYER:
            raise ConfigError(
                f"{source.place}: texts are not in the space of its layer '{source.layer}'. Give "
                f"CLIP with the layer '{SHARED_LAYER}'.",
                setting="goal_text",
            )

    @cached_property
    def tower(self) -> PretrainedText:
        """The encoder of texts, whose weights are loaded for the first text."""
        folder = self.encoder.pretrained.folder
        return PretrainedText(folder, layer=SHARED_LAYER, device=self.encoder.device)

    @cached_property
    def _shift(self) -> NDArray[np.float32] | float:
        """What is added to vectors of texts [E]."""
        names = self.names[:: -(-len(self.names) // _NAMES) or 1]
        if self.mean is None or not names:
            return 0.0
        return self.mean - self._repeated(self.tower.encode(names).mean(axis=0))

    def observe(self, text: str) -> NDArray[np.float32]:
        """Return the observation [E] of a scene in words, as in "a folded tent".

        Raises:
            ConfigError: An empty text, or a model without a text tower.
            DataError: The text is too long.
        """
        if not text.strip():
            raise ConfigError(
                "an empty goal: expected words, as in 'a folded tent'.", setting="goal_text"
            )
        vector: NDArray[np.float32] = self._repeated(self.tower.encode([text])[0]) + self._shift
        return vector.astype(np.float32, copy=False)

    def _repeated(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """Repeat a vector [D] for each second of an observation [E]."""
        return np.tile(vector, repeats(self.size, len(vector), self.encoder.pretrained.name))
