"""PDF through pdfium: page texts, outline headings, and where on a page a quote stands.

Page text is pdfium's text of the page after `clean`; `locate` runs the same rules backwards, so an offset
in a page text leads to exactly one glyph. Forms are flattened first, so that filled-in fields are text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path

import pypdfium2
import pypdfium2.raw as pdfium

from pipeline.errors import DocumentError
from pipeline.ingest.extract.pdf_boxes import text_boxes
from pipeline.ingest.extract.pdf_text import clean, origins
from pipeline.ingest.limits import ParserLimits
from pipeline.models import Box, ExtractedPage, ExtractedShard, Heading, MediaType, Probe

_MAX_BOOKMARKS = 20_000
_MAX_TITLE_CHARACTERS = 200
_NO_PAGES = re.compile(rb"/Count\s+0\b")
_ANY_PAGE = re.compile(rb"/Type\s*/Page\b|/ObjStm\b")
_NUMBERING = re.compile(r"^(?:\d+\.)*\d*\s+")
#: Titles that programs write when the author gave none.
_MACHINE_TITLE = re.compile(
    r"untitled\b|document\d*$|slide \d+$|.*\.(docx?|pdf|pptx?|xlsx?|indd|qxp|tex|dvi)$", re.IGNORECASE
)


def probe(path: Path, limits: ParserLimits) -> Probe:
    """Raises DocumentError: `password_protected`, `broken_pdf`, `zero_pages`, `too_many_pages`."""
    with _open(path) as pdf:
        count = len(pdf)
        if count == 0:
            raise DocumentError("The PDF has no pages.", code="zero_pages")
        if count > limits.max_pages:
            message = f"The PDF has {count:,} pages; at most {limits.max_pages:,} are allowed."
            raise DocumentError(message, code="too_many_pages")
        return Probe(MediaType.PDF, count, _title(pdf))


def extract(path: Path, first: int, last: int) -> ExtractedShard:
    """Pages `first` to `last`, counted from 1, inclusive. A page that pdfium can't load is `missing`, its text ""."""
    pages: list[ExtractedPage] = []
    missing: dict[int, str] = {}
    file = path.stat()
    outline = _outline(path, file.st_mtime_ns, file.st_size)
    with _open(path) as pdf:
        for number in range(first, min(last, len(pdf)) + 1):
            try:
                text = _page_text(pdf, number)
            except pypdfium2.PdfiumError as error:
                missing[number] = str(error)
                text = ""
            pages.append(ExtractedPage(number, text, _headings(text, outline.get(number, ()))))
    return ExtractedShard(tuple(pages), missing)


def locate(path: Path, page_number: int, start: int, end: int) -> tuple[Box, ...]:
    """One box a line around the characters `[start, end)` of a page's text; white space has no box.

    Raises DocumentError `span_outside_page` when there is no such page or span.
    """
    with _open(path) as pdf:
        if not 1 <= page_number <= len(pdf):
            raise DocumentError(f"The PDF has no page {page_number}.", code="span_outside_page")
        with _text_page(pdf, page_number) as text_page:
            raw = _raw_text(text_page)
            text = clean(raw)
            if not 0 <= start <= end <= len(text):
                message = f"Page {page_number} has {len(text)} characters, not {start} to {end}."
                raise DocumentError(message, code="span_outside_page")
            return text_boxes(text_page, page_number, text[start:end], origins(raw)[start:end])


@contextmanager
def _open(path: Path) -> Iterator[pypdfium2.PdfDocument]:
    try:
        pdf = pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        raise _open_error(path, error) from error
    except OSError as error:
        raise DocumentError(f"The file can't be read: {error.strerror}.", code="unreadable_file") from error
    try:
        if pdf.get_formtype() != pdfium.FORMTYPE_NONE:
            pdf.init_forms()
        yield pdf
    finally:
        pdf.close()


def _open_error(path: Path, error: pypdfium2.PdfiumError) -> DocumentError:
    data = path.read_bytes()
    # pdfium keeps the error of the file before where it sets none, so the file itself must say that it is encrypted.
    if error.err_code in (pdfium.FPDF_ERR_PASSWORD, pdfium.FPDF_ERR_SECURITY) and b"/Encrypt" in data:
        message = "The PDF needs a password. Save it without one and send it again."
        return DocumentError(message, code="password_protected")
    # pdfium calls a document without pages damaged; its page tree says what it is.
    if _NO_PAGES.search(data) and not _ANY_PAGE.search(data):
        return DocumentError("The PDF has no pages.", code="zero_pages")
    return DocumentError("The PDF is damaged and can't be opened.", code="broken_pdf")


@contextmanager
def _text_page(pdf: pypdfium2.PdfDocument, number: int) -> Iterator[pypdfium2.PdfTextPage]:
    page = pdf[number - 1]
    try:
        if pdf.formenv:
            page.flatten()
            page.close()
            page = pdf[number - 1]
        text_page = page.get_textpage()
        try:
            yield text_page
        finally:
            text_page.close()
    finally:
        page.close()


def _page_text(pdf: pypdfium2.PdfDocument, number: int) -> str:
    with _text_page(pdf, number) as text_page:
        return clean(_raw_text(text_page))


def _raw_text(text_page: pypdfium2.PdfTextPage) -> str:
    return str(text_page.get_text_range(errors="surrogatepass"))


def _title(pdf: pypdfium2.PdfDocument) -> str | None:
    title = _one_line(pdf.get_metadata_value("Title")).removeprefix("Microsoft Word - ")
    return title if title and not _MACHINE_TITLE.match(title) else None


def _one_line(text: str) -> str:
    return " ".join(clean(text).split())[:_MAX_TITLE_CHARACTERS]


@lru_cache(maxsize=2)
def _outline(path: Path, _modified_ns: int, _size_bytes: int) -> dict[int, list[tuple[int, str]]]:
    """(level, title) of the outline entries that lead to a page, by page number.

    Kept from one shard of a file to the next: a long outline costs more to read than sixteen pages.
    """
    found: dict[int, list[tuple[int, str]]] = defaultdict(list)
    with _open(path) as pdf:
        for bookmark in islice(pdf.get_toc(), _MAX_BOOKMARKS):
            destination = bookmark.get_dest()
            index = destination.get_index() if destination else None
            title = _one_line(bookmark.get_title())
            if index is not None and title:
                found[index + 1].append((bookmark.level + 1, title))
    return dict(found)


def _headings(text: str, bookmarks: Sequence[tuple[int, str]]) -> tuple[Heading, ...]:
    """Each title where its page says it, after the one before; else where that one was (or the page starts)."""
    headings: list[Heading] = []
    offset = 0
    for level, title in bookmarks:
        offset = _find_title(text, title, offset)
        headings.append(Heading(offset, level, title))
    return tuple(headings)


def _find_title(text: str, title: str, start: int) -> int:
    """At the start of a line, if possible; outlines often number titles that the page does not."""
    words = r"\s+".join(map(re.escape, title.split()))
    unnumbered = r"\s+".join(map(re.escape, _NUMBERING.sub("", title).split())) or words
    for pattern in (rf"^[^\S\n]*({words})", rf"^[^\S\n]*({unnumbered})", rf"({words})"):
        match = re.compile(pattern, re.IGNORECASE | re.MULTILINE).search(text, start)
        if match:
            return match.start(1)
    return start
