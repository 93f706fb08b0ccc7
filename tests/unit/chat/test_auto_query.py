from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pipeline.chat.auto_query import plan_queries
from pipeline.errors import PermanentError, TransientError
from pipeline.models import ChatMessage, KnowledgeBase, SearchQuery

BEFORE = (ChatMessage("user", "What was the revenue of 3M in 2020?"), ChatMessage("assistant", "It was 32."))


def kbs(*ids):
    return [
        KnowledgeBase(kb_id, "tenant", f"Name of {kb_id}", 'About <"it">', datetime(2026, 1, 1, tzinfo=UTC))
        for kb_id in ids
    ]


class Scripted:
    """A model that fills the schema with what it is given, or fails."""

    def __init__(self, *queries, error=None):
        self.queries, self.error, self.messages = queries, error, []

    def complete(self, messages, reply, *, max_tokens):
        assert max_tokens > 0
        self.messages = list(messages)
        if self.error:
            raise self.error
        return reply.model_validate({"queries": [{"query": query, "kb_id": kb_id} for query, kb_id in self.queries]})


def planned(model, *ids, question="What is new?", history=()):
    return [(each.query, each.kb_id) for each in plan_queries(question, history, kbs(*ids), "", model).queries]


def test_without_a_model_every_knowledge_base_gets_the_question():
    assert planned(None, "a", "b") == [("What is new?", "a"), ("What is new?", "b")]


@pytest.mark.parametrize("question", ["And in 2021?", "How did it change over the following years?", "Why?"])
def test_a_follow_up_comes_after_the_question_before_it(question):
    assert planned(None, "a", question=question, history=BEFORE) == [(f"{BEFORE[0].content} {question}", "a")]


def test_a_question_that_stands_alone_is_left_alone():
    question = "Who founded the largest competitor of Apple?"
    assert planned(None, "a", question=question, history=BEFORE) == [(question, "a")]


def test_no_knowledge_base_needs_no_query():
    assert plan_queries("What?", (), [], "", Scripted(("x", "a"))).queries == ()


def test_the_models_queries_are_taken_in_turn_and_once():
    model = Scripted(
        ("1", "a"), ("2", "a"), ("3", "b"), (" 1 ", "a"), ("4", "a"), ("", "a"), ("5", "b"), ("6", "a"), ("7", "a")
    )
    assert planned(model, "a", "b") == [("1", "a"), ("3", "b"), ("2", "a"), ("5", "b"), ("4", "a")]


def test_a_knowledge_base_that_was_left_out_gets_the_question():
    model = Scripted(*((str(number), "a") for number in range(7)))
    found = planned(model, "a", "b", "c")
    assert found == [("0", "a"), ("1", "a"), ("2", "a"), ("What is new?", "b"), ("What is new?", "c")]


def test_an_unknown_id_is_dropped_when_many_are_possible_and_repaired_when_one_is():
    assert planned(Scripted(("x", "wrong")), "a") == [("x", "a")]
    assert planned(Scripted(("x", "wrong"), ("y", "a")), "a", "b") == [("y", "a"), ("What is new?", "b")]


def test_a_model_that_fails_for_good_is_named_and_replaced_by_the_question():
    plan = plan_queries(
        "What is new?", (), kbs("a"), "", Scripted(error=PermanentError("No JSON.", code="malformed_reply"))
    )
    assert plan.queries == (SearchQuery("What is new?", "a"),)
    assert [(part.part, part.code) for part in plan.degraded] == [("auto_query", "malformed_reply")]


def test_a_passing_failure_is_the_callers():
    with pytest.raises(TransientError):
        plan_queries("What?", (), kbs("a"), "", Scripted(error=TransientError("Busy.")))


def test_the_prompt_names_the_knowledge_bases_as_data():
    model = Scripted(("x", "a"))
    plan_queries("What?", BEFORE, kbs("a", "b"), "Prefer recent years.", model)
    system = model.messages[0].content
    assert '<knowledge_base id="a" name="Name of a">About  it </knowledge_base>' in system
    assert "at most 5 queries" in system
    assert "Prefer recent years." in system
    assert model.messages[1:] == [*BEFORE, ChatMessage("user", "What?")]
