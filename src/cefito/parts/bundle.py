"""A run as one file: a zip archive of the files for planning, read as untrusted input."""

from __future__ import annotations

import filecmp
import shutil
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from cefito.errors import RunError
from cefito.files import sha256, user_cache, write_atomic
from cefito.locks import new_folder
from cefito.parts.folder import MANIFEST, RUN_FILE, check_manifest

MAX_BYTES = 8 << 30
"""Largest run that is unpacked: 8 GiB."""
MAX_FILES = 64
_SUFFIXES = (".json", ".safetensors", ".md")
_BLOCK = 1 << 20
_BEGINNING = (1980, 1, 1, 0, 0, 0)  # one time for all, so that equal runs are equal archives
_REMEDY = "Get a file that cefito export made."


def pack(folder: Path, target: Path) -> None:
    """Write the files of a folder as an archive; equal files give equal bytes.

    An archive that exists must be the same: then its export is repeated after an interruption.
    """

    def fill(temporary: Path) -> None:
        # stored, not compressed: weights hardly shrink, and compressors differ between systems
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            for path in sorted(folder.iterdir()):
                info = zipfile.ZipInfo(path.name, _BEGINNING)
                info.create_system, info.external_attr = 3, 0o644 << 16
                with path.open("rb") as source, archive.open(info, "w", force_zip64=False) as sink:
                    shutil.copyfileobj(source, sink, _BLOCK)
        if target.exists() and not filecmp.cmp(temporary, target, shallow=False):
            raise RunError(f"{target}: exists already. Choose another name or remove it first.")

    write_atomic(target, fill)


def unpacked(path: Path) -> Path:
    """Return the folder in the cache of an archive, which is unpacked unless it was before."""
    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":
            raise RunError(f"{path}: is neither a run folder nor a zip archive. {_REMEDY}")
    folder = user_cache("runs") / sha256(path)[:32]
    if folder.exists():
        try:
            check_manifest(folder, (RUN_FILE,))
        except RunError:  # it was changed there
            shutil.rmtree(folder, ignore_errors=True)
        else:
            return folder
    _unpack(path, folder)
    return folder


def _unpack(path: Path, folder: Path) -> None:
    """Unpack an archive that `pack` made into a new folder.

    Only plain files of a run's kinds are accepted, outside of folders and not longer than
    declared, with a correct manifest.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = _members(path, archive)
            with new_folder(folder) as temporary:
                for member in members:  # zipfile compares size and checksum
                    target = temporary / member.filename
                    with archive.open(member) as source, target.open("wb") as sink:
                        shutil.copyfileobj(source, sink, _BLOCK)
        check_manifest(folder, (RUN_FILE,))
    except RunError as problem:
        shutil.rmtree(folder, ignore_errors=True)
        if str(folder) not in str(problem):
            raise
        reason = str(problem).replace(f"{folder}/", "")
        raise RunError(f"{path}: {reason}") from problem
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as problem:
        raise RunError(f"{path}: is truncated or damaged ({problem}). {_REMEDY}") from problem


def _members(path: Path, archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """The members of an archive, checked before anything is written."""
    members = archive.infolist()
    names = [member.filename for member in members]
    problem = next(
        (f"member {member.filename!r} is {bad}" for member in members if (bad := _bad(member))), ""
    )
    if MANIFEST not in names or RUN_FILE not in names:
        problem = problem or f"holds no run ({RUN_FILE} with {MANIFEST})"
    if len(set(names)) < len(names) or len(names) > MAX_FILES:
        problem = problem or f"holds a file twice, or more than {MAX_FILES}"
    claimed = sum(member.file_size for member in members)
    if claimed > MAX_BYTES:
        problem = problem or (
            f"claims to hold {claimed / 2**30:,.1f} GiB; at most {MAX_BYTES >> 30} GiB are unpacked"
        )
    if problem:
        raise RunError(f"{path}: {problem}. {_REMEDY}")
    return members


def _bad(member: zipfile.ZipInfo) -> str:
    """Return why a member is refused; empty if it is a plain file of a run."""
    name = member.filename
    plain = (
        name == PurePosixPath(name).name
        and not set(name) & {"\\", ":"}
        and not name.startswith(".")
        and name.endswith(_SUFFIXES)
        and (member.external_attr >> 28) in (0, 8)  # neither a link nor a device
    )
    return "encrypted" if member.flag_bits & 1 else "" if plain else "not a file of a run"
