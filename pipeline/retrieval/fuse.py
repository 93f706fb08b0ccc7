"""Rank fusion: several ranked lists become one, without comparing their scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pipeline.models import ScoredChunk

Lists = Sequence[Sequence[ScoredChunk]]

#: Cormack, Clarke, Büttcher: Reciprocal Rank Fusion (SIGIR 2009).
RRF_K = 60


@dataclass(frozen=True, slots=True)
class Weights:
    """How much a place in a list of each channel counts."""

    text: float = 1.0
    vector: float = 1.0


@dataclass(frozen=True, slots=True)
class FusedChunk:
    """A chunk's fused score, and its best rank (from 1) in each channel with the score it had there."""

    chunk_id: str
    document_id: str
    revision: int
    score: float
    text_rank: int | None = None
    text_score: float | None = None
    vector_rank: int | None = None
    vector_score: float | None = None


def fuse(text: Lists, vector: Lists, weights: Weights = Weights(), k: int = RRF_K) -> list[FusedChunk]:
    """Best first by the sum over all lists of `weight / (k + rank)`; ties by chunk id.

    A list counts a chunk once, at its first place.
    """
    tallies: dict[str, _Tally] = {}
    for channel, lists, weight in (("text", text, weights.text), ("vector", vector, weights.vector)):
        for ranked in lists:
            for rank, chunk in _places(ranked):
                tally = tallies.setdefault(chunk.chunk_id, _Tally(chunk))
                tally.score += weight / (k + rank)
                tally.places[channel].append((rank, chunk.score))
    return sorted(map(_fused, tallies.values()), key=lambda chunk: (-chunk.score, chunk.chunk_id))


@dataclass(slots=True)
class _Tally:
    chunk: ScoredChunk
    score: float = 0.0
    places: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: {"text": [], "vector": []})


def _places(chunks: Sequence[ScoredChunk]) -> Iterable[tuple[int, ScoredChunk]]:
    first: dict[str, tuple[int, ScoredChunk]] = {}
    for rank, chunk in enumerate(chunks, start=1):
        first.setdefault(chunk.chunk_id, (rank, chunk))
    return first.values()


def _fused(tally: _Tally) -> FusedChunk:
    text_rank, text_score = _best(tally.places["text"])
    vector_rank, vector_score = _best(tally.places["vector"])
    return FusedChunk(
        chunk_id=tally.chunk.chunk_id,
        document_id=tally.chunk.document_id,
        revision=tally.chunk.revision,
        score=tally.score,
        text_rank=text_rank,
        text_score=text_score,
        vector_rank=vector_rank,
        vector_score=vector_score,
    )


def _best(places: Sequence[tuple[int, float]]) -> tuple[int, float] | tuple[None, None]:
    return min(places, key=lambda place: (place[0], -place[1])) if places else (None, None)
