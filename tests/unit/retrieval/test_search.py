from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.analysis import analyse, analyse_document
from pipeline.errors import StoreUnavailableError, TransientError
from pipeline.inference.ports import Vectors
from pipeline.models import IndexedChunk, Scope, ScoredChunk, TextQuery
from pipeline.retrieval.scripts import mostly_latin
from pipeline.retrieval.search import Channels, retrieve
from pipeline.stores.text_tantivy import TantivyTextStore
from pipeline.stores.vector_edge import EdgeVectorStore

SCOPE = Scope("tenant", "kb")
TOPICS = ("fruit", "money", "other")
WORDS = {"appl": "fruit", "pear": "fruit", "plum": "fruit", "revenu": "money", "incom": "money", "profit": "money"}


class TopicEmbedder:
    """A text's vector says how much it is about each topic, so that meaning and words can differ in a test."""

    name = "topics"
    dimension = len(TOPICS)

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        return np.stack([self.embed_query(text) for text in texts])

    def embed_query(self, text: str) -> Vectors:
        vector = np.full(self.dimension, 0.01, dtype=np.float32)
        for term in analyse(text):
            vector[TOPICS.index(WORDS.get(term, "other"))] += 1
        normed: Vectors = vector / np.linalg.norm(vector)
        return normed


class BrokenTextStore(TantivyTextStore):
    def search(self, query: TextQuery, scope: Scope, limit: int) -> list[ScoredChunk]:  # noqa: ARG002 - a port's
        raise StoreUnavailableError("The text index is away.")


class Stack:
    def __init__(self, folder: Path) -> None:
        self.channels = Channels(
            TantivyTextStore(folder / "text"),
            EdgeVectorStore(folder / "vectors", "topics", len(TOPICS)),
            TopicEmbedder(),
        )
        self.live: dict[str, int] = {}
        self.asked: list[set[str]] = []

    def put(self, chunk_id: str, text: str, document_id: str = "", revision: int = 1) -> None:
        self.put_dead({chunk_id: text}, document_id, revision)
        self.live[document_id or f"doc-{chunk_id}"] = revision

    def put_dead(self, texts: Mapping[str, str], document_id: str = "", revision: int = 1) -> None:
        chunks = [
            IndexedChunk(
                id=chunk_id,
                tenant_id=SCOPE.tenant_id,
                kb_id=SCOPE.kb_id,
                document_id=document_id or f"doc-{chunk_id}",
                revision=revision,
                ordinal=0,
                start=0,
                end=len(text),
                page_start=1,
                page_end=1,
                section_path=(),
                header="",
                text=text,
                terms=analyse_document(text),
            )
            for chunk_id, text in texts.items()
        ]
        self.channels.text.put(chunks)
        self.channels.vectors.put(chunks, self.channels.embedder.embed_documents(list(texts.values())))

    def revisions(self, document_ids: Collection[str]) -> Mapping[str, int]:
        self.asked.append(set(document_ids))
        return {each: self.live[each] for each in document_ids if each in self.live}

    def found(self, *queries: str, limit: int = 10, pool: int = 100) -> list[str]:
        result = retrieve(queries, SCOPE, self.channels, self.revisions, limit, pool)
        return [hit.chunk_id for hit in result.hits]


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    opened = Stack(tmp_path)
    yield opened
    opened.channels.text.close()
    opened.channels.vectors.close()


def test_both_channels_find_and_their_agreement_wins(stack: Stack) -> None:
    stack.put("both", "apple")
    stack.put("meaning", "pear plum")
    stack.put("neither", "money revenue")
    result = retrieve(["apple"], SCOPE, stack.channels, stack.revisions, limit=2)
    assert result.kb_id == "kb"
    assert result.degraded == ()
    first, second = result.hits
    assert (first.chunk_id, first.text_rank, first.vector_rank) == ("both", 1, 1)
    assert first.score == pytest.approx(2 / 61)
    assert first.text == "apple"
    assert (second.chunk_id, second.text_rank, second.vector_rank) == ("meaning", None, 2)
    assert second.vector_score == pytest.approx(1.0, abs=0.01)


def test_several_queries_add_up(stack: Stack) -> None:
    stack.put("fruit", "apple pear")
    stack.put("money", "revenue income")
    stack.put("mixed", "apple revenue")
    assert stack.found("apple", "revenue", limit=1) == ["mixed"]
    assert stack.found("apple", "apple") == stack.found("apple")


def test_only_live_revisions_are_found(stack: Stack) -> None:
    stack.put("old", "apple", "doc", revision=1)
    stack.put("new", "apple", "doc", revision=2)
    stack.put_dead({"gone": "apple"})
    assert stack.found("apple") == ["new"]
    stack.live["doc"] = 1
    assert stack.found("apple") == ["old"]


