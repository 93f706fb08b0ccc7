"""What a viewer gets that comes, comes back or comes late; on a real stream server and catalog."""

from __future__ import annotations

import pytest

from api_gateway.replay import Cursor, Replay, encode
from pipeline.models import Event, MessageStatus, ThreadParams
from pipeline.stores.conversations_sql import SqlConversations, insert_message
from pipeline.stores.schema import messages
from tests.unit.gateway.sse import parse


@pytest.fixture
def conversations(database):
    return SqlConversations(database)


@pytest.fixture
def replay(streams, conversations):
    return Replay(streams, conversations)


@pytest.fixture
def message(database, conversations):
    thread = conversations.create_thread("acme", ThreadParams())
    with database.write() as connection:
        return insert_message(connection, thread, "How long?", ThreadParams())


def shown(frames):
    return [(event.id, event.type) for event in map(parse, (frame.wire.decode() for frame in frames))]


def write(streams, first, last, epoch=1, *, state_at=()):
    for seq in range(first, last + 1):
        state = {"upto": seq} if seq in state_at else None
        streams.append("m", Event(seq, epoch, "delta", {"text": str(seq)}), state)


def test_a_newcomer_gets_everything(streams, replay):
    streams.begin("m", 1, {})
    write(streams, 0, 2)
    assert shown(replay.after("m", Cursor())) == [(0, "delta"), (1, "delta"), (2, "delta")]


def test_who_comes_back_gets_only_what_he_missed(streams, replay):
    streams.begin("m", 1, {})
    write(streams, 0, 4)
    assert shown(replay.after("m", Cursor(2))) == [(3, "delta"), (4, "delta")]
    assert replay.after("m", Cursor(4)) == []


def test_before_the_stream_begins_there_is_nothing(replay):
    assert replay.after("m", Cursor()) == []


def test_a_lost_tail_is_replaced_by_the_snapshot(streams, replay, flush):
    streams.begin("m", 1, {})
    write(streams, 0, 3)
    flush()
    write(streams, 4, 7, state_at=[5])
    frames = replay.after("m", Cursor(1, 1))
    assert shown(frames) == [(5, "snapshot"), (6, "delta"), (7, "delta")]


def test_a_lost_tail_without_a_snapshot_waits_for_one(streams, replay, flush):
    streams.begin("m", 1, {})
    write(streams, 0, 3)
    flush()
    write(streams, 4, 5)
    assert replay.after("m", Cursor(1, 1)) == []
    write(streams, 6, 6, state_at=[6])
    assert shown(replay.after("m", Cursor(1, 1))) == [(6, "snapshot")]


def test_a_snapshot_that_brings_nothing_new_is_not_sent_again(streams, replay, flush):
    flush()
    write(streams, 4, 5, state_at=[5])
    frames = replay.after("m", Cursor(1, 1))
    assert shown(frames) == [(5, "snapshot")]
    assert replay.after("m", Cursor(5, 1)) == []


def test_a_position_that_the_stream_never_reached_gets_the_snapshot(streams, replay):
    streams.begin("m", 1, {"content": "so far"})
    write(streams, 0, 3, state_at=[3])
    assert shown(replay.after("m", Cursor(50))) == [(3, "snapshot")]


def test_a_stream_that_began_again_resets_its_viewers(streams, replay, flush):
    streams.begin("m", 1, {})
    write(streams, 0, 9)
    flush()
    streams.begin("m", 2, {})
    write(streams, 0, 12, epoch=2, state_at=[11])
    assert shown(replay.after("m", Cursor(9, 1))) == [(11, "snapshot"), (12, "delta")]


def test_a_new_epoch_that_goes_on_is_no_reset(streams, replay):
    streams.begin("m", 1, {})
    write(streams, 0, 3)
    streams.begin("m", 2, {})
    write(streams, 4, 5, epoch=2)
    assert shown(replay.after("m", Cursor(3, 1))) == [(4, "delta"), (5, "delta")]


def test_a_terminal_event_needs_no_snapshot_before_it(streams, replay, flush):
    flush()
    streams.append("m", Event(8, 1, "finished", {"content": "all"}), {"content": "all"})
    assert shown(replay.after("m", Cursor(2, 1))) == [(8, "finished")]


def test_who_saw_the_terminal_event_has_seen_the_end(streams, replay):
    streams.begin("m", 1, {})
    write(streams, 0, 1)
    assert not replay.has_seen_the_end("m", 1)
    streams.append("m", Event(2, 1, "finished", {}), {})
    assert replay.has_seen_the_end("m", 2)
    assert not replay.has_seen_the_end("m", 1)
    assert not replay.has_seen_the_end("m", -1)
    assert not replay.has_seen_the_end("m", 9)


def test_an_open_message_has_no_ending(replay, message):
    assert replay.ending("acme", message.id, Cursor(4)) is None


@pytest.mark.parametrize("status", [MessageStatus.FINISHED, MessageStatus.FAILED, MessageStatus.CANCELLED])
def test_the_catalog_ends_a_message_whose_stream_is_gone(replay, database, message, status):
    record = {"message_id": message.id, "model_response": {"content": "25 days"}}
    with database.write() as connection:
        values = {"status": status, "record": record, "finished_at": 5.0}
        connection.execute(messages.update().where(messages.c.id == message.id).values(**values))
    frame = replay.ending("acme", message.id, Cursor(4))
    event = parse(frame.wire.decode())
    assert (event.id, event.type, event.data) == (5, status.value, record)
    assert frame.terminal


def test_an_ending_without_a_record_still_says_what_was_asked(replay, database, message):
    with database.write() as connection:
        values = {"status": MessageStatus.FAILED, "error_code": "lost", "error": "gone", "finished_at": 5.0}
        connection.execute(messages.update().where(messages.c.id == message.id).values(**values))
    data = parse(replay.ending("acme", message.id, Cursor()).wire.decode()).data
    assert data["user_input"]["content"] == "How long?"
    assert data["model_response"]["status"] == "failed"


def test_a_message_that_was_deleted_meanwhile_ends_as_cancelled(replay, conversations, message):
    conversations.delete_thread("acme", message.thread_id)
    assert shown([replay.ending("acme", message.id, Cursor(4))]) == [(5, "cancelled")]


def test_text_with_line_breaks_stays_one_data_line():
    text = "one\ntwo\r\n\n\u2028three"
    wire = encode(Event(0, 1, "delta", {"text": text})).wire.decode()
    assert wire.count("\n") == 4
    assert parse(wire).data == {"text": text}
