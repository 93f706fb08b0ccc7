"""Waits until documents are final, and says how fast that went."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from api_gateway.cli.api import Api, segment
from pipeline.errors import NotFoundError
from pipeline.models import FINAL_REVISION_STATES, RevisionState

#: In the order that a document goes through them: read in this order, one that moves on meanwhile is never missed.
OPEN_STATES = (RevisionState.QUEUED, RevisionState.EXTRACTING, RevisionState.INDEXING, RevisionState.SEARCHABLE)
POLL_S = 0.3
PAGE = 500

Record = Mapping[str, Any]
OnProgress = Callable[[int, Mapping[str, int]], None]


def wait_until_final(api: Api, kb_id: str, document_ids: Collection[str], on_progress: OnProgress) -> list[Record]:
    """The documents once none of them will change by itself, in the order given; a deleted one is left out.

    `on_progress` gets how many are final, and how many are in each open state. The time between two looks grows
    with what a look costs, so that waiting for very many documents doesn't slow them down.
    """
    pending = dict.fromkeys(document_ids)
    final: dict[str, Record] = {}
    while pending:
        begun = time.monotonic()
        states = _open_states(api, kb_id)
        for document_id in [each for each in pending if each not in states]:
            record = _record(api, document_id)
            if record is None:
                del pending[document_id]
            elif record["state"] in FINAL_REVISION_STATES:
                final[document_id] = record
                del pending[document_id]
        on_progress(len(final), Counter(state for each, state in states.items() if each in pending))
        if pending:
            time.sleep(max(POLL_S, 4 * (time.monotonic() - begun)))
    return [final[each] for each in document_ids if each in final]


def _open_states(api: Api, kb_id: str) -> dict[str, str]:
    path = f"/v1/knowledge-bases/{segment(kb_id)}/documents"
    return {item["id"]: state for state in OPEN_STATES for item in api.pages(path, state=state, limit=PAGE)}


def _record(api: Api, document_id: str) -> Record | None:
    try:
        record: Record = api.get(f"/v1/documents/{segment(document_id)}")
    except NotFoundError:
        return None
    return record


@dataclass(frozen=True, slots=True)
class Rates:
    """Pages a second until the last document was searchable, chunks a second until the last one was ready."""

    documents: int
    pages: int
    chunks: int
    searchable_s: float | None
    ready_s: float | None
    pages_per_s: float | None
    chunks_per_s: float | None


def rates(records: Sequence[Record]) -> Rates:
    """By the server's own clock: from the first `queued` to the last `searchable` and `ready` of `records`."""
    done = [record for record in records if record["state"] == RevisionState.READY]
    pages = sum(record["page_count"] or 0 for record in done)
    chunks = sum(record["chunk_count"] or 0 for record in done)
    begun = min(_times(done, RevisionState.QUEUED), default=None)
    searchable_s = _since(begun, _times(done, RevisionState.SEARCHABLE))
    ready_s = _since(begun, _times(done, RevisionState.READY))
    return Rates(
        len(done), pages, chunks, searchable_s, ready_s, _per_second(pages, searchable_s), _per_second(chunks, ready_s)
    )


def _times(records: Iterable[Record], state: RevisionState) -> list[datetime]:
    return [datetime.fromisoformat(record["times"][state]) for record in records if state in record["times"]]


def _since(begun: datetime | None, ends: Sequence[datetime]) -> float | None:
    return None if begun is None or not ends else (max(ends) - begun).total_seconds()


def _per_second(count: int, seconds: float | None) -> float | None:
    return round(count / seconds, 2) if seconds else None
