"""Finds a quote in a source: the exact place, or the reason why there is none."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pipeline.chat.normalise import CJK, Normalised, normalise
from pipeline.models import PageSpan, Source, Span

MIN_WORDS = 3
MIN_CHARS = 12
#: A source that repeats the quote more often than this gives its first places only.
_MAX_PLACES = 64

_IDEOGRAPH = re.compile(f"[{CJK}]")
_WORD = re.compile(rf"[{CJK}]|[^\W_{CJK}]+(?:['.,-][^\W_{CJK}]+)*")
_EDGE = re.compile(r"^[\s\"'.…,;:*_-]+|[\s\"'…*_-]+$|\s*\.{3,}\s*$")
_SIGN_BEFORE = re.compile(r"(?:(?<![\w)])[-+\u2212])?[$€£¥]?[-+\u2212]?$")
_BRACKETED = re.compile(r"[$€£¥]?\s?[\d.,]+\s?%?\s?\)")
_PERCENT_AFTER = re.compile(r"\s?%")
_CLOSE_AFTER = re.compile(r"\s?%?\s?\)")
_CELL_EDGE = frozenset("\n\r\t|\f\v")


class NoProofError(ValueError):
    """A quote could not be proven. The message is the reason that is shown."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a quote lies: a document span, all of it on one page."""

    source: Source
    start: int
    end: int
    page: PageSpan

    @property
    def text(self) -> str:
        return self.source.text[self.start - self.source.start : self.end - self.source.start]


@dataclass(slots=True)
class SourceText:
    """The shown sources, each normalised once, when a quote first needs it."""

    sources: Sequence[Source]
    _normalised: dict[int, Normalised] = field(default_factory=dict)

    def find(self, cited_text: str, source_index: int, page_number: int | None) -> tuple[Place, ...]:
        """The quote's places, one for each page that it lies on; usually one.

        The cited source comes first. A quote that is only in another shown source is that source's: the
        model took the wrong number for a real quote. Raises NoProofError.
        """
        cited = [source for source in self.sources if source.index == source_index]
        if not cited:
            raise NoProofError(f"source {source_index} was not shown")
        others = [source for source in self.sources if source.index != source_index]
        forms = _forms(cited_text)
        for source in (*cited, *others):
            spans = self._spans(source, forms)
            if spans:
                return _on_pages(source, _preferred(source, spans, page_number))
        raise NoProofError("the quote is not in the source")

    def _spans(self, source: Source, forms: Sequence[str]) -> list[Span]:
        normalised = self._normalised.get(source.index)
        if normalised is None:
            normalised = self._normalised[source.index] = normalise(source.text)
        for form in forms:
            spans = [_whole_words(source.text, span) for span in _occurrences(normalised, form)]
            if found := [span for span in spans if span]:
                return found
        return []


def is_substantial(text: str) -> bool:
    """Three words and twelve characters at least; a Chinese or Japanese character is a word of two."""
    words = len(_WORD.findall(text))
    chars = len(" ".join(text.split())) + len(_IDEOGRAPH.findall(text))
    return words >= MIN_WORDS and chars >= MIN_CHARS


def _forms(cited_text: str) -> list[str]:
    """The quote as given, without the escapes of our prompt, and without what models put around a quote."""
    as_given = normalise(cited_text).text.strip()
    unescaped = normalise(html.unescape(cited_text)).text.strip() if "&" in cited_text else as_given
    forms = (as_given, unescaped, _EDGE.sub("", as_given), _EDGE.sub("", unescaped))
    return [form for form in dict.fromkeys(forms) if form]


def _occurrences(source: Normalised, quote: str) -> Iterator[Span]:
    at, tries = source.text.find(quote), 0
    while at >= 0 and tries < _MAX_PLACES:
        span = source.source_span(at, at + len(quote))
        if span:
            yield span
        at, tries = source.text.find(quote, at + len(quote)), tries + 1


def _whole_words(text: str, span: Span) -> Span | None:
    """The span without a word or number that it cuts in two, and with the sign and brackets of its numbers.

    A quote that ends in `5` where the source says `5.2` does not show a 5, so it ends before it; one that
    starts at the 5 of `-5` shows the sign too.
    """
    start, end = span
    while start < end and (_continues(text, start) or text[start].isspace()):
        start += 1
    while end > start and _continues(text, end):
        end -= 1
    end = start + len(text[start:end].rstrip())
    if start >= end:
        return None
    return _with_signs(text, start, end)


def _continues(text: str, at: int) -> bool:
    """Whether a word or a number runs across this position."""
    if not 0 < at < len(text):
        return False
    before, after = text[at - 1], text[at]
    if _IDEOGRAPH.match(before) or _IDEOGRAPH.match(after):
        return False
    if _is_word(before) and _is_word(after):
        return True
    in_fraction = before in ".," and after.isdigit() and text[at - 2 : at - 1].isdigit()
    return in_fraction or (before.isdigit() and after in ".," and text[at + 1 : at + 2].isdigit())


def _is_word(char: str) -> bool:
    return char.isalnum() or unicodedata.category(char)[0] == "M"


def _with_signs(text: str, start: int, end: int) -> Span:
    if text[start].isdigit():
        sign = _SIGN_BEFORE.search(text[max(0, start - 4) : start])
        start -= len(sign.group()) if sign else 0
        is_negative = text[start - 1 : start] == "(" and _BRACKETED.match(text, start)
        start -= 1 if is_negative else 0
    if text[end - 1].isdigit():
        is_open = text.count("(", start, end) > text.count(")", start, end)
        after = (_CLOSE_AFTER if is_open else _PERCENT_AFTER).match(text, end)
        end = after.end() if after else end
    return start, end


def _preferred(source: Source, spans: Sequence[Span], page_number: int | None) -> Span:
    """The place on the page that the model named, else the first that lies on one page, else the first."""

    def rank(span: Span) -> tuple[bool, bool]:
        pages = _pages(source, span)
        return page_number not in {page.number for page in pages}, len(pages) != 1

    return min(spans, key=rank)


def _pages(source: Source, span: Span) -> list[PageSpan]:
    start, end = span[0] + source.start, span[1] + source.start
    return [page for page in source.pages if page.start < end and start < page.end]


def _on_pages(source: Source, span: Span) -> tuple[Place, ...]:
    pages = _pages(source, span)
    start, end = span[0] + source.start, span[1] + source.start
    places = [_place(source, max(start, page.start), min(end, page.end), page) for page in pages]
    if not places:
        raise NoProofError("the quote's place has no page")
    if len(places) == 1 and not is_substantial(places[0].text) and not _is_cell(source.text, span):
        raise NoProofError("the quote is too short to prove anything")
    if len(places) > 1 and not all(is_substantial(place.text) for place in places):
        raise NoProofError("the quote crosses a page boundary")
    return tuple(places)


def _place(source: Source, start: int, end: int, page: PageSpan) -> Place:
    text = source.text[start - source.start : end - source.start]
    left = len(text) - len(text.lstrip())
    return Place(source, start + left, max(start + left, start + len(text.rstrip())), page)


def _is_cell(text: str, span: Span) -> bool:
    """Whether a short quote is a whole line or a whole cell of a table."""
    start, end = span
    before = text[max(0, start - 64) : start].rstrip(" \u00a0")[-1:]
    after = text[end : end + 64].lstrip(" \u00a0")[:1]
    return (not before or before in _CELL_EDGE) and (not after or after in _CELL_EDGE)
