"""Spans of text that are indexed.

Sizes are in width units: a Latin letter, digit or space is 1, punctuation and every character of another script 2. So
a chunk of `maximum` width stays near 450 tokens of a WordPiece vocabulary of English in any script: about 900 letters
of prose, 450 Chinese characters.

A cut is made at the end of a paragraph, else of a sentence (but not inside a table row), else of a line, a cell, a
word, else anywhere but inside a combining sequence; of several candidates the one nearest to `target` wins. White
space goes to the chunk before it.
"""

from __future__ import annotations

import re
import string
import unicodedata
import uuid
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, takewhile

import numpy as np
import numpy.typing as npt

from pipeline.models import Chunk, PageSpan, Span

_NAMESPACE = uuid.UUID("0b0ef1a4-6a52-5a0e-9e55-6f1f2f6b8f10")
_ENCODING = "utf-32-le"
#: The blocks from Greek on are other scripts, but for Latin Extended Additional and General Punctuation.
_FIRST_FOREIGN = 0x370
_LATIN_EXTENDED = (0x1E00, 0x1F00)
_ASCII_PUNCTUATION = [ord(character) for character in string.punctuation]

_PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")
#: Latin, not after a single letter (an initial) or before a small one; then CJK; then Arabic, Urdu, Hindi. The
#: look-behinds and possessive repeats keep long runs of one mark linear.
_SENTENCE = re.compile(
    r"(?<!\b\w)(?<![.!?…])[.!?…]++[\"')\]”’»]*+\s++(?![a-z])"  # noqa: RUF001 - the typographic marks are meant
    r"|(?<![。！？；｡…])[。！？；｡…]++[」』”’）】》]*+\s*+"  # noqa: RUF001
    r"|(?<![؟۔।॥])[؟۔।॥]++\s*+"  # noqa: RUF001
)
_LINE = re.compile(r"\n\s*")
_WORD = re.compile(r"\s+")
_SPACE = re.compile(r"\s*")
_CELL = re.compile(r"(?<= )\|\s+")
#: The longest combining sequence that a hard cut respects; real ones have at most 30 marks (UAX 15, stream-safe text).
_MAX_SEQUENCE = 64
_MAX_ROW = 2000
_JOINER = "\u200d"
_EXTENDERS = "\u200c\u200d"
_REGIONAL = range(0x1F1E6, 0x1F200)
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_HANGUL_VOWELS_AND_FINALS = range(0x1160, 0x1200)


@dataclass(frozen=True, slots=True)
class ChunkSize:
    """In width units. A rest below `minimum` is avoided, `maximum` is passed only by white space."""

    target: int = 800
    maximum: int = 900
    minimum: int = 200


