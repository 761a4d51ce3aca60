"""Cache of text embeddings: a folder with one safetensors file per encoder description.

It holds one vector per text under the text's digest, and may be deleted.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cefito.errors import ConfigError, explained
from cefito.files import load_tensors, write_tensors


def default_cache() -> Path:
    """Return cefito's text folder in the platform's folder for caches."""
    home = Path.home()
    if sys.platform == "darwin":
        base = home / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return base / "cefito" / "text"


class TextEncoder(Protocol):
    """Turns texts into vectors."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of N texts, [N, W]."""

    def describe(self) -> dict[str, Any]:
        """Return all that determines the vectors, as plain values for JSON."""


class CachedText:
    """A text encoder that passes only new texts to another encoder.

    The cache key of a vector is the text and the encoder's description. The device and the batch of
    the first computation change a vector by float rounding only. A damaged file is replaced.
    """

    def __init__(self, encoder: TextEncoder, *, folder: Path | None = None) -> None:
        self.encoder = encoder
        self.folder = default_cache() if folder is None else Path(folder)

    def describe(self) -> dict[str, Any]:
        """Return the other encoder's description."""
        return self.encoder.describe()

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts, [N, W]."""
        if not texts:
            return self.encoder.encode(texts)
        fault, remedy = "the cache cannot be made", "Choose another folder."
        with explained(self.folder, fault, remedy, error=ConfigError, setting="cache"):
            self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path
        keys = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
        stored = _read(path)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in stored}
        if missing:
            rows = self.encoder.encode(list(missing.values()))
            stored |= dict(zip(missing, rows, strict=True))
            # read again: another process may have added some meanwhile
            write_tensors(path, _read(path) | stored)
        return np.stack([stored[key] for key in keys])

    @property
    def path(self) -> Path:
        """The file of this encoder's vectors."""
        description = json.dumps(self.encoder.describe(), sort_keys=True)
        return self.folder / f"{hashlib.sha256(description.encode()).hexdigest()}.safetensors"


def _read(path: Path) -> dict[str, NDArray[np.float32]]:
    if not path.exists():
        return {}
    try:
        stored, _ = load_tensors(path, "np", "It is made again.", ConfigError)
    except ConfigError as problem:
        logging.getLogger(__name__).warning("%s", problem)
        return {}
    valid = all(row.dtype == np.float32 and np.isfinite(row).all() for row in stored.values())
    return stored if valid and len({row.shape for row in stored.values()}) == 1 else {}
