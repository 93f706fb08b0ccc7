from __future__ import annotations

import json
import time
import traceback
from collections import deque
from itertools import pairwise

import pytest
from pydantic import BaseModel

from pipeline.chat.cite import verify
from pipeline.errors import ConfigurationError, PermanentError, TransientError
from pipeline.inference.generator import MAX_REPLY_CHARS, OpenAiGenerator, parse_model
from pipeline.inference.ports import GenerationRequest
from pipeline.models import ChatMessage, ThreadParams
from tests.scripted_model import scripted_model
from tests.unit.chat.texts import source

KEY = "sk-very-secret-0123456789"
TEXT = "Revenue grew by 12 % to $1,577 million in 2021.\nThe <source> tag & [1] are only text."
REQUEST = GenerationRequest("How did revenue change?", (), (source(TEXT, index=0),), ThreadParams())


class Queries(BaseModel):
    class Query(BaseModel):
        query: str
        kb_id: str

    queries: list[Query]


def many(handler, body):
    response = "word " * 4000 + "[1]"
    handler.answer(body, json.dumps({"response": response, "citations": []}))


def emptied(handler, body):
    handler.answer(body, "")


def senseless(handler, body):
    """Markers and indexes that no answer has, beside one that is right."""
    cited = [
        {"marker": 10**23, "source_index": 0, "page_number": 1, "cited_text": "x"},
        {"marker": 1, "source_index": -1, "page_number": 1, "cited_text": "x"},
        {"marker": 1, "source_index": 0, "page_number": -7, "cited_text": "Revenue grew by 12 %"},
    ]
    handler.answer(body, json.dumps({"response": "It grew [1].", "citations": cited}))


def endless(handler, _body):
    handler.begin_stream()
    handler.send_piece('{"response": "')
    for _ in range(200):
        handler.send_piece("word " * 200)


@pytest.fixture(scope="module")
def server():
    scripts = {each.__name__: each for each in (many, emptied, senseless, endless)}
    with scripted_model(scripts=scripts) as running:
        yield running


@pytest.fixture
def ask(server):
    opened = []

    def generator(script, timeout_s=5.0):
        opened.append(OpenAiGenerator(f"scripted/{script}", base_url=server.base_url, api_key=KEY, timeout_s=timeout_s))
        return opened[-1]

    yield generator
    for each in opened:
        each.close()


def failure(generator):
    """The drafts before an error, and the error."""
    drafts = []
    with pytest.raises((TransientError, PermanentError)) as caught:
        deque(map(drafts.append, generator.stream(REQUEST)), maxlen=0)
    return drafts, caught.value


def test_drafts_grow_to_a_complete_answer_with_a_provable_quote(ask):
    drafts = list(ask("quote").stream(REQUEST))
    assert [each.complete for each in drafts] == [False] * (len(drafts) - 1) + [True]
    assert all(later.response.startswith(earlier.response) for earlier, later in pairwise(drafts))
    answer = verify(drafts[-1], REQUEST.sources)
    assert answer.citations[0].cited_text == "Revenue grew by 12 % to $1,577 million in 2021."
    assert answer.unverified == ()


def test_text_arrives_before_the_end(ask):
    drafts = list(ask("slow").stream(REQUEST))
    assert len(drafts) > 3
    assert not drafts[0].abstained


def test_the_request_asks_for_the_schema_and_escapes_the_sources(ask, server):
    list(ask("quote").stream(REQUEST))
    body = server.requests[-1]
    assert body["model"] == "quote"
    assert body["stream"] is True
    assert body["response_format"]["json_schema"]["schema"]["required"] == ["response", "citations"]
    prompt = body["messages"][-1]["content"]
    assert "The &lt;source> tag & &#91;1] are only text." in prompt
    assert prompt.count("</source>") == 1


def test_a_long_answer_is_parsed_at_most_twenty_times_a_second(ask):
    started = time.monotonic()
    drafts = list(ask("many").stream(REQUEST))
    assert len(drafts) <= 22 * (time.monotonic() - started) + 3
    assert drafts[-1].complete


@pytest.mark.parametrize("script", ["length", "ended"])
def test_a_reply_without_its_end_is_an_incomplete_draft(ask, script):
    drafts = list(ask(script).stream(REQUEST))
    assert drafts[-1].complete is False
    assert drafts[-1].response


