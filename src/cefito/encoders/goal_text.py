"""Goals in words: texts as observations, by the text tower of the CLIP that encoded pictures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cefito.encoders.images import PretrainedImages, repeats
from cefito.encoders.text import PretrainedText
from cefito.errors import ConfigError

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
        found: NDArray[np.float32] = self._repeated(self.tower.encode([text])[0]) + self._shift
        return found.astype(np.float32, copy=False)

    def _repeated(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """Repeat a vector [D] for each second of an observation [E]."""
        return np.tile(vector, repeats(self.size, len(vector), self.encoder.pretrained.name))
