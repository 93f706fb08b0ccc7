"""The `[n]` markers in an answer, and the claims that they stand after."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from pipeline.chat.sentences import sentence_spans
from pipeline.models import Coverage, Span

#: Markers that stand together, with the blanks before them: ` [1][2]`, `[1, 2]`.
_GROUP = re.compile(r"[ \t]*\[\d{1,3}(?:\s?[,;]\s?\d{1,3})*\](?:[ \t]*\[\d{1,3}(?:\s?[,;]\s?\d{1,3})*\])*")
_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"[^\W_]")
_MAKES_NO_CLAIM = re.compile(r"#{1,6}\s|.*[:\uff1a]\s*$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a group of markers stands after: the text since the markers before it, in its sentence."""

    text: str
    markers: tuple[int, ...]
    group: Span


def claims(content: str) -> tuple[Claim, ...]:
    groups = [match.span() for match in _GROUP.finditer(content)]
    found: list[Claim] = []
    for start, end in _sentences(content, groups):
        inside = _inside(groups, len(found), end)
        found.extend(_claims(content, (start, end), inside))
    return tuple(found)


def rewrite(content: str, keep: Callable[[int, int], int | None]) -> str:
    """The content with each marker replaced by `keep(index of its claim, marker)`, or removed where that is None."""
    groups = count()

    def replaced(match: re.Match[str]) -> str:
        index = next(groups)
        numbers = [keep(index, int(marker)) for marker in _NUMBER.findall(match.group())]
        kept = "".join(f"[{number}]" for number in dict.fromkeys(numbers) if number is not None)
        blanks = match.group()[: len(match.group()) - len(match.group().lstrip())]
        return blanks + kept if kept else ""

    return _GROUP.sub(replaced, content)


def escape_markers(text: str) -> str:
    """Text in which nothing is a marker of ours: `[3]` gets full-width brackets, which quotes do not care about."""
    return _GROUP.sub(lambda match: match.group().replace("[", "\uff3b").replace("]", "\uff3d"), text)


def coverage(content: str) -> Coverage:
    """How many sentences carry a marker. Headings and lines that only introduce (`…:`) claim nothing."""
    groups = [match.span() for match in _GROUP.finditer(content)]
    sentences = proven = seen = 0
    for start, end in _sentences(content, groups):
        inside = _inside(groups, seen, end)
        seen += len(inside)
        text = _GROUP.sub("", content[start:end])
        if _WORD.search(text) and (inside or not _MAKES_NO_CLAIM.match(text)):
            sentences += 1
            proven += bool(inside)
    return Coverage(sentences, proven)


def _sentences(content: str, groups: Sequence[Span]) -> list[Span]:
    """Sentences that own the markers behind their full stop."""
    ends = dict(groups)
    spans: list[Span] = []
    at = 0
    for _, sentence_end in sentence_spans(content):
        stop = len(content[at:sentence_end].rstrip()) + at
        end = max(ends.get(stop, sentence_end), ends.get(sentence_end, sentence_end))
        if end > at:
            spans.append((at, end))
            at = end
    return spans


def _inside(groups: Sequence[Span], first: int, end: int) -> list[Span]:
    """The groups from `first` on that lie before `end`."""
    last = first
    while last < len(groups) and groups[last][1] <= end:
        last += 1
    return list(groups[first:last])


def _claims(content: str, sentence: Span, groups: Sequence[Span]) -> list[Claim]:
    found, at = [], sentence[0]
    for start, end in groups:
        text = content[at:start]
        if not _WORD.search(text):
            text = _GROUP.sub("", content[slice(*sentence)])
        markers = tuple(dict.fromkeys(int(number) for number in _NUMBER.findall(content[start:end])))
        found.append(Claim(text.strip(), markers, (start, end)))
        at = end
    return found
