"""Server-sent events: one reader for all watched messages, any number of viewers. The gateway's asynchronous part.

A viewer is correct by its cursor alone: it sends an event only when that is the next one, and goes back to the store
(`Replay`) on a gap, after an overflow and when nothing was heard for a while. What the reader hands over is only the
fast path, so it may drop, repeat or begin again at any time. All state here belongs to the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import structlog
from fastapi.responses import StreamingResponse
from starlette.types import Send

from api_gateway.replay import Cursor, Frame, Replay, encode
from pipeline.errors import SourcemillError
from pipeline.stores.ports import StreamStore

T = TypeVar("T")
log = structlog.get_logger(__name__)

#: How long one read waits. A new message joins with the next read, so this is what joining can cost.
_BLOCK_MS = 25

#: How long the reader rests after the store failed.
_REST_S = 0.5

#: A viewer with this many frames unsent is slow: it loses them and reads them again when it gets on.
_MAX_UNSENT = 256

#: A silent stream is looked at again after the first time, then after twice as long each, up to the last.
_FIRST_LOOK_S, _LAST_LOOK_S = 0.25, 8.0

#: A look that finds nothing pings a client that got nothing for so long; so at most about 8 s lie between two.
_PING_AFTER_S = 6.0

_OPENING = b"retry: 1000\n\n"
_PING = b": ping\n\n"


class Viewer:
    """One client of one message: what it has (`cursor`) and the frames that wait for it."""

    def __init__(self, tenant_id: str, message_id: str, after: int) -> None:
        self.tenant_id = tenant_id
        self.message_id = message_id
        self.cursor = Cursor(after)
        self.behind = True
        self.silence_s = _FIRST_LOOK_S
        self.ending_was_seen = False
        self._unsent: deque[Frame] = deque()
        self._heard = asyncio.Event()

    def offer(self, frame: Frame) -> None:
        if len(self._unsent) >= _MAX_UNSENT:
            self._unsent.clear()
            self.behind = True
        self._unsent.append(frame)
        self._heard.set()

    def wake(self) -> None:
        self._heard.set()

    async def heard(self) -> bool:
        """Whether something came before the silence was too long."""
        try:
            async with asyncio.timeout(self.silence_s):
                await self._heard.wait()
        except TimeoutError:
            return False
        self._heard.clear()
        return True

    def take(self) -> list[Frame]:
        """The waiting frames that come next, in order. A gap leaves the viewer `behind`."""
        taken: list[Frame] = []
        while self._unsent and not self.behind:
            frame = self._unsent.popleft()
            if self.cursor.has(frame):
                continue
            self.behind = not self.cursor.continues_with(frame)
            if not self.behind:
                self.advance([frame])
                taken.append(frame)
        return taken

    def forget(self) -> None:
        """Drop what waits: all of it is in the store, which is read next."""
        self._unsent.clear()

    def advance(self, frames: list[Frame]) -> None:
        self.cursor = Cursor(frames[-1].seq, frames[-1].epoch)
        self.silence_s = _FIRST_LOOK_S


@dataclass(slots=True)
class _Watched:
    position: str = "0"
    viewers: set[Viewer] = field(default_factory=set)


class EventFeed:
    """Made in the event loop that serves. `close` ends all streams at once."""

    def __init__(self, streams: StreamStore, replay: Replay) -> None:
        self._streams = streams
        self._replay = replay
        self._watched: dict[str, _Watched] = {}
        self._wanted = asyncio.Event()
        self._closed = False
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="event-reader")
        self._lookers = ThreadPoolExecutor(8, thread_name_prefix="event-replay")
        self._reading = asyncio.get_running_loop().create_task(self._read())
        self._reading.add_done_callback(_report_failure)

    @property
    def viewers(self) -> int:
        return sum(len(watched.viewers) for watched in self._watched.values())

    def close(self) -> None:
        """Let every stream end now; clients go on elsewhere from the id that they saw last."""
        self._closed = True
        self._wanted.set()
        for watched in self._watched.values():
            for viewer in watched.viewers:
                viewer.wake()

    async def join(self) -> None:
        """Close, and wait for the threads. Raises what the reader failed with, if it did."""
        self.close()
        try:
            await self._reading
        finally:
            for pool in (self._reader, self._lookers):
                await asyncio.to_thread(pool.shutdown)

    async def view(self, tenant_id: str, message_id: str, after: int) -> AsyncGenerator[bytes]:
        """The stream behind event `after`; it ends with the one terminal event, or when the server stops."""
        clock = asyncio.get_running_loop().time
        with self._watching(Viewer(tenant_id, message_id, after)) as viewer:
            yield _OPENING
            sent_at = clock()
            while not self._closed:
                frames = await self._next(viewer)
                if frames:
                    yield b"".join(frame.wire for frame in frames)
                    if frames[-1].terminal:
                        return
                elif clock() - sent_at >= _PING_AFTER_S:
                    yield _PING
                else:
                    continue
                sent_at = clock()

    @contextmanager
    def _watching(self, viewer: Viewer) -> Iterator[Viewer]:
        watched = self._watched.setdefault(viewer.message_id, _Watched())
        watched.viewers.add(viewer)
        self._wanted.set()
        try:
            yield viewer
        finally:
            watched.viewers.discard(viewer)
            if not watched.viewers:
                del self._watched[viewer.message_id]

    async def _next(self, viewer: Viewer) -> list[Frame]:
        if viewer.behind:
            return await self._look(viewer)
        if await viewer.heard():
            return viewer.take()
        viewer.silence_s = min(viewer.silence_s * 2, _LAST_LOOK_S)
        return await self._look(viewer) or await self._look_for_the_end(viewer)

    async def _look(self, viewer: Viewer) -> list[Frame]:
        """Read on in the store; `behind` stays until a look finds nothing more."""
        viewer.forget()
        before = viewer.cursor.epoch
        frames = await self._ask(self._replay.after, viewer.message_id, viewer.cursor) or []
        viewer.behind = bool(frames)
        if frames:
            viewer.advance(frames)
            if before is not None and frames[-1].epoch > before:
                # The stream may have begun again from nothing, before the position that the reader is at.
                self._watched[viewer.message_id].position = "0"
        return frames

    async def _look_for_the_end(self, viewer: Viewer) -> list[Frame]:
        """Its second find counts: the worker writes the catalog first and the terminal event right after it."""
        frame = await self._ask(self._replay.ending, viewer.tenant_id, viewer.message_id, viewer.cursor)
        if frame is None:
            return []
        if viewer.ending_was_seen:
            return [frame]
        viewer.ending_was_seen, viewer.silence_s = True, _FIRST_LOOK_S
        return []

    async def _ask(self, question: Callable[..., T], *args: object) -> T | None:
        """None also when the store fails: the viewer stays, and its next look asks again."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._lookers, question, *args)
        except SourcemillError as error:
            log.warning("a stream can't be read", code=error.code, reason=error.message)
            return None

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._closed:
            if not self._watched:
                self._wanted.clear()
                await self._wanted.wait()
                continue
            positions = {message_id: watched.position for message_id, watched in self._watched.items()}
            try:
                news = await loop.run_in_executor(self._reader, self._follow, positions)
            except SourcemillError as error:
                log.warning("streams can't be followed", code=error.code, reason=error.message)
                await asyncio.sleep(_REST_S)
                continue
            for message_id, position, frame in news:
                self._deliver(message_id, position, frame)

    def _follow(self, positions: Mapping[str, str]) -> list[tuple[str, str, Frame]]:
        followed = self._streams.follow(positions, _BLOCK_MS)
        return [(message_id, position, encode(event)) for message_id, position, event in followed]

    def _deliver(self, message_id: str, position: str, frame: Frame) -> None:
        watched = self._watched.get(message_id)
        if watched is None:
            return
        watched.position = position
        for viewer in watched.viewers:
            viewer.offer(frame)


def _report_failure(reading: asyncio.Task[None]) -> None:
    """Streams go on without the reader, but only as fast as viewers look for themselves."""
    if not reading.cancelled() and (error := reading.exception()):
        log.error("the reader of all streams has ended", exc_info=error)


class EventStreamResponse(StreamingResponse):
    """Ends the viewer at once when the client goes away, not when the garbage collector finds it."""

    media_type = "text/event-stream"

    def __init__(self, feed: EventFeed, tenant_id: str, message_id: str, after: int = -1) -> None:
        self._stream = feed.view(tenant_id, message_id, after)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(self._stream, headers=headers)

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self._stream):
            await super().stream_response(send)
