"""Threads and messages over HTTP; the answers are written by the test in a worker's place."""

from __future__ import annotations

import threading
import time

import pytest

from pipeline.models import Event, MessageStatus
from pipeline.stores.schema import messages
from tests.unit.gateway.sse import parse


@pytest.fixture
def kb(api):
    return api.http.post("/v1/knowledge-bases", json={"name": "handbook"}, headers=api.acme).json()


@pytest.fixture
def thread(api, kb):
    assert kb["name"] == "handbook"
    return api.http.post("/v1/threads", json={"kb_ids": ["handbook"]}, headers=api.acme).json()


def ask(api, thread, content="How many days?", query="", **overrides):
    body = {"content": content, **overrides}
    return api.http.post(f"/v1/threads/{thread['id']}/messages{query}", json=body, headers=api.acme)


def answer(api, message_id, words=("25 ", "days"), after_s=0.0):
    """What a worker does: events, then the catalog, then the terminal event."""
    time.sleep(after_s)
    store = api.client.resources.streams
    seq = store.begin(message_id, 1, {"message_id": message_id})
    for word in words:
        store.append(message_id, Event(seq, 1, "delta", {"text": word}), {"message_id": message_id, "upto": seq})
        seq += 1
    record = {"message_id": message_id, "model_response": {"content": "".join(words), "status": "finished"}}
    with api.client.resources.database.write() as connection:
        values = {"status": MessageStatus.FINISHED, "record": record, "finished_at": 1.0}
        connection.execute(messages.update().where(messages.c.id == message_id).values(**values))
    store.append(message_id, Event(seq, 1, "finished", record), record)
    return record


def events_in(response):
    return [event for event in map(parse, response.text.split("\n\n")) if event]


def test_a_thread_has_dsrags_defaults_and_knowledge_bases_by_id(api, kb, thread):
    assert thread["params"] == {
        "kb_ids": [kb["id"]],
        "model": "",
        "temperature": 0.2,
        "system_message": "",
        "auto_query_model": "",
        "auto_query_guidance": "",
        "target_output_length": "medium",
        "max_chat_history_tokens": 8000,
        "rse_params": {},
    }
    assert api.http.get("/v1/threads", headers=api.acme).json()["items"] == [thread]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"kb_ids": ["nowhere"]}, 404, "unknown_knowledge_base"),
        ({"temperatur": 1}, 422, "invalid_request"),
        ({"temperature": 7}, 422, "bad_parameter"),
        ({"target_output_length": "epic"}, 422, "bad_parameter"),
        ({"model": "nobody/knows"}, 422, "unknown_model"),
        ({"kb_ids": "handbook"}, 422, "invalid_request"),
        ({"system_message": "a\x00b"}, 422, "invalid_request"),
        ([], 422, "invalid_request"),
    ],
)
def test_wrong_parameters_are_named(api, body, status, code):
    refused = api.http.post("/v1/threads", json=body, headers=api.acme)
    assert (refused.status_code, refused.json()["code"]) == (status, code)


def test_a_question_is_accepted_and_found_where_location_says(api, thread):
    asked = ask(api, thread)
    assert asked.status_code == 202
    assert asked.json() == {
        "message_id": asked.headers["location"].rpartition("/")[2],
        "thread_id": thread["id"],
        "status": "pending",
    }
    shown = api.http.get(asked.headers["location"], headers=api.acme).json()
    assert shown["user_input"]["content"] == "How many days?"
    assert shown["model_response"]["status"] == "pending"
    assert shown["waiting"]["cause"] == "no_consumer"
    assert (shown["epoch"], shown["seq"]) == (0, -1)


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [("", 422, "empty_question"), (" \n", 422, "empty_question"), ("x" * 201, 413, "question_too_long")],
)
def test_a_question_that_is_empty_or_endless_is_refused(api, thread, content, status, code):
    refused = ask(api, thread, content)
    assert (refused.status_code, refused.json()["code"]) == (status, code)


def test_overrides_hold_for_one_message_only(api, thread):
    assert ask(api, thread, temperature=9).json()["code"] == "bad_parameter"
    message_id = ask(api, thread, temperature=0.9, model=None).json()["message_id"]
    assert api.client.resources.conversations.message(message_id).params.temperature == 0.9
    assert api.http.get(f"/v1/threads/{thread['id']}", headers=api.acme).json()["params"]["temperature"] == 0.2


