"""A real stream server, a real catalog, and uvicorn on a loopback port."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
import structlog
from fastapi import FastAPI
from fastapi.testclient import TestClient

from api_gateway.app import create_app
from pipeline.settings import Settings, with_defaults
from pipeline.stores.migrate import migrate
from pipeline.stores.stream_redis import RedisStreamStore
from tests.unit.gateway.servers import valkey
from workers.client import Client, open_client


@pytest.fixture(scope="session", autouse=True)
def _plain_logs() -> Iterator[None]:
    """The default renders tracebacks with all their variables, which takes seconds."""
    structlog.configure(processors=[structlog.processors.format_exc_info, structlog.processors.KeyValueRenderer()])
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with valkey(tmp_path_factory.mktemp("valkey")) as url:
        yield url


@pytest.fixture
def flush(valkey_url: str):
    """Lose everything that the stream server holds."""

    def lose() -> None:
        with redis.Redis.from_url(valkey_url) as client:
            client.flushall()

    return lose


@pytest.fixture
def streams(valkey_url: str, flush) -> Iterator[RedisStreamStore]:
    flush()
    store = RedisStreamStore(valkey_url)
    yield store
    store.close()


@dataclass(frozen=True)
class Api:
    """The whole gateway without any worker, and callers of two tenants."""

    http: TestClient
    client: Client
    app: FastAPI
    acme: dict[str, str]
    umbrella: dict[str, str]


@pytest.fixture(scope="session")
def empty_catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Migrated once; a test takes a copy."""
    path = tmp_path_factory.mktemp("catalog") / "catalog.db"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture
def settings(tmp_path: Path, valkey_url: str) -> Settings:
    given = {"data_dir": tmp_path, "broker_url": f"{valkey_url}/0", "max_file_bytes": 1000, "max_question_chars": 200}
    return with_defaults(Settings(**given))


@pytest.fixture
def api(settings: Settings, empty_catalog: Path, flush) -> Iterator[Api]:
    flush()
    shutil.copy(empty_catalog, settings.data_dir)
    with open_client(settings) as client:
        app = create_app(settings, client)
        keys = [client.resources.api_keys.create(tenant, "test")[1] for tenant in ("acme", "umbrella")]
        acme, umbrella = ({"Authorization": f"Bearer {key}"} for key in keys)
        with TestClient(app, raise_server_exceptions=False) as http:
            yield Api(http, client, app, acme, umbrella)
