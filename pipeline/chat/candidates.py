"""Sentences of the sources that may answer a question, ranked by the question's words."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from pipeline.analysis import analyse
from pipeline.chat.sentences import sentence_spans, trimmed
from pipeline.chat.terms import content_terms
from pipeline.models import MediaType, PageSpan, Source, Span

#: Longer passages without a sentence end are cut at line ends.
MAX_CHARS = 500
MAX_CANDIDATES = 600
_MIN_CHARS = 8

#: References to notes behind a sentence: `…in 1786.[12]`.
_NOTES = re.compile(r"(?:\[\d{1,3}\])*$")
_MARKUP = re.compile(r"<[^<>]*>")
_WANTS_NUMBER = re.compile(
    r"\bhow (?:many|much|long|old|far|often|large|big|high|fast)\b|\bwhen\b"
    r"|\bwhat (?:year|date|percent\w*|number|amount)\b|\bwhich year\b|多少|几|何时|什么时候|哪一年",
    re.IGNORECASE,
)
_FISCAL_YEAR = re.compile(r"\bFY ?((?:19|20)\d{2})\b")
_WANTS_NAME = re.compile(r"\bwho(?:se|m)?\b", re.IGNORECASE)
_NAME = re.compile(r"(?<!^)\b[A-Z]\w+")
_NUMBER_WORD = re.compile(
    r"\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|hundred|thousand|million|billion)\b"
    r"|[一二三四五六七八九十百千万亿]",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sentence, and how much of the question it meets.

    The shares of the question's terms, weighted by rarity, from 0 to 1: `own` are in the sentence itself, `near`
    only in those beside it, `around` only elsewhere in its source, with title and section. `fits` is 1 when it
    has what the question asks for (a number, a name), -1 when it lacks it, 0 when unknown.
    """

    source: Source
    start: int
    end: int
    page_number: int
    text: str
    terms: frozenset[str]
    own: float = 0.0
    near: float = 0.0
    around: float = 0.0
    fits: int = 0


def candidates(question: str, sources: Sequence[Source]) -> list[Candidate]:
    """The sentences that share the question's subject, in reading order. Offsets are the source's own.

    A sentence needs a term of the question that is not only its document's name or a year, and its source must
    speak of a name in the question, if there is one, and of every number and code in it.
    """
    asked = frozenset(content_terms(question))
    names, codes = _names(question), _codes(asked)
    sentences = [each for source in sources for each in _sentences(source)][:MAX_CANDIDATES]
    weights = _weights(asked, sentences)
    if not weights:
        return []
    everywhere = _terms_by_source(sentences)
    found = []
    for at, each in enumerate(sentences):
        around = everywhere[each.source.index]
        speaks_of_it = codes <= around and (not names or names & around)
        if speaks_of_it and each.terms & _topic(asked, each.source):
            beside = _beside(sentences, at)
            found.append(
                replace(
                    each,
                    own=_share(weights, each.terms),
                    near=_share(weights, beside - each.terms),
                    around=_share(weights, around - each.terms),
                    fits=_fits(question, each.text),
                )
            )
    return found


def focus(question: str) -> str:
    """The part of a question that asks: its first sentence with a question mark, without what to make of it.

    Fiscal years lose their prefix (`FY2022` is `2022` to most documents).
    """
    spans = [question[slice(*trimmed(question, span))] for span in sentence_spans(question)]
    asking = next((text for text in spans if text.endswith(("?", "\uff1f"))), question)
    return _FISCAL_YEAR.sub(r"\1", asking)


def _sentences(source: Source) -> Iterator[Candidate]:
    for page in source.pages:
        left, right = max(0, page.start - source.start), min(len(source.text), page.end - source.start)
        text = source.text[left:right]
        for span in sentence_spans(text):
            yield from _pieces(source, page, left, text, span)


def _pieces(source: Source, page: PageSpan, offset: int, text: str, span: Span) -> Iterator[Candidate]:
    for piece in _cut(text, span):
        start, end = trimmed(text, piece)
        end = start + len(_NOTES.sub("", text[start:end]))
        if _is_title(source, text[start:end]) or (
            source.media_type is MediaType.CSV and source.start + offset + start == 0
        ):
            continue  # a table's first row names its columns
        if end - start >= _MIN_CHARS or analyse(text[start:end])[1:]:
            terms = frozenset(content_terms(text[start:end]))
            yield Candidate(source, offset + start, offset + end, page.number, text[start:end], terms)


def _is_title(source: Source, text: str) -> bool:
    """A heading names what its section answers, and is no answer itself; nor is a line of markup."""
    return text.startswith("#") or bool(_MARKUP.fullmatch(text)) or text.strip(" *:=-") in source.section_path


def _cut(text: str, span: Span) -> Iterator[Span]:
    """A long span in parts of at most MAX_CHARS, cut at a line end or blank where there is one."""
    start, end = span
    while end - start > MAX_CHARS:
        window = text[start : start + MAX_CHARS]
        cut = max(window.rfind("\n"), 0) or max(window.rfind(" "), 0) or MAX_CHARS
        yield start, start + cut
        start += cut
    yield start, end


def _weights(asked: Iterable[str], sentences: Sequence[Candidate]) -> dict[str, float]:
    """How much of the question each term is: its inverse frequency over the sentences, summing to 1."""
    frequency = Counter(term for each in sentences for term in each.terms)
    rarity = {term: math.log(1 + len(sentences) / (1 + frequency[term])) for term in asked}
    total = sum(rarity.values())
    return {term: value / total for term, value in rarity.items()} if total else {}


def _terms_by_source(sentences: Sequence[Candidate]) -> dict[int, frozenset[str]]:
    found: dict[int, set[str]] = defaultdict(set)
    for each in sentences:
        if each.source.index not in found:
            context = (each.source.title, each.source.key, *each.source.section_path)
            found[each.source.index].update(content_terms(" ".join(context)))
        found[each.source.index] |= each.terms
    return {index: frozenset(terms) for index, terms in found.items()}


def _beside(sentences: Sequence[Candidate], at: int) -> frozenset[str]:
    source = sentences[at].source
    neighbours = (sentences[n] for n in (at - 1, at + 1) if 0 <= n < len(sentences))
    return frozenset(term for each in neighbours if each.source is source for term in each.terms)


def _names(question: str) -> frozenset[str]:
    return frozenset(term for name in _NAME.findall(question) for term in content_terms(name))


def _codes(asked: frozenset[str]) -> frozenset[str]:
    """Terms that single something out, such as `500` or `e117`: what does not have them is about something else."""
    return frozenset(term for term in asked if len(term) > 1 and any(map(str.isdigit, term)) and not _is_year(term))


def _is_year(term: str) -> bool:
    return term.isdigit() and len(term) == 4  # noqa: PLR2004


def _topic(asked: frozenset[str], source: Source) -> frozenset[str]:
    """The terms that say what is asked about the document's subject; all terms when nothing else is left."""
    title = frozenset(content_terms(source.title))
    years = frozenset(filter(_is_year, asked))
    return (asked - title - years) or asked


def _share(weights: dict[str, float], terms: frozenset[str]) -> float:
    return sum(weight for term, weight in weights.items() if term in terms)


def _fits(question: str, text: str) -> int:
    if _WANTS_NUMBER.search(question):
        asked = set(analyse(question))
        has_number = any(term[0].isdigit() and term not in asked for term in analyse(text))
        return 1 if has_number or _NUMBER_WORD.search(text) else -1
    if _WANTS_NAME.search(question):
        return 1 if any(name not in question for name in _NAME.findall(text)) else -1
    return 0
