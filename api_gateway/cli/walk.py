"""Which files a list of paths means, and the key of each.

A key is the file's absolute path, so the same file has the same key from whichever folder and through whichever
argument it was found, and two files never share one. With a root, keys are relative to it: then a knowledge base
can be filled from several machines.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class FoundFile:
    path: Path
    key: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """A path that was not sent, and why. `failure` is False for what we leave out on purpose."""

    path: str
    code: str
    reason: str
    failure: bool = True


def find_files(paths: Sequence[Path], root: Path | None, max_bytes: int) -> Iterator[FoundFile | Skipped]:
    """Each file once, folders recursively in the order of names.

    Hidden entries of a folder are left out without a word. Links to files are followed; links to folders are not,
    so that no loop can catch us, and are reported. Raises InvalidInputError for a path outside `root`.
    """
    base = None if root is None else Path(os.path.realpath(root))
    seen: set[Path] = set()
    for path in paths:
        for found in _visit(_absolute(path)):
            if isinstance(found, Skipped):
                yield found
            elif found not in seen:
                seen.add(found)
                yield _check(found, _key(found, base), max_bytes)


def _absolute(path: Path) -> Path:
    """The folder with its links resolved, the name as given: a link to a file keeps its own name."""
    given = path.expanduser()
    return Path(os.path.realpath(given)) if given.is_dir() else Path(os.path.realpath(given.parent)) / given.name


def _visit(path: Path) -> Iterator[Path | Skipped]:
    if not path.is_dir():
        yield path
        return
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except OSError as error:
        yield Skipped(shown(path), "unreadable_folder", f"the folder can't be read: {error.strerror}")
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if _leads_to_folder(entry):
            reason = "a link to a folder is not followed: name it as a PATH to send what is in it"
            yield Skipped(shown(Path(entry.path)), "linked_folder", reason, failure=False)
        else:
            yield from _visit(Path(entry.path))


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
    """A link that leads in a circle leads nowhere; reading it says so."""
    try:
        return entry.is_symlink() and entry.is_dir()
    except OSError:
        return False


def _check(path: Path, key: str, max_bytes: int) -> FoundFile | Skipped:
    try:
        facts = path.stat()
    except OSError as error:
        return unreadable(path, error)
    if not stat.S_ISREG(facts.st_mode):
        return Skipped(shown(path), "not_a_file", "it is a device, pipe or socket")
    if facts.st_size > max_bytes:
        reason = f"{facts.st_size} bytes, over the limit of {max_bytes} (SOURCEMILL_MAX_FILE_BYTES)"
        return Skipped(shown(path), "too_large", reason)
    return FoundFile(path, key, facts.st_size)


def unreadable(path: Path, error: OSError) -> Skipped:
    """Also for a file that vanished after we found it."""
    code = "missing_file" if isinstance(error, FileNotFoundError) else "unreadable_file"
    return Skipped(shown(path), code, f"the file can't be read: {error.strerror}")


def _key(path: Path, base: Path | None) -> str:
    if base is None:
        return shown(path)
    if not path.is_relative_to(base):
        raise InvalidInputError(f"{shown(path)} is not inside the root {shown(base)}.")
    return shown(path.relative_to(base))


def shown(path: Path) -> str:
    """A path as text with `/`. Bytes that are not UTF-8 appear as escapes, always the same way."""
    return os.fsencode(path.as_posix()).decode("utf-8", errors="backslashreplace")
