"""Turns the making of an answer into the events that viewers follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from pipeline.chat.record import (
    Interaction,
    citation_records,
    coverage_record,
    segment_record,
    to_record,
    unverified_records,
)
from pipeline.models import (
    FINAL_MESSAGE_STATUSES,
    Degradation,
    Draft,
    Event,
    MessageStatus,
    SearchQuery,
    Source,
    VerifiedAnswer,
)
from pipeline.stores.ports import StreamStore

MIN_DELTA_S = 0.05
DELTAS_PER_SNAPSHOT = 20

_ORDER = (MessageStatus.PENDING, MessageStatus.STREAMING, MessageStatus.HIGHLIGHTING_CITATIONS)


class AnswerStream:
    """Writes one message's events with a contiguous seq; `interaction` is the message as far as it has come.

    Status only moves forward: pending, streaming, highlighting_citations, and one of finished, failed and
    cancelled, which is the last event; what comes after it is ignored. Text is sent at most 20 times a second
    and the whole state with every 20th delta and at the end. Citations are sent only once they are proven.
    Not for several threads at once. Raises what StreamStore raises; StaleEpochError means that another
    worker has the message now.
    """

    def __init__(self, store: StreamStore, message_id: str, epoch: int, clock: Callable[[], float]) -> None:
        self._store = store
        self._message_id = message_id
        self._epoch = epoch
        self._clock = clock
        self._seq = 0
        self._sent = ""
        self._sent_at = float("-inf")
        self._deltas = 0
        self._interaction: Interaction | None = None

    @property
    def interaction(self) -> Interaction:
        if self._interaction is None:
            raise ValueError("the stream has not begun")
        return self._interaction

    def begin(self, interaction: Interaction) -> None:
        """Take the stream over. Viewers of an earlier attempt are told to forget its text (`reset`)."""
        self._interaction = interaction
        self._seq = self._store.begin(self._message_id, self._epoch, to_record(interaction))
        if self._seq > 0:
            self._append("reset", {}, snapshot=True)
        self._append("status", {"status": str(interaction.status)})

    def status(self, status: MessageStatus) -> None:
        """Move on to a status that is not final. Raises ValueError for a step back."""
        if self._is_over:
            return
        if _ORDER.index(status) < _ORDER.index(self.interaction.status):
            raise ValueError(f"a message that is {self.interaction.status} can't become {status}")
        if status != self.interaction.status:
            self._interaction = replace(self.interaction, status=status)
            self._append("status", {"status": str(status)})

    def queries(self, queries: Sequence[SearchQuery], degraded: Sequence[Degradation] = ()) -> None:
        self._interaction = replace(
            self.interaction, queries=tuple(queries), degraded=(*self.interaction.degraded, *degraded)
        )
        self._append("queries", {"queries": [asdict(query) for query in queries], "degraded": _dicts(degraded)})

    def sources(self, sources: Sequence[Source], degraded: Sequence[Degradation] = ()) -> None:
        self._interaction = replace(
            self.interaction, sources=tuple(sources), degraded=(*self.interaction.degraded, *degraded)
        )
        segments = [segment_record(source) for source in sources]
        self._append("sources", {"sources": segments, "degraded": _dicts(degraded)})

    def draft(self, draft: Draft) -> None:
        """Show the draft's text. What comes within 50 ms of the last delta waits for the next one."""
        self._interaction = replace(self.interaction, content=draft.response)
        if self._clock() - self._sent_at >= MIN_DELTA_S:
            self.flush()

    def flush(self) -> None:
        """Send the text that waits."""
        text = self.interaction.content
        if text == self._sent:
            return
        if not text.startswith(self._sent):
            self._append("reset", {})
            self._sent = ""
        delta, self._sent, self._sent_at = text[len(self._sent) :], text, self._clock()
        self._deltas += 1
        if delta:
            self._append("delta", {"text": delta}, snapshot=self._deltas % DELTAS_PER_SNAPSHOT == 0)

    def answer(self, answer: VerifiedAnswer) -> None:
        """Show the proven answer: its text may differ from the draft's, for unproven markers are gone."""
        self.flush()
        self._interaction = replace(self.interaction, answer=answer)
        data = {
            "content": answer.content,
            "citations": citation_records(answer.citations),
            "unverified": unverified_records(answer.unverified),
            "coverage": coverage_record(answer.coverage),
        }
        self._append("citations", data, snapshot=True)

    def end(self, interaction: Interaction) -> None:
        """Send the terminal event of a final status; its data is the record, which is in the catalog by now."""
        if interaction.status not in FINAL_MESSAGE_STATUSES:
            raise ValueError(f"{interaction.status} is no final status")
        if self._is_over:
            return
        self.flush()
        self._interaction = interaction
        record = to_record(interaction)
        self._store.append(self._message_id, self._event(str(interaction.status), record), record)

    @property
    def _is_over(self) -> bool:
        return self.interaction.status in FINAL_MESSAGE_STATUSES

    def _append(self, kind: str, data: Mapping[str, Any], *, snapshot: bool = False) -> None:
        if self._is_over:
            return
        state = to_record(self.interaction) if snapshot else None
        self._store.append(self._message_id, self._event(kind, data), state)

    def _event(self, kind: str, data: Mapping[str, Any]) -> Event:
        event = Event(self._seq, self._epoch, kind, data)
        self._seq += 1
        return event


def end_stream(store: StreamStore, message_id: str, epoch: int, record: Mapping[str, Any]) -> None:
    """The terminal event of a stored record, for a process that did not make the answer.

    Doing it twice, or after the worker did, changes nothing. The record's status must be final.
    """
    status = record["model_response"]["status"]
    if status not in FINAL_MESSAGE_STATUSES:
        raise ValueError(f"{status} is no final status")
    seq = store.begin(message_id, epoch, record)
    store.append(message_id, Event(seq, epoch, status, record), record)


def _dicts(degraded: Sequence[Degradation]) -> list[dict[str, Any]]:
    return [asdict(part) for part in degraded]