class Cutter:
    """Cuts runs of one text; holds the text's cumulative widths, so a cut costs no more than its own window."""

    def __init__(self, text: str, size: ChunkSize) -> None:
        self._text = text
        self._size = size
        self._widths = cumulative_widths(text)

    def cut(self, start: int, end: int) -> Iterator[Span]:
        """Spans that tile `[start, end)`, each with something but white space in it; the run must have some, too."""
        while start < end:
            cut = self._next_cut(start, end)
            yield start, cut
            start = cut

    def _next_cut(self, start: int, end: int) -> int:
        body = _skip_space(self._text, start, end)
        rest = int(self._widths[end] - self._widths[body])
        if rest <= self._size.maximum:
            return end
        target = min(self._size.target, rest // 2 if rest < 2 * self._size.target else self._size.target)
        window = _Window(
            low=self._reach(body, max(target // 2, 1)),
            target=self._reach(body, target),
            high=self._reach(body, min(self._size.maximum, rest - self._size.minimum)),
        )
        cut = max(_choose(self._text, body, window), body + 1)
        return self._settle(cut, body, end)

    def _reach(self, start: int, width: int) -> int:
        """The last index up to which the text from `start` has at most this width."""
        return int(np.searchsorted(self._widths, self._widths[start] + width, side="right")) - 1

    def _settle(self, cut: int, body: int, end: int) -> int:
        """Out of a combining sequence, behind the white space that follows, to the end if only that is left."""
        return _skip_space(self._text, _outside_sequence(self._text, cut, body, end), end)


@dataclass(frozen=True, slots=True)
class _Window:
    """Where a cut may be: in `(low, high]`, best at `target`."""

    low: int
    target: int
    high: int


def cumulative_widths(text: str) -> npt.NDArray[np.int64]:
    """Shape (len(text) + 1,): the width of `text[:i]` at index i."""
    points = np.frombuffer(text.encode(_ENCODING, errors="surrogatepass"), dtype=np.uint32)
    wide = np.isin(points, _ASCII_PUNCTUATION)
    wide |= (points >= _FIRST_FOREIGN) & ~((points >= _LATIN_EXTENDED[0]) & (points < _LATIN_EXTENDED[1]))
    return np.concatenate(([0], np.cumsum(wide, dtype=np.int64) + np.arange(1, len(points) + 1)))


def _choose(text: str, body: int, window: _Window) -> int:
    """The best place to cut; `body` is where the chunk's first word starts."""
    for pattern, may_split_rows in (
        (_PARAGRAPH, True),
        (_SENTENCE, False),
        (_LINE, True),
        (_CELL, True),
        (_SENTENCE, True),
        (_WORD, True),
    ):
        ends = [
            match.end()
            for match in pattern.finditer(text, max(body, window.low - 1), window.high)
            if match.end() > window.low and (may_split_rows or not _in_row(text, match.start()))
        ]
        if ends:
            return min(ends, key=lambda end: abs(end - window.target))
    return window.target


def _in_row(text: str, position: int) -> bool:
    """Whether the line around `position` has cells."""
    start = text.rfind("\n", max(0, position - _MAX_ROW), position) + 1 or max(0, position - _MAX_ROW)
    end = text.find("\n", position, position + _MAX_ROW)
    return " | " in text[start : position + _MAX_ROW if end < 0 else end]


def _skip_space(text: str, start: int, end: int) -> int:
    match = _SPACE.match(text, start, end)
    return match.end() if match else start


def _outside_sequence(text: str, cut: int, body: int, end: int) -> int:
    """The nearest cut before `cut`, else behind it, that no mark or joiner bridges; `cut` in an endless sequence."""
    earlier = range(cut, max(body, cut - _MAX_SEQUENCE), -1)
    later = range(cut + 1, min(end, cut + _MAX_SEQUENCE) + 1)
    return next((place for place in chain(earlier, later) if not _is_bridged(text, place, end)), cut)


def _is_bridged(text: str, place: int, end: int) -> bool:
    """Whether the character at `place` belongs to the one before it (UAX 29, extended grapheme clusters, in short)."""
    if place >= end:
        return False
    before, after = text[place - 1], text[place]
    if unicodedata.category(after).startswith("M") or before == _JOINER or after in _EXTENDERS:
        return not before.isspace()
    point = ord(after)
    if point in _REGIONAL:
        return _flags_before(text, place) % 2 == 1
    return point in _SKIN_TONES or point in _HANGUL_VOWELS_AND_FINALS


def _flags_before(text: str, place: int) -> int:
    """How many regional indicators stand right before; they pair up from the left."""
    run = takewhile(lambda index: ord(text[index]) in _REGIONAL, range(place - 1, max(-1, place - _MAX_SEQUENCE), -1))
    return sum(1 for _ in run)


def make_chunks(text: str, pages: Sequence[PageSpan], runs: Iterable[tuple[int, Span]], size: ChunkSize) -> list[Chunk]:
    """Chunks of the runs, in order. A run is a section's index and a span in it that has more than white space.

    A chunk's pages are those of its first and last visible character.
    """
    cutter = Cutter(text, size)
    pages = [page for page in pages if page.end > page.start]
    starts = [page.start for page in pages]
    chunks: list[Chunk] = []
    for section, (run_start, run_end) in runs:
        for start, end in cutter.cut(run_start, run_end):
            piece = text[start:end]
            first = pages[bisect_right(starts, end - len(piece.lstrip())) - 1]
            last = pages[bisect_right(starts, start + len(piece.rstrip()) - 1) - 1]
            chunks.append(Chunk(len(chunks), start, end, section, first.number, last.number, piece))
    return chunks


def chunk_id(document_id: str, revision: int, chunk: Chunk) -> str:
    """A UUID made of what the chunk is, so that writing it twice writes the same."""
    digest = sha256(chunk.text.encode(errors="surrogatepass")).hexdigest()
    return str(uuid.uuid5(_NAMESPACE, f"{document_id}/{revision}/{chunk.ordinal}/{chunk.start}/{digest}"))
