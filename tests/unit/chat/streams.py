"""A StreamStore in memory, with the rules of the port, for tests that need no server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.errors import PermanentError, StaleEpochError
from pipeline.models import TERMINAL_EVENTS, Event, Snapshot


class MemoryStreamStore:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.states: list[tuple[int, Mapping[str, Any]]] = []
        self.epoch = -1

    def begin(self, message_id: str, epoch: int, state: Mapping[str, Any]) -> int:
        self._refuse_older(message_id, epoch)
        self.epoch = epoch
        self.states.append((len(self.events) - 1, state))
        return len(self.events)

    def append(self, message_id: str, event: Event, state: Mapping[str, Any] | None = None) -> None:
        self._refuse_older(message_id, event.epoch)
        if self.is_over or event.seq < len(self.events):
            return
        if event.seq > len(self.events):
            raise PermanentError("gap", code="stream_gap")
        self.events.append(event)
        if state is not None:
            self.states.append((event.seq, state))

    def read(self, _message_id: str, after: int, limit: int = 1000) -> list[Event]:
        return self.events[after + 1 : after + 1 + limit]

    def snapshot(self, message_id: str) -> Snapshot | None:
        seq, state = self.states[-1]
        return Snapshot(message_id, self.epoch, seq, state)

    @property
    def is_over(self) -> bool:
        return bool(self.events) and self.events[-1].type in TERMINAL_EVENTS

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.events]

    @property
    def text(self) -> str:
        """What a viewer shows who followed all events."""
        shown = ""
        for event in self.events:
            shown = "" if event.type == "reset" else shown + event.data.get("text", "")
        return shown

    def _refuse_older(self, message_id: str, epoch: int) -> None:
        if epoch < self.epoch:
            raise StaleEpochError(f"{message_id} has epoch {self.epoch}")
