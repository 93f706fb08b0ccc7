"""An answer without a language model: the sentences of the sources that answer, quoted as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from pipeline.chat.candidates import Candidate, candidates, focus
from pipeline.chat.markers import escape_markers
from pipeline.chat.quotes import NoProofError, SourceText
from pipeline.inference.ports import Embedder, GenerationRequest
from pipeline.models import Draft, DraftCitation

NAME = "extractive"
INTRODUCTION = "Extracted from the documents (no language model):"
ABSTENTION = "The documents do not answer this question."

_SENTENCES = {"short": 1, "medium": 3, "long": 6}
#: Sentences that are embedded to judge the first one, and those that are embedded to add more.
_JUDGED, _ADDED = 6, 12
#: Share of a sentence's terms that an earlier one may already have.
_SAME = 0.7

# A sentence's score is the log-odds that its sources answer the question. The weights are a logistic regression
# on XQuAD-en: right sources against the ten best wrong ones. The sentence's own words decide at once above _SURE
# (1 % of wrong sources get there); below it the meaning is asked too, where the embedder knows the script.
_OWN, _NEAR, _AROUND, _FITS = 9.3, 1.6, 3.3, 0.3
_WORDS_BIAS, _OTHER_SCRIPT_BIAS = -4.8, -3.0
_SURE = 1.6
_OWN_2, _NEAR_2, _AROUND_2, _FITS_2, _MEANING = 7.2, 0.5, 3.85, 0.5, 17.9
_MEANING_BIAS = -15.5
#: How far below the best one a further sentence may lie.
_MARGIN = 3.0

Scored = tuple[float, Candidate]


class ExtractiveGenerator:
    """Quotes up to 1, 3 or 6 sentences (short, medium, long), one draft each, or abstains.

    The first draft comes before anything is embedded when the question's words are plainly there. It embeds
    six sentences at most before it, and twelve after it. Safe to use from several threads.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    @property
    def name(self) -> str:
        return NAME

    def warm(self) -> None:
        self._embedder.embed_query(NAME)

    def stream(self, request: GenerationRequest) -> Iterator[Draft]:
        draft: Draft | None = None
        text = SourceText(request.sources)
        for chosen in self._answers(request):
            citation = _citation(chosen, len(draft.citations) + 1 if draft else 1, text)
            if citation:
                draft = _extended(draft, citation, chosen)
                yield draft
        if draft is None:
            yield Draft(ABSTENTION, complete=True, abstained=True)
        else:
            yield Draft(draft.response, draft.citations, complete=True)

    def _answers(self, request: GenerationRequest) -> Iterator[Candidate]:
        """The sentences that answer, best first; the first as soon as it is known."""
        limit = _SENTENCES[request.params.target_output_length]
        by_words = _by_words(request)
        if not by_words:
            return
        chosen: list[Candidate] = []
        if by_words[0][0] >= _SURE:
            chosen.append(by_words[0][1])
            yield chosen[0]
            if limit == 1:
                return
        for candidate in _distinct(
            self._judged(focus(request.question), by_words, _ADDED if chosen else _JUDGED), chosen, limit
        ):
            chosen.append(candidate)
            yield candidate

    def _judged(self, question: str, by_words: Sequence[Scored], count: int) -> list[Scored]:
        """Best first, those above the threshold and near the best."""
        scored = self._by_meaning(question, by_words[:count]) if _is_latin(question) else list(by_words)
        best = scored[0][0]
        return [each for each in scored if each[0] >= max(0.0, best - _MARGIN)]

    def _by_meaning(self, question: str, by_words: Sequence[Scored]) -> list[Scored]:
        found = [candidate for _, candidate in by_words]
        similarity = self._embedder.embed_documents([each.text for each in found]) @ self._embedder.embed_query(
            question
        )
        scores = [_with_meaning(each, float(cosine)) for each, cosine in zip(found, similarity, strict=True)]
        return _best_first(zip(scores, found, strict=True))


def _by_words(request: GenerationRequest) -> list[Scored]:
    bias = _WORDS_BIAS if _is_latin(request.question) else _OTHER_SCRIPT_BIAS
    found = candidates(focus(request.question), request.sources)
    return _best_first(
        (_OWN * each.own + _NEAR * each.near + _AROUND * each.around + _FITS * each.fits + bias, each) for each in found
    )


def _with_meaning(each: Candidate, cosine: float) -> float:
    words = _OWN_2 * each.own + _NEAR_2 * each.near + _AROUND_2 * each.around + _FITS_2 * each.fits
    return words + _MEANING * cosine + _MEANING_BIAS


def _best_first(scored: Iterable[Scored]) -> list[Scored]:
    return sorted(scored, key=itemgetter(0), reverse=True)


def _is_latin(text: str) -> bool:
    """Whether an English embedder can judge the text: four of five letters are ASCII."""
    letters = [char for char in text if char.isalpha()]
    return sum(char.isascii() for char in letters) * 5 >= len(letters) * 4


def _distinct(scored: Sequence[Scored], chosen: Sequence[Candidate], limit: int) -> Iterator[Candidate]:
    taken = list(chosen)
    for _, candidate in scored:
        if len(taken) >= limit:
            return
        if not any(_is_same(candidate, other) for other in taken):
            taken.append(candidate)
            yield candidate


def _is_same(one: Candidate, other: Candidate) -> bool:
    smaller = min(len(one.terms), len(other.terms)) or 1
    return len(one.terms & other.terms) / smaller >= _SAME


def _citation(chosen: Candidate, marker: int, text: SourceText) -> DraftCitation | None:
    """None for a sentence that could not be proven, such as one of two words."""
    try:
        text.find(chosen.text, chosen.source.index, chosen.page_number)
    except NoProofError:
        return None
    return DraftCitation(marker, chosen.source.index, chosen.text, chosen.page_number)


def _extended(draft: Draft | None, citation: DraftCitation, chosen: Candidate) -> Draft:
    before, citations = (draft.response, draft.citations) if draft else (INTRODUCTION, ())
    sentence = escape_markers(" ".join(chosen.text.split()))
    return Draft(f"{before}\n\n{sentence} [{citation.marker}]", (*citations, citation))
