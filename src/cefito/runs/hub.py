"""Runs on a model hub, through `huggingface_hub` (the extra `hub`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from cefito.errors import ConfigError, RunError
from cefito.runs.manifest import MANIFEST, read_manifest

__all__ = ["CARD", "HUB", "fetched", "push_folder", "repository"]

HUB = "hub:"
"""Prefix of the name of a run on a hub."""
CARD = "README.md"
_NAME = re.compile(r"hub:(\w[\w.-]*/\w[\w.-]*)(?:@(\w[\w./-]*))?")


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
        files = [*read_manifest(Path(found)).files, MANIFEST, CARD]
        return Path(api.snapshot_download(name, revision=revision, allow_patterns=files))


def push_folder(folder: Path, place: str, *, private: bool = False) -> str:
    """Upload a folder to a repository on a hub, made if absent; return its address."""
    name, revision = repository(place)
    hub = _library()
    with _errors(place, hub):
        api = hub.HfApi(library_name="cefito")
        api.create_repo(name, private=private, exist_ok=True)
        return str(
            api.upload_folder(
                repo_id=name,
                folder_path=folder,
                revision=revision,
                commit_message="A run of cefito",
                delete_patterns=["*.safetensors", "*.json"],  # of an earlier upload
            )
        )


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
    errors = hub.errors
    try:
        yield
    except errors.GatedRepoError as problem:
        raise RunError(
            f"{place}: access is restricted. Ask for it on the hub, and log in: hf auth login."
        ) from problem
    except errors.RepositoryNotFoundError as problem:
        raise RunError(
            f"{place}: there is no such repository, or it is private. Correct the name, or log in: "
            "hf auth login."
        ) from problem
    except errors.LocalEntryNotFoundError as problem:
        raise RunError(
            f"{place}: the hub cannot be reached, and nothing of it is in the cache. "
            "Connect to the network, or give a folder or a zip file."
        ) from problem
    except (errors.RevisionNotFoundError, errors.EntryNotFoundError) as problem:
        raise RunError(
            f"{place}: holds no run of cefito there (no {MANIFEST}, or no such revision). Name a "
            "repository that cefito push made."
        ) from problem
    except errors.HfHubHTTPError as problem:
        status = getattr(getattr(problem, "response", None), "status_code", None)
        remedy = "Log in: hf auth login." if status in (401, 403) else "Try again later."
        raise RunError(f"{place}: the hub refused (HTTP {status}). {remedy}") from problem
    except (errors.HFValidationError, ValueError) as problem:
        raise ConfigError(f"{place}: {problem}") from problem
    except Exception as problem:
        # the library's own ways to reach the network, which differ between its versions
        if not isinstance(problem, OSError) and not _is_of_network(problem):
            raise
        raise RunError(
            f"{place}: the hub cannot be reached ({problem}). Connect to the network, or give a "
            "folder or a zip file."
        ) from problem


def _is_of_network(problem: Exception) -> bool:
    return type(problem).__module__.startswith(("httpx", "requests", "urllib3"))
