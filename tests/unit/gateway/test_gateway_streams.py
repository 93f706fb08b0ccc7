"""Event streams over real HTTP: every event once and in order, whatever breaks in between."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import FastAPI

from api_gateway import streams as streams_module
from api_gateway.replay import Replay
from api_gateway.streams import EventFeed, EventStreamResponse
from pipeline.models import Event, MessageStatus, ThreadParams
from pipeline.stores.conversations_sql import SqlConversations, insert_message
from pipeline.stores.schema import messages
from pipeline.stores.stream_redis import RedisStreamStore
from tests.unit.gateway.servers import served
from tests.unit.gateway.sse import Received, events_of

EVENTS = 120


@pytest.fixture
def conversations(database):
    return SqlConversations(database)


@pytest.fixture
def message_id(database, conversations):
    thread = conversations.create_thread("acme", ThreadParams())
    with database.write() as connection:
        return insert_message(connection, thread, "How long?", ThreadParams()).id


@pytest.fixture
def app(streams, conversations):
    """Only the streams of the gateway."""

    @asynccontextmanager
    async def lifespan(app: FastAPI):
        app.state.feed = EventFeed(streams, Replay(streams, conversations))
        yield
        await app.state.feed.join()

    app = FastAPI(lifespan=lifespan)

    @app.get("/{message_id}")
    def follow(message_id: str, after: int = -1) -> EventStreamResponse:
        return EventStreamResponse(app.state.feed, "acme", message_id, after)

    return app


def delta(seq: int, epoch: int = 1) -> Event:
    return Event(seq, epoch, "delta", {"text": f"{seq} "})


def finish(database, message_id):
    with database.write() as connection:
        values = {"status": MessageStatus.FINISHED, "record": {"content": "all"}, "finished_at": 1.0}
        connection.execute(messages.update().where(messages.c.id == message_id).values(**values))


async def write(streams, message_id, first=0, last=EVENTS, pause_s=0.004):
    """An answer: deltas, a snapshot now and then, the terminal event as number `last`."""
    for seq in range(first, last + 1):
        state = {"upto": seq} if seq % 20 == 0 or seq == last else None
        event = Event(seq, 1, "finished", {"content": "all"}) if seq == last else delta(seq)
        await asyncio.to_thread(streams.append, message_id, event, state)
        await asyncio.sleep(pause_s)


async def follow(url, message_id, after=-1, at_most=10**6) -> list[Received]:
    """Until the stream ends, or the connection is cut after `at_most` events."""
    got: list[Received] = []
    async with (
        httpx.AsyncClient(timeout=20) as client,
        client.stream("GET", f"{url}/{message_id}", params={"after": after}) as response,
    ):
        async for event in events_of(response):
            got.append(event)
            if len(got) >= at_most:
                return got
    return got


async def follow_through(url, message_id, rng) -> list[Received]:
    """A client whose connection breaks again and again and that comes back with the id that it saw last."""
    got: list[Received] = []
    while not got or got[-1].type != "finished":
        got += await follow(url, message_id, got[-1].id if got else -1, rng.randint(1, 25))
    return got


def ids(events):
    return [event.id for event in events]


async def until(condition, seconds=5.0):
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the condition is another thread's or server's
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("seed", range(3))
def test_a_client_that_is_cut_at_random_gets_every_event_once(app, streams, message_id, seed):
    async def scenario():
        streams.begin(message_id, 1, {})
        async with served(app) as (url, _):
            cuts = [random.Random(seed * 10 + n) for n in range(3)]  # noqa: S311
            clients = [follow_through(url, message_id, rng) for rng in cuts]
            return await asyncio.gather(write(streams, message_id), *clients)

    for events in asyncio.run(scenario())[1:]:
        assert ids(events) == list(range(EVENTS + 1))
        assert [event.type for event in events].count("finished") == 1


def test_viewers_before_during_and_after_see_the_same(app, streams, message_id):
    async def scenario():
        async with served(app) as (url, _):
            early = asyncio.create_task(follow(url, message_id))
            await asyncio.sleep(0.1)
            streams.begin(message_id, 1, {})
            writing = asyncio.create_task(write(streams, message_id))
            await asyncio.sleep(0.2)
            middle = asyncio.create_task(follow(url, message_id))
            await writing
            return [await early, await middle, await follow(url, message_id)]

    for events in asyncio.run(scenario()):
        assert ids(events) == list(range(EVENTS + 1))


def test_many_viewers_of_many_messages_do_not_mix(app, streams):
    async def scenario():
        names = [f"m{n}" for n in range(5)]
        for name in names:
            streams.begin(name, 1, {})
        async with served(app) as (url, _):
            viewers = [follow(url, name) for name in names for _ in range(8)]
            return (await asyncio.gather(*viewers, *(write(streams, name, last=30) for name in names)))[:40]

    for events in asyncio.run(scenario()):
        assert ids(events) == list(range(31))


def test_a_slow_viewer_loses_nothing_and_holds_up_nobody(app, streams, message_id, monkeypatch):
    monkeypatch.setattr(streams_module, "_MAX_UNSENT", 4)

    async def scenario():
        streams.begin(message_id, 1, {})
        async with served(app) as (url, _):
            feed = app.state.feed
            slow = feed.view("acme", message_id, -1)
            await anext(slow)
            _, fast = await asyncio.gather(write(streams, message_id, pause_s=0.001), follow(url, message_id))
            viewer = next(iter(feed._watched[message_id].viewers))
            assert len(viewer._unsent) <= 4
            return fast, [piece async for piece in slow]

    fast, pieces = asyncio.run(scenario())
    assert ids(fast) == list(range(EVENTS + 1))
    lines = b"".join(pieces).decode().split("\n")
    assert [line for line in lines if line.startswith("id: ")] == [f"id: {seq}" for seq in range(EVENTS + 1)]


def test_after_the_stream_was_lost_a_snapshot_and_the_rest_follow(app, streams, message_id, flush):
    async def scenario():
        streams.begin(message_id, 1, {})
        async with served(app) as (url, _):
            for seq in range(10):
                streams.append(message_id, delta(seq))
            assert ids(await follow(url, message_id, at_most=10)) == list(range(10))
            flush()
            late = asyncio.create_task(follow(url, message_id))
            back = asyncio.create_task(follow(url, message_id, after=5))
            await write(streams, message_id, first=10, last=50)
            return await late, await back

    for events in asyncio.run(scenario()):
        assert events[0].type == "snapshot"
        assert ids(events) == list(range(events[0].id, 51))
        assert events[0].data == {"upto": events[0].id}
        assert events[-1].type == "finished"


def test_a_stream_that_began_again_from_nothing_reaches_a_viewer_that_stayed(app, streams, message_id, flush):
    async def scenario():
        streams.begin(message_id, 1, {})
        for seq in range(30):
            streams.append(message_id, delta(seq))
        async with served(app) as (url, _):
            viewer = asyncio.create_task(follow(url, message_id))
            await until(lambda: app.state.feed.viewers)
            await asyncio.sleep(0.3)
            flush()
            streams.begin(message_id, 2, {"upto": -1})
            for seq in range(10):
                streams.append(message_id, delta(seq, 2), {"upto": seq} if seq == 4 else None)
            await until(lambda: app.state.feed._watched[message_id].position == "10-0")
            streams.append(message_id, Event(10, 2, "finished", {}), {})
            return await viewer

    events = asyncio.run(scenario())
    assert ids(events)[:30] == list(range(30))
    assert (events[30].type, events[30].id) == ("snapshot", 4)
    assert ids(events)[31:] == list(range(5, 11))
    assert events[-1].type == "finished"


def test_a_message_that_is_final_without_a_stream_ends_with_its_record(app, database, message_id):
    async def scenario():
        finish(database, message_id)
        async with served(app) as (url, _):
            return await follow(url, message_id, after=7)

    assert asyncio.run(scenario()) == [Received(8, "finished", {"content": "all"})]


def test_a_stream_that_never_got_its_terminal_event_ends_all_the_same(app, streams, database, message_id):
    async def scenario():
        streams.begin(message_id, 1, {})
        for seq in range(3):
            streams.append(message_id, delta(seq))
        async with served(app) as (url, _):
            viewer = asyncio.create_task(follow(url, message_id))
            await asyncio.sleep(0.3)
            finish(database, message_id)
            return await viewer

    events = asyncio.run(scenario())
    assert [(event.id, event.type) for event in events[-2:]] == [(2, "delta"), (3, "finished")]


def test_a_terminal_event_that_comes_a_moment_after_the_catalog_is_the_one(app, streams, database, message_id):
    async def scenario():
        streams.begin(message_id, 1, {})
        async with served(app) as (url, _):
            viewer = asyncio.create_task(follow(url, message_id))
            await asyncio.sleep(0.2)
            finish(database, message_id)
            await asyncio.sleep(0.1)
            streams.append(message_id, Event(0, 1, "finished", {"by": "worker"}), {})
            return await viewer

    assert asyncio.run(scenario()) == [Received(0, "finished", {"by": "worker"})]


def test_a_client_that_leaves_frees_its_place(app, streams, message_id):
    async def scenario():
        streams.begin(message_id, 1, {})
        streams.append(message_id, delta(0))
        async with served(app) as (url, _):
            await asyncio.gather(*(follow(url, message_id, at_most=1) for _ in range(5)))
            await until(lambda: app.state.feed.viewers == 0)
            assert app.state.feed._watched == {}

    asyncio.run(scenario())


def test_a_server_that_stops_ends_its_streams_at_once(app, streams, message_id):
    async def scenario():
        streams.begin(message_id, 1, {})
        streams.append(message_id, delta(0))
        async with served(app) as (url, server):
            viewers = [asyncio.create_task(follow(url, message_id)) for _ in range(5)]
            await until(lambda: app.state.feed.viewers == 5)
            await asyncio.sleep(0.2)
            started = asyncio.get_running_loop().time()
            app.state.feed.close()
            server.should_exit = True
            got = await asyncio.gather(*viewers)
            return got, asyncio.get_running_loop().time() - started

    got, seconds = asyncio.run(scenario())
    assert all(ids(events) == [0] for events in got)
    assert seconds < 1.0


def test_a_silent_stream_is_pinged_and_has_the_headers_of_one(app, message_id, monkeypatch):
    monkeypatch.setattr(streams_module, "_PING_AFTER_S", 0.2)

    async def scenario():
        async with (
            served(app) as (url, _),
            httpx.AsyncClient(timeout=5) as client,
            client.stream("GET", f"{url}/{message_id}") as response,
        ):
            pieces = response.aiter_text()
            return response.headers, [await anext(pieces) for _ in range(2)]

    headers, pieces = asyncio.run(scenario())
    assert pieces == ["retry: 1000\n\n", ": ping\n\n"]
    assert headers["content-type"].startswith("text/event-stream")
    assert (headers["cache-control"], headers["x-accel-buffering"]) == ("no-store", "no")


def test_silences_between_two_signs_of_life_stay_below_15_seconds():
    assert streams_module._PING_AFTER_S + streams_module._LAST_LOOK_S < 15


def test_a_stream_server_that_is_away_for_a_while_costs_only_time(conversations, message_id, database):
    """The viewer waits, and the catalog ends it when the answer is there."""
    away = RedisStreamStore("redis://127.0.0.1:1")

    async def scenario():
        feed = EventFeed(away, Replay(away, conversations))
        view = feed.view("acme", message_id, -1)
        pieces = [await anext(view)]
        finish(database, message_id)
        async with asyncio.timeout(60):
            pieces += [piece async for piece in view if not piece.startswith(b":")]
        await feed.join()
        return pieces

    pieces = asyncio.run(scenario())
    assert pieces[-1].startswith(b"id: 0\nevent: finished\n")
    away.close()
