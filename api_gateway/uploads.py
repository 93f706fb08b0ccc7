"""Uploads: a multipart form is taken apart while it arrives, each file goes to disk and then to the blobs.

Neither a whole file nor the whole form is ever in memory, and one bad file never stops the others: what a file
failed with is its own result.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any
from uuid import uuid4

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from pipeline.errors import InvalidInputError, SourcemillError, TooLargeError, TransientError
from pipeline.models import Upload
from pipeline.stores.ports import BlobStore

MAX_FILES = 1000
_MAX_KEY_CHARS = 1024
_MAX_FIELD_BYTES = 4 * _MAX_KEY_CHARS
_FIELDS = ("keys", "titles")


@dataclass(slots=True)
class ReceivedFile:
    """One file of the form. Its bytes are durable in `area` when there is no `error`."""

    name: str
    size_bytes: int = 0
    area: str = field(default_factory=lambda: uuid4().hex)
    blob_id: str = ""
    error: SourcemillError | None = None


class UploadForm:
    """Feed it the body with `write` and end with `finish`; `discard` removes all that it has put.

    Blocking: call it in a thread. Raises InvalidInputError for a form that can't be read, TooLargeError for too many
    files.
    """

    def __init__(self, content_type: str, blobs: BlobStore, folder: Path, max_file_bytes: int) -> None:
        self.files: list[ReceivedFile] = []
        self.fields: dict[str, list[str]] = {name: [] for name in _FIELDS}
        self._blobs = blobs
        self._folder = folder
        self._max_file_bytes = max_file_bytes
        callbacks: Any = {
            "on_header_field": self._on_header_field,
            "on_header_value": self._on_header_value,
            "on_header_end": self._on_header_end,
            "on_headers_finished": self._on_headers_finished,
            "on_part_data": self._on_part_data,
            "on_part_end": self._on_part_end,
            "on_end": self._on_end,
        }
        with _form_errors():
            self._parser = MultipartParser(_boundary(content_type), callbacks)
        self._header, self._value = b"", b""
        self._disposition = b""
        self._field = ""
        self._text = bytearray()
        self._file: ReceivedFile | None = None
        self._copy: IO[bytes] | None = None
        self._is_complete = False

    def write(self, data: bytes) -> None:
        with _form_errors():
            self._parser.write(data)

    def finish(self) -> list[Upload | SourcemillError]:
        """For each file in order what to submit, or what was wrong with it."""
        if not self._is_complete:
            raise InvalidInputError("The multipart form has no end.", code="bad_form")
        if not self.files:
            raise InvalidInputError("The form has no file in the field files.", code="no_files")
        titles = self._paired("titles")
        return [
            file.error or _upload(file, key, title or None)
            for file, key, title in zip(self.files, self.keys(), titles, strict=True)
        ]

    def keys(self) -> list[str]:
        """The document key of each file: the one given, else its name."""
        return [key or file.name for file, key in zip(self.files, self._paired("keys"), strict=True)]

    def discard(self, keep: Collection[str] = ()) -> None:
        """Remove what this form has put, except the areas to `keep`."""
        self._close_copy()
        for file in self.files:
            if file.blob_id and file.area not in keep:
                self._blobs.delete(file.area)

    def _paired(self, name: str) -> list[str]:
        given = self.fields[name]
        if given and len(given) != len(self.files):
            raise InvalidInputError(f"There are {len(self.files)} files but {len(given)} {name}; send one for each.")
        return given or [""] * len(self.files)

    # --- what the parser calls ---

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._value
        self._header, self._value = b"", b""

    def _on_headers_finished(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._disposition = b""
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if name == "files":
            self._begin_file(options.get(b"filename", b"").decode("utf-8", "replace"))
        elif name in self.fields:
            self._field, self._text = name, bytearray()
        else:
            raise InvalidInputError(f"{name!r} is no field of this form; it takes files, keys and titles.")

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._file is not None:
            self._write_file(self._file, data[start:end])
        elif len(self._text) + end - start > _MAX_FIELD_BYTES:
            raise TooLargeError(f"A value of {self._field} has more than {_MAX_FIELD_BYTES} bytes.")
        else:
            self._text += data[start:end]

    def _on_part_end(self) -> None:
        if self._file is not None:
            self._end_file(self._file)
        elif len(self.fields[self._field]) == MAX_FILES:
            raise TooLargeError(f"There are more than {MAX_FILES} {self._field}.")
        else:
            self.fields[self._field].append(self._text.decode("utf-8", "replace"))

    def _on_end(self) -> None:
        self._is_complete = True

    # --- one file after the other ---

    def _begin_file(self, name: str) -> None:
        if len(self.files) == MAX_FILES:
            raise TooLargeError(f"A request may have {MAX_FILES} files at most.", code="too_many_files")
        self._file = ReceivedFile(name)
        self.files.append(self._file)
        with _file_errors(self._file):
            self._copy = NamedTemporaryFile(dir=self._folder, prefix="upload-", buffering=0)  # noqa: SIM115

    def _write_file(self, file: ReceivedFile, data: bytes) -> None:
        file.size_bytes += len(data)
        if file.error is not None or self._copy is None:
            return
        with _file_errors(file):
            if file.size_bytes > self._max_file_bytes:
                raise TooLargeError(
                    f"The file has more than {self._max_file_bytes} bytes, the limit of SOURCEMILL_MAX_FILE_BYTES."
                )
            _write_all(self._copy, data)
        if file.error is not None:
            self._close_copy()

    def _end_file(self, file: ReceivedFile) -> None:
        if self._copy is not None:
            with _file_errors(file):
                if not file.size_bytes:
                    raise InvalidInputError("The file is empty.", code="empty_file")
                file.blob_id = self._blobs.put_file(file.area, Path(self._copy.name))
        self._close_copy()
        self._file = None

    def _close_copy(self) -> None:
        if self._copy is not None:
            self._copy.close()
        self._copy = None


def _write_all(file: IO[bytes], data: bytes) -> None:
    """Without a buffer, so that a full disk is an error here and not when the file is closed."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _boundary(content_type: str) -> bytes:
    kind, options = parse_options_header(content_type)
    if kind != b"multipart/form-data" or not options.get(b"boundary"):
        raise InvalidInputError("Send the files as multipart/form-data with a boundary.", code="unsupported_media_type")
    return options[b"boundary"]


def _upload(file: ReceivedFile, key: str, title: str | None) -> Upload | SourcemillError:
    for name, text in (("key", key), ("title", title or "-")):
        if not text or len(text) > _MAX_KEY_CHARS or any(_is_control(character) for character in text):
            message = f"The {name} must have 1 to {_MAX_KEY_CHARS} characters, none of them a control character."
            return InvalidInputError(message, code=f"bad_{name}")
    return Upload(key, file.area, file.blob_id, file.size_bytes, title)


def _is_control(character: str) -> bool:
    return character < " " or "\x7f" <= character <= "\x9f" or character in "\u2028\u2029"


@contextmanager
def _form_errors() -> Iterator[None]:
    try:
        yield
    except FormParserError as error:
        raise InvalidInputError(f"The multipart form can't be read: {error}.", code="bad_form") from error


@contextmanager
def _file_errors(file: ReceivedFile) -> Iterator[None]:
    """What fails for one file stays with that file."""
    try:
        yield
    except SourcemillError as error:
        file.error = error
    except OSError as error:
        code = "disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "store_unavailable"
        file.error = TransientError(f"The file can't be kept: {error.strerror}.", code=code)
