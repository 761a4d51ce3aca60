"""Pretrained models from a folder or the Hugging Face hub, loaded completely or not at all.

Weights are safetensors or else torch files, read as weights only; code of a model is never run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cefito.errors import ConfigError, explained, install_command
from cefito.files import check_regular, read_json, sha256

PREPARATION_FILES = ("preprocessor_config.json", "processor_config.json")
"""Files that describe how pictures are prepared; the first one found counts."""
COPY_AGAIN = "Copy the model again."
_SMALL = ("*.json", "*.txt", "*.model")
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


@dataclass(frozen=True)
class Pretrained:
    """The files of a model and the layer to read; equal names and revisions: equal vectors."""

    name: str  # on the hub, or of the folder
    folder: Path
    revision: str  # commit on the hub, or "sha256:" and a digest of the files of a local folder
    kind: str  # "clip", "t5" or "dinov2"
    layer: str

    @property
    def place(self) -> str:
        """Its name in messages: the folder of a local model, the hub's name otherwise."""
        return str(self.folder) if self.revision.startswith("sha256:") else self.name


def find_pretrained(
    model: str | Path,
    *,
    models: Mapping[str, str],
    kinds: Mapping[str, str],
    layers: Mapping[str, Mapping[str, str]],
    layer: str | None = None,
    revision: str | None = None,
) -> Pretrained:
    """Find a model's files, in a folder or on the hub, whose files are fetched once (ConfigError).

    Args:
        model: A key of `models`, a folder, or a name on the hub.
        models: Names on the hub by short name.
        kinds: Kinds of models by the `model_type` of config.json.
        layers: Descriptions of the layers of each kind, the default first.
        layer: Layer that gives the vectors.
        revision: Branch, tag or commit on the hub.
    """
    short, path = str(model), Path(model).expanduser()
    name = models.get(short, short)
    local = short not in models and path.exists()
    if local:
        if revision is not None:
            message = f"revision '{revision}': {model} is a folder, without revisions."
            raise ConfigError(message, setting="revision")
        folder, name = path, path.resolve().name
    elif _HUB_NAME.fullmatch(name):
        folder = _fetch(name, revision, "" if short in models else "no such folder here, and it ")
    else:
        remedy = f"Give one of {', '.join(models)}, a folder, or OWNER/MODEL of the hub."
        raise ConfigError(f"{model}: no such folder, and not a name of a model. {remedy}")
    remedy = "Give the folder of a model, as save_pretrained of transformers writes it."
    config = read_json(folder / "config.json", remedy, ConfigError)
    kind = str(config.get("model_type")) if isinstance(config, dict) else ""
    place = str(folder) if local else name
    if kind not in kinds:
        expected = ", ".join(dict.fromkeys(kinds.values()))
        raise ConfigError(f"{place}: is a model of type '{kind}'; expected one of {expected}.")
    choices = layers[kinds[kind]]
    layer = next(iter(choices)) if layer is None else layer
    if layer not in choices:
        raise ConfigError(f"layer '{layer}': {place} has {', '.join(choices)}. Choose one.")
    files = sorted(path for pattern in (*_SMALL, *_WEIGHTS) for path in folder.glob(pattern))
    revision = f"sha256:{_digest(files)}" if local else folder.name
    return Pretrained(name, folder, revision, kinds[kind], layer)


def _digest(paths: Iterable[Path]) -> str:
    """Return one hash over the names and contents of files."""
    digest = hashlib.sha256()
    for path in paths:
        check_regular(path)
        digest.update(f"{path.name} {sha256(path)}\n".encode())
    return digest.hexdigest()


def weights_digest(folder: Path) -> str:
    """Return one hash over all that a picture's vector depends on: weights and preparation."""
    candidates = (sorted(folder.glob(pattern)) for pattern in _WEIGHTS)
    weights = next((paths for paths in candidates if paths), [])
    preparation = (folder / name for name in PREPARATION_FILES)
    return _digest(path for path in (*preparation, *weights) if path.exists())


def _fetch(name: str, revision: str | None, note: str) -> Path:
    """Return the folder of a snapshot from the hub, which is named by its commit."""
    with needed_packages():
        from huggingface_hub import snapshot_download
    place = f"{name}@{revision}" if revision else name
    fault = f"{note}could not be fetched from the Hugging Face hub"
    remedy = f"Run hf download {name} --local-dir FOLDER elsewhere; then give a copy of FOLDER."
    # exceptions of the client, its HTTP library, and the disk
    with explained(place, fault, remedy, Exception, error=ConfigError):
        for weights in _WEIGHTS:  # torch files only if there are no safetensors
            wanted = [*_SMALL, weights]
            folder = Path(
                snapshot_download(
                    name, revision=revision, allow_patterns=wanted, ignore_patterns=["*/*"]
                )
            )
            if any(folder.glob(weights)):
                break
    return folder


def load_weights(architecture: str, pretrained: Pretrained, *, device: str) -> Any:
    """Load a model of transformers, by the name of its class, in single precision to evaluate.

    Args:
        architecture: Name of the class.
        pretrained: Model and its files.
        device: A torch device.
    """
    with needed_packages():
        import transformers
    fault = f"no {architecture} could be loaded"
    # exceptions of transformers, safetensors, torch and pickle
    again = explained(pretrained.place, fault, COPY_AGAIN, Exception, error=ConfigError)
    with quiet_transformers(), again:
        model, report = getattr(transformers, architecture).from_pretrained(
            pretrained.folder,
            local_files_only=True,
            trust_remote_code=False,
            weights_only=True,
            output_loading_info=True,
        )
    if names := sorted(report["missing_keys"]):
        fault = f"lacks {len(names)} tensors of {architecture}, the first is {names[0]}"
        raise ConfigError(f"{pretrained.place}: {fault}. {COPY_AGAIN}")
    # some models are stored in half precision
    return model.float().eval().requires_grad_(False).to(device)


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep transformers from writing reports and progress bars; errors are raised instead."""
    import transformers

    logging: Any = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def needed_packages() -> AbstractContextManager[None]:
    """Name the extra that holds the packages imported inside, if one is missing."""
    install = f"Run: {install_command('text')}"
    fault = "need a package that cannot be loaded"
    return explained("encoders", fault, install, ImportError, error=ConfigError)
