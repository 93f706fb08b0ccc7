"""Conversations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Response

from api_gateway import schemas
from api_gateway.dependencies import Access, After, Authorized, Id, Limit
from api_gateway.errors import documented
from pipeline.chat.params import override
from pipeline.models import FINAL_MESSAGE_STATUSES, Message, ThreadParams

router = APIRouter(prefix="/v1/threads", tags=["threads"], responses=documented(401, 422, 503))


@router.post("", status_code=201, summary="Begin a conversation", responses=documented(404, 413, 415))
def create_thread(body: schemas.ThreadCreate, caller: Authorized, response: Response) -> schemas.Thread:
    """What is left out has dsRAG's default. An unknown knowledge base is 404, an unknown model 422."""
    params = caller.client.checked_params(caller.tenant_id, override(ThreadParams(), body.given()))
    record = caller.client.resources.conversations.create_thread(caller.tenant_id, params)
    response.headers["Location"] = f"/v1/threads/{record.id}"
    return schemas.Thread.of(record)


@router.get("", summary="List them")
def list_threads(caller: Authorized, after: After = "", limit: Limit = 100) -> schemas.Page[schemas.Thread]:
    records = caller.client.resources.conversations.list_threads(caller.tenant_id, after, limit)
    return schemas.page_of(map(schemas.Thread.of, records), records, limit)


@router.get("/{thread_id}", summary="Show one with its interactions", responses=documented(404))
def get_thread(thread_id: Id, caller: Authorized) -> schemas.ThreadDetail:
    """The newest 1000 interactions, oldest first; one that is not final is as far as it has come."""
    conversations = caller.client.resources.conversations
    thread = conversations.get_thread(caller.tenant_id, thread_id)
    messages = conversations.list_messages(caller.tenant_id, thread_id)
    interactions = [dict(_interaction(message, caller)) for message in messages]
    return schemas.ThreadDetail.of(thread, interactions=interactions)


@router.delete("/{thread_id}", status_code=204, summary="Delete one", responses=documented(404))
def delete_thread(thread_id: Id, caller: Authorized) -> None:
    """Its messages go with it."""
    caller.client.resources.conversations.delete_thread(caller.tenant_id, thread_id)


def _interaction(message: Message, caller: Access) -> Mapping[str, Any]:
    if message.status in FINAL_MESSAGE_STATUSES and message.record is not None:
        return message.record
    return caller.client.snapshot(caller.tenant_id, message.id).state
