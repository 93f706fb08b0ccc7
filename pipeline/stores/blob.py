"""BlobStore on obstore: a folder (`file:///…`), and with the same code S3, GCS and Azure.

A blob's place is `{first two hex digits of SHA-256(area)}/{area}/{blob id}`, so no folder gets a million
entries and an area is one prefix. Writes are atomic: obstore writes beside the place and renames.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import LocalStore, ObjectStore, from_url

from pipeline.errors import (
    ConfigurationError,
    InvalidInputError,
    NotFoundError,
    PermanentError,
    StoreUnavailableError,
    TransientError,
)

_AREA = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_BLOB_ID = re.compile(r"[0-9a-f]{64}")
_READ_BYTES = 4 << 20


class ObstoreBlobStore:
    """Takes a store URL, or an obstore store that is already open.

    Raises ConfigurationError for a URL that can't be opened or refused credentials, TransientError with code
    `disk_full` when the disk is, InvalidInputError for an area or id that is none, and PermanentError with code
    `corrupt_blob` when stored bytes do not have their id's hash.
    """

    def __init__(self, store: str | ObjectStore) -> None:
        self._store = _open(store) if isinstance(store, str) else store
        self._folder = self._store.prefix if isinstance(self._store, LocalStore) else None

    def put(self, area: str, data: bytes) -> str:
        blob_id = hashlib.sha256(data).hexdigest()
        place = _place(area, blob_id)
        with self._errors(place):
            if not self._has(place, len(data)):
                obstore.put(self._store, place, data)
        return blob_id

    def put_file(self, area: str, path: Path) -> str:
        """Raises NotFoundError without the file, TransientError when it changes while it is read."""
        blob_id, size = _measure(path)
        place = _place(area, blob_id)
        with self._errors(place):
            if not self._has(place, size):
                obstore.put(self._store, place, _unchanged(path, blob_id))
        return blob_id

    def get(self, area: str, blob_id: str) -> bytes:
        place = _place(area, blob_id)
        with self._errors(place):
            data = bytes(obstore.get(self._store, place).bytes())
        if hashlib.sha256(data).hexdigest() != blob_id:
            raise PermanentError(f"The stored bytes of blob {place} are damaged.", code="corrupt_blob")
        return data

    @contextmanager
    def local_path(self, area: str, blob_id: str) -> Iterator[Path]:
        """The stored file itself when the store is a folder (never write to it), else a temporary copy."""
        place = _place(area, blob_id)
        if self._folder is None:
            with NamedTemporaryFile(prefix="blob-") as copy:
                self._download(place, Path(copy.name))
                yield Path(copy.name)
            return
        path = self._folder / place
        if not path.is_file():
            raise NotFoundError(f"There is no blob {place}.")
        yield path

    def delete(self, area: str, blob_ids: Sequence[str] | None = None) -> None:
        doomed = self.list(area) if blob_ids is None else blob_ids
        for blob_id in doomed:
            self._delete_one(_place(area, blob_id))
        if blob_ids is None and self._folder is not None:
            # What a killed writer left half-written is invisible to obstore, but is the document's all the same.
            shutil.rmtree(self._folder / _prefix(area), ignore_errors=True)

    def list(self, area: str) -> list[str]:
        prefix = _prefix(area)
        with self._errors(prefix):
            objects = [entry for batch in obstore.list(self._store, prefix) for entry in batch]
        return sorted(entry["path"].rpartition("/")[2] for entry in objects)

    def close(self) -> None:
        """Nothing is held open between calls."""

    def _has(self, place: str, size: int) -> bool:
        try:
            return obstore.head(self._store, place)["size"] == size
        except FileNotFoundError:
            return False

    def _download(self, place: str, target: Path) -> None:
        with self._errors(place), target.open("wb") as file:
            for piece in obstore.get(self._store, place).stream(min_chunk_size=_READ_BYTES):
                file.write(piece)

    def _delete_one(self, place: str) -> None:
        with self._errors(place):
            try:
                obstore.delete(self._store, place)
            except FileNotFoundError:
                return

    @contextmanager
    def _errors(self, place: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise NotFoundError(f"There is no blob {place}.") from error
        except (PermissionDeniedError, UnauthenticatedError, PermissionError) as error:
            raise ConfigurationError(f"{self._store} refuses access to {place}: {_first_line(error)}") from error
        except (BaseError, OSError) as error:
            if "os error 28" in str(error) or "No space left" in str(error):
                message = f"The disk of {self._store} is full; free some space there."
                raise TransientError(message, code="disk_full") from error
            raise StoreUnavailableError(f"{self._store} failed on {place}: {_first_line(error)}") from error


def _open(url: str) -> ObjectStore:
    try:
        if url.startswith("file:"):
            return LocalStore.from_url(url, automatic_cleanup=True, mkdir=True)
        return from_url(url)
    except (BaseError, ValueError, OSError) as error:
        raise ConfigurationError(f"The blob store {url!r} can't be opened: {_first_line(error)}") from error


def _prefix(area: str) -> str:
    if not _AREA.fullmatch(area):
        raise InvalidInputError(f"{area!r} is no name for a blob area.")
    return f"{hashlib.sha256(area.encode()).hexdigest()[:2]}/{area}"


def _place(area: str, blob_id: str) -> str:
    if not _BLOB_ID.fullmatch(blob_id):
        raise InvalidInputError(f"{blob_id!r} is no blob id.")
    return f"{_prefix(area)}/{blob_id}"


def _measure(path: Path) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    for piece in _pieces(path):
        digest.update(piece)
        size += len(piece)
    return digest.hexdigest(), size


def _unchanged(path: Path, blob_id: str) -> Iterator[bytes]:
    """The file's bytes; fails at their end, before the store accepts them, unless they have this hash."""
    digest = hashlib.sha256()
    for piece in _pieces(path):
        digest.update(piece)
        yield piece
    if digest.hexdigest() != blob_id:
        raise TransientError(f"{path.name} changed while it was read.", code="file_changed")


def _pieces(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while piece := file.read(_READ_BYTES):
                yield piece
    except FileNotFoundError as error:
        raise NotFoundError(f"There is no file {path.name} any more.") from error
    except OSError as error:
        raise InvalidInputError(f"{path.name} can't be read: {error.strerror}.") from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
