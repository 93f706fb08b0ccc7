from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pipeline.chat.answer import answer
from pipeline.chat.record import Interaction
from pipeline.chat.stream import AnswerStream
from pipeline.errors import CancelledStepError, PermanentError, TransientError
from pipeline.inference.ports import GenerationRequest
from pipeline.models import Box, Draft, DraftCitation, MessageStatus, ThreadParams
from tests.unit.chat.streams import MemoryStreamStore
from tests.unit.chat.texts import source

SOURCE = source("Revenue grew by 12 % to $1,577 million.")
QUOTED = (DraftCitation(1, 1, SOURCE.text),)
REQUEST = GenerationRequest("Why?", (), (SOURCE,), ThreadParams())
BOX = Box(3, 0.0, 0.0, 1.0, 1.0)


class Scripted:
    name = "scripted/model"

    def __init__(self, *steps):
        self.steps = steps

    def stream(self, _request):
        for step in self.steps:
            if isinstance(step, Exception):
                raise step
            yield step


@pytest.fixture
def store():
    return MemoryStreamStore()


def run(store, *steps, check=lambda: None, keep_partial=False):
    stream = AnswerStream(store, "m1", 1, iter(range(1000)).__next__)
    stream.begin(Interaction("m1", "t1", "Why?", datetime(2026, 1, 1, tzinfo=UTC), "m"))
    return answer(REQUEST, Scripted(*steps), stream, check=check, locate=lambda _: (BOX,), keep_partial=keep_partial)


def test_drafts_are_shown_and_the_proven_answer_has_its_boxes(store):
    done = run(store, Draft("It"), Draft("It grew [1].", QUOTED, complete=True))
    assert done.answer.citations[0].boxes == (BOX,)
    assert not done.incomplete
    assert store.types == ["status", "status", "delta", "delta", "status", "citations"]
    assert store.events[-1].data["citations"][0]["cited_text"] == SOURCE.text
    assert store.events[-2].data == {"status": str(MessageStatus.HIGHLIGHTING_CITATIONS)}


def test_unproven_quotes_are_never_shown_as_citations(store):
    done = run(store, Draft("It grew [1].", (DraftCitation(1, 1, "this is an invention"),), complete=True))
    assert done.answer.content == "It grew."
    assert all("citations" not in event.data or event.data["citations"] == [] for event in store.events)


def test_an_answer_without_its_end_is_incomplete(store):
    assert run(store, Draft("It grew"), Draft("It grew a")).incomplete


def test_a_cut_stream_fails_unless_it_was_the_last_attempt(store):
    cut = (Draft("It grew"), TransientError("cut", code="stream_cut"))
    with pytest.raises(TransientError):
        run(store, *cut)
    done = run(MemoryStreamStore(), *cut, keep_partial=True)
    assert done.incomplete
    assert done.answer.content == "It grew"


def test_a_failure_before_any_text_is_never_an_answer(store):
    with pytest.raises(TransientError):
        run(store, TransientError("busy"), keep_partial=True)
    with pytest.raises(PermanentError) as caught:
        run(MemoryStreamStore(), Draft("", complete=True))
    assert caught.value.code == "empty_reply"


def test_a_cancelled_answer_stops_between_drafts(store):
    calls = []

    def check():
        calls.append(None)
        if len(calls) > 2:
            raise CancelledStepError("cancelled")

    with pytest.raises(CancelledStepError):
        run(store, Draft("a"), Draft("ab"), Draft("abc", complete=True), check=check)
    assert store.text == "a"
