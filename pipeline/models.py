"""The records that cross a boundary: between steps, stores, workers and the gateway.

All are frozen. Offsets are Python string indices (code points) into the document text, which is the
concatenation of its page texts; spans are half open, ``[start, end)``. Times are UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, cast

import orjson
from pydantic import TypeAdapter

Span = tuple[int, int]
T = TypeVar("T")


# --- ingestion -------------------------------------------------------------------------------------


class MediaType(StrEnum):
    PDF = "application/pdf"
    HTML = "text/html"
    MARKDOWN = "text/markdown"
    TEXT = "text/plain"
    DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    CSV = "text/csv"


class RevisionState(StrEnum):
    QUEUED = "queued"
    EXTRACTING = "extracting"
    INDEXING = "indexing"
    SEARCHABLE = "searchable"
    READY = "ready"
    EMPTY = "empty"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DELETED = "deleted"


#: A revision in one of these never changes again by itself.
FINAL_REVISION_STATES = frozenset(
    {
        RevisionState.READY,
        RevisionState.EMPTY,
        RevisionState.FAILED,
        RevisionState.CANCELLED,
        RevisionState.DELETED,
    }
)


@dataclass(frozen=True, slots=True)
class Probe:
    """What `plan` learns from a file without extracting it."""

    media_type: MediaType
    page_count: int
    title: str | None = None


@dataclass(frozen=True, slots=True)
class Heading:
    """A title inside a page text at `offset`; level 1 is the highest."""

    offset: int
    level: int
    title: str


@dataclass(frozen=True, slots=True)
class ExtractedPage:
    """One page's text. `furniture` are spans of running headers and footers, relative to `text`."""

    number: int
    text: str
    headings: tuple[Heading, ...] = ()
    furniture: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class ExtractedShard:
    """What one `extract` step writes: its pages in order, and the pages that it had to give up."""

    pages: tuple[ExtractedPage, ...]
    missing: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PageSpan:
    number: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Section:
    """A titled span. `path` are the titles from the top heading down to this one, `()` before the first."""

    index: int
    level: int
    path: tuple[str, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """`text` is exactly `document_text[start:end]`; it lies in one section. Pages count from 1, inclusive."""

    ordinal: int
    start: int
    end: int
    section: int
    page_start: int
    page_end: int
    text: str


@dataclass(frozen=True, slots=True)
class Outline:
    """A document text's structure. Pages tile it; so do sections; so do chunks and furniture together."""

    title: str
    pages: tuple[PageSpan, ...]
    sections: tuple[Section, ...]
    furniture: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexedChunk:
    """A chunk as the stores see it. `id` is derived from content, so putting it twice changes nothing.

    `header` is the context put before the text when it is embedded, never shown as its text.
    `terms` is the analysed header and text, tokens joined by one space (pipeline/analysis.py).
    """

    id: str
    tenant_id: str
    kb_id: str
    document_id: str
    revision: int
    ordinal: int
    start: int
    end: int
    page_start: int
    page_end: int
    section_path: tuple[str, ...]
    header: str
    text: str
    terms: str


# --- retrieval -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a search may look. The tenant comes from the API key, never from a request body."""

    tenant_id: str
    kb_id: str


@dataclass(frozen=True, slots=True)
class TextQuery:
    """A parsed query in analysed terms (retrieval/query.py); with nothing in it, nothing matches.

    A chunk matches when it has every `required` term and phrase and no `excluded` one, and, if there is
    no required part, at least one of `any` or `phrases`. Phrases are adjacent terms, in order.
    """

    any: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    phrases: tuple[tuple[str, ...], ...] = ()
    required_phrases: tuple[tuple[str, ...], ...] = ()
    excluded_phrases: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class ScoredChunk:
    """One channel's answer: a chunk id with that channel's raw score, higher is better."""

    chunk_id: str
    document_id: str
    revision: int
    score: float


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk with its scores for a query; a channel that did not find it leaves its fields None."""

    chunk_id: str
    kb_id: str
    document_id: str
    revision: int
    ordinal: int
    start: int
    end: int
    page_start: int
    page_end: int
    section_path: tuple[str, ...]
    text: str
    score: float
    text_score: float | None = None
    text_rank: int | None = None
    vector_score: float | None = None
    vector_rank: int | None = None


@dataclass(frozen=True, slots=True)
class SearchQuery:
    query: str
    kb_id: str


@dataclass(frozen=True, slots=True)
class Degradation:
    """A part that could not serve as asked, named in the answer; never silent."""

    part: str
    code: str
    reason: str
    kb_id: str | None = None


@dataclass(frozen=True, slots=True)
class Retrieved:
    """What one `retrieve` step writes: hits of one knowledge base, best first."""

    kb_id: str
    hits: tuple[Hit, ...]
    degraded: tuple[Degradation, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """A numbered span of one document revision, shown to the generator. `text` is `document_text[start:end]`.

    `pages` are the page spans that overlap it, in document offsets.
    """

    index: int
    kb_id: str
    document_id: str
    revision: int
    key: str
    title: str
    media_type: MediaType
    section_path: tuple[str, ...]
    start: int
    end: int
    text: str
    pages: tuple[PageSpan, ...]
    score: float


# --- chat ------------------------------------------------------------------------------------------


class MessageStatus(StrEnum):
    PENDING = "pending"
    STREAMING = "streaming"
    HIGHLIGHTING_CITATIONS = "highlighting_citations"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINAL_MESSAGE_STATUSES = frozenset({MessageStatus.FINISHED, MessageStatus.FAILED, MessageStatus.CANCELLED})


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn for a model: role is `system`, `user` or `assistant`."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class DraftCitation:
    """What a generator claims: `marker` is the n of `[n]` in its text. Nothing here is proven yet."""

    marker: int
    source_index: int
    cited_text: str
    page_number: int | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """The state of an answer while it is generated; cumulative. `complete` is False for a cut-off stream."""

    response: str
    citations: tuple[DraftCitation, ...] = ()
    complete: bool = False
    abstained: bool = False


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle on a PDF page, in points (1/72 inch), origin at the bottom left of the page."""

    page: int
    left: float
    bottom: float
    right: float
    top: float


@dataclass(frozen=True, slots=True)
class Citation:
    """A proven quote: `cited_text` is exactly `document_text[start:end]` and lies on one page."""

    marker: int
    source_index: int
    kb_id: str
    document_id: str
    revision: int
    key: str
    title: str
    page_number: int
    start: int
    end: int
    page_start_offset: int
    cited_text: str
    boxes: tuple[Box, ...] = ()


@dataclass(frozen=True, slots=True)
class UnverifiedQuote:
    """A quote that failed its proof, with the reason; shown as unverified, never as a citation."""

    marker: int
    cited_text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many sentences of the answer carry a proven citation."""

    sentences: int
    proven: int


@dataclass(frozen=True, slots=True)
class VerifiedAnswer:
    content: str
    citations: tuple[Citation, ...]
    unverified: tuple[UnverifiedQuote, ...]
    coverage: Coverage


@dataclass(frozen=True, slots=True)
class ThreadParams:
    """A thread's parameters with dsRAG's names and defaults; a message may override any subset."""

    kb_ids: tuple[str, ...] = ()
    model: str = ""
    temperature: float = 0.2
    system_message: str = ""
    auto_query_model: str = ""
    auto_query_guidance: str = ""
    target_output_length: str = "medium"
    max_chat_history_tokens: int = 8000
    rse_params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a message's stream. `seq` is contiguous from 0 and survives a change of `epoch`.

    Types: `status`, `queries`, `sources`, `delta` {text}, `reset` (the text starts again: a new attempt, or a draft
    that took words back), `citations` (the proven answer; its content replaces the text), `snapshot` (the whole
    state), and exactly one terminal event: `finished`, `failed` or `cancelled`, whose data is the final record.
    """

    seq: int
    epoch: int
    type: str
    data: Mapping[str, Any]


TERMINAL_EVENTS = frozenset({"finished", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The present state of a message. `state` is the interaction record (chat/record.py)."""

    message_id: str
    epoch: int
    seq: int
    state: Mapping[str, Any]


# --- catalog ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KnowledgeBase:
    id: str
    tenant_id: str
    name: str
    description: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Document:
    """A document with its latest revision's facts. `live_revision` is the one that answers, if any."""

    id: str
    tenant_id: str
    kb_id: str
    key: str
    live_revision: int | None
    revision: int
    state: RevisionState
    title: str
    media_type: str | None
    size_bytes: int
    page_count: int | None
    chunk_count: int | None
    char_count: int | None
    missing_pages: Mapping[str, str]
    error_code: str | None
    error: str | None
    created_at: datetime
    times: Mapping[str, datetime]


@dataclass(frozen=True, slots=True)
class Revision:
    """What a step needs of a revision: where its bytes are (blob area and ids) and what its stages wrote."""

    document_id: str
    number: int
    tenant_id: str
    kb_id: str
    key: str
    state: RevisionState
    area: str
    content_blob: str
    size_bytes: int
    title: str | None
    media_type: MediaType | None
    text_blob: str | None
    outline_blob: str | None


@dataclass(frozen=True, slots=True)
class Thread:
    id: str
    tenant_id: str
    params: ThreadParams
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Message:
    """One question and its answer. `record` is the stored interaction once the status is final."""

    id: str
    thread_id: str
    tenant_id: str
    content: str
    params: ThreadParams
    status: MessageStatus
    record: Mapping[str, Any] | None
    error_code: str | None
    error: str | None
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, proven by an API key."""

    tenant_id: str
    key_id: str


@dataclass(frozen=True, slots=True)
class Upload:
    """Bytes that are durable in blob `area` and wait to become a revision of the document `key`."""

    key: str
    area: str
    blob_id: str
    size_bytes: int
    title: str | None = None


@dataclass(frozen=True, slots=True)
class Submitted:
    """`outcome` is `accepted`, or `unchanged` when the same bytes are there already (no job then)."""

    key: str
    document_id: str
    revision: int
    outcome: str
    job_id: str | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a document or message is not done: one sentence, and its numbers."""

    sentence: str
    cause: str
    position: int | None = None
    eta_s: float | None = None


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """How much work a queue holds and how many live workers consume it."""

    queue: str
    ready: int
    running: int
    dead: int
    workers: int


# --- bytes -----------------------------------------------------------------------------------------


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def dump(record: Any) -> bytes:
    """JSON bytes of a record or a tuple of records; the same record gives the same bytes."""
    return orjson.dumps(record, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)


def load(kind: type[T], data: bytes | str) -> T:
    """The record of type `kind` in JSON bytes that `dump` wrote."""
    return cast("T", _adapter(cast("Any", kind)).validate_json(data))
