"""The catalog in SQL: knowledge bases, documents and API keys. Conversations are in conversations_sql.py."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Mapping
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, RowMapping, Select, func, insert, select, update

from pipeline.clock import now, to_datetime
from pipeline.errors import ConflictError, InvalidInputError, NotFoundError, UnauthorizedError
from pipeline.models import (
    Caller,
    Document,
    KnowledgeBase,
    MediaType,
    Revision,
    RevisionState,
    Upload,
)
from pipeline.stores.database import Database
from pipeline.stores.schema import api_keys, documents, knowledge_bases, revisions

_MAX_NAME_CHARS = 200
_MAX_TENANT_CHARS = 64
_KEY_PREFIX = "sm_"


class SqlKnowledgeBases:
    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, tenant_id: str, name: str, description: str = "") -> KnowledgeBase:
        name = name.strip()
        if not name or len(name) > _MAX_NAME_CHARS or not name.isprintable():
            raise InvalidInputError(
                f"A knowledge base's name has 1 to {_MAX_NAME_CHARS} printable characters.", code="bad_name"
            )
        row = {
            "id": uuid4().hex,
            "tenant_id": tenant_id,
            "name": name,
            "description": description,
            "created_at": now(),
        }
        try:
            with self._database.write() as connection:
                connection.execute(insert(knowledge_bases).values(row))
        except ConflictError as error:
            raise ConflictError(f"There is a knowledge base named {name!r} already.", code="duplicate_name") from error
        return _knowledge_base(row)

    def get(self, tenant_id: str, kb_id: str) -> KnowledgeBase:
        table = knowledge_bases.c
        query = select(knowledge_bases).where(table.tenant_id == tenant_id, (table.id == kb_id) | (table.name == kb_id))
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(table.id != kb_id)).mappings().all()
        if not rows:
            raise NotFoundError(f"No knowledge base {kb_id!r}.", code="unknown_knowledge_base")
        return _knowledge_base(rows[0])

    def list(self, tenant_id: str, after: str = "", limit: int = 100) -> list[KnowledgeBase]:
        table = knowledge_bases.c
        query = select(knowledge_bases).where(table.tenant_id == tenant_id, table.id > after)
        with self._database.read() as connection:
            return [
                _knowledge_base(row) for row in connection.execute(query.order_by(table.id).limit(limit)).mappings()
            ]


def _knowledge_base(row: RowMapping | Mapping[str, Any]) -> KnowledgeBase:
    return KnowledgeBase(row["id"], row["tenant_id"], row["name"], row["description"], to_datetime(row["created_at"]))


class SqlDocuments:
    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, tenant_id: str, document_id: str) -> Document:
        query = _latest().where(documents.c.tenant_id == tenant_id, documents.c.id == document_id)
        with self._database.read() as connection:
            row = connection.execute(query).mappings().first()
        if row is None:
            raise NotFoundError(f"No document {document_id!r}.", code="unknown_document")
        return _document(row)

    def list(
        self, tenant_id: str, kb_id: str, after: str = "", limit: int = 100, state: str | None = None
    ) -> list[Document]:
        query = _latest().where(documents.c.tenant_id == tenant_id, documents.c.kb_id == kb_id, documents.c.id > after)
        if state:
            query = query.where(revisions.c.state == state)
        with self._database.read() as connection:
            return [_document(r) for r in connection.execute(query.order_by(documents.c.id).limit(limit)).mappings()]

    def counts(self, tenant_id: str, kb_id: str | None = None) -> dict[str, int]:
        query = (
            select(revisions.c.state, func.count())
            .select_from(_joined())
            .where(documents.c.tenant_id == tenant_id, documents.c.deleted_at.is_(None))
            .group_by(revisions.c.state)
        )
        if kb_id is not None:
            query = query.where(documents.c.kb_id == kb_id)
        with self._database.read() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def revision(self, document_id: str, number: int) -> Revision:
        query = (
            select(revisions, documents.c.key)
            .select_from(revisions.join(documents, documents.c.id == revisions.c.document_id))
            .where(revisions.c.document_id == document_id, revisions.c.number == number)
        )
        with self._database.read() as connection:
            row = connection.execute(query).mappings().first()
        if row is None:
            raise NotFoundError(f"No revision {number} of document {document_id!r}.", code="unknown_document")
        return _revision(row)

    def live_revisions(self, document_ids: Collection[str]) -> dict[str, int]:
        query = select(documents.c.id, documents.c.live_revision).where(
            documents.c.id.in_(document_ids),
            documents.c.deleted_at.is_(None),
            documents.c.live_revision.is_not(None),
        )
        with self._database.read() as connection:
            return {row[0]: row[1] for row in connection.execute(query)}


def _joined() -> Any:
    same = (revisions.c.document_id == documents.c.id) & (revisions.c.number == documents.c.revision)
    return documents.join(revisions, same)


def _latest() -> Select[Any]:
    """Documents that are not deleted, each with its latest revision's columns."""
    facts = [column for column in revisions.c if column.name not in ("tenant_id", "kb_id", "document_id")]
    return select(documents, *facts).select_from(_joined()).where(documents.c.deleted_at.is_(None))


