from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from pipeline.chat.cite import verify
from pipeline.chat.record import Interaction, to_record
from pipeline.models import Box, Degradation, Draft, DraftCitation, MessageStatus, SearchQuery
from tests.unit.chat.texts import source

ASKED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2)))
NEW = Interaction("m1", "t1", "Why?", ASKED, "extractive")
SOURCE = source("Revenue grew by 12 % to $1,577 million.")


def answered():
    draft = Draft(
        "It grew [1]. So [2].", (DraftCitation(1, 1, SOURCE.text), DraftCitation(2, 1, "invented by a model")), True
    )
    answer = verify(draft, [SOURCE])
    box = Box(3, 1.0, 2.0, 3.0, 4.0)
    answer = replace(answer, citations=tuple(replace(each, boxes=(box,)) for each in answer.citations))
    return replace(
        NEW,
        status=MessageStatus.FINISHED,
        queries=(SearchQuery("why", "kb"),),
        sources=(SOURCE,),
        degraded=(Degradation("vectors", "not_ready", "No vectors yet.", "kb"),),
        content="It grew [1]. So [2].",
        answer=answer,
        answered_at=datetime(2026, 1, 2, 3, 5, tzinfo=UTC),
    )


def test_a_new_and_a_finished_record_have_the_same_keys():
    new, done = to_record(NEW), to_record(answered())
    assert new.keys() == done.keys()
    assert new["model_response"].keys() == done["model_response"].keys()
    assert {"user_input", "model_response", "search_queries", "relevant_segments", "message_id"} <= new.keys()


def test_the_finished_record_shows_the_proven_answer():
    record = to_record(answered())
    assert record["model_response"]["content"] == "It grew [1]. So."
    (citation,) = record["model_response"]["citations"]
    assert citation["cited_text"] == SOURCE.text
    assert (citation["page_number"], citation["kb_id"], citation["doc_id"]) == (3, "kb", "doc-1")
    assert citation["boxes"] == [{"page": 3, "left": 1.0, "bottom": 2.0, "right": 3.0, "top": 4.0}]
    assert record["unverified"][0]["reason"] == "the quote is not in the source"
    assert record["coverage"] == {"sentences": 2, "proven": 1}
    (segment,) = record["relevant_segments"]
    assert (segment["source_index"], segment["segment_page_start"], segment["segment_page_end"]) == (1, 3, 3)


def test_a_failed_record_says_why():
    record = to_record(replace(NEW, status=MessageStatus.FAILED, error_code="stream_cut", error="It broke off."))
    assert record["error"] == {"code": "stream_cut", "message": "It broke off."}
    assert record["model_response"]["status"] == "failed"


def test_times_are_utc():
    assert to_record(NEW)["user_input"]["timestamp"] == "2026-01-02T01:04:05+00:00"
    with pytest.raises(ValueError, match="time zone"):
        to_record(replace(NEW, asked_at=datetime(2026, 1, 2)))  # noqa: DTZ001  # the point of the test


def test_records_are_plain_json():
    record = to_record(answered())
    assert json.loads(json.dumps(record)) == record
