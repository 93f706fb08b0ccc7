"""Drives a generator, shows its drafts, proves its citations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pipeline.chat.cite import verify
from pipeline.chat.stream import AnswerStream
from pipeline.errors import PermanentError, TransientError
from pipeline.inference.ports import GenerationRequest, Generator
from pipeline.models import Box, Citation, Draft, MessageStatus, VerifiedAnswer

#: Where a citation is on its page; `()` where there is no geometry.
Locate = Callable[[Citation], tuple[Box, ...]]


@dataclass(frozen=True, slots=True)
class Answered:
    """`incomplete` says that the model did not come to its end; its text is then a beginning."""

    answer: VerifiedAnswer
    abstained: bool
    incomplete: bool


def answer(
    request: GenerationRequest,
    generator: Generator,
    stream: AnswerStream,
    *,
    check: Callable[[], None],
    locate: Locate,
    keep_partial: bool = False,
) -> Answered:
    """The proven answer; the caller stores it and ends the stream.

    `check` is called between drafts and raises when the answer is not wanted any more. A stream that is
    cut in the middle raises TransientError, so that another attempt may start again; with `keep_partial`, for
    the last attempt, the text that came is kept as an incomplete answer. Raises PermanentError `empty_reply`
    when the model said nothing.
    """
    stream.status(MessageStatus.STREAMING)
    draft = _last_draft(request, generator, stream, check, keep_partial=keep_partial)
    stream.flush()
    stream.status(MessageStatus.HIGHLIGHTING_CITATIONS)
    verified = _located(verify(draft, request.sources), locate)
    stream.answer(verified)
    return Answered(verified, abstained=draft.abstained, incomplete=not draft.complete)


def _last_draft(
    request: GenerationRequest,
    generator: Generator,
    stream: AnswerStream,
    check: Callable[[], None],
    *,
    keep_partial: bool,
) -> Draft:
    last = Draft("")
    check()
    try:
        for draft in generator.stream(request):
            check()
            stream.draft(draft)
            last = draft
    except TransientError:
        if not keep_partial or not last.response.strip():
            raise
    if not last.response.strip():
        raise PermanentError(f"{generator.name} answered with nothing.", code="empty_reply")
    return last


def _located(answer: VerifiedAnswer, locate: Locate) -> VerifiedAnswer:
    citations = tuple(replace(citation, boxes=locate(citation)) for citation in answer.citations)
    return replace(answer, citations=citations)
