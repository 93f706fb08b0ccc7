"""Records for the store contracts."""

from __future__ import annotations

from pipeline.analysis import analyse_document
from pipeline.models import IndexedChunk, Scope

SCOPE = Scope("tenant-a", "kb-a")


def chunk(
    chunk_id: str,
    text: str = "some text",
    *,
    scope: Scope = SCOPE,
    document_id: str = "doc-1",
    revision: int = 1,
    ordinal: int = 0,
) -> IndexedChunk:
    return IndexedChunk(
        id=chunk_id,
        tenant_id=scope.tenant_id,
        kb_id=scope.kb_id,
        document_id=document_id,
        revision=revision,
        ordinal=ordinal,
        start=ordinal * 1000,
        end=ordinal * 1000 + len(text),
        page_start=1,
        page_end=2,
        section_path=("Part", "Chapter"),
        header="",
        text=text,
        terms=analyse_document(text),
    )
