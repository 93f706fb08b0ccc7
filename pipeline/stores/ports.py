"""What the pipeline asks of storage: domain verbs, our records, at most eight methods a port.

Every implementation raises `TransientError` for what may work later and `PermanentError` for what
won't, and runs the port's contract class in tests/contracts. All are safe to call from several threads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from pipeline.models import (
    Caller,
    Document,
    Event,
    Hit,
    IndexedChunk,
    KnowledgeBase,
    Message,
    Revision,
    Scope,
    ScoredChunk,
    Snapshot,
    TextQuery,
    Thread,
    ThreadParams,
)

Vectors = npt.NDArray[np.float32]


class TextStore(Protocol):
    """Full text search over analysed chunks. After `put` returns, a search finds them."""

    def put(self, chunks: Sequence[IndexedChunk]) -> None:
        """Write chunks; a chunk id that is already there is replaced, so a second put changes nothing."""

    def search(self, query: TextQuery, scope: Scope, limit: int) -> list[ScoredChunk]:
        """Best first (BM25 over `terms`); only chunks inside `scope` are considered. Ties by chunk id."""

    def get(self, chunk_ids: Sequence[str], scope: Scope) -> list[Hit]:
        """The stored chunks (score 0.0) in the order asked; ids that are unknown in `scope` are left out."""

    def delete_document(self, document_id: str, revision: int | None = None) -> None:
        """Remove one revision's chunks, or all of the document's."""

    def count(self, document_id: str, revision: int | None = None) -> int: ...

    def close(self) -> None: ...


class VectorStore(Protocol):
    """Nearest neighbours by cosine. After `put` returns, a search finds them."""

    def put(self, chunks: Sequence[IndexedChunk], vectors: Vectors) -> None:
        """Write one vector a chunk, shape (len(chunks), dimension); replaces by chunk id."""

    def search(self, vector: Vectors, scope: Scope, limit: int) -> list[ScoredChunk]: ...

    def delete_document(self, document_id: str, revision: int | None = None) -> None: ...

    def count(self, document_id: str, revision: int | None = None) -> int: ...

    def close(self) -> None: ...


class BlobStore(Protocol):
    """Content-addressed bytes in a named area. Each revision has an area of its own, so a delete is exact.

    A blob id is the lower-case hex SHA-256 of its bytes.
    """

    def put(self, area: str, data: bytes) -> str:
        """Store bytes durably (they survive `kill -9`) and return their blob id."""

    def put_file(self, area: str, path: Path) -> str:
        """Store a file's bytes without holding them in memory."""

    def get(self, area: str, blob_id: str) -> bytes:
        """Raises NotFoundError."""

    def local_path(self, area: str, blob_id: str) -> AbstractContextManager[Path]:
        """A file with the bytes, readable while the context is open. Raises NotFoundError."""

    def delete(self, area: str, blob_ids: Sequence[str] | None = None) -> None:
        """Remove these blobs, or the whole area; what is not there is no error."""

    def list(self, area: str) -> list[str]: ...

    def close(self) -> None: ...


class StreamStore(Protocol):
    """The streaming state of messages: one snapshot and one event stream each.

    It may lose everything at any time; the final record is in the catalog before the terminal event.
    """

    def begin(self, message_id: str, epoch: int, state: Mapping[str, Any]) -> int:
        """Take over the stream for `epoch` and return the next seq (0 when nothing is there).

        A later epoch than the stored one wins: earlier epochs' appends then raise StaleEpochError.
        The same epoch may begin again. An older one raises StaleEpochError.
        """

    def append(self, message_id: str, event: Event, state: Mapping[str, Any] | None = None) -> None:
        """Append one event; `state`, when given, becomes the snapshot at this seq (same atomic call).

        Appending a seq that is already there changes nothing, so a retried call is safe. After a terminal
        event nothing more is appended. If the stream was lost, it goes on from this event: the seq keeps
        counting, and readers that need what was lost get the snapshot. Raises StaleEpochError, and
        PermanentError when `event.seq` would leave a gap in a stream that is there.
        """

    def read(self, message_id: str, after: int, limit: int = 1000) -> list[Event]:
        """Events with seq > after, in order, contiguous; empty when there are none yet or the tail is gone.

        Whoever finds that the first event is not `after + 1` must start from the snapshot.
        """

    def snapshot(self, message_id: str) -> Snapshot | None: ...

    def follow(self, positions: Mapping[str, str], block_ms: int) -> Iterator[tuple[str, str, Event]]:
        """Wait up to `block_ms` for events behind many streams' positions (opaque; "0" is the start).

        Yields (message_id, new position, event).
        """

    def delete(self, message_id: str) -> None: ...

    def close(self) -> None: ...


class KnowledgeBases(Protocol):
    def create(self, tenant_id: str, name: str, description: str = "") -> KnowledgeBase:
        """Raises ConflictError when the tenant has one of that name, InvalidInputError for a bad name."""

    def get(self, tenant_id: str, kb_id: str) -> KnowledgeBase:
        """By id or by name. Raises NotFoundError, also for another tenant's."""

    def list(self, tenant_id: str, after: str = "", limit: int = 100) -> list[KnowledgeBase]:
        """Ordered by id; `after` is the last id of the page before."""


class Documents(Protocol):
    def get(self, tenant_id: str, document_id: str) -> Document:
        """Raises NotFoundError, also for another tenant's and for a deleted one."""

    def list(
        self, tenant_id: str, kb_id: str, after: str = "", limit: int = 100, state: str | None = None
    ) -> list[Document]:
        """Ordered by id; only those whose latest revision is in `state`, when it is given."""

    def counts(self, tenant_id: str, kb_id: str | None = None) -> dict[str, int]:
        """How many documents are in each state of their latest revision."""

    def revision(self, document_id: str, number: int) -> Revision:
        """Raises NotFoundError."""

    def live_revisions(self, document_ids: Collection[str]) -> dict[str, int]:
        """The revision that answers, for those documents that have one and are not deleted."""


class Conversations(Protocol):
    def create_thread(self, tenant_id: str, params: ThreadParams) -> Thread: ...

    def get_thread(self, tenant_id: str, thread_id: str) -> Thread: ...

    def list_threads(self, tenant_id: str, after: str = "", limit: int = 100) -> list[Thread]: ...

    def delete_thread(self, tenant_id: str, thread_id: str) -> None: ...

    def get_message(self, tenant_id: str, message_id: str) -> Message: ...

    def list_messages(self, tenant_id: str, thread_id: str, limit: int = 1000) -> list[Message]:
        """Oldest first; the newest `limit` of them."""

    def message(self, message_id: str) -> Message:
        """For workers, which act on ids out of the ledger."""


class ApiKeys(Protocol):
    def create(self, tenant_id: str, name: str) -> tuple[str, str]:
        """(key id, secret). Only a hash of the secret is kept."""

    def authenticate(self, secret: str) -> Caller:
        """Raises UnauthorizedError."""

    def exists(self) -> bool:
        """Whether any key was ever made: the first start makes one."""
