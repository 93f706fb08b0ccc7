"""Quality of the text channel with its real analysis, grammar and store, against floors."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pipeline.analysis import analyse_document
from pipeline.models import IndexedChunk, Scope
from pipeline.retrieval.query import parse
from pipeline.stores.text_tantivy import TantivyTextStore

SCOPE = Scope("tenant", "kb")


@pytest.mark.shared_data
@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "floor"), [("scifact", 0.68), ("xquad/zh", 0.96), ("xquad/en", 0.96), ("xquad/hi", 0.90)]
)
def test_bm25_reaches_its_floor(folder: str, floor: float, shared_data: Path, tmp_path: Path) -> None:
    data = shared_data / "ir" / folder
    store = TantivyTextStore(tmp_path / "index")
    store.put([_chunk(document) for document in _corpus(data)])

    assert _mean_ndcg(store, data) >= floor
    store.close()


def _mean_ndcg(store: TantivyTextStore, data: Path) -> float:
    relevant = _relevant(data)
    scores = []
    for line in (data / "queries.jsonl").read_text(encoding="utf-8").splitlines():
        query = json.loads(line)
        if query["_id"] in relevant:
            ranked = store.search(parse(query["text"]), SCOPE, 10)
            scores.append(ndcg([hit.chunk_id for hit in ranked], relevant[query["_id"]]))
    return sum(scores) / len(scores)


def ndcg(ranked: list[str], gains: Mapping[str, int]) -> float:
    """NDCG@10 with linear gains, as BEIR and trec_eval compute it."""
    ideal = sorted(gains.values(), reverse=True)[:10]
    return _dcg([gains.get(document_id, 0) for document_id in ranked[:10]]) / _dcg(ideal)


def _dcg(gains: list[int]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))


def _corpus(data: Path) -> Iterator[dict[str, str]]:
    with gzip.open(data / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _relevant(data: Path) -> dict[str, dict[str, int]]:
    relevant: dict[str, dict[str, int]] = {}
    for line in (data / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query_id, document_id, gain = line.split("\t")
        relevant.setdefault(query_id, {})[document_id] = int(gain)
    return relevant


def _chunk(document: dict[str, str]) -> IndexedChunk:
    text = f"{document['title']} {document['text']}"
    return IndexedChunk(
        id=document["_id"],
        tenant_id=SCOPE.tenant_id,
        kb_id=SCOPE.kb_id,
        document_id=document["_id"],
        revision=1,
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