def test_an_answer_streams_into_the_request_that_asked(api, thread):
    asked: list = []

    def work():
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            found = api.client.resources.conversations.list_messages("acme", thread["id"])
            if found:
                asked.append(answer(api, found[0].id, after_s=0.2))
                return
            time.sleep(0.02)

    worker = threading.Thread(target=work)
    worker.start()
    response = ask(api, thread, query="?stream=true")
    worker.join()
    assert response.status_code == 200
    assert response.headers["location"] == f"/v1/messages/{asked[0]['message_id']}"
    assert [(e.id, e.type) for e in events_in(response)] == [(0, "delta"), (1, "delta"), (2, "finished")]
    assert events_in(response)[-1].data == asked[0]


@pytest.mark.parametrize(
    ("query", "headers", "first"),
    [
        ("", {}, 0),
        ("?after=0", {}, 1),
        ("", {"Last-Event-ID": "1"}, 2),
        ("?after=0", {"Last-Event-ID": "1"}, 2),
        ("?after=-1", {}, 0),
    ],
)
def test_a_viewer_says_what_it_has_seen(api, thread, query, headers, first):
    message_id = ask(api, thread).json()["message_id"]
    answer(api, message_id)
    response = api.http.get(f"/v1/messages/{message_id}/events{query}", headers=api.acme | headers)
    assert [event.id for event in events_in(response)] == list(range(first, 3))


def test_who_has_seen_the_end_is_told_not_to_come_again(api, thread):
    message_id = ask(api, thread).json()["message_id"]
    answer(api, message_id)
    assert api.http.get(f"/v1/messages/{message_id}/events?after=2", headers=api.acme).status_code == 204


def test_after_everything_in_the_stream_server_is_lost_the_record_is_still_there(api, thread, flush):
    message_id = ask(api, thread).json()["message_id"]
    record = answer(api, message_id)
    flush()
    response = api.http.get(f"/v1/messages/{message_id}/events", headers=api.acme)
    assert [(e.type, e.data) for e in events_in(response)] == [("finished", record)]
    shown = api.http.get(f"/v1/messages/{message_id}", headers=api.acme).json()
    assert shown["model_response"] == record["model_response"]
    assert shown["waiting"] is None


@pytest.mark.parametrize("seen", ["abc", "1.5", "-2", "99999999999999999999999", ""])
def test_a_position_that_is_none_is_refused(api, thread, seen):
    message_id = ask(api, thread).json()["message_id"]
    refused = api.http.get(f"/v1/messages/{message_id}/events", headers={**api.acme, "Last-Event-ID": seen})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")


def test_a_cancelled_answer_ends_and_can_not_be_cancelled_again(api, thread):
    message_id = ask(api, thread).json()["message_id"]
    cancelled = api.http.post(f"/v1/messages/{message_id}/cancel", headers=api.acme)
    assert (cancelled.status_code, cancelled.json()["status"]) == (202, "cancelled")
    events = events_in(api.http.get(f"/v1/messages/{message_id}/events", headers=api.acme))
    assert [event.type for event in events].count("cancelled") == 1
    assert events[-1].type == "cancelled"
    again = api.http.post(f"/v1/messages/{message_id}/cancel", headers=api.acme)
    assert (again.status_code, again.json()["code"]) == (409, "already_final")


def test_a_thread_shows_its_interactions_oldest_first(api, thread):
    first = ask(api, thread, "First?").json()["message_id"]
    record = answer(api, first)
    second = ask(api, thread, "Second?").json()["message_id"]
    interactions = api.http.get(f"/v1/threads/{thread['id']}", headers=api.acme).json()["interactions"]
    assert interactions[0] == record
    assert (interactions[1]["message_id"], interactions[1]["user_input"]["content"]) == (second, "Second?")


def test_a_deleted_thread_takes_its_messages_along(api, thread):
    message_id = ask(api, thread).json()["message_id"]
    assert api.http.delete(f"/v1/threads/{thread['id']}", headers=api.acme).status_code == 204
    for path in (f"threads/{thread['id']}", f"messages/{message_id}", f"messages/{message_id}/events"):
        assert api.http.get(f"/v1/{path}", headers=api.acme).status_code == 404
