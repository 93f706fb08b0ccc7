"""Every message delivered twice, by a real broker to real workers: nothing changes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pipeline.jobs import StepKind
from pipeline.settings import load_settings
from tests.e2e.conftest import samples
from tests.ledger_view import fingerprint, rows
from tests.stack import Api, Stack, broker_url, running_stack
from workers.app import create_celery
from workers.policies import POLICIES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

QUESTION = "How many annual leave hours can you carry over from one leave year to the next?"


class Doubler(threading.Thread):
    """Sends each step's message again as soon as the step is seen, and once more when it is done."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(daemon=True)
        self.data_dir = stack.data_dir
        self.app = create_celery(load_settings({"SOURCEMILL_BROKER_URL": broker_url(stack)}))
        self.sent: set[tuple[int, str]] = set()
        self.kinds: set[str] = set()
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(0.02):
            for step_id, kind, state in rows(self.data_dir, "SELECT id, kind, state FROM steps"):
                moment = (step_id, "done" if state == "done" else "open")
                if moment not in self.sent:
                    self.sent.add(moment)
                    self.kinds.add(kind)
                    self.app.send_task(kind, args=[[step_id]], queue=POLICIES[StepKind(kind)].queue)

    def stop(self) -> None:
        self.stopped.set()
        self.join()
        self.app.close()


def run(stack: Stack) -> tuple[dict, dict, int]:
    """Ingest, change a document, ask, delete; returns the answer, the fingerprint and the number of step attempts."""
    with stack.client() as http:
        api = Api(http)
        kb = api.create_kb("kb")
        api.upload(kb, samples())
        api.wait_documents(kb, 120)
        api.upload(kb, {"docstring-conventions.txt": b"It is shorter now.\n"})
        documents = api.wait_documents(kb, 120)
        record = api.answer(QUESTION, kb)
        doomed = next(document for document in documents if document["key"] == "rust-rfc-process.md")
        assert http.delete(f"/v1/documents/{doomed['id']}").status_code in {202, 204}
    return record, doomed, rows(stack.data_dir, "SELECT sum(attempt) FROM steps")[0][0]


def comparable(record: dict) -> tuple:
    response = record["model_response"]
    return response["content"], [(c["cited_text"], c["page_number"], c["start"]) for c in response["citations"]]


def test_delivering_every_message_twice_changes_nothing(tmp_path: Path) -> None:
    with running_stack(tmp_path / "once") as stack:
        once, _, _ = run(stack)
    plain = fingerprint(tmp_path / "once")
    with running_stack(tmp_path / "twice") as stack:
        doubler = Doubler(stack)
        doubler.start()
        twice, _, _ = run(stack)
        doubler.stop()
        doubled_steps = rows(stack.data_dir, "SELECT count(*), sum(attempt) FROM steps WHERE state = 'done'")[0]
    assert doubler.kinds == {kind.value for kind in StepKind}
    assert doubled_steps[0] == doubled_steps[1], "a duplicate was worked on"
    assert comparable(twice) == comparable(once)
    assert fingerprint(tmp_path / "twice") == plain
