"""Models that others trained, from a folder or the Hugging Face hub.

They are loaded whole or not at all.

A model from the hub is a folder too, once its files are fetched; everything is loaded from folders.
Weights are read from safetensors, or where a model has none from a torch file with `weights_only`;
code of a model is never run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cefito.errors import ConfigError
from cefito.files import read_json, sha256

__all__ = [
    "PREPARATION_FILES",
    "Pretrained",
    "choose",
    "find_pretrained",
    "kind_of",
    "load_weights",
    "missing_package",
    "quiet_transformers",
    "weights_digest",
]

PREPARATION_FILES = ("preprocessor_config.json", "processor_config.json")
"""Files that say how pictures are prepared; the first that there is counts."""
_SMALL = ("*.json", "*.txt", "*.model")
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


@dataclass(frozen=True)
class Pretrained:
    """A model's files.

    Attributes:
        name: Name on the hub, or of the folder.
        folder: Where the files lie.
        revision: Commit on the hub, or "sha256:" and a digest of the files in a local folder: equal
            names and revisions mean equal vectors.
        config: Content of its config.json.
    """

    name: str
    folder: Path
    revision: str
    config: dict[str, Any]

    @property
    def kind(self) -> str:
        """Type of the model, as its config.json says ("clip", "t5", "dinov2")."""
        return str(self.config.get("model_type"))

    @property
    def place(self) -> str:
        """What messages call it: the folder of a local model, the name of one from the hub."""
        return str(self.folder) if self.revision.startswith("sha256:") else self.name


def find_pretrained(
    model: str | Path, *, known: dict[str, str], revision: str | None = None
) -> Pretrained:
    """Find a model's files, in a folder or on the hub.

    From the hub they are fetched once; without a connection, those fetched before are taken.

    Args:
        model: A key of `known`, a folder, or a name on the hub ("openai/clip-vit-large-patch14").
        known: Names on the hub by short name.
        revision: Branch, tag or commit on the hub; its main branch by default.

    Raises:
        ConfigError: No such folder, no model in it, the hub cannot be reached or has no such model.
    """
    name = known.get(str(model), str(model))
    folder = Path(model).expanduser()
    if str(model) not in known and folder.exists():
        if revision is not None:
            raise ConfigError(
                f"revision '{revision}': {model} is a folder, which has no revisions. Leave it "
                "out.",
                setting="revision",
            )
        if not folder.is_dir():
            raise ConfigError(
                f"{model}: is a file. Give the folder of a model, as save_pretrained of "
                "transformers writes it."
            )
        return Pretrained(
            name=folder.resolve().name,
            folder=folder,
            revision=f"sha256:{_digest(folder)}",
            config=_config(folder),
        )
    if not _HUB_NAME.fullmatch(name):
        raise ConfigError(
            f"{model}: no such folder, and no name of a model. Give one of {', '.join(known)}, the "
            "folder of a model, or its name on the Hugging Face hub (OWNER/MODEL)."
        )
    folder = _fetch(
        name, revision, other="" if str(model) in known else "no such folder here, and it "
    )
    return Pretrained(name=name, folder=folder, revision=folder.name, config=_config(folder))


def _config(folder: Path) -> dict[str, Any]:
    value = read_json(
        folder / "config.json",
        "Give the folder of a model, as save_pretrained of transformers writes it.",
        ConfigError,
    )
    if not isinstance(value, dict):
        raise ConfigError(
            f"{folder / 'config.json'}: is no model's configuration. Copy the model again."
        )
    return value


def _digest(folder: Path) -> str:
    """One hash over the files that decide a model's vectors."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in (*_SMALL, *_WEIGHTS) for path in folder.glob(pattern)):
        digest.update(f"{path.name} {sha256(path)}\n".encode())
    return digest.hexdigest()


def weights_digest(folder: Path) -> str:
    """One hash over what a picture's vector depends on.

    That is the weights and the description of how pictures are prepared.

    Equal for a snapshot from the hub and a copy of it, whatever other files lie beside.
    """
    digest = hashlib.sha256()
    weights = next(
        (found for found in (sorted(folder.glob(pattern)) for pattern in _WEIGHTS) if found), []
    )
    for path in (*(folder / name for name in PREPARATION_FILES), *weights):
        if path.exists():
            digest.update(f"{path.name} {sha256(path)}\n".encode())
    return digest.hexdigest()


def _fetch(name: str, revision: str | None, *, other: str) -> Path:
    """Folder of a snapshot, named by its commit.

    `other` is what else the message says of the name.
    """
    try:
        from huggingface_hub import snapshot_download
    except ImportError as problem:
        raise missing_package(problem) from problem
    try:
        for weights in _WEIGHTS:  # the second only where there is none of the first
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
    except Exception as problem:
        # the client's own errors, those of its HTTP library, and of the disk
        what = " ".join(str(problem).split())[:200]
        raise ConfigError(
            f"{name}{'@' + revision if revision else ''}: {other}could not be fetched from the "
            f"Hugging Face hub ({type(problem).__name__}: {what}). Where there is a connection, "
            f"run: hf download {name} --local-dir FOLDER; then copy FOLDER here and give it in "
            "place of the name."
        ) from problem
    return folder


def load_weights(architecture: str, pretrained: Pretrained, *, device: str) -> Any:
    """Load a model of transformers in single precision, ready to encode.

    Args:
        architecture: Name of its class.
        pretrained: Its files.
        device: A torch device.

    Raises:
        ConfigError: Transformers is not installed; weights are missing or of other shapes,
            truncated, or pickled.
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
        except Exception as problem:
            # of transformers, safetensors, torch and pickle, of many types
            raise ConfigError(
                f"{pretrained.place}: no {architecture} could be loaded ({type(problem).__name__}: "
                f"{' '.join(str(problem).split())[:200]}). Copy the model again."
            ) from problem
    if report["missing_keys"]:
        names = sorted(report["missing_keys"])
        raise ConfigError(
            f"{pretrained.place}: its weights lack {len(names)} tensors that {architecture} needs, "
            f"the first is {names[0]}. Give a folder that holds the whole model."
        )
    # some are stored in half precision
    return model.float().eval().requires_grad_(False).to(device)


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep transformers from writing reports and bars about loading.

    What is wrong is raised instead.
    """
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


def kind_of(pretrained: Pretrained, kinds: dict[str, str], what: str) -> str:
    """The kind of a model among those that are known, by the type that its config.json states.

    Raises:
        ConfigError: It is none of them.
    """
    if pretrained.kind not in kinds:
        raise ConfigError(
            f"{pretrained.place}: is a model of type '{pretrained.kind}'; {what} is one of "
            f"{', '.join(dict.fromkeys(kinds.values()))}. Give another model."
        )
    return kinds[pretrained.kind]


def choose(value: str | None, choices: Sequence[str], *, what: str, place: str) -> str:
    """`value`, or the first choice where it is None.

    Raises:
        ConfigError: It is not one of the choices.
    """
    if value is None:
        return choices[0]
    if value not in choices:
        raise ConfigError(
            f"{what} '{value}': {place} has {', '.join(choices)}. Choose one of these."
        )
    return value


def missing_package(problem: ImportError) -> ConfigError:
    """The error that names the extra in which a package is."""
    package = problem.name or "transformers"
    return ConfigError(
        f"encoders need the package {package}, which is not installed or cannot be loaded "
        f"({problem}). Install it: pip install cefito[text]"
    )
