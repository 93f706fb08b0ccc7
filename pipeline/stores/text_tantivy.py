"""TextStore in process on tantivy: one writer, BM25 over terms that were analysed beforehand.

User text never meets a query parser: every query is built from terms. Only one process may open an
index folder, since tantivy holds an operating system lock on it; the lock dies with its process.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

import orjson
from tantivy import Document, Index, IndexWriter, Occur, Query, Schema, SchemaBuilder, Searcher

from pipeline.errors import ConfigurationError, StoreUnavailableError
from pipeline.models import Hit, IndexedChunk, Scope, ScoredChunk, TextQuery

Operation = Callable[[IndexWriter], None]

_WRITER_HEAP_BYTES = 64 << 20
_WRITER_THREADS = 1
_LOW_DISK_BYTES = 16 << 20
#: How deep a search looks to order chunks of equal score by id. Beyond it, ties fall as the index has them.
_TIE_DEPTH = 10_000
#: Scores are 32-bit sums whose last digits depend on the segment; rounded, equal chunks score equally.
_SCORE_DIGITS = 4


class TantivyTextStore:
    """Writes of several threads share one commit (about 15 ms), and `put` returns once it is searchable.

    Raises ConfigurationError when `path` holds something else, and StoreUnavailableError when another
    process has it open or the disk refuses.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._schema = _schema()
        self._index = self._open_index()
        self._writer: IndexWriter | None = self._open_writer()
        self._index.reload()  # what another process wrote before we got the lock
        self._commits = _GroupCommit(self._commit)
        self._closed = False

    def put(self, chunks: Sequence[IndexedChunk]) -> None:
        documents = [(chunk.id, _document(chunk)) for chunk in chunks]

        def write(writer: IndexWriter) -> None:
            for chunk_id, document in documents:
                writer.delete_documents_by_term("id", chunk_id)
                writer.add_document(document)

        if documents:
            self._commits.submit(write)

    def search(self, query: TextQuery, scope: Scope, limit: int) -> list[ScoredChunk]:
        matches = _matches(self._schema, query)
        if matches is None or limit <= 0:
            return []
        with self._errors():
            searcher = self._index.searcher()
            hits = _top(searcher, self._scoped(scope, matches), limit)
            found = [_scored(searcher.doc(address), score) for score, address in hits]
        return sorted(found, key=lambda chunk: (-chunk.score, chunk.chunk_id))[:limit]

    def get(self, chunk_ids: Sequence[str], scope: Scope) -> list[Hit]:
        if not chunk_ids:
            return []
        asked = Query.term_set_query(self._schema, "id", list(dict.fromkeys(chunk_ids)))
        with self._errors():
            searcher = self._index.searcher()
            result = searcher.search(self._scoped(scope, asked), len(chunk_ids), count=False)
            hits = [_hit(searcher.doc(address)) for _, address in result.hits]
        known = {hit.chunk_id: hit for hit in hits}
        return [known[chunk_id] for chunk_id in chunk_ids if chunk_id in known]

    def delete_document(self, document_id: str, revision: int | None = None) -> None:
        doomed = self._of_document(document_id, revision)

        def delete(writer: IndexWriter) -> None:
            writer.delete_documents_by_query(doomed)

        self._commits.submit(delete)

    def count(self, document_id: str, revision: int | None = None) -> int:
        with self._errors():
            found = self._index.searcher().search(self._of_document(document_id, revision), 1, count=True)
            return int(found.count)  # type: ignore[attr-defined]

    def close(self) -> None:
        """Finish what is being written and release the folder. Later writes raise StoreUnavailableError."""
        if not self._closed:
            self._commits.submit(self._finish)

    def _finish(self, _: IndexWriter) -> None:
        self._closed = True

    def _commit(self, operations: Sequence[Operation]) -> None:
        """Apply the operations in one commit; after a failure the next call starts with a fresh writer."""
        if self._closed:
            raise StoreUnavailableError(f"The text index at {self._path} is closed.")
        writer = self._writer or self._open_writer()
        self._writer = None
        try:
            with self._errors():
                for operate in operations:
                    operate(writer)
                writer.commit()
                self._index.reload()
            if not self._closed:
                self._writer = writer
        finally:
            if self._writer is None:
                _release(writer)

    def _open_index(self) -> Index:
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            index = Index(self._schema, path=str(self._path), reuse=True)
            index.config_reader(reload_policy="manual")
        except (ValueError, OSError) as error:
            raise ConfigurationError(f"There is no usable text index at {self._path}: {error}") from error
        return index

    def _open_writer(self) -> IndexWriter:
        try:
            return self._index.writer(_WRITER_HEAP_BYTES, _WRITER_THREADS)
        except ValueError as error:
            code = "store_locked" if "LockBusy" in str(error) else None
            problem = "another process has it open, and only one may" if code else str(error)
            raise StoreUnavailableError(f"The text index at {self._path}: {problem}.", code=code) from error

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, OSError) as error:  # tantivy reports everything as ValueError
            # A writer thread that met a full disk only says that it died.
            code = "disk_full" if shutil.disk_usage(self._path).free < _LOW_DISK_BYTES else None
            raise StoreUnavailableError(f"The text index at {self._path} failed: {error}", code=code) from error

    def _scoped(self, scope: Scope, matches: Query) -> Query:
        return _all_of(self._filter("tenant", scope.tenant_id), self._filter("kb", scope.kb_id), (Occur.Must, matches))

    def _of_document(self, document_id: str, revision: int | None) -> Query:
        clauses = [self._filter("document", document_id)]
        if revision is not None:
            clauses.append(self._filter("revision", revision))
        return _all_of(*clauses)

    def _filter(self, field: str, value: Any) -> tuple[Occur, Query]:
        """A clause that must match and adds nothing to the score."""
        return Occur.Must, Query.const_score_query(Query.term_query(self._schema, field, value), 0.0)


