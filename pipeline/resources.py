"""What a step may use. `wiring.open_resources` chooses the implementations; steps know only these ports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from pipeline.inference.ports import Embedder, Generator, StructuredModel
from pipeline.jobs import Ended, StepKind
from pipeline.models import Box, ExtractedShard, MediaType, Probe, ThreadParams
from pipeline.settings import Settings
from pipeline.stores.ports import (
    BlobStore,
    Conversations,
    Documents,
    KnowledgeBases,
    StreamStore,
    TextStore,
    VectorStore,
)


class Parser(Protocol):
    """Reads files, in a process of its own (ingest/sandbox.py). Raises DocumentError and ParserCrashError."""

    def probe(self, path: Path, name: str) -> Probe: ...

    def extract(self, path: Path, media_type: MediaType, first: int, last: int) -> ExtractedShard: ...

    def locate(self, path: Path, page_number: int, start: int, end: int) -> tuple[Box, ...]: ...


class Outputs(Protocol):
    """The part of the ledger that a step may read: what other steps of its subject wrote."""

    def ended(self, subject: str, kind: StepKind) -> Sequence[Ended]: ...


class Resources(Protocol):
    @property
    def settings(self) -> Settings: ...
    @property
    def knowledge_bases(self) -> KnowledgeBases: ...
    @property
    def documents(self) -> Documents: ...
    @property
    def conversations(self) -> Conversations: ...
    @property
    def outputs(self) -> Outputs: ...
    @property
    def blobs(self) -> BlobStore: ...
    @property
    def text_store(self) -> TextStore: ...
    @property
    def vector_store(self) -> VectorStore: ...
    @property
    def streams(self) -> StreamStore: ...
    @property
    def parser(self) -> Parser: ...
    @property
    def embedder(self) -> Embedder: ...

    def embeds(self, text: str) -> bool:
        """Whether the embedder knows the language of a query."""

    def generator(self, params: ThreadParams) -> Generator: ...

    def structured_model(self, params: ThreadParams) -> StructuredModel | None: ...
