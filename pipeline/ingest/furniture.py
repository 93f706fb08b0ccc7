"""Page furniture: the running headers and footers of a paged document.

A line at the top or bottom edge of a page is furniture when the same line, digits aside, stands at that edge of most
pages, or of most odd or most even pages (books alternate). Only lines that reach the edge through furniture count, and
a page is never furniture as a whole. Furniture stays in the text; it is only marked, so that no chunk has it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from pipeline.models import ExtractedPage, Span

_EDGE_LINES = 3
_MIN_REPEATS = 3
_MAX_LINE_CHARACTERS = 200
_DIGITS = re.compile(r"\d+")
_LINE = re.compile(r"[^\n]+\n?")


def find_furniture(pages: Sequence[ExtractedPage]) -> list[list[Span]]:
    """For each page the spans of its furniture lines, relative to its text, whole lines with their newline."""
    lines = [[match.span() for match in _LINE.finditer(page.text) if not match[0].isspace()] for page in pages]
    found: list[list[Span]] = [[] for _ in pages]
    for direction in (1, -1):
        edges = [_edge_keys(page.text, spans[::direction]) for page, spans in zip(pages, lines, strict=True)]
        repeated = _repeated(pages, edges)
        for page_index, (page, keys) in enumerate(zip(pages, edges, strict=True)):
            count = _leading(keys, repeated[page.number % 2])
            found[page_index] += lines[page_index][::direction][:count]
    return [
        sorted(spans) if len(set(spans)) < len(all_lines) else [] for spans, all_lines in zip(found, lines, strict=True)
    ]


def _edge_keys(text: str, spans: Sequence[Span]) -> list[str]:
    return [_key(text[start:end]) for start, end in spans[:_EDGE_LINES]]


def _key(line: str) -> str:
    """What a line has in common with its like on other pages; a long line has nothing."""
    key = " ".join(_DIGITS.sub("0", line).casefold().split())
    return key if len(key) <= _MAX_LINE_CHARACTERS else ""


def _repeated(pages: Sequence[ExtractedPage], edges: Sequence[Sequence[str]]) -> dict[int, set[str]]:
    """The keys that are furniture on even pages (0) and on odd pages (1)."""
    by_parity = {
        parity: [set(keys) for page, keys in zip(pages, edges, strict=True) if keys and page.number % 2 == parity]
        for parity in (0, 1)
    }
    common = _most_frequent([*by_parity[0], *by_parity[1]])
    return {parity: common | _most_frequent(group) for parity, group in by_parity.items()}


def _most_frequent(pages: Sequence[set[str]]) -> set[str]:
    counts = Counter(key for keys in pages for key in keys)
    return {key for key, count in counts.items() if key and count >= _MIN_REPEATS and 2 * count > len(pages)}


def _leading(keys: Iterable[str], repeated: set[str]) -> int:
    count = 0
    for key in keys:
        if key not in repeated:
            break
        count += 1
    return count
