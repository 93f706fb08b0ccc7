"""VectorStore in process on qdrant-edge, Qdrant's own segment engine: exact cosine search.

We never call the engine's `optimize()`: it stops every thread of the process for a minute per 100,000
points, while an exact search of that many takes 10 ms, and less under an indexed filter. Only one process
may open a folder, since the engine locks its write-ahead log.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from threading import Lock

import numpy as np
import orjson
from qdrant_edge import (
    CountRequest,
    Distance,
    EdgeConfig,
    EdgeShard,
    EdgeVectorParams,
    FieldCondition,
    Filter,
    MatchValue,
    PayloadSchemaType,
    Point,
    Query,
    QueryRequest,
    ScoredPoint,
    SearchParams,
    UpdateOperation,
)

from pipeline.errors import ConfigurationError, InvalidInputError, StoreUnavailableError
from pipeline.models import IndexedChunk, Scope, ScoredChunk
from pipeline.stores.ports import Vectors

_POINT_IDS = uuid.UUID("5b1d8f4e-0a3c-4c56-9a53-3f9f6c1f2c70")
_INDEXED = ("scope", "document")
_SHOWN = ["id", "document", "revision"]
#: The write-ahead log keeps what is acknowledged; flushing only bounds the time of the next start.
_FLUSH_EVERY_POINTS = 5_000
#: The engine writes through memory maps, so a full disk would kill the process with SIGBUS instead of raising.
_MIN_FREE_BYTES = 128 << 20
#: How deep a search looks to order chunks of equal score by id. Beyond it, ties fall as the engine has them.
_TIE_DEPTH = 10_000
_SCORE_DIGITS = 6


class EdgeVectorStore:
    """The vectors of one model in one folder; what `put` has acknowledged survives `kill -9`.

    Raises ConfigurationError when the folder belongs to another model or dimension or holds something else,
    and StoreUnavailableError when another process has it open or the engine refuses.
    """

    def __init__(self, path: Path, model_name: str, dimension: int) -> None:
        self._path = path
        self._dimension = dimension
        self._claim_folder({"model": model_name, "dimension": dimension})
        self._shard = self._open()
        self._unflushed = 0
        self._counting = Lock()

    def put(self, chunks: Sequence[IndexedChunk], vectors: Vectors) -> None:
        if not len(chunks) == len(vectors) == 0:
            self._upsert(chunks, self._checked(vectors, (len(chunks), self._dimension)))

    def _upsert(self, chunks: Sequence[IndexedChunk], rows: Vectors) -> None:
        self._need_room()
        points = [_point(chunk, row) for chunk, row in zip(chunks, rows.tolist(), strict=True)]
        with self._errors():
            self._shard.update(UpdateOperation.upsert_points(points))
            if self._is_flush_due(len(points)):
                self._shard.flush()

    def search(self, vector: Vectors, scope: Scope, limit: int) -> list[ScoredChunk]:
        if limit <= 0:
            return []
        query = Query.Nearest(self._checked(vector, (self._dimension,)).tolist())
        only = _filter(scope=_scope_key(scope))
        with self._errors():
            found = [_scored(point) for point in self._nearest(query, only, limit)]
        found.sort(key=lambda chunk: (-chunk.score, chunk.chunk_id))
        return found[:limit]

    def delete_document(self, document_id: str, revision: int | None = None) -> None:
        doomed = _of_document(document_id, revision)
        with self._errors():
            self._shard.update(UpdateOperation.delete_points_by_filter(doomed))

    def count(self, document_id: str, revision: int | None = None) -> int:
        with self._errors():
            return self._shard.count(CountRequest(exact=True, filter=_of_document(document_id, revision)))

    def close(self) -> None:
        """Flush and release the folder. Later calls raise StoreUnavailableError."""
        with self._errors():
            self._shard.close()

    def _nearest(self, query: Query, only: Filter, limit: int) -> list[ScoredPoint]:
        """The best `limit` points and all that tie with the last of them, up to the tie depth."""
        depth = limit + 1
        while True:
            request = QueryRequest(
                limit=depth,
                query=query,
                filter=only,
                params=SearchParams(exact=True),
                with_payload=_SHOWN,
            )
            points = self._shard.query(request)
            tied = len(points) == depth and _score(points[-1]) == _score(points[limit - 1])
            if not tied or depth >= _TIE_DEPTH:
                return points
            depth *= 4

    def _checked(self, vectors: Vectors, shape: tuple[int, ...]) -> Vectors:
        """The engine itself takes NaN, which would poison every score."""
        if vectors.shape != shape:
            raise InvalidInputError(f"Vectors of shape {shape} are needed, not {vectors.shape}.")
        if not np.isfinite(vectors).all():
            raise InvalidInputError("A vector has a component that is not a finite number.")
        return vectors

    def _need_room(self) -> None:
        if shutil.disk_usage(self._path).free < _MIN_FREE_BYTES:
            message = f"The disk of the vector store at {self._path} has less than {_MIN_FREE_BYTES >> 20} MiB left."
            raise StoreUnavailableError(message, code="disk_full")

    def _is_flush_due(self, added: int) -> bool:
        with self._counting:
            self._unflushed += added
            if self._unflushed < _FLUSH_EVERY_POINTS:
                return False
            self._unflushed = 0
            return True

    def _claim_folder(self, owner: dict[str, str | int]) -> None:
        marker = self._path / "vectors.json"
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            if not marker.exists():
                _write_atomically(marker, orjson.dumps(owner))
            present = orjson.loads(marker.read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"There is no usable vector store at {self._path}: {error}") from error
        if present != owner:
            raise ConfigurationError(
                f"The vector store at {self._path} holds {present}, not {owner}. Use another folder for it."
            )

    def _open(self) -> EdgeShard:
        folder = self._path / "shard"
        self._need_room()
        with self._errors():
            if not folder.exists():
                self._create(folder)
            return EdgeShard.load(str(folder))

    def _create(self, folder: Path) -> None:
        """Make the whole folder beside its place, so that a crash leaves all of it or nothing."""
        draft = Path(mkdtemp(prefix=".shard-", dir=self._path))
        vectors = EdgeVectorParams(size=self._dimension, distance=Distance.Cosine)
        shard = EdgeShard.create(str(draft), EdgeConfig(vectors=vectors))
        for field in _INDEXED:
            shard.update(UpdateOperation.create_field_index(field, PayloadSchemaType.Keyword))
        shard.close()
        draft.rename(folder)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # the engine raises bare Exception for everything
            if type(error) is not Exception and not isinstance(error, OSError):
                raise
            raise self._translated(str(error)) from error

    def _translated(self, problem: str) -> StoreUnavailableError:
        if "WouldBlock" in problem:
            message = f"Another process has the vector store at {self._path} open. Only one may; stop it first."
            return StoreUnavailableError(message, code="store_locked")
        code = "disk_full" if "No space left" in problem or "os error 28" in problem else None
        return StoreUnavailableError(f"The vector store at {self._path} failed: {problem}", code=code)


def _point(chunk: IndexedChunk, vector: list[float]) -> Point:
    payload = {
        "id": chunk.id,
        "scope": _scope_key(Scope(chunk.tenant_id, chunk.kb_id)),
        "document": chunk.document_id,
        "revision": chunk.revision,
    }
    return Point(id=uuid.uuid5(_POINT_IDS, chunk.id), vector=vector, payload=payload)


def _scope_key(scope: Scope) -> str:
    """One key for both, since two conditions cost the engine four times the time of one; the length keeps it unique."""
    return f"{len(scope.tenant_id)}:{scope.tenant_id}:{scope.kb_id}"


def _filter(**values: str | int) -> Filter:
    return Filter(must=[FieldCondition(key=key, match=MatchValue(value)) for key, value in values.items()])


def _of_document(document_id: str, revision: int | None) -> Filter:
    if revision is None:
        return _filter(document=document_id)
    return _filter(document=document_id, revision=revision)


def _score(point: ScoredPoint) -> float:
    return round(point.score, _SCORE_DIGITS)


def _scored(point: ScoredPoint) -> ScoredChunk:
    payload = point.payload or {}
    return ScoredChunk(payload["id"], payload["document"], payload["revision"], _score(point))


def _write_atomically(path: Path, data: bytes) -> None:
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    draft.write_bytes(data)
    draft.replace(path)
