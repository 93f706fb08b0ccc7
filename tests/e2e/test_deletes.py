"""Deletes in the middle of everything: whatever the moment, a deleted revision leaves nothing in any store."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pipeline.settings import load_settings
from pipeline.wiring import open_resources
from tests.ledger_view import rows
from tests.stack import SAMPLES, Api, Stack, running_stack, wait_for
from workers.policies import POLICIES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LONG = (SAMPLES / "postgresql-transaction-isolation.html").read_bytes()


def version(number: int) -> bytes:
    return LONG + f"<p>Version {number} of the text.</p>".encode()


def delete_all(api: Api, kb: str) -> None:
    for document in api.documents(kb):
        assert api.http.delete(f"/v1/documents/{document['id']}").status_code in {202, 204, 404}


def race(stack: Stack, kb: str, rounds: int) -> None:
    """Uploads and deletes of the same keys, at once."""

    def upload() -> None:
        with stack.client() as http:
            for number in range(rounds):
                Api(http).upload(kb, {f"raced-{number % 3}.html": version(number)})

    def delete() -> None:
        with stack.client() as http:
            for _ in range(rounds):
                delete_all(Api(http), kb)

    threads = [threading.Thread(target=upload), threading.Thread(target=delete)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def is_clean(data_dir: Path) -> bool:
    """Every revision that does not answer any more has been removed, and nothing is in work."""
    left = "SELECT count(*) FROM revisions r JOIN documents d ON d.id = r.document_id WHERE NOT r.removed AND {}"
    deleted = rows(data_dir, left.format("d.deleted_at IS NOT NULL"))[0][0]
    working = rows(data_dir, "SELECT count(*) FROM steps WHERE state IN ('ready', 'running')")[0][0]
    return not deleted and not working


def test_deletes_at_every_moment_leave_exactly_what_lives(tmp_path: Path) -> None:
    with running_stack(tmp_path / "data") as stack, stack.client() as http:
        api = Api(http)
        kb = api.create_kb("deletes")
        race(stack, kb, rounds=12)
        for number in range(4):  # superseded in the middle of its work, then deleted
            api.upload(kb, {"twice.html": version(100 + number)})
            api.upload(kb, {"twice.html": b"short"})
            delete_all(api, kb)
        api.upload(kb, {"kept.txt": b"This document is kept.", "raced-0.html": version(1)})
        wait_for(lambda: is_clean(stack.data_dir), 150, "every deleted revision to be removed", every_s=0.5)
        assert {document["state"] for document in api.documents(kb)} == {"ready"}
    check_stores(tmp_path / "data")


def check_stores(data_dir: Path) -> None:
    statement = """
        SELECT r.document_id, r.number, r.area, r.chunk_count, d.live_revision = r.number
        FROM revisions r JOIN documents d ON d.id = r.document_id"""
    settings = load_settings({"SOURCEMILL_DATA_DIR": str(data_dir)})
    with open_resources(settings, POLICIES) as resources:
        for document_id, number, area, chunks, live in rows(data_dir, statement):
            in_text = resources.text_store.count(document_id, number)
            in_vectors = resources.vector_store.count(document_id, number)
            blobs = resources.blobs.list(area)
            if live:
                assert (in_text, in_vectors, bool(blobs)) == (chunks, chunks, True)
            else:
                assert (in_text, in_vectors, blobs) == (0, 0, [])
