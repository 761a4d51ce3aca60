"""`cefito embed`: a data set with text embeddings of its actions' names."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from cyclopts import Parameter
from numpy.typing import NDArray

from cefito.cli.console import passing_progress, table, talk
from cefito.errors import ConfigError, DataError

if TYPE_CHECKING:
    from cefito.data.prepared import PreparedDataset
    from cefito.encoders.text import TextEncoder

__all__ = ["embed"]

Flag = Annotated[bool, Parameter(negative="")]
_FILES = (".npy", ".safetensors")


def embed(
    dataset: Path,
    /,
    *,
    out: Path,
    encoder: str = "clip",
    prompt: str | None = None,
    layer: str | None = None,
    normalise: Flag = False,
    revision: str | None = None,
    cache: Path | None = None,
    no_cache: Flag = False,
    batch_size: int = 64,
    device: str = "auto",
) -> None:
    """Write a data set anew with text embeddings of its actions' names.

    For field.action_encoding = "text".

    Args:
        dataset: Folder of a prepared data set.
        out: Folder to write, which must not hold anything yet.
        encoder: clip (the paper's, ViT-B/32), t5 (Flan-T5-base), the folder of a CLIP or T5 model,
            its name on the Hugging Face hub (OWNER/MODEL), or a .npy or .safetensors file of
            embeddings, row = action id.
        prompt: What is encoded for a name; {action} stands for it. By default the bare name.
        layer: pooled (CLIP, before its projection: the default), projected (CLIP, after it), mean
            (T5, over the tokens).
        normalise: Divide every embedding by its length.
        revision: Branch, tag or commit of a model on the hub.
        cache: Folder that keeps embeddings, instead of the platform's.
        no_cache: Neither read nor write embeddings in a cache.
        batch_size: Names encoded at once.
        device: auto, cpu or cuda.
    """
    from cefito.data.prepared import open_dataset

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"{out}: exists already. Choose another folder or remove it first.")
    source = open_dataset(dataset)
    path = Path(encoder).expanduser()
    if path.suffix in _FILES:
        if prompt is not None or layer is not None or revision is not None or normalise:
            raise ConfigError(
                f"{encoder}: is a file of embeddings, which are taken as they are; --prompt, "
                "--layer, --revision and --normalise do not go with it. Leave them out."
            )
        text, description = _from_file(path, actions=len(source.taxonomy.actions))
    else:
        from cefito.encoders.cache import CachedText
        from cefito.encoders.text import PretrainedText
        from cefito.runtime import pick_device

        chosen: TextEncoder = PretrainedText(
            encoder,
            layer=layer,
            prompt="{action}" if prompt is None else prompt,
            normalise=normalise,
            revision=revision,
            batch_size=batch_size,
            device=str(pick_device(device)),
            progress=passing_progress,
        )
        if not no_cache:
            chosen = CachedText(chosen, folder=cache)
        names = [action.name for action in source.taxonomy.actions]
        different = list(
            dict.fromkeys(names)
        )  # equal names of different actions have one embedding
        vectors = chosen.encode(different)
        text = vectors[[different.index(name) for name in names]]
        description = chosen.describe()
    written = _write(source, out, text, description)
    table(
        "Action text",
        ("what", "value"),
        [*description.items(), ("actions", len(text)), ("size", text.shape[1])],
    )
    talk(f"wrote {out}: {written.name}, fingerprint {written.fingerprint[:12]}")


def _from_file(path: Path, *, actions: int) -> tuple[NDArray[np.float32], dict[str, Any]]:
    from cefito.encoders.text import read_embeddings
    from cefito.files import sha256

    text = read_embeddings(path, actions=actions)
    return text, {
        "model": path.name,
        "revision": f"sha256:{sha256(path)}",
        "layer": "as given",
        "prompt": "as given",
        "normalisation": "as given",
    }


def _write(
    source: PreparedDataset, out: Path, text: NDArray[np.float32], description: dict[str, Any]
) -> PreparedDataset:
    """Write the data set with other action text.

    Its name tells the model and layer instead of those it had before.
    """
    from cefito.data.prepared import write_dataset

    suffix = (
        "-"
        + description["model"].rsplit("/", 1)[-1]
        + ("" if description["layer"] == "as given" else f"-{description['layer']}")
    )
    before = source.provenance.get("action_text", {})
    name = (
        source.name.removesuffix(before.get("suffix", ""))
        if isinstance(before, dict)
        else source.name
    )
    return write_dataset(
        out,
        name=name + suffix,
        annotations=source.annotations,
        start=source.start,
        end=source.end,
        action_text=text,
        provenance={
            **source.provenance,
            "action_text": {
                **description,
                "suffix": suffix,
                "dataset": source.name,
                "fingerprint": source.fingerprint,
                "cefito": version("cefito"),
            },
        },
    )
