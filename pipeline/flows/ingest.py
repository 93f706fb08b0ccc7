"""Ingestion, in reading order: plan, extract, assemble, index_text, embed, index_vectors, activate, remove."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.analysis import analyse_document
from pipeline.errors import ParserCrashError, TransientError
from pipeline.ingest.assemble import Assembled
from pipeline.ingest.assemble import assemble as assemble_document
from pipeline.ingest.chunk import chunk_id
from pipeline.ingest.header import header
from pipeline.jobs import Ended, Step, StepKind
from pipeline.models import Chunk, ExtractedShard, IndexedChunk, Revision, dump, load
from pipeline.resources import Resources

#: Pages of one extract step, and chunks of one index or embed step.
SHARD_PAGES = 16
BATCH_CHUNKS = 64

Output = dict[str, Any]
#: Called between pages or batches; raises CancelledStepError when the step is not ours any more.
Check = Callable[[], None]


def plan(resources: Resources, step: Step, _check: Check) -> Output:
    """Detect the type, count the pages, refuse what can't be read or is over the limits, cut into shards."""
    revision = resources.documents.revision(*step.document)
    with resources.blobs.local_path(revision.area, revision.content_blob) as path:
        probe = resources.parser.probe(path, revision.key)
    last = probe.page_count
    shards = [(first, min(first + SHARD_PAGES - 1, last)) for first in range(1, last + 1, SHARD_PAGES)]
    title = revision.title or probe.title
    return {"media_type": probe.media_type, "page_count": last, "title": title, "shards": shards}


def extract(resources: Resources, step: Step, _check: Check) -> Output:
    """Read the shard's pages. Pages on which the parser dies are halved until the bad one is alone and given up."""
    revision = resources.documents.revision(*step.document)
    first, last = step.input["first"], step.input["last"]
    try:
        shard = _read_pages(resources, revision, first, last)
    except ParserCrashError as error:
        if first < last:
            middle = (first + last) // 2
            return {"split": [[first, middle], [middle + 1, last]]}
        shard = ExtractedShard((), {first: error.message})
    return {"shard": resources.blobs.put(revision.area, dump(shard))}


def _read_pages(resources: Resources, revision: Revision, first: int, last: int) -> ExtractedShard:
    if revision.media_type is None:
        raise AssertionError(f"revision {revision.document_id}:{revision.number} was not planned")
    with resources.blobs.local_path(revision.area, revision.content_blob) as path:
        return resources.parser.extract(path, revision.media_type, first, last)


def assemble(resources: Resources, step: Step, _check: Check) -> Output:
    """Join the pages into the document text, find sections and chunks, and analyse the chunks for the text store.

    The analysis is done here, in a process of its own, so that the store's process only feeds its engines.
    """
    revision = resources.documents.revision(*step.document)
    assembled = assemble_document(_shards(resources, step, revision), revision.title, revision.key)
    if not assembled.chunks and assembled.missing:
        raise ParserCrashError(_lost(assembled.missing), code="pages_unreadable")
    put, area = resources.blobs.put, revision.area
    indexed = [_indexed(revision, assembled, chunk) for chunk in assembled.chunks]
    batches = [indexed[n : n + BATCH_CHUNKS] for n in range(0, len(indexed), BATCH_CHUNKS)]
    return {
        "title": assembled.outline.title,
        "text_blob": put(area, assembled.text.encode()),
        "outline_blob": put(area, dump(assembled.outline)),
        "chunk_count": len(indexed),
        "char_count": len(assembled.text),
        "missing_pages": {str(page): reason for page, reason in assembled.missing.items()},
        "batches": [(put(area, dump(batch)), len(batch)) for batch in batches],
    }


def _lost(missing: Mapping[int, str]) -> str:
    page, reason = next(iter(missing.items()))
    return f"None of its pages could be read; page {page}: {reason}"


def _shards(resources: Resources, step: Step, revision: Revision) -> list[ExtractedShard]:
    """In page order. After a retry a range may be there whole and in halves; the whole one counts."""
    ended = resources.outputs.ended(step.subject, StepKind.EXTRACT)
    read = [each for each in ended if "split" not in each.output]
    shards, covered = [], 0
    for each in sorted(read, key=lambda each: (each.input["first"], -each.input["last"])):
        if each.input["first"] > covered:
            shards.append(_shard(resources, revision, each))
            covered = each.input["last"]
    return shards


