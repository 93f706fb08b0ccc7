"""StreamStore on Redis or Valkey: a hash and a stream for each message.

`sm:snapshot:<message id>` has the epoch, the last seq, and the latest state with the seq it belongs to;
`sm:events:<message id>` has the events, entry `<seq + 1>-0` each. Two Lua functions (beside this file) are the
only writers, so every check and change of a stream is one atomic step.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, cast

import orjson
from redis import Redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ConnectionError,  # noqa: A004 - Redis's, not the builtin
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    TimeoutError,  # noqa: A004
)
from redis.retry import Retry

from pipeline.errors import (
    ConfigurationError,
    InvalidInputError,
    PermanentError,
    StaleEpochError,
    StoreUnavailableError,
)
from pipeline.models import TERMINAL_EVENTS, Event, Snapshot

_REFUSALS = (AuthenticationError, AuthorizationError, NoPermissionError)
_OUTAGES = (ConnectionError, TimeoutError, BusyLoadingError, OutOfMemoryError, ReadOnlyError)
_OUTAGE_PREFIXES = ("BUSY", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "TRYAGAIN")
_MAX_BLOCK_MS = 10_000
_FOLLOW_COUNT = 200
_HEALTH_CHECK_S = 15
#: Redis's client nests them: a command that is tried again connects up to this often more, each time.
_RETRIES = 1

Entry = tuple[str, Mapping[str, str]]


class RedisStreamStore:
    """A stream vanishes `ttl_s` after its last change and keeps about its last `max_events` events.

    Raises StoreUnavailableError when the server can't be reached (within four times `timeout_s`),
    is loading or is out of memory; ConfigurationError for a bad URL or refused credentials.
    """

    def __init__(self, url: str, ttl_s: float = 86_400, *, max_events: int = 10_000, timeout_s: float = 2.5) -> None:
        self._ttl_ms = int(ttl_s * 1000)
        self._max_events = max_events
        self._redis = _connect(url, timeout_s)
        # XREAD keeps its connection silent while it waits, which must not look like a dead one.
        self._blocking = _connect(url, timeout_s + _MAX_BLOCK_MS / 1000)
        self._begin = self._redis.register_script(_lua("stream_begin"))
        self._append = self._redis.register_script(_lua("stream_append"))

    def begin(self, message_id: str, epoch: int, state: Mapping[str, Any]) -> int:
        with _errors():
            outcome, value = self._begin(_keys(message_id), (epoch, _json(state), self._ttl_ms))
        if outcome == "stale":
            raise _stale(message_id, epoch, value)
        return int(value)

    def append(self, message_id: str, event: Event, state: Mapping[str, Any] | None = None) -> None:
        arguments = (
            event.epoch,
            event.seq,
            event.type,
            _json(event.data),
            b"" if state is None else _json(state),
            "1" if event.type in TERMINAL_EVENTS else "",
            self._ttl_ms,
            self._max_events,
        )
        with _errors():
            outcome, *values = self._append(_keys(message_id), arguments)
        if outcome == "stale":
            raise _stale(message_id, event.epoch, values[0])
        if outcome == "gap":
            message = f"Event {event.seq} of message {message_id} would leave a gap after {values[0]}."
            raise PermanentError(message, code="stream_gap")

    def read(self, message_id: str, after: int, limit: int = 1000) -> list[Event]:
        if limit <= 0:
            return []
        with _errors():
            entries = self._redis.xrange(_keys(message_id)[1], min=f"{after + 2}-0", count=limit)
        return [_event(*entry) for entry in cast("Iterable[Entry]", entries)]

    def snapshot(self, message_id: str) -> Snapshot | None:
        with _errors():
            fields = self._redis.hmget(_keys(message_id)[0], ["epoch", "state_seq", "state"])
        epoch, seq, state = cast("list[str | None]", fields)
        if epoch is None or seq is None or state is None:
            return None
        return Snapshot(message_id, int(epoch), int(seq), orjson.loads(state))

    def follow(self, positions: Mapping[str, str], block_ms: int) -> Iterator[tuple[str, str, Event]]:
        """One XREAD for all streams; it waits 10 seconds at most, however large `block_ms` is.

        A position is the id of the last entry seen, `<seq + 1>-0`. With no streams it only waits.
        """
        block_ms = min(block_ms, _MAX_BLOCK_MS)
        if not positions:
            time.sleep(max(block_ms, 0) / 1000)
            return
        message_ids = {_keys(message_id)[1]: message_id for message_id in positions}
        streams: dict[Any, Any] = {key: positions[message_id] for key, message_id in message_ids.items()}
        with _errors():
            # BLOCK 0 would mean for ever.
            found = self._blocking.xread(streams, count=_FOLLOW_COUNT, block=block_ms if block_ms > 0 else None)
        for key, entries in _by_stream(found):
            for entry_id, fields in entries:
                yield message_ids[key], entry_id, _event(entry_id, fields)

    def delete(self, message_id: str) -> None:
        with _errors():
            self._redis.delete(*_keys(message_id))

    def close(self) -> None:
        self._redis.close()
        self._blocking.close()


def _connect(url: str, timeout_s: float) -> Redis:
    try:
        return Redis.from_url(
            url,
            decode_responses=True,
            socket_timeout=timeout_s,
            socket_connect_timeout=min(timeout_s, 2.0),
            health_check_interval=_HEALTH_CHECK_S,
            retry=Retry(ExponentialWithJitterBackoff(base=0.05, cap=0.5), _RETRIES),
        )
    except ValueError as error:
        raise ConfigurationError(f"The stream store's URL is not usable: {error}") from error


def _lua(name: str) -> str:
    return files("pipeline.stores").joinpath(f"{name}.lua").read_text(encoding="utf-8")


def _keys(message_id: str) -> tuple[str, str]:
    return f"sm:snapshot:{message_id}", f"sm:events:{message_id}"


def _json(value: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except TypeError as error:
        raise InvalidInputError(f"An event or state can't be written as JSON: {error}") from error


def _event(entry_id: str, fields: Mapping[str, str]) -> Event:
    seq = int(entry_id.partition("-")[0]) - 1
    return Event(seq, int(fields["epoch"]), fields["type"], orjson.loads(fields["data"]))


def _by_stream(found: Any) -> Iterator[tuple[str, list[Entry]]]:
    """XREAD's reply, whose shape depends on the protocol version."""
    if isinstance(found, dict):
        for key, pages in found.items():
            yield key, [entry for page in pages for entry in page]
    else:
        yield from found or ()


def _stale(message_id: str, epoch: int, newer: str) -> StaleEpochError:
    return StaleEpochError(f"Epoch {newer} writes the stream of message {message_id}, not epoch {epoch}.")


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except _REFUSALS as error:
        raise ConfigurationError(f"The stream store refuses us: {error}") from error
    except _OUTAGES as error:
        raise StoreUnavailableError(f"The stream store can't be reached: {error}") from error
    except RedisError as error:
        if str(error).startswith(_OUTAGE_PREFIXES):
            raise StoreUnavailableError(f"The stream store is not ready: {error}") from error
        raise PermanentError(f"The stream store refused a command: {error}") from error
