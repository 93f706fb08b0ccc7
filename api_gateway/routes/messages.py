"""Questions and their answers: ask, watch, cancel."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from api_gateway import schemas
from api_gateway.dependencies import Authorized, Id
from api_gateway.errors import documented
from api_gateway.streams import EventStreamResponse
from pipeline.models import FINAL_MESSAGE_STATUSES

router = APIRouter(prefix="/v1", tags=["messages"], responses=documented(401, 404, 422, 503))

#: The largest seq that a client can have seen: what a JavaScript number holds exactly.
_MAX_SEQ = 2**53 - 1

_STREAM: dict[str, Any] = {
    "description": "Server-sent events: `id` is the seq, `event` the type, `data` one line of JSON.",
    "content": {
        "text/event-stream": {
            "schema": {"type": "string"},
            "example": 'id: 3\nevent: delta\ndata: {"text":"You have 25 days"}\n\n',
        }
    },
}


@router.post(
    "/threads/{thread_id}/messages",
    status_code=202,
    summary="Ask a question",
    response_model=schemas.MessageAccepted,
    responses={200: _STREAM, **documented(413, 415, 429)},
)
def ask(
    thread_id: Id,
    body: schemas.MessageCreate,
    caller: Authorized,
    response: Response,
    stream: Annotated[bool, Query(description="Answer with the event stream at once.")] = False,
) -> Any:
    """The answer is made whether or not anyone watches it; `Location` is where it is.

    With `stream=true` the answer of this request is the message's event stream, as at `/v1/messages/{id}/events`.
    """
    message = caller.client.ask(caller.tenant_id, thread_id, body.content, body.given())
    location = f"/v1/messages/{message.id}"
    if stream:
        events = EventStreamResponse(caller.gateway.feed, caller.tenant_id, message.id)
        events.headers["Location"] = location
        return events
    response.headers["Location"] = location
    return schemas.MessageAccepted(message_id=message.id, thread_id=message.thread_id, status=message.status)


@router.get("/messages/{message_id}", summary="The present state", responses={200: {"model": schemas.MessageDetail}})
def get_message(message_id: Id, caller: Authorized) -> Response:
    """The interaction record so far, and while it is not final, `waiting`: why."""
    message = caller.client.resources.conversations.get_message(caller.tenant_id, message_id)
    snapshot = caller.client.snapshot(caller.tenant_id, message_id)
    is_final = message.status in FINAL_MESSAGE_STATUSES
    waiting = None if is_final else schemas.Waiting.of(caller.client.why_message(caller.tenant_id, message_id))
    own = {
        "message_id": message_id,
        "thread_id": message.thread_id,
        "epoch": snapshot.epoch,
        "seq": snapshot.seq,
        "waiting": waiting and waiting.model_dump(),
    }
    # The record goes out as it was stored; a schema in between could only lose a part of it.
    content = orjson.dumps({**snapshot.state, **own}, option=orjson.OPT_NON_STR_KEYS)
    return Response(content, media_type="application/json")


@router.get(
    "/messages/{message_id}/events",
    summary="Follow the answer",
    response_class=StreamingResponse,
    responses={200: _STREAM, 204: {"description": "You have seen the terminal event already; do not come again."}},
)
def get_events(
    message_id: Id,
    caller: Authorized,
    after: Annotated[int | None, Query(ge=-1, le=_MAX_SEQ, description="The last seq that you have seen.")] = None,
    last_event_id: Annotated[int | None, Header(ge=-1, le=_MAX_SEQ, description="As `after`, and before it.")] = None,
) -> Response:
    """Every event once, in order, from the first or behind the one you name; it ends with one terminal event.

    * `status`, `queries`, `sources`, `citations`: what is known now. `delta`: `text` to append. `reset`: forget the
      text, it begins again.
    * `snapshot`: the whole state; take it instead of all that you have. You get one when the events that you miss
      are gone.
    * `finished`, `failed`, `cancelled`: the end, with the final record.
    """
    caller.client.resources.conversations.get_message(caller.tenant_id, message_id)
    seen = next((seq for seq in (last_event_id, after) if seq is not None), -1)
    if caller.gateway.replay.has_seen_the_end(message_id, seen):
        return Response(status_code=204)
    return EventStreamResponse(caller.gateway.feed, caller.tenant_id, message_id, seen)


@router.post("/messages/{message_id}/cancel", status_code=202, summary="Stop an answer", responses=documented(409))
def cancel_message(message_id: Id, caller: Authorized) -> schemas.MessageAccepted:
    """It ends as `cancelled`, with what was written so far. One that has ended already is 409."""
    caller.client.cancel_message(caller.tenant_id, message_id)
    message = caller.client.resources.conversations.get_message(caller.tenant_id, message_id)
    return schemas.MessageAccepted(message_id=message.id, thread_id=message.thread_id, status=message.status)
