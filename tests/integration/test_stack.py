"""The embedded stack as a user runs it: `sourcemill up` in a process of its own, with everything real."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest

from api_gateway.cli.credentials import load_credentials
from api_gateway.cli.process import start_time
from api_gateway.cli.record import read_record
from workers.policies import WORKERS

ROOT = Path(__file__).parents[2]
NAMES = {"valkey", "gateway", "beat", "flower", *(kind.name for kind in WORKERS)}
#: Also on a machine that does other things at the same time.
START_S = 90

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def environment(data_dir, **settings):
    mine = {name: value for name, value in os.environ.items() if not name.startswith("SOURCEMILL_")}
    wanted = {
        "data_dir": data_dir,
        "port": 0,
        "flower_port": 0,
        "extract_processes": 1,
        "embed_processes": 1,
        **settings,
    }
    return mine | {f"SOURCEMILL_{name.upper()}": str(value) for name, value in wanted.items()}


def sourcemill(data_dir, *arguments, **settings):
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "api_gateway.cli", *arguments],
        cwd=ROOT,
        env=environment(data_dir, **settings),
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )


class Up:
    """A running `sourcemill up --json`."""

    def __init__(self, data_dir):
        self.data_dir = data_dir
        self.process = subprocess.Popen(
            [sys.executable, "-m", "api_gateway.cli", "up", "--json"],
            cwd=ROOT,
            env=environment(data_dir),
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ready = self.event("ready")

    def event(self, name):
        """The next event of that name."""
        for line in self.process.stdout:
            event = json.loads(line)
            if event.get("event") == name:
                return event
        raise AssertionError(f"no {name} event: {self.logs()}")

    def logs(self):
        return {log.name: log.read_text()[-1500:] for log in (self.data_dir / "logs").glob("*.log")}

    @property
    def record(self):
        return read_record(self.data_dir)

    def pid(self, name):
        return self.record.processes[name].pid

    def family(self):
        """Every process of the stack with all that it started."""
        leaders = [psutil.Process(each.pid) for each in self.record.processes.values()]
        return {process.pid for leader in leaders for process in (leader, *leader.children(recursive=True))}

    def kill_and_wait(self, name):
        """Kill a child; the event of its end, once another one has taken its place."""
        before = self.pid(name)
        os.kill(before, signal.SIGKILL)
        event = self.event("exit")
        until(lambda: name in self.record.processes and self.pid(name) != before)
        return event

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.communicate(timeout=30)


def until(condition, timeout_s=20.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def all_gone(pids):
    return all(start_time(pid) is None for pid in pids)


def status_code(url, **options):
    try:
        return httpx.get(url, trust_env=False, timeout=5, **options).status_code
    except httpx.TransportError:
        return None


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    started = Up(tmp_path_factory.mktemp("stack") / "data")
    yield started
    started.end()


def test_all_processes_run_and_every_queue_has_a_consumer(up):
    assert set(up.record.processes) == NAMES
    shown = json.loads(sourcemill(up.data_dir, "status", "--json").stdout)
    assert {each["name"] for each in shown["processes"]} == NAMES
    assert all(queue["workers"] >= 1 for queue in shown["queues"])


def test_the_first_key_is_told_once_and_works(up):
    key = up.ready["api_key"]
    assert key == load_credentials(up.data_dir).api_key
    assert status_code(f"{up.record.url}/v1/status", headers={"Authorization": f"Bearer {key}"}) == 200
    assert status_code(f"{up.record.url}/v1/status", headers={"Authorization": "Bearer wrong"}) == 401


def test_flower_and_its_api_are_behind_a_password(up):
    credentials = load_credentials(up.data_dir)
    known = (credentials.flower_user, credentials.flower_password)
    for path in ("/", "/tasks", "/api/workers", "/api/tasks"):
        assert status_code(up.record.flower_url + path) == 401
        assert status_code(up.record.flower_url + path, auth=known) == 200


def test_no_secret_is_on_a_command_line(up):
    credentials = load_credentials(up.data_dir)
    lines = " ".join(" ".join(psutil.Process(pid).cmdline()) for pid in up.family())
    for secret in (credentials.redis_password, credentials.flower_password, credentials.api_key):
        assert secret not in lines


def test_bulk_work_is_nicer_than_answering(up):
    nice = {name: psutil.Process(up.pid(name)).nice() - os.nice(0) for name in ("extract", "embed", "answer")}
    assert nice == {"extract": 5, "embed": 10, "answer": 0}


def test_a_second_start_on_the_same_folder_is_refused_and_harms_nothing(up):
    before = up.record
    second = sourcemill(up.data_dir, "up")
    assert second.returncode == 6
    assert str(up.process.pid) in second.stderr
    assert up.record == before


def test_a_taken_port_is_named_with_the_setting_that_changes_it(up, tmp_path):
    port = up.record.url.rsplit(":", 1)[1]
    refused = sourcemill(tmp_path, "up", "--json", port=port)
    assert refused.returncode == 6
    assert json.loads(refused.stdout)["error"]["code"] == "port_taken"
    assert port in refused.stderr
    assert "SOURCEMILL_PORT" in refused.stderr


@pytest.mark.parametrize("name", ["gateway", "valkey", "store", "beat"])
def test_a_killed_process_is_started_again_and_the_stack_serves_on(up, name):
    event = up.kill_and_wait(name)
    assert (event["process"], event["reason"]) == (name, "SIGKILL")
    key = {"Authorization": f"Bearer {load_credentials(up.data_dir).api_key}"}
    until(lambda: status_code(f"{up.record.url}/readyz") == 200)
    until(lambda: status_code(f"{up.record.url}/v1/knowledge-bases", headers=key) == 200)


def test_a_document_goes_in_and_a_cited_answer_comes_out(up, tmp_path):
    note = tmp_path / "note.txt"
    note.write_text("The harbour of Port Ellis closes at nine in the evening. It opens again at five in the morning.")
    sent = sourcemill(up.data_dir, "ingest", str(note), "--wait", "--json")
    assert sent.returncode == 0, sent.stderr
    assert [each["state"] for each in json.loads(sent.stdout)["documents"]] == ["ready"]
    again = json.loads(sourcemill(up.data_dir, "ingest", str(note), "--json").stdout)
    assert [each["outcome"] for each in again["results"]] == ["unchanged"]

    asked = sourcemill(up.data_dir, "ask", "When does the harbour of Port Ellis close?", "--json")
    assert asked.returncode == 0, asked.stderr
    (first, *_) = json.loads(asked.stdout)["model_response"]["citations"]
    assert (first["key"], first["page_number"]) == (str(note), 1)
    assert first["cited_text"] in note.read_text()
    assert sourcemill(up.data_dir, "ask", "Who composed the opera Fidelio?").returncode == 7


def test_down_stops_everything_and_says_so_once(up):
    family = up.family()
    assert sourcemill(up.data_dir, "down").returncode == 0
    assert up.process.wait(5) == 0
    assert up.event("stopped")["killed"] == []
    assert all_gone(family)
    assert json.loads(sourcemill(up.data_dir, "down", "--json").stdout) == {"stopped": False}
    unreachable = sourcemill(up.data_dir, "kb", "list")
    assert unreachable.returncode == 3
    assert "sourcemill up" in unreachable.stderr


def test_a_killed_supervisor_leaves_nothing_and_the_next_start_works(up):
    """After `down`: the same folder, so that a second start is tested too."""
    second = Up(up.data_dir)
    assert second.ready["api_key"] is None
    family = second.family()
    second.process.kill()
    second.end()
    if sys.platform == "linux":
        until(lambda: all_gone(family), timeout_s=5)
    third = Up(up.data_dir)
    try:
        assert all_gone(family)
    finally:
        third.end()
    assert third.process.returncode == 0
