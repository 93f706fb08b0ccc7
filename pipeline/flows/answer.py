"""Answering, in reading order: auto_query, retrieve (one a knowledge base), generate, publish."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from pipeline.chat.answer import answer
from pipeline.chat.auto_query import plan_queries
from pipeline.chat.history import select
from pipeline.chat.record import Interaction, Record, to_record
from pipeline.chat.stream import AnswerStream, end_stream
from pipeline.errors import NotFoundError, PermanentError
from pipeline.inference.ports import GenerationRequest
from pipeline.inference.tokens import token_counter
from pipeline.jobs import Ended, Step, StepKind, StepState
from pipeline.models import (
    FINAL_MESSAGE_STATUSES,
    Box,
    ChatMessage,
    Citation,
    Degradation,
    Hit,
    MediaType,
    Message,
    MessageStatus,
    Outline,
    Revision,
    Scope,
    SearchQuery,
    Source,
    load,
)
from pipeline.resources import Resources
from pipeline.retrieval.search import Channels
from pipeline.retrieval.search import retrieve as search
from pipeline.retrieval.sources import SourceSpan, group

Output = dict[str, Any]
Check = Callable[[], None]
T = TypeVar("T")

#: Hits that one knowledge base hands to the answer, and what all sources may hold together.
HITS_PER_KB = 20
MAX_SOURCE_CHARS = 24_000
MAX_SOURCES = 16

#: The epoch of whoever writes a terminal event: above every attempt's, so that none can write after it.
FINAL_EPOCH = 1_000_000


def auto_query(resources: Resources, step: Step, _check: Check) -> Output:
    """Plan which queries to ask of which knowledge base."""
    message = resources.conversations.message(step.subject)
    kbs = [resources.knowledge_bases.get(message.tenant_id, kb_id) for kb_id in message.params.kb_ids]
    planned = plan_queries(
        message.content,
        _history(resources, message),
        kbs,
        message.params.auto_query_guidance,
        resources.structured_model(message.params),
    )
    return {
        "queries": [asdict(query) for query in planned.queries],
        "degraded": [asdict(part) for part in planned.degraded],
    }


def _history(resources: Resources, message: Message) -> tuple[ChatMessage, ...]:
    """The finished turns before this one that fit the thread's budget."""
    turns: list[ChatMessage] = []
    for earlier in resources.conversations.list_messages(message.tenant_id, message.thread_id):
        if earlier.record is not None and earlier.created_at < message.created_at:
            reply = str(earlier.record["model_response"]["content"])
            turns += [ChatMessage("user", earlier.content), ChatMessage("assistant", reply)]
    if not turns:
        return ()
    question = ChatMessage("user", message.content)
    kept = select([*turns, question], message.params.max_chat_history_tokens, token_counter().count)
    return kept[:-1]


def retrieve(resources: Resources, step: Step, _check: Check) -> Output:
    """Search one knowledge base for all its queries; the output keeps ids, offsets and scores, no text."""
    channels = Channels(resources.text_store, resources.vector_store, resources.embedder, resources.embeds)
    scope = Scope(step.tenant_id, step.shard)
    found = search(step.input["queries"], scope, channels, resources.documents.live_revisions, HITS_PER_KB)
    hits = [{**asdict(hit), "text": ""} for hit in found.hits]
    return {"hits": hits, "degraded": [asdict(part) for part in found.degraded]}


def generate(resources: Resources, step: Step, check: Check) -> Output:
    """Write the answer from what every knowledge base found, streaming it; the output is the final record."""
    message = resources.conversations.message(step.subject)
    generator = resources.generator(message.params)
    stream = AnswerStream(resources.streams, message.id, step.fence, time.monotonic)
    stream.begin(_interaction(message, generator.name))
    texts = _Texts(resources)
    sources = _found(resources, step, stream, texts)
    request = GenerationRequest(message.content, _history(resources, message), sources, message.params)
    boxes = _Boxes(resources, texts)
    last_attempt = step.attempt >= step.max_attempts
    answered = answer(request, generator, stream, check=check, locate=boxes.locate, keep_partial=last_attempt)
    interaction = replace(
        stream.interaction,
        status=MessageStatus.FINISHED,
        answer=answered.answer,
        abstained=answered.abstained,
        incomplete=answered.incomplete,
        degraded=(*stream.interaction.degraded, *boxes.degraded),
        answered_at=datetime.now(UTC),
    )
    return {"record": to_record(interaction)}


def _interaction(message: Message, model: str) -> Interaction:
    return Interaction(message.id, message.thread_id, message.content, message.created_at, model)


def _found(resources: Resources, step: Step, stream: AnswerStream, texts: _Texts) -> tuple[Source, ...]:
    """Collect the parts of the fan-in, tell the stream, and return the numbered sources."""
    (planned,) = resources.outputs.ended(step.subject, StepKind.AUTO_QUERY)
    queries = [SearchQuery(**query) for query in planned.output["queries"]]
    stream.queries(queries, [Degradation(**part) for part in planned.output["degraded"]])
    parts = resources.outputs.ended(step.subject, StepKind.RETRIEVE)
    _refuse_blindness(parts)
    degraded = [part for ended in parts for part in _degraded(ended)]
    hits = [_hit(hit) for ended in parts for hit in ended.output.get("hits", ())]
    sources = _sources(resources, hits, texts)
    stream.sources(sources, degraded)
    return sources


