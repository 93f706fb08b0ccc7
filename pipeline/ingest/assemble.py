"""Page texts to a document: text, outline, sections, chunks. Pure, and linear in the text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import PurePosixPath

from pipeline.ingest.chunk import ChunkSize, make_chunks
from pipeline.ingest.furniture import find_furniture
from pipeline.ingest.sections import make_sections
from pipeline.models import Chunk, ExtractedPage, ExtractedShard, Heading, Outline, PageSpan, Section, Span

_SEPARATORS = re.compile(r"[\\/]+")
_MAX_PREAMBLE_CHARACTERS = 1000
_VISIBLE = re.compile(r"\S")


@dataclass(frozen=True, slots=True)
class Assembled:
    """A document ready to be indexed. `missing` are the pages that were given up, with the reason.

    `text` is the concatenation of the page texts; chunks and `outline.furniture` tile it. No chunk means that there is
    nothing to read.
    """

    text: str
    outline: Outline
    chunks: tuple[Chunk, ...]
    missing: Mapping[int, str]


def assemble(shards: Sequence[ExtractedShard], title: str | None, key: str, size: ChunkSize | None = None) -> Assembled:
    """Join a document's shards, in any order.

    The title is the one given, else a top heading that opens the document or is its only one (`_is_title`), else the
    last part of `key` without its ending. A missing page without text still gets its (empty) place.
    """
    missing = {number: reason for shard in shards for number, reason in shard.missing.items()}
    pages = _pages(shards, missing)
    text = "".join(page.text for page in pages)
    spans = _page_spans(pages)
    headings = [
        replace(heading, offset=span.start + heading.offset)
        for page, span in zip(pages, spans, strict=True)
        for heading in page.headings
    ]
    sections = make_sections(text, headings)
    furniture = _absorb_blanks(text, sections, _document_furniture(pages, spans))
    chunks = make_chunks(text, spans, _runs(sections, furniture), size or ChunkSize())
    outline = Outline(_title(title, text, headings, key), spans, sections, tuple(furniture))
    return Assembled(text, outline, tuple(chunks), missing)


def _pages(shards: Iterable[ExtractedShard], missing: Iterable[int]) -> list[ExtractedPage]:
    by_number = {number: ExtractedPage(number, "") for number in missing}
    by_number |= {page.number: page for shard in shards for page in shard.pages}
    return [by_number[number] for number in sorted(by_number)]


def _page_spans(pages: Sequence[ExtractedPage]) -> tuple[PageSpan, ...]:
    offsets = accumulate((len(page.text) for page in pages), initial=0)
    return tuple(PageSpan(page.number, *span) for page, span in zip(pages, pairwise(offsets), strict=True))


def _document_furniture(pages: Sequence[ExtractedPage], spans: Sequence[PageSpan]) -> list[Span]:
    found = find_furniture(pages)
    return _merge(
        (span.start + start, span.start + end)
        for page, span, repeated in zip(pages, spans, found, strict=True)
        for start, end in (*page.furniture, *repeated)
    )


def _absorb_blanks(text: str, sections: Sequence[Section], furniture: Sequence[Span]) -> list[Span]:
    """White space that furniture cuts off from all text becomes furniture, so that every chunk has something in it."""
    blanks = [run for _, run in _runs(sections, furniture) if not _VISIBLE.search(text, *run)]
    return _merge([*furniture, *blanks])


def _merge(spans: Iterable[Span]) -> list[Span]:
    """Sorted, disjoint and not touching."""
    merged: list[Span] = []
    for start, end in sorted(span for span in spans if span[1] > span[0]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _runs(sections: Sequence[Section], furniture: Sequence[Span]) -> Iterator[tuple[int, Span]]:
    """The sections less the furniture: (section index, span), in order."""
    remaining = iter(furniture)
    hole = next(remaining, None)
    for section in sections:
        start = section.start
        while hole and hole[0] < section.end:
            if hole[0] > start:
                yield section.index, (start, hole[0])
            start = max(start, min(hole[1], section.end))
            if hole[1] > section.end:
                break
            hole = next(remaining, None)
        if start < section.end:
            yield section.index, (start, section.end)


def _title(given: str | None, text: str, headings: Sequence[Heading], key: str) -> str:
    if given and given.strip():
        return " ".join(given.split())
    if headings and _is_title(headings[0], text, headings):
        return headings[0].title
    name = next((part for part in reversed(_SEPARATORS.split(key)) if part), key)
    return PurePosixPath(name).stem or key


def _is_title(first: Heading, text: str, headings: Sequence[Heading]) -> bool:
    """A top heading that opens the text, or the only one, after a preamble (a licence comment, a banner)."""
    is_only_one = sum(heading.level == 1 for heading in headings) == 1
    opens = not _VISIBLE.search(text, 0, first.offset) or (is_only_one and first.offset < _MAX_PREAMBLE_CHARACTERS)
    return first.level == 1 and opens
