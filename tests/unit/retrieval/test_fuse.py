from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.models import ScoredChunk
from pipeline.retrieval.fuse import Weights, fuse


def ranked(*ids: str) -> list[ScoredChunk]:
    return [ScoredChunk(chunk_id, f"doc-{chunk_id}", 1, 100.0 - place) for place, chunk_id in enumerate(ids)]


RANKINGS = st.lists(st.lists(st.sampled_from("abcdefg"), unique=True), max_size=4)


def test_the_score_is_the_sum_of_reciprocal_ranks() -> None:
    fused = {chunk.chunk_id: chunk for chunk in fuse([ranked("a", "b")], [ranked("b", "c")])}
    assert fused["a"].score == pytest.approx(1 / 61)
    assert fused["b"].score == pytest.approx(1 / 62 + 1 / 61)
    assert fused["c"].score == pytest.approx(1 / 62)


def test_a_chunk_in_both_lists_comes_first_and_keeps_ranks_and_scores() -> None:
    first = fuse([ranked("a", "b")], [ranked("c", "b")])[0]
    assert (first.chunk_id, first.document_id, first.revision) == ("b", "doc-b", 1)
    assert (first.text_rank, first.text_score, first.vector_rank, first.vector_score) == (2, 99.0, 2, 99.0)


def test_a_channel_without_the_chunk_leaves_its_fields_none() -> None:
    (only,) = fuse([ranked("a")], [])
    assert (only.vector_rank, only.vector_score) == (None, None)


def test_several_queries_keep_the_best_rank_of_a_channel() -> None:
    (best, *_) = fuse([ranked("x", "a"), ranked("a", "y"), ranked("z", "y", "a")], [])
    assert (best.chunk_id, best.text_rank, best.text_score) == ("a", 1, 100.0)


def test_weights_shift_the_order() -> None:
    lists = ([ranked("t")], [ranked("v")])
    assert [chunk.chunk_id for chunk in fuse(*lists, Weights(text=1.0, vector=2.0))] == ["v", "t"]
    assert [chunk.chunk_id for chunk in fuse(*lists, Weights(text=2.0, vector=1.0))] == ["t", "v"]


def test_a_list_counts_a_chunk_once() -> None:
    doubled = {chunk.chunk_id: chunk.score for chunk in fuse([ranked("a", "a", "b")], [])}
    assert doubled["a"] == pytest.approx(1 / 61)


def test_nothing_fuses_to_nothing() -> None:
    assert fuse([], []) == fuse([[]], [[], []]) == []


@given(RANKINGS, RANKINGS)
def test_every_chunk_is_there_once_best_first_ties_by_id(text: list[list[str]], vector: list[list[str]]) -> None:
    fused = fuse([ranked(*ids) for ids in text], [ranked(*ids) for ids in vector])
    assert sorted(chunk.chunk_id for chunk in fused) == sorted({each for ids in (*text, *vector) for each in ids})
    assert fused == sorted(fused, key=lambda chunk: (-chunk.score, chunk.chunk_id))


@given(RANKINGS)
def test_swapping_the_channels_changes_only_their_names(text: list[list[str]]) -> None:
    one = fuse([ranked(*ids) for ids in text], [])
    other = fuse([], [ranked(*ids) for ids in text])
    assert [(chunk.chunk_id, chunk.score, chunk.text_rank) for chunk in one] == [
        (chunk.chunk_id, chunk.score, chunk.vector_rank) for chunk in other
    ]
