"""The query grammar, which is total: every string means something.

::

    words           match any of them; the more and the rarer, the better
    +word           must be there
    -word           must not be there
    "some words"    these words, adjacent and in order; +"…" and -"…" as for words

A sign counts only at the start of a word and before a letter or a quote, so `-5`, `a-b` and ` - ` are text. A
signed word that the analysis splits (`+state-of-the-art`, `-退款政策`) is a phrase. Quotes may be `"…"` or `“…”`; one
without its partner is text, and so is one right behind a Latin letter or digit (`5"`). All else is text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pipeline.analysis import analyse
from pipeline.models import TextQuery

#: What lies behind these limits is ignored: no question needs it, and a search's time grows with its terms.
MAX_QUERY_CHARS = 32_768
MAX_QUERY_TERMS = 256

# Each alternative stops at the next quote, so the scan is linear even when no quote is closed.
_PART = re.compile(
    r"""(?<!\S)(?P<sign>[+-])(?=["“])(?:"(?P<signed_phrase>[^"]*)"|“(?P<signed_curly>[^“”]*)”)"""
    r"""|(?<![0-9A-Za-z])"(?P<phrase>[^"]*)"|“(?P<curly>[^“”]*)”"""
    r"""|(?<!\S)(?P<word_sign>[+-])(?=[^\W\d_])(?P<word>[^\s"“”]+)"""
)


def parse(text: str) -> TextQuery:
    """The query that `text` means, in analysed terms, each once; at most MAX_QUERY_TERMS in all."""
    sorted_parts = _Parts()
    for part in _parts(text[:MAX_QUERY_CHARS]):
        sorted_parts.add(part)
        if sorted_parts.left == 0:
            break
    return sorted_parts.query()


def prose(text: str) -> str:
    """What a query says without its operators and without what it excludes; for the embedder."""
    kept = _PART.sub(lambda part: "" if _sign(part) == "-" else _quoted(part), text[:MAX_QUERY_CHARS])
    return kept.strip()


def is_empty(query: TextQuery) -> bool:
    """Whether it asks for nothing: no terms, or only terms that must be absent."""
    return not (query.any or query.phrases or query.required or query.required_phrases)


def is_strict(query: TextQuery) -> bool:
    """Whether it rules chunks out, so that a chunk found by meaning alone needs `satisfies`."""
    signed = query.required or query.required_phrases or query.excluded or query.excluded_phrases
    return bool(signed or (query.phrases and not query.any))


def satisfies(query: TextQuery, terms: Sequence[str]) -> bool:
    """Whether a chunk with these terms obeys the query's signs, or has a phrase when it is only phrases."""
    present, line = set(terms), f" {' '.join(terms)} "

    def has(phrase: Sequence[str]) -> bool:
        return f" {' '.join(phrase)} " in line

    if not present.issuperset(query.required) or not all(map(has, query.required_phrases)):
        return False
    if not present.isdisjoint(query.excluded) or any(map(has, query.excluded_phrases)):
        return False
    only_phrases = query.phrases and not (query.any or query.required or query.required_phrases)
    return not only_phrases or any(map(has, query.phrases))


@dataclass(frozen=True, slots=True)
class _Part:
    sign: str
    terms: list[str]
    adjacent: bool


def _parts(text: str) -> Iterator[_Part]:
    position = 0
    for match in _PART.finditer(text):
        yield _Part("", analyse(text[position : match.start()]), adjacent=False)
        yield _Part(_sign(match), analyse(_quoted(match)), adjacent=True)
        position = match.end()
    yield _Part("", analyse(text[position:]), adjacent=False)


def _sign(match: re.Match[str]) -> str:
    return match["sign"] or match["word_sign"] or ""


def _quoted(match: re.Match[str]) -> str:
    names = ("signed_phrase", "signed_curly", "phrase", "curly", "word")
    return next((match[name] for name in names if match[name] is not None), "")


@dataclass(slots=True)
class _Parts:
    """Terms and phrases by sign, in order, without repeats (dict keys), within the budget of terms."""

    left: int = MAX_QUERY_TERMS
    terms: dict[str, dict[str, None]] = field(default_factory=lambda: {"": {}, "+": {}, "-": {}})
    phrases: dict[str, dict[tuple[str, ...], None]] = field(default_factory=lambda: {"": {}, "+": {}, "-": {}})

    def add(self, part: _Part) -> None:
        if part.adjacent and len(part.terms) > 1:
            phrase = tuple(part.terms[: self.left])
            self.phrases[part.sign][phrase] = None
            self.left -= len(phrase)
            return
        seen = self.terms[part.sign]
        new = list(dict.fromkeys(term for term in part.terms if term not in seen))[: self.left]
        seen.update(dict.fromkeys(new))
        self.left -= len(new)

    def query(self) -> TextQuery:
        return TextQuery(
            any=tuple(self.terms[""]),
            required=tuple(self.terms["+"]),
            excluded=tuple(self.terms["-"]),
            phrases=tuple(self.phrases[""]),
            required_phrases=tuple(self.phrases["+"]),
            excluded_phrases=tuple(self.phrases["-"]),
        )
