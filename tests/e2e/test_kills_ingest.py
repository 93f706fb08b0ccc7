"""`kill -9` of every kind of process in the middle of an ingest, and a broker that forgets everything.

Each run must end as an undisturbed one does: every document ready, with exactly the same text and chunks in each store.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from tests.e2e.conftest import samples
from tests.ledger_view import fingerprint, rows, running
from tests.stack import Api, Stack, broker_url, running_stack, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

#: The process that dies, and the kind of step that must be in hand when it does.
VICTIMS = {
    "extract": "ingest.extract",
    "embed": "ingest.embed",
    "store": "ingest.embed",
    "answer": "ingest.embed",
    "beat": "ingest.embed",
    "gateway": "ingest.embed",
    "valkey": "ingest.embed",
}


def many_samples() -> dict[str, bytes]:
    """The samples and altered copies of the text ones: enough work to be in the middle of."""
    files = samples()
    texts = {name: data for name, data in files.items() if name.endswith((".md", ".txt", ".html"))}
    copies = {f"copy{n}-{name}": data + f"\ncopy {n}\n".encode() for n in range(2) for name, data in texts.items()}
    return files | copies


def ingest(stack: Stack, disturb) -> dict[str, tuple]:
    with stack.client() as http:
        api = Api(http)
        kb = api.create_kb("kills")
        assert {result["outcome"] for result in api.upload(kb, many_samples())} == {"accepted"}
        disturb(stack)
    wait_for(lambda: _all_final(stack.data_dir), 240, "every document to be final", every_s=0.5)
    stack.stop()
    return fingerprint(stack.data_dir)


def _all_final(data_dir: Path) -> bool:
    statement = "SELECT count(*) FROM revisions WHERE state NOT IN ('ready', 'empty', 'failed', 'cancelled')"
    return rows(data_dir, statement)[0][0] == 0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple]:
    with running_stack(tmp_path_factory.mktemp("undisturbed") / "data") as stack:
        found = ingest(stack, lambda _: None)
    for key, (state, chunks, _chars, _text, live, in_text, in_vectors) in found.items():
        assert (state, live, in_text, in_vectors) == ("ready", 1, chunks, chunks), key
    return found


@pytest.mark.parametrize("victim", VICTIMS)
def test_killing_a_process_loses_and_doubles_nothing(victim: str, undisturbed, tmp_path: Path) -> None:
    def kill(stack: Stack) -> None:
        wait_for(lambda: running(stack.data_dir, VICTIMS[victim]), 60, f"{VICTIMS[victim]} to run", every_s=0.01)
        stack.wait_restarted(victim, stack.kill(victim))

    with running_stack(tmp_path / "data") as stack:
        assert ingest(stack, kill) == undisturbed


@pytest.mark.parametrize("kind", ["extract", "embed"])
def test_killing_a_pool_child_loses_and_doubles_nothing(kind: str, undisturbed, tmp_path: Path) -> None:
    def kill(stack: Stack) -> None:
        wait_for(lambda: running(stack.data_dir, f"ingest.{kind}"), 60, f"{kind} to run", every_s=0.01)
        for process in stack.processes()[kind][1:]:
            if "celery" in " ".join(process.cmdline()):
                process.kill()

    with running_stack(tmp_path / "data") as stack:
        assert ingest(stack, kill) == undisturbed


def test_a_broker_that_forgets_everything_loses_nothing(undisturbed, tmp_path: Path) -> None:
    def flush(stack: Stack) -> None:
        wait_for(lambda: running(stack.data_dir, "ingest.embed"), 60, "embedding to begin", every_s=0.01)
        with redis.Redis.from_url(broker_url(stack)) as broker:
            broker.flushall()

    with running_stack(tmp_path / "data") as stack:
        assert ingest(stack, flush) == undisturbed
