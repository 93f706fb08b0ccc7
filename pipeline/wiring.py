"""The only module that chooses implementations: a URL's scheme picks the opener of its port.

Each resource is opened at its first use and all are closed together, so a process holds only what its steps need: the
gateway never opens the text or vector store, and only the store worker does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from pipeline.chat.extractive import ExtractiveGenerator
from pipeline.errors import ConfigurationError
from pipeline.inference.embedder import OnnxEmbedder, bundled_model_dir
from pipeline.inference.generator import OpenAiGenerator, parse_model
from pipeline.inference.ports import Embedder, Generator, StructuredModel
from pipeline.ingest.limits import ParserLimits
from pipeline.ingest.sandbox import ParserChild
from pipeline.jobs import Policy, StepKind
from pipeline.models import ThreadParams
from pipeline.retrieval.scripts import mostly_latin
from pipeline.settings import Settings
from pipeline.stores.blob import ObstoreBlobStore
from pipeline.stores.catalog_sql import SqlApiKeys, SqlDocuments, SqlKnowledgeBases
from pipeline.stores.conversations_sql import SqlConversations
from pipeline.stores.database import Database
from pipeline.stores.ledger_sql import SqlLedger
from pipeline.stores.ports import StreamStore, TextStore, VectorStore
from pipeline.stores.relay_sql import SqlRelay
from pipeline.stores.stream_redis import RedisStreamStore
from pipeline.stores.text_tantivy import TantivyTextStore
from pipeline.stores.vector_edge import EdgeVectorStore
from pipeline.stores.watch_sql import SqlWatch

T = TypeVar("T")

EXTRACTIVE = "extractive"
_BUNDLED_EMBEDDER = "bge-small-en-v1.5"


class OpenResources:
    """Everything a process may use, under the names of `resources.Resources`."""

    def __init__(self, settings: Settings, policies: Mapping[StepKind, Policy]) -> None:
        self.settings = settings
        self.database = Database(settings.catalog_url)
        self.knowledge_bases = SqlKnowledgeBases(self.database)
        self.documents = SqlDocuments(self.database)
        self.conversations = SqlConversations(self.database)
        self.api_keys = SqlApiKeys(self.database)
        self.ledger = self.outputs = SqlLedger(self.database, policies)
        self.relay = SqlRelay(self.database, policies)
        self.watch = SqlWatch(self.database, policies)
        self._opened: dict[str, Any] = {}
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def blobs(self) -> ObstoreBlobStore:
        return self._open("blobs", lambda: ObstoreBlobStore(self.settings.blob_store_url))

    @property
    def text_store(self) -> TextStore:
        return self._open("text_store", lambda: _by_scheme(_TEXT_STORES, "TEXT_STORE_URL", self))

    @property
    def vector_store(self) -> VectorStore:
        return self._open("vector_store", lambda: _by_scheme(_VECTOR_STORES, "VECTOR_STORE_URL", self))

    @property
    def embedder(self) -> Embedder:
        return self._open("embedder", lambda: _by_scheme(_EMBEDDERS, "EMBEDDER_URL", self))

    @property
    def streams(self) -> StreamStore:
        return self._open("streams", self._open_streams)

    @property
    def parser(self) -> ParserChild:
        return self._open("parser", lambda: ParserChild(_parser_limits(self.settings)))

    def embeds(self, text: str) -> bool:
        """The bundled model was trained on English; of other Latin scripts it makes something, of others nothing."""
        return mostly_latin(text)

    def generator(self, params: ThreadParams) -> Generator:
        """The generator of `params.model`, else of the settings. Raises ConfigurationError for an unknown model."""
        model = params.model or self.settings.model
        if model == EXTRACTIVE:
            return self._open("extractive", lambda: ExtractiveGenerator(self.embedder))
        return self._open(f"model {model}", lambda: _open_model(model, self.settings))

    def check_model(self, name: str) -> None:
        """Raises ConfigurationError when no generator of that name can be opened; opens nothing.

        Only models of the configured provider are allowed: the key must never go to an address that a caller chose.
        """
        model, own = name or self.settings.model, self.settings.model
        if model in (EXTRACTIVE, own):
            return
        if own == EXTRACTIVE:
            raise ConfigurationError(f"No model server is set (SOURCEMILL_MODEL), so {model!r} can't be used.")
        base_url = self.settings.model_base_url
        if parse_model(model, base_url).base_url != parse_model(own, base_url).base_url:
            raise ConfigurationError(f"{model!r} is of another provider than SOURCEMILL_MODEL, which is {own!r}.")

    def structured_model(self, params: ThreadParams) -> StructuredModel | None:
        model = params.auto_query_model or params.model or self.settings.model
        if model == EXTRACTIVE:
            return None
        return self._open(f"model {model}", lambda: _open_model(model, self.settings))

    def warm(self, queues: Collection[str]) -> None:
        """Open what steps of these queues need before the first of them comes."""
        for queue in queues:
            for name in _NEEDS.get(queue, ()):
                getattr(self, name)
        if "answer" in queues:
            self.generator(ThreadParams()).warm()

    def close(self) -> None:
        with self._lock:
            for resource in reversed(self._opened.values()):
                if hasattr(resource, "close"):
                    resource.close()
            self._opened.clear()
        self.database.close()

    def _open(self, name: str, opener: Callable[[], T]) -> T:
        with self._lock:
            if name not in self._opened:
                self._opened[name] = opener()
            opened: T = self._opened[name]
            return opened

    def _open_streams(self) -> StreamStore:
        url = self.settings.stream_url.get_secret_value()
        if not url:
            raise ConfigurationError("SOURCEMILL_STREAM_URL is not set. `sourcemill up` starts a server and sets it.")
        return RedisStreamStore(url, ttl_s=self.settings.stream_ttl_s)


_NEEDS = {
    "extract": ("blobs",),
    "embed": ("blobs", "embedder"),
    "index": ("blobs", "text_store", "vector_store"),
    "retrieve": ("text_store", "vector_store", "embedder"),
    "answer": ("blobs", "streams", "embedder"),
}


def open_resources(settings: Settings, policies: Mapping[StepKind, Policy]) -> OpenResources:
    """Everything is opened at first use, so this fails only when the catalog's URL is no URL."""
    return OpenResources(settings, policies)


