"""Hits to readable spans: neighbouring chunks of one document become one piece of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pipeline.models import Hit


@dataclass(frozen=True, slots=True)
class SourceSpan:
    """A span of one document revision with the chunks that led to it; `score` is the best of theirs."""

    kb_id: str
    document_id: str
    revision: int
    start: int
    end: int
    page_start: int
    page_end: int
    section_path: tuple[str, ...]
    score: float
    chunk_ids: tuple[str, ...]


def group(hits: Iterable[Hit], max_chars: int, max_spans: int | None = None) -> list[SourceSpan]:
    """Merge consecutive or overlapping chunks of a revision into spans, best first, within a budget.

    The best hits are taken while their spans together stay within `max_chars` characters and `max_spans` spans;
    one that does not fit is passed over for a smaller one. Furniture between two consecutive chunks counts
    and is inside their span. `section_path` is the one of the span's best chunk. Ties by chunk id.
    """
    runs: list[_Run] = []
    for hit in _unique(hits):
        candidate = _add(runs, hit)
        if _chars(candidate) <= max_chars and (max_spans is None or len(candidate) <= max_spans):
            runs = candidate
    return sorted(map(_span, runs), key=lambda span: (-span.score, span.chunk_ids))


_Run = tuple[Hit, ...]
"""Neighbouring hits of one revision in reading order."""


def _unique(hits: Iterable[Hit]) -> list[Hit]:
    """Each chunk once, with its best score; best first."""
    ordered = sorted(hits, key=lambda hit: (-hit.score, hit.chunk_id))
    return list({hit.chunk_id: hit for hit in reversed(ordered)}.values())[::-1]


def _add(runs: Sequence[_Run], hit: Hit) -> list[_Run]:
    apart = [run for run in runs if not _touches(run, hit)]
    joined = [member for run in runs if _touches(run, hit) for member in run]
    return [*apart, tuple(sorted((*joined, hit), key=lambda member: (member.start, member.ordinal)))]


def _touches(run: _Run, hit: Hit) -> bool:
    return any(_are_neighbours(member, hit) for member in run)


def _are_neighbours(one: Hit, other: Hit) -> bool:
    if (one.kb_id, one.document_id, one.revision) != (other.kb_id, other.document_id, other.revision):
        return False
    overlapping = one.start < other.end and other.start < one.end
    return overlapping or abs(one.ordinal - other.ordinal) <= 1


def _chars(runs: Sequence[_Run]) -> int:
    return sum(_end(run) - run[0].start for run in runs)


def _end(run: _Run) -> int:
    return max(hit.end for hit in run)


def _span(run: _Run) -> SourceSpan:
    best = min(run, key=lambda hit: (-hit.score, hit.chunk_id))
    return SourceSpan(
        kb_id=best.kb_id,
        document_id=best.document_id,
        revision=best.revision,
        start=run[0].start,
        end=_end(run),
        page_start=min(hit.page_start for hit in run),
        page_end=max(hit.page_end for hit in run),
        section_path=best.section_path,
        score=best.score,
        chunk_ids=tuple(hit.chunk_id for hit in run),
    )
