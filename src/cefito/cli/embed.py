"""`cefito embed`: a data set with text embeddings of its actions' names."""

from __future__ import annotations

from pathlib import Path

from cefito.cli.console import passing_progress, table, wrote
from cefito.cli.options import Flag

__all__ = ["embed"]

_HIDDEN = ("suffix", "dataset", "fingerprint", "cefito")  # provenance of the data set


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
    batch_size: int = 64,
    device: str = "auto",
) -> None:
    """Write a copy of a data set with text embeddings of its actions' names.

    Fields with the setting field.action_encoding = "text" use them.

    Args:
        dataset: Folder of a prepared data set.
        out: Folder to write, empty or new.
        encoder: clip (the paper's, ViT-B/32), t5 (Flan-T5-base), the folder of a CLIP or T5 model,
            its name on the Hugging Face hub (OWNER/MODEL), or a .npy or .safetensors file of
            embeddings, row = action id.
        prompt: Template of the encoded text, with {action} for the name; by default the name.
        layer: pooled (CLIP, before its projection: the default), projected (CLIP, after it), mean
            (T5, over the tokens).
        normalise: Divide every embedding by its length.
        revision: Branch, tag or commit of a model on the hub.
        batch_size: Names per batch.
        device: auto, cpu, cuda, or mps on a Mac.
    """
    from functools import partial

    from cefito.data.action_text import with_action_text
    from cefito.data.prepared import open_dataset
    from cefito.encoders.text import embed_actions
    from cefito.runtime import pick_device

    embedding = partial(
        embed_actions,
        encoder=encoder,
        prompt=prompt,
        layer=layer,
        normalise=normalise,
        revision=revision,
        batch_size=batch_size,
        device=str(pick_device(device, float64=False)),
        progress=passing_progress,
    )
    written = with_action_text(open_dataset(dataset), out, embedding)
    text, made_with = written.action_text, written.provenance["action_text"]
    assert text is not None
    shown = {name: value for name, value in made_with.items() if name not in _HIDDEN}
    rows = [*shown.items(), ("actions", len(text)), ("size", text.shape[1])]
    table("Action text", ("what", "value"), rows)
    wrote(out, written)