def test_dead_hits_do_not_use_up_the_limit(stack: Stack) -> None:
    stack.put_dead({f"dead-{number:02}": "apple apple" for number in range(30)})
    stack.put("z-1", "apple and much more than revenue")
    stack.put("z-2", "apple and much more than income")
    assert stack.found("apple", limit=2, pool=10) == ["z-1", "z-2"]
    assert len(stack.asked) == 2, "one deepening is enough"


def test_deepening_is_bounded(stack: Stack) -> None:
    stack.put_dead({f"dead-{number:02}": "apple apple" for number in range(40)})
    stack.put("z", "apple and much more than revenue")
    assert stack.found("apple", limit=1, pool=2) == []
    assert len(stack.asked) == 3


def test_the_limit_cuts(stack: Stack) -> None:
    for number in range(5):
        stack.put(f"c{number}", "apple")
    assert stack.found("apple", limit=3) == ["c0", "c1", "c2"]
    assert stack.found("apple", limit=0) == []


def test_a_vector_without_its_text_is_passed_over(stack: Stack) -> None:
    for chunk_id in ("a", "b", "c"):
        stack.put(chunk_id, "apple")
    stack.channels.text.delete_document("doc-a")
    assert stack.found("apple", limit=2) == ["b", "c"]


@pytest.mark.parametrize("query", ["", "  ", "?!", "-apple"])
def test_a_query_that_asks_for_nothing_finds_nothing(stack: Stack, query: str) -> None:
    stack.put("c", "apple")
    assert stack.found(query) == []
    assert stack.found() == []


def test_signs_bind_the_vector_channel_too(stack: Stack) -> None:
    stack.put("apple", "apple")
    stack.put("pear", "pear")
    stack.put("pear plum", "pear plum")
    assert stack.found("pear -plum") == ["pear", "apple"]
    assert stack.found("+plum pear") == ["pear plum"]
    assert stack.found('"pear plum"') == ["pear plum"]


def test_a_vector_store_that_is_down_is_named_and_text_serves(stack: Stack) -> None:
    stack.put("c", "apple")
    stack.channels.vectors.close()
    result = retrieve(["apple"], SCOPE, stack.channels, stack.revisions, limit=5)
    assert [hit.chunk_id for hit in result.hits] == ["c"]
    (degraded,) = result.degraded
    assert (degraded.part, degraded.code, degraded.kb_id) == ("vector", "store_unavailable", "kb")
    assert degraded.reason


def test_a_text_channel_that_is_down_is_named_and_vectors_serve(stack: Stack, tmp_path: Path) -> None:
    stack.put("c", "apple")
    stack.channels.text.close()
    broken = BrokenTextStore(tmp_path / "text")
    channels = replace(stack.channels, text=broken)
    result = retrieve(["pear"], SCOPE, channels, stack.revisions, limit=5)
    assert [hit.chunk_id for hit in result.hits] == ["c"]
    assert [each.part for each in result.degraded] == ["text"]

    stack.channels.vectors.close()
    with pytest.raises(TransientError, match="The text index is away"):
        retrieve(["pear"], SCOPE, channels, stack.revisions, limit=5)
    broken.close()


def test_a_language_that_the_embedder_does_not_know_is_searched_by_words_only(stack: Stack) -> None:
    stack.put("zh", "退款政策")
    stack.put("en", "apple")
    channels = replace(stack.channels, embeds=mostly_latin)
    result = retrieve(["退款政策是什么"], SCOPE, channels, stack.revisions, limit=5)
    assert [hit.chunk_id for hit in result.hits] == ["zh"]
    (degraded,) = result.degraded
    assert (degraded.part, degraded.code) == ("vector", "language_not_embedded")

    mixed = retrieve(["退款政策", "apple"], SCOPE, channels, stack.revisions, limit=5)
    assert {hit.chunk_id for hit in mixed.hits} == {"zh", "en"}
    assert "1 of 2 queries" in mixed.degraded[0].reason
    assert retrieve(["apple"], SCOPE, channels, stack.revisions, limit=5).degraded == ()


@pytest.mark.parametrize(
    ("text", "latin"),
    [
        ("What is it?", True),
        ("Ä Öl für Çà", True),
        ("42 %", True),
        ("", True),
        ("退款政策", False),
        ("Что это?", False),
        ("what does 退款 mean", True),
        ("GPT 的退款政策是什么", False),
        ("\uff26\uff35\uff2c\uff2c", True),
    ],
)
def test_mostly_latin(text: str, latin: bool) -> None:
    assert mostly_latin(text) is latin
