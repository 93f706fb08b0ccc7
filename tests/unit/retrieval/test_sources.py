from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.models import Hit
from pipeline.retrieval.sources import group

CHARS = 100


def hit(ordinal: int, score: float, document_id: str = "d", revision: int = 1) -> Hit:
    return Hit(
        chunk_id=f"{document_id}-{revision}-{ordinal:03}",
        kb_id="kb",
        document_id=document_id,
        revision=revision,
        ordinal=ordinal,
        start=ordinal * CHARS,
        end=(ordinal + 1) * CHARS,
        page_start=ordinal,
        page_end=ordinal + 1,
        section_path=(f"section {ordinal}",),
        text="x" * CHARS,
        score=score,
    )


HITS = st.lists(
    st.builds(hit, st.integers(0, 12), st.integers(1, 5).map(float), st.sampled_from("de"), st.integers(1, 2)),
    max_size=25,
)


def test_consecutive_chunks_become_one_span() -> None:
    (span,) = group([hit(4, 0.5), hit(3, 0.9), hit(5, 0.1)], max_chars=10_000)
    assert (span.start, span.end, span.page_start, span.page_end) == (300, 600, 3, 6)
    assert (span.score, span.section_path) == (0.9, ("section 3",))
    assert span.chunk_ids == ("d-1-003", "d-1-004", "d-1-005")


def test_a_late_hit_joins_two_spans() -> None:
    spans = group([hit(1, 0.9), hit(3, 0.8), hit(2, 0.1)], max_chars=10_000)
    assert [(span.start, span.end) for span in spans] == [(100, 400)]


def test_documents_and_revisions_stay_apart() -> None:
    spans = group([hit(1, 0.9), hit(2, 0.8, "e"), hit(2, 0.7, revision=2)], max_chars=10_000)
    assert [(span.document_id, span.revision) for span in spans] == [("d", 1), ("e", 1), ("d", 2)]


def test_the_best_hits_use_the_budget() -> None:
    spans = group([hit(1, 0.9), hit(5, 0.8), hit(9, 0.7)], max_chars=2 * CHARS)
    assert [span.start for span in spans] == [100, 500]
    assert [span.start for span in group([hit(1, 0.9), hit(5, 0.8), hit(2, 0.7)], 1_000, max_spans=1)] == [100]


def test_furniture_between_chunks_is_inside_the_span_and_counts() -> None:
    before, after = hit(1, 0.9), hit(3, 0.8)
    after = Hit(**{name: getattr(after, name) for name in Hit.__slots__} | {"ordinal": 2})
    (span,) = group([before, after], max_chars=300)
    assert (span.start, span.end) == (100, 400)
    assert len(group([before, after], max_chars=299)[0].chunk_ids) == 1


@given(HITS, st.integers(0, 1500))
def test_spans_never_overlap_nor_exceed_the_budget_and_come_best_first(hits: list[Hit], max_chars: int) -> None:
    spans = group(hits, max_chars)
    assert sum(span.end - span.start for span in spans) <= max_chars
    assert [span.score for span in spans] == sorted((span.score for span in spans), reverse=True)
    covered = [
        (span.document_id, span.revision, character)
        for span in spans
        for character in range(span.start, span.end, CHARS)
    ]
    assert len(covered) == len(set(covered))


@given(HITS)
def test_with_room_enough_every_hit_is_in_one_span(hits: list[Hit]) -> None:
    spans = group(hits, max_chars=1_000_000)
    assert sorted(chunk_id for span in spans for chunk_id in span.chunk_ids) == sorted({each.chunk_id for each in hits})


@given(st.permutations([hit(ordinal, score) for ordinal, score in ((1, 3.0), (2, 3.0), (5, 2.0), (6, 1.0), (9, 1.0))]))
def test_the_order_of_the_hits_does_not_matter(hits: list[Hit]) -> None:
    assert group(hits, 300) == group(sorted(hits, key=lambda each: each.ordinal), 300)
