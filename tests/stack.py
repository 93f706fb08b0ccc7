"""The real embedded stack as tests use it: started by `sourcemill up` in a folder of its own, driven over HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

REPOSITORY = Path(__file__).parent.parent
SAMPLES = REPOSITORY / "deploy" / "samples" / "documents"
FINAL_STATES = {"ready", "empty", "failed", "cancelled"}
START_S = 90.0


@dataclass
class Stack:
    data_dir: Path
    extra: Mapping[str, str] = field(default_factory=dict)
    supervisor: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        own = {"SOURCEMILL_DATA_DIR": str(self.data_dir), "SOURCEMILL_PORT": "0", "SOURCEMILL_FLOWER_PORT": "0"}
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("SOURCEMILL_")}
        return inherited | own | dict(self.extra)

    def start(self) -> None:
        log = (self.data_dir.parent / f"{self.data_dir.name}.log").open("ab")
        command = [sys.executable, "-m", "api_gateway.cli", "up"]
        self.supervisor = subprocess.Popen(command, cwd=REPOSITORY, env=self.environment, stdout=log, stderr=log)
        log.close()
        wait_for(self._is_ready, START_S, "the stack to be ready")

    def _is_ready(self) -> bool:
        assert self.supervisor is not None
        if self.supervisor.poll() is not None:
            log = (self.data_dir.parent / f"{self.data_dir.name}.log").read_text()
            raise AssertionError(f"`sourcemill up` ended with {self.supervisor.returncode}:\n{log[-3000:]}")
        try:
            record = self.record
            return record["ready"] and record["supervisor"]["pid"] == self.supervisor.pid
        except (OSError, ValueError):
            return False

    def stop(self) -> None:
        if self.supervisor is None:
            return
        self.supervisor.terminate()
        try:
            self.supervisor.wait(30)
        except subprocess.TimeoutExpired:
            self.supervisor.kill()
            self.supervisor.wait()
            raise
        finally:
            self.supervisor = None

    @property
    def record(self) -> dict[str, Any]:
        return json.loads((self.data_dir / "run" / "stack.json").read_bytes())

    @property
    def credentials(self) -> dict[str, str]:
        return json.loads((self.data_dir / "credentials.json").read_bytes())

    def pid(self, name: str) -> int:
        """0 while it is dead and not restarted yet."""
        return self.record["processes"].get(name, {"pid": 0})["pid"]

    def wait_restarted(self, name: str, died: int) -> None:
        wait_for(lambda: self.pid(name) not in {0, died}, 60, f"{name} to be restarted")

    def kill(self, name: str) -> int:
        """`kill -9` of one process kind; returns the pid that died."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        return pid

    def processes(self) -> dict[str, list[psutil.Process]]:
        """Each process of the stack with all its descendants."""
        found = {}
        for name, identity in self.record["processes"].items():
            leader = psutil.Process(identity["pid"])
            found[name] = [leader, *leader.children(recursive=True)]
        return found

    def client(self) -> httpx.Client:
        key = self.credentials["api_key"]
        return httpx.Client(base_url=self.record["url"], headers={"Authorization": f"Bearer {key}"}, timeout=60)

    def cli(self, *arguments: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "api_gateway.cli", *arguments]
        return subprocess.run(
            command,
            cwd=REPOSITORY,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )


@contextmanager
def running_stack(data_dir: Path, extra: Mapping[str, str] | None = None) -> Iterator[Stack]:
    stack = Stack(data_dir, extra or {})
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()


def wait_for(condition: Any, timeout_s: float, what: str, every_s: float = 0.1) -> Any:
    """The first true value of `condition`; AssertionError after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(every_s)
    raise AssertionError(f"waited {timeout_s} s in vain for {what}")


class Api:
    """The calls that the tests make, in short."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def create_kb(self, name: str) -> str:
        response = self.http.post("/v1/knowledge-bases", json={"name": name})
        response.raise_for_status()
        return response.json()["id"]

    def upload(self, kb: str, files: Mapping[str, bytes]) -> list[dict[str, Any]]:
        parts = [("files", (key, data)) for key, data in files.items()]
        response = self.http.post(f"/v1/knowledge-bases/{kb}/documents", files=parts, data={"keys": list(files)})
        response.raise_for_status()
        return response.json()["results"]

    def documents(self, kb: str) -> list[dict[str, Any]]:
        items, after = [], ""
        while True:
            page = self.http.get(f"/v1/knowledge-bases/{kb}/documents", params={"after": after, "limit": 500}).json()
            items += page["items"]
            after = page.get("next")
            if not after:
                return items

    def wait_documents(self, kb: str, timeout_s: float) -> list[dict[str, Any]]:
        """All documents of the kb, once each is in a final state."""

        def final() -> list[dict[str, Any]] | None:
            found = self.documents(kb)
            return found if {document["state"] for document in found} <= FINAL_STATES else None

        return wait_for(final, timeout_s, "every document to be final", every_s=0.3)

    def ask(self, question: str, *kbs: str, **overrides: Any) -> str:
        thread = self.http.post("/v1/threads", json={"kb_ids": list(kbs)})
        thread.raise_for_status()
        path = f"/v1/threads/{thread.json()['id']}/messages"
        response = self.http.post(path, json={"content": question, **overrides})
        assert response.status_code == 202, response.text
        return response.json()["message_id"]

    def message(self, message_id: str) -> dict[str, Any]:
        response = self.http.get(f"/v1/messages/{message_id}")
        response.raise_for_status()
        return response.json()

    def events(self, message_id: str, after: int = -1) -> Iterator[dict[str, Any]]:
        """Server-sent events as {seq, type, data}, until the connection ends."""
        headers = {} if after < 0 else {"Last-Event-ID": str(after)}
        with self.http.stream("GET", f"/v1/messages/{message_id}/events", headers=headers, timeout=90) as response:
            response.raise_for_status()
            event: dict[str, Any] = {}
            for line in response.iter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    event["seq"] = int(value)
                elif name == "event":
                    event["type"] = value
                elif name == "data":
                    event["data"] = json.loads(value)
                elif not line and event:
                    yield event
                    event = {}

    def answer(self, question: str, *kbs: str, timeout_s: float = 60, **overrides: Any) -> dict[str, Any]:
        """Ask and wait for the final record."""
        message_id = self.ask(question, *kbs, **overrides)
        return self.wait_message(message_id, timeout_s)

    def wait_message(self, message_id: str, timeout_s: float = 60) -> dict[str, Any]:
        def final() -> dict[str, Any] | None:
            record = self.message(message_id)
            return record if record["model_response"]["status"] in {"finished", "failed", "cancelled"} else None

        return wait_for(final, timeout_s, f"message {message_id} to be final")


def broker_url(stack: Stack) -> str:
    """The running stack's broker; its port is the one that valkey listens on."""
    listening = [c for c in stack.processes()["valkey"][0].net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    return f"redis://:{stack.credentials['redis_password']}@127.0.0.1:{listening[0].laddr.port}/0"