def _shard(resources: Resources, revision: Revision, ended: Ended) -> ExtractedShard:
    if "lost" in ended.output:
        return ExtractedShard((), {ended.input["first"]: ended.output["lost"]})
    return load(ExtractedShard, resources.blobs.get(revision.area, ended.output["shard"]))


def _indexed(revision: Revision, assembled: Assembled, chunk: Chunk) -> IndexedChunk:
    path = assembled.outline.sections[chunk.section].path
    context = header(assembled.outline.title, path)
    return IndexedChunk(
        id=chunk_id(revision.document_id, revision.number, chunk),
        tenant_id=revision.tenant_id,
        kb_id=revision.kb_id,
        document_id=revision.document_id,
        revision=revision.number,
        ordinal=chunk.ordinal,
        start=chunk.start,
        end=chunk.end,
        page_start=chunk.page_start,
        page_end=chunk.page_end,
        section_path=path,
        header=context,
        text=chunk.text,
        terms=analyse_document(f"{context}\n{chunk.text}"),
    )


def index_text(resources: Resources, steps: Sequence[Step], check: Check) -> list[Output]:
    """Put the batches into the text store, which finds them once this returns."""
    batches = [_batch(resources, step) for step in steps]
    check()
    resources.text_store.put([chunk for batch in batches for chunk in batch])
    return [{"chunks": len(batch)} for batch in batches]


def embed(resources: Resources, steps: Sequence[Step], check: Check) -> list[Output]:
    """Turn each chunk, under its header, into a vector; little-endian float32 rows in the order of the batch."""
    batches = [_batch(resources, step) for step in steps]
    texts = [f"{chunk.header}\n\n{chunk.text}" for batch in batches for chunk in batch]
    vectors = np.concatenate([_embed_some(resources, texts[n : n + BATCH_CHUNKS], check) for n in _starts(texts)])
    outputs, row = [], 0
    for step, batch in zip(steps, batches, strict=True):
        rows = np.ascontiguousarray(vectors[row : row + len(batch)], dtype="<f4")
        area = resources.documents.revision(*step.document).area
        outputs.append({"vectors": resources.blobs.put(area, rows.tobytes()), "chunks": len(batch)})
        row += len(batch)
    return outputs


def _starts(texts: Sequence[str]) -> range:
    return range(0, len(texts), BATCH_CHUNKS)


def _embed_some(resources: Resources, texts: Sequence[str], check: Check) -> Any:
    check()
    return resources.embedder.embed_documents(texts)


def index_vectors(resources: Resources, steps: Sequence[Step], check: Check) -> list[Output]:
    """Put the batches' vectors into the vector store, which finds them once this returns."""
    batches = [_batch(resources, step) for step in steps]
    vectors = [_vectors(resources, step) for step in steps]
    check()
    resources.vector_store.put([chunk for batch in batches for chunk in batch], np.concatenate(vectors))
    return [{"chunks": len(batch)} for batch in batches]


def _batch(resources: Resources, step: Step) -> list[IndexedChunk]:
    area = resources.documents.revision(*step.document).area
    return list(load(tuple[IndexedChunk, ...], resources.blobs.get(area, step.input["batch"])))


def _vectors(resources: Resources, step: Step) -> Any:
    area = resources.documents.revision(*step.document).area
    rows = np.frombuffer(resources.blobs.get(area, step.input["vectors"]), dtype="<f4")
    return rows.reshape(-1, resources.embedder.dimension)


def activate(_resources: Resources, _step: Step, _check: Check) -> Output:
    """Everything is in both indexes; the commit of this step lets the revision answer and retires older ones."""
    return {}


def remove(resources: Resources, step: Step, _check: Check) -> Output:
    """Clean a revision that does not answer any more out of the stores; the output is the receipt.

    Raises TransientError when something was written while it was cleaned, so that it is cleaned again.
    """
    document_id, number = step.document
    revision = resources.documents.revision(document_id, number)
    resources.text_store.delete_document(document_id, number)
    resources.vector_store.delete_document(document_id, number)
    resources.blobs.delete(revision.area)
    left = {
        "text_chunks": resources.text_store.count(document_id, number),
        "vectors": resources.vector_store.count(document_id, number),
        "blobs": len(resources.blobs.list(revision.area)),
    }
    if any(left.values()):
        raise TransientError(f"Someone still writes to the revision: {left}", code="still_written")
    return left
