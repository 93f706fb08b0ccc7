"""What others may ask of the workers: submit, ask, cancel, retry, delete, status. The one module open to the gateway.

Everything is written to the ledger in one transaction first; only then does the doorbell ring.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import structlog
from celery import Celery
from sqlalchemy import Connection, and_, select, update

from pipeline.chat.params import override
from pipeline.clock import now
from pipeline.errors import (
    ConfigurationError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    TooLargeError,
    TransientError,
)
from pipeline.flows import answer
from pipeline.jobs import NewStep, StepKind, revision_subject
from pipeline.models import (
    FINAL_MESSAGE_STATUSES,
    FINAL_REVISION_STATES,
    Message,
    MessageStatus,
    QueueStatus,
    RevisionState,
    Snapshot,
    Submitted,
    ThreadParams,
    Upload,
    Waiting,
)
from pipeline.settings import Settings
from pipeline.stores import progress_sql as progress
from pipeline.stores.catalog_sql import register
from pipeline.stores.conversations_sql import insert_message
from pipeline.stores.schema import documents, messages, revisions
from pipeline.wiring import OpenResources, open_resources
from workers.app import create_celery
from workers.doorbell import ring
from workers.policies import POLICIES

log = structlog.get_logger()

_OVERLOAD_RETRY_S = 30.0


def open_client(settings: Settings) -> Client:
    """Raises ConfigurationError."""
    return Client(open_resources(settings, POLICIES), create_celery(settings))


class Client:
    """Every method takes the caller's tenant; another tenant's ids are NotFoundError."""

    def __init__(self, resources: OpenResources, app: Celery) -> None:
        self.resources = resources
        self._app = app

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.resources.close()
        self._app.close()

    # --- documents ---

    def submit_documents(self, tenant_id: str, kb_id: str, uploads: Sequence[Upload]) -> list[Submitted]:
        """Make each upload its document's next revision and its first step. TransientError `overloaded` when full."""
        self._refuse_overload(tenant_id)
        kb = self.resources.knowledge_bases.get(tenant_id, kb_id)
        with self.resources.database.write() as connection:
            submitted = [self._submit(connection, tenant_id, kb.id, upload) for upload in uploads]
        self._ring(POLICIES[StepKind.PLAN].queue)
        return submitted

    def _submit(self, connection: Connection, tenant_id: str, kb_id: str, upload: Upload) -> Submitted:
        document_id, number, is_new = register(connection, tenant_id, kb_id, upload)
        if not is_new:
            return Submitted(upload.key, document_id, number, "unchanged")
        _supersede(connection, document_id, number)
        subject = revision_subject(document_id, number)
        job_id = self.resources.ledger.submit(connection, tenant_id, subject, NewStep(StepKind.PLAN))
        return Submitted(upload.key, document_id, number, "accepted", job_id)

    def delete_document(self, tenant_id: str, document_id: str) -> None:
        """It stops answering at once; the stores are cleaned by `ingest.remove` steps."""
        self.resources.documents.get(tenant_id, document_id)
        with self.resources.database.write() as connection:
            where = and_(documents.c.id == document_id, documents.c.deleted_at.is_(None))
            gone = update(documents).where(where).values(deleted_at=now(), live_revision=None)
            number = connection.execute(gone.returning(documents.c.revision)).scalar_one_or_none()
            if number is not None:
                self._retire(connection, tenant_id, document_id, number)
        self._ring(POLICIES[StepKind.REMOVE].queue)

    def _retire(self, connection: Connection, tenant_id: str, document_id: str, number: int) -> None:
        subject = revision_subject(document_id, number)
        _set_state(connection, subject, RevisionState.DELETED, {})
        job_id = self.resources.ledger.new_job(connection, tenant_id, "ingest")
        progress.remove_revisions(connection, POLICIES, (job_id, tenant_id), document_id, below=number + 1)

    def retry_document(self, tenant_id: str, document_id: str) -> None:
        """Start a failed document's steps again. ConflictError when it has not failed."""
        document = self.resources.documents.get(tenant_id, document_id)
        if document.state is not RevisionState.FAILED:
            raise ConflictError(
                f"The document is {document.state}; only a failed one can be retried.", code="not_failed"
            )
        subject = revision_subject(document_id, document.revision)
        with self.resources.database.write() as connection:
            self.resources.ledger.retry(connection, subject)
            _set_state(connection, subject, RevisionState.QUEUED, {"error_code": None, "error": None})
        self._ring(None)

    def why_document(self, tenant_id: str, document_id: str) -> Waiting | None:
        document = self.resources.documents.get(tenant_id, document_id)
        if document.state in FINAL_REVISION_STATES:
            return None
        return self.resources.watch.why(revision_subject(document_id, document.revision))

    # --- messages ---

    def ask(self, tenant_id: str, thread_id: str, content: str, overrides: Mapping[str, Any]) -> Message:
        """Write a question and its first step. InvalidInputError, TooLargeError, NotFoundError, `overloaded`."""
        self._check_question(content)
        self._refuse_overload(tenant_id)
        thread = self.resources.conversations.get_thread(tenant_id, thread_id)
        params = self.checked_params(tenant_id, override(thread.params, overrides))
        params = replace(params, model=params.model or self.resources.settings.model)
        with self.resources.database.write() as connection:
            message = insert_message(connection, thread, content, params)
            self.resources.ledger.submit(connection, tenant_id, message.id, NewStep(StepKind.AUTO_QUERY))
        self._ring(POLICIES[StepKind.AUTO_QUERY].queue)
        return message

    def checked_params(self, tenant_id: str, params: ThreadParams) -> ThreadParams:
        """With knowledge bases by id. NotFoundError for an unknown one, InvalidInputError `unknown_model`."""
        kb_ids = tuple(self.resources.knowledge_bases.get(tenant_id, kb).id for kb in params.kb_ids)
        try:
            self.resources.check_model(params.model)
            self.resources.check_model(params.auto_query_model)
        except ConfigurationError as error:
            raise InvalidInputError(error.message, code="unknown_model") from error
        return replace(params, kb_ids=tuple(dict.fromkeys(kb_ids)))

    def _check_question(self, content: str) -> None:
        limit = self.resources.settings.max_question_chars
        if not content.strip():
            raise InvalidInputError("The question is empty.", code="empty_question")
        if len(content) > limit:
            raise TooLargeError(
                f"The question has {len(content)} characters; SOURCEMILL_MAX_QUESTION_CHARS allows {limit}.",
                code="question_too_long",
            )

    def cancel_message(self, tenant_id: str, message_id: str) -> None:
        """End it as `cancelled`. ConflictError when it has ended already."""
        self.resources.conversations.get_message(tenant_id, message_id)
        with self.resources.database.write() as connection:
            still_open = and_(messages.c.id == message_id, messages.c.status.not_in(FINAL_MESSAGE_STATUSES))
            values = {"status": MessageStatus.CANCELLED, "finished_at": now()}
            if not connection.execute(update(messages).where(still_open).values(values)).rowcount:
                raise ConflictError("The message has ended already.", code="already_final")
            progress.cancel_open(connection, message_id, "the caller cancelled the message")
        self._publish(message_id)

    def _publish(self, message_id: str) -> None:
        try:
            answer.publish(self.resources, message_id)
            self.resources.watch.set_published(message_id)
        except TransientError as error:
            log.warning("publish_failed", message_id=message_id, error=error.message)

    def snapshot(self, tenant_id: str, message_id: str) -> Snapshot:
        """The present state: the final record from the catalog, else the stream's snapshot, else a pending record."""
        message = self.resources.conversations.get_message(tenant_id, message_id)
        streamed = self.resources.streams.snapshot(message_id)
        epoch, seq = (streamed.epoch, streamed.seq) if streamed else (0, -1)
        if message.status in FINAL_MESSAGE_STATUSES or streamed is None:
            return Snapshot(message_id, epoch, seq, answer.record_of(message))
        return streamed

    def why_message(self, tenant_id: str, message_id: str) -> Waiting | None:
        message = self.resources.conversations.get_message(tenant_id, message_id)
        return None if message.status in FINAL_MESSAGE_STATUSES else self.resources.watch.why(message_id)

    # --- operators ---

    def progress(self, tenant_id: str) -> list[QueueStatus]:
        return self.resources.watch.queues(tenant_id)

    def _refuse_overload(self, tenant_id: str) -> None:
        limit = self.resources.settings.max_queued_steps
        if self.resources.watch.queued(tenant_id, limit) >= limit:
            raise TransientError(
                f"More than {limit} steps of yours wait already (SOURCEMILL_MAX_QUEUED_STEPS). Try again later.",
                code="overloaded",
                retry_after_s=_OVERLOAD_RETRY_S,
            )

    def _ring(self, queue: str | None) -> None:
        """The work is in the ledger by now; should the bell fail, the reconciler rings it within a second."""
        try:
            ring(self._app, self.resources.relay, None if queue is None else {queue})
        except TransientError as error:
            log.warning("doorbell_failed", error=error.message)


def _supersede(connection: Connection, document_id: str, number: int) -> None:
    """Stop the revisions before `number` that are still in work; the live one goes on answering meanwhile."""
    c = revisions.c
    older = and_(c.document_id == document_id, c.number < number, c.state.not_in(FINAL_REVISION_STATES))
    for subject in connection.execute(select(c.subject).where(older)).scalars().all():
        progress.cancel_open(connection, subject, f"revision {number} took its place")
        facts = {"error_code": "superseded", "error": f"Revision {number} took its place."}
        _set_state(connection, subject, RevisionState.CANCELLED, facts)


def _set_state(connection: Connection, subject: str, state: RevisionState, facts: Mapping[str, Any]) -> None:
    times = connection.execute(select(revisions.c.times).where(revisions.c.subject == subject)).scalar_one_or_none()
    if times is None:
        raise NotFoundError(f"No revision {subject!r}.", code="unknown_document")
    values = {"state": state, "times": {**times, state: now()}, **facts}
    connection.execute(update(revisions).where(revisions.c.subject == subject).values(values))