def _document(row: RowMapping) -> Document:
    return Document(
        id=row["id"],
        tenant_id=row["tenant_id"],
        kb_id=row["kb_id"],
        key=row["key"],
        live_revision=row["live_revision"],
        revision=row["revision"],
        state=RevisionState(row["state"]),
        title=row["title"] or row["key"],
        media_type=row["media_type"],
        size_bytes=row["size_bytes"],
        page_count=row["page_count"],
        chunk_count=row["chunk_count"],
        char_count=row["char_count"],
        missing_pages=row["missing_pages"] or {},
        error_code=row["error_code"],
        error=row["error"],
        created_at=to_datetime(row["created_at"]),
        times={name: to_datetime(seconds) for name, seconds in row["times"].items()},
    )


def _revision(row: RowMapping) -> Revision:
    return Revision(
        document_id=row["document_id"],
        number=row["number"],
        tenant_id=row["tenant_id"],
        kb_id=row["kb_id"],
        key=row["key"],
        state=RevisionState(row["state"]),
        area=row["area"],
        content_blob=row["content_blob"],
        size_bytes=row["size_bytes"],
        title=row["title"],
        media_type=MediaType(row["media_type"]) if row["media_type"] else None,
        text_blob=row["text_blob"],
        outline_blob=row["outline_blob"],
    )


def register(connection: Connection, tenant_id: str, kb_id: str, upload: Upload) -> tuple[str, int, bool]:
    """Write an upload as its document's next revision, inside the caller's transaction.

    Returns (document_id, revision, is_new); the same bytes as the latest revision, unless that failed or was
    cancelled, are not new.
    """
    where = (documents.c.kb_id == kb_id) & (documents.c.key == upload.key) & documents.c.deleted_at.is_(None)
    found = connection.execute(_latest().where(where)).mappings().first()
    if found is None:
        document_id, number = uuid4().hex, 1
        row = {"id": document_id, "tenant_id": tenant_id, "kb_id": kb_id, "key": upload.key, "created_at": now()}
        connection.execute(insert(documents).values(**row, revision=1))
    elif _is_same(found, upload):
        return found["id"], found["revision"], False
    else:
        document_id, number = found["id"], found["revision"] + 1
        connection.execute(update(documents).where(documents.c.id == document_id).values(revision=number))
    _insert_revision(connection, (tenant_id, kb_id, document_id, number), upload)
    return document_id, number, True


def _is_same(found: RowMapping, upload: Upload) -> bool:
    over = (RevisionState.FAILED, RevisionState.CANCELLED)
    same_title = upload.title is None or upload.title == found["title"]
    return found["content_blob"] == upload.blob_id and same_title and found["state"] not in over


def _insert_revision(connection: Connection, place: tuple[str, str, str, int], upload: Upload) -> None:
    tenant_id, kb_id, document_id, number = place
    connection.execute(
        insert(revisions).values(
            subject=f"{document_id}:{number}",
            document_id=document_id,
            number=number,
            tenant_id=tenant_id,
            kb_id=kb_id,
            state=RevisionState.QUEUED,
            area=upload.area,
            content_blob=upload.blob_id,
            size_bytes=upload.size_bytes,
            title=upload.title,
            times={RevisionState.QUEUED: now()},
        )
    )


class SqlApiKeys:
    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, tenant_id: str, name: str) -> tuple[str, str]:
        for text, limit in ((tenant_id, _MAX_TENANT_CHARS), (name, _MAX_NAME_CHARS)):
            if not text.strip() or len(text) > limit or not text.isprintable():
                raise InvalidInputError(f"A key's tenant and name have 1 to {limit} printable characters.")
        key_id, secret = uuid4().hex, _KEY_PREFIX + secrets.token_urlsafe(32)
        row = {"id": key_id, "tenant_id": tenant_id, "name": name, "created_at": now()}
        with self._database.write() as connection:
            connection.execute(insert(api_keys).values(**row, secret_hash=_hash(secret)))
        return key_id, secret

    def authenticate(self, secret: str) -> Caller:
        """The lookup is by the hash of 256 random bits, so its timing tells nothing of the secret."""
        query = select(api_keys.c.tenant_id, api_keys.c.id).where(
            api_keys.c.secret_hash == _hash(secret), api_keys.c.revoked_at.is_(None)
        )
        with self._database.read() as connection:
            row = connection.execute(query).first()
        if row is None:
            raise UnauthorizedError("This API key is not valid here.", code="invalid_api_key")
        return Caller(tenant_id=row[0], key_id=row[1])

    def exists(self) -> bool:
        with self._database.read() as connection:
            return connection.execute(select(api_keys.c.id).limit(1)).first() is not None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