def test_a_cut_stream_gives_its_text_and_then_fails(ask):
    drafts, error = failure(ask("cut"))
    assert isinstance(error, TransientError)
    assert error.code == "stream_cut"
    assert drafts[-1].response.startswith("The source says: Revenue grew")
    assert not drafts[-1].complete


def test_a_second_try_starts_again(ask):
    generator = ask("cut+quote")
    failure(generator)
    assert list(generator.stream(REQUEST))[-1].complete


@pytest.mark.parametrize(
    ("script", "kind", "code", "retry_after_s"),
    [
        ("limited", TransientError, "provider_limited", 7.0),
        ("broken", TransientError, "provider_failed", 1.5),
        ("refused", PermanentError, "provider_refused_key", None),
        ("unknown", PermanentError, "unknown_model", None),
        ("rejected", PermanentError, "provider_rejected_request", None),
        ("malformed", PermanentError, "malformed_reply", None),
        ("emptied", PermanentError, "malformed_reply", None),
    ],
)
def test_each_refusal_has_its_kind_and_code(ask, script, kind, code, retry_after_s):
    drafts, error = failure(ask(script))
    assert drafts == []
    assert type(error) is kind
    assert error.code == code
    assert getattr(error, "retry_after_s", None) == retry_after_s


@pytest.mark.parametrize("script", ["silent", "unheard"])
def test_a_silent_provider_is_given_up_after_the_timeout(ask, script):
    started = time.monotonic()
    _, error = failure(ask(script, timeout_s=0.3))
    assert isinstance(error, TransientError)
    assert error.code == "provider_silent"
    assert time.monotonic() - started < 3


def test_a_server_that_is_not_there_is_unreachable():
    generator = OpenAiGenerator("scripted/quote", base_url="http://127.0.0.1:9/v1", api_key=KEY, timeout_s=2)
    _, error = failure(generator)
    generator.close()
    assert isinstance(error, TransientError)
    assert error.code == "provider_unreachable"


@pytest.mark.parametrize("script", ["refused", "limited", "rejected", "cut"])
def test_the_key_is_in_no_message_traceback_or_repr(ask, script):
    generator = ask(script)
    _, error = failure(generator)
    assert KEY not in "".join(traceback.format_exception(error)) + repr(error) + repr(generator)


def test_nothing_is_retried_inside(ask, server):
    before = len(server.requests)
    failure(ask("limited"))
    assert len(server.requests) == before + 1


def test_a_structured_reply_fills_its_schema(ask):
    messages = [ChatMessage("system", '<knowledge_base id="kb-1">'), ChatMessage("user", "What is new?")]
    reply = ask("quote").complete(messages, Queries, max_tokens=100)
    assert reply.queries[0].kb_id == "kb-1"
    assert reply.queries[0].query == "What is new?"


@pytest.mark.parametrize(
    ("script", "kind", "code"),
    [
        ("malformed", PermanentError, "malformed_reply"),
        ("limited", TransientError, "provider_limited"),
        ("refused", PermanentError, "provider_refused_key"),
        ("unheard", TransientError, "provider_silent"),
    ],
)
def test_structured_failures_have_the_same_kinds(ask, server, script, kind, code):
    before = len(server.requests)
    with pytest.raises(kind) as caught:
        ask(script, timeout_s=0.5).complete([ChatMessage("user", "?")], Queries, max_tokens=100)
    assert caught.value.code == code
    assert KEY not in "".join(traceback.format_exception(caught.value))
    assert len(server.requests) == before + 1


def test_known_providers_have_their_address():
    assert parse_model("openrouter/meta/llama-3").model == "meta/llama-3"
    assert parse_model("openai/gpt-4o").base_url == "https://api.openai.com/v1"
    assert parse_model("mine/m", "http://host/v1/").base_url == "http://host/v1"


@pytest.mark.parametrize(
    ("name", "hint"), [("mine/m", "SOURCEMILL_MODEL_BASE_URL"), ("gpt-4o", "provider/model"), ("", "provider/model")]
)
def test_an_unusable_model_name_says_what_to_set(name, hint):
    with pytest.raises(ConfigurationError, match=hint):
        parse_model(name)


def test_numbers_that_are_no_markers_make_no_citation(ask):
    (*_, last) = ask("senseless").stream(REQUEST)
    assert last.complete
    assert [citation.marker for citation in last.citations] == [1]


def test_a_reply_without_end_is_stopped_and_incomplete(ask):
    (*_, last) = ask("endless").stream(REQUEST)
    assert not last.complete
    assert len(last.response) <= 2 * MAX_REPLY_CHARS
