"""Hybrid retrieval in one knowledge base: both channels, one fusion, only live revisions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.analysis import analyse
from pipeline.errors import TransientError
from pipeline.inference.ports import Embedder
from pipeline.models import Degradation, Hit, Retrieved, Scope, ScoredChunk, TextQuery
from pipeline.retrieval.fuse import FusedChunk, fuse
from pipeline.retrieval.query import is_empty, is_strict, parse, prose, satisfies
from pipeline.stores.ports import TextStore, Vectors, VectorStore

#: The live revision of each of these documents that has one.
Live = Callable[[Collection[str]], Mapping[str, int]]
RankedLists = list[list[ScoredChunk]]

_MAX_ROUNDS = 3
_POOL_GROWTH = 4


def _every_language(_: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Channels:
    """What retrieval searches with. `embeds` says whether the embedder knows a query's language."""

    text: TextStore
    vectors: VectorStore
    embedder: Embedder
    embeds: Callable[[str], bool] = _every_language


def retrieve(
    query_texts: Sequence[str],
    scope: Scope,
    channels: Channels,
    live: Live,
    limit: int,
    pool: int = 100,
) -> Retrieved:
    """The best `limit` chunks for all queries together, from live revisions only.

    Each query gives one list a channel, `pool` deep. When too few hits are live, the pools are deepened (16 times
    at most). A channel that raises TransientError is left out and named in `degraded`; when both do, the
    text channel's error is raised.
    """
    search = _Search([_Query(text, parse(text)) for text in dict.fromkeys(query_texts)], scope, channels)
    alive: list[FusedChunk] = []
    for depth in (pool * _POOL_GROWTH**round_ for round_ in range(_MAX_ROUNDS)):
        text, vector = search.lists(depth)
        alive = _live_only(fuse(text, vector), live)
        if len(alive) >= limit or all(len(ranked) < depth for ranked in (*text, *vector)):
            break
    return Retrieved(scope.kb_id, tuple(_fetch(alive, channels.text, scope, limit)), search.degraded)


@dataclass(frozen=True, slots=True)
class _Query:
    text: str
    parsed: TextQuery


class _Search:
    """The two channels for some queries. A channel that failed once is not asked again."""

    def __init__(self, queries: Sequence[_Query], scope: Scope, channels: Channels) -> None:
        self._queries = [query for query in queries if not is_empty(query.parsed)]
        self._scope = scope
        self._channels = channels
        self._embedded: list[tuple[_Query, Vectors]] | None = None
        self._failures: dict[str, TransientError] = {}

    @property
    def degraded(self) -> tuple[Degradation, ...]:
        failed = [
            Degradation(part, error.code, error.message, self._scope.kb_id) for part, error in self._failures.items()
        ]
        return (*failed, *self._unknown_language())

    def lists(self, depth: int) -> tuple[RankedLists, RankedLists]:
        """A ranked list for each query from the text channel, and from the vector channel."""
        text = self._serve("text", self._text_lists, depth)
        vector = self._serve("vector", self._vector_lists, depth)
        if "text" in self._failures and ("vector" in self._failures or not vector):
            raise self._failures["text"]
        return text, vector

    def _serve(self, part: str, channel: Callable[[int], RankedLists], depth: int) -> RankedLists:
        if part in self._failures:
            return []
        try:
            return channel(depth)
        except TransientError as error:
            self._failures[part] = error
            return []

    def _text_lists(self, depth: int) -> RankedLists:
        return [self._channels.text.search(query.parsed, self._scope, depth) for query in self._queries]

    def _vector_lists(self, depth: int) -> RankedLists:
        if self._embedded is None:
            self._embedded = [(query, self._embed(query)) for query in self._queries if self._embeds(query)]
        return [self._vector_list(query, vector, depth) for query, vector in self._embedded]

    def _vector_list(self, query: _Query, vector: Vectors, depth: int) -> list[ScoredChunk]:
        ranked = self._channels.vectors.search(vector, self._scope, depth)
        return self._obeying(query.parsed, ranked) if is_strict(query.parsed) else ranked

    def _obeying(self, query: TextQuery, ranked: Sequence[ScoredChunk]) -> list[ScoredChunk]:
        """Signs bind the vector channel too, though a vector knows nothing of words."""
        hits = self._channels.text.get([chunk.chunk_id for chunk in ranked], self._scope)
        obeying = {hit.chunk_id for hit in hits if satisfies(query, _terms(hit))}
        return [chunk for chunk in ranked if chunk.chunk_id in obeying]

    def _embed(self, query: _Query) -> Vectors:
        return self._channels.embedder.embed_query(prose(query.text))

    def _embeds(self, query: _Query) -> bool:
        return self._channels.embeds(query.text)

    def _unknown_language(self) -> list[Degradation]:
        unknown = [query.text for query in self._queries if not self._embeds(query)]
        if not unknown:
            return []
        count = f"{len(unknown)} of {len(self._queries)} queries"
        reason = f"Searched by words only ({count}): the embedding model does not know their language."
        return [Degradation("vector", "language_not_embedded", reason, self._scope.kb_id)]


def _terms(hit: Hit) -> list[str]:
    return analyse("\n".join((*hit.section_path, hit.text)))


def _live_only(fused: Sequence[FusedChunk], live: Live) -> list[FusedChunk]:
    if not fused:
        return []
    revisions = live({chunk.document_id for chunk in fused})
    return [chunk for chunk in fused if revisions.get(chunk.document_id) == chunk.revision]


def _fetch(fused: Sequence[FusedChunk], store: TextStore, scope: Scope, limit: int) -> list[Hit]:
    """The first `limit` chunks that the text store knows; one that is only in the vector store has no text."""
    hits: list[Hit] = []
    for first in range(0, len(fused), max(limit, 1)):
        wanted = {chunk.chunk_id: chunk for chunk in fused[first : first + limit]}
        hits += [_scored(hit, wanted[hit.chunk_id]) for hit in store.get(list(wanted), scope)]
        if len(hits) >= limit:
            break
    return hits[:limit]


def _scored(hit: Hit, fused: FusedChunk) -> Hit:
    return replace(
        hit,
        score=fused.score,
        text_score=fused.text_score,
        text_rank=fused.text_rank,
        vector_score=fused.vector_score,
        vector_rank=fused.vector_rank,
    )
