"""Proof of citations: from what a generator claims to what its answer may show.

A quote counts only when it is found in a shown source (chat/quotes.py) and does not contradict the
sentence that it stands after (chat/evidence.py). What fails loses its `[n]` and is listed as unverified.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipeline.chat.evidence import check
from pipeline.chat.markers import Claim, claims, coverage, rewrite
from pipeline.chat.quotes import NoProofError, Place, SourceText
from pipeline.models import Citation, Draft, DraftCitation, Source, UnverifiedQuote, VerifiedAnswer

#: An unverified quote is shown up to here: it can be anything, of any length.
MAX_SHOWN_CHARS = 2000


@dataclass(frozen=True, slots=True)
class _Proof:
    """A draft citation that is really in a source."""

    claimed: DraftCitation
    places: tuple[Place, ...]


def verify(draft: Draft, sources: Sequence[Source]) -> VerifiedAnswer:
    """The answer with only proven citations; pure, and linear in the lengths of draft and sources.

    Markers are numbered again from 1 in order of first use; two markers for the same places become one. A
    `[n]` without a proven quote is removed from the content. A proven quote to which no `[n]` refers keeps
    its citation, numbered after the others. `UnverifiedQuote.marker` is the draft's number.
    """
    proofs, unfound = _prove(draft.citations, sources)
    stated = claims(draft.response)
    refuted = {at: reason for at, claim in enumerate(stated) if (reason := _refutation(claim, proofs))}
    standing = [() if at in refuted else _proven(claim, proofs) for at, claim in enumerate(stated)]
    mentioned = {marker for claim in stated for marker in claim.markers}
    unmentioned = [marker for marker in proofs if marker not in mentioned]
    numbers = _numbers([*(marker for markers in standing for marker in markers), *unmentioned], proofs)
    content = rewrite(draft.response, lambda at, marker: numbers[marker] if marker in standing[at] else None)
    failed = [*unfound, *_refused(stated, refuted, proofs)]
    return VerifiedAnswer(content, _citations(numbers, proofs), tuple(dict.fromkeys(failed)), coverage(content))


def _prove(
    claimed: Sequence[DraftCitation], sources: Sequence[Source]
) -> tuple[dict[int, list[_Proof]], list[UnverifiedQuote]]:
    """Proofs by the draft's marker, and what is in no source."""
    text = SourceText(sources)
    proofs: dict[int, list[_Proof]] = {}
    failed: list[UnverifiedQuote] = []
    for each in dict.fromkeys(claimed):
        try:
            places = text.find(each.cited_text, each.source_index, each.page_number)
        except NoProofError as error:
            failed.append(_unverified(each, str(error)))
        else:
            proofs.setdefault(each.marker, []).append(_Proof(each, places))
    return proofs, failed


def _refutation(claim: Claim, proofs: Mapping[int, Sequence[_Proof]]) -> str | None:
    """Why the quotes behind a claim, taken together, contradict it."""
    quotes = [place.text for marker in claim.markers for proof in proofs.get(marker, ()) for place in proof.places]
    findings = check(claim.text, quotes) if quotes else ()
    return next((finding.reason for finding in findings if finding.contradicts), None)


def _proven(claim: Claim, proofs: Mapping[int, Sequence[_Proof]]) -> tuple[int, ...]:
    return tuple(marker for marker in claim.markers if marker in proofs)


def _refused(
    stated: Sequence[Claim], refuted: Mapping[int, str], proofs: Mapping[int, Sequence[_Proof]]
) -> Iterator[UnverifiedQuote]:
    for at, reason in refuted.items():
        for marker in stated[at].markers:
            yield from (_unverified(proof.claimed, reason) for proof in proofs.get(marker, ()))


def _unverified(claimed: DraftCitation, reason: str) -> UnverifiedQuote:
    return UnverifiedQuote(claimed.marker, claimed.cited_text[:MAX_SHOWN_CHARS], reason)


def _numbers(used: Sequence[int], proofs: Mapping[int, Sequence[_Proof]]) -> dict[int, int]:
    """New numbers by the draft's marker: 1, 2, … in order of use, one for the same set of places."""
    by_places: dict[frozenset[tuple[int, int, int]], int] = {}
    numbers: dict[int, int] = {}
    for marker in used:
        key = frozenset(_key(place) for proof in proofs[marker] for place in proof.places)
        numbers[marker] = by_places.setdefault(key, len(by_places) + 1)
    return numbers


def _key(place: Place) -> tuple[int, int, int]:
    return place.source.index, place.start, place.end


def _citations(numbers: Mapping[int, int], proofs: Mapping[int, Sequence[_Proof]]) -> tuple[Citation, ...]:
    found = {
        (number, _key(place)): _citation(number, place)
        for marker, number in numbers.items()
        for proof in proofs[marker]
        for place in proof.places
    }
    return tuple(sorted(found.values(), key=lambda citation: citation.marker))


def _citation(marker: int, place: Place) -> Citation:
    source = place.source
    return Citation(
        marker=marker,
        source_index=source.index,
        kb_id=source.kb_id,
        document_id=source.document_id,
        revision=source.revision,
        key=source.key,
        title=source.title,
        page_number=place.page.number,
        start=place.start,
        end=place.end,
        page_start_offset=place.page.start,
        cited_text=place.text,
    )
