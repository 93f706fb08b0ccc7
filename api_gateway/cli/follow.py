"""Follows one message's stream to its end, whatever happens to the connection."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import orjson

from api_gateway.cli.api import PATIENCE_S, Api, segment
from pipeline.errors import SourcemillError, TransientError
from pipeline.models import TERMINAL_EVENTS

RECONNECT_S = 0.25

OnEvent = Callable[[str, Mapping[str, Any]], None]


def follow(api: Api, message_id: str, on_event: OnEvent) -> Mapping[str, Any]:
    """The final record. Every event is seen once and in order: a broken stream goes on behind the last one.

    Raises TransientError when there is no server for 30 s. Interrupted, it cancels the message first.
    """
    try:
        return _Follower(api, message_id, on_event).run()
    except KeyboardInterrupt:
        with suppress(SourcemillError):  # we end anyway; the message's own deadline ends it too
            api.post(f"/v1/messages/{segment(message_id)}/cancel")
        raise


class _Follower:
    def __init__(self, api: Api, message_id: str, on_event: OnEvent) -> None:
        self._api = api
        self._message_id = message_id
        self._on_event = on_event
        self._last_id: str | None = None
        self._heard = time.monotonic()

    def run(self) -> Mapping[str, Any]:
        while True:
            try:
                record = self._read()
            except TransientError:
                if time.monotonic() - self._heard > PATIENCE_S:
                    raise
                record = None
            if record is not None:
                return record
            time.sleep(RECONNECT_S)

    def _read(self) -> Mapping[str, Any] | None:
        """Events until the terminal one, whose data is returned, or None when the server ended the stream first."""
        with self._api.events(self._message_id, self._last_id) as events:
            self._heard = time.monotonic()
            for event in events:
                self._heard = time.monotonic()
                self._last_id = event.id or self._last_id
                data: Mapping[str, Any] = orjson.loads(event.data)
                if event.type in TERMINAL_EVENTS:
                    return data
                self._on_event(event.type, data)
        return None