def _by_scheme(openers: Mapping[str, Callable[[OpenResources], T]], setting: str, resources: OpenResources) -> T:
    url: str = getattr(resources.settings, setting.lower())
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in openers:
        known = ", ".join(f"{name}://" for name in openers)
        raise ConfigurationError(f"SOURCEMILL_{setting} is {url!r}; it must begin with one of: {known}")
    return openers[scheme](resources)


def _open_tantivy(resources: OpenResources) -> TextStore:
    return TantivyTextStore(_folder(resources.settings, resources.settings.text_store_url, "text"))


def _open_edge(resources: OpenResources) -> VectorStore:
    folder = _folder(resources.settings, resources.settings.vector_store_url, "vectors")
    return EdgeVectorStore(folder, resources.embedder.name, resources.embedder.dimension)


def _folder(settings: Settings, url: str, default: str) -> Path:
    """`scheme:///some/folder`, or a folder of that name under the data folder."""
    path = url.partition("://")[2]
    return Path(path) if path else settings.data_dir / default


def _open_onnx(resources: OpenResources) -> Embedder:
    name = resources.settings.embedder_url.partition("://")[2]
    if name != _BUNDLED_EMBEDDER:
        raise ConfigurationError(f"SOURCEMILL_EMBEDDER_URL names {name!r}; the bundled model is {_BUNDLED_EMBEDDER}.")
    return OnnxEmbedder(bundled_model_dir(), threads=1)


def _open_model(model: str, settings: Settings) -> OpenAiGenerator:
    return OpenAiGenerator(
        model,
        base_url=settings.model_base_url,
        api_key=settings.model_api_key.get_secret_value(),
        timeout_s=settings.model_timeout_s,
    )


def _parser_limits(settings: Settings) -> ParserLimits:
    return ParserLimits(
        max_bytes=settings.max_file_bytes,
        max_pages=settings.max_pages,
        memory_bytes=settings.parser_memory_bytes,
        wall_s=settings.parser_timeout_s,
    )


_TEXT_STORES: dict[str, Callable[[OpenResources], TextStore]] = {"tantivy": _open_tantivy}
_VECTOR_STORES: dict[str, Callable[[OpenResources], VectorStore]] = {"edge": _open_edge}
_EMBEDDERS: dict[str, Callable[[OpenResources], Embedder]] = {"onnx": _open_onnx}
