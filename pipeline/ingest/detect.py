"""Which format a file is, by its content. The name only decides between formats that are all plain text."""

from __future__ import annotations

import codecs
import mmap
import re
import zipfile
from pathlib import Path, PurePosixPath

from pipeline.errors import DocumentError
from pipeline.ingest.decode import decode
from pipeline.models import MediaType

SUPPORTED = "PDF, HTML, Markdown, plain text, DOCX and CSV"
_HEAD_BYTES = 64 * 1024

_TEXT_SUFFIXES = {
    ".md": MediaType.MARKDOWN,
    ".markdown": MediaType.MARKDOWN,
    ".mdown": MediaType.MARKDOWN,
    ".mkd": MediaType.MARKDOWN,
    ".csv": MediaType.CSV,
    ".tsv": MediaType.CSV,
    ".html": MediaType.HTML,
    ".htm": MediaType.HTML,
    ".xhtml": MediaType.HTML,
}
_WORD_SUFFIXES = (".docx", ".docm", ".dotx", ".dotm")

#: (offset, magic bytes, what it is): formats that we name when we refuse them.
_UNSUPPORTED = (
    (0, b"{\\rtf", "a rich text (RTF) document"),
    (0, b"%!PS", "a PostScript file"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"BZh", "a bzip2 archive"),
    (0, b"\xfd7zXZ\x00", "an xz archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (0, b"Rar!\x1a\x07", "a RAR archive"),
    (0, b"(\xb5/\xfd", "a Zstandard archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (0, b"GIF8", "a GIF image"),
    (0, b"II*\x00", "a TIFF image"),
    (0, b"MM\x00*", "a TIFF image"),
    (8, b"WEBP", "a WebP image"),
    (4, b"ftyp", "an MPEG-4 or HEIF media file"),
    (0, b"ID3", "an MP3 file"),
    (0, b"OggS", "an Ogg media file"),
    (0, b"RIFF", "a RIFF media file"),
    (0, b"\x7fELF", "a program"),
    (0, b"MZ\x90", "a program"),
    (0, b"SQLite format 3\x00", "an SQLite database"),
    (0, b"PAR1", "a Parquet file"),
)
#: Streams inside an OLE file (names are UTF-16) and what they show.
_OLE_STREAMS = (
    ("WordDocument", "a Word 97-2003 document"),
    ("Workbook", "an Excel 97-2003 workbook"),
    ("PowerPoint Document", "a PowerPoint 97-2003 presentation"),
    ("__properties_version1.0", "an Outlook message"),
)
_ZIP_PARTS = (
    ("xl/", "an Excel workbook"),
    ("ppt/", "a PowerPoint presentation"),
    ("Index/", "an Apple iWork document"),
    ("META-INF/container.xml", "an EPUB book"),
    ("content.xml", "an OpenDocument file"),
)
_HTML_START = re.compile(
    r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--(?:(?!-->).)*-->\s*)*<(?:!doctype\s+html|html|head|body)\b",
    re.IGNORECASE | re.DOTALL,
)
_HTML_TAG = re.compile(r"<(?:p|div|span|table|h[1-6]|ul|ol|a|br|title|body|meta|pre)\b[^>]*>", re.IGNORECASE)
_MAIL_START = re.compile(r"(?:[A-Za-z-]+: .*\n(?:[ \t].*\n)*){2,}")
_MAIL_FIELD = re.compile(r"^(?:Received|MIME-Version|Message-ID|Return-Path): ", re.MULTILINE | re.IGNORECASE)


def detect(path: Path, name: str) -> MediaType:
    """The media type of the file at `path`; `name` is what its owner calls it.

    Raises DocumentError: `empty_file`, `unreadable_file`, `password_protected` (encrypted Office files
    hide what they are), `unsupported_type` (the message names what was found and what is supported).
    """
    head = _read_head(path)
    if not head:
        raise DocumentError("The file is empty (0 bytes).", code="empty_file")
    suffix = PurePosixPath(name.lower()).suffix
    if _is_pdf(head, suffix):
        return MediaType.PDF
    if head.startswith(b"PK\x03\x04"):
        return _detect_zip(path, suffix)
    if head.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        raise _ole_error(path)
    _refuse_known(head)
    return _detect_text(head, suffix)


def _read_head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError as error:
        raise DocumentError(f"The file can't be read: {error.strerror}.", code="unreadable_file") from error


def _is_pdf(head: bytes, suffix: str) -> bool:
    """The header may stand anywhere in the first 1024 bytes (ISO 32000-1, annex H, note 13)."""
    if head.lstrip().removeprefix(codecs.BOM_UTF8).startswith(b"%PDF-"):
        return True
    return b"%PDF-" in head[:1024] and (suffix == ".pdf" or b"\x00" in head)


def _detect_zip(path: Path, suffix: str) -> MediaType:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        if suffix in _WORD_SUFFIXES:
            return MediaType.DOCX
        raise _unsupported("a damaged ZIP archive") from error
    if any(name.startswith("word/") for name in names):
        return MediaType.DOCX
    for part, what in _ZIP_PARTS:
        if any(name.startswith(part) for name in names):
            raise _unsupported(what)
    raise _unsupported("a ZIP archive")


def _ole_error(path: Path) -> DocumentError:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data.find("EncryptedPackage".encode("utf-16-le")) >= 0:
            message = "The document is encrypted. Save it without a password and send it again."
            return DocumentError(message, code="password_protected")
        for stream, what in _OLE_STREAMS:
            if data.find(stream.encode("utf-16-le")) >= 0:
                return _unsupported(what)
    return _unsupported("an OLE compound file")


def _refuse_known(head: bytes) -> None:
    for offset, magic, what in _UNSUPPORTED:
        if head.startswith(magic, offset):
            raise _unsupported(what)


def _detect_text(head: bytes, suffix: str) -> MediaType:
    text = _decode_head(head)
    if _HTML_START.match(text):
        return MediaType.HTML
    if _MAIL_START.match(text) and _MAIL_FIELD.search(text[:8192]):
        raise _unsupported("an e-mail message")
    named = _TEXT_SUFFIXES.get(suffix, MediaType.TEXT)
    if named is MediaType.HTML and not _HTML_TAG.search(text):
        return MediaType.TEXT
    return named


def _decode_head(head: bytes) -> str:
    """A full head may end inside a character, so up to three bytes may go."""
    cuts = range(4) if len(head) == _HEAD_BYTES else range(1)
    for cut in cuts:
        try:
            return decode(head[: len(head) - cut])
        except DocumentError:
            continue
    raise _unsupported("binary data of an unknown kind")


def _unsupported(what: str) -> DocumentError:
    return DocumentError(f"The file is {what}. Supported are {SUPPORTED}.", code="unsupported_type")
