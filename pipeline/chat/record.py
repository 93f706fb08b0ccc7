"""The interaction record: what callers see of a question and its answer, while it is made and for ever after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from pipeline.models import (
    Citation,
    Coverage,
    Degradation,
    MessageStatus,
    SearchQuery,
    Source,
    UnverifiedQuote,
    VerifiedAnswer,
)

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Interaction:
    """A message as far as it has come. `content` is the draft's text until `answer` holds the proven one."""

    message_id: str
    thread_id: str
    question: str
    asked_at: datetime
    model: str
    status: MessageStatus = MessageStatus.PENDING
    queries: tuple[SearchQuery, ...] = ()
    sources: tuple[Source, ...] = ()
    degraded: tuple[Degradation, ...] = ()
    content: str = ""
    answer: VerifiedAnswer | None = None
    abstained: bool = False
    incomplete: bool = False
    answered_at: datetime | None = None
    error_code: str | None = None
    error: str | None = None


def to_record(interaction: Interaction) -> Record:
    """JSON values only, and every key in every mode: `None`, `[]` or `""` stand for what is not there yet.

    `user_input`, `model_response`, `search_queries`, `relevant_segments` and `message_id` are dsRAG's keys.
    Times are ISO 8601 in UTC. `coverage` counts the answer's sentences and those with a proven citation.
    """
    answer = interaction.answer
    return {
        "message_id": interaction.message_id,
        "thread_id": interaction.thread_id,
        "user_input": {"content": interaction.question, "timestamp": _iso(interaction.asked_at)},
        "model_response": {
            "content": answer.content if answer else interaction.content,
            "citations": citation_records(answer.citations if answer else ()),
            "timestamp": _iso(interaction.answered_at),
            "status": str(interaction.status),
        },
        "search_queries": [asdict(query) for query in interaction.queries],
        "relevant_segments": [segment_record(source) for source in interaction.sources],
        "model": interaction.model,
        "degraded": [asdict(part) for part in interaction.degraded],
        "unverified": unverified_records(answer.unverified if answer else ()),
        "coverage": coverage_record(answer.coverage if answer else None),
        "abstained": interaction.abstained,
        "incomplete": interaction.incomplete,
        "error": _error(interaction),
    }


def citation_records(citations: Sequence[Citation]) -> list[Record]:
    """`doc_id` is dsRAG's name for `document_id`."""
    return [
        {**asdict(citation), "boxes": [asdict(box) for box in citation.boxes], "doc_id": citation.document_id}
        for citation in citations
    ]


def unverified_records(unverified: Sequence[UnverifiedQuote]) -> list[Record]:
    return [asdict(quote) for quote in unverified]


def coverage_record(coverage: Coverage | None) -> Record | None:
    return asdict(coverage) if coverage else None


def segment_record(source: Source) -> Record:
    """A source as a segment: where it is, how well it fits, its text."""
    pages = [page.number for page in source.pages]
    return {
        "source_index": source.index,
        "kb_id": source.kb_id,
        "document_id": source.document_id,
        "doc_id": source.document_id,
        "revision": source.revision,
        "key": source.key,
        "title": source.title,
        "media_type": str(source.media_type),
        "section_path": list(source.section_path),
        "start": source.start,
        "end": source.end,
        "segment_page_start": pages[0] if pages else None,
        "segment_page_end": pages[-1] if pages else None,
        "score": source.score,
        "text": source.text,
    }


def _error(interaction: Interaction) -> Record | None:
    if interaction.error_code is None:
        return None
    return {"code": interaction.error_code, "message": interaction.error or ""}


def _iso(time: datetime | None) -> str | None:
    """Raises ValueError for a time without a zone, which would be wrong by hours somewhere."""
    if time is None:
        return None
    if time.tzinfo is None:
        raise ValueError(f"{time} has no time zone")
    return time.astimezone(UTC).isoformat()
