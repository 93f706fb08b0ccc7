"""`kill -9` of every kind of process in the middle of an answer: it finishes, and its viewers miss nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import redis

from tests.e2e.conftest import samples
from tests.scripted_model import quoting_reply, scripted_model, structured_reply
from tests.stack import Api, Stack, broker_url, running_stack, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

QUESTION = "How many annual leave hours can you carry over from one leave year to the next?"
PAUSE_S = 0.12
TERMINAL = {"finished", "failed", "cancelled"}


def crawl(handler, body) -> None:
    """An answer that takes a few seconds, so that there is a middle to die in."""
    if body.get("stream"):
        handler.answer(body, quoting_reply(body), pause_s=PAUSE_S)
    else:
        handler.answer(body, structured_reply(body))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with scripted_model(scripts={"crawl": crawl}) as model:
        extra = {"SOURCEMILL_MODEL": "scripted/crawl", "SOURCEMILL_MODEL_BASE_URL": model.base_url}
        with running_stack(tmp_path_factory.mktemp("answers") / "data", extra) as running:
            yield running


@pytest.fixture(scope="module")
def api(stack: Stack) -> Iterator[Api]:
    with stack.client() as http:
        yield Api(http)


@pytest.fixture(scope="module")
def kb(api: Api) -> str:
    kb = api.create_kb("samples")
    api.upload(kb, samples())
    api.wait_documents(kb, 120)
    return kb


class Viewer(threading.Thread):
    """Follows a message to its end, reconnecting with the last seq whenever the connection breaks."""

    def __init__(self, api: Api, message_id: str) -> None:
        super().__init__(daemon=True)
        self.api, self.message_id = api, message_id
        self.events: list[dict[str, Any]] = []

    def run(self) -> None:
        while not (self.events and self.events[-1]["type"] in TERMINAL):
            after = self.events[-1]["seq"] if self.events else -1
            try:
                for event in self.api.events(self.message_id, after):
                    self.events.append(event)
            except httpx.HTTPError:
                time.sleep(0.1)

    @property
    def text(self) -> str:
        """What a client shows just before the terminal event."""
        text = ""
        for event in self.events:
            if event["type"] == "delta":
                text += event["data"]["text"]
            elif event["type"] == "reset":
                text = ""
            elif event["type"] in {"snapshot", "citations"}:
                text = event["data"].get("content") or event["data"].get("model_response", {}).get("content", text)
        return text


def watched_answer(stack: Stack, api: Api, kb: str, disturb, *, at: str = "delta") -> Viewer:
    viewer = Viewer(api, api.ask(QUESTION, kb))
    viewer.start()
    if at == "delta":
        wait_for(lambda: any(event["type"] == "delta" for event in viewer.events), 60, "the text to begin", 0.01)
    disturb(stack)
    viewer.join(90)
    assert not viewer.is_alive(), [(event["seq"], event["type"]) for event in viewer.events]
    return viewer


def check_finished(viewer: Viewer) -> None:
    final = viewer.events[-1]
    assert final["type"] == "finished"
    (citation,) = final["data"]["model_response"]["citations"]
    assert citation["cited_text"] in final["data"]["model_response"]["content"].replace("\n", " ") or citation
    assert viewer.text == final["data"]["model_response"]["content"]
    assert [event["type"] for event in viewer.events if event["type"] in TERMINAL] == ["finished"]


def kill_and_wait(name: str):
    def disturb(stack: Stack) -> None:
        stack.wait_restarted(name, stack.kill(name))

    return disturb


@pytest.mark.parametrize("victim", ["extract", "embed", "store", "answer", "beat", "gateway"])
def test_killing_a_process_in_the_middle_of_an_answer(victim: str, stack: Stack, api: Api, kb: str) -> None:
    viewer = watched_answer(stack, api, kb, kill_and_wait(victim))
    assert [event["seq"] for event in viewer.events] == list(range(len(viewer.events)))
    check_finished(viewer)
    assert ("reset" in {event["type"] for event in viewer.events}) is (victim == "answer")


def test_killing_the_store_before_it_has_searched(stack: Stack, api: Api, kb: str) -> None:
    viewer = watched_answer(stack, api, kb, kill_and_wait("store"), at="once")
    assert [event["seq"] for event in viewer.events] == list(range(len(viewer.events)))
    assert viewer.events[-1]["type"] == "finished"


def test_killing_the_broker_in_the_middle_of_an_answer(stack: Stack, api: Api, kb: str) -> None:
    check_finished(watched_answer(stack, api, kb, kill_and_wait("valkey")))


def test_a_broker_that_forgets_everything_in_the_middle_of_an_answer(stack: Stack, api: Api, kb: str) -> None:
    def flush(stack: Stack) -> None:
        with redis.Redis.from_url(broker_url(stack)) as broker:
            broker.flushall()

    check_finished(watched_answer(stack, api, kb, flush))


def test_a_cancelled_answer_ends_as_cancelled(api: Api, kb: str) -> None:
    viewer = Viewer(api, api.ask(QUESTION, kb))
    viewer.start()
    wait_for(lambda: any(event["type"] == "delta" for event in viewer.events), 60, "the text to begin", 0.01)
    assert api.http.post(f"/v1/messages/{viewer.message_id}/cancel").status_code == 202
    viewer.join(30)
    assert viewer.events[-1]["type"] == "cancelled"
    assert api.http.post(f"/v1/messages/{viewer.message_id}/cancel").status_code == 409


@pytest.mark.parametrize(
    ("model", "status", "code"),
    [
        ("refused", "failed", "provider_refused_key"),
        ("unknown", "failed", "unknown_model"),
        ("cut+quote", "finished", None),
        ("broken+quote", "finished", None),
    ],
)
def test_a_provider_that_misbehaves(api: Api, kb: str, model: str, status: str, code: str | None) -> None:
    record = api.answer(QUESTION, kb, model=f"scripted/{model}", auto_query_model="scripted/quote", timeout_s=90)
    assert record["model_response"]["status"] == status, record["error"]
    assert (record["error"] or {}).get("code") == code


def test_an_invented_quote_is_never_shown_as_a_citation(api: Api, kb: str) -> None:
    record = api.answer(QUESTION, kb, model="scripted/invented", auto_query_model="scripted/quote")
    assert record["model_response"]["citations"] == []
    assert "[1]" not in record["model_response"]["content"]
    assert record["unverified"][0]["cited_text"] == "This sentence is in no document at all."
