"""Pretrained models from a folder or the Hugging Face hub, loaded completely or not at all.

Models from the hub are fetched into a folder first; everything is loaded from folders. Weights are
read from safetensors, or if a model has none from a torch file with `weights_only`; code of a model
is never run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cefito.errors import ConfigError
from cefito.files import read_json, sha256

__all__ = [
    "PREPARATION_FILES",
    "Pretrained",
    "find_pretrained",
    "load_weights",
    "missing_package",
    "quiet_transformers",
    "short_reason",
    "weights_digest",
]

PREPARATION_FILES = ("preprocessor_config.json", "processor_config.json")
"""Files that describe how pictures are prepared; the first one found counts."""
_SMALL = ("*.json", "*.txt", "*.model")
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


@dataclass(frozen=True)
class Pretrained:
    """The files of a model and the layer to read.

    Attributes:
        name: Name on the hub, or of the folder.
        folder: Folder of the files.
        revision: Commit on the hub, or "sha256:" and a digest of the files in a local folder: equal
            names and revisions mean equal vectors.
        kind: Kind of the model ("clip", "t5", "dinov2").
        layer: Layer whose vectors are read.
    """

    name: str
    folder: Path
    revision: str
    kind: str
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
    """Find a model's files, in a folder or on the hub.

    Files of the hub are fetched once; without a connection, earlier fetched ones are used.

    Args:
        model: A key of `models`, a folder, or a name on the hub ("openai/clip-vit-large-patch14").
        models: Names on the hub by short name.
        kinds: Supported kinds by the `model_type` of config.json.
        layers: Layers of each kind with their descriptions; the first is the default.
        layer: The layer to read.
        revision: Branch, tag or commit on the hub; its main branch by default.

    Raises:
        ConfigError: No such folder, no model in it, the hub cannot be reached or has no such model,
            a model of another kind, or an unknown layer.
    """
    short, path = str(model), Path(model).expanduser()
    name = models.get(short, short)
    local = short not in models and path.exists()
    if local:
        if revision is not None:
            raise ConfigError(
                f"revision '{revision}': {model} is a folder, which has no revisions. Leave it "
                "out.",
                setting="revision",
            )
        folder, name = path, path.resolve().name
    elif _HUB_NAME.fullmatch(name):
        folder = _fetch(name, revision, "" if short in models else "no such folder here, and it ")
    else:
        raise ConfigError(
            f"{model}: no such folder, and not a name of a model. Give one of {', '.join(models)}, "
            "the folder of a model, or its name on the Hugging Face hub (OWNER/MODEL)."
        )
    config = read_json(
        folder / "config.json",
        "Give the folder of a model, as save_pretrained of transformers writes it.",
        ConfigError,
    )
    kind = str(config.get("model_type")) if isinstance(config, dict) else ""
    place = str(folder) if local else name
    if kind not in kinds:
        raise ConfigError(
            f"{place}: is a model of type '{kind}'; expected one of "
            f"{', '.join(dict.fromkeys(kinds.values()))}. Give another model."
        )
    choices = layers[kinds[kind]]
    layer = next(iter(choices)) if layer is None else layer
    if layer not in choices:
        raise ConfigError(
            f"layer '{layer}': {place} has {', '.join(choices)}. Choose one of these."
        )
    files = sorted(path for pattern in (*_SMALL, *_WEIGHTS) for path in folder.glob(pattern))
    revision = f"sha256:{_digest(files)}" if local else folder.name
    return Pretrained(name, folder, revision, kinds[kind], layer)


def _digest(paths: Iterable[Path]) -> str:
    """Return one hash over the names and contents of files."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.name} {sha256(path)}\n".encode())
    return digest.hexdigest()


def weights_digest(folder: Path) -> str:
    """Return one hash over all that a picture's vector depends on: weights and preparation.

    It is equal for a snapshot from the hub and a copy of it, whatever other files the folder has.
    """
    found = (sorted(folder.glob(pattern)) for pattern in _WEIGHTS)
    weights = next((paths for paths in found if paths), [])
    preparation = (folder / name for name in PREPARATION_FILES)
    return _digest(path for path in (*preparation, *weights) if path.exists())


def _fetch(name: str, revision: str | None, note: str) -> Path:
    """Return the folder of a snapshot from the hub, which is named by its commit."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError as problem:
        raise missing_package(problem) from problem
    try:
        for weights in _WEIGHTS:  # torch files only if there are no safetensors
            folder = Path(
                snapshot_download(
                    name,
                    revision=revision,
                    allow_patterns=[*_SMALL, weights],
                    ignore_patterns=["*/*"],
                )
            )
            if any(folder.glob(weights)):
                break
    except Exception as problem:  # of the client, its HTTP library, and the disk
        raise ConfigError(
            f"{name}{'@' + revision if revision else ''}: {note}could not be fetched from the "
            f"Hugging Face hub ({short_reason(problem)}). On a machine with a connection, "
            f"run: hf download {name} --local-dir FOLDER; then copy FOLDER here and give it "
            "instead of the name."
        ) from problem
    return folder


def load_weights(architecture: str, pretrained: Pretrained, *, device: str) -> Any:
    """Load a model of transformers, by the name of its class, in single precision for evaluation.

    Raises:
        ConfigError: Transformers is not installed; weights are missing, of other shapes, truncated,
            or pickled.
    """
    try:
        import transformers
    except ImportError as problem:
        raise missing_package(problem) from problem
    with quiet_transformers():
        try:
            model, report = getattr(transformers, architecture).from_pretrained(
                pretrained.folder,
                local_files_only=True,
                trust_remote_code=False,
                weights_only=True,
                output_loading_info=True,
            )
        except Exception as problem:  # of transformers, safetensors, torch and pickle
            raise ConfigError(
                f"{pretrained.place}: no {architecture} could be loaded "
                f"({short_reason(problem)}). Copy the model again."
            ) from problem
    if report["missing_keys"]:
        names = sorted(report["missing_keys"])
        raise ConfigError(
            f"{pretrained.place}: its weights lack {len(names)} tensors that {architecture} needs, "
            f"the first is {names[0]}. Give a folder that holds the whole model."
        )
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


def short_reason(problem: Exception) -> str:
    """Return an error of a library in one short line."""
    return f"{type(problem).__name__}: {' '.join(str(problem).split())[:200]}"


def missing_package(problem: ImportError) -> ConfigError:
    """Return the error that names the extra that contains a package."""
    package = problem.name or "transformers"
    return ConfigError(
        f"encoders need the package {package}, which is not installed or cannot be loaded "
        f"({problem}). Install it: pip install cefito[text]"
    )
