"""The gateway as a process of its own: it starts from the environment, serves, and stops at once."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from pipeline.settings import Settings, child_environment, with_defaults
from pipeline.stores.migrate import migrate
from tests.unit.gateway.servers import free_port, valkey
from workers.client import open_client

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def settings(tmp_path):
    with valkey(tmp_path) as url:
        made = with_defaults(Settings(data_dir=tmp_path / "data", broker_url=f"{url}/0", port=free_port()))
        migrate(made.catalog_url)
        yield made


@pytest.fixture
def key(settings):
    with open_client(settings) as client:
        return client.resources.api_keys.create("acme", "test")[1]


@contextmanager
def gateway(settings, log):
    environment = {**os.environ, **child_environment(settings), "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "api_gateway.main"]
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, env=environment, stderr=stderr)
    try:
        wait_until_alive(f"http://127.0.0.1:{settings.port}", process)
        yield process
    finally:
        process.kill()
        process.wait()


def wait_until_alive(url, process):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        assert process.poll() is None, "the gateway ended"
        try:
            if httpx.get(f"{url}/healthz").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    pytest.fail("the gateway did not start")


def test_a_gateway_that_is_told_to_stop_ends_open_streams_and_itself_at_once(settings, key, tmp_path):
    log = tmp_path / "gateway.log"
    with gateway(settings, log) as process:
        base, headers = f"http://127.0.0.1:{settings.port}", {"Authorization": f"Bearer {key}"}
        with httpx.Client(base_url=base, headers=headers, timeout=30) as http:
            assert http.get("/readyz").json() == {"status": "ok"}
            thread = http.post("/v1/threads", json={}).json()["id"]
            path = f"/v1/threads/{thread}/messages?stream=true"
            with http.stream("POST", path, json={"content": "Anyone?"}) as response:
                pieces = response.iter_text()
                assert next(pieces) == "retry: 1000\n\n"
                process.send_signal(signal.SIGTERM)
                started = time.monotonic()
                for _ in pieces:
                    pass
                assert process.wait(timeout=10) in (0, -signal.SIGTERM)
                assert time.monotonic() - started < 2.0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    requests = [line for line in lines if line["event"] == "request"]
    assert [line["status"] for line in requests if line["route"] == "/v1/threads/{thread_id}/messages"] == [200]
    assert not [line for line in lines if line["level"] in ("error", "critical")]


def test_an_upload_that_breaks_off_leaves_nothing_behind(settings, key, tmp_path):
    with gateway(settings, tmp_path / "gateway.log"):
        base, headers = f"http://127.0.0.1:{settings.port}", {"Authorization": f"Bearer {key}"}
        httpx.post(f"{base}/v1/knowledge-bases", json={"name": "kb"}, headers=headers)
        part = 'Content-Disposition: form-data; name="files"; filename="{}"'
        whole, cut = ("\r\n".join(["--b", part.format(name), "", "x" * 5000, ""]) for name in "ab")
        head = [
            "POST /v1/knowledge-bases/kb/documents HTTP/1.1",
            "Host: x",
            f"Authorization: Bearer {key}",
            "Content-Type: multipart/form-data; boundary=b",
            "Content-Length: 1000000",
        ]
        with socket.create_connection(("127.0.0.1", settings.port)) as connection:
            connection.sendall("\r\n".join([*head, "", whole + cut]).encode())
            wait_for(lambda: files_in(settings.data_dir / "blobs") and files_in(settings.data_dir / "uploads"))
        wait_for(lambda: not files_in(settings.data_dir / "blobs") and not files_in(settings.data_dir / "uploads"))
        assert httpx.get(f"{base}/v1/knowledge-bases/kb", headers=headers).json()["documents"] == {}


def files_in(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def wait_for(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
