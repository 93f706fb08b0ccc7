from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.chat.record import Interaction, to_record
from pipeline.chat.stream import AnswerStream, end_stream
from pipeline.errors import StaleEpochError
from pipeline.models import Coverage, Draft, MessageStatus, SearchQuery, VerifiedAnswer
from tests.unit.chat.streams import MemoryStreamStore
from tests.unit.chat.texts import source

NEW = Interaction("m1", "t1", "Why?", datetime(2026, 1, 2, tzinfo=UTC), "extractive")
FINAL = [MessageStatus.FINISHED, MessageStatus.FAILED, MessageStatus.CANCELLED]


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def store():
    return MemoryStreamStore()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def stream(store, clock):
    begun = AnswerStream(store, "m1", 1, clock)
    begun.begin(NEW)
    return begun


def finished(stream, status=MessageStatus.FINISHED):
    return replace(stream.interaction, status=status)


def test_an_answer_is_told_in_order(store, stream):
    stream.queries([SearchQuery("why", "kb")])
    stream.sources([source("Because.")])
    stream.status(MessageStatus.STREAMING)
    stream.draft(Draft("Because"))
    stream.draft(Draft("Because."))
    stream.status(MessageStatus.HIGHLIGHTING_CITATIONS)
    stream.answer(VerifiedAnswer("Because.", (), (), Coverage(1, 0)))
    stream.end(finished(stream))
    assert store.types == [
        "status",
        "queries",
        "sources",
        "status",
        "delta",
        "status",
        "delta",
        "citations",
        "finished",
    ]
    assert [event.seq for event in store.events] == list(range(9))
    assert store.text == "Because."
    assert store.events[-1].data == store.states[-1][1]
    json.dumps([dict(event.data) for event in store.events])


@pytest.mark.parametrize("status", FINAL)
def test_there_is_one_terminal_event_whatever_comes_after(store, stream, status):
    stream.end(finished(stream, status))
    stream.end(finished(stream, MessageStatus.FAILED))
    stream.draft(Draft("late"))
    stream.status(MessageStatus.STREAMING)
    stream.flush()
    assert store.types == ["status", str(status)]


def test_a_status_never_goes_back(stream):
    stream.status(MessageStatus.STREAMING)
    with pytest.raises(ValueError, match="can't become pending"):
        stream.status(MessageStatus.PENDING)


def test_an_end_needs_a_final_status(store, stream):
    with pytest.raises(ValueError, match="no final status"):
        stream.end(NEW)
    with pytest.raises(ValueError, match="no final status"):
        end_stream(store, "m1", 1, to_record(NEW))


def test_text_is_sent_at_most_twenty_times_a_second(store, stream, clock):
    for count in range(1, 1001):
        clock.now = count / 1000
        stream.draft(Draft("x" * count))
    stream.flush()
    assert store.types.count("delta") <= 21
    assert store.text == "x" * 1000


def test_every_twentieth_delta_carries_the_state(store, stream, clock):
    for count in range(1, 46):
        clock.now = float(count)
        stream.draft(Draft("y" * count))
    states = [state for _, state in store.states[1:]]
    assert [len(state["model_response"]["content"]) for state in states] == [20, 40]


def test_a_text_that_is_no_extension_starts_again(store, stream, clock):
    stream.draft(Draft("One thing"))
    clock.now = 1.0
    stream.draft(Draft("Another thing"))
    assert store.types[-3:] == ["delta", "reset", "delta"]
    assert store.text == "Another thing"


def test_a_takeover_goes_on_with_the_seq_and_resets_the_text(store, stream, clock):
    stream.draft(Draft("Half an ans"))
    later = AnswerStream(store, "m1", 2, clock)
    later.begin(NEW)
    later.draft(Draft("The whole answer"))
    assert [event.seq for event in store.events] == list(range(len(store.events)))
    assert store.text == "The whole answer"
    with pytest.raises(StaleEpochError):
        stream.end(finished(stream))


def test_a_stored_record_can_end_the_stream_and_only_once(store, stream):
    stream.draft(Draft("Half"))
    record = to_record(finished(stream, MessageStatus.FAILED))
    end_stream(store, "m1", 5, record)
    end_stream(store, "m1", 5, record)
    assert store.types.count("failed") == 1
    assert store.events[-1].data == record


@given(st.lists(st.tuples(st.text(max_size=5), st.floats(0, 0.2), st.booleans()), max_size=30))
def test_viewers_always_end_with_the_last_text(steps):
    store, clock, text = MemoryStreamStore(), Clock(), ""
    stream = AnswerStream(store, "m1", 1, clock)
    stream.begin(NEW)
    for piece, wait_s, restart in steps:
        clock.now += wait_s
        text = piece if restart else text + piece
        stream.draft(Draft(text))
    stream.end(finished(stream))
    assert store.text == text
    assert [event.seq for event in store.events] == list(range(len(store.events)))
