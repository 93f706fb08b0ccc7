"""Page-content extraction: what a file says, page by page. Runs inside the parser process (parser.py)."""

from __future__ import annotations

from pathlib import Path

from pipeline.errors import DocumentError
from pipeline.ingest.detect import detect
from pipeline.ingest.extract import markdown, office, pdf, table, text, web
from pipeline.ingest.limits import MIB, ParserLimits
from pipeline.models import Box, ExtractedShard, MediaType, Probe

__all__ = ["extract_pages", "locate", "probe"]

_UNPAGED = {
    MediaType.HTML: web.extract,
    MediaType.MARKDOWN: markdown.extract,
    MediaType.TEXT: text.extract,
    MediaType.DOCX: office.extract,
    MediaType.CSV: table.extract,
}


def probe(path: Path, name: str, limits: ParserLimits) -> Probe:
    """Type, page count and, when it is cheap to know, title. Formats without pages have one page.

    Raises DocumentError: `too_large`, `too_many_pages`, and what `detect` and the formats raise.
    """
    media_type = detect(path, name)
    size_bytes = path.stat().st_size
    if size_bytes > limits.max_bytes:
        message = f"The file has {size_bytes / MIB:,.1f} MiB; at most {limits.max_bytes / MIB:,.1f} MiB are allowed."
        raise DocumentError(message, code="too_large")
    if media_type is MediaType.PDF:
        return pdf.probe(path, limits)
    return Probe(media_type, 1, _title(path, media_type))


def extract_pages(path: Path, media_type: MediaType, first: int, last: int) -> ExtractedShard:
    """Pages `first` to `last`, counted from 1, inclusive; formats without pages are page 1 whatever is asked.

    Raises DocumentError.
    """
    if media_type is MediaType.PDF:
        return pdf.extract(path, first, last)
    return _UNPAGED[media_type](path)


def locate(path: Path, page_number: int, start: int, end: int) -> tuple[Box, ...]:
    """Where the characters `[start, end)` of a PDF page's extracted text stand: one box a line."""
    return pdf.locate(path, page_number, start, end)


def _title(path: Path, media_type: MediaType) -> str | None:
    if media_type is MediaType.HTML:
        return web.find_title(web.read_html(path))
    if media_type is MediaType.MARKDOWN:
        return markdown.find_title(text.read_text(path))
    if media_type is MediaType.DOCX:
        return office.find_title(path)
    return None
