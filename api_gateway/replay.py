"""What a viewer of a message has not seen yet: from the stream, else from the snapshot, else from the catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import orjson

from pipeline.chat.record import Interaction, to_record
from pipeline.errors import NotFoundError
from pipeline.flows.answer import record_of
from pipeline.models import (
    FINAL_MESSAGE_STATUSES,
    TERMINAL_EVENTS,
    Event,
    MessageStatus,
    Snapshot,
)
from pipeline.stores.ports import Conversations, StreamStore


@dataclass(frozen=True, slots=True)
class Frame:
    """An event as it goes over the wire; encoded once for all who view it."""

    seq: int
    epoch: int
    terminal: bool
    wire: bytes


def encode(event: Event) -> Frame:
    """Server-sent event: JSON has no raw line breaks, so `data` is always one line."""
    data = orjson.dumps(event.data, option=orjson.OPT_NON_STR_KEYS)
    wire = b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.type.encode(), data)
    return Frame(event.seq, event.epoch, event.type in TERMINAL_EVENTS, wire)


@dataclass(frozen=True, slots=True)
class Cursor:
    """A viewer has everything up to `seq`, -1 for nothing.

    `epoch` is the one of the event at `seq`; None when a client only told us the seq.
    """

    seq: int = -1
    epoch: int | None = None

    def has(self, frame: Frame) -> bool:
        """Whether the frame is old news. A later epoch at an old seq is not: the stream began again from nothing."""
        return frame.seq <= self.seq and not self._is_before(frame.epoch)

    def continues_with(self, frame: Frame) -> bool:
        return frame.seq == self.seq + 1

    def is_in(self, events: Sequence[Event]) -> bool:
        """Whether `events`, which were read from the one at `seq` on, show that the stream is still the same one."""
        if not events:
            return self.seq < 0
        first = events[0]
        return first.seq == self.seq + 1 or (first.seq == self.seq and not self._is_before(first.epoch))

    def needs(self, snapshot: Snapshot) -> bool:
        """Whether the snapshot tells more than the viewer has, or nobody knows what the viewer has."""
        return snapshot.seq > self.seq or self.epoch is None or self._is_before(snapshot.epoch)

    def _is_before(self, epoch: int) -> bool:
        return self.epoch is not None and epoch > self.epoch


class Replay:
    """Reads for viewers; blocking."""

    def __init__(self, streams: StreamStore, conversations: Conversations) -> None:
        self._streams = streams
        self._conversations = conversations

    def after(self, message_id: str, cursor: Cursor) -> list[Frame]:
        """Frames that bring a viewer at `cursor` further; none when there is nothing new or nothing usable yet.

        It reads from the event that the viewer saw last, as the proof that this is still the same stream. If that
        is gone, the first frame is a `snapshot`.
        """
        events = self._streams.read(message_id, max(cursor.seq - 1, -1))
        if cursor.is_in(events):
            return [encode(event) for event in events if event.seq > cursor.seq]
        snapshot = self._streams.snapshot(message_id)
        if snapshot is None or not cursor.needs(snapshot):
            return []
        return self._from_snapshot(snapshot)

    def _from_snapshot(self, snapshot: Snapshot) -> list[Frame]:
        """The snapshot and what follows it, or only the terminal event, which holds the whole record itself.

        None as long as events between the snapshot and the stream are lost: a newer snapshot will come.
        """
        events = self._streams.read(snapshot.message_id, max(snapshot.seq - 1, -1))
        if events and events[0].seq == snapshot.seq and events[0].type in TERMINAL_EVENTS:
            return [encode(events[0])]
        later = [event for event in events if event.seq > snapshot.seq]
        if later and later[0].seq != snapshot.seq + 1:
            return []
        whole = Event(snapshot.seq, snapshot.epoch, "snapshot", snapshot.state)
        return [encode(event) for event in (whole, *later)]

    def has_seen_the_end(self, message_id: str, seq: int) -> bool:
        """Whether the event at `seq` is the stream's terminal one."""
        events = self._streams.read(message_id, seq - 1, limit=1) if seq >= 0 else []
        return bool(events) and events[0].seq == seq and events[0].type in TERMINAL_EVENTS

    def ending(self, tenant_id: str, message_id: str, cursor: Cursor) -> Frame | None:
        """The terminal frame as the catalog has it; None when the message is not final.

        A message that was deleted meanwhile ends as cancelled.
        """
        try:
            message = self._conversations.get_message(tenant_id, message_id)
        except NotFoundError as error:
            data = _gone(message_id, error)
            return encode(Event(cursor.seq + 1, cursor.epoch or 0, MessageStatus.CANCELLED.value, data))
        if message.status not in FINAL_MESSAGE_STATUSES:
            return None
        return encode(Event(cursor.seq + 1, cursor.epoch or 0, message.status.value, record_of(message)))


def _gone(message_id: str, error: NotFoundError) -> Mapping[str, Any]:
    """The record of a message that nobody may see any more, in the form of every other one."""
    blank = Interaction(message_id, "", "", datetime.now(UTC), "", status=MessageStatus.CANCELLED)
    return to_record(replace(blank, error_code=error.code, error=error.message))