def _refuse_blindness(parts: Sequence[Ended]) -> None:
    """An answer that no knowledge base was searched for would look like one that the documents do not hold."""
    if parts and all(ended.state is not StepState.DONE for ended in parts):
        reasons = "; ".join(dict.fromkeys(ended.error or "it failed" for ended in parts))
        raise PermanentError(f"No knowledge base could be searched: {reasons}", code="search_unavailable")


def _degraded(ended: Ended) -> list[Degradation]:
    """What a knowledge base could not do; one that failed or ran out of time is named with its reason."""
    if ended.state is StepState.DONE:
        return [Degradation(**part) for part in ended.output["degraded"]]
    return [Degradation("retrieve", ended.error_code or "failed", ended.error or "It failed.", ended.shard)]


def _hit(stored: dict[str, Any]) -> Hit:
    return Hit(**{**stored, "section_path": tuple(stored["section_path"])})


def _sources(resources: Resources, hits: Sequence[Hit], texts: _Texts) -> tuple[Source, ...]:
    """Numbered sources out of all knowledge bases' hits, best first; a revision that stopped answering is left out."""
    live = resources.documents.live_revisions({hit.document_id for hit in hits})
    alive = [hit for hit in hits if live.get(hit.document_id) == hit.revision]
    found = [texts.source(span) for span in group(alive, MAX_SOURCE_CHARS, MAX_SOURCES)]
    present = [source for source in found if source is not None]
    return tuple(replace(source, index=index) for index, source in enumerate(present))


class _Texts:
    """Document texts and outlines by revision, read once for one answer."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._read: dict[tuple[str, int], tuple[Revision, str, Outline]] = {}

    def source(self, span: SourceSpan) -> Source | None:
        """The span as a source, not yet numbered; None when its document was deleted in this very moment."""
        try:
            revision, text, outline = self._revision(span.document_id, span.revision)
        except NotFoundError:
            return None
        return Source(
            index=0,
            kb_id=span.kb_id,
            document_id=span.document_id,
            revision=span.revision,
            key=revision.key,
            title=outline.title,
            media_type=_known(revision.media_type),
            section_path=span.section_path,
            start=span.start,
            end=span.end,
            text=text[span.start : span.end],
            pages=tuple(page for page in outline.pages if page.start < span.end and span.start < page.end),
            score=span.score,
        )

    def revision(self, document_id: str, number: int) -> Revision:
        return self._revision(document_id, number)[0]

    def _revision(self, document_id: str, number: int) -> tuple[Revision, str, Outline]:
        found = self._read.get((document_id, number))
        if found is None:
            revision = self._resources.documents.revision(document_id, number)
            get = self._resources.blobs.get
            text = get(revision.area, _known(revision.text_blob)).decode()
            outline = load(Outline, get(revision.area, _known(revision.outline_blob)))
            found = self._read[document_id, number] = (revision, text, outline)
        return found


def _known(value: T | None) -> T:
    """A fact that every live revision has."""
    if value is None:
        raise AssertionError("a live revision was planned and assembled")
    return value


class _Boxes:
    """Finds where quotes are on their PDF pages; what fails is named, and the quote stays proven without boxes."""

    def __init__(self, resources: Resources, texts: _Texts) -> None:
        self._resources, self._texts = resources, texts
        self.degraded: list[Degradation] = []

    def locate(self, citation: Citation) -> tuple[Box, ...]:
        revision = self._texts.revision(citation.document_id, citation.revision)
        if revision.media_type is not MediaType.PDF:
            return ()
        start, end = citation.start - citation.page_start_offset, citation.end - citation.page_start_offset
        try:
            with self._resources.blobs.local_path(revision.area, revision.content_blob) as path:
                return self._resources.parser.locate(path, citation.page_number, start, end)
        except PermanentError as error:
            self.degraded.append(Degradation("boxes", error.code, error.message, citation.kb_id))
            return ()


def publish(resources: Resources, message_id: str) -> None:
    """Write a final message's terminal event; the record is in the catalog by now. Doing it twice changes nothing."""
    try:
        message = resources.conversations.message(message_id)
    except NotFoundError:  # its thread was deleted, and nobody may see it any more
        resources.streams.delete(message_id)
        return
    if message.status in FINAL_MESSAGE_STATUSES:
        end_stream(resources.streams, message_id, FINAL_EPOCH, _final_record(resources, message))


def _final_record(resources: Resources, message: Message) -> Record:
    """A message that failed or was cancelled keeps what its stream had of the text."""
    record = record_of(message)
    snapshot = resources.streams.snapshot(message.id) if message.record is None else None
    if snapshot is None:
        return record
    own = ("model_response", "error")
    kept = {name: value for name, value in snapshot.state.items() if name not in own}
    content = snapshot.state["model_response"]["content"]
    return {**record, **kept, "model_response": {**record["model_response"], "content": content}}


def record_of(message: Message) -> Record:
    """The interaction record as the catalog has it."""
    if message.record is not None:
        return dict(message.record)
    interaction = replace(
        _interaction(message, message.params.model),
        status=message.status,
        answered_at=message.finished_at,
        error_code=message.error_code,
        error=message.error,
    )
    return to_record(interaction)
