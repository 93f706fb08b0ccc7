"""Threads and messages in SQL."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, RowMapping, Select, insert, select, update

from pipeline.clock import now, to_datetime
from pipeline.errors import NotFoundError
from pipeline.models import Message, MessageStatus, Thread, ThreadParams
from pipeline.stores.database import Database
from pipeline.stores.schema import messages, threads


class SqlConversations:
    def __init__(self, database: Database) -> None:
        self._database = database

    def create_thread(self, tenant_id: str, params: ThreadParams) -> Thread:
        row: dict[str, Any] = {
            "id": uuid4().hex,
            "tenant_id": tenant_id,
            "params": asdict(params),
            "created_at": now(),
        }
        with self._database.write() as connection:
            connection.execute(insert(threads).values(row))
        return Thread(row["id"], tenant_id, params, to_datetime(row["created_at"]))

    def get_thread(self, tenant_id: str, thread_id: str) -> Thread:
        with self._database.read() as connection:
            row = connection.execute(_threads(tenant_id).where(threads.c.id == thread_id)).mappings().first()
        if row is None:
            raise NotFoundError(f"No thread {thread_id!r}.", code="unknown_thread")
        return _thread(row)

    def list_threads(self, tenant_id: str, after: str = "", limit: int = 100) -> list[Thread]:
        query = _threads(tenant_id).where(threads.c.id > after).order_by(threads.c.id).limit(limit)
        with self._database.read() as connection:
            return [_thread(row) for row in connection.execute(query).mappings()]

    def delete_thread(self, tenant_id: str, thread_id: str) -> None:
        """Its messages go with it: no id of them answers any more."""
        self.get_thread(tenant_id, thread_id)
        with self._database.write() as connection:
            connection.execute(update(threads).where(threads.c.id == thread_id).values(deleted_at=now()))

    def get_message(self, tenant_id: str, message_id: str) -> Message:
        return self._one(_messages().where(messages.c.tenant_id == tenant_id), message_id)

    def message(self, message_id: str) -> Message:
        return self._one(_messages(), message_id)

    def list_messages(self, tenant_id: str, thread_id: str, limit: int = 1000) -> list[Message]:
        query = _messages().where(messages.c.tenant_id == tenant_id, messages.c.thread_id == thread_id)
        newest = query.order_by(messages.c.created_at.desc(), messages.c.id.desc()).limit(limit)
        with self._database.read() as connection:
            return [_message(row) for row in connection.execute(newest).mappings()][::-1]

    def _one(self, query: Select[Any], message_id: str) -> Message:
        with self._database.read() as connection:
            row = connection.execute(query.where(messages.c.id == message_id)).mappings().first()
        if row is None:
            raise NotFoundError(f"No message {message_id!r}.", code="unknown_message")
        return _message(row)


def insert_message(connection: Connection, thread: Thread, content: str, params: ThreadParams) -> Message:
    """Write a question inside the caller's transaction; the answer's steps go into the same one."""
    row = {
        "id": uuid4().hex,
        "thread_id": thread.id,
        "tenant_id": thread.tenant_id,
        "content": content,
        "params": asdict(params),
        "status": MessageStatus.PENDING,
        "created_at": now(),
    }
    connection.execute(insert(messages).values(row))
    blank = {"record": None, "error_code": None, "error": None, "finished_at": None}
    return _message({**row, **blank})


def _threads(tenant_id: str) -> Select[Any]:
    return select(threads).where(threads.c.tenant_id == tenant_id, threads.c.deleted_at.is_(None))


def _messages() -> Select[Any]:
    alive = messages.join(threads, (threads.c.id == messages.c.thread_id) & threads.c.deleted_at.is_(None))
    return select(messages).select_from(alive)


def _params(stored: dict[str, Any]) -> ThreadParams:
    return ThreadParams(**{**stored, "kb_ids": tuple(stored["kb_ids"])})


def _thread(row: RowMapping) -> Thread:
    return Thread(row["id"], row["tenant_id"], _params(row["params"]), to_datetime(row["created_at"]))


def _message(row: RowMapping | dict[str, Any]) -> Message:
    finished_at = row["finished_at"]
    return Message(
        id=row["id"],
        thread_id=row["thread_id"],
        tenant_id=row["tenant_id"],
        content=row["content"],
        params=_params(row["params"]),
        status=MessageStatus(row["status"]),
        record=row["record"],
        error_code=row["error_code"],
        error=row["error"],
        created_at=to_datetime(row["created_at"]),
        finished_at=None if finished_at is None else to_datetime(finished_at),
    )
