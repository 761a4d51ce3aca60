"""Text embeddings of a data set's action names, from an encoder or from a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cefito.encoders.cache import CachedText
from cefito.encoders.text import PretrainedText, TextEncoder, read_embeddings
from cefito.errors import ConfigError
from cefito.files import sha256
from cefito.progress import Progress, silent


def embed_actions(
    names: Sequence[str],
    encoder: str = "clip",
    *,
    prompt: str | None = None,
    layer: str | None = None,
    normalise: bool = False,
    revision: str | None = None,
    cached: bool = True,
    cache: Path | str | None = None,
    batch_size: int = 64,
    device: str = "cpu",
    progress: Progress = silent,
) -> tuple[NDArray[np.float32], dict[str, Any]]:
    """Return embeddings of the names of all actions, row = action id.

    Equal names of different actions are encoded once and have equal embeddings.

    Args:
        names: Names in the order of the action ids, K of them.
        encoder: As for `PretrainedText`, or a .npy or .safetensors file of embeddings, which are
            used unchanged.
        prompt: Template of the encoded text, with "{action}" for the name; by default the name.
        layer: As for `PretrainedText`.
        normalise: Divide every embedding by its length.
        revision: Branch, tag or commit of a model on the hub.
        cached: Read and write embeddings in a cache.
        cache: Folder of the cache, instead of the platform's.
        batch_size: Names per batch.
        device: A torch device.
        progress: Shows progress in names.

    Returns:
        Embeddings [K, W], and all that determines them.
    """
    path = Path(encoder).expanduser()
    if path.suffix in (".npy", ".safetensors"):
        given = {"prompt": prompt, "layer": layer, "revision": revision, "normalise": normalise}
        for setting, value in given.items():
            if value not in (None, False):
                message = f"{encoder}: a file of embeddings is used unchanged. Leave out {setting}."
                raise ConfigError(message, setting=setting)
        vectors = read_embeddings(path, actions=len(names))
        made_with = dict.fromkeys(("layer", "prompt", "normalisation"), "as given")
        return vectors, {"model": path.name, "revision": f"sha256:{sha256(path)}", **made_with}
    chosen: TextEncoder = PretrainedText(
        encoder,
        layer=layer,
        prompt="{action}" if prompt is None else prompt,
        normalise=normalise,
        revision=revision,
        batch_size=batch_size,
        device=device,
        progress=progress,
    )
    if cached:
        chosen = CachedText(chosen, folder=None if cache is None else Path(cache))
    different = list(dict.fromkeys(names))
    vectors = chosen.encode(different)
    return vectors[[different.index(name) for name in names]], chosen.describe()
