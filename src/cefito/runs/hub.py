"""Runs on a model hub, through `huggingface_hub` (the extra `hub`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from cefito.errors import ConfigError, RunError
from cefito.files import sha256
from cefito.runs.folder import MANIFEST, Manifest

HUB = "hub:"
"""Prefix of the name of a run on a hub."""
CARD = "README.md"
_OFFLINE = (
    "the hub cannot be reached ({problem}). Connect to the network, or give a folder or a zip file."
)
_NO_RUN = (
    f"holds no run of cefito there (no {MANIFEST}, or no such revision). Name a repository that "
    "cefito push made."
)
_NETWORK = ("httpx", "requests", "urllib3")  # of the library, which differ between its versions
_NAME = re.compile(r"hub:(\w[\w.-]*/\w[\w.-]*)(?:@(\w[\w./-]*))?")


@dataclass(frozen=True)
class Pushed:
    """A run that was uploaded: its address, commit and the SHA-256 of its manifest."""

    address: str
    revision: str
    sha256: str


def repository(place: str) -> tuple[str, str | None]:
    """Parse `hub:USER/NAME` or `hub:USER/NAME@REVISION` into repository and revision."""
    found = _NAME.fullmatch(place)
    if found is None:
        raise ConfigError(
            f"{place}: expected hub:USER/NAME, or hub:USER/NAME@REVISION for a branch, tag or "
            "commit."
        )
    return found[1], found[2]


def fetched(place: str) -> Path:
    """Fetch a run into the cache of `huggingface_hub`, and return its folder.

    The manifest is fetched first, then only the files that it lists.
    """
    name, revision = repository(place)
    hub = _library()
    with _errors(place, hub):
        api = hub.HfApi(library_name="cefito")
        found = api.hf_hub_download(name, MANIFEST, revision=revision)
        wanted = [*Manifest.read(Path(found)).files, MANIFEST, CARD]
        return Path(api.snapshot_download(name, revision=revision, allow_patterns=wanted))


def push_folder(folder: Path, place: str, *, private: bool = False) -> Pushed:
    """Upload a folder to a repository on a hub, made if absent."""
    name, revision = repository(place)
    hub = _library()
    with _errors(place, hub):
        api = hub.HfApi(library_name="cefito")
        api.create_repo(name, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=name,
            folder_path=folder,
            revision=revision,
            commit_message="A run of cefito",
            delete_patterns=["*.safetensors", "*.json"],  # of an earlier upload
        )
        return Pushed(str(commit), commit.oid, sha256(folder / MANIFEST))


def _library() -> ModuleType:
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError as problem:
        raise ConfigError(
            "runs on a hub need huggingface_hub, which is not installed. Install it: pip install "
            "'cefito[hub]'."
        ) from problem
    return huggingface_hub


@contextmanager
def _errors(place: str, hub: ModuleType) -> Iterator[None]:
    """Turn errors of a hub into one-line messages."""
    known, login = hub.errors, "Log in: hf auth login."
    messages = {
        known.GatedRepoError: f"access is restricted. Ask for it on the hub. {login}",
        known.RepositoryNotFoundError: (
            f"there is no such repository, or it is private. Correct the name. {login}"
        ),
        known.LocalEntryNotFoundError: _OFFLINE,
        known.EntryNotFoundError: _NO_RUN,
        known.RevisionNotFoundError: _NO_RUN,
        known.HfHubHTTPError: f"the hub refused (HTTP {{status}}). {login} Or try again later.",
        ValueError: "{problem}",
        OSError: _OFFLINE,
    }
    try:
        yield
    except Exception as problem:
        message = next((messages[kind] for kind in messages if isinstance(problem, kind)), None)
        if message is None and type(problem).__module__.startswith(_NETWORK):
            message = _OFFLINE
        if message is None:
            raise
        status = getattr(getattr(problem, "response", None), "status_code", None)
        raise RunError(f"{place}: {message.format(status=status, problem=problem)}") from problem
