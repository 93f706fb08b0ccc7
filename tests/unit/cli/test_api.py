"""The client against scripted HTTP answers."""

import json

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_gateway.cli import api as module
from api_gateway.cli.api import Api, UnreachableError
from api_gateway.cli.follow import follow
from api_gateway.cli.sse import ServerEvent, parse_events
from pipeline.errors import ConflictError, NotFoundError, PermanentError, TransientError, UnauthorizedError


def api_of(handler):
    return Api("http://server", "sm_key", transport=httpx.MockTransport(handler))


def problem(status, code, detail, **headers):
    body = {"code": code, "detail": detail, "status": status}
    return httpx.Response(status, json=body, headers={"content-type": "application/problem+json", **headers})


@pytest.mark.parametrize(
    ("status", "kind"), [(404, NotFoundError), (401, UnauthorizedError), (409, ConflictError), (418, PermanentError)]
)
def test_a_problem_becomes_our_error_with_its_code_and_words(status, kind):
    with api_of(lambda _: problem(status, "some_code", "What to do.")) as api, pytest.raises(kind) as caught:
        api.get("/v1/x")
    assert (caught.value.code, caught.value.message) == ("some_code", "What to do.")


def test_a_busy_server_says_when_to_come_again():
    answer = problem(429, "overloaded", "Too much.", **{"retry-after": "7"})
    with api_of(lambda _: answer) as api, pytest.raises(TransientError) as caught:
        api.post("/v1/x", {})
    assert caught.value.retry_after_s == 7.0


def test_an_error_that_is_no_problem_document_is_told_by_its_status():
    with api_of(lambda _: httpx.Response(500, text="<html>")) as api, pytest.raises(PermanentError, match="500"):
        api.get("/v1/x")


def test_a_server_that_never_answered_is_reported_at_once_with_what_to_do():
    def refuse(request):
        raise httpx.ConnectError("Connection refused", request=request)

    with api_of(refuse) as api, pytest.raises(UnreachableError, match="sourcemill up"):
        api.get("/v1/x")


def test_a_restart_of_a_server_that_has_answered_is_outlasted(monkeypatch):
    monkeypatch.setattr(module, "_RETRY_S", 0.001)
    answers = iter([200, None, None, 200])

    def restarting(request):
        status = next(answers)
        if status is None:
            raise httpx.ReadError("gone", request=request)
        return httpx.Response(status, json={"n": 1})

    with api_of(restarting) as api:
        assert [api.get("/v1/x"), api.get("/v1/x")] == [{"n": 1}, {"n": 1}]


def test_a_question_is_not_sent_twice_when_nobody_knows_whether_it_arrived():
    seen = []

    def breaking(request):
        seen.append(request.method)
        if request.method == "POST":
            raise httpx.ReadError("gone", request=request)
        return httpx.Response(200, json={})

    with api_of(breaking) as api:
        api.get("/v1/x")
        with pytest.raises(UnreachableError):
            api.post("/v1/threads/t/messages", {"content": "?"})
    assert seen == ["GET", "POST"]


def test_pages_are_followed_to_the_last():
    pages = {None: {"items": [1, 2], "next": "2"}, "2": {"items": [3], "next": None}}
    with api_of(lambda request: httpx.Response(200, json=pages[request.url.params.get("after")])) as api:
        assert list(api.pages("/v1/things")) == [1, 2, 3]


def test_a_cut_stream_goes_on_behind_the_last_event_and_shows_each_once(monkeypatch):
    monkeypatch.setattr("api_gateway.cli.follow.RECONNECT_S", 0.001)
    record = {"message_id": "m", "model_response": {"status": "finished"}}
    frames = [f"id: {n}\nevent: delta\ndata: {json.dumps({'text': str(n)})}\n\n" for n in range(3)] + [
        f"id: 3\nevent: finished\ndata: {json.dumps(record)}\n\n"
    ]
    asked = []

    def serve(request):
        last = request.headers.get("last-event-id")
        asked.append(last)
        if len(asked) == 2:
            raise httpx.ConnectError("refused", request=request)
        first = 0 if last is None else int(last) + 1
        return httpx.Response(200, text="".join(frames[first : first + 2]) + "id: 99\nevent: delta\ndata: cut")

    shown = []
    with api_of(serve) as api:
        assert follow(api, "m", lambda kind, data: shown.append((kind, data["text"]))) == record
    assert shown == [("delta", "0"), ("delta", "1"), ("delta", "2")]
    assert asked == [None, "1", "1"]


def test_events_are_parsed_as_the_standard_says():
    lines = [
        ": ping",
        "id: 4",
        "event: delta",
        "data: a",
        "data:b",
        "",
        "data: c",
        "",
        "event: nothing",
        "",
        "data: cut",
    ]
    assert list(parse_events(lines)) == [ServerEvent("4", "delta", "a\nb"), ServerEvent(None, "message", "c")]


@given(st.lists(st.text(alphabet="ad:e vnt\u4e2d", max_size=12), max_size=30))
def test_any_lines_can_be_parsed(lines):
    for event in parse_events(lines):
        assert isinstance(event.data, str)