class _Batch:
    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.done = False
        self.error: StoreUnavailableError | None = None


class _GroupCommit:
    """While one batch is written, the next fills; its first thread to get the lock writes it for all."""

    def __init__(self, commit: Callable[[Sequence[Operation]], None]) -> None:
        self._commit = commit
        self._open = _Batch()
        self._joining = Lock()
        self._writing = Lock()

    def submit(self, operation: Operation) -> None:
        """Return when the commit that holds `operation` is done; its error goes to each of its threads."""
        with self._joining:
            batch = self._open
            batch.operations.append(operation)
        with self._writing:
            if not batch.done:
                self._write(batch)
        if batch.error is not None:
            raise StoreUnavailableError(batch.error.message, code=batch.error.code) from batch.error

    def _write(self, batch: _Batch) -> None:
        with self._joining:
            if self._open is batch:
                self._open = _Batch()
        try:
            self._commit(batch.operations)
        except StoreUnavailableError as error:
            batch.error = error
        batch.done = True


def _schema() -> Schema:
    builder = SchemaBuilder()
    for name, stored in (("id", True), ("tenant", False), ("kb", False), ("document", True)):
        builder.add_text_field(name, stored=stored, tokenizer_name="raw", index_option="basic")
    builder.add_unsigned_field("revision", stored=True, indexed=True)
    builder.add_text_field("terms", tokenizer_name="whitespace", index_option="position")
    builder.add_bytes_field("facts", stored=True)
    return builder.build()


def _document(chunk: IndexedChunk) -> Document:
    document = Document()
    document.add_text("id", chunk.id)
    document.add_text("tenant", chunk.tenant_id)
    document.add_text("kb", chunk.kb_id)
    document.add_text("document", chunk.document_id)
    document.add_unsigned("revision", chunk.revision)
    document.add_text("terms", chunk.terms)
    document.add_bytes("facts", orjson.dumps(_facts(chunk)))
    return document


def _facts(chunk: IndexedChunk) -> dict[str, Any]:
    """What a hit shows besides its identity. Text that is no valid Unicode is stored with `?` in those places."""
    return {
        "kb_id": chunk.kb_id,
        "ordinal": chunk.ordinal,
        "start": chunk.start,
        "end": chunk.end,
        "page_start": chunk.page_start,
        "page_end": chunk.page_end,
        "section_path": [_encodable(title) for title in chunk.section_path],
        "text": _encodable(chunk.text),
    }


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _hit(document: Document) -> Hit:
    facts = orjson.loads(document.get_first("facts") or b"{}")
    facts["section_path"] = tuple(facts["section_path"])
    return Hit(**_identity(document), **facts, score=0.0)


def _scored(document: Document, score: float) -> ScoredChunk:
    return ScoredChunk(**_identity(document), score=_rounded(score))


def _rounded(score: float) -> float:
    return round(score, _SCORE_DIGITS)


def _identity(document: Document) -> dict[str, Any]:
    fields = {"chunk_id": "id", "document_id": "document", "revision": "revision"}
    return {name: document.get_first(field) for name, field in fields.items()}


def _release(writer: IndexWriter) -> None:
    """Give up the folder's lock now, whoever still refers to the writer; what is not committed is dropped."""
    with suppress(ValueError):  # a writer whose threads died says so here, and is released all the same
        writer.wait_merging_threads()


def _top(searcher: Searcher, query: Query, limit: int) -> list[tuple[float, Any]]:
    """The best `limit` hits and all that tie with the last of them, up to the tie depth."""
    depth = limit + 1
    while True:
        hits = searcher.search(query, depth, count=False).hits
        tied = len(hits) == depth and round(hits[-1][0], _SCORE_DIGITS) == round(hits[limit - 1][0], _SCORE_DIGITS)
        if not tied or depth >= _TIE_DEPTH:
            return hits
        depth *= 4


def _matches(schema: Schema, query: TextQuery) -> Query | None:
    """The scoring part of a query, None when nothing can match (see TextQuery)."""
    needed = _parts(schema, Occur.Must, query.required, query.required_phrases)
    wanted = _parts(schema, Occur.Should, query.any, query.phrases)
    unwanted = _parts(schema, Occur.MustNot, query.excluded, query.excluded_phrases)
    if not needed and wanted:
        needed, wanted = [(Occur.Must, _all_of(*wanted))], []
    return _all_of(*needed, *wanted, *unwanted) if needed else None


def _parts(
    schema: Schema, occur: Occur, terms: Sequence[str], phrases: Sequence[Sequence[str]]
) -> list[tuple[Occur, Query]]:
    every = (*((term,) for term in terms), *phrases)
    return [(occur, _phrase(schema, phrase)) for phrase in every if phrase]


def _phrase(schema: Schema, terms: Sequence[str]) -> Query:
    if len(terms) == 1:
        return Query.term_query(schema, "terms", terms[0])
    return Query.phrase_query(schema, "terms", list(terms))


def _all_of(*clauses: tuple[Occur, Query]) -> Query:
    return Query.boolean_query(clauses)
