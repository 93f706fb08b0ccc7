from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from redis import Redis
from stream_store import StreamStoreContract, event, seqs

from pipeline.errors import ConfigurationError, PermanentError, StoreUnavailableError
from pipeline.stores.stream_redis import RedisStreamStore


@pytest.fixture
def server(valkey_url: str) -> Iterator[Redis]:
    with Redis.from_url(valkey_url, decode_responses=True) as client:
        client.flushall()
        yield client


@pytest.fixture
def store(valkey_url: str, server: Redis) -> Iterator[RedisStreamStore]:  # noqa: ARG001 - emptied
    opened = RedisStreamStore(valkey_url, ttl_s=60)
    yield opened
    opened.close()


class TestRedisStreamStore(StreamStoreContract):
    @pytest.fixture
    def lose(self, server: Redis) -> Callable[[], None]:
        return server.flushall

    @pytest.mark.parametrize("key", ["sm:snapshot:m1", "sm:events:m1"])
    def test_a_stream_that_lost_one_of_its_keys_goes_on(self, store: RedisStreamStore, server: Redis, key: str) -> None:
        for seq in range(3):
            store.append("m1", event(seq), {"seq": seq})
        server.delete(key)
        store.append("m1", event(3), {"seq": 3})
        assert seqs(store)[-1] == 3
        snapshot = store.snapshot("m1")
        assert snapshot is not None
        assert snapshot.seq == 3


def test_keys_expire_after_their_last_change(store: RedisStreamStore, server: Redis) -> None:
    store.begin("m1", 1, {})
    store.append("m1", event(0))
    for key in ("sm:snapshot:m1", "sm:events:m1"):
        assert 50_000 < server.pttl(key) <= 60_000


@pytest.mark.usefixtures("server")
def test_a_stream_keeps_about_its_last_events(valkey_url: str) -> None:
    store = RedisStreamStore(valkey_url, max_events=100)
    for seq in range(400):
        store.append("m1", event(seq), {"seq": seq})
    kept = seqs(store)
    assert kept == list(range(kept[0], 400))
    assert 100 <= len(kept) <= 250
    store.close()


def test_scripts_come_back_after_the_server_forgot_them(store: RedisStreamStore, server: Redis) -> None:
    store.append("m1", event(0))
    server.script_flush()
    store.append("m1", event(1))
    assert seqs(store) == [0, 1]


def test_a_broken_connection_is_replaced(store: RedisStreamStore, server: Redis) -> None:
    store.append("m1", event(0))
    server.client_kill_filter(_type="normal", skipme=True)
    store.append("m1", event(1))
    assert seqs(store) == [0, 1]


def test_a_full_server_is_unavailable(store: RedisStreamStore, server: Redis) -> None:
    store.append("m1", event(0))
    server.config_set("maxmemory", 1)
    try:
        with pytest.raises(StoreUnavailableError):
            store.append("m1", event(1))
    finally:
        server.config_set("maxmemory", 0)
    assert seqs(store) == [0]


def test_a_foreign_value_under_our_key_is_a_permanent_error(store: RedisStreamStore, server: Redis) -> None:
    server.set("sm:events:m1", "not a stream")
    with pytest.raises(PermanentError):
        store.read("m1", -1)


def test_a_wrong_password_is_a_configuration_error(valkey_url: str) -> None:
    store = RedisStreamStore(valkey_url.replace("redis://:", "redis://:wrong"))
    with pytest.raises(ConfigurationError, match="refuses"):
        store.read("m1", -1)
    store.close()


def test_a_url_that_is_none_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="URL"):
        RedisStreamStore("http://127.0.0.1")


def test_a_server_that_is_not_there_is_unavailable_soon() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        store = RedisStreamStore(f"redis://127.0.0.1:{taken.getsockname()[1]}/0", timeout_s=0.5)
        started = time.monotonic()
        with pytest.raises(StoreUnavailableError):
            store.append("m1", event(0))
        assert time.monotonic() - started < 5
    store.close()


def test_a_server_that_is_silent_is_unavailable_soon() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = RedisStreamStore(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", timeout_s=0.2)
        started = time.monotonic()
        with pytest.raises(StoreUnavailableError):
            store.snapshot("m1")
        assert time.monotonic() - started < 3
    store.close()


@pytest.mark.usefixtures("server")
def test_a_follower_outlasts_the_command_timeout(valkey_url: str) -> None:
    store = RedisStreamStore(valkey_url, timeout_s=0.2)
    timer = threading.Timer(0.6, store.append, ("m1", event(0)))
    timer.start()
    assert [followed.seq for _, _, followed in store.follow({"m1": "0"}, block_ms=3_000)] == [0]
    timer.join()
    store.close()
