"""What a test reads out of the catalog file while a stack runs, and out of the stores once it stopped."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from pipeline.settings import load_settings
from pipeline.wiring import open_resources
from workers.policies import POLICIES


def rows(data_dir: Path, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(data_dir / "catalog.db", timeout=30)
    try:
        return connection.execute(statement, values).fetchall()
    finally:
        connection.close()


def running(data_dir: Path, kind: str) -> int:
    """How many steps of a kind a worker has in hand now."""
    statement = "SELECT count(*) FROM steps WHERE kind = ? AND state = 'running'"
    return rows(data_dir, statement, kind)[0][0]


def fingerprint(data_dir: Path) -> dict[str, tuple[Any, ...]]:
    """What an ingest made of each document, by key: text, structure and counts in every store. The stack must be down.

    Two runs over the same files give the same fingerprint, whatever died in between.
    """
    settings = load_settings({"SOURCEMILL_DATA_DIR": str(data_dir)})
    statement = """
        SELECT d.key, r.state, r.chunk_count, r.char_count, r.text_blob, d.live_revision = r.number,
            r.document_id, r.number
        FROM revisions r JOIN documents d ON d.id = r.document_id AND d.revision = r.number"""
    found = {}
    with open_resources(settings, POLICIES) as resources:
        for key, state, chunks, chars, text, live, document_id, number in rows(data_dir, statement):
            in_text = resources.text_store.count(document_id)
            in_vectors = resources.vector_store.count(document_id)
            assert resources.text_store.count(document_id, number) == in_text
            found[key] = (state, chunks, chars, text, live, in_text, in_vectors)
    return found
